//! OPS-1: `muster help CODE` explains every code that an error, a diagnostic or a node's
//! refusal can carry.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use backends::manifest::ManifestProblem;
use model::condition::SyncCause;
use model::selection::ProofError;
use model::{Digest, Timestamp};
use muster::help::{CODES, CONDITIONS, REFUSALS, TRUST_REFUSALS, explain};
use test_support::programs::repo::{code, err, muster, out};
use trust::signed::VerifyError;
use trust::{BeaconRefusal, ChainError, Refusal};
use wire::Code;

/// One of each; the match fails to compile when a new sort is added.
fn refusals() -> Vec<Refusal> {
    let all = vec![
        Refusal::Header(VerifyError::Unsigned),
        Refusal::Header(VerifyError::Untrusted),
        Refusal::Header(VerifyError::TooFew { channel: "a".parse().unwrap(), have: 1, need: 2 }),
        Refusal::Beacon(BeaconRefusal::Signature(VerifyError::Unsigned)),
        Refusal::Beacon(BeaconRefusal::Malformed(VerifyError::TooLarge)),
        Refusal::Beacon(BeaconRefusal::Older { at: Timestamp(0), known: Timestamp(1) }),
        Refusal::Requires { seq: 1, missing: String::new() },
        Refusal::OtherFleet { theirs: "a".parse().unwrap(), ours: "b".parse().unwrap() },
        Refusal::OtherChannel { header: "a".parse().unwrap(), entry: "b".parse().unwrap() },
        Refusal::Older { offered: 1, accepted: 2 },
        Refusal::TwoHeaders(1),
        Refusal::Stale { seq: 1, signed: Timestamp(0), freshness_secs: 1, now: Timestamp(0) },
        Refusal::FutureDated { seq: 1, created: Timestamp(0), now: Timestamp(0) },
        Refusal::Proof(ProofError::WrongRoot),
        Refusal::OtherRoot { got: Digest::ZERO, want: Digest::ZERO },
        Refusal::Malformed(String::new()),
    ];
    for refusal in &all {
        match refusal {
            Refusal::Header(_)
            | Refusal::Beacon(_)
            | Refusal::Requires { .. }
            | Refusal::OtherFleet { .. }
            | Refusal::OtherChannel { .. } => {}
            Refusal::Older { .. }
            | Refusal::TwoHeaders(_)
            | Refusal::Stale { .. }
            | Refusal::FutureDated { .. } => {}
            Refusal::Proof(_) | Refusal::OtherRoot { .. } | Refusal::Malformed(_) => {}
        }
    }
    all
}

/// The codes that are explained as being of something.
fn codes(of: &str) -> Vec<&'static str> {
    CODES.iter().filter(|known| known.of == of).map(|known| known.code.as_str()).collect()
}

#[test]
fn every_code_is_explained() {
    for code in Code::ALL {
        let found = explain(code.as_str()).unwrap_or_else(|| panic!("{} is not explained", code.as_str()));
        assert!(found.text.len() > 20, "{found:?}");
    }
    for refusal in refusals() {
        let found = explain(refusal.code()).unwrap_or_else(|| panic!("{} is not explained", refusal.code()));
        assert!(found.text.len() > 20, "{found:?}");
    }
    for known in resolve::codes::CODES.iter() {
        assert_eq!(explain(known.code).unwrap().title, known.title);
    }
}

/// IDN-8: why a newer trust document is not followed; the match fails to compile when a new sort is added.
#[test]
fn every_refusal_of_a_trust_document_is_explained() {
    let fleet = || "a".parse().unwrap();
    let all = [
        ChainError::Forged { held: 1 },
        ChainError::Rejected { held: 1, limit: Timestamp(0) },
        ChainError::Gap { held: 1, link: 3 },
        ChainError::Older { held: 1, link: 1 },
        ChainError::Forked { held: 1, link: 2 },
        ChainError::OtherFleet { theirs: fleet(), ours: fleet() },
        ChainError::TooLong,
        ChainError::Malformed { held: 1, why: String::new() },
    ];
    for error in &all {
        match error {
            ChainError::Forged { .. } | ChainError::Rejected { .. } | ChainError::Gap { .. } => {}
            ChainError::Older { .. } | ChainError::Forked { .. } | ChainError::OtherFleet { .. } => {}
            ChainError::TooLong | ChainError::Malformed { .. } => {}
        }
        let found = explain(error.code()).unwrap_or_else(|| panic!("{} is not explained", error.code()));
        assert!(found.text.len() > 20, "{found:?}");
    }
    let mut said: Vec<&str> = all.iter().map(ChainError::code).collect();
    let mut known = codes(TRUST_REFUSALS);
    said.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, said);
}

