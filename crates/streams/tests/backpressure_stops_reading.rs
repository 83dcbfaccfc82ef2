//! SYN-4, SCL-3: a peer that asks without reading, or checks in without end
//! costs a bounded amount: what waits to be sent holds back what is heard and loaded. What the own feed
//! changes waits for nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use model::{Kind, ObjectKey, SectionKey, Stub};
use streams::task::{LinkHandle, LinkTransport, commands, run_link};
use streams::{Exchange, FrameReader, FrameWriter, LinkCommand, LinkHandler, LoadError, TransportError};
use sync::frame::{Capabilities, Event, GoAway, Hello, Interop, InventoryItem, Op};
use sync::link::{ApplyBatch, ItemOutcome, Link, LinkConfig, NotDurable, Note};
use sync::{Feed, Frame, LoadedChange, Mode, Replica, Role};
use test_support::memory::MemoryLinkHandler;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

/// Counts what is asked of it; check-ins end when they are let.
struct Counting {
    under: MemoryLinkHandler,
    loads: AtomicUsize,
    received: AtomicUsize,
    let_go: Semaphore,
    /// The load: how long each apply takes, in the runtime's paused time.
    slow_apply: Duration,
    /// Comes into the feed when the other side says hello.
    at_hello: Mutex<Option<ObjectKey>>,
}

#[async_trait]
impl LinkHandler for Counting {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        self.under.with_sets(work)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<LoadedChange>>, LoadError> {
        self.loads.fetch_add(wants.len(), Ordering::SeqCst);
        self.under.load(wants).await
    }

    async fn apply(&self, batch: Arc<ApplyBatch>) -> Result<Vec<ItemOutcome>, NotDurable> {
        tokio::time::sleep(self.slow_apply).await;
        self.under.apply(batch).await
    }

    async fn received(&self, frame: Frame) -> Option<Frame> {
        self.received.fetch_add(1, Ordering::SeqCst);
        self.let_go.acquire().await.unwrap().forget();
        LinkHandler::received(&self.under, frame).await
    }

    fn note(&self, note: &Note) {
        if let (Note::Met(_), Some(key)) = (note, self.at_hello.lock().unwrap().take()) {
            self.under.put(key, "u", Bytes::from_static(b"new"), 1);
        }
    }

    fn progress(&self, link: &Link) {
        self.under.progress(link);
    }

    async fn reincarnate(&self) -> Result<(), Duration> {
        Ok(())
    }
}

struct Pipe(mpsc::Receiver<Vec<Frame>>);

#[async_trait]
impl FrameReader for Pipe {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        Ok(self.0.recv().await)
    }
}

/// Takes nothing: the peer does not read.
struct Stuck;

#[async_trait]
impl FrameWriter for Stuck {
    async fn send(&mut self, _: Vec<Frame>) -> Result<(), TransportError> {
        std::future::pending().await
    }

    async fn finish(&mut self) {}
}

fn hello(instance: &str) -> Frame {
    Frame::Hello(Box::new(Hello {
        versions: sync::frame::VERSIONS,
        capabilities: Capabilities { trie_resync: false, ..Capabilities::ALL },
        role: Role::Agent,
        mode: Mode::Managed,
        instance: instance.to_owned(),
        head: sync::FeedCursor::at("a".parse().unwrap(), 0),
        have: None,
        after: None,
    }))
}

fn handler() -> Arc<Counting> {
    let under = MemoryLinkHandler::new("p".parse().unwrap());
    let (loads, received, let_go) = (AtomicUsize::new(0), AtomicUsize::new(0), Semaphore::new(0));
    let (slow_apply, at_hello) = (Duration::ZERO, Mutex::default());
    Arc::new(Counting { under, loads, received, let_go, slow_apply, at_hello })
}

fn config() -> LinkConfig {
    LinkConfig::new(Role::Principal, Mode::Managed, "p", vec![Kind::new("Item")])
}

fn start() -> (Arc<Counting>, mpsc::Sender<Vec<Frame>>, LinkHandle) {
    start_with(handler())
}

fn start_with(handler: Arc<Counting>) -> (Arc<Counting>, mpsc::Sender<Vec<Frame>>, LinkHandle) {
    let (frames, taken) = mpsc::channel(1);
    let ends = LinkTransport { reader: Box::new(Pipe(taken)), writer: Box::new(Stuck) };
    let (to, told) = commands();
    let watch = handler.under.head();
    tokio::spawn(run_link(config(), handler.clone(), ends, vec![hello("a")], watch, told));
    (handler, frames, to)
}

/// Everything that can happen has happened.
async fn settled() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

fn ask_big() -> Frame {
    let resource = InventoryItem {
        name: "big".to_owned(),
        namespace: "web".to_owned(),
        uid: String::new(),
        kind: "Item".to_owned(),
        checksum: None,
    };
    Frame::Interop(Box::new(Interop::RequestUpdate(resource)))
}

