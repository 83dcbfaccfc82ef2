//! Large sets: one that is wholly missing, and one that differs in a few objects.

use std::sync::Arc;
use std::time::Instant;

use model::replication::Mode;
use model::{Digest, Stub};
use streams::{LinkCommand, LinkHandler};
use sync::SavedReplica;
use sync::link::Note;
use sync::replica::Replica;
use test_support::memory::MemoryLinkHandler;

use super::SyncLoad;
use super::link::{incarnation, link};
use super::stage::{Stage, key, uid, until};
use crate::BenchError;
use crate::table::{Row, Unit};

/// Objects that differ.
const DIFFERENT: usize = 10;
/// Bytes on the wire for those, in KiB.
const WIRE_KIB: f64 = 64.0;
/// CPU of both sides together, in milliseconds.
const WORK_MS: f64 = 100.0;
/// Objects a second of a set that is wholly missing.
const RATE: f64 = 50_000.0;
/// Bytes of an object.
const SIZE: usize = 256;

pub(super) async fn run(load: &SyncLoad<'_>) -> Result<(), BenchError> {
    let mut stage = Stage::fill(1, &[Mode::Managed]).await?;
    stage.put([0], load.objects, SIZE, 1).await?;
    let url = stage.start()?;
    let handler = Arc::new(MemoryLinkHandler::new(incarnation(0)?));
    let began = Instant::now();
    let linked = link(&stage.nodes[0], &url, Mode::Managed, &handler, handler.head()).await?;
    let opened = stage.cpu()?;
    until("the first objects came", || handler.counters().applied > 0).await?;
    let (first, at) = (handler.counters().applied, Instant::now());
    let all = load.objects as u64;
    until("all objects came", || handler.counters().applied >= all).await?;
    let rate = (all - first) as f64 / at.elapsed().as_secs_f64();
    until("the sets are equal", || handler.counters().checkpoints_equal > 0).await?;
    let (whole, cpu) = (began.elapsed(), stage.cpu()?.since(opened));
    let each = |time: std::time::Duration| time.as_secs_f64() * 1e6 / all as f64;
    load.figures.table(
        "missing objects",
        &format!("{all} missing objects of {SIZE} bytes"),
        vec![
            Row::at_least("objects a second", rate, RATE, Unit::PerSecond),
            Row::plain("from dialling to equal sets", whole.as_secs_f64(), Unit::Secs),
            Row::plain("server CPU each", each(cpu.server), Unit::Micros),
            Row::plain("CPU of this side each", each(cpu.here), Unit::Micros),
            Row::plain("bytes each", linked.bytes() as f64 / all as f64, Unit::Bytes),
        ],
    )?;
    // The first walk finds both sets settled; so does the second, which is measured.
    let mut rows = Vec::new();
    for round in 0..2 {
        rows = differing(&stage, load, &handler, &linked, round).await?;
    }
    load.figures.table("resync", &format!("{all} objects, {DIFFERENT} different"), rows)?;
    linked.stop().await?;
    Ok(())
}

/// Makes objects here other than they are at the source, and compares.
async fn differing(
    stage: &Stage,
    load: &SyncLoad<'_>,
    handler: &Arc<MemoryLinkHandler>,
    linked: &super::link::Linked,
    round: usize,
) -> Result<Vec<Row>, BenchError> {
    let keys = (0..DIFFERENT).map(|number| {
        let number = (number * load.objects / DIFFERENT + 17 * (round + 1)) % load.objects;
        Ok((key(number)?, uid(number)))
    });
    let keys = keys.collect::<Result<Vec<_>, BenchError>>()?;
    handler.with_sets(|_, replica| {
        let objects = replica.objects().map(|(key, stub)| (key.clone(), stub.clone(), 1));
        let mut saved = SavedReplica { cursor: replica.cursor().cloned(), objects: objects.collect() };
        for (key, uid) in &keys {
            let stub = Stub { uid: uid.clone(), digest: Digest::of(b"something else"), size: 14 };
            saved.objects.push((key.clone(), stub, 1));
        }
        *replica = Replica::restore(saved);
        // Worked into the set before anything is measured, as changes that were applied are.
        replica.root();
    });
    let resynced = || {
        let notes = handler.notes().into_iter();
        notes.filter(|note| matches!(note, Note::Resynced { .. })).collect::<Vec<_>>()
    };
    let (before, bytes, cpu, at) = (resynced().len(), linked.bytes(), stage.cpu()?, Instant::now());
    if !linked.commands.send(LinkCommand::Resync).await {
        return Err("the link is over".into());
    }
    until("a resync ended", || resynced().len() > before).await?;
    let (cpu, bytes, took) = (stage.cpu()?.since(cpu), linked.bytes() - bytes, at.elapsed());
    let Some(Note::Resynced { frames, fetched, .. }) = resynced().pop() else {
        return Err("no resync ended".into());
    };
    let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    Ok(vec![
        Row::at_most("bytes on the wire, both ways", bytes as f64 / 1024.0, WIRE_KIB, Unit::Kib),
        Row::at_most("CPU of both sides", millis(cpu.server + cpu.here), WORK_MS, Unit::Millis),
        Row::plain("of that the control plane's", millis(cpu.server), Unit::Millis),
        Row::plain("time", millis(took), Unit::Millis),
        Row::plain("objects fetched", fetched as f64, Unit::Count),
        Row::plain("frames", frames as f64, Unit::Count),
    ])
}
