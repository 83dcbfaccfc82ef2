//! Facts.

use super::fixture::{DAY, at, enrolled, incarnation, run, started};
use model::log::{Fact, FactBody};
use model::report::PartialRun;
use model::tags::TaggedRun;
use model::{Action, ResourceReport, RunsSummary};
use store::{Retention, RunFilter};
use store::{Store, StoreError};

pub(super) async fn facts_are_accepted_once(store: &Store) {
    let node = enrolled(store, 1).await;
    let one = incarnation("one");
    let send = async |facts| store.append_facts(&node, &one, facts, at(1)).await.unwrap();
    let accepted = send(vec![]).await;
    assert_eq!((accepted.cursor.seq, accepted.new.len()), (0, 0));
    let accepted = send(vec![started(2), started(1), started(2), started(4)]).await;
    assert_eq!((accepted.cursor.seq, accepted.new), (2, vec![started(1), started(2)]), "no gap is crossed");
    let accepted = send(vec![started(1), started(2)]).await;
    assert_eq!((accepted.cursor.seq, accepted.new.len()), (2, 0), "nothing is accepted twice");
    let accepted = send(vec![started(0), started(u64::MAX), started(3)]).await;
    assert_eq!((accepted.cursor.seq, accepted.new), (3, vec![started(3)]));

    // Another incarnation is another log.
    let accepted =
        store.append_facts(&node, &incarnation("two"), vec![run(1, 0, false)], at(2)).await.unwrap();
    assert_eq!((accepted.cursor.incarnation, accepted.cursor.seq), (incarnation("two"), 1));
    let record = store.node(&node).await.unwrap().unwrap();
    assert_eq!(record.cursor.unwrap().incarnation, incarnation("two"));
    let stored = store.facts(&node, None, 100).await.unwrap();
    assert_eq!(stored.len(), 4);

    let stranger = super::fixture::new_node(9).node_id;
    let refused = store.append_facts(&stranger, &one, vec![started(1)], at(3)).await.unwrap_err();
    assert!(matches!(refused, StoreError::UnknownNode(_)), "{refused:?}");
    let many = (1..=model::log::MAX_FACTS as u64 + 1).map(started).collect();
    let refused = store.append_facts(&node, &incarnation("three"), many, at(3)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
}

/// CNV-3.
pub(super) async fn runs_make_streaks(store: &Store) {
    let node = enrolled(store, 1).await;
    let one = incarnation("one");
    let facts = vec![run(1, 2, false), started(2), run(3, 1, false)];
    store.append_facts(&node, &one, facts.clone(), at(1)).await.unwrap();
    let first = store.node(&node).await.unwrap().unwrap();
    assert_eq!((first.runs.streak, first.full_run), (2, Some(3)));
    store.append_facts(&node, &one, facts, at(2)).await.unwrap();
    let again = store.node(&node).await.unwrap().unwrap();
    assert_eq!((again.runs, again.full_run), (first.runs, Some(3)), "a repetition is no relapse");
    store.append_facts(&node, &one, vec![run(4, 5, true)], at(3)).await.unwrap();
    let record = store.node(&node).await.unwrap().unwrap();
    assert_eq!((record.runs.streak, record.runs.counts.unwrap().changed), (0, 5), "intended is no drift");
    let mut partial = run(5, 9, false);
    if let FactBody::Run(report) = &mut partial.body {
        report.partial = Some(PartialRun::Resources(9));
    }
    store.append_facts(&node, &one, vec![partial], at(4)).await.unwrap();
    let record = store.node(&node).await.unwrap().unwrap();
    assert_eq!((record.runs.streak, record.full_run), (0, Some(4)), "a partial run is not the last one");
}

/// CNV-3, CNV-7, CFG-7: what the store has of a node's runs is what a control plane had in memory, before a full
/// run too; a new request forgets the tags of those before it.
pub(super) async fn runs_are_kept_as_they_are_known(store: &Store) {
    let node = enrolled(store, 1).await;
    let mut known = RunsSummary::default();
    let partial = || Some(PartialRun::Resources(1));
    let by_tag = || Some(PartialRun::Tags(vec!["web".to_owned()]));
    let runs = [
        (Action::Changed, by_tag(), &["early"][..]),
        (Action::Ok, None, &[]),
        (Action::Failed, partial(), &[]),
        (Action::Failed, partial(), &[]),
        (Action::WouldChange, partial(), &[]),
        (Action::Changed, by_tag(), &["typo"]),
        (Action::Changed, by_tag(), &[]),
    ];
    for (seq, (action, partial, unknown)) in (1..).zip(runs) {
        let mut fact = run(seq, 0, false);
        let FactBody::Run(report) = &mut fact.body else { panic!() };
        report.started = at(i64::try_from(seq).unwrap() * 60);
        report.counts.recount(Some(Action::Ok), Some(action));
        let (resource, edit, cause) = (format!("m/file:/{action:?}"), None, None);
        report.items = vec![ResourceReport { resource, action, edit, reason: None, cause, duration_ms: 1 }];
        report.partial = partial;
        report.unknown_tags = unknown.iter().map(|tag| (*tag).to_owned()).collect();
        known = known.after(report);
        store.append_facts(&node, &incarnation("one"), vec![fact], at(1)).await.unwrap();
        assert_eq!(store.node(&node).await.unwrap().unwrap().runs, known, "after run {seq}");
    }
    let seen = (known.since, known.would_change.as_deref(), &*known.unknown_tags);
    assert_eq!(seen, (Some(at(300)), Some("m/file:/WouldChange"), &["typo".to_owned()][..]));

    let request = TaggedRun { number: 1, tags: ["web".to_owned()].into() };
    store.request_tagged_runs(vec![(node.clone(), request)], at(2)).await.unwrap();
    let asked = store.node(&node).await.unwrap().unwrap();
    assert_eq!(asked.runs, RunsSummary { unknown_tags: Box::default(), ..known });
}

pub(super) async fn lists_are_newest_first_and_paged(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    for seq in 1..=3 {
        store.append_facts(&one, &incarnation("a"), vec![run(seq, 0, false)], at(10)).await.unwrap();
        store.append_facts(&two, &incarnation("b"), vec![run(seq, 1, false)], at(11)).await.unwrap();
    }
    store.append_facts(&one, &incarnation("a"), vec![started(4)], at(12)).await.unwrap();

    let all = store.runs(RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    assert_eq!(all.len(), 6);
    assert!(all.is_sorted_by(|a, b| a.id > b.id));
    let page = RunFilter { limit: 2, before: Some(all[1].id), node: None };
    assert_eq!(store.runs(page).await.unwrap(), all[2..4]);
    let of_one = RunFilter { limit: 2, before: None, node: Some(one.clone()) };
    let of_one: Vec<_> = store.runs(of_one).await.unwrap().iter().map(|run| run.seq).collect();
    assert_eq!(of_one, [3, 2]);

    let found = store.run(&two, &incarnation("b"), 2).await.unwrap().unwrap();
    assert_eq!((found.node, found.seq, found.received), (two.clone(), 2, at(11)));
    assert_eq!(store.run(&two, &incarnation("a"), 2).await.unwrap(), None);
    assert_eq!(store.run(&one, &incarnation("a"), 4).await.unwrap(), None, "this fact is no run");

    let facts = store.facts(&one, None, 2).await.unwrap();
    assert_eq!(facts.iter().map(|fact| fact.fact.seq).collect::<Vec<_>>(), [4, 3]);
    let rest = store.facts(&one, Some(facts[1].id), 100).await.unwrap();
    assert_eq!(rest.iter().map(|fact| fact.fact.seq).collect::<Vec<_>>(), [2, 1]);
}

pub(super) async fn history_is_pruned(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    let facts = (1..=20).map(|seq| if seq % 2 == 0 { run(seq, 1, false) } else { started(seq) }).collect();
    store.append_facts(&one, &incarnation("a"), facts, at(1)).await.unwrap();
    store.append_facts(&two, &incarnation("b"), vec![run(1, 0, false)], at(1)).await.unwrap();
    let retention = Retention { runs_per_node: 3, facts_per_node: 1, ..Retention::default() };
    let pruned = store.prune(at(2), retention).await.unwrap();
    assert_eq!(pruned.facts, 7 + 9);
    let left: Vec<u64> = store.facts(&one, None, 100).await.unwrap().iter().map(|f| f.fact.seq).collect();
    assert_eq!(left, [20, 19, 18, 16]);
    assert_eq!(store.facts(&two, None, 100).await.unwrap().len(), 1);
    // What was accepted stays accepted.
    let accepted =
        store.append_facts(&one, &incarnation("a"), vec![started(1), started(21)], at(3)).await.unwrap();
    assert_eq!((accepted.cursor.seq, accepted.new.len()), (21, 1));
    assert_eq!(store.node(&one).await.unwrap().unwrap().runs.streak, 10);
    assert_eq!(store.prune(at(3), retention).await.unwrap().nonces, 0);
    assert_eq!(store.prune(at(10 * DAY), retention).await.unwrap().nonces, 2);
}

/// A fact of so many bytes, and a few.
fn large(seq: u64, bytes: usize) -> Fact {
    Fact { seq, at: at(1), body: FactBody::Repaired { message: "x".repeat(bytes) } }
}

async fn seqs(store: &Store, node: &model::NodeId) -> Vec<u64> {
    store.facts(node, None, 1000).await.unwrap().iter().map(|fact| fact.fact.seq).collect()
}

pub(super) async fn history_is_pruned_by_bytes(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    let facts = |count: u64, bytes| (1..=count).map(|seq| large(seq, bytes)).collect::<Vec<_>>();
    store.append_facts(&one, &incarnation("a"), facts(10, 1000), at(1)).await.unwrap();
    store.append_facts(&two, &incarnation("b"), facts(3, 1000), at(1)).await.unwrap();
    let each = Retention { fact_bytes_per_node: 5500, ..Retention::default() };
    assert_eq!(store.prune(at(2), each).await.unwrap().facts, 5);
    assert_eq!(seqs(store, &one).await, [10, 9, 8, 7, 6]);
    assert_eq!(store.prune(at(2), each).await.unwrap().facts, 0, "what was taken is counted");
    // All together: who has the most gives way.
    let all = Retention { fact_bytes: 5000, ..Retention::default() };
    store.prune(at(3), all).await.unwrap();
    assert_eq!((seqs(store, &one).await.len(), seqs(store, &two).await.len()), (2, 2));
}

pub(super) async fn a_node_never_has_far_more_than_is_kept(store: &Store) {
    let one = enrolled(store, 1).await;
    let many = 2 * store::NODE_FACT_BYTES / (400 * 1024) + 2;
    for seq in 1..=many {
        store.append_facts(&one, &incarnation("a"), vec![large(seq, 400 * 1024)], at(1)).await.unwrap();
    }
    let left = seqs(store, &one).await;
    assert!(
        left.len() as u64 * 400 * 1024 <= store::NODE_FACT_BYTES + 2 * 400 * 1024,
        "{} are left",
        left.len()
    );
    assert_eq!(left[0], many, "the newest stay");
    let again = store.append_facts(&one, &incarnation("a"), vec![large(1, 10)], at(1)).await.unwrap();
    assert_eq!((again.cursor.seq, again.new.len()), (many, 0), "what was accepted stays accepted");
}
