//! `muster bench checkin`: a real control plane beside its floor.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use net::ServerUrl;
use net::client::Client;
use tokio::task::JoinSet;

use crate::fleet::{self, BenchNode};
use crate::load::{self, Caller, Measured};
use crate::process::{ANY_PORT, Server};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, CONNECTIONS, Load, floor, wait_for};

/// An unchanged check-in may cost this much of the floor's CPU.
const CPU_RATIO: f64 = 1.5;
/// Bytes on the wire for an unchanged check-in over a kept connection.
const KEPT_BYTES: f64 = 1024.0;
/// Bytes on the wire with the handshake.
const COLD_BYTES: f64 = 4.5 * 1024.0;
/// Server memory for a node that is not connected, in KiB.
const ABSENT_KIB: f64 = 4.0;
/// Server memory for a node that is connected and idle, in KiB.
const IDLE_KIB: f64 = 40.0;
/// Handshakes at once while connections are opened.
const DIALS: usize = 32;

pub(super) async fn floor_alone(load: &Load, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let nodes = fleet::fill(dir.path(), 1, 1).await?;
    let (kept, cold) = floor_figures(dir.path(), &nodes[0], load).await?;
    figures.table("floor, kept", "floor, kept connections", speed(&kept))?;
    figures.table("floor, handshake", "floor, a full mTLS handshake each", speed(&cold))
}

/// Server CPU of a check-in on a kept connection of the floor, beside which other costs are judged.
pub(super) async fn floor_cpu(time: Duration) -> Result<Duration, BenchError> {
    let dir = tempfile::tempdir()?;
    let nodes = fleet::fill(dir.path(), 1, 1).await?;
    let (server, url) = start_floor(dir.path(), &nodes[0])?;
    let nodes = vec![nodes[0].clone(); CONNECTIONS];
    Ok(load::measure(&server, &url, &nodes, time, true).await?.cpu)
}

/// Starts the floor; all of its callers use one key, as it knows no nodes.
fn start_floor(dir: &Path, node: &BenchNode) -> Result<(Server, ServerUrl), BenchError> {
    std::fs::write(dir.join(floor::KEY_FILE), node.key.public().to_string())?;
    let server = Server::start(&["bench", "floor-server", &dir.to_string_lossy()], Stdio::inherit())?;
    let url: ServerUrl = server.first_line.parse()?;
    Ok((server, url))
}

async fn floor_figures(
    dir: &Path,
    node: &BenchNode,
    load: &Load,
) -> Result<(Measured, Measured), BenchError> {
    let (server, url) = start_floor(dir, node)?;
    let nodes = vec![node.clone(); load.connections];
    let kept = load::measure(&server, &url, &nodes, load.time(), true).await?;
    let cold = load::measure(&server, &url, &nodes, load.time(), false).await?;
    Ok((kept, cold))
}

pub(super) async fn run(load: &Load, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let near = load.idle().max(load.connections).min(load.nodes());
    let nodes = fleet::fill(dir.path(), load.nodes(), near).await?;
    let (floor_kept, floor_cold) = floor_figures(dir.path(), &nodes[0], load).await?;
    let empty = empty_memory(load.scale.steady()).await?;
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    let url = url_of(dir.path())?;
    let kept = load::measure(&server, &url, &nodes[..load.connections], load.time(), true).await?;
    let far = nodes.len().saturating_sub(load.connections).max(near);
    let callers = if far < nodes.len() { &nodes[far..] } else { &nodes[..load.connections] };
    let cold = load::measure(&server, &url, callers, load.time(), false).await?;
    figures.table("floor, kept", "floor, kept connections", speed(&floor_kept))?;
    figures.table("check-in, kept", "check-in, kept connections", speed(&kept))?;
    figures.table("floor, handshake", "floor, a full mTLS handshake each", speed(&floor_cold))?;
    figures.table("check-in, handshake", "check-in, a full mTLS handshake each", speed(&cold))?;
    let ratio = |a: &Measured, b: &Measured| a.cpu.as_secs_f64() / b.cpu.as_secs_f64();
    drop(server);
    let mut rows = vec![
        Row::at_most("CPU to the floor's, kept", ratio(&kept, &floor_kept), CPU_RATIO, Unit::Times),
        Row::at_most("CPU to the floor's, handshake", ratio(&cold, &floor_cold), CPU_RATIO, Unit::Times),
        Row::at_most("bytes, kept", kept.bytes, KEPT_BYTES, Unit::Bytes),
        Row::at_most("bytes, handshake", cold.bytes, COLD_BYTES, Unit::Bytes),
    ];
    rows.extend(memory(dir.path(), &nodes, load, empty).await?);
    figures.table("check-in", "against the limits", rows)
}

