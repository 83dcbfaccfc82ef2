//! What an operator confirms at the control plane counts at the node (SYN-6): orphans beyond
//! the share wait there, the control plane sees that they do, and its word ends it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use async_trait::async_trait;
use model::{Kind, ObjectKey};
use streams::task::{LinkHandle, LinkTransport, commands, run_link};
use streams::{FrameReader, FrameWriter, LinkCommand, TransportError};
use sync::link::LinkConfig;
use sync::{Frame, Mode, Role};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::eventually;
use tokio::sync::mpsc;

/// One way of a pipe.
struct Pipe<T>(T);

#[async_trait]
impl FrameReader for Pipe<mpsc::Receiver<Vec<Frame>>> {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        Ok(self.0.recv().await)
    }
}

#[async_trait]
impl FrameWriter for Pipe<mpsc::Sender<Vec<Frame>>> {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        self.0.send(frames).await.map_err(|_| TransportError::Broke("closed".to_owned()))
    }

    async fn finish(&mut self) {}
}

fn start(role: Role, handler: &Arc<MemoryLinkHandler>, ends: LinkTransport) -> LinkHandle {
    let (sender, taken) = commands();
    let config = LinkConfig::new(role, Mode::Managed, "one", vec![Kind::new("Item")]);
    tokio::spawn(run_link(config, handler.clone(), ends, Vec::new(), handler.head(), taken));
    sender
}

/// Links two handlers; gives the way to the principal's link.
fn link(principal: &Arc<MemoryLinkHandler>, agent: &Arc<MemoryLinkHandler>) -> (LinkHandle, LinkHandle) {
    let (down, from_principal) = mpsc::channel(8);
    let (up, from_agent) = mpsc::channel(8);
    let here = LinkTransport { reader: Box::new(Pipe(from_agent)), writer: Box::new(Pipe(down)) };
    let there = LinkTransport { reader: Box::new(Pipe(from_principal)), writer: Box::new(Pipe(up)) };
    (start(Role::Principal, principal, here), start(Role::Agent, agent, there))
}

fn put(handler: &MemoryLinkHandler, count: usize) {
    for n in 0..count {
        let key: ObjectKey = format!("Item/web/i{n}").parse().unwrap();
        handler.put(key, &format!("u{n}"), format!("{{\"n\":{n}}}").into(), 0);
    }
}

#[tokio::test]
async fn orphans_wait_for_a_word_and_go_with_it() {
    let principal = Arc::new(MemoryLinkHandler::new("p1".parse().unwrap()));
    let agent = Arc::new(MemoryLinkHandler::new("a1".parse().unwrap()));
    put(&principal, 20);
    let (to_principal, to_agent) = link(&principal, &agent);
    eventually("all came", || agent.their_count() == 20).await;
    let _ = to_principal.send(LinkCommand::Shutdown).await;
    let _ = to_agent.send(LinkCommand::Shutdown).await;
    eventually("the links are over", || to_principal.is_over() && to_agent.is_over()).await;

    // The control plane is another one, which knows of four.
    let restored = Arc::new(MemoryLinkHandler::new("p2".parse().unwrap()));
    put(&restored, 4);
    let (to_restored, _to_agent) = link(&restored, &agent);
    eventually("the control plane knows that orphans wait", || restored.refused_there() == 16).await;
    assert_eq!(agent.their_count(), 20, "nothing is deleted before");
    assert!(to_restored.send(LinkCommand::Approve).await);
    eventually("they are gone", || agent.their_count() == 4).await;
    eventually("and the control plane knows", || restored.refused_there() == 0).await;
}
