//! A selector is answered page by page: what is declared by an index that follows releases, what is observed from a
//! bounded number of nodes with a cursor to go on from; cursors are hostnames, so nodes may come and go (SCL-1).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::TraitReport;
use model::object::ObjectKey;
use model::{Digest, Kind};
use serde_json::json;
use server::api::NodesView;
use server::api::objects::SyncsView;
use store::{NewNode, Store, TokenUse};
use test_support::fleet::release::{Plan, make};
use test_support::fleet::{Fleet, Operator, new_key, now, refuses};
use wire::Code;

fn declares(rack: &str, groups: &[&str]) -> (ObjectKey, Vec<u8>) {
    let params = json!({"node": {"groups": groups, "labels": {"rack": rack}}});
    (ObjectKey::of(Kind::PARAMS, "node"), params.to_string().into_bytes())
}

fn names(page: &NodesView) -> Vec<&str> {
    page.nodes.iter().map(|node| node.hostname.as_str()).collect()
}

/// The pages of a selector, `limit` nodes each.
async fn pages(operator: &mut Operator, selector: &str, limit: usize) -> Vec<Vec<String>> {
    let (mut pages, mut from) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/nodes?match={selector}&limit={limit}&from={from}");
        let page: NodesView = operator.get(&path).await.unwrap();
        pages.push(names(&page).into_iter().map(str::to_owned).collect());
        match page.next {
            Some(next) => from = next.to_string(),
            None => return pages,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_declared_is_found_by_an_index() {
    let fleet = Fleet::start().await;
    for name in ["db-1", "web-1", "web-2", "web-3"] {
        fleet.node(name).await;
    }
    let (key, id) = (fleet.release_key(), fleet.enroll_info().fleet);
    let mut operator = fleet.operator().await;
    refuses(operator.get::<NodesView>("/v1/nodes?match=@web").await, Code::BadSelector);
    let first = Plan::new(&id, 1)
        .node("db-1", &[declares("r1", &["db"])])
        .node("web-1", &[declares("r1", &["web"])])
        .node("web-2", &[declares("r2", &["web"])])
        .node("web-3", &[declares("r1", &["web"])]);
    operator.publish(&make(&first, &key)).await.unwrap();
    assert_eq!(
        pages(&mut operator, "rack%3Dr1", 2).await,
        [vec!["db-1", "web-1"], vec!["web-3"]],
        "by their label, in the order of hostnames"
    );
    assert_eq!(pages(&mut operator, "@web", 9).await, [["web-1", "web-2", "web-3"]]);
    assert_eq!(pages(&mut operator, "@web,!rack%3Dr1", 9).await, [["web-2"]]);
    assert_eq!(pages(&mut operator, "@web,db-*", 9).await.concat().len(), 4);
    assert_eq!(pages(&mut operator, "web-*,rack%3Dr1", 9).await, [["web-1", "web-3"]]);
    assert_eq!(pages(&mut operator, "where:labels.rack%20%3D%3D%20%22r2%22", 9).await, [["web-2"]]);
    // The node that a page names as the next goes, and another comes before it.
    let page: NodesView = operator.get("/v1/nodes?match=rack%3Dr1&limit=2").await.unwrap();
    assert_eq!(page.next.unwrap().as_str(), "web-3");
    operator.delete::<serde_json::Value>("/v1/nodes/web-3").await.unwrap();
    fleet.node("web-4").await;
    let second = Plan { expected_head: Some(1), ..Plan::new(&id, 2) }
        .node("db-1", &[declares("r9", &["db"])])
        .node("web-1", &[declares("r1", &["web"])])
        .node("web-4", &[declares("r1", &["web"])]);
    operator.publish(&make(&second, &key)).await.unwrap();
    let rest: NodesView = operator.get("/v1/nodes?match=rack%3Dr1&limit=2&from=web-3").await.unwrap();
    assert_eq!((names(&rest), rest.next.is_none()), (vec!["web-4"], true));
    assert_eq!(
        pages(&mut operator, "rack%3Dr1", 9).await,
        [["web-1", "web-4"]],
        "as the newest release says"
    );
    assert_eq!(pages(&mut operator, "rack%3Dr2", 9).await, [Vec::<String>::new()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_observed_comes_in_bounded_pages() {
    let mut fleet = Fleet::start().await;
    fleet.stop().await;
    let store = Store::open(fleet.dir.path().join("muster.db")).unwrap();
    for number in 0..250 {
        let key = new_key().public();
        let node = NewNode {
            cert_not_after: None,
            node_id: key.node_id(),
            hostname: format!("edge-{number:03}").parse().unwrap(),
            public_key: key.to_string(),
            cert_not_before: now(),
            cert_serial: format!("{number:032x}"),
            key_confirmed: true,
            declared: json!({}),
        };
        let token = TokenUse { nonce: format!("n-{number}"), expires_at: now() };
        store.enroll(node, token, now()).await.unwrap();
        let values = json!({"os": {"release": if number == 7 { "11" } else { "12" }}});
        let traits = TraitReport::whole(Digest::of(values.to_string().as_bytes()), values);
        store.put_traits(&key.node_id(), traits, now()).await.unwrap();
    }
    drop(store);
    fleet.start_again().await;
    let mut operator = fleet.operator().await;
    let selector = "where:traits.os.release+%3D%3D+%2212%22";
    let found = pages(&mut operator, selector, 1000).await;
    assert!(found.iter().all(|page| page.len() <= 200), "at most so many in a page");
    let all: Vec<String> = (0..250).filter(|number| *number != 7).map(|n| format!("edge-{n:03}")).collect();
    assert_eq!(found.concat(), all, "each once, in order, and the rest is behind the cursor");
    let first: SyncsView = operator.get(&format!("/v1/sync?match={selector}")).await.unwrap();
    let counted: usize = first.states.values().sum();
    assert!(first.at_least && first.next.is_some() && counted == first.nodes.len(), "{counted}");
    let whole: SyncsView = operator.get("/v1/sync?match=edge-*").await.unwrap();
    assert_eq!((whole.at_least, whole.states.values().sum::<usize>()), (false, 250));
}
