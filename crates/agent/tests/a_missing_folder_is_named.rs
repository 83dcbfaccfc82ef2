//! SYN-9, SYN-12: a folder that the control plane is to fill is made when it was never there; one
//! that was there and is gone is not, and neither is a node's own. What is wrong with the place
//! is named with its path and the system's words, at the node and to the control plane, and is
//! over by itself when it is mended.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;

use model::replication::Mode;
use spool::Disk;
use test_support::agent_links::{Node, block_on, item, manifest, policy};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::eventually;

const FOLDER: &str = "/srv/of/manifests";
const PLACE: &str = "folder /srv/of/manifests";

fn source() -> Arc<MemoryLinkHandler> {
    let source = Arc::new(MemoryLinkHandler::new("source".parse().unwrap()));
    source.put(item("a"), "u-a", manifest("a", "one"), 1);
    source
}

fn node(dir: &Path, mode: Mode) -> Node {
    Node::start(dir, Disk::new(), policy(mode, Some(FOLDER)), Vec::new())
}

fn problem(node: &Node) -> String {
    node.view.shown().problems.get(PLACE).cloned().unwrap_or_default()
}

/// Why the object cannot be put, as the control plane hears it.
fn reason(node: &Node) -> String {
    node.sets.with(|_, replica| {
        replica.rejected().get(&item("a")).map(|rejected| rejected.message.clone()).unwrap_or_default()
    })
}

#[test]
fn it_is_made_once_and_not_again() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("root").join(&FOLDER[1..]);
        let file = folder.join("item/web/a.yaml");
        let one = node(temp.path(), Mode::Managed);
        let link = one.link(&source()).await;
        eventually("the folder is made and filled", || file.exists()).await;
        assert!(one.view.shown().problems.is_empty(), "{:?}", one.view.shown().problems);
        link.end().await;
        drop(one);
        // Unmounted, so to say.
        std::fs::rename(&folder, temp.path().join("away")).unwrap();
        let again =
            test_support::agent_links::restarted(temp.path(), || node(temp.path(), Mode::Managed)).await;
        eventually("the node names its folder", || problem(&again).contains("No such file")).await;
        let newer = source();
        newer.put(item("a"), "u-a", manifest("a", "two"), 2);
        let link = again.link(&newer).await;
        let real = temp.path().canonicalize().unwrap().join("root").join(&FOLDER[1..]);
        eventually("why it cannot be put is told", || {
            let reason = reason(&again);
            reason.contains(real.to_str().unwrap()) && reason.contains("No such file")
        })
        .await;
        assert!(!folder.exists(), "made in the place of one that was there");
        std::fs::rename(temp.path().join("away"), &folder).unwrap();
        eventually("it is as it should be", || {
            std::fs::read_to_string(&file).unwrap_or_default().contains("two") && problem(&again).is_empty()
        })
        .await;
        link.end().await;
    });
}

#[test]
fn what_is_in_its_way_is_named_and_mended() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("root")).unwrap();
        let in_the_way = temp.path().join("root/srv");
        std::os::unix::fs::symlink(temp.path(), &in_the_way).unwrap();
        let node = node(temp.path(), Mode::Managed);
        let link = node.link(&source()).await;
        eventually("the problem is named", || problem(&node).contains("link")).await;
        assert!(!temp.path().join("of").exists(), "made through a link");
        std::fs::remove_file(&in_the_way).unwrap();
        let file = in_the_way.join("of/manifests/item/web/a.yaml");
        eventually("it is made", || file.exists() && problem(&node).is_empty()).await;
        link.end().await;
    });
}

#[test]
fn a_node_s_own_folder_is_not_made_for_it() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        let node = node(temp.path(), Mode::Autonomous);
        eventually("the problem is named", || problem(&node).contains("No such file")).await;
        assert!(!temp.path().join("root/srv").exists());
        let folder = temp.path().join("root").join(&FOLDER[1..]);
        std::fs::create_dir_all(&folder).unwrap();
        eventually("it is found", || problem(&node).is_empty()).await;
        assert!(node.view.shown().problems.is_empty());
    });
}
