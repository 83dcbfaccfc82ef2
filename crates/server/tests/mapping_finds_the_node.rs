//! SYN-8: a manifest is for the node that its namespace names, or its destination, or the
//! operator for all of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use backends::manifest::MAX_NAME;
use serde_json::json;
use server::api::objects::{Apply, ApplyOutcome, Mapping, ObjectResults};
use test_support::fleet::Fleet;
use test_support::fleet::synced::{apply, managed, manifest, publish};
use wire::Code;

#[tokio::test]
async fn each_mapping_finds_its_node() {
    let fleet = Fleet::start().await;
    for name in ["web-1", "web-2"] {
        fleet.node(name).await;
    }
    let mut operator = fleet.operator().await;
    publish(&fleet, &mut operator, &[("web-1", managed()), ("web-2", managed())]).await;
    let mut told = manifest("argocd", "a", 1);
    told["spec"]["destination"] = json!({"name": "web-2"});
    let table = [
        (Apply { ..apply(vec![manifest("web-1", "a", 1)]) }, Some("web-1")),
        (Apply { mapping: Mapping::Destination, ..apply(vec![told.clone()]) }, Some("web-2")),
        (Apply { node: Some("web-1".to_owned()), ..apply(vec![told.clone()]) }, Some("web-1")),
        (apply(vec![told.clone()]), None),
        (Apply { mapping: Mapping::Destination, ..apply(vec![manifest("web-1", "a", 1)]) }, None),
        (apply(vec![json!({"kind": "Application", "metadata": {"name": "x"}})]), None),
        (apply(vec![manifest("web-1", &"n".repeat(MAX_NAME), 1)]), Some("web-1")),
    ];
    for (asked, wanted) in table {
        let name = asked.manifests[0]["metadata"]["name"].clone();
        let results: ObjectResults = operator.post("/v1/objects", &asked).await.unwrap();
        let [done] = results.results.as_slice() else { panic!("{results:?}") };
        assert_eq!(name, done.object.name, "named in full");
        match wanted {
            Some(node) => {
                assert_eq!(
                    (done.outcome, done.object.node.as_str()),
                    (ApplyOutcome::Created, node),
                    "{asked:?}"
                );
            }
            None => {
                assert_eq!(done.outcome, ApplyOutcome::Refused, "{asked:?}");
                assert!(done.why.as_deref().unwrap().starts_with(Code::NotFound.as_str()), "{done:?}");
            }
        }
    }
    // Objects of each node's set, by node and by namespace.
    let of = |page: Vec<server::api::objects::ObjectView>| -> Vec<String> {
        page.into_iter().map(|object| format!("{}/{}", object.node, object.namespace)).collect()
    };
    assert_eq!(of(operator.objects("match=web-2").await), ["web-2/argocd"]);
    let mut both = of(operator.objects("namespace=argocd").await);
    both.sort();
    assert_eq!(both, ["web-1/argocd", "web-2/argocd"]);
}
