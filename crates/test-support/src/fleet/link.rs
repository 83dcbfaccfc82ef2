//! A node's end of links: stream requests over each transport, sets in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::memory::MemoryLinkHandler;
use model::replication::{Mode, SyncPolicy};
use model::{Kind, ObjectKey};
use net::client::{Client, Http1};
use streams::open::StreamDialer;
use streams::sse::SseReader;
use streams::task::{Ended, LinkHandle, LinkTransport, commands, run_link};
use streams::{Exchange, FrameReader, LinkCommand, LinkHandler, TransportError};
use sync::FeedCursor;
use sync::frame::{Capabilities, Hello};
use sync::link::{LinkConfig, outlives_exchange};
use sync::{Frame, Role};
use tokio::task::JoinHandle;
use wire::batch::FrameBatch;
use wire::cloudevents::{Origin, PRINCIPAL};
use wire::signature::{self, SignedTarget};

use super::release::{Plan, make};
use super::{Fleet, Member, now, number};

/// The kinds that tests synchronize.
pub const KINDS: [&str; 2] = ["Project", "Item"];

/// A link that is running.
pub struct Driven {
    pub commands: LinkHandle,
    pub ended: JoinHandle<Ended>,
}

impl Driven {
    /// Ends the link in order.
    pub async fn stop(self) -> Ended {
        let _ = self.commands.send(LinkCommand::Shutdown).await;
        self.ended.await.unwrap()
    }

    /// Ends it as a pulled plug does.
    pub async fn cut(self) {
        self.ended.abort();
        let _ = self.ended.await;
    }
}

/// What a release says of synchronization.
pub fn policy(mode: Mode) -> (ObjectKey, Vec<u8>) {
    let policy = SyncPolicy {
        mode,
        kinds: KINDS.iter().map(|kind| (*kind).to_owned()).collect(),
        folder: None,
        mismatch: Default::default(),
        max_delete_percent: 25,
        operations: Vec::new(),
    };
    (ObjectKey::of(Kind::SYNC, "sync"), model::canonical::to_bytes(&policy).unwrap())
}

/// Publishes a release that gives these nodes a mode.
pub async fn publish_mode(fleet: &Fleet, hostnames: &[&str], mode: Mode, seq: u64) {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for hostname in hostnames {
        plan = plan.node(hostname, &[policy(mode)]);
    }
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
}

/// An end of the node's side, as its process sees it.
pub fn config(mode: Mode, instance: &str) -> LinkConfig {
    LinkConfig::new(Role::Agent, mode, instance, KINDS.iter().map(|kind| Kind::new(kind)).collect())
}

/// A handler of a node.
pub fn handler(incarnation: &str) -> Arc<MemoryLinkHandler> {
    Arc::new(MemoryLinkHandler::new(incarnation.parse().unwrap()))
}

/// The key of a test's object.
pub fn item(name: &str) -> ObjectKey {
    format!("Item/web/{name}").parse().unwrap()
}

/// Opens over gRPC.
pub async fn grpc(member: &Member, client: &mut Client) -> Result<LinkTransport, TransportError> {
    dialer(member, &link_name()).grpc(client).await
}

/// Opens over a WebSocket.
pub async fn websocket(member: &Member) -> Result<LinkTransport, TransportError> {
    let http1 = Http1::dial(&member.url, &member.tls).await?;
    dialer(member, &link_name()).websocket(http1).await
}

/// Who opens a link.
pub fn dialer<'a>(member: &'a Member, link: &'a str) -> StreamDialer<'a> {
    StreamDialer { hostname: &member.hostname, version: "0.1.0", link }
}

/// A name that no other link has.
pub fn link_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Drives a link in a task.
pub fn running(config: LinkConfig, handler: &Arc<MemoryLinkHandler>, ends: LinkTransport) -> Driven {
    let (sender, taken) = commands();
    let ended = tokio::spawn(run_link(config, handler.clone(), ends, Vec::new(), handler.head(), taken));
    Driven { commands: sender, ended }
}

