//! Sending a release: a walk down from its root that stops at what the other side has.
//!
//! Chunks are asked for level by level, so the cost is in proportion to the difference. What
//! is missing goes up contents first, then chunks from the bottom up, in bounded batches, a
//! few at a time; a batch's chunks are made when it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Digest;
use model::descent::Frontier;
use resolve::release::{Built, ReleaseChunk};
use server::api::Digests;
use tokio::task::{JoinError, JoinSet};

use super::PublishError;
use crate::operator::Operator;

/// Digests in one question.
const ASK: usize = 20_000;
/// Chunks in one batch.
const CHUNKS: usize = 4_000;
/// Bytes of contents in one batch; a single larger content is a batch of its own.
const CONTENT_BYTES: usize = 4 * 1024 * 1024;
/// Contents in one batch.
const CONTENTS: usize = 10_000;
/// Batches under way at once.
const UNDER_WAY: usize = 3;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// Chunks.
    pub chunks: usize,
    /// Contents.
    pub contents: usize,
}

/// What the other side lacks.
#[derive(Default)]
struct Lacking {
    /// Chunks, level by level from the top.
    levels: Vec<Vec<ReleaseChunk>>,
    contents: BTreeMap<Digest, Arc<[u8]>>,
}

/// Sends what the control plane lacks of a release.
pub(super) async fn upload(operator: &Operator, built: &Built) -> Result<Uploaded, PublishError> {
    let lacking = lacking(operator, built).await?;
    let contents = missing_contents(operator, lacking.contents).await?;
    let mut sent = Uploaded { chunks: 0, contents: contents.len() };
    send_contents(operator, contents).await?;
    for level in lacking.levels.into_iter().rev() {
        sent.chunks += level.len();
        send_chunks(operator, built, level).await?;
    }
    Ok(sent)
}

async fn lacking(operator: &Operator, built: &Built) -> Result<Lacking, PublishError> {
    let mut lacking = Lacking::default();
    let mut frontier = Frontier::default();
    let top = built.top()?;
    frontier.add(top.hash(), top);
    loop {
        let level: Vec<ReleaseChunk> =
            frontier.take(usize::MAX).into_iter().map(|(_, piece)| piece).collect();
        if level.is_empty() {
            return Ok(lacking);
        }
        let missing = missing_chunks(operator, level).await?;
        for piece in &missing {
            let below = built.below(piece)?;
            below.pieces.into_iter().for_each(|piece| frontier.add(piece.hash(), piece));
            let contents = below.contents.into_iter().map(|content| (content.digest, content.bytes));
            lacking.contents.extend(contents);
        }
        lacking.levels.push(missing);
    }
}

async fn missing_chunks(
    operator: &Operator,
    level: Vec<ReleaseChunk>,
) -> Result<Vec<ReleaseChunk>, PublishError> {
    let mut missing = BTreeSet::new();
    for part in level.chunks(ASK) {
        let chunks = part.iter().map(ReleaseChunk::hash).collect();
        let lacks = operator.missing(&Digests { chunks, contents: Vec::new() }).await?;
        missing.extend(lacks.chunks);
    }
    Ok(level.into_iter().filter(|piece| missing.contains(&piece.hash())).collect())
}

async fn missing_contents(
    operator: &Operator,
    mut contents: BTreeMap<Digest, Arc<[u8]>>,
) -> Result<BTreeMap<Digest, Arc<[u8]>>, PublishError> {
    let all: Vec<Digest> = contents.keys().copied().collect();
    let mut missing = BTreeSet::new();
    for part in all.chunks(ASK) {
        let lacks = operator.missing(&Digests { chunks: Vec::new(), contents: part.to_vec() }).await?;
        missing.extend(lacks.contents);
    }
    contents.retain(|digest, _| missing.contains(digest));
    Ok(contents)
}

async fn send_contents(
    operator: &Operator,
    contents: BTreeMap<Digest, Arc<[u8]>>,
) -> Result<(), PublishError> {
    let mut under_way = JoinSet::new();
    let mut batch: Vec<Arc<[u8]>> = Vec::new();
    let mut size = 0;
    for content in contents.into_values() {
        if !batch.is_empty() && (size + content.len() > CONTENT_BYTES || batch.len() == CONTENTS) {
            start(&mut under_way, put_contents(operator.clone(), std::mem::take(&mut batch))).await?;
            size = 0;
        }
        size += content.len();
        batch.push(content);
    }
    if !batch.is_empty() {
        start(&mut under_way, put_contents(operator.clone(), batch)).await?;
    }
    finish(under_way).await
}

async fn put_contents(operator: Operator, batch: Vec<Arc<[u8]>>) -> Result<(), PublishError> {
    let contents: Vec<&[u8]> = batch.iter().map(|content| &**content).collect();
    Ok(operator.put_contents(&contents).await?)
}

/// Sends the chunks of one level; what they need is there already.
async fn send_chunks(
    operator: &Operator,
    built: &Built,
    level: Vec<ReleaseChunk>,
) -> Result<(), PublishError> {
    let mut under_way = JoinSet::new();
    for batch in level.chunks(CHUNKS) {
        start(&mut under_way, put_chunks(operator.clone(), built.clone(), batch.to_vec())).await?;
    }
    finish(under_way).await
}

async fn put_chunks(operator: Operator, built: Built, batch: Vec<ReleaseChunk>) -> Result<(), PublishError> {
    let chunks: Result<Vec<_>, _> = batch.iter().map(|piece| built.chunk(piece)).collect();
    Ok(operator.put_chunks(chunks?).await?)
}

type UnderWay = JoinSet<Result<(), PublishError>>;

/// Starts a batch once there is room for it.
async fn start(
    under_way: &mut UnderWay,
    batch: impl Future<Output = Result<(), PublishError>> + Send + 'static,
) -> Result<(), PublishError> {
    while under_way.len() >= UNDER_WAY {
        if let Some(ended) = under_way.join_next().await {
            joined(ended)?;
        }
    }
    under_way.spawn(batch);
    Ok(())
}

async fn finish(mut under_way: UnderWay) -> Result<(), PublishError> {
    while let Some(ended) = under_way.join_next().await {
        joined(ended)?;
    }
    Ok(())
}

fn joined(ended: Result<Result<(), PublishError>, JoinError>) -> Result<(), PublishError> {
    match ended {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(PublishError::Stopped(error)),
    }
}
