//! A selector is answered page by page: what is declared by an index that follows releases, what is observed from a
//! bounded number of nodes with a cursor to go on from; cursors are hostnames, so nodes may come and go (SCL-1).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::TraitReport;
use model::object::ObjectKey;
use model::{Digest, Kind};
use serde_json::json;
use server::api::NodesView;
use server::api::objects::{ObjectsView, SyncsView};
use store::{NewNode, Store, TokenUse};
use test_support::fleet::release::{Plan, make};
use test_support::fleet::synced::{managed, manifest, one_managed, publish};
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

/// Objects of the nodes that a selector means come in the order of hostnames, and a page looks at no node beyond its
/// own: one that comes before its cursor changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_selector_go_by_hostname() {
    let fleet = Fleet::start().await;
    for name in ["web-1", "web-2", "web-3"] {
        fleet.node(name).await;
    }
    let mut operator = fleet.operator().await;
    let all: Vec<_> = ["db-1", "web-1", "web-2", "web-3"].map(|name| (name, managed())).into();
    publish(&fleet, &mut operator, &all).await;
    for node in ["web-3", "web-1", "web-2"] {
        operator.apply(vec![manifest(node, "a", 1), manifest(node, "b", 2)]).await;
    }
    let page = async |operator: &mut Operator, limit: usize, from: &str| {
        let path = format!("/v1/objects?match=web-*&limit={limit}&from={}", from.replace('/', "%2F"));
        let ObjectsView { objects, next } = operator.get(&path).await.unwrap();
        let named = objects.into_iter().map(|object| format!("{}/{}", object.node, object.name));
        (named.collect::<Vec<_>>(), next)
    };
    let (first, next) = page(&mut operator, 3, "").await;
    assert_eq!(first, ["web-1/a", "web-1/b", "web-2/a"]);
    let next = next.unwrap();
    assert!(next.starts_with("@web-2/down/"), "{next}");
    // Another one comes before the cursor, and the one that it names goes.
    fleet.node("db-1").await;
    operator.delete::<serde_json::Value>("/v1/nodes/web-2").await.unwrap();
    // What is left of the node that went is nothing of the next one.
    for next in [&*next, "@web-2/up/Zone/z/z"] {
        assert_eq!(
            page(&mut operator, 9, next).await,
            (vec!["web-3/a".to_owned(), "web-3/b".to_owned()], None)
        );
    }
}

/// A cursor that no page named is refused by its name, whatever it would be as text.
#[tokio::test]
async fn a_cursor_that_no_page_named_is_refused() {
    let (_fleet, mut operator, _node) = one_managed().await;
    operator.apply(vec![manifest("web-1", "a", 1)]).await;
    let id = operator.node("web-1").await.id;
    let object = "down%2FApplication%2Fweb-1%2Fa";
    let mut paths: Vec<String> = ["nodes", "sync"]
        .into_iter()
        .flat_map(|listing| [("~", listing), ("web-1%00", listing), ("a%20b", listing)])
        .flat_map(|(from, listing)| {
            [format!("/v1/{listing}?from={from}"), format!("/v1/{listing}?match=web-*&from={from}")]
        })
        .collect();
    for from in
        ["web-1", "@web-1", "@", &format!("@web-1%2F{object}"), &format!("{id}%2Fsideways%2FA%2Fb%2Fc")]
    {
        paths.push(format!("/v1/objects?from={from}"));
    }
    // One of a listing of all says nothing of one with a selector.
    paths.push(format!("/v1/objects?match=web-*&from={id}%2F{object}"));
    for path in paths {
        let refused = refuses(operator.get::<serde_json::Value>(&path).await, Code::BadQuery);
        assert!(refused.detail.unwrap().contains("`from`"), "{path}");
    }
    for path in [
        format!("/v1/objects?from={id}%2F{object}"),
        format!("/v1/objects?match=web-*&from=@web-1%2F{object}"),
    ] {
        let page: ObjectsView = operator.get(&path).await.unwrap();
        assert!(page.objects.is_empty() && page.next.is_none(), "{path}");
    }
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
            cert_authority: "00c0ffee00c0ffee".to_owned(),
            key_confirmation: model::KeyConfirmation::Token,
            declared: json!({}),
        };
        let token = TokenUse {
            nonce: format!("n-{number}"),
            expires_at: now(),
            replaces: None,
            lists: Default::default(),
        };
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
