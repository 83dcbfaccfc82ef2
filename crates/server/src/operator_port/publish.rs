//! Publishing: pieces in and out, releases, beacons.

use bytes::Bytes;
use http::StatusCode;
use model::Digest;
use wire::{Code, Problem};

use crate::answer::{Reply, json, reply, store_problem};
use crate::api::{Chunks, Digests, HeadView, MAX_FETCH, unpack_contents};
use crate::releases;
use crate::state::{ControlPlane, now};

pub(super) fn put_problem(error: store::PutError) -> Problem {
    match error {
        store::PutError::NotComplete { .. } => Problem::new(Code::Incomplete, error.to_string()),
        store::PutError::Store(error) => store_problem(error),
        other => Problem::new(Code::ReleaseRefused, other.to_string()),
    }
}

/// The chunks that are asked for; those that are not stored are left out.
pub(super) async fn fetch(plane: &ControlPlane, asked: Digests) -> Result<Chunks, Problem> {
    if asked.chunks.len() > MAX_FETCH {
        return Err(Problem::new(Code::BodyTooLarge, format!("more than {MAX_FETCH} chunks are asked for")));
    }
    let mut chunks = Vec::with_capacity(asked.chunks.len());
    for digest in &asked.chunks {
        chunks.extend(plane.store.chunk(digest).await.map_err(store_problem)?);
    }
    Ok(Chunks { chunks })
}

pub(super) async fn put_contents(plane: &ControlPlane, body: Bytes) -> Result<Reply, Problem> {
    let contents = unpack_contents(&body).ok_or(Code::BadBody)?;
    let stored = plane.store.put_contents(contents, now()).await.map_err(put_problem)?;
    json(&stored.len(), false)
}

pub(super) async fn content(plane: &ControlPlane, digest: &str) -> Result<Reply, Problem> {
    let digest: Digest = digest.parse().map_err(|_| Code::NotFound)?;
    let content = plane.store.content(&digest, None).await.map_err(store_problem)?;
    let bytes = content.ok_or(Code::NotFound)?;
    Ok(reply(StatusCode::OK, "application/octet-stream", None, bytes))
}

pub(super) fn head(plane: &ControlPlane) -> HeadView {
    let heads = plane.heads();
    let newest = heads.channels.values().max_by_key(|head| head.header.seq);
    HeadView {
        trust: plane.trust.clone(),
        seq: newest.map(|head| head.header.seq),
        selection: newest.map(|head| head.header.selection),
        headers: releases::headers(&heads),
    }
}