/// What is wrong with a manifest: one of each; the match fails to compile when a new sort is added.
fn mistakes() -> Vec<ManifestProblem> {
    let text = String::new;
    let all = vec![
        ManifestProblem::NotText,
        ManifestProblem::NotYaml(text()),
        ManifestProblem::NotJson(text()),
        ManifestProblem::NotPlain(text()),
        ManifestProblem::NotMap,
        ManifestProblem::NoKind,
        ManifestProblem::NoName,
        ManifestProblem::NotAText(""),
        ManifestProblem::BadName { field: "", value: text(), why: "" },
        ManifestProblem::Reserved(text()),
        ManifestProblem::Duplicate(text()),
        ManifestProblem::DuplicateObject(text()),
        ManifestProblem::FileTooLarge,
        ManifestProblem::TooLarge { size: 0 },
        ManifestProblem::TooDeep,
        ManifestProblem::TooManyValues,
        ManifestProblem::TooManyDocuments,
    ];
    for problem in &all {
        match problem {
            ManifestProblem::NotText
            | ManifestProblem::NotYaml(_)
            | ManifestProblem::NotJson(_)
            | ManifestProblem::NotPlain(_) => {}
            ManifestProblem::NotMap
            | ManifestProblem::NoKind
            | ManifestProblem::NoName
            | ManifestProblem::NotAText(_) => {}
            ManifestProblem::BadName { .. }
            | ManifestProblem::Reserved(_)
            | ManifestProblem::Duplicate(_) => {}
            ManifestProblem::DuplicateObject(_)
            | ManifestProblem::FileTooLarge
            | ManifestProblem::TooLarge { .. } => {}
            ManifestProblem::TooDeep | ManifestProblem::TooManyValues | ManifestProblem::TooManyDocuments => {
            }
        }
    }
    all
}

#[test]
fn every_reason_why_an_object_is_not_taken_is_explained() {
    use sync::refusal;
    let of_links = refusal::ALL;
    // Those of the folder, and those of the command line itself.
    let others = ["not-writable", "not-a-file", "no-name", "no-node", "not-json"];
    let of_manifests = mistakes();
    let all = of_links.into_iter().chain(others).chain(of_manifests.iter().map(ManifestProblem::code));
    for code in all {
        let found = explain(code).unwrap_or_else(|| panic!("{code} is not explained"));
        assert!(found.text.len() > 20, "{found:?}");
    }
}

#[test]
fn no_refusal_is_explained_that_no_node_says() {
    let said: Vec<&str> = refusals().iter().map(Refusal::code).collect();
    let explained = codes(REFUSALS);
    assert!(!explained.is_empty());
    for code in explained {
        assert!(said.contains(&code), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_says_it_and_names_the_nearest_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let known = muster(dir.path(), &["help", "e012"]).await;
    assert_eq!(code(&known), 0);
    assert!(out(&known).starts_with("E012  {{ in YAML\n"), "{}", out(&known));
    for (topic, near) in [
        ("token_usd", "did you mean `muster help token-used`?"),
        ("E01", "`muster help E010` or "),
        ("kind_not", "did you mean `muster help kind-not-allowed`?"),
        ("zzzz", "`muster help` lists the verbs; codes stand in errors"),
    ] {
        let unknown = muster(dir.path(), &["help", topic]).await;
        assert_eq!(code(&unknown), 1);
        let said = err(&unknown);
        assert!(said.starts_with(&format!("error: {topic:?} is no verb, no topic, and no code")), "{said}");
        assert!(said.contains(near), "{said}");
    }
}

#[test]
fn every_reason_of_a_condition_is_explained() {
    for reason in SyncCause::REASONS {
        assert!(explain(reason).is_some_and(|found| !found.text.is_empty()), "{reason}");
    }
    let explained = codes(CONDITIONS);
    assert!(!explained.is_empty());
    for code in explained {
        assert!(SyncCause::REASONS.contains(&code), "{code} is no reason");
    }
}
