//! Messages made from the protobuf files of this crate.
//!
//! The events themselves do not go through these types: `protobuf` reads and writes them
//! without a copy, and tests hold it against these.
#![allow(dead_code, missing_docs, clippy::all, reason = "made code, of which only some is used at run time")]

#[rustfmt::skip]
pub(crate) mod grpc_health_v1;
#[rustfmt::skip]
pub(crate) mod grpc_reflection_v1;
#[rustfmt::skip]
pub(crate) mod io_cloudevents_v1;
#[rustfmt::skip]
pub(crate) mod muster_v1;
