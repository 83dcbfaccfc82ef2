//! Nodes.

use model::exchange::{HeldFreshness, HeldRelease, RunNote, Signature, Signed, TraitReport};
use model::policy::RunTimes;
use model::tags::TaggedRun;
use model::unadopted::{UnadoptedCause, UnadoptedRelease};
use model::{
    AgentCapabilities, Digest, JoinDecision, JoinState, KeyConfirmation, NodeConditions, NodeId, OngoingRun,
    PendingJoin, RunsHeard, SuccessfulRun, UnmadeRun, UnmadeRunCause,
};

use super::fixture::{DAY, at, enrolled, incarnation, new_node, started, token};
use store::{EnrollError, GroupUse, JoinAdmission, ListVersions, NewNode, Store, StoreError};
use store::{Enrolled, KnownPrefix, Retention, Touch};

/// ENR-2.
pub(super) async fn a_token_is_burned_with_the_node(store: &Store) {
    let enrolled = store.enroll(new_node(1), token("a"), at(0)).await.unwrap();
    assert_eq!(enrolled, Enrolled::New);
    let refused = store.enroll(new_node(2), token("a"), at(1)).await.unwrap_err();
    assert!(matches!(refused, EnrollError::NonceUsed), "{refused:?}");
    assert_eq!(store.nodes(None, 100).await.unwrap().len(), 1);

    // An error burns nothing.
    let mut taken = new_node(2);
    taken.hostname = new_node(1).hostname;
    let refused = store.enroll(taken, token("b"), at(2)).await.unwrap_err();
    assert!(matches!(refused, EnrollError::HostnameTaken { .. }), "{refused:?}");
    assert_eq!(store.enroll(new_node(2), token("b"), at(3)).await.unwrap(), Enrolled::New);

    let record = store.node(&new_node(1).node_id).await.unwrap().unwrap();
    let new = new_node(1);
    assert_eq!((record.hostname, record.public_key), (new.hostname, new.public_key));
    assert_eq!((record.cert_serial, record.declared), (new.cert_serial, new.declared));
    assert_eq!(record.cert_authority, Some(new.cert_authority));
    assert_eq!((record.enrolled, record.removed, record.cert_used), (at(0), None, false));
    assert_eq!((record.last_seen, record.runs.streak, record.cursor), (None, 0, None));
}

/// ENR-7.
pub(super) async fn a_lost_reply_is_no_loss(store: &Store) {
    let node = new_node(1);
    store.enroll(node.clone(), token("a"), at(0)).await.unwrap();
    let mut again = node.clone();
    again.cert_serial = "ff".into();
    assert_eq!(store.enroll(again.clone(), token("a"), at(1)).await.unwrap(), Enrolled::Again);
    let record = store.node(&node.node_id).await.unwrap().unwrap();
    assert_eq!((record.cert_serial.as_str(), record.enrolled), ("ff", at(0)));

    let mut elsewhere = node.clone();
    elsewhere.hostname = "other".parse().unwrap();
    let refused = store.enroll(elsewhere, token("a"), at(2)).await.unwrap_err();
    assert!(matches!(refused, EnrollError::NonceUsed), "{refused:?}");

    store.certificate_used(&node.node_id).await.unwrap();
    store.certificate_used(&node.node_id).await.unwrap();
    assert!(store.node(&node.node_id).await.unwrap().unwrap().cert_used);
    let refused = store.enroll(again, token("a"), at(3)).await.unwrap_err();
    assert!(matches!(refused, EnrollError::NonceUsed), "{refused:?}");
}

