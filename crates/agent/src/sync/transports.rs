//! [`TransportSelector`]: which transport to try next (SYN-1). Pure.

use std::time::Duration;

use model::replication::Transport;
use tokio::time::Instant;

/// A transport that did not come through is not tried again for so long.
pub const AVOIDED: Duration = Duration::from_secs(600);

/// What carries a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransportKind {
    /// gRPC over HTTP/2.
    Grpc,
    /// A WebSocket over HTTP/1.1.
    Websocket,
    /// Server-sent events, with posts up.
    Sse,
    /// Posts and their answers.
    Poll,
}

/// So often in a row a transport has to fail before it is avoided.
const FAILURES: u32 = 2;
/// Streams, the best first.
const STREAMS: [TransportKind; 3] = [TransportKind::Grpc, TransportKind::Websocket, TransportKind::Sse];

impl TransportKind {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            TransportKind::Grpc => "grpc",
            TransportKind::Websocket => "websocket",
            TransportKind::Sse => "sse",
            TransportKind::Poll => "poll",
        }
    }

    /// It stays open.
    pub fn is_stream(self) -> bool {
        self != TransportKind::Poll
    }
}

/// What was learnt of the transports.
#[derive(Debug, Default)]
pub struct TransportSelector {
    avoided: [Option<Instant>; 3],
    /// Failures in a row; one alone may be a control plane that just went away.
    failures: [u32; 3],
}

impl TransportSelector {
    /// The best transport that may be tried now; polling when there is no other. A transport
    /// that is named is tried again and again, with polls in between (SYN-11).
    pub fn next(&self, transport: Transport, now: Instant) -> TransportKind {
        match transport {
            Transport::Poll => TransportKind::Poll,
            Transport::Grpc => TransportKind::Grpc,
            Transport::Websocket => TransportKind::Websocket,
            Transport::Sse => TransportKind::Sse,
            Transport::Auto | Transport::Stream => {
                let free = |avoided: &Option<Instant>| avoided.is_none_or(|until| now >= until);
                let best = STREAMS.into_iter().zip(&self.avoided).find(|(_, avoided)| free(avoided));
                best.map_or(TransportKind::Poll, |(transport_kind, _)| transport_kind)
            }
        }
    }

    /// A transport did not come through; `true` when another one is to be tried at once.
    pub fn failed(&mut self, transport_kind: TransportKind, now: Instant) -> bool {
        let Some(at) = STREAMS.iter().position(|one| *one == transport_kind) else { return false };
        self.failures[at] += 1;
        if self.failures[at] < FAILURES {
            return false;
        }
        (self.failures[at], self.avoided[at]) = (0, Some(now + AVOIDED));
        true
    }

    /// A transport came through.
    pub fn worked(&mut self, transport_kind: TransportKind) {
        if let Some(at) = STREAMS.iter().position(|one| *one == transport_kind) {
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
            assert_eq!(transports.next(Transport::Auto, now), expected);
            assert!(!transports.failed(expected, now), "once is no reason");
            assert_eq!(transports.next(Transport::Auto, now), expected);
            assert!(transports.failed(expected, now));
        }
        assert_eq!(transports.next(Transport::Stream, now), TransportKind::Poll);
        assert_eq!(transports.next(Transport::Grpc, now), TransportKind::Grpc);
        assert_eq!(transports.next(Transport::Stream, now + AVOIDED), TransportKind::Grpc);
        transports.worked(TransportKind::Sse);
        assert_eq!(transports.next(Transport::Auto, now), TransportKind::Sse);
    }
}
