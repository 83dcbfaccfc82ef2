//! What integration tests share. Only development dependencies and `bench` may name this crate, and
//! a crate's unit tests may not use it: they would meet their own crate twice.
//!
//! ```text
//! booted        Debian hosts with systemd, a network of their own, packages
//! wait          poll a condition up to a deadline
//! connect_proxy an HTTP proxy that opens tunnels
//! tls_server    a TLS server with a handler of the test, and node certificates
//! memory        an end of links that keeps everything in memory
//! fleet         a control plane in this process, operators, nodes that sign by hand
//! agent_state   a joined host with adopted modules, without a control plane
//! agent_links   an agent's end of links against a control plane's end in memory
//! agent_local   an agent process without a control plane, and the verbs typed beside it
//! agent_pair    a control plane in this process and an agent process
//! scripted      a control plane that answers what the test says; one whose keys were stolen, and its victim
//! recorded      exchanges of a release as they were on the wire, kept in a file
//! slow_disk     a disk some of whose operations take long, or wait
//! programs      muster and muster-agent as processes, network namespaces, fleet repos
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a failure here is a failed test")]

#[cfg(feature = "agent")]
pub mod agent_links;
#[cfg(feature = "agent")]
pub mod agent_local;
#[cfg(feature = "agent")]
pub mod agent_pair;
#[cfg(feature = "agent")]
pub mod agent_state;
#[cfg(feature = "booted")]
pub mod booted;
pub mod children;
pub mod connect_proxy;
#[cfg(feature = "fleet")]
pub mod fleet;
#[cfg(feature = "agent")]
pub mod kills;
#[cfg(feature = "links")]
pub mod memory;
#[cfg(feature = "programs")]
pub mod programs;
#[cfg(feature = "agent")]
pub mod recorded;
#[cfg(feature = "agent")]
pub mod scripted;
#[cfg(feature = "agent")]
pub mod slow_disk;
pub mod tar;
pub mod tls_server;
pub mod wait;
