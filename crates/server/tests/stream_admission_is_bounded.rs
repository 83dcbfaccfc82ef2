//! Who opens a link, how often, and what ends it: two agents under one identity are told apart
//! over every transport (IDN-10), a node's openings and its feed's incarnations are paced (SYN-13), what
//! an operator asked for is not lost before the hello (SYN-6), and links end when their rules or
//! their node do.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::Digest;
use model::condition::SyncState;
use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use model::replication::Mode;
use serde_json::json;
use server::api::objects::{Resynced, SyncsView};
use streams::LinkCommand;
use streams::TransportError;
use streams::task::LinkTransport;
use sync::FeedCursor;
use sync::Frame;
use sync::frame::{GoAway, Have, Hello, Interop, Ping};
use test_support::fleet::link::{
    Sse, config, grpc, handler, hello, item, linked, post, publish_mode, running,
};
use test_support::fleet::{Fleet, Member, now, quiet};
use test_support::wait::until;
use wire::Code;

async fn fleet(mode: Mode) -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], mode, 1).await;
    (fleet, node)
}

/// Waits until the node has a link.
async fn has_link(fleet: &Fleet) {
    let open = async || {
        let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
        page.nodes[0].link
    };
    until("the link is there", open).await;
}

fn said(hello: Hello) -> Frame {
    Frame::Hello(Box::new(hello))
}

/// Says hello by hand over gRPC; gives the control plane's, and why the link went away.
async fn ended(node: &Member, hello: Hello) -> (Option<Hello>, GoAway) {
    let LinkTransport { mut reader, mut writer } = grpc(node, &mut node.dial().await).await.unwrap();
    // Who goes away at once reads no further.
    let _ = writer.send(vec![said(hello)]).await;
    let mut theirs = None;
    let listen = async {
        loop {
            for frame in reader.next().await.unwrap().expect("it says why it ends") {
                match frame {
                    Frame::Hello(hello) => theirs = Some(*hello),
                    Frame::GoAway(away) => return away,
                    _ => {}
                }
            }
        }
    };
    let away = tokio::time::timeout(Duration::from_secs(20), listen).await.expect("it ends");
    (theirs, away)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_is_refused_over_events_and_posts_too() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let first = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    has_link(&fleet).await;
    let mut second = Sse::open(&node, "two").await.unwrap();
    let away = second.hears(|frame| matches!(frame, Frame::GoAway(_) | Frame::Hello(_))).await;
    assert!(
        matches!(&away, Frame::GoAway(away) if away.code == Code::DuplicateIdentity.as_str()),
        "{away:?}"
    );
    let answered = post(&node, vec![said(hello(Mode::Managed, "two"))]).await.expect("a batch, no refusal");
    let duplicate =
        |frame: &Frame| matches!(frame, Frame::GoAway(away) if away.code == Code::DuplicateIdentity.as_str());
    assert!(answered.frames.iter().any(duplicate), "{answered:?}");
    // Nobody can say which of them is the host: neither has a link until an operator decides (IDN-10).
    assert_eq!(first.ended.await.unwrap().code, "went-away");
    let again = post(&node, vec![said(hello(Mode::Managed, "one"))]).await.expect("a batch, no refusal");
    assert!(again.frames.iter().any(duplicate), "{again:?}");
    let copied = fleet.operator().await.node(node.hostname.as_str()).await.copied_since;
    assert!(copied.is_some());
}

