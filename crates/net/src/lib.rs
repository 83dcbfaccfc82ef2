//! TLS 1.3, HTTP/2, certificates: everything between a socket and a request. HTTP/1.1 is
//! there only for the upgrade to a WebSocket, and for proxies.
//!
//! One provider (aws-lc-rs), passed explicitly everywhere. TLS configurations travel in
//! watch channels, so that a new certificate or root takes effect without a restart.
//! There is no session resumption: every connection verifies the certificate anew.
//!
//! [`admission`] says who is let in when there is not room for all; `gate` holds it for one listener.
//! `answer` bounds answers that are not taken in. `dial` and [`proxy`] lead out, each obstacle with an error of its own.

pub mod accept;
pub mod admission;
mod answer;
pub mod authority;
pub mod certificate;
mod certified_data;
pub mod client;
mod connection;
mod dial;
pub mod download;
mod gate;
pub mod identity;
pub mod issue;
pub mod notify;
pub mod peers;
pub mod prefix_journal;
pub mod proxy;
pub mod proxy_protocol;
pub mod revoked;
mod session;
pub mod signal;
pub mod stream;
pub mod tasks;
pub mod tls;
pub mod trust_links;
pub mod url;
pub mod websocket;

pub use authority::BelievedAuthority;
pub use certified_data::{CertifiedData, MAX_CERTIFIED_BYTES, MAX_CERTIFIED_LABELS};
pub use client::Destination;
pub use identity::{CertifiedPeer, PeerRole};
pub use proxy::ProxyUrl;
pub use signal::Signal;
pub use url::ServerUrl;
