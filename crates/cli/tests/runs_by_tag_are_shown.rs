//! CFG-7, OPS-1: what `muster node run --tags` prints: what was requested and what that waits for, the nodes whose
//! agents are too old for it, and, of the run that carried it out, the tags that no resource of the node has.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use cli::node::run::{RunRequestView, waiting};
use cli::run::outcome;
use model::report::PartialRun;
use model::tags::TaggedRun;
use model::{Digest, Hostname, RunCounts, RunReport, Timestamp};

fn set(tags: &[&str]) -> BTreeSet<String> {
    tags.iter().map(|tag| (*tag).to_owned()).collect()
}

fn view(nodes: usize, tags: &[&str], too_old: usize) -> String {
    let too_old: Vec<Hostname> = (0..too_old).map(|n| format!("old-{n}").parse().unwrap()).collect();
    RunRequestView { nodes, tags: set(tags), too_old, too_many_tags: vec![], awaited: None }.text()
}

#[test]
fn what_is_requested_and_of_whom_it_is_not() {
    assert_eq!(
        view(3, &[], 0),
        "3 node(s) are requested to run now; those that cannot be reached do it when they call\n"
    );
    let requested = "2 node(s) are requested to run what is tagged db or web now; those that cannot be reached do \
                     it when they call\n\
                     `muster node show NODE` says what a node has not confirmed yet, `muster run show NODE` what \
                     changed, and a tag that no resource of the node has\n";
    assert_eq!(view(2, &["web", "db"], 0), requested);
    let next = "next: install a newer muster-agent there, or request a run of all, without --tags\n";
    let old = "1 node(s) are not: their agents do not know runs by tag: old-0\n";
    assert_eq!(view(2, &["web", "db"], 1), format!("{requested}{old}{next}"));
    let too_many_tags = vec!["away-1".parse().unwrap()];
    let one = RunRequestView { nodes: 0, tags: set(&["web"]), too_old: vec![], too_many_tags, awaited: None };
    assert_eq!(
        one.text(),
        "1 node(s) are not: they have not confirmed earlier requests, and with their tags there would be more than \
         32: away-1\nnext: wait until they have called, or request a run of all, without --tags\n"
    );
    let all_old = view(0, &["web"], 12);
    assert!(all_old.starts_with("12 node(s) are not:"), "{all_old}");
    assert!(all_old.contains("old-9 and 2 more\n") && !all_old.contains("old-10"), "{all_old}");
}

#[test]
fn how_a_request_stands() {
    let run = TaggedRun { number: 7, tags: set(&["web", "db"]) };
    assert_eq!(waiting(&run, false), "requested for what is tagged db or web; not confirmed yet");
    assert!(
        waiting(&run, true).contains("its agent does not know runs by tag: install a newer muster-agent")
    );
}

#[test]
fn a_tag_that_nothing_has_is_named_with_the_run() {
    let report = RunReport {
        started: Timestamp(0),
        duration_ms: 1,
        seq: 1,
        root: Digest::ZERO,
        intended: false,
        paused: None,
        partial: Some(PartialRun::Tags(vec!["nope".to_owned(), "web".to_owned()])),
        unknown_tags: vec!["nope".to_owned()],
        unswitched: Vec::new(),
        counts: RunCounts { ok: 2, ..RunCounts::default() },
        items: vec![],
    };
    assert_eq!(outcome(&report), "2 ok (only nope, web); no resource is tagged nope");
}
