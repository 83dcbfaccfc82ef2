//! What each file of a fleet repo declares, read on its own.
//!
//! A file is read once for as long as its bytes stay the same. What only the whole fleet
//! can tell (is there such a role?) is left to `check`.

pub(crate) mod admission;
pub(crate) mod delegation;
pub(crate) mod fleet;
mod foreach;
pub(crate) mod groups;
mod kind;
pub(crate) mod layers;
pub(crate) mod module;
pub(crate) mod nodes;
pub(crate) mod params;
pub(crate) mod probes;
pub(crate) mod resource;
pub(crate) mod rollouts;
pub(crate) mod secrets;
pub(crate) mod selection;
pub(crate) mod sync;
pub(crate) mod template;
pub(crate) mod vars;
pub(crate) mod whom;
mod windows;
