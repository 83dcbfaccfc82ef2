//! SYN-1, SYN-3: what a node answers to a control plane by posts reaches it, also where it is more than
//! one post takes and where a post is lost; and it keeps no more for the next post than fits its bound.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};

use agent::sync::posts::{Exchanged, Poster};
use model::replication::{Mode, TransportKind};
use spool::Disk;
use sync::frame::Ping;
use sync::link::LinkConfig;
use sync::{Frame, Role};
use test_support::agent_links::{Node, policy, session};
use test_support::scripted::{Reply, ScriptedControl, hello, problem, said};
use wire::batch::{self, MAX_REQUEST};
use wire::cloudevents::Origin;
use wire::{Code, Problem};

/// A hello, and as many questions, each with a number of its own.
fn asking(numbers: std::ops::RangeInclusive<u64>) -> Vec<Frame> {
    let ping = |number| Frame::Ping(Ping { number, ..Ping::default() });
    std::iter::once(hello()).chain(numbers.map(ping)).collect()
}

/// The answers that came by each post.
type Heard = Arc<Mutex<Vec<Vec<u64>>>>;

fn answered(heard: &Heard, body: &[u8], lost: usize) -> Reply {
    let came = batch::decode(&body.to_vec().into(), Some("web-1"), MAX_REQUEST).unwrap();
    let numbers = came.frames.iter().filter_map(|frame| match frame {
        Frame::Pong(pong) => Some(pong.number),
        _ => None,
    });
    let mut heard = heard.lock().unwrap();
    heard.push(numbers.collect());
    if heard.len() <= lost {
        return problem(&Problem::new(Code::Internal, "the control plane fell over"));
    }
    said(vec![hello()])
}

/// The node was pushed so many questions, and posts; of the posts the first `lost` fail. Gives the
/// numbers of the answers that came by each post, up to one without any.
async fn posts(questions: u64, lost: usize) -> Vec<Vec<u64>> {
    let heard = Heard::default();
    let answers = heard.clone();
    let control =
        ScriptedControl::start(&["127.0.0.1"], move |_, body| answered(&answers, &body, lost)).await;
    let temp = tempfile::tempdir().unwrap();
    let node = Node::start(temp.path(), Disk::new(), policy(Mode::Managed, None), Vec::new());
    // Before it goes by its rules it begins its own set anew.
    node.reconciler.rules().wait_for(|rules| rules.number > 0).await.unwrap();
    let mut poster = Poster::new(session(&control), Origin::agent(&"web-1".parse().unwrap(), "l1"));
    let mut pushed = asking(1..=questions);
    for _ in 0..100 {
        let config = LinkConfig::new(Role::Agent, Mode::Managed, "i1", vec![model::Kind::new("Item")]);
        let handler = Arc::new(node.handler(TransportKind::Sse, 1));
        let pushed = std::mem::take(&mut pushed);
        let (posted, failed) = (pushed.is_empty(), heard.lock().unwrap().len() < lost);
        let (ended, progress) = poster.exchange(config, None, &handler, pushed).await;
        assert_eq!(progress == Exchanged::Failed, posted && failed, "{ended:?}");
        let mut heard = heard.lock().unwrap();
        if heard.last().is_some_and(Vec::is_empty) {
            return std::mem::take(&mut *heard);
        }
    }
    panic!("the posts do not come to an end");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_by_the_next_posts_and_after_a_lost_one() {
    let heard = posts(3000, 2).await;
    assert_eq!(heard[0].first(), heard[2].first(), "a lost post is made again");
    let came: Vec<u64> = heard[2..].concat();
    assert_eq!(came, (1..=3000).collect::<Vec<u64>>(), "each once, in their order");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_waits_than_fits_the_bound() {
    let came = posts(50_000, 0).await.concat();
    let kept = came.len() as u64;
    assert!((20_000..40_000).contains(&kept), "{kept}");
    assert_eq!(came, (1..=kept).collect::<Vec<u64>>(), "what is left out is the end");
}
