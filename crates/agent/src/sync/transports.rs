//! [`TransportSelector`]: which transport to try next (SYN-1). Pure.

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
    avoided: [Option<Instant>; 3],
    /// Failures in a row; one alone may be a control plane that just went away.
    failures: [u32; 3],
}

impl TransportSelector {
    /// Nothing is learnt yet. A proxy that ends TLS lets no stream of two ways through (IDN-4).
    pub fn new(tls_termination: TlsTermination) -> TransportSelector {
        TransportSelector { tls_termination, ..TransportSelector::default() }
    }

    /// The best transport that may be tried now; polling when there is no other. A transport
    /// that is named is tried again and again, with polls in between (SYN-11).
    pub fn next(&self, policy: TransportPolicy, now: Instant) -> TransportKind {
        let is_free = |kind: &&TransportKind| {
            let at = TransportKind::STREAMS.iter().position(|one| one == *kind);
            let avoided = at.and_then(|at| self.avoided[at]);
            policy.names_one() || avoided.is_none_or(|until| now >= until)
        };
        let passes =
            |kind: &&TransportKind| self.tls_termination.is_control_plane() || **kind == TransportKind::Sse;
        let mut streams = policy.streams().iter().filter(passes);
        streams.find(is_free).copied().unwrap_or(TransportKind::Poll)
    }

    /// A transport did not come through; `true` when another one is to be tried at once.
    pub fn failed(&mut self, transport_kind: TransportKind, now: Instant) -> bool {
        let Some(at) = TransportKind::STREAMS.iter().position(|one| *one == transport_kind) else {
            return false;
        };
        self.failures[at] += 1;
        if self.failures[at] < FAILURES {
            return false;
        }
        (self.failures[at], self.avoided[at]) = (0, Some(now + AVOIDED));
        true
    }

    /// A transport came through.
    pub fn worked(&mut self, transport_kind: TransportKind) {
        if let Some(at) = TransportKind::STREAMS.iter().position(|one| *one == transport_kind) {
            (self.failures[at], self.avoided[at]) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_avoided_for_a_while() {
        let (now, mut transports) = (Instant::now(), TransportSelector::default());
        for expected in [TransportKind::Grpc, TransportKind::Websocket, TransportKind::Sse] {
            assert_eq!(transports.next(TransportPolicy::Auto, now), expected);
            assert!(!transports.failed(expected, now), "once is no reason");
            assert_eq!(transports.next(TransportPolicy::Auto, now), expected);
            assert!(transports.failed(expected, now));
        }
        assert_eq!(transports.next(TransportPolicy::Stream, now), TransportKind::Poll);
        assert_eq!(transports.next(TransportPolicy::Grpc, now), TransportKind::Grpc);
        assert_eq!(transports.next(TransportPolicy::Stream, now + AVOIDED), TransportKind::Grpc);
        transports.worked(TransportKind::Sse);
        assert_eq!(transports.next(TransportPolicy::Auto, now), TransportKind::Sse);
    }

    /// IDN-4
    #[test]
    fn behind_a_proxy_no_stream_of_two_ways_is_tried() {
        let (now, mut transports) = (Instant::now(), TransportSelector::new(TlsTermination::Proxy));
        for policy in TransportPolicy::ALL {
            let passes = policy.streams().contains(&TransportKind::Sse);
            let expected = if passes { TransportKind::Sse } else { TransportKind::Poll };
            assert_eq!(transports.next(policy, now), expected, "{policy}");
        }
        for _ in 0..FAILURES {
            transports.failed(TransportKind::Sse, now);
        }
        assert_eq!(transports.next(TransportPolicy::Auto, now), TransportKind::Poll);
    }
}
