//! Every seed of every fuzz target, and small changes of each, with stable Rust: no parser of foreign bytes panics, and
//! what is read is written as the same. `fuzz/corpus` holds them; what a longer run finds is kept there.
//! `MUSTER_BLESS=1` writes the seeds anew that are made by code.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz::{FuzzTarget, TARGETS};

/// The most seeds of one target: a corpus that is committed stays small.
const MAX_SEEDS: usize = 20;
/// The longest seed, in bytes.
const MAX_SEED: u64 = 32 * 1024;
/// Changes of each seed.
const CHANGES: u64 = 200;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn seeds_of(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// A sequence without chance: the same changes in every run.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (below.max(1) as u64)).unwrap()
    }
}

/// The seed with some bytes changed, cut out, repeated or cut off.
fn changed(seed: &[u8], sequence: &mut Sequence) -> Vec<u8> {
    const ODD: &[u8] = b"\x00\xff{}[]\"':,-#&*!|>%@ \n\t9{{%}}..//\xc3\x28";
    let mut bytes = seed.to_vec();
    for _ in 0..=sequence.next(4) {
        let at = sequence.next(bytes.len());
        match sequence.next(5) {
            _ if bytes.is_empty() => bytes.push(ODD[sequence.next(ODD.len())]),
            0 => bytes[at] = ODD[sequence.next(ODD.len())],
            1 => bytes[at] ^= 1 << sequence.next(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, ODD[sequence.next(ODD.len())]),
            _ => {
                let end = (at + 1 + sequence.next(64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = sequence.next(bytes.len());
                bytes.splice(to..to, part);
            }
        }
    }
    bytes
}

fn holds(target: &FuzzTarget, of: &Path, bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).is_err() {
        let shown = bytes.escape_ascii().to_string();
        panic!("{} does not hold for a change of {}:\n{shown}", target.name, of.display());
    }
}

#[test]
fn every_seed_and_what_is_near_it_holds() {
    let blesses = std::env::var_os("MUSTER_BLESS").is_some();
    for (target, name, bytes) in seeds::made().into_iter().filter(|_| blesses) {
        std::fs::create_dir_all(corpus(target)).unwrap();
        std::fs::write(corpus(target).join(name), bytes).unwrap();
    }
    for (at, target) in TARGETS.iter().enumerate() {
        let seeds = seeds_of(target.name);
        assert!((1..=MAX_SEEDS).contains(&seeds.len()), "{}: {} seeds", target.name, seeds.len());
        let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15 ^ at as u64);
        for (path, seed) in &seeds {
            assert!(seed.len() as u64 <= MAX_SEED, "{}", path.display());
            holds(target, path, seed);
            for _ in 0..CHANGES {
                holds(target, path, &changed(seed, &mut sequence));
            }
        }
    }
}

/// A seed that no parser takes says nothing of what lies behind the first check.
#[test]
fn seeds_that_are_made_by_code_are_taken() {
    seeds::are_taken();
}

#[test]
fn each_target_has_a_program_of_its_own() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(programs.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let name = target.name;
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml does not name {name}");
        let program = std::fs::read_to_string(programs.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("fuzz::run(\"{name}\", data)")), "{name}");
    }
    assert!(TARGETS.is_sorted_by_key(|target| target.name));
}