/// The host of an agent that was killed while its network was down sends what the agent had written, once
/// the network is back: that is no second agent.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_agent_had_written_is_no_sign_of_life() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let LinkTransport { mut reader, mut writer } = grpc(&node, &mut node.dial().await).await.unwrap();
    writer.send(vec![said(hello(Mode::Managed, "killed"))]).await.unwrap();
    has_link(&fleet).await;
    // The frames arrive while the control plane asks; nobody is there to answer.
    let written = tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(20));
        while writer.send(vec![Frame::Ping(Ping::default())]).await.is_ok() {
            every.tick().await;
        }
    });
    let unread = tokio::spawn(async move { while let Ok(Some(_)) = reader.next().await {} });
    let handler = handler("n1");
    let anew = linked(&node, Mode::Managed, "started-anew", &handler).await;
    until("the agent that was started anew has the link", async || {
        (*handler.seen().borrow() != 0).then_some(())
    })
    .await;
    assert!(!anew.ended.is_finished());
    anew.stop().await;
    written.await.unwrap();
    unread.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_agent_goes_from_stream_to_events_and_back() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let stream = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    has_link(&fleet).await;
    let mut events = Sse::open(&node, "one").await.unwrap();
    events.hears(|frame| matches!(frame, Frame::Hello(_))).await;
    assert_eq!(stream.ended.await.unwrap().code, "went-away");
    post(&node, vec![said(hello(Mode::Managed, "one"))]).await.unwrap();
    let handler = handler("n1");
    handler.put(item("a"), "u1", "{}".into(), now().0);
    let again = linked(&node, Mode::Managed, "one", &handler).await;
    events.hears(|frame| matches!(frame, Frame::GoAway(away) if away.code == "replaced")).await;
    assert!(!again.ended.is_finished());
    let ended = again.stop().await;
    assert_eq!(ended.code, "shutdown", "{}", ended.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_that_polls_is_refused_when_the_first_comes_back() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let mut events = Sse::open(&node, "one").await.unwrap();
    events.hears(|frame| matches!(frame, Frame::Hello(_))).await;
    let posts = async |instance: &str| {
        let batch = post(&node, vec![said(hello(Mode::Managed, instance))]).await.unwrap();
        batch.frames.iter().any(
            |frame| matches!(frame, Frame::GoAway(away) if away.code == Code::DuplicateIdentity.as_str()),
        )
    };
    assert!(!posts("one").await, "the way up of its own stream");
    assert!(!posts("two").await, "another process takes its place");
    events.hears(|frame| matches!(frame, Frame::GoAway(away) if away.code == "replaced")).await;
    assert!(posts("one").await, "a process does not come back: there are two");
    assert!(posts("two").await, "neither goes on until an operator decides (IDN-10)");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_post_of_a_node_is_answered_at_a_time() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let posts = (0..4).map(|_| post(&node, vec![said(hello(Mode::Managed, "one"))]));
    let mut answered = 0;
    for answer in futures_util::future::join_all(posts).await {
        match answer {
            Ok(_) => answered += 1,
            Err(problem) => {
                // Of numbers that overtake one another the lower one is refused before that.
                let codes = [Code::Busy.as_str(), Code::Replayed.as_str()];
                assert!(codes.contains(&problem.code.as_str()), "{problem:?}");
            }
        }
    }
    assert!(answered > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_before_the_hello_is_said_after_it() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let mut operator = fleet.operator().await;
    let mut events = Sse::open(&node, "one").await.unwrap();
    events.hears(|frame| matches!(frame, Frame::Hello(_))).await;
    let asked = json!({"nodes": ["edge-1"], "approveDeletions": true});
    let told: Resynced = operator.post("/v1/resyncs", &asked).await.unwrap();
    assert_eq!(told.now, 0, "nobody could hear it");
    // What is asked brings something down, which a post answers.
    events.hears(|frame| matches!(frame, Frame::StateUpdated)).await;
    let answer = post(&node, vec![said(hello(Mode::Managed, "one"))]).await.unwrap();
    let resync = |frame: &Frame| matches!(frame, Frame::Interop(i) if **i == Interop::RequestResync);
    assert!(answer.frames.iter().any(resync), "{answer:?}");
    assert!(answer.frames.contains(&Frame::Approve), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_begins_anew_once_an_hour_at_most() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let mut operator = fleet.operator().await;
    let manifest = json!({"apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": "a"}, "spec": {}});
    let apply = json!({"manifests": [manifest], "node": "edge-1"});
    let _: server::api::objects::ObjectResults = operator.post("/v1/objects", &apply).await.unwrap();
    let mut events = Sse::open(&node, "one").await.unwrap();
    let Frame::Hello(theirs) = events.hears(|frame| matches!(frame, Frame::Hello(_))).await else { panic!() };
    let claim = |incarnation| {
        let cursor = FeedCursor::at(incarnation, 1_000_000);
        Hello { have: Some(Have { cursor, root: Digest::of(b"more") }), ..hello(Mode::Managed, "one") }
    };
    let (met, away) = ended(&node, claim(theirs.head.incarnation.clone())).await;
    assert_eq!((away.code.as_str(), away.retry_after), ("reincarnated", Some(0)));
    assert_eq!(met.unwrap().head.incarnation, theirs.head.incarnation);
    // What it claims is no progress.
    let page: SyncsView = operator.get("/v1/sync").await.unwrap();
    assert_eq!((page.nodes[0].condition.state, page.nodes[0].behind), (SyncState::Behind, 1));
    let mut events = Sse::open(&node, "one").await.unwrap();
    let Frame::Hello(anew) = events.hears(|frame| matches!(frame, Frame::Hello(_))).await else { panic!() };
    assert_ne!(anew.head.incarnation, theirs.head.incarnation);
    let (_, away) = ended(&node, claim(anew.head.incarnation.clone())).await;
    assert_eq!(away.code, "reincarnated-before");
    assert!(away.retry_after.unwrap() > 3000, "{away:?}");
    let mut events = Sse::open(&node, "one").await.unwrap();
    let Frame::Hello(after) = events.hears(|frame| matches!(frame, Frame::Hello(_))).await else { panic!() };
    assert_eq!(after.head.incarnation, anew.head.incarnation, "nothing was begun anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_opens_links_at_a_pace() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let other = fleet.node("edge-2").await;
    let mut refused = None;
    for _ in 0..60 {
        match Sse::open(&node, "one").await {
            Ok(_) => {}
            Err(TransportError::Problem(problem)) => {
                refused = Some(problem);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let refused = refused.expect("it is slowed down");
    assert_eq!(refused.code, Code::Busy.as_str());
    assert!(refused.retry_after_secs.is_some());
    Sse::open(&other, "one").await.expect("another node is not slowed down");
    node.survives().await;
}

/// Opens streams and says nothing on them until no more are let in.
async fn use_up_pace(node: &Member) {
    let mut client = node.dial().await;
    for _ in 0..60 {
        if let Err(error) = grpc(node, &mut client).await {
            assert!(
                matches!(&error, TransportError::Problem(problem) if problem.code == Code::Busy.as_str())
            );
            return;
        }
    }
    panic!("it is not slowed down");
}

/// SYN-13: a post for which the node's sets have to be loaded costs as much as a link, and takes its place
/// among them; the posts that follow do not.
#[tokio::test(flavor = "multi_thread")]
async fn posts_that_load_sets_are_paced() {
    const NODES: [&str; 3] = ["edge-2", "edge-3", "edge-4"];
    let (fleet, known) = fleet(Mode::Managed).await;
    publish_mode(&fleet, &["edge-1", NODES[0], NODES[1], NODES[2]], Mode::Managed, 2).await;
    let posts = async |node: &Member| post(node, vec![said(hello(Mode::Managed, "one"))]).await;
    posts(&known).await.unwrap();
    use_up_pace(&known).await;
    posts(&known).await.expect("its sets are in memory");
    let mut refused = Vec::new();
    for name in NODES {
        let node = fleet.node(name).await;
        use_up_pace(&node).await;
        // A second is enough for one more, on a machine that is busy.
        refused.extend(posts(&node).await.err());
    }
    let busy =
        |problem: &wire::Problem| problem.code == Code::Busy.as_str() && problem.retry_after_secs > Some(0);
    assert!(!refused.is_empty() && refused.iter().all(|problem| busy(problem)), "{refused:?}");
}

/// Objects of nearly a MiB each: so many bytes that who does not read them keeps its link from its end.
async fn apply_much(fleet: &Fleet) {
    let manifest = |n: usize| {
        json!({"apiVersion": "test/v1", "kind": "Item",
            "metadata": {"namespace": "web", "name": format!("i{n}")}, "spec": {"text": "x".repeat(900_000)}})
    };
    let apply = json!({"manifests": (0..12).map(manifest).collect::<Vec<_>>(), "node": "edge-1"});
    let _: server::api::objects::ObjectResults =
        fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
}

/// Since when the node has the link that it has.
async fn linked_since(fleet: &Fleet) -> Option<model::Timestamp> {
    let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
    page.nodes[0].linked_since
}

/// SYN-13: what waits for the link before to end is one request at most, the newest.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_gives_up_for_a_newer_one() {
    let (fleet, node) = fleet(Mode::Managed).await;
    apply_much(&fleet).await;
    let LinkTransport { mut reader, mut writer } = grpc(&node, &mut node.dial().await).await.unwrap();
    writer.send(vec![said(hello(Mode::Managed, "one"))]).await.unwrap();
    // From here on nobody reads: the rest does not fit on the way.
    let mut heard = Vec::new();
    while !heard.iter().any(|frame| matches!(frame, Frame::Event(_))) {
        heard.extend(reader.next().await.unwrap().expect("events come"));
    }
    let since = linked_since(&fleet).await;
    let newest = async {
        until("the second request is judged", async || {
            let now = linked_since(&fleet).await;
            (now != since).then_some(())
        })
        .await;
        let third = grpc(&node, &mut node.dial().await).await.unwrap();
        running(config(Mode::Managed, "one"), &handler("n1"), third)
    };
    let ((met, away), newest) = tokio::join!(ended(&node, hello(Mode::Managed, "one")), newest);
    assert_eq!((met.is_none(), away.code.as_str()), (true, "replaced"), "it never was the node's link");
    newest.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_ends_when_its_release_says_otherwise() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let mut link = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    has_link(&fleet).await;
    let ended = async {
        for seq in 2.. {
            // A release that follows puts it off no further.
            publish_mode(&fleet, &["edge-1"], Mode::Autonomous, seq).await;
            if let Ok(ended) = tokio::time::timeout(Duration::from_secs(3), &mut link.ended).await {
                return ended.unwrap();
            }
        }
        unreachable!("numbers have no end")
    };
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the link ends");
    assert!(ended.message.starts_with("rules"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_ends_with_its_node() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let mut operator = fleet.operator().await;
    let link = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    has_link(&fleet).await;
    let _: server::api::NodeView = operator.delete("/v1/nodes/edge-1").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), link.ended).await.expect("it ends").unwrap();
    assert!(ended.message.starts_with("removed"), "{ended:?}");
}

/// SCL-3: what comes in check-ins over a link is of the node's share, as what is posted.
#[tokio::test(flavor = "multi_thread")]
async fn check_ins_on_a_link_are_of_the_nodes_share() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let link = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    // Refused, for it has too many facts; its bytes count all the same.
    let body = || FactBody::Repaired { message: "x".repeat(4400) };
    let facts = (1..=210).map(|seq| Fact { seq, at: now(), body: body() }).collect();
    let big = CheckIn { facts, ..quiet() };
    for _ in 0..80 {
        let frame = Frame::CheckIn(Box::new(big.clone()));
        assert!(link.commands.send(LinkCommand::Send(Box::new(frame))).await);
    }
    // Looked at so seldom that looking does not use it up.
    let looks = AtomicUsize::new(0);
    until("the share is used up", async || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        assert!(look < 50 * 25, "what was looked at does not use it up");
        if !look.is_multiple_of(25) {
            return None;
        }
        let refused = node.check_in(&big).await.unwrap_err();
        (refused.code == Code::Busy.as_str()).then_some(())
    })
    .await;
    link.stop().await;
}
