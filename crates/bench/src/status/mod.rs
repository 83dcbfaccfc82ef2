//! `muster bench status`: a large fleet is looked at while it checks in: the status, pages of its nodes and of how
//! their synchronization stands, selectors by label and by traits; and what a whole listing takes.

mod fill;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use server::Credentials;
use server::api::objects::SYNC;
use server::api::operation::{Empty, Operation};
use server::api::{Matching, NODES, STATUS};
use tokio::task::JoinSet;

use crate::checkin::url_of;
use crate::fleet::BenchNode;
use crate::load::Caller;
use crate::process::{ANY_PORT, Server, THIS_PROGRAM, memory_of};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, During, wait_for};
use cli::operator::Operator;

/// Each question is answered within this, but for one in a hundred, in milliseconds.
const QUESTION_MS: f64 = 200.0;
/// Check-ins meanwhile, but for one in a hundred, in milliseconds.
const CHECK_IN_MS: f64 = 1_000.0;
/// What a listing of all nodes takes at its client beside one of a page.
const LISTING_RATIO: f64 = 1.5;
/// What the control plane takes more while all nodes are listed, in MiB.
const SERVER_MIB: f64 = 64.0;
/// Nodes that call meanwhile, each over a connection of its own.
const CALLERS: usize = 32;
/// Each of them so often: all together as often as 100,000 nodes that call every five minutes.
const CALL_EVERY: Duration = Duration::from_millis(96);

pub(super) async fn run(count: usize, time: Duration, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let began = Instant::now();
    let nodes = fill::fill(dir.path(), count, CALLERS.min(count))
        .await
        .during(|| "cannot fill a fleet".to_owned())?;
    let filled = began.elapsed();
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    let credentials: Credentials = server::posture::read_json(&dir.path().join("operator.json"))?;
    let operator = Operator::dial(&credentials).await?;
    let began = Instant::now();
    operator.call(&STATUS, Empty {}).await?;
    let first = began.elapsed();
    let undisturbed = calling(dir.path(), &nodes, async || {
        tokio::time::sleep(time).await;
        Ok(())
    })
    .await?;
    let mut questions = Questions::new(count);
    let beside = calling(dir.path(), &nodes, async || questions.ask(&operator, time).await).await?;
    let title = format!("{count} nodes with sets of their own, looked at while they check in");
    figures.table("looks", &title, questions.rows())?;
    figures.table(
        "check-ins",
        "check-ins, as many as 100,000 nodes make that call every five minutes",
        vec![
            Row::at_most("p99 meanwhile", beside.p99(), CHECK_IN_MS, Unit::Millis),
            Row::plain("p99 undisturbed", undisturbed.p99(), Unit::Millis),
            Row::plain("of that", beside.p99() / undisturbed.p99().max(1e-9), Unit::Times),
            Row::plain("check-ins a second", beside.0.len() as f64 / time.as_secs_f64(), Unit::PerSecond),
        ],
    )?;
    let mut rows = listing(dir.path(), &server)?;
    rows.push(Row::plain("memory of the control plane", server.memory()? as f64 / 1048576.0, Unit::Mib));
    let first = first.as_secs_f64() * 1e3;
    rows.push(Row::at_most("the first status after a start", first, QUESTION_MS, Unit::Millis));
    rows.push(Row::plain("filling the fleet", filled.as_secs_f64(), Unit::Secs));
    figures.table("listing", "a listing of all nodes", rows)
}

/// How long something took each time, in milliseconds, in order.
struct Times(Vec<f64>);

impl Times {
    fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    fn quantile(&self, share: f64) -> f64 {
        let at = (self.0.len() as f64 * share) as usize;
        self.0.get(at).or(self.0.last()).copied().unwrap_or_default()
    }

    fn p99(&self) -> f64 {
        self.quantile(0.99)
    }
}

/// The questions, in turn, and how long their answers took.
struct Questions {
    count: usize,
    turn: usize,
    times: [Vec<f64>; NAMES.len()],
}

/// Names of a question's p99 and median.
const NAMES: [(&str, &str); 6] = [
    ("status, p99", "status, median"),
    ("a page of node list, p99", "a page of node list, median"),
    ("the first page of object status, p99", "the first page of object status, median"),
    ("a page of object status, p99", "a page of object status, median"),
    ("a label selector, p99", "a label selector, median"),
    ("a page of where:, p99", "a page of where:, median"),
];

impl Questions {
    fn new(count: usize) -> Questions {
        Questions { count, turn: 0, times: Default::default() }
    }

