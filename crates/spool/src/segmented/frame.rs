//! Records in a segment: a mark, the kind, the length, a checksum, the payload.

use std::ops::Range;

use model::Digest;

use crate::error::{Result, SpoolError};

/// Begins every record, so that the next one can be found after a damaged one.
const MARK: [u8; 3] = *b"\xf5Mr";
/// Mark, kind, length and checksum.
pub(crate) const HEADER: usize = 3 + 1 + 4 + 8;
/// The largest payload, in bytes.
pub(crate) const MAX_RECORD: usize = 64 * 1024 * 1024;

/// Appends a record whose payload `fill` appends; returns its length with the frame.
///
/// # Errors
/// [`SpoolError::Encode`] from `fill`, and [`SpoolError::TooLarge`] beyond [`MAX_RECORD`];
/// then nothing was appended.
pub(crate) fn push(
    out: &mut Vec<u8>,
    kind: u8,
    what: &'static str,
    fill: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> Result<u32> {
    let at = begin(out, kind);
    let filled = fill(out);
    finish(out, at, what, filled)
}

/// Appends a header that [`finish`] completes; returns where it is.
fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let at = out.len();
    out.extend_from_slice(&MARK);
    out.push(kind);
    out.extend_from_slice(&[0; HEADER - MARK.len() - 1]);
    at
}

/// Completes the header of the record whose payload was appended since [`begin`].
fn finish(out: &mut Vec<u8>, at: usize, what: &'static str, filled: serde_json::Result<()>) -> Result<u32> {
    let filled = filled.map_err(|source| SpoolError::Encode { what, source });
    let length = out.len() - at - HEADER;
    let too_large = SpoolError::TooLarge { what, limit: MAX_RECORD as u64 };
    if let Err(error) = filled.and(if length > MAX_RECORD { Err(too_large) } else { Ok(()) }) {
        out.truncate(at);
        return Err(error);
    }
    let (header, payload) = out[at..].split_at_mut(HEADER);
    header[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    let sum = checksum(&header[3..8], payload);
    header[8..].copy_from_slice(&sum);
    Ok((HEADER + length) as u32)
}

/// What a file of records holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// All sound records: the kind, and where the payload is.
    pub(crate) records: Vec<(u8, Range<usize>)>,
    /// The end of the last sound record.
    pub(crate) end: usize,
    /// The file ends in an append that was cut short.
    pub(crate) torn: bool,
    /// Records that were whole once are damaged.
    pub(crate) damaged: bool,
}

/// Finds the records of a file from an offset on.
pub(crate) fn scan(bytes: &[u8], from: usize) -> Scan {
    let mut scan = Scan { end: from, ..Scan::default() };
    let mut at = from;
    while at < bytes.len() {
        if let Some((kind, payload)) = record_at(bytes, at) {
            at = payload.end;
            scan.end = at;
            scan.records.push((kind, payload));
            continue;
        }
        match next_record(bytes, at + 1) {
            Some(next) => {
                scan.damaged = true;
                at = next;
            }
            None => {
                if cut_short(&bytes[at..]) {
                    scan.torn = true;
                } else {
                    scan.damaged = true;
                }
                break;
            }
        }
    }
    scan
}

/// The kind and the payload of a sound record at an offset; `None` when there is none.
pub(crate) fn record_at(bytes: &[u8], at: usize) -> Option<(u8, Range<usize>)> {
    let (header, rest) = bytes.get(at..)?.split_first_chunk::<HEADER>()?;
    let length = payload_length(header);
    if header[..3] != MARK || length > MAX_RECORD {
        return None;
    }
    let payload = rest.get(..length)?;
    let start = at + HEADER;
    (checksum(&header[3..8], payload) == header[8..]).then_some((header[3], start..start + length))
}

fn next_record(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let marks = rest.windows(MARK.len()).enumerate().filter(|(_, window)| **window == MARK);
    marks.map(|(at, _)| from + at).find(|at| record_at(bytes, *at).is_some())
}

/// Whether the rest of a file is what an interrupted append leaves: the beginning of a
/// record without its end, or a length of zeros.
fn cut_short(rest: &[u8]) -> bool {
    if rest.iter().all(|byte| *byte == 0) {
        return true;
    }
    let mark = rest.len().min(MARK.len());
    if rest[..mark] != MARK[..mark] {
        return false;
    }
    let Some((header, payload)) = rest.split_first_chunk::<HEADER>() else { return true };
    let length = payload_length(header);
    length <= MAX_RECORD && payload.len() < length
}

fn payload_length(header: &[u8; HEADER]) -> usize {
    u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize
}

/// Of kind and length, and of the payload.
fn checksum(head: &[u8], payload: &[u8]) -> [u8; 8] {
    let digest = Digest::of_parts([head, payload]);
    let mut sum = [0; 8];
    sum.copy_from_slice(&digest.as_bytes()[..8]);
    sum
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in payloads {
            let fill = |out: &mut Vec<u8>| {
                out.extend_from_slice(payload);
                Ok(())
            };
            push(&mut bytes, 7, "a test's record", fill).unwrap();
        }
        bytes
    }

    fn read<'a>(bytes: &'a [u8], scan: &Scan) -> Vec<&'a [u8]> {
        scan.records.iter().map(|(_, range)| &bytes[range.clone()]).collect()
    }

    #[test]
    fn every_cut_of_the_last_record_is_a_torn_tail() {
        let bytes = file(&[b"one", b"two"]);
        let first = file(&[b"one"]).len();
        for end in first + 1..bytes.len() {
            let scan = scan(&bytes[..end], 0);
            assert_eq!(read(&bytes, &scan), [b"one"], "cut at {end}");
            assert_eq!((scan.end, scan.torn, scan.damaged), (first, true, false), "cut at {end}");
        }
    }

    #[test]
    fn every_flipped_byte_is_damage_and_costs_one_record() {
        let whole = file(&[b"one", b"two", b"three"]);
        let (first, second) = (file(&[b"one"]).len(), file(&[b"one", b"two"]).len());
        for at in first..second {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            let scan = scan(&bytes, 0);
            assert_eq!(read(&bytes, &scan), [b"one".as_slice(), b"three"], "flipped at {at}");
            assert!(scan.damaged, "flipped at {at}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_torn() {
        let mut bytes = file(&[b"one"]);
        bytes.extend([0; 100]);
        assert!(scan(&bytes, 0).torn);
    }
}