/// IDN-1.
pub(super) async fn a_hostname_and_a_key_are_held_by_one(store: &Store) {
    let first = enrolled(store, 1).await;
    let mut same_name = new_node(2);
    same_name.hostname = new_node(1).hostname;
    let refused = store.enroll(same_name, token("a"), at(1)).await.unwrap_err();
    assert!(matches!(&refused, EnrollError::HostnameTaken { by } if *by == first), "{refused:?}");

    let mut same_key = new_node(1);
    same_key.hostname = "clone".parse().unwrap();
    let refused = store.enroll(same_key, token("b"), at(2)).await.unwrap_err();
    let EnrollError::KeyTaken { by } = refused else { panic!("{refused:?}") };
    assert_eq!(by, new_node(1).hostname);

    let mut unconfirmed = new_node(3);
    unconfirmed.key_confirmation = KeyConfirmation::None;
    store.enroll(unconfirmed.clone(), token("c"), at(3)).await.unwrap();
    let kept = async || store.node(&unconfirmed.node_id).await.unwrap().unwrap();
    assert_eq!(kept().await.key_confirmation, KeyConfirmation::None);
    // A token that names the key confirms it, and a later one that does not takes nothing back.
    let named = NewNode { key_confirmation: KeyConfirmation::Token, ..unconfirmed.clone() };
    store.enroll(named, token("d"), at(4)).await.unwrap();
    store.enroll(unconfirmed.clone(), token("e"), at(5)).await.unwrap();
    assert_eq!(kept().await.key_confirmation, KeyConfirmation::Token);
}

/// ENR-9: a group token lets in so many keys, a retry costs nothing, and an approval is looked at in the transaction.
pub(super) async fn a_join_without_a_token_is_admitted_once_it_may(store: &Store) {
    let group = GroupUse { nonce: "g".to_owned(), uses: 2, expires_at: at(100) };
    let with_group = || JoinAdmission::Group(group.clone());
    let node = |n| NewNode { key_confirmation: KeyConfirmation::None, ..new_node(n) };
    assert_eq!(
        store.admit(node(1), with_group(), ListVersions::default(), at(1)).await.unwrap(),
        Enrolled::New
    );
    assert_eq!(
        store.admit(node(1), with_group(), ListVersions::default(), at(1)).await.unwrap(),
        Enrolled::Again,
        "the reply was lost"
    );
    store.keep_waiting(waiting(2), Some(group.clone())).await.unwrap();
    store.keep_waiting(waiting(2), Some(group.clone())).await.unwrap();
    let spent = store.admit(node(3), with_group(), ListVersions::default(), at(2)).await.unwrap_err();
    assert!(matches!(spent, EnrollError::GroupSpent { uses: 2 }), "{spent:?}");
    let spent = store.keep_waiting(waiting(3), Some(group.clone())).await.unwrap_err();
    assert!(matches!(spent, EnrollError::GroupSpent { uses: 2 }), "{spent:?}");
    // The one that waits gets in by an approval alone.
    let by_operator = || NewNode { key_confirmation: KeyConfirmation::Operator, ..new_node(2) };
    for admission in [with_group(), JoinAdmission::Approved, JoinAdmission::Retry] {
        let refused =
            store.admit(by_operator(), admission, ListVersions::default(), at(3)).await.unwrap_err();
        assert!(matches!(refused, EnrollError::NotApproved), "{refused:?}");
    }
    let decided = Some(JoinDecision { at: at(4), by: "olga".to_owned() });
    let approved = PendingJoin { state: JoinState::Approved, decided, ..waiting(2) };
    store.decide_join(approved.clone()).await.unwrap();
    assert_eq!(store.pending_joins().await.unwrap(), [approved]);
    assert_eq!(
        store.admit(by_operator(), with_group(), ListVersions::default(), at(5)).await.unwrap(),
        Enrolled::New
    );
    assert_eq!(store.pending_joins().await.unwrap(), [], "it is a node now");
    assert_eq!(
        store.admit(by_operator(), JoinAdmission::Retry, ListVersions::default(), at(6)).await.unwrap(),
        Enrolled::Again
    );
    store.certificate_used(&new_node(2).node_id).await.unwrap();
    let used =
        store.admit(by_operator(), JoinAdmission::Retry, ListVersions::default(), at(7)).await.unwrap_err();
    assert!(matches!(used, EnrollError::KeyTaken { .. }), "{used:?}");
    // A hostname that is a node's is nobody's to wait for, and no declared key takes it.
    let taken = PendingJoin { hostname: new_node(1).hostname, ..waiting(4) };
    let refused = store.keep_waiting(taken, None).await.unwrap_err();
    assert!(matches!(refused, EnrollError::HostnameTaken { .. }), "{refused:?}");
    let declared = NewNode { hostname: new_node(1).hostname, ..node(4) };
    let refused =
        store.admit(declared, JoinAdmission::Declared, ListVersions::default(), at(8)).await.unwrap_err();
    assert!(matches!(refused, EnrollError::HostnameTaken { .. }), "{refused:?}");
    assert_eq!(
        store.admit(node(5), JoinAdmission::Declared, ListVersions::default(), at(8)).await.unwrap(),
        Enrolled::New
    );
    store.keep_waiting(waiting(6), None).await.unwrap();
    store.forget_joins(vec![new_node(6).node_id]).await.unwrap();
    assert_eq!(store.pending_joins().await.unwrap(), []);
}

