//! OPS-2, SYN-5, SYN-9: a control plane with every key of its own stolen writes nothing on a host but objects of the
//! kinds and in the folder that the release names, and runs nothing but what the release delegates, once. What it tries
//! is refused by name, and the host is as it was, to the byte.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use bytes::Bytes;
use model::replication::ObjectOperation;
use model::work::{ActionOutcome, OperationTarget, RefusalCode, Work};
use model::{Kind, ObjectKey, SectionKey};
use serde_json::json;
use test_support::agent_links::manifest;
use test_support::agent_state;
use test_support::scripted::victim::{ACTION, DELEGATED, FOLDER, Victim, delegated, delegating};
use test_support::wait::{eventually, until};

fn key(kind: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        section: SectionKey { kind: Kind::new(kind), namespace: namespace.into() },
        name: name.into(),
    }
}

fn content(kind: &str, namespace: &str, name: &str) -> Bytes {
    let manifest = json!({
        "apiVersion": "test/v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name}, "spec": {"text": "evil"},
    });
    model::canonical::to_bytes(&manifest).unwrap().into()
}

/// Objects that the release does not let in: what each tries, its key, its content, the code that refuses it.
fn unwanted() -> Vec<(&'static str, ObjectKey, Bytes, &'static str)> {
    let evil = model::canonical::to_bytes(&{
        let mut module = agent_state::module("base");
        module.resources.push(agent_state::file("/etc/evil", "evil\n"));
        module
    });
    let module: Bytes = evil.unwrap().into();
    let any = |kind: &str| content(kind, "web", "a");
    let mut all = vec![
        ("a module", key(Kind::MODULE, "", "base"), module, "kind-not-allowed"),
        ("params", key(Kind::PARAMS, "", "node"), any("Params"), "kind-not-allowed"),
        (
            "a delegation",
            key(Kind::DELEGATION, "", "all"),
            Bytes::from_static(br#"{"commands":[["/bin/sh","**"]]}"#),
            "kind-not-allowed",
        ),
        ("settings of the channel", key(Kind::POLICY, "", "channel"), any("Policy"), "kind-not-allowed"),
        ("leave to synchronize", key(Kind::SYNC, "", "sync"), any("Sync"), "kind-not-allowed"),
        ("a peer", key("Peer", "", "evil"), any("Peer"), "kind-not-allowed"),
        ("a key", key("SigningKey", "", "release"), any("SigningKey"), "kind-not-allowed"),
        ("a secret", key("SecretRef", "", "s"), any("SecretRef"), "kind-not-allowed"),
        ("a wrap of another node", key("SecretKeys", "", "node"), any("SecretKeys"), "kind-not-allowed"),
        ("another kind", key("Secret", "web", "a"), any("Secret"), "kind-not-allowed"),
        ("a status", key("Item:status", "web", "a"), Bytes::from_static(b"{}"), "wrong-side"),
        ("a kind in other letters", key("item", "web", "a"), any("item"), "kind-not-allowed"),
        ("no manifest", key("Item", "web", "none"), Bytes::from_static(b"\x00\xff"), "not-json"),
        ("the manifest of another", key("Item", "web", "me"), content("Item", "web", "you"), "bad-name"),
        ("a manifest of another kind", key("Item", "web", "us"), content("Secret", "web", "us"), "bad-name"),
    ];
    let outside = [
        ("..", "evil"),
        ("web", ".."),
        ("web", "../../../etc/evil"),
        ("web", "/etc/evil"),
        (".", "evil"),
        ("web", "a/b"),
        ("web", "a\\b"),
        ("web", "a\nb"),
        ("web", "a\u{0}b"),
        ("web", "-rf"),
        ("web", ".hidden"),
        ("web\u{202e}", "a"),
    ];
    for (namespace, name) in outside {
        let text = "a path out of the folder";
        all.push((text, key("Item", namespace, name), content("Item", namespace, name), "bad-name"));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_but_of_the_kinds_and_in_the_folder_of_the_release() {
    let mut victim = Victim::start().await;
    victim.settles("first").await;
    let mut before = victim.everything();
    for (_, key, content, _) in unwanted() {
        victim.put(&key, content);
    }
    victim.settles("last").await;
    victim.is_alive();
    let mut after = victim.everything();
    for host in [&mut before, &mut after] {
        host.retain(|path, _| {
            !path.ends_with(format!("{}/item/web/last.yaml", FOLDER.trim_start_matches('/')))
        });
    }
    assert_eq!(before, after, "nothing else was written");
    until("each of them is refused", async || {
        (victim.control.refused().len() >= unwanted().len()).then_some(())
    })
    .await;
    let refused = victim.control.refused();
    let codes: BTreeMap<_, _> =
        unwanted().into_iter().map(|(what, key, _, code)| (key, (what, code))).collect();
    for (key, (what, code)) in &codes {
        assert_eq!(refused.get(key).map(String::as_str), Some(*code), "{what}: {key}");
    }
    // It runs on what it holds, by the delegations that it holds.
    victim.order(
        "t1",
        Work::Command { argv: ["/bin/sh", "-c", "touch $MUSTER_ROOT/evil"].map(str::to_owned).into() },
    );
    assert!(matches!(victim.outcome("t1").await, ActionOutcome::Refused { .. }));
    assert_eq!(victim.file("/etc/motd"), "five\n");
    assert!(!victim.root.join("etc/evil").exists() && !victim.root.join("evil").exists());
}

/// Work that the release does not delegate.
fn undelegated() -> Vec<(&'static str, Work, RefusalCode)> {
    let command = |argv: &[&str]| Work::Command { argv: argv.iter().map(ToString::to_string).collect() };
    let action = |name: &str, args: &[(&str, &str)]| Work::Action {
        name: name.to_owned(),
        args: args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    let file = |path: &str| Work::Query { what: "file".to_owned(), path: Some(path.to_owned()) };
    let [program, flag, script] = DELEGATED;
    let object =
        OperationTarget { kind: "Item".to_owned(), namespace: "web".to_owned(), name: "first".to_owned() };
    let not = RefusalCode::NotDelegated;
    vec![
        ("another command", command(&["/bin/touch", "/evil"]), not),
        ("another script", command(&[program, flag, "echo evil >> $MUSTER_ROOT/ran"]), not),
        ("one argument more", command(&[program, flag, script, "evil"]), not),
        ("one less", command(&[program, flag]), not),
        ("the program by another path", command(&["/bin/../bin/sh", flag, script]), not),
        ("the program by its name", command(&["sh", flag, script]), not),
        ("an action that is not there", action("evil", &[]), not),
        ("an argument outside the schema", action(ACTION, &[("word", "evil")]), not),
        ("an argument that climbs", action(ACTION, &[("word", "edge-/../..")]), not),
        ("an argument that is not in the schema", action(ACTION, &[("word", "edge-1"), ("more", "x")]), not),
        ("an argument left out", action(ACTION, &[]), not),
        ("another query", Work::Query { what: "processes".to_owned(), path: None }, not),
        ("another file", file("/etc/shadow"), not),
        ("another file by a detour", file("/etc/motd/../shadow"), not),
        (
            "an operation on an object",
            Work::Operation { operation: ObjectOperation::Sync, object },
            RefusalCode::NotAutonomous,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_work_but_what_the_release_delegates() {
    let mut victim = Victim::start().await;
    victim.settles("first").await;
    let before = victim.everything();
    for (number, (_, work, _)) in undelegated().into_iter().enumerate() {
        victim.order(&format!("t{number}"), work);
    }
    for (number, (what, _, code)) in undelegated().into_iter().enumerate() {
        match victim.outcome(&format!("t{number}")).await {
            ActionOutcome::Refused { code: said, .. } => assert_eq!(said, code, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    // What cannot be read as an order is answered, too.
    victim.put(&ObjectKey::of(Kind::ACTION, "garbage"), Bytes::from_static(b"{\"work\":1}"));
    victim.put(&ObjectKey::of(Kind::ACTION, "large"), Bytes::from(vec![b' '; 65 * 1024]));
    for id in ["garbage", "large"] {
        assert!(matches!(victim.outcome(id).await, ActionOutcome::Failed { .. }), "{id}");
    }
    victim.is_alive();
    assert_eq!(before, victim.everything(), "nothing ran and nothing was written");
}

/// A link beside a file that may be asked for leads nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn no_file_but_what_the_release_lets_it_ask_for() {
    let victim = Victim::start().await;
    std::fs::write(victim.root.join("etc/shadow"), "root:secret").unwrap();
    std::fs::remove_file(victim.root.join("etc/motd")).unwrap();
    std::os::unix::fs::symlink("shadow", victim.root.join("etc/motd")).unwrap();
    victim.order("t1", Work::Query { what: "file".to_owned(), path: Some("/etc/motd".to_owned()) });
    let outcome = victim.outcome("t1").await;
    assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_twice() {
    let mut victim = Victim::start().await;
    victim.order("once", delegated());
    assert_eq!(victim.outcome("once").await, ActionOutcome::Exited { code: 0 });
    assert_eq!(victim.file("/ran"), "ran\n");
    let action = ObjectKey::of(Kind::ACTION, "once");
    for round in ["again", "after-a-kill"] {
        // It is gone at the node, and comes again.
        victim.control.feed.remove(&action);
        victim.settles(&format!("{round}-gone")).await;
        victim.order("once", delegated());
        victim.settles(&format!("{round}-back")).await;
        victim.kill();
        victim.begin();
        victim.settles(&format!("{round}-restarted")).await;
        victim.contacts(2).await;
        assert_eq!(victim.file("/ran"), "ran\n", "{round}");
        let outcomes = victim.outcomes("once");
        assert!(outcomes.iter().all(|it| *it == ActionOutcome::Exited { code: 0 }), "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_once_what_it_holds_is_not_fresh() {
    let mut victim = Victim::start().await;
    victim.settles("before").await;
    victim.kill();
    victim.end_freshness();
    victim.begin();
    let held_back: ObjectKey = "Item/web/late".parse().unwrap();
    victim.put(&held_back, manifest("late", "text"));
    victim.order("t1", delegated());
    let outcome = victim.outcome("t1").await;
    assert!(matches!(&outcome, ActionOutcome::Refused { code: RefusalCode::NotFresh, .. }), "{outcome:?}");
    assert_eq!(victim.file("/ran"), "");
    assert_eq!(victim.file(&format!("{FOLDER}/item/web/late.yaml")), "", "changes wait");
    // It keeps what it holds all the same, and an honest release makes all of it good.
    std::fs::write(victim.root.join("etc/motd"), "by hand\n").unwrap();
    eventually("an edit is put right", || victim.file("/etc/motd") == "five\n").await;
    victim.adopts(&delegating(6, "six\n")).await;
    let path = format!("{FOLDER}/item/web/late.yaml");
    eventually("what waited is there", || !victim.file(&path).is_empty()).await;
}
