//! What a module is: params, resources, handlers, and the schema of every resource type.
//!
//! [`module`] holds the form in which a module travels (canonical JSON, shared by
//! digest). [`types`] declares each resource type once, with what it means once bound: typed,
//! every expression evaluated. [`schema`] is what declares a type: `muster check`, the node and
//! the reference read attributes through it. [`params`] reads and merges vars,
//! [`traits`] names what a node observes of itself, [`channel`] is a channel's settings.
//! [`delegation`] answers whether a release allows a piece of work, [`sync`] what may be
//! synchronized at all. [`visit`] walks the expressions of a declaration without evaluating them.

pub mod channel;
pub mod delegation;
pub mod duration;
pub mod module;
pub mod own_paths;
pub mod params;
pub mod reach;
pub mod schema;
pub mod secrets;
pub mod state_directories;
pub mod sync;
pub mod traits;
pub mod types;
pub mod visit;
