//! The form that messages have between agent and control plane.
//!
//! The messages themselves are `model::exchange`; here is how they are coded, signed,
//! compressed and refused, and which routes carry them. What travels on a link is
//! [`sync::Frame`]; [`cloudevents`] gives it its form, [`grpc`], [`sse`] and [`batch`] carry it.

pub mod batch;
pub mod body;
pub mod cloudevents;
pub mod enroll;
mod generated;
pub mod grpc;
pub mod headers;
pub mod percent;
pub mod problem;
pub mod rollout;
pub mod route;
pub mod rpc;
pub mod signature;
pub mod sse;
pub mod standard;

pub use body::BodyError;
pub use problem::{Code, Problem};
