//! Bad input on links, named: each costs the one who sends it its link, and nothing else
//! (SYN-3, SYN-5, SYN-12, IDN-10, WIR-1).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use model::replication::Mode;
use model::{Digest, Stub};
use streams::LinkCommand;
use streams::task::{LinkTransport, commands, run_link};
use sync::FeedCursor;
use sync::frame::{Ack, Capabilities, Event, Hello, Op};
use sync::{Frame, Role};
use test_support::fleet::link::{config, grpc, handler, item, linked, publish_mode, running};
use test_support::fleet::{Fleet, Member, now};
use test_support::wait::eventually;

/// A fleet with one node in a mode.
async fn fleet(mode: Mode) -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], mode, 1).await;
    (fleet, node)
}

fn hello(mode: Mode, instance: &str) -> Hello {
    Hello {
        versions: sync::frame::VERSIONS,
        capabilities: Capabilities::ALL,
        role: Role::Agent,
        mode,
        instance: instance.to_owned(),
        head: FeedCursor::at("n1".parse().unwrap(), 9),
        have: None,
        after: None,
    }
}

/// Says frames by hand, and gives what is heard until the link ends or is quiet.
async fn say(node: &Member, frames: Vec<Frame>, until: impl Fn(&Frame) -> bool) -> Vec<Frame> {
    let LinkTransport { mut reader, mut writer } = grpc(node, &mut node.dial().await).await.unwrap();
    // The other side may have gone away before it took everything; it said why.
    let _ = writer.send(frames).await;
    let mut heard = Vec::new();
    let listen = async {
        while let Ok(Some(frames)) = reader.next().await {
            let done = frames.iter().any(&until);
            heard.extend(frames);
            if done {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), listen).await.expect("an answer comes");
    heard
}

fn went_away(frame: &Frame) -> bool {
    matches!(frame, Frame::GoAway(_))
}

fn code(heard: &[Frame]) -> String {
    let away = heard.iter().find_map(|frame| match frame {
        Frame::GoAway(away) => Some(away.code.clone()),
        _ => None,
    });
    away.unwrap_or_else(|| panic!("no go-away in {heard:?}"))
}

fn event(seq: u64, name: &str, uid: &str, content: &'static [u8], digest: Digest) -> Frame {
    let stub = Stub { uid: uid.into(), digest, size: content.len() as u64 };
    Frame::Event(Box::new(Event {
        seq,
        rev: seq,
        upto: sync::Position::at(seq),
        key: item(name),
        op: Op::Put { stub, content: content.into(), created: true },
        trace: None,
        at: now().0,
        proof: None,
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_of_what_was_never_sent_ends_the_link() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let ack = Frame::Ack(Ack { seq: 1_000_000, cursor: None, refused: 0, compared: false });
    let heard = say(&node, vec![Frame::Hello(Box::new(hello(Mode::Managed, "l1"))), ack], went_away).await;
    assert!(code(&heard).contains("ack"), "{heard:?}");
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_major_version_is_told() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let mut hello = hello(Mode::Managed, "l1");
    hello.versions = (7, 9);
    let heard = say(&node, vec![Frame::Hello(Box::new(hello))], went_away).await;
    assert_eq!(code(&heard), "version");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mode_than_the_releases_is_told() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let heard = say(&node, vec![Frame::Hello(Box::new(hello(Mode::Autonomous, "l1")))], went_away).await;
    assert_eq!(code(&heard), "mode");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_under_another_digest_is_refused_and_the_next_is_taken() {
    let (_fleet, node) = fleet(Mode::Autonomous).await;
    let frames = vec![
        Frame::Hello(Box::new(hello(Mode::Autonomous, "l1"))),
        event(1, "bad", "u1", b"{}", Digest::of(b"another")),
        event(2, "good", "u2", b"{}", Digest::of(b"{}")),
    ];
    let done = |frame: &Frame| matches!(frame, Frame::Ack(ack) if ack.seq == 2);
    let heard = say(&node, frames, done).await;
    let refused = heard.iter().filter(|frame| matches!(frame, Frame::Refused(r) if r.key == item("bad")));
    assert_eq!(refused.count(), 1, "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_uid_is_no_object() {
    let (_fleet, node) = fleet(Mode::Autonomous).await;
    let LinkTransport { mut reader, mut writer } = grpc(&node, &mut node.dial().await).await.unwrap();
    let hello = Frame::Hello(Box::new(hello(Mode::Autonomous, "l1")));
    writer.send(vec![hello]).await.unwrap();
    // Not every coding can even say it; what can be said is refused.
    let nameless = event(1, "a", "", b"{}", Digest::of(b"{}"));
    if writer.send(vec![nameless]).await.is_ok() {
        let refused = async {
            while let Ok(Some(frames)) = reader.next().await {
                if frames.iter().any(|f| matches!(f, Frame::Refused(_) | Frame::GoAway(_))) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), refused).await.expect("refused or ended");
    }
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_uid_under_two_names_is_refused_once() {
    let (_fleet, node) = fleet(Mode::Autonomous).await;
    let handler = handler("n1");
    handler.put(item("a"), "same", "{}".into(), now().0);
    handler.put(item("b"), "same", "{\"b\":1}".into(), now().0);
    let link = linked(&node, Mode::Autonomous, "l1", &handler).await;
    eventually("one of them is refused", || handler.counters().refused_there == 1).await;
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_kind_is_refused_and_told() {
    let (_fleet, node) = fleet(Mode::Autonomous).await;
    let handler = handler("n1");
    handler.put("Widget/web/a".parse().unwrap(), "u1", "{}".into(), now().0);
    handler.put(item("b"), "u2", "{}".into(), now().0);
    let mut own = config(Mode::Autonomous, "l1");
    own.kinds.push(model::Kind::new("Widget"));
    let link = running(own, &handler, grpc(&node, &mut node.dial().await).await.unwrap());
    eventually("the kind is refused", || handler.counters().refused_there == 1).await;
    eventually("the other is taken", || handler.acked() == 2).await;
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_with_one_identity_are_told_apart() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let (first, second) = (handler("n1"), handler("n1"));
    let link = linked(&node, Mode::Managed, "first", &first).await;
    eventually("the first link is up", || !first.seen().borrow().eq(&0)).await;
    let other = linked(&node, Mode::Managed, "second", &second).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), other.ended).await.unwrap().unwrap();
    assert!(ended.message.contains("duplicate-identity"), "{ended:?}");
    let syncs: server::api::objects::SyncsView =
        fleet.operator().await.get("/v1/sync?match=edge-1").await.unwrap();
    assert_eq!(syncs.nodes[0].condition.reason, "duplicate-identity", "and operators see it");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_agent_takes_its_own_place_at_once() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let handler = handler("n1");
    let old = linked(&node, Mode::Managed, "one", &handler).await;
    eventually("the first link is up", || !handler.seen().borrow().eq(&0)).await;
    let again = Arc::new(test_support::memory::MemoryLinkHandler::new("n1".parse().unwrap()));
    let new = linked(&node, Mode::Managed, "one", &again).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), old.ended).await.unwrap().unwrap();
    assert!(ended.message.contains("replaced"), "{ended:?}");
    eventually("the second link is up", || !again.seen().borrow().eq(&0)).await;
    new.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_acknowledges_is_held_back() {
    let (fleet, node) = fleet(Mode::Managed).await;
    let manifests: Vec<serde_json::Value> = (0..6000)
        .map(|n| {
            serde_json::json!({"apiVersion": "t/v1", "kind": "Item",
                "metadata": {"namespace": "web", "name": format!("i{n}")}, "spec": {"n": n}})
        })
        .collect();
    let apply = server::api::objects::Apply {
        manifests,
        node: Some("edge-1".to_owned()),
        mapping: Default::default(),
        dry_run: false,
        trace: None,
    };
    let _: server::api::objects::ObjectResults =
        fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
    let LinkTransport { mut reader, mut writer } = grpc(&node, &mut node.dial().await).await.unwrap();
    writer.send(vec![Frame::Hello(Box::new(hello(Mode::Managed, "l1")))]).await.unwrap();
    let mut events = 0;
    // It sends its window, then nothing more.
    while let Ok(Ok(Some(frames))) = tokio::time::timeout(Duration::from_secs(2), reader.next()).await {
        events += frames.iter().filter(|frame| matches!(frame, Frame::Event(_))).count();
    }
    let window = sync::link::Limits::default().window_events;
    assert!(events > 0 && events <= window, "{events} events without an acknowledgement");
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_says_nothing_is_let_go() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let LinkTransport { mut reader, writer } = grpc(&node, &mut node.dial().await).await.unwrap();
    let ended = async { while let Ok(Some(_)) = reader.next().await {} };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the stream ends");
    drop(writer);
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_from_an_old_backup_begins_a_new_life() {
    let (_fleet, node) = fleet(Mode::Autonomous).await;
    let new = handler("n1");
    for n in 0..20 {
        new.put(item(&format!("i{n}")), &format!("u{n}"), format!("{{\"n\":{n}}}").into(), now().0);
    }
    let link = linked(&node, Mode::Autonomous, "l1", &new).await;
    eventually("all is there", || new.acked() == 20).await;
    link.stop().await;
    // The same incarnation, with fewer changes: what the node was last week.
    let old = handler("n1");
    for n in 0..18 {
        old.put(item(&format!("i{n}")), &format!("u{n}"), format!("{{\"n\":{n}}}").into(), now().0);
    }
    let mut ended = 0;
    while ended < 3 {
        let ends = grpc(&node, &mut node.dial().await).await.unwrap();
        let (_commands, taken) = commands();
        let running =
            run_link(config(Mode::Autonomous, "l2"), old.clone(), ends, Vec::new(), old.head(), taken);
        // The first links end with the new incarnation; the last one stays.
        match tokio::time::timeout(Duration::from_secs(3), running).await {
            Ok(_) => ended += 1,
            Err(_) => break,
        }
    }
    assert!(ended < 3, "the links come to rest");
    let _ = LinkCommand::Resync;
}
