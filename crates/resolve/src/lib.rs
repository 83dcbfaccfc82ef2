//! Fleet repo text to what each node gets: check, judge, specialize, explain.
//!
//! [`check`] reads a [`Tree`] and finds every mistake at once; [`Fleet::specialize`] is
//! what each node gets of it. [`Resolver`] does the same change by change, and judges what each node gets
//! before it is signed. [`explain`] names the layers of one node's values. Pure: whoever
//! reads the folder hands the bytes over. No observed trait is read here.

mod check;
mod classify;
pub mod codes;
mod decl;
pub mod explain;
mod exprs;
mod idle;
mod judge;
mod parse;
mod pass;
pub mod release;
mod render;
mod resolver;
pub mod rollouts;
pub mod secrets;
mod shape;
mod sink;
mod specialize;
mod tree;
mod yaml;

pub use check::modules::SharedModule;
pub use classify::MAX_PATTERNS;
pub use decl::admission::{
    DeclaredAdmission, DeclaredRevocation, DeclaredToken, REVOCATIONS_FILE, TOKENS_FILE,
    declared_revocations, declared_tokens,
};
pub use decl::nodes::hostname;
pub use decl::secrets::{SecretSource, SecretSourceKind};
pub use idle::{IdleGroup, IdlePattern, IdleRevocation};
pub use judge::Unevaluated;
pub use render::render;
pub use resolver::{Changed, Fleet, Resolver, check};
pub use sink::MAX_SHOWN;
pub use specialize::{ByName, Grant, Grants, NodeSpec, PatternSpec, Specialized};
pub use tree::{MAX_FILES, MAX_SHIPPED, RepoFile, Tree};
pub use yaml::{MAX_DEPTH, MAX_FILE, MAX_NODES};
