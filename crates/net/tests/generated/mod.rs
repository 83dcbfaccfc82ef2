//! A client made by a standard gRPC generator from Muster's protobuf files.
#![allow(missing_docs, dead_code, clippy::all, reason = "made code")]

#[rustfmt::skip]
pub mod grpc_health_v1;
#[rustfmt::skip]
pub mod grpc_reflection_v1;
#[rustfmt::skip]
pub mod io_cloudevents_v1;
#[rustfmt::skip]
pub mod muster_v1;