fn waiting(n: u32) -> PendingJoin {
    let NewNode { node_id, hostname, public_key, .. } = new_node(n);
    PendingJoin {
        node_id,
        hostname,
        public_key,
        address: "192.0.2.7".to_owned(),
        prefix: "192.0.2.0/24".to_owned(),
        group: None,
        since: at(1),
        state: JoinState::Waiting,
        decided: None,
    }
}

/// IDN-10, ENR-5: what is noticed of a node's key, and what its agent says of itself, outlive a restart.
pub(super) async fn a_copied_key_and_capabilities_are_kept(store: &Store) {
    let node = enrolled(store, 1).await;
    store.set_copied(&node, Some(at(7))).await.unwrap();
    let said = AgentCapabilities {
        version: "1.2.3".to_owned(),
        checksum: Some(model::Digest::of(b"agent")),
        builtins: vec!["traits".to_owned()],
        hooks: [("/usr/bin/id".to_owned(), model::Digest::of(b"id"))].into(),
        sealing_key: None,
    };
    store.put_capabilities(&node, said.clone()).await.unwrap();
    let kept = store.node(&node).await.unwrap().unwrap();
    assert_eq!((kept.copied, kept.capabilities), (Some(at(7)), Some(said)));
    store.set_copied(&node, None).await.unwrap();
    let kept = store.node(&node).await.unwrap().unwrap();
    assert_eq!((kept.copied, kept.capabilities), (None, None), "it was perhaps the other host's word");
    let unknown = store.set_copied(&new_node(9).node_id, Some(at(1))).await.unwrap_err();
    assert!(matches!(unknown, store::StoreError::UnknownNode(_)), "{unknown:?}");
}

/// SEC-1: what a node signed for its recipient key is relayed as the node sent it, while the node is one of the fleet; of
/// the host that has its name afterwards its own.
pub(super) async fn statements_of_sealing_keys_are_relayed(store: &Store) {
    let identity = trust::SigningKey::from_seed(&[1; 32]).public();
    let node = NewNode { public_key: identity.to_string(), node_id: identity.node_id(), ..new_node(1) };
    let (id, hostname) = (node.node_id.clone(), node.hostname.clone());
    store.enroll(node, token("one"), at(0)).await.unwrap();
    let silent = new_node(2).hostname;
    enrolled(store, 2).await;
    let asked = vec![silent, hostname.clone(), "nobody".parse().unwrap()];
    assert_eq!(store.sealing_statements(asked.clone()).await.unwrap(), Vec::new());
    let signature = Signature { key: identity.id(), sig: "c2ln".to_owned() };
    let statement = Signed { payload: "{}".to_owned(), signatures: vec![signature] };
    let said = AgentCapabilities {
        version: "1.2.3".to_owned(),
        checksum: None,
        builtins: Vec::new(),
        hooks: Default::default(),
        sealing_key: Some(statement.clone()),
    };
    store.put_capabilities(&id, said).await.unwrap();
    let relayed = trust::sealing::RelayedStatement { hostname: hostname.clone(), identity, statement };
    assert_eq!(store.sealing_statements(asked.clone()).await.unwrap(), [relayed]);
    store.set_copied(&id, Some(at(1))).await.unwrap();
    assert_eq!(
        store.sealing_statements(asked.clone()).await.unwrap(),
        Vec::new(),
        "nobody knows whose word it is"
    );
    store.remove_node(&id, at(1)).await.unwrap();
    store.enroll(NewNode { hostname, ..new_node(3) }, token("three"), at(2)).await.unwrap();
    assert_eq!(store.sealing_statements(asked).await.unwrap(), Vec::new(), "the next host said nothing yet");
}