fn check_in() -> Frame {
    Frame::CheckIn(Box::new(model::exchange::CheckIn {
        held: None,
        incarnation: "a".parse().unwrap(),
        facts: Vec::new(),
        run: None,
        unmade_run: None,
        freshness: None,
        running_since: None,
        traits: None,
        full: false,
        run_confirmed: None,
        tagged_run_confirmed: None,
        seen: None,
        header: None,
        acked: None,
        trust: None,
        renewal_failure: None,
        unadopted: None,
        instance: None,
        capabilities: None,
    }))
}

#[tokio::test(start_paused = true)]
async fn answers_are_loaded_only_while_little_waits() {
    let (handler, frames, _commands) = start();
    handler.under.put("Item/web/big".parse().unwrap(), "u", Bytes::from(vec![b'x'; 1024 * 1024]), 0);
    for _ in 0..10 {
        let asked = frames.send_timeout(vec![ask_big(); 1000], Duration::from_millis(10)).await;
        settled().await;
        if asked.is_err() {
            break;
        }
    }
    let loads = handler.loads.load(Ordering::SeqCst);
    assert!(loads >= 24, "some are loaded: {loads}");
    assert!(loads < 40, "{loads} contents of a MiB each for a peer that reads none");
}

#[tokio::test(start_paused = true)]
async fn questions_are_heard_only_while_few_answers_wait() {
    let (_shore, frames, _commands) = start();
    // What is not there is answered without a look at any content.
    let mut heard = 0;
    while frames.send_timeout(vec![ask_big(); 1000], Duration::from_millis(10)).await.is_ok() {
        heard += 1000;
        settled().await;
        assert!(heard <= 120_000, "{heard} questions of a peer that reads no answer");
    }
    assert!(heard >= 50_000, "{heard}");
}

#[tokio::test(start_paused = true)]
async fn check_ins_are_worked_on_two_at_a_time() {
    let (handler, frames, _commands) = start();
    frames.send(vec![check_in(); 100]).await.unwrap();
    settled().await;
    assert_eq!(handler.received.load(Ordering::SeqCst), 2);
    handler.let_go.add_permits(5);
    settled().await;
    assert_eq!(handler.received.load(Ordering::SeqCst), 7, "one more for each that ends");
}

#[tokio::test(start_paused = true)]
async fn an_exchange_ends_with_what_it_brought() {
    let handler = handler();
    for n in 0..40 {
        let big = Bytes::from(vec![b'x'; 64 * 1024]);
        handler.under.put(format!("Item/web/i{n}").parse().unwrap(), &format!("u{n}"), big, 0);
    }
    let mut frames = vec![hello("a")];
    frames.extend(vec![check_in(); 10]);
    let mut exchange = Exchange::open(config(), None, handler.clone());
    let waiting = tokio::spawn(async move {
        let said = exchange.step(frames).await;
        (said, exchange.end().await)
    });
    settled().await;
    assert_eq!(handler.received.load(Ordering::SeqCst), 2, "two at a time");
    handler.let_go.add_permits(100);
    let (said, _) = waiting.await.unwrap();
    assert_eq!(handler.received.load(Ordering::SeqCst), 10);
    let events = said.frames.iter().filter(|frame| matches!(frame, Frame::Event(_))).count();
    assert!((4..=9).contains(&events) && said.more, "{events} events of 64 KiB fill an answer");
    let loads = handler.loads.load(Ordering::SeqCst);
    assert!(loads <= 9, "{loads} contents were loaded for it");
}

/// A batch that takes long is worked on to its end, but the link does not stay open for it.
#[tokio::test(start_paused = true)]
async fn a_link_that_is_to_end_does_not_wait_for_a_batch() {
    let mut slow = handler();
    Arc::get_mut(&mut slow).unwrap().slow_apply = Duration::from_secs(40);
    let (slow, frames, commands) = start_with(slow);
    let content = Bytes::from_static(b"x");
    let stub = Stub { uid: "u".into(), ..Stub::of(&content) };
    let (op, upto) = (Op::Put { stub, content, created: true }, sync::Position::at(1));
    let key = "Item:status/web/one".parse().unwrap();
    let event = Event { seq: 1, rev: 1, upto, key, op, trace: None, at: 1, proof: None };
    frames.send(vec![Frame::Event(Box::new(event))]).await.unwrap();
    settled().await;
    tokio::time::advance(Duration::from_secs(12)).await;
    let (code, message) = ("replaced".to_owned(), String::new());
    commands.try_send(LinkCommand::GoAway(Box::new(GoAway { code, message, retry_after: None })));
    let asked = Instant::now();
    frames.closed().await;
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    commands_over(&commands).await;
    assert_eq!(slow.under.their_count(), 1, "what came is applied");
}

/// Until the link is over.
async fn commands_over(commands: &LinkHandle) {
    while !commands.is_over() {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

/// The link looked at its feed before, and nothing else wakes it.
#[tokio::test]
async fn a_change_at_the_hello_is_not_waited_with() {
    let handler = handler();
    let section = SectionKey { kind: Kind::new("Item"), namespace: "web".into() };
    *handler.at_hello.lock().unwrap() = Some(ObjectKey { section, name: "new".into() });
    let (handler, _frames, _to) = start_with(handler);
    settled().await;
    assert_eq!(handler.loads.load(Ordering::SeqCst), 1);
}
