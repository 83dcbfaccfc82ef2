//! Contents by digest, in ranges, to those whose set names them.

use http::{StatusCode, header};
use model::Digest;
use wire::{Code, Problem};

use super::checkin::ready;
use super::{Caller, Matched};
use crate::answer::{Reply, reply, store_problem};
use crate::state::ControlPlane;

/// The most of a blob that one response carries.
const MAX_RANGE: u64 = 1024 * 1024;

/// Answers with a part of a blob.
pub(super) async fn blob(
    plane: &ControlPlane,
    caller: &Caller,
    matched: &Matched,
    parts: &http::request::Parts,
) -> Result<Reply, Problem> {
    ready(plane)?;
    let digest: Digest =
        matched.digest.as_deref().and_then(|text| text.parse().ok()).ok_or(Code::NotFound)?;
    let roots = {
        let heads = plane.heads();
        let mut entry = caller.slot.lock();
        let pointed = entry.node.pointed(&heads).map(|(_, entry)| entry.root);
        // A set held by the node's own word alone would entitle it to anything.
        pointed.into_iter().collect::<Vec<_>>()
    };
    let mut entitled = false;
    for root in &roots {
        entitled |= plane.sets.entitles(root, &digest).await.map_err(store_problem)?;
    }
    if !entitled {
        return Err(Code::NotEntitled.into());
    }
    let Ok(_slot) = plane.blobs.acquire().await else { return Err(Code::Busy.into()) };
    let size = plane.store.content_size(&digest).await.map_err(store_problem)?.ok_or(Code::NotFound)?;
    let start = range_start(parts).unwrap_or(0);
    let end = start.saturating_add(MAX_RANGE).min(size);
    let bytes = plane.store.content(&digest, Some(start..end)).await.map_err(store_problem)?;
    let bytes = bytes.ok_or(Code::NotFound)?;
    let whole = start == 0 && end == size;
    let status = if whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    let mut response = reply(status, "application/octet-stream", None, bytes);
    let range = format!("bytes {start}-{}/{size}", end.saturating_sub(1));
    if let Ok(value) = header::HeaderValue::from_str(&range) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    Ok(response)
}

/// Where a `Range: bytes=N-` begins.
fn range_start(parts: &http::request::Parts) -> Option<u64> {
    let range = parts.headers.get(header::RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
}