pub(super) async fn a_node_may_enroll_again_with_a_new_token(store: &Store) {
    let node = enrolled(store, 1).await;
    store.certificate_used(&node).await.unwrap();
    store.append_facts(&node, &incarnation("one"), vec![started(1)], at(1)).await.unwrap();
    let again = store.enroll(new_node(1), token("new"), at(2)).await.unwrap();
    assert_eq!(again, Enrolled::Again);
    let record = store.node(&node).await.unwrap().unwrap();
    assert_eq!((record.enrolled, record.cert_used), (at(0), false));
    assert_eq!(record.cursor.unwrap().seq, 1);
    // The token of the first time does not become valid again by that.
    let refused = store.enroll(new_node(1), token("nonce-1"), at(3)).await.unwrap_err();
    assert!(matches!(refused, EnrollError::NonceUsed), "{refused:?}");
}

pub(super) async fn removed_nodes_keep_their_history(store: &Store) {
    let node = enrolled(store, 1).await;
    store.append_facts(&node, &incarnation("one"), vec![started(1)], at(1)).await.unwrap();
    store.request_run(vec![node.clone()], 1, at(1)).await.unwrap();
    assert!(store.remove_node(&node, at(2)).await.unwrap());
    assert!(!store.remove_node(&node, at(3)).await.unwrap());
    assert!(!store.remove_node(&new_node(9).node_id, at(3)).await.unwrap());
    assert_eq!(store.nodes(None, 100).await.unwrap(), []);
    assert_eq!(store.node(&node).await.unwrap().unwrap().run_request, None);
    assert_eq!(store.node(&node).await.unwrap().unwrap().removed, Some(at(2)));
    assert_eq!(store.facts(&node, None, 10).await.unwrap().len(), 1);
    let refused = store.append_facts(&node, &incarnation("one"), vec![started(2)], at(3)).await.unwrap_err();
    assert!(matches!(refused, StoreError::UnknownNode(_)), "{refused:?}");

    // The hostname is free, and the key too.
    let mut other = new_node(2);
    other.hostname = new_node(1).hostname;
    assert_eq!(store.enroll(other, token("a"), at(4)).await.unwrap(), Enrolled::New);
    let mut back = new_node(1);
    back.hostname = "back".parse().unwrap();
    assert_eq!(store.enroll(back, token("b"), at(5)).await.unwrap(), Enrolled::New);
    let record = store.node(&node).await.unwrap().unwrap();
    assert_eq!((record.enrolled, record.removed, record.cursor), (at(5), None, None));
    // Its log goes on where it was.
    let accepted =
        store.append_facts(&node, &incarnation("one"), vec![started(1), started(2)], at(6)).await.unwrap();
    assert_eq!(accepted.new, [started(2)]);

    store.remove_node(&node, at(7)).await.unwrap();
    let retention = Retention::default();
    assert_eq!(store.prune(at(8), retention).await.unwrap().nodes, 0);
    let pruned = store.prune(at(DAY * 400), retention).await.unwrap();
    assert_eq!(pruned.nodes, 1);
    assert_eq!(store.node(&node).await.unwrap(), None);
    assert_eq!(store.facts(&node, None, 10).await.unwrap(), []);
}

