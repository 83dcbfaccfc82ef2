//! [`TransportSelector`]: which transport to try next (SYN-1). Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use model::replication::{TransportKind, TransportPolicy};
use tokio::time::Instant;
use trust::token::TlsTermination;

/// A transport that did not come through is not tried again for so long.
pub const AVOIDED: Duration = Duration::from_secs(600);

/// So often in a row a transport has to fail before it is avoided.
const FAILURES: u32 = 2;

/// What was learnt of the transports.
#[derive(Debug, Default)]
pub struct TransportSelector {
    tls_termination: TlsTermination,
    failures: BTreeMap<TransportKind, TransportFailures>,
}

#[derive(Debug, Default)]
struct TransportFailures {
    /// One alone may be a control plane that just went away.
    in_a_row: u32,
    avoided_until: Option<Instant>,
}

impl TransportSelector {
    /// Nothing is learnt yet. A proxy that ends TLS lets no stream of two ways through (IDN-4).
    pub fn new(tls_termination: TlsTermination) -> TransportSelector {
        TransportSelector { tls_termination, ..TransportSelector::default() }
    }

    /// The best transport that may be tried now; polling when there is no other. A transport
    /// that is named is tried again and again, with polls in between (SYN-11).
    pub fn next(&self, policy: TransportPolicy, now: Instant) -> TransportKind {
        let avoided =
            |kind: &TransportKind| self.failures.get(kind).and_then(|failures| failures.avoided_until);
        let is_free = |kind: &TransportKind| {
            let passes = self.tls_termination.is_control_plane() || *kind == TransportKind::Sse;
            passes && (policy.names_one() || avoided(kind).is_none_or(|until| now >= until))
        };
        policy.streams().iter().copied().find(is_free).unwrap_or(TransportKind::Poll)
    }

    /// A transport did not come through; `true` when another one is to be tried at once.
    pub fn failed(&mut self, transport_kind: TransportKind, now: Instant) -> bool {
        let failures = self.failures.entry(transport_kind).or_default();
        failures.in_a_row += 1;
        let avoid = transport_kind.is_stream() && failures.in_a_row >= FAILURES;
        if avoid {
            *failures = TransportFailures { in_a_row: 0, avoided_until: Some(now + AVOIDED) };
        }
        avoid
    }

    /// A transport came through.
    pub fn worked(&mut self, transport_kind: TransportKind) {
        self.failures.remove(&transport_kind);
    }
}
