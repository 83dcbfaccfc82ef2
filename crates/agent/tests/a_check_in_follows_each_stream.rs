//! SYN-11: when a stream is up the agent checks in at once, since a publish while there was none was
//! announced to nobody. A poll is no reason: it follows a check-in.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use agent::events::DaemonEvent;
use model::replication::{Mode, TransportKind};
use spool::Disk;
use streams::LinkHandler;
use sync::Frame;
use sync::link::Note;
use test_support::agent_links::{Node, policy};
use test_support::scripted::hello;

#[tokio::test(flavor = "multi_thread")]
async fn the_hello_of_a_stream_is_a_reason_for_contact() {
    let temp = tempfile::tempdir().unwrap();
    let mut node = Node::start(temp.path(), Disk::new(), policy(Mode::Managed, None), Vec::new());
    let Frame::Hello(hello) = hello() else { panic!("it says hello") };
    for transport in TransportKind::ALL {
        node.handler(transport, 1).note(&Note::Met(hello.clone()));
        // A flag that was raised is there at once.
        let event = tokio::time::timeout(Duration::ZERO, node.inbox.next()).await;
        let contact = matches!(event, Ok(DaemonEvent::Contact));
        // Of server-sent events each group has a hello: there the opening is the reason.
        let expected = matches!(transport, TransportKind::Grpc | TransportKind::Websocket);
        assert_eq!(contact, expected, "{transport}: {event:?}");
    }
}
