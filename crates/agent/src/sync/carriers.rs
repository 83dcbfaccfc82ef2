//! [`Carriers`]: which transport to try next (SYN-1). Pure.

use std::time::Duration;

use model::replication::Transport;
use tokio::time::Instant;

/// A transport that did not come through is not tried again for so long.
pub const AVOIDED: Duration = Duration::from_secs(600);

/// What carries a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
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
const STREAMS: [Carrier; 3] = [Carrier::Grpc, Carrier::Websocket, Carrier::Sse];

impl Carrier {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Carrier::Grpc => "grpc",
            Carrier::Websocket => "websocket",
            Carrier::Sse => "sse",
            Carrier::Poll => "poll",
        }
    }

    /// It stays open.
    pub fn is_stream(self) -> bool {
        self != Carrier::Poll
    }
}

/// What was learnt of the transports.
#[derive(Debug, Default)]
pub struct Carriers {
    avoided: [Option<Instant>; 3],
    /// Failures in a row; one alone may be a control plane that just went away.
    failures: [u32; 3],
}

impl Carriers {
    /// The best transport that may be tried now; polling when there is no other. A transport
    /// that is named is tried again and again, with polls in between (SYN-11).
    pub fn next(&self, transport: Transport, now: Instant) -> Carrier {
        match transport {
            Transport::Poll => Carrier::Poll,
            Transport::Grpc => Carrier::Grpc,
            Transport::Websocket => Carrier::Websocket,
            Transport::Sse => Carrier::Sse,
            Transport::Auto | Transport::Stream => {
                let free = |avoided: &Option<Instant>| avoided.is_none_or(|until| now >= until);
                let best = STREAMS.into_iter().zip(&self.avoided).find(|(_, avoided)| free(avoided));
                best.map_or(Carrier::Poll, |(carrier, _)| carrier)
            }
        }
    }

    /// A transport did not come through; `true` when another one is to be tried at once.
    pub fn failed(&mut self, carrier: Carrier, now: Instant) -> bool {
        let Some(at) = STREAMS.iter().position(|one| *one == carrier) else { return false };
        self.failures[at] += 1;
        if self.failures[at] < FAILURES {
            return false;
        }
        (self.failures[at], self.avoided[at]) = (0, Some(now + AVOIDED));
        true
    }

    /// A transport came through.
    pub fn worked(&mut self, carrier: Carrier) {
        if let Some(at) = STREAMS.iter().position(|one| *one == carrier) {
            (self.failures[at], self.avoided[at]) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_avoided_for_a_while() {
        let (now, mut carriers) = (Instant::now(), Carriers::default());
        for expected in [Carrier::Grpc, Carrier::Websocket, Carrier::Sse] {
            assert_eq!(carriers.next(Transport::Auto, now), expected);
            assert!(!carriers.failed(expected, now), "once is no reason");
            assert_eq!(carriers.next(Transport::Auto, now), expected);
            assert!(carriers.failed(expected, now));
        }
        assert_eq!(carriers.next(Transport::Stream, now), Carrier::Poll);
        assert_eq!(carriers.next(Transport::Grpc, now), Carrier::Grpc);
        assert_eq!(carriers.next(Transport::Stream, now + AVOIDED), Carrier::Grpc);
        carriers.worked(Carrier::Sse);
        assert_eq!(carriers.next(Transport::Auto, now), Carrier::Sse);
    }
}
