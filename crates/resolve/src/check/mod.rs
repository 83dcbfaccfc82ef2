//! What only the whole fleet shows.

pub(crate) mod context;
pub(crate) mod graph;
pub(crate) mod identity;
pub(crate) mod modules;
pub(crate) mod references;
pub(crate) mod rollouts;
pub(crate) mod typed;
