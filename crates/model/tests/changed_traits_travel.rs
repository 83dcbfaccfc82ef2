//! TRT-2: a report of what changed, over the report that it differs from, is the whole one.

#![allow(clippy::unwrap_used)]

use model::Digest;
use model::exchange::{MAX_TRAIT_BYTES, MAX_TRAIT_VALUES, TraitReport};
use proptest::prelude::*;
use serde_json::{Value, json};

fn report(groups: &Value) -> TraitReport {
    TraitReport::whole(Digest::of(groups.to_string().as_bytes()), groups.clone())
}

fn groups() -> impl Strategy<Value = Value> {
    let group = prop::collection::btree_map("[a-c]", 0..3_i64, 0..3);
    prop::collection::btree_map("[a-e]", group, 0..5).prop_map(|groups| json!(groups))
}

proptest! {
    #[test]
    fn what_changed_over_what_is_kept_is_all(before in groups(), now in groups()) {
        let (before, now) = (report(&before), report(&now));
        let changed = now.since(&before);
        prop_assert_eq!(changed.clone().over(Some(before.clone())), Some(now.clone()));
        for (name, group) in changed.values.as_object().unwrap() {
            prop_assert_ne!(before.values.get(name), Some(group));
        }
        prop_assert_eq!(changed.over(None), None);
        prop_assert_eq!(now.clone().over(None), Some(now));
    }
}

#[test]
fn what_differs_from_another_report_is_refused() {
    let (one, two, three) = (report(&json!({"a": {}})), report(&json!({"b": {}})), report(&json!({"c": {}})));
    assert_eq!(three.since(&two).over(Some(one)), None);
    let broken = TraitReport { values: json!([]), ..three.since(&two) };
    assert_eq!(broken.over(Some(two)), None);
}

/// SCL-3: an agent leaves out what is too much, and tells the rest.
#[test]
fn the_largest_groups_are_left_out_of_what_is_too_large() {
    let fill = |bytes: usize| json!({ "text": "x".repeat(bytes) });
    let mut fits = report(&json!({ "os": fill(100), "external": fill(MAX_TRAIT_BYTES - 200) }));
    assert!(fits.is_within_bounds());
    assert!(fits.leave_out_what_is_too_large().is_empty());
    let mut large = report(&json!({ "os": fill(100), "external": fill(MAX_TRAIT_BYTES), "net": fill(200) }));
    assert!(!large.is_within_bounds());
    assert_eq!(large.leave_out_what_is_too_large(), ["external"]);
    assert_eq!(large.values, json!({ "os": fill(100), "net": fill(200) }));
    let mut many = report(&json!({ "os": fill(1), "external": { "a": vec![json!([]); MAX_TRAIT_VALUES] } }));
    assert_eq!(many.leave_out_what_is_too_large(), ["external"]);
    assert!(many.is_within_bounds());
}
