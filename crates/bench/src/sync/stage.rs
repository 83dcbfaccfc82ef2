//! A control plane over a filled directory, and what its feeds hold before it starts.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::replication::Mode;
use model::{Digest, ObjectKey, Stub};
use net::ServerUrl;
use server::Credentials;
use store::Store;
use sync::{Content, Feed, Write};
use tempfile::TempDir;

use crate::checkin::url_of;
use crate::fleet::{self, BenchNode, ITEM, now};
use crate::process::{self, ANY_PORT, Server};
use crate::{BenchError, wait_for};
use cli::operator::Operator;

/// Changes in one write to the store.
const CHANGES: usize = 5_000;
/// Writes under way at once.
const WRITES: usize = 200;
/// How long anything that is waited for may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// A fleet, and its control plane while one runs.
pub(super) struct Stage {
    dir: TempDir,
    pub(super) nodes: Vec<BenchNode>,
    pub(super) modes: Vec<Mode>,
    feeds: HashMap<usize, Feed>,
    server: Option<Server>,
}

/// CPU time of both sides so far.
#[derive(Clone, Copy)]
pub(super) struct Cpu {
    pub(super) server: Duration,
    pub(super) here: Duration,
}

impl Cpu {
    pub(super) fn since(self, before: Cpu) -> Cpu {
        Cpu { server: self.server.saturating_sub(before.server), here: self.here.saturating_sub(before.here) }
    }
}

impl Stage {
    /// Fills a directory: nodes with these modes, one after the other.
    pub(super) async fn fill(count: usize, modes: &[Mode]) -> Result<Stage, BenchError> {
        let dir = tempfile::tempdir()?;
        let nodes = fleet::fill_synced(dir.path(), count, count, modes).await?;
        Ok(Stage { dir, nodes, modes: modes.to_vec(), feeds: HashMap::new(), server: None })
    }

    pub(super) fn mode(&self, node: usize) -> Mode {
        self.modes[node % self.modes.len()]
    }

    /// Puts objects into the feeds that the control plane authors for nodes. It must not run.
    pub(super) async fn put(
        &mut self,
        nodes: impl IntoIterator<Item = usize>,
        objects: usize,
        size: usize,
        version: u64,
    ) -> Result<(), BenchError> {
        let store = Arc::new(Store::open(self.dir.path().join("muster.db"))?);
        let mut tasks = tokio::task::JoinSet::new();
        for node in nodes {
            let id = self.nodes[node].id.clone();
            for from in (0..objects).step_by(CHANGES) {
                let write = self.write(node, from..objects.min(from + CHANGES), size, version)?;
                let (id, store) = (id.clone(), store.clone());
                if objects > CHANGES {
                    // One after the other: the writes of a feed have an order.
                    store.sync_write(&id, write, now()).await?;
                } else {
                    tasks.spawn(async move { store.sync_write(&id, write, now()).await });
                }
            }
            wait_for(&mut tasks, WRITES).await?;
        }
        wait_for(&mut tasks, 0).await.map(drop)
    }

    fn write(
        &mut self,
        node: usize,
        objects: std::ops::Range<usize>,
        size: usize,
        version: u64,
    ) -> Result<Write, BenchError> {
        let mut write = Write::default();
        let incarnation: model::Incarnation = format!("s{node}").parse()?;
        let feed = self.feeds.entry(node).or_insert_with(|| {
            write.begin = Some(incarnation.clone());
            Feed::new(incarnation)
        });
        for number in objects {
            let bytes = content(number, size, version);
            let stub = Stub { uid: uid(number), digest: Digest::of(&bytes), size: bytes.len() as u64 };
            if let Ok(Some(change)) = feed.planner().put(&key(number)?, &stub) {
                feed.commit(change.clone())?;
                write.feed.push((change, Some(Content { bytes, trace: None, at: now().0 })));
            }
        }
        Ok(write)
    }

    /// Starts the control plane; gives where nodes call.
    pub(super) fn start(&mut self) -> Result<ServerUrl, BenchError> {
        self.server = Some(Server::control_plane(self.dir.path(), ANY_PORT)?);
        url_of(self.dir.path())
    }

    /// Starts it anew, where nodes called it before.
    pub(super) fn start_at(&mut self, url: &ServerUrl) -> Result<(), BenchError> {
        self.server = Some(Server::control_plane(self.dir.path(), &url.authority())?);
        Ok(())
    }

    /// Ends it as a power cut does.
    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    pub(super) fn server(&self) -> Result<&Server, BenchError> {
        self.server.as_ref().ok_or_else(|| "no control plane runs".into())
    }

    pub(super) fn cpu(&self) -> Result<Cpu, BenchError> {
        Ok(Cpu { server: self.server()?.cpu()?, here: process::cpu_of(std::process::id())? })
    }

    pub(super) async fn operator(&self) -> Result<Operator, BenchError> {
        let credentials: Credentials = server::posture::read_json(&self.path().join("operator.json"))?;
        Ok(Operator::dial(&credentials).await?)
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The key of an object, by number.
pub(super) fn key(number: usize) -> Result<ObjectKey, BenchError> {
    Ok(format!("{ITEM}/bench/item-{number:06}").parse()?)
}

/// Its uid.
pub(super) fn uid(number: usize) -> Arc<str> {
    format!("00000000-0000-4000-8000-{number:012}").into()
}

/// A manifest of about this many bytes, in canonical form. It is text of little repetition,
/// as most manifests are once their field names are known.
pub(super) fn content(number: usize, size: usize, version: u64) -> Bytes {
    let head = format!(
        r#"{{"apiVersion":"bench/v1","kind":"{ITEM}","metadata":{{"name":"item-{number:06}","namespace":"bench"}},"spec":{{"text":""#
    );
    let tail = format!(r#"","version":{version}}}}}"#);
    let mut text = head.into_bytes();
    let until = size.saturating_sub(tail.len()).max(text.len());
    let mut state = (number as u64) << 20 ^ version;
    while text.len() < until {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 27;
        let room = (until - text.len()).min(8);
        text.extend(z.to_le_bytes()[..room].iter().map(|byte| b'a' + byte % 26));
    }
    text.extend_from_slice(tail.as_bytes());
    text.into()
}

/// Waits until something is so.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) -> Result<Duration, BenchError> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > PATIENCE {
            return Err(format!("not within {} s: {what}", PATIENCE.as_secs()).into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(began.elapsed())
}

/// Waits until so many are counted, or the count stands still for so long; gives the count, and when it rose last.
pub(super) async fn settled(
    what: &str,
    all: u64,
    quiet: Duration,
    count: impl Fn() -> u64,
) -> Result<(u64, Instant), BenchError> {
    let progress = Cell::new((count(), Instant::now()));
    let is_over = || {
        let counted = count();
        if counted > progress.get().0 {
            progress.set((counted, Instant::now()));
        }
        counted >= all || progress.get().1.elapsed() > quiet
    };
    until(what, is_over).await?;
    Ok(progress.get())
}

/// The value that all but so large a share are below.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get((sorted.len() as f64 * share) as usize).or(sorted.last()).copied().unwrap_or_default()
}

/// Microseconds of a time for each of so many.
pub(super) fn micros_each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}
