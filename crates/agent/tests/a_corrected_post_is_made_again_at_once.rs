//! SYN-1, SYN-4: a post whose events begin where the control plane does not stand is corrected by the
//! answer, and the next one goes at once, from there; one that is corrected each time waits.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex, OnceLock};

use agent::sync::view::SharedStatus;
use model::Digest;
use model::replication::{Mode, TransportPolicy};
use spool::Disk;
use sync::frame::Have;
use sync::{FeedCursor, Frame};
use test_support::agent_links::{Node, item, manifest, policy};
use test_support::scripted::{Reply, ScriptedControl, hello, said};
use test_support::wait::eventually;
use wire::batch::{self, MAX_REQUEST};

/// A control plane that never stands where the node takes it to stand: a post that says nothing of it is
/// told the first change, one from there nothing, and one from nothing the first change.
#[derive(Clone, Default)]
struct Elsewhere {
    view: Arc<OnceLock<Arc<SharedStatus>>>,
    posts: Arc<Mutex<Vec<Post>>>,
}

/// What a post says.
#[derive(Clone, Copy)]
struct Post {
    /// After which change its events begin.
    after: Option<u64>,
    /// The number of the link that it is of.
    link: u64,
}

impl Elsewhere {
    fn answer(&self, body: &[u8]) -> Reply {
        let came = batch::decode(&body.to_vec().into(), Some("web-1"), MAX_REQUEST).unwrap();
        let (Some(Frame::Hello(theirs)), Frame::Hello(mut own)) = (came.frames.first(), hello()) else {
            panic!("a post begins with a hello");
        };
        let after = theirs.after.as_ref().map(|cursor| cursor.revision);
        let link = self.view.get().unwrap().shown().counts.links;
        self.posts.lock().unwrap().push(Post { after, link });
        let first = FeedCursor::at(theirs.head.incarnation.clone(), 1);
        own.mode = Mode::Autonomous;
        own.have = (after != Some(1)).then(|| Have { cursor: first, root: Digest::of(b"one object") });
        said(vec![Frame::Hello(own)])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_is_corrected_once_without_a_wait() {
    let elsewhere = Elsewhere::default();
    let answers = elsewhere.clone();
    let control = ScriptedControl::start(&["127.0.0.1"], move |_, body| answers.answer(&body)).await;
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("root/srv");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["i1", "i2"] {
        std::fs::write(folder.join(format!("{name}.yaml")), manifest(name, "text")).unwrap();
    }
    let node = Node::start(temp.path(), Disk::new(), policy(Mode::Autonomous, Some("/srv")), Vec::new());
    elsewhere.view.set(node.view.clone()).ok().unwrap();
    let has_all =
        || node.sets.with(|feed, _| ["i1", "i2"].iter().all(|name| feed.get(&item(name)).is_some()));
    eventually("its objects are found", has_all).await;
    let links = node.links(&control, TransportPolicy::Poll);
    let posts = || elsewhere.posts.lock().unwrap().clone();
    eventually("another poll begins", || posts().iter().any(|post| post.link > 1)).await;
    links.stop().await;
    let of_first: Vec<_> = posts().iter().filter(|post| post.link == 1).map(|post| post.after).collect();
    assert_eq!(of_first, [None, Some(1), Some(0)], "corrected, and corrected again");
}
