//! Publishing: chunks and contents in and out, releases, beacons.

use bytes::Bytes;
use http::StatusCode;
use store::Release;
use store::audit::AuditSubject;
use wire::{Code, Problem};

use super::OperatorCall;
use super::fleet::trust_overtaken;
use crate::answer::{PortReply, json, reply, store_problem};
use crate::api::operation::Empty;
use crate::api::{Beacons, ChunkName, Digests, HeadView, History, MAX_FETCH, TreeChunks, unpack_contents};
use crate::state::{ControlPlane, now};
use crate::{beacons, releases};

fn put_problem(error: store::PutError) -> Problem {
    match error {
        store::PutError::NotComplete { .. } => Problem::new(Code::Incomplete, error.to_string()),
        store::PutError::Store(error) => store_problem(error),
        other => Problem::new(Code::ReleaseRefused, other.to_string()),
    }
}

pub(super) async fn releases(call: OperatorCall, request: History) -> Result<Vec<Release>, Problem> {
    call.plane.store.releases(request.limit.get(), request.before).await.map_err(store_problem)
}

pub(super) async fn chunk(
    call: OperatorCall,
    request: ChunkName,
) -> Result<model::chunk::TreeChunk, Problem> {
    let chunk = call.plane.store.chunk(&request.digest).await.map_err(store_problem)?;
    chunk.ok_or_else(|| Code::NotFound.into())
}

pub(super) async fn missing(call: OperatorCall, request: Digests) -> Result<Digests, Problem> {
    let store = &call.plane.store;
    let chunks = store.missing_chunks(request.chunks, now()).await.map_err(store_problem)?;
    let contents = store.missing_contents(request.contents, now()).await.map_err(store_problem)?;
    Ok(Digests { chunks, contents })
}

/// Chunks of a set or a selection, to compare it with another.
pub(super) async fn fetch(call: OperatorCall, request: Digests) -> Result<TreeChunks, Problem> {
    if request.chunks.len() > MAX_FETCH {
        return Err(Problem::new(Code::BodyTooLarge, format!("more than {MAX_FETCH} chunks are asked for")));
    }
    let mut chunks = Vec::with_capacity(request.chunks.len());
    for digest in &request.chunks {
        chunks.extend(call.plane.store.chunk(digest).await.map_err(store_problem)?);
    }
    Ok(TreeChunks { chunks })
}

pub(super) async fn put_chunks(call: OperatorCall, sent: TreeChunks) -> Result<usize, Problem> {
    let stored = call.plane.store.put_chunks(sent.chunks, now()).await.map_err(put_problem)?;
    Ok(stored.len())
}

pub(super) async fn add_beacons(call: OperatorCall, sent: Beacons) -> Result<usize, Problem> {
    let count = sent.beacons.len();
    let store = call.recording(AuditSubject::of(format!("{count} beacons")));
    beacons::add(&call.plane, &store, sent.beacons).await?;
    Ok(count)
}

pub(super) async fn put_contents(plane: &ControlPlane, body: Bytes) -> Result<PortReply, Problem> {
    let contents = unpack_contents(&body).ok_or(Code::BadBody)?;
    let stored = plane.store.put_contents(contents, now()).await.map_err(put_problem)?;
    json(&stored.len(), false)
}

/// A content's bytes; `path` is what stands behind [`crate::api::CONTENTS`].
pub(super) async fn content(plane: &ControlPlane, path: &str) -> Result<PortReply, Problem> {
    let digest = path.strip_prefix('/').and_then(|text| text.parse().ok()).ok_or(Code::NotFound)?;
    let content = plane.store.content(&digest, None).await.map_err(store_problem)?;
    let bytes = content.ok_or(Code::NotFound)?;
    Ok(reply(StatusCode::OK, "application/octet-stream", None, bytes))
}

pub(super) async fn head(call: OperatorCall, _: Empty) -> Result<HeadView, Problem> {
    let plane = &call.plane;
    let incarnation = plane.store.incarnation().await.map_err(store_problem)?;
    let heads = plane.heads();
    let newest = heads.channels.values().max_by_key(|head| head.header.seq);
    Ok(HeadView {
        trust: plane.trust.documents().newest().document.clone(),
        seq: newest.map(|head| head.header.seq),
        selection: newest.map(|head| head.header.selection),
        minimum_agent: newest.and_then(|head| head.minimum_agent).map(|version| version.to_string()),
        headers: releases::headers(&heads),
        node_header: heads.overtaken_by().map(|held| (*held.signed).clone()),
        went_back: incarnation.filter(|it| it.went_back().is_some()),
        trust_overtaken: trust_overtaken(plane),
    })
}
