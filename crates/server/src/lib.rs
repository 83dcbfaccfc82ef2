//! The control plane's shell: node port, operator port, store, posture.
//!
//! Decides nothing about nodes: [`plane`] does. What is here authenticates, calls the
//! step, makes durable what it says, and answers.
//!
//! Two sets of every node that synchronizes are in [`hub`]; what operators change in them
//! comes through [`objects`] and [`work`], which carries out what [`plane::work`] decides.
//!
//! [`refresh`] judges the nodes that changed, and keeps [`totals`] of the fleet and what releases declare of
//! each node ([`declared`]); so who asks how the fleet does looks at no node that is not shown.
//!
//! Tasks: one accept loop a port, one per connection; [`upkeep`] flushes contacts, renews
//! what is renewed by itself, refreshes the totals and prunes; one actor for each open task of operators, one for all
//! workflows, and one for all [`rollouts`]. Shared state is [`state::ControlPlane`]; heads
//! travel in a watch channel, so that a publish wakes those who wait.

mod answer;
pub mod api;
pub mod authority;
mod authority_files;
mod beacons;
mod cache;
mod causes;
mod closures;
mod declared;
mod enroll;
mod failed_joins;
mod feed_signing;
mod fleet_name;
mod grants;
mod hub;
mod index;
mod intake;
mod joins;
mod lists;
mod log;
mod metrics;
mod node_port;
mod objects;
mod open_files;
mod operator_port;
mod operators;
mod own_certificate;
pub mod posture;
mod prefix_limits;
mod refresh;
mod releases;
mod renew;
mod rollouts;
mod run;
mod sets;
mod settings;
mod state;
mod status_basis;
mod streams;
mod totals;
pub mod trust_chain;
mod trust_links;
mod upkeep;
mod work;

pub use authority::AuthoritySet;
pub use fleet_name::FleetName;
pub use log::LogControl;
pub use operator_port::{RouteAccess, route_access};
pub use operators::authority::OperatorAuthoritySet;
pub use plane::renewal::CertificateRecovery;
pub use posture::{Credentials, EnrollInfo, Founded, OperatorProof, Posture};
pub use run::{Config, RunningServer, ServerStartError, start};
pub use settings::{CertificateSettings, LAB_RECOVERY};
pub use streams::StreamConfig;