    async fn ask(&mut self, operator: &Operator, time: Duration) -> Result<(), BenchError> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.turn += 1;
            // Somewhere in the fleet, elsewhere each time.
            let from = format!("node-{:06}", self.turn * 7_919 % self.count.max(1));
            let page = |selector: Option<String>| Matching {
                selector,
                from: Some(from.clone()),
                ..Matching::default()
            };
            let label = format!("rack=r{}", self.turn % fill::RACKS);
            let observed = format!("where:traits.os.build == {}", self.turn % fill::BUILDS);
            timed(&mut self.times[0], operator, &STATUS, Empty {}).await?;
            timed(&mut self.times[1], operator, &NODES, page(None)).await?;
            timed(&mut self.times[2], operator, &SYNC, Matching::default()).await?;
            timed(&mut self.times[3], operator, &SYNC, page(None)).await?;
            timed(&mut self.times[4], operator, &NODES, Matching::from(Some(label.as_str()))).await?;
            timed(&mut self.times[5], operator, &NODES, page(Some(observed))).await?;
        }
        Ok(())
    }

    fn rows(self) -> Vec<Row> {
        let all = NAMES.into_iter().zip(self.times.map(Times::of)).flat_map(|((p99, median), times)| {
            [
                Row::at_most(p99, times.p99(), QUESTION_MS, Unit::Millis),
                Row::plain(median, times.quantile(0.5), Unit::Millis),
            ]
        });
        all.collect()
    }
}

async fn timed<Q: Serialize, A: DeserializeOwned>(
    times: &mut Vec<f64>,
    operator: &Operator,
    operation: &Operation<Q, A>,
    request: Q,
) -> Result<(), BenchError> {
    let began = Instant::now();
    operator.call(operation, request).await.during(|| format!("{} failed", operation.path))?;
    times.push(began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Has nodes check in at their pace while something is done.
async fn calling(
    dir: &Path,
    nodes: &[BenchNode],
    work: impl AsyncFnOnce() -> Result<(), BenchError>,
) -> Result<Times, BenchError> {
    let (url, stop) = (url_of(dir)?, Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for node in nodes {
        let mut caller = Caller::new(node.clone(), &url)?;
        let (mut client, stop) = (caller.dial().await?, stop.clone());
        tasks.spawn(async move {
            let (mut times, mut beat) = (Vec::new(), tokio::time::interval(CALL_EVERY));
            while !stop.load(Ordering::Relaxed) {
                // From when it was due: one that waits for the one before it is late too.
                let due = beat.tick().await;
                if client.is_closed() {
                    client = caller.dial().await?;
                }
                caller.check_in(&mut client).await?;
                times.push(due.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, BenchError>(times)
        });
    }
    let done = work().await;
    stop.store(true, Ordering::Relaxed);
    let times = wait_for(&mut tasks, 0).await.during(|| "a check-in failed".to_owned())?;
    done?;
    Ok(Times::of(times.into_iter().flatten().collect()))
}

/// Lists a page and all nodes with the command itself.
fn listing(dir: &Path, server: &Server) -> Result<Vec<Row>, BenchError> {
    let (page, _) = list(dir, &["node-0000**"])?;
    server.forget_peak()?;
    let (before, began) = (server.memory()?, Instant::now());
    let (all, bytes) = list(dir, &[])?;
    let took = began.elapsed();
    let more = server.peak()?.saturating_sub(before);
    Ok(vec![
        Row::at_most("memory of all beside a page, at the client", all / page, LISTING_RATIO, Unit::Times),
        Row::at_most(
            "memory at the control plane, more at the peak",
            more as f64 / 1048576.0,
            SERVER_MIB,
            Unit::Mib,
        ),
        Row::plain("memory of the client", all, Unit::Mib),
        Row::plain("time", took.as_secs_f64(), Unit::Secs),
        Row::plain("bytes of JSON", bytes as f64, Unit::Bytes),
    ])
}

/// Runs `muster node list`; gives the most memory that it took, in MiB, and how much it wrote.
fn list(dir: &Path, patterns: &[&str]) -> Result<(f64, usize), BenchError> {
    let what = || format!("cannot run muster node list {}", patterns.join(" "));
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["--json", "node", "list", "--operator"]).arg(dir.join("operator.json")).args(patterns);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().during(what)?;
    let mut out = child.stdout.take().ok_or("no output")?;
    let (mut buffer, mut bytes, mut peak) = (vec![0; 64 * 1024], 0, 0);
    loop {
        // It cannot end before what it wrote is read.
        peak = memory_of(&child.id().to_string(), "VmHWM:").unwrap_or(peak);
        match out.read(&mut buffer).during(what)? {
            0 => break,
            count => bytes += count,
        }
    }
    let ended = child.wait().during(what)?;
    if !ended.success() {
        return Err(format!("{}: {ended}", what()).into());
    }
    Ok((peak as f64 / 1048576.0, bytes))
}
