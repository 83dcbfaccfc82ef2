//! DLT-3, CFG-1: a publish sends what the control plane lacks and nothing else; a broken
//! repo publishes nothing; two publishers do not overwrite one another.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use cli::publish::PublishError;
use test_support::programs::repo::{Control, app_module, changes, fleet_yaml, nodes_yaml, publish};

const NODES: usize = 600;

fn ids() -> BTreeMap<String, String> {
    (0..NODES).map(|number| (format!("host-{number:04}.test"), format!("id-{number}"))).collect()
}

fn repo(ids: &BTreeMap<String, String>, greeting: &str) -> Vec<(&'static str, String)> {
    vec![
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module(greeting)),
        ("nodes.yaml", nodes_yaml(ids)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_node_edit_sends_its_path_and_its_params() {
    let control = Control::start().await;
    let mut publisher = control.publisher().await;
    let mut ids = ids();
    let first = publish(&mut publisher, changes(&repo(&ids, "hello"))).await;
    assert_eq!((first.seq, first.nodes, first.changed.nodes), (1, NODES, NODES));
    // Params of each node, one module, one policy.
    assert_eq!(first.contents, NODES + 2);
    assert!(first.chunks > NODES, "a set for each node and the tries above: {}", first.chunks);

    let again = publish(&mut publisher, changes(&[])).await;
    assert!(again.unchanged);
    assert_eq!((again.seq, again.chunks, again.contents, again.bytes), (1, 0, 0, 0));

    ids.insert("host-0077.test".to_owned(), "edited".to_owned());
    let edit = publish(&mut publisher, changes(&[("nodes.yaml", nodes_yaml(&ids))])).await;
    assert_eq!((edit.seq, edit.changed.nodes), (2, 1));
    assert_eq!(edit.contents, 1, "the node's params");
    // The selection, three or four levels of its trie, the set.
    assert!(edit.chunks <= 7, "{} chunks", edit.chunks);
    assert!(edit.bytes < 16 * 1024, "{} bytes for one node of {NODES}", edit.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_starts_anew_sends_as_little() {
    let control = Control::start().await;
    let mut ids = ids();
    publish(&mut control.publisher().await, changes(&repo(&ids, "hello"))).await;
    ids.insert("host-0001.test".to_owned(), "edited".to_owned());
    ids.remove("host-0002.test");
    ids.insert("new.test".to_owned(), "new".to_owned());
    let edit = publish(&mut control.publisher().await, changes(&repo(&ids, "hello"))).await;
    assert_eq!((edit.seq, edit.changed.nodes), (2, 3), "one edited, one gone, one new");
    assert_eq!(edit.contents, 2);
    assert!(edit.chunks <= 20, "{} chunks", edit.chunks);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_module_is_sent_once_however_many_nodes_use_it() {
    let control = Control::start().await;
    let mut publisher = control.publisher().await;
    let ids = ids();
    publish(&mut publisher, changes(&repo(&ids, "hello"))).await;
    let edit = publish(&mut publisher, changes(&[("modules/app/module.yaml", app_module("good day"))])).await;
    assert_eq!(edit.changed.nodes, NODES);
    assert_eq!(edit.contents, 1, "the module");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_repo_publishes_nothing_and_the_repair_everything() {
    let control = Control::start().await;
    let mut publisher = control.publisher().await;
    let ids: BTreeMap<String, String> = [("a.test".to_owned(), "1".to_owned())].into();
    publish(&mut publisher, changes(&repo(&ids, "hello"))).await;
    let broken = vec![
        ("modules/app/module.yaml", "resources:\n  - fill: /etc/x\n".to_owned()),
        ("nodes.yaml", "nodes:\n  - match: [b.test]\n    roles: [nothing]\n".to_owned()),
    ];
    match publisher.take(changes(&broken)).await.map(|_| ()) {
        Err(PublishError::Broken(broken)) => {
            assert!(broken >= 2, "all mistakes at once");
        }
        other => panic!("{other:?}"),
    }
    let head =
        control.operator().await.call(&server::api::HEAD, server::api::operation::Empty {}).await.unwrap();
    assert_eq!(head.seq, Some(1));
    let repaired = vec![
        ("modules/app/module.yaml", app_module("hello")),
        ("nodes.yaml", nodes_yaml(&[("b.test".to_owned(), "1".to_owned())].into())),
    ];
    let edit = publish(&mut publisher, changes(&repaired)).await;
    assert_eq!((edit.seq, edit.changed.nodes), (2, 2), "a.test went and b.test came");
}

/// A release that could not be sealed is not forgotten: what changed with it is in the next one.
#[tokio::test(flavor = "multi_thread")]
async fn what_changed_with_a_failed_release_is_in_the_next_one() {
    let control = Control::start().await;
    let mut publisher = control.publisher().await;
    let sources = format!("{}secrets: {{sources: {{files: {{age: secrets/}}}}}}\n", fleet_yaml());
    let mut ids: BTreeMap<String, String> =
        ["a.test", "b.test"].map(|name| (name.to_owned(), "1".to_owned())).into();
    publish(&mut publisher, changes(&repo(&ids, "hello"))).await;
    publish(&mut publisher, changes(&[("fleet.yaml", sources)])).await;
    ids.insert("b.test".to_owned(), "2".to_owned());
    let secret = "params:\n  id: {type: string, default: none}\nresources:\n  - file: /etc/key\n    content: secret:a/b\n";
    let both = [("nodes.yaml", nodes_yaml(&ids)), ("modules/app/module.yaml", secret.to_owned())];
    let failed = publisher.take(changes(&both)).await.map(|_| ());
    assert!(matches!(failed, Err(PublishError::NoSecretSources)), "{failed:?}");
    let edit = publish(&mut publisher, changes(&[("modules/app/module.yaml", app_module("hello"))])).await;
    assert_eq!((edit.unchanged, edit.changed.nodes), (false, 1), "b.test got another id meanwhile");
}

async fn numbers(control: &Control) -> Vec<u64> {
    let releases =
        control.operator().await.call(&server::api::RELEASES, server::api::History::default()).await.unwrap();
    releases.iter().map(|release| release.seq).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_published_meanwhile_is_not_undone_unseen() {
    let control = Control::start().await;
    let (mut one, mut other) = (control.publisher().await, control.publisher().await);
    let ids: BTreeMap<String, String> = [("a.test".to_owned(), "1".to_owned())].into();
    assert_eq!(publish(&mut one, changes(&repo(&ids, "one"))).await.seq, 1);

    let built = other.take(changes(&repo(&ids, "other"))).await.unwrap();
    let compared = other.compare(&built).await.unwrap();
    let refused = other.publish(&built, None, compared).await;
    assert!(matches!(refused, Err(PublishError::Overtaken(1))), "{refused:?}");
    assert_eq!(numbers(&control).await, [1]);

    // Having seen it, the operator may replace it.
    let compared = other.compare(&built).await.unwrap();
    assert_eq!((compared.nodes, compared.same), (1, false));
    assert_eq!(other.publish(&built, None, compared).await.unwrap().seq, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_the_same_content_published_meanwhile_is_followed() {
    let control = Control::start().await;
    let (mut one, mut other) = (control.publisher().await, control.publisher().await);
    let ids: BTreeMap<String, String> = [("a.test".to_owned(), "1".to_owned())].into();
    assert_eq!(publish(&mut one, changes(&repo(&ids, "same"))).await.seq, 1);
    assert_eq!(publish(&mut other, changes(&repo(&ids, "same"))).await.seq, 2);
    assert_eq!(numbers(&control).await, [2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_nobody_believes_is_refused_before_anything_is_sent() {
    let control = Control::start().await;
    let key = trust::SigningKey::from_seed(&[7; 32]).into();
    let stranger = cli::credentials::ReleaseKey { key, path: control.dir.path().join("stranger.key") };
    let refused = cli::publish::Publisher::connect(control.credentials.clone(), [stranger]).await;
    assert!(matches!(refused.map(|_| ()), Err(PublishError::OtherKey(_))));
}
