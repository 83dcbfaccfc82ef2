//! SYN-14: a peer that takes nothing any more may have said why before it went. Its last words
//! count, and are not waited for long.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::Kind;
use streams::task::{Ended, LinkTransport, commands, run_link};
use streams::{FrameReader, FrameWriter, TransportError};
use sync::frame::GoAway;
use sync::link::LinkConfig;
use sync::{Frame, Mode, Role};
use test_support::memory::MemoryLinkHandler;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

struct Pipe(mpsc::Receiver<Vec<Frame>>);

#[async_trait]
impl FrameReader for Pipe {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        Ok(self.0.recv().await)
    }
}

/// Takes nothing, and tells that it was tried.
struct Broken(Arc<Notify>);

#[async_trait]
impl FrameWriter for Broken {
    async fn send(&mut self, _: Vec<Frame>) -> Result<(), TransportError> {
        self.0.notify_one();
        Err(TransportError::Broke("reset".to_owned()))
    }

    async fn finish(&mut self) {}
}

fn start(heard: mpsc::Receiver<Vec<Frame>>) -> (JoinHandle<Ended>, Arc<Notify>) {
    let (handler, tried) = (Arc::new(MemoryLinkHandler::new("n1".parse().unwrap())), Arc::new(Notify::new()));
    let config = LinkConfig::new(Role::Agent, Mode::Managed, "one", vec![Kind::new("Item")]);
    let ends = LinkTransport { reader: Box::new(Pipe(heard)), writer: Box::new(Broken(tried.clone())) };
    let (watch, (_, taken)) = (handler.head(), commands());
    (tokio::spawn(run_link(config, handler, ends, Vec::new(), watch, taken)), tried)
}

#[tokio::test(start_paused = true)]
async fn why_it_went_is_known() {
    let (said, heard) = mpsc::channel(1);
    let (ended, tried) = start(heard);
    tried.notified().await;
    let message = "the node was removed".to_owned();
    let away = GoAway { code: "removed".to_owned(), message, retry_after: Some(300) };
    said.send(vec![Frame::GoAway(away)]).await.unwrap();
    let ended = ended.await.unwrap();
    assert_eq!(ended.message, "removed: the node was removed");
    assert!(ended.error.is_none(), "the broken connection explains nothing: {ended:?}");
    assert!(ended.retry_after.is_some_and(|wait| wait > 0), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_not_waited_for() {
    let began = Instant::now();
    let (_said, heard) = mpsc::channel(1);
    let (ended, _) = start(heard);
    assert_eq!(ended.await.unwrap().code, "lost");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}
