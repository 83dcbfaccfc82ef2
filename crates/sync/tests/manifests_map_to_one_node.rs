//! SYN-7, SYN-8: source uid, mismatch policy, annotations, and the node that a manifest is for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use model::replication::Mismatch::{self, Recreate, Upsert};
use serde_json::json;
use sync::identity::{self, Decision, Local, SourceObject, decide, delete_applies};
use sync::mapping::{Mapping, target};

#[test]
fn decisions() {
    let here = |uid, same| Some(Local { source_uid: uid, same });
    let cases: &[(Option<Local<'_>>, Option<&str>, Mismatch, Decision)] = &[
        (None, None, Recreate, Decision::Create),
        (here(None, true), None, Recreate, Decision::Adopt),
        (here(None, false), Some("upsert"), Recreate, Decision::Adopt),
        (here(Some("new"), true), None, Recreate, Decision::Nothing),
        (here(Some("new"), false), Some("recreate"), Upsert, Decision::Update),
        (here(Some("old"), true), None, Recreate, Decision::Recreate),
        (here(Some("old"), false), None, Upsert, Decision::Upsert),
        (here(Some("old"), false), Some("upsert"), Recreate, Decision::Upsert),
        (here(Some("old"), false), Some("recreate"), Upsert, Decision::Recreate),
    ];
    for (local, annotation, policy, expected) in cases {
        let incoming = SourceObject { uid: "new", annotation: *annotation };
        assert_eq!(
            decide(local.clone(), incoming, *policy),
            (*expected, None),
            "{local:?} {annotation:?} {policy:?}"
        );
    }
}

#[test]
fn an_unknown_policy_warns_and_falls_back() {
    for (policy, expected) in [(Recreate, Decision::Recreate), (Upsert, Decision::Upsert)] {
        let local = Local { source_uid: Some("old"), same: false };
        let (decision, warning) =
            decide(Some(local), SourceObject { uid: "new", annotation: Some("replace") }, policy);
        assert_eq!(decision, expected);
        assert!(warning.unwrap().contains("\"replace\""));
    }
}

#[test]
fn a_delete_of_an_older_life_that_comes_late_is_ignored() {
    let here = Some("new");
    assert!(delete_applies(here, 9, "new", 5));
    assert!(delete_applies(here, 9, "newer", 12), "an incarnation that was never heard of began and ended");
    assert!(!delete_applies(here, 9, "old", 5));
}

#[test]
fn annotations_are_read_under_both_names() {
    for (uid, policy) in [
        ("argocd.argoproj.io/source-uid", "argocd.argoproj.io/source-uid-mismatch-policy"),
        ("muster.dev/source-uid", "muster.dev/source-uid-mismatch-policy"),
    ] {
        let manifest = json!({"metadata": {"annotations": {uid: "u-1", policy: "upsert"}}});
        assert_eq!(identity::source_uid(&manifest), Some("u-1"));
        assert_eq!(identity::policy_annotation(&manifest), Some("upsert"));
    }
    for odd in [
        json!({}),
        json!([]),
        json!({"metadata": {"annotations": {"muster.dev/source-uid": 7}}}),
        json!({"metadata": {"annotations": {"muster.dev/source-uid": ""}}}),
    ] {
        assert_eq!(identity::source_uid(&odd), None);
    }
}

#[test]
fn manifests_are_mapped_to_nodes() {
    let manifest = json!({"metadata": {"namespace": "edge-1"}, "spec": {"destination": {"name": "edge-2"}}});
    assert_eq!(target(&manifest, Mapping::Namespace), Some("edge-1"));
    assert_eq!(target(&manifest, Mapping::Destination), Some("edge-2"));
    assert_eq!(target(&json!({"metadata": {"namespace": ""}}), Mapping::Namespace), None);
    assert_eq!(target(&json!({"spec": {"destination": "edge"}}), Mapping::Destination), None);
}