/// CNV-4.
pub(super) async fn contacts_are_kept(store: &Store) {
    let node = enrolled(store, 1).await;
    let held = HeldRelease {
        channel: "stable".parse().unwrap(),
        seq: 4,
        header: Digest::of(b"header"),
        root: Digest::of(b"root"),
    };
    let run = RunNote { at: at(9), outcome: Digest::of(b"outcome") };
    let touch = |secs, held, run| Touch {
        node: node.clone(),
        last_seen: at(secs),
        held,
        run,
        promised_secs: 60,
        runs_heard: Default::default(),
        conditions: Default::default(),
        trust_version: 0,
    };
    let stranger = Touch { node: new_node(9).node_id, ..touch(10, None, None) };
    let first = touch(10, Some(held.clone()), Some(run.clone()));
    store.touch(vec![stranger, first]).await.unwrap();
    store.touch(vec![touch(20, None, None)]).await.unwrap();
    let mut late = touch(15, None, None);
    late.promised_secs = 7;
    store.touch(vec![late]).await.unwrap();
    let record = store.node(&node).await.unwrap().unwrap();
    assert_eq!((record.last_seen, record.promised_secs), (Some(at(20)), 60));
    assert_eq!((record.held.as_ref(), record.run.as_ref()), (Some(&held), Some(&run)));
    assert_eq!(store.nodes(None, 100).await.unwrap(), [record]);
    let newer = HeldRelease { seq: 5, ..held };
    store.touch(vec![touch(30, Some(newer.clone()), None)]).await.unwrap();
    assert_eq!(store.node(&node).await.unwrap().unwrap().held, Some(newer));
}

/// CNV-3.
pub(super) async fn what_was_heard_of_runs_is_kept(store: &Store) {
    let node = enrolled(store, 1).await;
    assert_eq!(store.node(&node).await.unwrap().unwrap().runs_heard, None);
    let all = RunsHeard {
        run: Some(at(1)),
        held: Some(at(2)),
        times: Some(RunTimes::default()),
        under_way: Some(OngoingRun { since: at(3), heard: at(4) }),
        unmade: Some(Box::new(UnmadeRun::new(at(5), UnmadeRunCause::State, "the disk is gone"))),
        successful: Some(SuccessfulRun { at: at(6), outcome: Digest::of(b"outcome") }),
    };
    // What is over is over.
    for (secs, runs_heard) in [(10, all), (20, RunsHeard::default())] {
        let touch = Touch {
            node: node.clone(),
            last_seen: at(secs),
            held: None,
            run: None,
            promised_secs: 60,
            runs_heard: runs_heard.clone(),
            conditions: Default::default(),
            trust_version: 0,
        };
        store.touch(vec![touch]).await.unwrap();
        assert_eq!(store.node(&node).await.unwrap().unwrap().runs_heard, Some(runs_heard));
    }
}

/// CNV-3, IDN-8, IDN-2.
pub(super) async fn what_a_node_says_is_the_matter_is_kept(store: &Store) {
    let node = enrolled(store, 1).await;
    let all = NodeConditions {
        freshness: Some(HeldFreshness {
            signed_at: at(1),
            not_fresh_since: Some(at(2)),
            stale_since: Some(at(3)),
        }),
        refused_trust: Some("older-trust".into()),
        renewal_failure: Some("the disk is full".into()),
        unadopted: Some(UnadoptedRelease::new(at(4), UnadoptedCause::Keep, "no space")),
    };
    // What is over is over.
    for (secs, conditions, trust_version) in [(10, all, 3), (20, NodeConditions::default(), 0)] {
        let touch = Touch {
            node: node.clone(),
            last_seen: at(secs),
            held: None,
            run: None,
            promised_secs: 60,
            runs_heard: RunsHeard::default(),
            conditions: conditions.clone(),
            trust_version,
        };
        store.touch(vec![touch]).await.unwrap();
        let record = store.node(&node).await.unwrap().unwrap();
        assert_eq!((record.conditions, record.trust_version), (conditions, trust_version));
    }
}

