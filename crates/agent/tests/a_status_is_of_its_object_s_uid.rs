//! SYN-5, SYN-7: when the source has another object under a name, what the node says of the one before
//! is gone from its own set, or is of the new uid.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::replication::Mode;
use spool::Disk;
use sync::object::status_key;
use test_support::agent_links::{Node, block_on, item, manifest, policy};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::eventually;

const FOLDER: &str = "/srv/manifests";

#[test]
fn no_status_of_the_object_before_stays() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        let policy = policy(Mode::Managed, Some(FOLDER));
        let node = Node::start(temp.path(), Disk::new(), policy, Vec::new());
        let source = Arc::new(MemoryLinkHandler::new("source".parse().unwrap()));
        source.put(item("a"), "u-1", manifest("a", "one"), 1);
        let link = node.link(&source).await;
        let file = temp.path().join("root").join(&FOLDER[1..]).join("item/web/a.yaml");
        eventually("the object is there", || file.exists()).await;
        std::fs::write(file.with_file_name("a.yaml.status.json"), r#"{"ready":true}"#).unwrap();
        let of_the_first = || {
            let key = status_key(&item("a"));
            node.sets.with(|feed, _| feed.stub(&key).is_some_and(|stub| &*stub.uid == "u-1"))
        };
        eventually("its status goes up", of_the_first).await;
        source.put(item("a"), "u-2", manifest("a", "two"), 2);
        eventually("the status of the object before is gone", || !of_the_first()).await;
        link.end().await;
    });
}
