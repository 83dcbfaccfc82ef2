//! `muster bench proof`: what a node verifies of its own entry, whatever the size of the release.

use std::hint::black_box;
use std::time::{Duration, Instant};

use model::exchange::Signed;
use model::selection::PatternEntry;
use model::trie::Trie;
use model::{Digest, Hostname, Selection, SelectionEntry, Timestamp};
use trust::adopt::takes;
use trust::provenance::{AnchoredTrust, EntryProof};
use trust::signed::sign;
use trust::{Header, PublicKey, SigningKey, Slots, TrustDocument};

use crate::BenchError;
use crate::table::{Figures, Row, Unit};

/// The most bytes of a node's own proof, its signed header included.
const MAX_BYTES: f64 = 4096.0;
/// The longest that it takes to verify it, in milliseconds.
const MAX_MILLIS: f64 = 1.0;
/// Nodes whose proofs are verified, each once a round.
const PROVEN: usize = 64;
/// Patterns beside the exact entries.
const PATTERNS: usize = 32;

pub(super) fn run(nodes: usize, time: Duration, figures: &Figures) -> Result<(), BenchError> {
    let key = SigningKey::from_seed(&[7; 32]);
    let selection = selection(nodes)?;
    let header = header(&selection)?;
    let signed = sign(&header, &[&key])?;
    let slots = Slots::of(key.public());
    let root = Slots::of(SigningKey::from_seed(&[8; 32]).public());
    let trust = AnchoredTrust::of(TrustDocument::first(header.fleet.clone(), slots, root));
    let exact = (0..PROVEN).map(|at| hostname(at * nodes / PROVEN));
    let by_pattern = (0..PROVEN).map(|at| format!("zone-{}-{at}", at % PATTERNS).parse());
    let exact = proofs(&selection, &signed, exact.collect::<Result<_, _>>()?)?;
    let by_pattern = proofs(&selection, &signed, by_pattern.collect::<Result<_, _>>()?)?;
    let bare = verified(&key.public(), &signed, time);
    let row = |bytes_of: &'static str,
               to_verify: &'static str,
               proofs: &[(Hostname, EntryProof)]|
     -> Result<[Row; 2], BenchError> {
        let bytes = proofs.iter().map(|(_, proof)| serde_json::to_vec(proof).map(|json| json.len()));
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0);
        let each = each(proofs, &trust, time)?;
        Ok([
            Row::at_most(bytes_of, bytes as f64, MAX_BYTES, Unit::Bytes),
            Row::at_most(to_verify, millis(each), MAX_MILLIS, Unit::Millis),
        ])
    };
    let mut rows = vec![Row::plain("one signature verified, nothing else", millis(bare), Unit::Millis)];
    rows.extend(row("bytes of an exact entry's proof", "an exact entry's proof verified", &exact)?);
    rows.extend(row("bytes of a pattern's proof", "a pattern's proof verified", &by_pattern)?);
    figures.table("proof", &format!("a node's own proof from a release of {nodes} nodes"), rows)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn hostname(at: usize) -> Result<Hostname, model::id::ParseIdError> {
    format!("node-{at}.fleet.example.com").parse()
}

fn entry(at: usize) -> Result<SelectionEntry, BenchError> {
    Ok(SelectionEntry { channel: "stable".parse()?, root: Digest::of(&at.to_be_bytes()) })
}

fn selection(nodes: usize) -> Result<Selection, BenchError> {
    let mut leaves = Vec::with_capacity(nodes);
    for at in 0..nodes {
        leaves.push(Selection::leaf(&hostname(at)?, &entry(at)?));
    }
    let mut patterns = Vec::with_capacity(PATTERNS);
    for at in 0..PATTERNS {
        let pattern = format!("zone-{at}-*");
        patterns.push(PatternEntry { pattern, except: Vec::new(), entry: entry(nodes + at)? });
    }
    Ok(Selection::new(Trie::build(leaves), patterns))
}

fn header(selection: &Selection) -> Result<Header, BenchError> {
    Ok(Header {
        fleet: "bench-1".parse()?,
        channel: "stable".parse()?,
        seq: 41,
        label: None,
        created: Timestamp::from_secs(1_800_000_000),
        selection: selection.root()?,
        freshness_secs: 1_209_600,
        fallbacks: Vec::new(),
        requires: Vec::new(),
        rollout: None,
    })
}

fn proofs(
    selection: &Selection,
    header: &Signed,
    hostnames: Vec<Hostname>,
) -> Result<Vec<(Hostname, EntryProof)>, BenchError> {
    let mut proofs = Vec::with_capacity(hostnames.len());
    for hostname in hostnames {
        let first = selection.first(hostname.as_str(), &takes);
        let proof = selection.prove(hostname.as_str(), first)?;
        let Some(entry) = selection.entry(hostname.as_str(), &takes) else { continue };
        proofs.push((hostname, EntryProof { header: header.clone(), entry, proof }));
    }
    Ok(proofs)
}

/// How long one takes, of all again and again for a while.
fn each(
    proofs: &[(Hostname, EntryProof)],
    trust: &AnchoredTrust,
    time: Duration,
) -> Result<Duration, BenchError> {
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < time || count == 0 {
        for (hostname, proof) in proofs {
            black_box(proof.verify(hostname, trust, &takes)?);
            count += 1;
        }
    }
    Ok(began.elapsed() / count.max(1))
}

fn verified(key: &PublicKey, signed: &Signed, time: Duration) -> Duration {
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < time || count == 0 {
        let _ = black_box(trust::signed::signers::<Header>(signed, &Slots::of(*key)));
        count += 1;
    }
    began.elapsed() / count.max(1)
}