pub(super) fn url_of(dir: &Path) -> Result<ServerUrl, BenchError> {
    let info: server::EnrollInfo = server::posture::read_json(&dir.join("enroll.json"))?;
    info.servers.first().cloned().ok_or_else(|| "no server".into())
}

/// What a control plane without nodes takes.
async fn empty_memory(steady: Duration) -> Result<u64, BenchError> {
    let dir = tempfile::tempdir()?;
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    server.settled_memory(steady).await
}

/// Whether the control plane has a node's traits and its last run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reported {
    NotYet,
    Before,
}

async fn memory(dir: &Path, nodes: &[BenchNode], load: &Load, empty: u64) -> Result<Vec<Row>, BenchError> {
    // What nodes report once is written by a process that ends: its caches of the store are not the nodes'.
    let first = Server::control_plane(dir, ANY_PORT)?;
    let url = url_of(dir)?;
    for group in nodes.chunks(DIALS) {
        drop(open_keeping(group, &url, Reported::NotYet).await?);
    }
    drop(first);
    let server = Server::control_plane(dir, ANY_PORT)?;
    let url = url_of(dir)?;
    let steady = load.scale.steady();
    let started = server.settled_memory(steady).await?;
    // Every node calls once and is gone.
    // As a fleet calls: few at a time.
    for group in nodes.chunks(DIALS) {
        drop(open_keeping(group, &url, Reported::Before).await?);
    }
    let absent = server.settled_memory(steady).await?;
    let idle = load.idle().min(nodes.len());
    let held = open_keeping(&nodes[..idle], &url, Reported::Before).await?;
    let connected = server.settled_memory(steady).await?;
    let alive = held.iter().filter(|client| !client.is_closed()).count();
    let each = |bytes: u64, count: usize| bytes as f64 / 1024.0 / count.max(1) as f64;
    let absent_each = each(absent.saturating_sub(empty), nodes.len());
    let idle_each = each(connected.saturating_sub(absent), alive);
    let mib = |bytes: u64| bytes as f64 / 1048576.0;
    Ok(vec![
        Row::plain("nodes enrolled", nodes.len() as f64, Unit::Count),
        Row::plain("connections idle at once", alive as f64, Unit::Count),
        Row::plain("control plane without nodes", mib(empty), Unit::Mib),
        Row::plain("with all nodes, before any called", mib(started), Unit::Mib),
        Row::at_most("memory a node, none connected", absent_each, ABSENT_KIB, Unit::KibOfMemory),
        Row::at_most("memory a connection, idle", idle_each, IDLE_KIB, Unit::KibOfMemory),
    ])
}

async fn open_keeping(
    nodes: &[BenchNode],
    url: &ServerUrl,
    reported: Reported,
) -> Result<Vec<Client>, BenchError> {
    let mut held = Vec::with_capacity(nodes.len());
    for group in nodes.chunks(DIALS) {
        let mut tasks = JoinSet::new();
        for node in group {
            let mut caller = Caller::new(node.clone(), url)?;
            if reported == Reported::Before {
                caller.has_reported();
            }
            tasks.spawn(async move {
                let mut client = caller.dial().await?;
                caller.check_in(&mut client).await?;
                Ok::<_, BenchError>(client)
            });
        }
        held.extend(wait_for(&mut tasks, 0).await?);
    }
    Ok(held)
}

fn speed(measured: &Measured) -> Vec<Row> {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    vec![
        Row::plain("check-ins a second", measured.rate, Unit::PerSecond),
        Row::plain("p50", micros(measured.p50), Unit::Micros),
        Row::plain("p99", micros(measured.p99), Unit::Micros),
        Row::plain("server CPU each", micros(measured.cpu), Unit::Micros),
        Row::plain("bytes each", measured.bytes, Unit::Bytes),
    ]
}
