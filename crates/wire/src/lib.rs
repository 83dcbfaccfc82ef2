//! The form that messages have between agent and control plane.
//!
//! The messages themselves are `model::exchange`; here is how they are coded, signed,
//! compressed and refused, and which routes carry them.

pub mod body;
pub mod enroll;
pub mod headers;
pub mod problem;
pub mod route;
pub mod signature;

pub use body::BodyError;
pub use problem::{Code, Problem};
