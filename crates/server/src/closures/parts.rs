//! What a closure consists of: who may have a path or an archive (ROL-9).
//!
//! What paths need is kept in memory, so that a request of a fleet in which each host has a closure of its own reads no
//! narinfo but the one that it asks for: hosts share most of their paths.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use model::Digest;
use spool::SpoolError;
use trust::nix::{MAX_CLOSURE_PATHS, NarInfo, StorePath, is_store_hash};

use super::ClosureShelf;
use crate::cache::HeldBytes;

/// The most paths that are looked at for one request, of all closures of a set together; what lies behind them is not found.
const MAX_LOOKED_AT: usize = 2 * MAX_CLOSURE_PATHS;

/// What a node asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedPart {
    /// What is known of the path with this hash.
    Info(String),
    /// An archive.
    Nar(Digest),
}

impl AskedPart {
    /// `HASH`, `HASH-NAME` (the two forms in which the source document speaks of a closure), or a SHA-256.
    pub(crate) fn read(text: &str) -> Option<AskedPart> {
        if let Ok(digest) = text.parse() {
            return Some(AskedPart::Nar(digest));
        }
        if is_store_hash(text) {
            return Some(AskedPart::Info(text.to_owned()));
        }
        StorePath::of_name(text).ok().map(|path| AskedPart::Info(path.hash().to_owned()))
    }
}

/// The hash of a path of the store, as its text has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PathHash([u8; 32]);

impl PathHash {
    fn of(path: &StorePath) -> PathHash {
        // The hash of every path has so many characters; another one would be nobody's.
        PathHash(path.hash().as_bytes().try_into().unwrap_or_default())
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A path, as far as it says who may have what.
#[derive(Debug)]
pub(super) struct ClosurePart {
    path: StorePath,
    nar: Digest,
    needs: Vec<PathHash>,
}

impl ClosurePart {
    fn of(info: &NarInfo) -> ClosurePart {
        let needs = info.needs().map(PathHash::of).collect();
        ClosurePart { path: info.path.clone(), nar: info.nar_hash, needs }
    }

    fn is(&self, asked: &AskedPart) -> bool {
        match asked {
            AskedPart::Info(hash) => self.path.hash() == hash,
            AskedPart::Nar(digest) => self.nar == *digest,
        }
    }
}

impl HeldBytes for Arc<ClosurePart> {
    fn held_bytes(&self) -> u64 {
        (size_of::<ClosurePart>() + self.path.name().len() + size_of_val(&*self.needs)) as u64
    }
}

impl ClosureShelf {
    /// Whether what a node asks for is part of one of these closures; each path is looked at once, whichever of them have
    /// it. A closure that is not here has its own path alone, so that who asks for it hears that it is not here.
    pub(crate) fn has(&self, closures: &BTreeSet<StorePath>, asked: &AskedPart) -> Result<bool, SpoolError> {
        let (mut seen, mut waiting) = (HashSet::new(), Vec::new());
        for closure in closures {
            let top = PathHash::of(closure);
            match self.part(&top)?.filter(|part| part.path == *closure) {
                Some(part) if seen.insert(top) => waiting.push(part),
                Some(_) => {}
                None if *asked == AskedPart::Info(closure.hash().to_owned()) => return Ok(true),
                None => {}
            }
        }
        while let Some(part) = waiting.pop() {
            if part.is(asked) {
                return Ok(true);
            }
            for needs in &part.needs {
                if seen.len() < MAX_LOOKED_AT
                    && seen.insert(*needs)
                    && let Some(below) = self.part(needs)?
                {
                    waiting.push(below);
                }
            }
        }
        Ok(false)
    }

    fn part(&self, hash: &PathHash) -> Result<Option<Arc<ClosurePart>>, SpoolError> {
        if let Some(known) = self.parts.get(hash) {
            return Ok(Some(known));
        }
        let Some(info) = self.info(hash.as_str())? else { return Ok(None) };
        let part = Arc::new(ClosurePart::of(&info));
        self.parts.put(*hash, part.clone());
        Ok(Some(part))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::tests::{info, put};
    use super::*;

    /// ROL-9: who asks for a part of a closure has no other narinfo read than those that nobody asked about before,
    /// whichever closure of the fleet it is.
    #[test]
    fn what_paths_need_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = ClosureShelf::new(dir.path());
        // Two hosts that share what lies below.
        let parts = [info(0, &[]), info(1, &[0]), info(2, &[1]), info(3, &[1])];
        parts.iter().for_each(|part| put(&shelf, part));
        let (lowest, above) = (AskedPart::Nar(parts[0].0.nar_hash), &parts[3].0.path);
        let has = |closure: &StorePath, asked: &AskedPart| {
            let closures = BTreeSet::from([closure.clone()]);
            shelf.has(&closures, asked).unwrap()
        };
        assert!(has(&parts[2].0.path, &lowest));
        for part in [&parts[0], &parts[1]] {
            std::fs::remove_file(dir.path().join(format!("closures/paths/{}.narinfo", part.0.path.hash())))
                .unwrap();
        }
        assert!(has(above, &lowest), "what is shared is not read again");
        assert!(!has(above, &AskedPart::Nar(parts[2].0.nar_hash)));
        let own = AskedPart::Info(parts[3].0.path.hash().to_owned());
        assert!(has(above, &own));
        let all = parts.iter().map(|part| part.0.path.clone()).collect();
        assert!(shelf.has(&all, &AskedPart::Nar(parts[2].0.nar_hash)).unwrap(), "one of them has it");
    }
}
