//! Closures of NixOS for nodes that reach no cache (ROL-9): what is known of a path, and archives in any range.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use net::stream::{self, BodySender};
use spool::SpoolError;
use tokio::time::Instant;
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::{Code, Problem};

use super::blob::range;
use super::checkin::ready;
use super::{CallingNode, Matched};
use crate::answer::{PortReply, chain, reply, store_problem};
use crate::closures::{AskedPart, ClosureShelf, ClosureTurn};
use crate::state::ControlPlane;

/// What is read of an archive at a time, and held for each answer; in bytes.
const PIECE: usize = 256 * 1024;
/// How long a node may take for one piece: who reads more slowly asks again from where it is.
const PIECE_WITHIN: Duration = Duration::from_secs(60);
/// How long one answer may take: then others have their turn, and who reads asks on.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);

/// Answers with what is known of a path, or with a range of an archive, streamed.
pub(super) async fn closure(
    plane: &ControlPlane,
    caller: &CallingNode,
    matched: &Matched,
    parts: &http::request::Parts,
) -> Result<PortReply, Problem> {
    ready(plane)?;
    caller.is_alone()?;
    let asked = wire::percent::decode(matched.digest.as_deref().unwrap_or_default());
    let asked = AskedPart::read(&asked).ok_or(Code::NotFound)?;
    // A part that no closure has costs the look at all of them, so that each node has its share of that too.
    let Some(turn) = plane.closure_lookups.take(&caller.id).await else { return Err(Code::Busy.into()) };
    // By the rule of contents: what the node is pointed to names it.
    let named = match caller.slot.pointed_root(&plane.heads()) {
        Some(root) => plane.sets.store_paths(&root).await.map_err(store_problem)?,
        None => Default::default(),
    };
    let part = asked.clone();
    let entitled = on_shelf(plane, move |shelf| {
        // A look goes on when nobody waits for it any more, and holds its turn.
        let _turn = turn;
        shelf.has(&named, &part)
    });
    if !entitled.await? {
        return Err(Problem::new(Code::NotEntitled, "the node's set names no closure with this part"));
    }
    match asked {
        AskedPart::Info(hash) => {
            let info = on_shelf(plane, move |shelf| shelf.info(&hash)).await?.ok_or(Code::NotFound)?;
            Ok(reply(StatusCode::OK, "text/x-nix-narinfo", None, info.to_string().into_bytes().into()))
        }
        AskedPart::Nar(digest) => {
            let found = on_shelf(plane, move |shelf| shelf.nar(&digest)).await?;
            let (path, size) = found.ok_or(Code::NotFound)?;
            archive(plane, caller, path, size, parts).await
        }
    }
}

/// Looks at the closures, on a thread that may wait for the disk.
async fn on_shelf<T: Send + 'static>(
    plane: &ControlPlane,
    look: impl FnOnce(&ClosureShelf) -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, Problem> {
    let shelf = plane.closures.clone();
    let looked = tokio::task::spawn_blocking(move || look(&shelf)).await.map_err(|_| Code::Internal)?;
    looked.map_err(|error| {
        tracing::error!(error = %chain(&error), "closures cannot be read");
        Problem::new(Code::StoreUnavailable, chain(&error))
    })
}

async fn archive(
    plane: &ControlPlane,
    caller: &CallingNode,
    path: PathBuf,
    size: u64,
    parts: &http::request::Parts,
) -> Result<PortReply, Problem> {
    let Some(asked) = range(parts).of(size) else {
        return Ok(behind_end(size, plane.request_id()));
    };
    let Some(turn) = plane.archive_turns.take(&caller.id).await else { return Err(Code::Busy.into()) };
    let opened = tokio::task::spawn_blocking(move || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(asked.start))?;
        Ok::<_, std::io::Error>(file)
    });
    let file = opened.await.map_err(|_| Code::Internal)?.map_err(|_| Code::NotFound)?;
    let length = asked.end - asked.start;
    let (sender, body) = stream::channel(Bytes::new());
    tokio::spawn(send(turn, file, length, sender));
    let mut response = Response::new(body);
    let is_whole = length == size;
    *response.status_mut() = if is_whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-nix-nar"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    // An answer that breaks off is shorter than this, so that nobody takes it for whole.
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let range = format!("bytes {}-{}/{size}", asked.start, asked.end - 1);
    headers.extend(HeaderValue::from_str(&range).ok().map(|range| (header::CONTENT_RANGE, range)));
    Ok(response)
}

/// Sends what is left of a range, a piece at a time; ends when nobody reads it, or after [`ANSWER_WITHIN`].
async fn send(_turn: ClosureTurn, mut file: File, mut left: u64, mut sender: BodySender) {
    let until = Instant::now() + ANSWER_WITHIN;
    while left > 0 {
        let most = left.min(PIECE as u64);
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE);
            (&mut file).take(most).read_to_end(&mut piece).map(|_| (file, piece))
        });
        let Ok(Ok((rest, piece))) = read.await else { return };
        if piece.is_empty() {
            return;
        }
        file = rest;
        left = left.saturating_sub(piece.len() as u64);
        let within = until.min(Instant::now() + PIECE_WITHIN);
        match tokio::time::timeout_at(within, sender.put(piece.into())).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
    sender.end(None).await;
}

/// There is nothing behind the end.
fn behind_end(size: u64, request_id: String) -> PortReply {
    let mut response = crate::answer::refuse(Code::RangeBehindEnd.into(), request_id);
    let range = HeaderValue::from_str(&format!("bytes */{size}"));
    response.headers_mut().extend(range.ok().map(|range| (header::CONTENT_RANGE, range)));
    response
}