/// A running link over gRPC on a connection of its own.
pub async fn linked(member: &Member, mode: Mode, instance: &str, handler: &Arc<MemoryLinkHandler>) -> Driven {
    let ends = grpc(member, &mut member.dial().await).await.expect("the link is opened");
    running(config(mode, instance), handler, ends)
}

/// A hello of a node, by hand.
pub fn hello(mode: Mode, instance: &str) -> Hello {
    Hello {
        versions: sync::frame::VERSIONS,
        capabilities: Capabilities::ALL,
        role: Role::Agent,
        mode,
        instance: instance.to_owned(),
        head: FeedCursor::at("n1".parse().unwrap(), 9),
        have: None,
        after: None,
    }
}

/// Server-sent events.
pub struct Sse {
    reader: SseReader,
    /// What came and was not asked for yet.
    heard: Vec<Frame>,
}

impl Sse {
    /// Opens them.
    pub async fn open(member: &Member, instance: &str) -> Result<Sse, TransportError> {
        let mut client = member.dial().await;
        let sign = |target: SignedTarget<'_>| {
            signature::sign(target, &member.fleet, &member.id, &member.key, now(), number())
        };
        let reader = dialer(member, &link_name()).sse(&mut client, instance, None, sign).await?;
        Ok(Sse { reader, heard: Vec::new() })
    }

    /// Reads until such a frame came.
    pub async fn hears(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let heard = async {
            loop {
                if let Some(at) = self.heard.iter().position(&wanted) {
                    return self.heard.remove(at);
                }
                self.heard.extend(self.reader.next().await.unwrap().expect("the link is open"));
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.expect("the frame comes")
    }
}

/// Posts frames; gives those of the answer.
pub async fn post(member: &Member, frames: Vec<Frame>) -> Result<FrameBatch, Box<wire::Problem>> {
    let mut origin = Origin::agent(&member.hostname, &link_name());
    let body = wire::batch::encode(&mut origin, &FrameBatch { frames, more: false }).unwrap();
    let response = member.send(member.signed(http::Method::POST, wire::route::EVENTS, body)).await;
    if response.status() != http::StatusCode::OK {
        return Err(Box::new(wire::body::decode(response.body()).unwrap()));
    }
    Ok(wire::batch::decode(response.body(), Some(PRINCIPAL), usize::MAX).unwrap())
}

/// Polls as an agent does: one exchange, from what is durable on both sides.
pub struct Poller {
    config: LinkConfig,
    handler: Arc<MemoryLinkHandler>,
    after: Option<FeedCursor>,
    left: Vec<Frame>,
}

impl Poller {
    pub fn new(config: LinkConfig, handler: &Arc<MemoryLinkHandler>) -> Poller {
        Poller { config, handler: handler.clone(), after: None, left: Vec::new() }
    }

    /// One request and its answer; whether there is more.
    pub async fn poll(&mut self, member: &Member) -> Result<bool, Box<wire::Problem>> {
        let mut exchange = Exchange::open(self.config.clone(), self.after.clone(), self.handler.clone());
        let mut frames = exchange.step(Vec::new()).await.frames;
        frames.splice(1..1, self.left.drain(..));
        let answer = post(member, frames).await;
        let mut more = false;
        if let Ok(answer) = &answer {
            let said = exchange.step(answer.frames.clone()).await.frames;
            more = answer.more || said.iter().any(|frame| matches!(frame, Frame::Checkpoint(_)));
            self.left = said.into_iter().filter(outlives_exchange).collect();
        }
        let link = exchange.link();
        let (settled, after) = self
            .handler
            .with_sets(|feed, replica| (link.is_settled(feed, replica), link.resumes_after(feed)));
        let brought = link.counters().received + link.counters().resync_frames;
        self.after = after;
        exchange.end().await;
        answer.map(|_| more || !settled || brought > 0 || !self.left.is_empty())
    }

    /// Polls until there is no more to say.
    pub async fn all(&mut self, member: &Member) -> usize {
        for polls in 1..100_000 {
            if !self.poll(member).await.expect("it is answered") {
                return polls;
            }
        }
        panic!("the polls do not come to an end");
    }
}
