//! Records in an append-only file: a mark, the length, a checksum, the bytes.

use std::ops::Range;

use model::Digest;

/// Begins every record, so that the next one can be found after a damaged one.
const MARK: [u8; 4] = *b"\xf5Mr\n";
/// Mark, length and checksum.
pub(crate) const HEADER: usize = 4 + 4 + 8;
/// The longest record, in bytes.
pub(crate) const MAX_RECORD: usize = 64 * 1024 * 1024;

/// Appends a record to `out`.
pub(crate) fn push(out: &mut Vec<u8>, payload: &[u8]) {
    let at = begin(out);
    out.extend_from_slice(payload);
    end(out, at);
}

/// Appends a record whose payload `fill` appends.
///
/// # Errors
/// Those of `fill`; then nothing was appended.
pub(crate) fn push_with<E>(
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = begin(out);
    let filled = fill(out);
    match filled {
        Ok(()) => end(out, at),
        Err(_) => out.truncate(at),
    }
    filled
}

fn begin(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&[0; HEADER - MARK.len()]);
    at
}

fn end(out: &mut [u8], at: usize) {
    let (header, payload) = out[at..].split_at_mut(HEADER);
    // Callers hold payloads far below `MAX_RECORD`.
    let length = (payload.len() as u32).to_le_bytes();
    header[4..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&checksum(&length, payload));
}

/// The length of a record in the file.
pub(crate) fn framed(payload: usize) -> u64 {
    (HEADER + payload) as u64
}

/// The length in the file of the record that begins with these bytes, sound or not; `None`
/// when no record begins so.
pub(crate) fn length_at(bytes: &[u8]) -> Option<u64> {
    let (mark, rest) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*rest.first_chunk::<4>()?) as usize;
    (*mark == MARK && length <= MAX_RECORD).then(|| framed(length))
}

/// What a file of records holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// The payloads of all sound records.
    pub(crate) records: Vec<Range<usize>>,
    /// The end of the last sound record.
    pub(crate) end: usize,
    /// The file ends in an append that was cut short.
    pub(crate) torn: bool,
    /// Records that were whole once are damaged.
    pub(crate) damaged: bool,
}

/// Finds the records of a file.
pub(crate) fn scan(bytes: &[u8]) -> Scan {
    let mut scan = Scan::default();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(record) = record_at(bytes, at) {
            at = record.end;
            scan.end = at;
            scan.records.push(record);
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

/// The payload of a sound record at a place; `None` when there is none.
pub(crate) fn record_at(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let header = bytes.get(at..at + HEADER)?;
    let (mark, rest) = header.split_first_chunk::<4>()?;
    let (length, sum) = rest.split_first_chunk::<4>()?;
    let size = u32::from_le_bytes(*length) as usize;
    if *mark != MARK || size > MAX_RECORD {
        return None;
    }
    let payload = bytes.get(at + HEADER..(at + HEADER).checked_add(size)?)?;
    (checksum(length, payload) == sum).then_some(at + HEADER..at + HEADER + size)
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
    let Some(length) = rest.get(4..8).and_then(|length| length.first_chunk::<4>()) else { return true };
    let size = u32::from_le_bytes(*length) as usize;
    size <= MAX_RECORD && rest.len() < HEADER + size
}

fn checksum(length: &[u8; 4], payload: &[u8]) -> [u8; 8] {
    let digest = Digest::of_parts([length.as_slice(), payload]);
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
        payloads.iter().for_each(|payload| push(&mut bytes, payload));
        bytes
    }

    fn read<'a>(bytes: &'a [u8], scan: &Scan) -> Vec<&'a [u8]> {
        scan.records.iter().map(|range| &bytes[range.clone()]).collect()
    }

    #[test]
    fn every_cut_of_the_last_record_is_a_torn_tail() {
        let bytes = file(&[b"one", b"two"]);
        let first = file(&[b"one"]).len();
        for end in first + 1..bytes.len() {
            let scan = scan(&bytes[..end]);
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
            let scan = scan(&bytes);
            assert_eq!(read(&bytes, &scan), [b"one".as_slice(), b"three"], "flipped at {at}");
            assert!(scan.damaged, "flipped at {at}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_torn() {
        let mut bytes = file(&[b"one"]);
        bytes.extend([0; 100]);
        assert!(scan(&bytes).torn);
    }
}
