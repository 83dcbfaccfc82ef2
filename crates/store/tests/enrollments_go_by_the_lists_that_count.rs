//! ENR-3, IDN-6, IDN-10: signed lists are kept with what depends on them: their numbers only rise, and an enrollment that
//! was judged by others is refused in its own transaction, in which a predecessor is removed too. ENR-4: failed joins
//! are kept until their token is used.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use store::{
    EnrollError, Enrolled, FailedJoin, JoinFailureKind, ListVersions, MAX_REPORTS_OF_TOKEN, PutListError,
    ReportJoinError, ReportingToken, Store, StoredList, TokenUse,
};
use trust::ListName;

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{at, new_node, signed, token};

fn list(name: ListName, seq: u64, text: &str) -> StoredList {
    StoredList { name, seq, document: signed(text) }
}

fn judged_by(nonce: &str, allowlist: u64, revocations: u64) -> TokenUse {
    TokenUse { lists: ListVersions { allowlist, revocations }, ..token(nonce) }
}

#[tokio::test]
async fn numbers_only_rise_and_enrollments_go_by_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("muster.db")).unwrap();
    use ListName::{Allowlist, Revocations};
    store.put_lists(vec![list(Allowlist, 2, "a2"), list(Revocations, 1, "r1")]).await.unwrap();
    for seq in [1, 2] {
        // All of a call or none.
        let lists = vec![list(Revocations, 9, "r9"), list(Allowlist, seq, "other")];
        let refused = store.put_lists(lists).await.unwrap_err();
        assert!(matches!(refused, PutListError::NotNewer { name: Allowlist, held: 2 }), "{refused:?}");
    }
    let kept = store.signed_lists().await.unwrap();
    assert_eq!(kept, [list(Allowlist, 2, "a2"), list(Revocations, 1, "r1")]);

    for (allowlist, revocations) in [(0, 0), (2, 0), (1, 1), (2, 2)] {
        let refused = store.enroll(new_node(1), judged_by("one", allowlist, revocations), at(0)).await;
        assert!(matches!(refused, Err(EnrollError::ListsMoved)), "{refused:?}");
    }
    let enrolled = store.enroll(new_node(1), judged_by("one", 2, 1), at(0)).await;
    assert_eq!(enrolled.unwrap(), Enrolled::New, "none of them burned it");
}

#[tokio::test]
async fn a_predecessor_goes_with_the_enrollment_or_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("muster.db")).unwrap();
    store.enroll(new_node(1), token("one"), at(0)).await.unwrap();
    let (old, mut new) = (new_node(1).node_id, new_node(2));
    new.hostname = new_node(1).hostname;
    let naming = |nonce: &str, node| TokenUse { replaces: Some(node), ..token(nonce) };
    let other = store.enroll(new.clone(), naming("two", new_node(3).node_id), at(1)).await;
    assert!(matches!(other, Err(EnrollError::HostnameTaken { .. })), "{other:?}");
    let used = store.enroll(new.clone(), naming("one", old.clone()), at(1)).await;
    assert!(matches!(used, Err(EnrollError::NonceUsed)), "{used:?}");
    assert_eq!(store.node(&old).await.unwrap().unwrap().removed, None);
    let enrolled = store.enroll(new.clone(), naming("two", old.clone()), at(2)).await.unwrap();
    assert_eq!(enrolled, Enrolled::Replacing);
    assert_eq!(store.node(&old).await.unwrap().unwrap().removed, Some(at(2)));
    assert_eq!(store.nodes(None, 9).await.unwrap().len(), 1);
    // The same again, as its reply was lost.
    assert_eq!(store.enroll(new, naming("two", old), at(3)).await.unwrap(), Enrolled::Again);
}

#[tokio::test]
async fn failed_joins_are_kept_until_the_token_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("muster.db")).unwrap();
    let join = |message: &str| FailedJoin {
        hostname: new_node(1).hostname,
        fingerprint: "SHA256:x".into(),
        failure: JoinFailureKind::TrustError,
        code: None,
        message: message.into(),
        agent: None,
    };
    let by = |nonce: &str, n| ReportingToken { nonce: nonce.into(), node: new_node(n).node_id };
    store.report_failed_join(by("one", 1), join("before"), at(0)).await.unwrap();
    store.enroll(new_node(1), token("one"), at(0)).await.unwrap();
    store.report_failed_join(by("one", 1), join("its certificate is of no use"), at(0)).await.unwrap();
    let other = store.report_failed_join(by("one", 2), join("not mine"), at(0)).await;
    assert!(matches!(other, Err(ReportJoinError::TokenUsed)), "{other:?}");
    store.certificate_used(&new_node(1).node_id).await.unwrap();
    let used = store.report_failed_join(by("one", 1), join("after"), at(0)).await;
    assert!(matches!(used, Err(ReportJoinError::TokenUsed)), "{used:?}");
    for _ in 0..MAX_REPORTS_OF_TOKEN {
        store.report_failed_join(by("two", 2), join("again"), at(1)).await.unwrap();
    }
    let more = store.report_failed_join(by("two", 2), join("again"), at(1)).await;
    assert!(matches!(more, Err(ReportJoinError::TooMany)), "{more:?}");
    let kept = store.failed_joins(1000, None).await.unwrap();
    assert_eq!(kept.len(), 2 + MAX_REPORTS_OF_TOKEN);
    assert_eq!(kept.last().unwrap().join.message, "before");
    assert_eq!(store.failed_joins(1, Some(2)).await.unwrap()[0].number, 1);
}
