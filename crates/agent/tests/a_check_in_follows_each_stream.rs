//! SYN-11: when a stream is up the agent checks in at once, since a publish while there was none was
//! announced to nobody. A poll is no reason: it follows a check-in.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use agent::events::DaemonEvent;
use agent::sync::handler::AgentLinkHandler;
use model::replication::{Mode, TransportKind};
use spool::Disk;
use streams::LinkHandler;
use sync::frame::{Capabilities, Hello, VERSIONS};
use sync::{FeedCursor, Role};
use test_support::agent_links::{Node, policy};

#[tokio::test(flavor = "multi_thread")]
async fn the_hello_of_a_stream_is_a_reason_for_contact() {
    let temp = tempfile::tempdir().unwrap();
    let mut node = Node::start(temp.path(), Disk::new(), policy(Mode::Managed, None), Vec::new());
    let hello = Hello {
        versions: VERSIONS,
        capabilities: Capabilities::ALL,
        role: Role::Principal,
        mode: Mode::Managed,
        instance: "c1".to_owned(),
        head: FeedCursor::at("c1".parse().unwrap(), 0),
        have: None,
        after: None,
    };
    for transport in TransportKind::ALL {
        let (sets, reconciler) = (node.sets.clone(), node.reconciler.clone());
        let (view, daemon) = (node.view.clone(), node.daemon.clone());
        AgentLinkHandler::new(sets, reconciler, view, daemon, transport, 1).hello(&hello);
        // A flag that was raised is there at once.
        let event = tokio::time::timeout(Duration::ZERO, node.inbox.next()).await;
        let contact = matches!(event, Ok(DaemonEvent::Contact));
        // Of server-sent events each group has a hello: there the opening is the reason.
        let expected = matches!(transport, TransportKind::Grpc | TransportKind::Websocket);
        assert_eq!(contact, expected, "{transport}: {event:?}");
    }
}
