//! The language that fleet repos are written in, without any IO.
//!
//! Holds [`Value`], the expression language ([`expr`], used by `${{ ... }}` and `when:`),
//! text with expressions in it ([`interpolate`]), template bodies ([`template`]), name
//! patterns ([`pattern`]), selectors of nodes ([`selector`]) and [`Diagnostic`]. One implementation serves the machine where
//! a release is made and every node that binds it, so a result seen in `muster render` is
//! the result on the node.
//!
//! Deliberately absent: floats (a value must have one canonical form), null (absence
//! is absence), clocks, randomness, files.

pub mod diagnostic;
pub mod expr;
pub mod glob;
pub mod interpolate;
pub mod nearest;
pub mod pattern;
pub mod regex;
pub mod scope;
pub mod secret;
pub mod selector;
pub mod template;
pub mod value;

pub use diagnostic::{Diagnostic, Diagnostics, Label, SourceSpan};
pub use expr::{EvalError, Expr, NameUse, ParseError, WindowUse};
pub use interpolate::InterpolatedText;
pub use nearest::nearest;
pub use pattern::Pattern;
pub use scope::{Names, Probe, Scope, Unobserved};
pub use secret::{OpenedSecrets, SecretUse};
pub use selector::Selector;
pub use template::{Template, TemplateError, TemplateRenderError};
pub use value::Value;
