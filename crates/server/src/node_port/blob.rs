//! Contents by digest, in ranges, to those whose set names them.

use std::ops::Range;

use http::{StatusCode, header};
use model::Digest;
use wire::{Code, Problem};

use super::checkin::ready;
use super::{CallingNode, Matched};
use crate::answer::{PortReply, reply, store_problem};
use crate::state::ControlPlane;

/// The most of a blob that one response carries.
const MAX_RANGE: u64 = 1024 * 1024;

/// Answers with a part of a blob.
pub(super) async fn blob(
    plane: &ControlPlane,
    caller: &CallingNode,
    matched: &Matched,
    parts: &http::request::Parts,
) -> Result<PortReply, Problem> {
    ready(plane)?;
    caller.is_alone()?;
    let digest: Digest =
        matched.digest.as_deref().and_then(|text| text.parse().ok()).ok_or(Code::NotFound)?;
    // A set held by the node's own word alone would entitle it to anything.
    let entitled = match caller.slot.pointed_root(&plane.heads()) {
        Some(root) => plane.sets.entitles(&root, &digest).await.map_err(store_problem)?,
        None => false,
    };
    if !entitled {
        return Err(Code::NotEntitled.into());
    }
    let Ok(_slot) = plane.blobs.acquire().await else { return Err(Code::Busy.into()) };
    let size = plane.store.content_size(&digest).await.map_err(store_problem)?.ok_or(Code::NotFound)?;
    let Range { start, end } = range(parts).within(size);
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

/// What is asked for of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedRange {
    /// From a byte on, up to and with another if one is named.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl AskedRange {
    /// The bytes that are asked for of a content of this size; `None` where they begin behind its end.
    pub(super) fn of(self, size: u64) -> Option<Range<u64>> {
        let (start, end) = match self {
            AskedRange::From(start, last) => {
                (start, last.map_or(size, |last| last.saturating_add(1).min(size)))
            }
            AskedRange::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then_some(start..end)
    }

    /// The bytes to answer with, at most [`MAX_RANGE`]. Behind the end there are none: an agent that
    /// has all of a content, and was stopped before it kept it, learns so that it is whole.
    fn within(self, size: u64) -> Range<u64> {
        let (start, end) = match self {
            AskedRange::From(start, last) => (start, last.map_or(size, |last| last.saturating_add(1))),
            AskedRange::Last(count) => (size.saturating_sub(count), size),
        };
        let start = start.min(size);
        start..end.min(size).min(start.saturating_add(MAX_RANGE))
    }
}

/// Reads `Range: bytes=a-b`, `bytes=a-` or `bytes=-n` (RFC 9110); anything else is no range, and asks
/// for all.
pub(super) fn range(parts: &http::request::Parts) -> AskedRange {
    let all = AskedRange::From(0, None);
    let range = parts.headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some((from, to)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return all;
    };
    match (from.parse().ok(), to.parse().ok()) {
        (Some(from), None) if to.is_empty() => AskedRange::From(from, None),
        (Some(from), Some(to)) if from <= to => AskedRange::From(from, Some(to)),
        (None, Some(count)) if from.is_empty() => AskedRange::Last(count),
        _ => all,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn asked(range: &str) -> AskedRange {
        let request = http::Request::builder().header(header::RANGE, range).body(()).unwrap();
        super::range(&request.into_parts().0)
    }

    #[test]
    fn a_range_is_what_was_asked_for() {
        assert_eq!(asked("bytes=10-19").within(100), 10..20);
        assert_eq!(asked("bytes=10-").within(100), 10..100);
        assert_eq!(asked("bytes=-5").within(100), 95..100);
        assert_eq!(asked("bytes=90-200").within(100), 90..100, "what there is of it");
        assert_eq!(asked("bytes=0-").within(3 * MAX_RANGE), 0..MAX_RANGE, "a response has a bound");
        assert_eq!(asked("bytes=0-").within(0), 0..0);
        for behind in ["bytes=100-", "bytes=100-120", "bytes=-0"] {
            assert!(asked(behind).within(100).is_empty(), "{behind}");
        }
        for none in ["bytes=20-10", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", "bytes="] {
            assert_eq!(asked(none).within(100), 0..100, "{none} is no range");
        }
    }
}
