//! Fleet repo text to what each node gets: check, specialize.

mod decl;
mod exprs;
mod parse;
mod shape;
mod sink;
mod tree;
mod yaml;
pub use tree::Tree;
