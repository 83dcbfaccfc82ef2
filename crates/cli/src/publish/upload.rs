//! Sending a release: a walk down from its root that stops at what the other side has.
//!
//! Chunks are asked for level by level, so the cost is in proportion to the difference. What
//! is missing goes up contents first, then chunks from the bottom up, in bounded batches, a
//! few at a time; a batch's chunks are made when it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use model::Digest;
use model::chunk::TreeChunk;
use model::descent::Frontier;
use resolve::release::{Built, ReleaseChunk};
use server::api::{self, Digests, TreeChunks};

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
    let Lacking { levels, mut contents } = lacking(operator, built).await?;
    let all = contents.keys().copied().collect();
    let missing = missing(operator, all, |contents| Digests { contents, ..Digests::default() }).await?;
    contents.retain(|digest, _| missing.contains(digest));
    let mut sent = Uploaded { chunks: 0, contents: contents.len() };
    send_contents(operator, contents).await?;
    for level in levels.into_iter().rev() {
        sent.chunks += level.len();
        send_chunks(operator, built, level).await?;
    }
    Ok(sent)
}

/// Sends what the control plane lacks of these: contents first, then chunks, of which each comes after all below it.
pub(crate) async fn upload_parts(
    operator: &Operator,
    mut contents: BTreeMap<Digest, Arc<[u8]>>,
    mut chunks: Vec<(Digest, TreeChunk)>,
) -> Result<(), PublishError> {
    let all = contents.keys().copied().collect();
    let lacks = missing(operator, all, |contents| Digests { contents, ..Digests::default() }).await?;
    contents.retain(|digest, _| lacks.contains(digest));
    send_contents(operator, contents).await?;
    let all = chunks.iter().map(|(digest, _)| *digest).collect();
    let lacks = missing(operator, all, |chunks| Digests { chunks, ..Digests::default() }).await?;
    chunks.retain(|(digest, _)| lacks.contains(digest));
    for batch in chunks.chunks(CHUNKS) {
        let chunks = batch.iter().map(|(_, chunk)| chunk.clone()).collect();
        operator.call(&api::PUT_CHUNKS, TreeChunks { chunks }).await?;
    }
    Ok(())
}

async fn lacking(operator: &Operator, built: &Built) -> Result<Lacking, PublishError> {
    let mut lacking = Lacking::default();
    let mut frontier = Frontier::default();
    let top = built.top()?;
    frontier.add(top.hash(), top);
    loop {
        let mut level = frontier.take(usize::MAX);
        if level.is_empty() {
            return Ok(lacking);
        }
        let all = level.iter().map(|(hash, _)| *hash).collect();
        let missing = missing(operator, all, |chunks| Digests { chunks, ..Digests::default() }).await?;
        level.retain(|(hash, _)| missing.contains(hash));
        for (_, piece) in &level {
            let below = built.below(piece)?;
            below.pieces.into_iter().for_each(|piece| frontier.add(piece.hash(), piece));
            let contents = below.contents.into_iter().map(|content| (content.digest, content.bytes));
            lacking.contents.extend(contents);
        }
        lacking.levels.push(level.into_iter().map(|(_, piece)| piece).collect());
    }
}

/// What the control plane lacks of these.
async fn missing(
    operator: &Operator,
    all: Vec<Digest>,
    ask: fn(Vec<Digest>) -> Digests,
) -> Result<BTreeSet<Digest>, PublishError> {
    let mut missing = BTreeSet::new();
    for part in all.chunks(ASK) {
        let lacks = operator.call(&api::MISSING, ask(part.to_vec())).await?;
        missing.extend(lacks.chunks.into_iter().chain(lacks.contents));
    }
    Ok(missing)
}

async fn send_contents(
    operator: &Operator,
    contents: BTreeMap<Digest, Arc<[u8]>>,
) -> Result<(), PublishError> {
    let contents: Vec<Arc<[u8]>> = contents.into_values().collect();
    let batches = batches(&contents, |content| content.len(), CONTENTS, CONTENT_BYTES);
    let put = |batch: &[Arc<[u8]>]| {
        let (operator, batch) = (operator.clone(), batch.to_vec());
        async move {
            let contents: Vec<&[u8]> = batch.iter().map(|content| &**content).collect();
            Ok(operator.put_contents(&contents).await?)
        }
    };
    send(batches.into_iter().map(put)).await
}

async fn send_chunks(
    operator: &Operator,
    built: &Built,
    level: Vec<ReleaseChunk>,
) -> Result<(), PublishError> {
    let put = |batch: &[ReleaseChunk]| {
        let (operator, built, batch) = (operator.clone(), built.clone(), batch.to_vec());
        async move {
            let chunks: Result<Vec<_>, _> = batch.iter().map(|chunk| built.chunk(chunk)).collect();
            operator.call(&api::PUT_CHUNKS, TreeChunks { chunks: chunks? }).await?;
            Ok(())
        }
    };
    send(level.chunks(CHUNKS).map(put)).await
}

/// Sends batches, each in a task of its own, a few at a time.
async fn send<F>(batches: impl Iterator<Item = F>) -> Result<(), PublishError>
where
    F: Future<Output = Result<(), PublishError>> + Send + 'static,
{
    let under_way = stream::iter(batches.map(tokio::spawn)).buffer_unordered(UNDER_WAY);
    under_way.map_err(PublishError::Stopped).try_for_each(ready).await
}

/// Batches of so many items and bytes at most; an item that is larger by itself goes alone.
pub(crate) fn batches<T>(items: &[T], size: impl Fn(&T) -> usize, most: usize, bytes: usize) -> Vec<&[T]> {
    let (mut batches, mut begin, mut room) = (Vec::new(), 0, bytes);
    for (at, item) in items.iter().enumerate() {
        if at > begin && (at - begin >= most || size(item) > room) {
            batches.push(&items[begin..at]);
            (begin, room) = (at, bytes);
        }
        room = room.saturating_sub(size(item));
    }
    batches.extend(items.get(begin..).filter(|rest| !rest.is_empty()));
    batches
}

#[cfg(test)]
mod tests {
    use super::batches;

    #[test]
    fn batches_keep_both_bounds_and_lose_nothing() {
        let lengths = |items: &[usize]| {
            batches(items, |size| *size, 1000, 100_000).iter().map(|batch| batch.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[10; 2500]), [1000, 1000, 500]);
        assert_eq!(lengths(&[99_999, 99_999, 2, 1]), [1, 1, 2]);
        assert_eq!(lengths(&[100_001, 1, 100_001]), [1, 1, 1]);
        assert!(lengths(&[]).is_empty());
    }
}
