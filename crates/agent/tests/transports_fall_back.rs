//! SYN-1, SYN-11, SYN-13, IDN-4: where a transport does not come through the next one is tried,
//! down to posts, and what failed is not tried again for a while; one whose control plane is busy came
//! through. A stream request is its TLS session's, the one for server-sent events signed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};
use tokio::time::Instant;

use agent::sync::transport::Links;
use agent::sync::transports::{AVOIDED, TransportSelector};
use http::request::Parts as Head;
use model::replication::{Mode, TransportKind, TransportPolicy};
use net::PeerRole;
use net::accept::Connection;
use spool::Disk;
use test_support::agent_links::{Node, fleet, policy};
use test_support::scripted::{Reply, ScriptedControl, key, now, problem};
use test_support::wait::eventually;
use trust::token::TlsTermination;
use wire::signature;
use wire::{Code, Problem, route};

/// A control plane, or something on the way to it, that knows no streams; and what it saw.
#[derive(Clone, Default)]
struct Deaf {
    asked: Arc<Mutex<Vec<String>>>,
    /// It knows them, and is busy for so many seconds.
    busy: Option<u64>,
}

impl Deaf {
    fn answer(&self, head: &Head) -> Reply {
        let path = head.uri.path().to_owned();
        match path.as_str() {
            route::SUBSCRIBE => is_of_the_session(head),
            route::STREAM => is_signed(head),
            _ => {}
        }
        self.asked.lock().unwrap().push(path);
        problem(&match self.busy {
            None => Problem::new(Code::NotFound, "nothing of that kind is here"),
            busy => {
                let busy_now = Problem::new(Code::Busy, "too many links are being opened");
                Problem { retry_after_secs: busy, ..busy_now }
            }
        })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A stream of two ways counts by its TLS session, and carries no signature.
fn is_of_the_session(head: &Head) {
    let connection = head.extensions.get::<Connection>().unwrap();
    let peer = connection.peer.as_ref().expect("the certificate of the node");
    assert!(matches!(&peer.role, PeerRole::Node { key: own, .. } if **own == key(1).public()));
    assert!(signature::parse(&head.headers).is_err(), "nothing is signed");
}

/// The request for server-sent events is signed as every other one.
fn is_signed(head: &Head) {
    let signed = signature::parse(&head.headers).unwrap();
    let verified = signed.verify(&head.method, &head.uri, &fleet(), &key(1).public(), now());
    verified.and_then(|signed| signed.holds(b"")).unwrap();
}

async fn links(transport: TransportPolicy) -> (Deaf, Node, Links, ScriptedControl, tempfile::TempDir) {
    links_in(Deaf::default(), Mode::Managed, transport).await
}

async fn links_in(
    deaf: Deaf,
    mode: Mode,
    transport: TransportPolicy,
) -> (Deaf, Node, Links, ScriptedControl, tempfile::TempDir) {
    let answers = deaf.clone();
    let control = ScriptedControl::start(&["127.0.0.1"], move |head, _| answers.answer(head)).await;
    let temp = tempfile::tempdir().unwrap();
    let node = Node::start(temp.path(), Disk::new(), policy(mode, None), Vec::new());
    let links = node.links(&control, transport);
    (deaf, node, links, control, temp)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_that_works_is_taken() {
    let (deaf, _node, links, _control, _temp) = links(TransportPolicy::Stream).await;
    links.requested();
    eventually("posts are tried at last", || deaf.asked().contains(&route::EVENTS.to_owned())).await;
    let asked = deaf.asked();
    let first = |path: &str| asked.iter().position(|one| one == path).unwrap();
    // A WebSocket was tried in between, over HTTP/1.1, which is not even offered here.
    assert!(first(route::SUBSCRIBE) < first(route::STREAM), "{asked:?}");
    assert!(first(route::STREAM) < first(route::EVENTS), "{asked:?}");
    let count = |path: &str| asked.iter().filter(|one| *one == path).count();
    assert_eq!((count(route::SUBSCRIBE), count(route::STREAM)), (2, 2), "{asked:?}");
    links.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_control_plane_is_asked_again_over_the_same_transport() {
    let busy = Deaf { busy: Some(1), ..Deaf::default() };
    let (busy, _node, links, _control, _temp) = links_in(busy, Mode::Managed, TransportPolicy::Stream).await;
    // Two refusals in a row would have another transport tried.
    eventually("it is tried three times", || busy.asked().len() >= 3).await;
    assert!(busy.asked().iter().all(|path| path == route::SUBSCRIBE), "{:?}", busy.asked());
    links.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_named_is_tried_alone_with_growing_waits() {
    let (deaf, _node, links, _control, _temp) = links(TransportPolicy::Grpc).await;
    eventually("it is tried three times", || deaf.asked().len() >= 3).await;
    assert!(deaf.asked().iter().all(|path| path == route::SUBSCRIBE), "{:?}", deaf.asked());
    links.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_opened_without_need() {
    let (deaf, node, links, _control, _temp) =
        links_in(Deaf::default(), Mode::Off, TransportPolicy::Auto).await;
    eventually("the node knows its rules", || node.reconciler.rules().borrow().number > 0).await;
    assert_eq!(deaf.asked(), Vec::<String>::new());
    links.requested();
    eventually("a stream is tried when it is asked for", || !deaf.asked().is_empty()).await;
    links.stop().await;
}

/// CNV-3: after a start nothing is known to be in sync before a link compared it.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_a_need_where_objects_are_synchronized() {
    let (deaf, _node, links, _control, _temp) = links(TransportPolicy::Auto).await;
    eventually("a stream is tried", || !deaf.asked().is_empty()).await;
    links.stop().await;
}

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
    while !transports.failed(TransportKind::Sse, now) {}
    assert_eq!(transports.next(TransportPolicy::Auto, now), TransportKind::Poll);
}
