//! SYN-7, SYN-8: source uid, mismatch policy, annotations, and the node that a manifest is for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use model::replication::Mismatch::{self, Recreate, Upsert};
use serde_json::json;
use sync::identity::{Decision, Local, MISMATCH_POLICY, decide, delete_applies};
use sync::mapping::{Mapping, target};

/// A manifest with this policy under each of the annotation's names.
fn manifests(policy: Option<&str>) -> impl Iterator<Item = Vec<u8>> {
    let annotated = move |name: &str| json!({"metadata": {"annotations": {name: policy}}}).to_string();
    MISMATCH_POLICY.into_iter().map(move |name| annotated(name).into_bytes())
}

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
        for manifest in manifests(*annotation) {
            let decided = decide(local.clone(), "new", &manifest, *policy);
            assert_eq!(decided, (*expected, None), "{local:?} {annotation:?} {policy:?}");
        }
    }
    for odd in ["", "[]", "{}", r#"{"metadata":{"annotations":{"muster.dev/source-uid-mismatch-policy":7}}}"#]
    {
        let decided = decide(here(Some("old"), false), "new", odd.as_bytes(), Upsert);
        assert_eq!(decided, (Decision::Upsert, None), "{odd}");
    }
}

#[test]
fn an_unknown_policy_warns_and_falls_back() {
    for (policy, expected) in [(Recreate, Decision::Recreate), (Upsert, Decision::Upsert)] {
        for manifest in manifests(Some("replace")) {
            let local = Local { source_uid: Some("old"), same: false };
            let (decision, warning) = decide(Some(local), "new", &manifest, policy);
            assert_eq!(decision, expected);
            assert!(warning.unwrap().contains("\"replace\""));
        }
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
fn manifests_are_mapped_to_nodes() {
    let manifest = json!({"metadata": {"namespace": "edge-1"}, "spec": {"destination": {"name": "edge-2"}}});
    assert_eq!(target(&manifest, Mapping::Namespace), Some("edge-1"));
    assert_eq!(target(&manifest, Mapping::Destination), Some("edge-2"));
    assert_eq!(target(&json!({"metadata": {"namespace": ""}}), Mapping::Namespace), None);
    assert_eq!(target(&json!({"spec": {"destination": "edge"}}), Mapping::Destination), None);
}