/// SCL-1: all nodes are read some at a time, each once.
pub(super) async fn nodes_are_read_in_pages(store: &Store) {
    let mut all = Vec::new();
    for number in 1..6 {
        all.push(enrolled(store, number).await);
    }
    all.sort();
    let mut read: Vec<NodeId> = Vec::new();
    loop {
        let page = store.nodes(read.last(), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        read.extend(page.into_iter().map(|record| record.node_id));
    }
    assert_eq!(read, all);
}

/// SCL-3.
pub(super) async fn prefixes_are_kept_within_a_bound(store: &Store) {
    let known = |prefix: &str, secs| KnownPrefix { prefix: prefix.to_owned(), authenticated: at(secs) };
    let keep = async |known: &[KnownPrefix], forget| {
        store.keep_prefixes(known.to_vec(), at(forget), 2).await.unwrap();
        store.prefixes().await.unwrap()
    };
    let (a, b, c) = (known("a", 10), known("b", 20), known("c", 30));
    assert_eq!(keep(&[a.clone(), b.clone()], 0).await, [b.clone(), a]);
    assert_eq!(keep(std::slice::from_ref(&c), 0).await, [c.clone(), b], "the oldest of too many goes");
    let newer = known("b", 40);
    assert_eq!(keep(&[newer.clone(), known("b", 35)], 0).await, [newer.clone(), c]);
    assert_eq!(keep(&[], 31).await, [newer], "as does what was before");
}

/// DLT-5.
pub(super) async fn traits_and_run_requests_are_kept(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    assert_eq!(store.traits(&one).await.unwrap(), None);
    for text in ["a", "b"] {
        let values = serde_json::json!({ "os": { "name": text } });
        let report = TraitReport::whole(Digest::of(text.as_bytes()), values);
        store.put_traits(&one, report.clone(), at(1)).await.unwrap();
        assert_eq!(store.node(&one).await.unwrap().unwrap().traits, Some(report.digest));
        assert_eq!(store.traits(&one).await.unwrap(), Some(report));
    }
    assert_eq!(store.traits(&two).await.unwrap(), None);

    let stranger = new_node(9).node_id;
    store.request_run(vec![one.clone(), two.clone(), stranger], 7, at(2)).await.unwrap();
    store.request_run(vec![one.clone()], 8, at(3)).await.unwrap();
    assert_eq!(store.node(&one).await.unwrap().unwrap().run_request, Some(8));
    assert_eq!(store.node(&two).await.unwrap().unwrap().run_request, Some(7));
    store.confirm_run(&one, 7).await.unwrap();
    store.confirm_run(&two, 7).await.unwrap();
    assert_eq!(store.node(&two).await.unwrap().unwrap().run_request, None);
    let request = store.node(&one).await.unwrap().unwrap().run_request;
    assert_eq!(request, Some(8), "an earlier request does not confirm a later one");
}

/// CFG-7.
pub(super) async fn requests_by_tag_are_kept(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    let run = |number, tags: &[&str]| TaggedRun {
        number,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    };
    let stranger = new_node(9).node_id;
    let first = [&one, &two, &stranger].map(|node| (node.clone(), run(7, &["web"])));
    store.request_tagged_runs(first.to_vec(), at(2)).await.unwrap();
    store.request_tagged_runs(vec![(one.clone(), run(8, &["db", "web"]))], at(3)).await.unwrap();
    store.request_run(vec![one.clone()], 9, at(3)).await.unwrap();
    let tagged = async |node: &NodeId| store.node(node).await.unwrap().unwrap().tagged_run;
    assert_eq!(
        (tagged(&one).await, tagged(&two).await),
        (Some(run(8, &["db", "web"])), Some(run(7, &["web"])))
    );
    assert_eq!(
        store.nodes(None, 100).await.unwrap().iter().filter(|node| node.tagged_run.is_some()).count(),
        2
    );
    store.confirm_tagged_run(&one, 7).await.unwrap();
    store.confirm_run(&one, 9).await.unwrap();
    store.confirm_tagged_run(&two, 7).await.unwrap();
    assert_eq!(tagged(&two).await, None);
    assert_eq!(
        tagged(&one).await,
        Some(run(8, &["db", "web"])),
        "neither an earlier one nor a full run does"
    );
    store.remove_node(&one, at(4)).await.unwrap();
    assert_eq!(tagged(&one).await, None, "it goes with the node");
}
