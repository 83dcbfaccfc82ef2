//! OPS-1: `muster help CODE` explains every code that an error, a diagnostic or a node's
//! refusal can carry.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use cli::help::{REFUSALS, explain};
use model::selection::ProofError;
use model::{Digest, Timestamp};
use support::{code, err, muster, out};
use trust::Refusal;
use trust::signed::VerifyError;
use wire::Code;

/// One of each; the match fails to compile when a new sort is added.
fn refusals() -> Vec<Refusal> {
    let all = vec![
        Refusal::Header(VerifyError::Unsigned),
        Refusal::Header(VerifyError::Untrusted),
        Refusal::Beacon(String::new()),
        Refusal::OtherFleet { theirs: "a".parse().unwrap(), ours: "b".parse().unwrap() },
        Refusal::OtherChannel { header: "a".parse().unwrap(), entry: "b".parse().unwrap() },
        Refusal::Older { offered: 1, accepted: 2 },
        Refusal::TwoHeaders(1),
        Refusal::Stale { seq: 1, signed: Timestamp(0), freshness_secs: 1 },
        Refusal::FutureDated { seq: 1, created: Timestamp(0), now: Timestamp(0) },
        Refusal::Proof(ProofError::WrongRoot),
        Refusal::OtherRoot { got: Digest::ZERO, want: Digest::ZERO },
        Refusal::Malformed(String::new()),
    ];
    for refusal in &all {
        match refusal {
            Refusal::Header(_)
            | Refusal::Beacon(_)
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
    for known in resolve::codes::CODES {
        assert_eq!(explain(known.code).unwrap().title, known.title);
    }
}

#[test]
fn no_refusal_is_explained_that_no_node_says() {
    let said: Vec<&str> = refusals().iter().map(Refusal::code).collect();
    for (code, ..) in REFUSALS {
        assert!(said.contains(code), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_says_it_and_names_the_nearest_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let known = muster(dir.path(), &["help", "e012"]).await;
    assert_eq!(code(&known), 0);
    assert!(out(&known).starts_with("E012  {{ in YAML\n"), "{}", out(&known));
    let unknown = muster(dir.path(), &["help", "token_usd"]).await;
    assert_eq!(code(&unknown), 1);
    assert!(err(&unknown).contains("did you mean `muster help token_used`?"), "{}", err(&unknown));
}
