//! What goes of the closures: paths that no node needs, and archives that rotted (ROL-9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use model::Digest;
use spool::{BlobStore, SpoolError};
use trust::nix::{NarInfo, StorePath, is_store_hash};

use super::{ClosureShelf, KEPT_FOR, SweepTimes, begins_anew};
use crate::state::ControlPlane;

/// How often it is looked what goes.
const SWEEP_EVERY: Duration = Duration::from_secs(24 * 3600);
/// No sweep so long after a piece of an upload came: it would take it away.
const UPLOAD_RESTS: Duration = Duration::from_secs(3600);
/// How many bytes of archives are verified in an hour, and the rest of the last of them: all within three days.
const SCRUB_BYTES: u64 = 4 * 1024 * 1024 * 1024;

impl ClosureShelf {
    pub(super) fn times(&self) -> MutexGuard<'_, SweepTimes> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to look what goes.
    fn is_due(&self, now: SystemTime) -> bool {
        let times = self.times();
        let since = |time: Option<SystemTime>| time.and_then(|time| now.duration_since(time).ok());
        self.dir.is_dir()
            && since(times.swept).is_none_or(|ago| ago >= SWEEP_EVERY)
            && since(times.put).is_none_or(|ago| ago >= UPLOAD_RESTS)
    }

    /// Removes what none of these closures consists of, unless it was uploaded or named in the last [`KEPT_FOR`]; gives
    /// how many paths went.
    pub(crate) fn sweep(&self, named: &BTreeSet<StorePath>, now: SystemTime) -> Result<usize, SpoolError> {
        self.times().swept = Some(now);
        let Some(nars) = self.opened()? else { return Ok(0) };
        let _turn = self.turn();
        let mut all: BTreeMap<StorePath, NarInfo> = BTreeMap::new();
        let mut kept: BTreeSet<StorePath> = BTreeSet::new();
        let mut roots = Vec::new();
        for (hash, age) in self.known(now)? {
            let Some(info) = self.info(&hash)? else { continue };
            if named.contains(&info.path) {
                begins_anew(&self.info_file(&hash), now);
            }
            if named.contains(&info.path) || age < KEPT_FOR {
                roots.push(info.path.clone());
            }
            all.insert(info.path.clone(), info);
        }
        while let Some(path) = roots.pop() {
            if let Some(info) = all.get(&path)
                && kept.insert(path)
            {
                roots.extend(info.needs().cloned());
            }
        }
        let gone: Vec<&NarInfo> = all.values().filter(|info| !kept.contains(&info.path)).collect();
        for info in &gone {
            self.disk.unlink(&self.info_file(info.path.hash()))?;
        }
        if !gone.is_empty() {
            // What is uploaded again later may be another build.
            self.parts.clear();
        }
        let needed = all.values().filter(|info| kept.contains(&info.path)).map(|info| info.nar_hash);
        nars.retain(&needed.collect())?;
        Ok(gone.len())
    }

    /// The hashes of all paths, and how long ago each was uploaded or named.
    fn known(&self, now: SystemTime) -> Result<Vec<(String, Duration)>, SpoolError> {
        let path = self.dir.join("paths");
        let read = |source| SpoolError::Disk { op: spool::DiskOp::Read, path: path.clone(), source };
        let mut known = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(hash) = name.strip_suffix(".narinfo").filter(|hash| is_store_hash(hash)) else {
                continue;
            };
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).map_err(read)?;
            known.push((hash.to_owned(), now.duration_since(modified).unwrap_or_default()));
        }
        Ok(known)
    }

    /// Verifies the archives after those that were verified last, so many bytes; gives the paths that went because
    /// theirs rotted. Nothing where another one verifies.
    fn scrub(&self, bytes: u64) -> Result<Vec<StorePath>, SpoolError> {
        let mut last = match self.scrubbed.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Vec::new()),
        };
        let Some(nars) = self.opened()? else { return Ok(Vec::new()) };
        let scrubbed = nars.scrub(*last, bytes)?;
        *last = scrubbed.last;
        self.forget_rotted(&nars, &scrubbed.damaged)
    }

    /// What is known of a path goes with its archive, as a path is there whole or not at all: who asks for it hears that
    /// it is not here, and the next upload brings it.
    fn forget_rotted(&self, nars: &BlobStore, damaged: &[Digest]) -> Result<Vec<StorePath>, SpoolError> {
        let mut gone = Vec::new();
        if damaged.is_empty() {
            return Ok(gone);
        }
        let _turn = self.turn();
        for (hash, _) in self.known(SystemTime::now())? {
            let Some(info) = self.info(&hash)? else { continue };
            // It may have been uploaded again meanwhile.
            if damaged.contains(&info.nar_hash) && !nars.has(&info.nar_hash) {
                self.disk.unlink(&self.info_file(&hash))?;
                gone.push(info.path);
            }
        }
        self.parts.clear();
        // Its bytes are of no use to anybody, and may be many.
        damaged.iter().try_for_each(|digest| nars.forget_damaged(digest))?;
        Ok(gone)
    }
}

/// Takes away what no node needs, once a day. Cost: a look at the set of every node, where closures were uploaded.
pub(crate) async fn sweep(plane: &Arc<ControlPlane>) {
    let now = SystemTime::now();
    if !plane.closures.is_due(now) {
        return;
    }
    let heads = plane.heads();
    let mut roots = BTreeSet::new();
    for slot in plane.index.all().iter() {
        roots.extend(slot.pointed_root(&heads));
        // What it gets once its wave opens, which may be after weeks.
        let (_, hostname) = slot.names();
        roots.extend(heads.pointed(&hostname).map(|(_, entry)| entry.root));
    }
    let mut named = BTreeSet::new();
    for root in roots {
        match plane.sets.store_paths(&root).await {
            Ok(paths) => named.extend(paths),
            // What is not known to be needless stays.
            Err(error) => {
                return tracing::warn!(error = %crate::answer::chain(&error), "closures are not looked through");
            }
        }
    }
    let shelf = plane.closures.clone();
    match tokio::task::spawn_blocking(move || shelf.sweep(&named, now)).await {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(gone)) => tracing::info!(gone, "paths of closures that no node needs were removed"),
        Ok(Err(error)) => tracing::warn!(error = %crate::answer::chain(&error), "closures cannot be removed"),
    }
}

/// Verifies an hour's share of the archives.
pub(crate) async fn scrub(plane: Arc<ControlPlane>) {
    let shelf = plane.closures.clone();
    match tokio::task::spawn_blocking(move || shelf.scrub(SCRUB_BYTES)).await {
        Ok(Ok(gone)) => {
            for path in gone {
                tracing::error!(%path, "the archive of a path rotted and was removed: upload its closure again");
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(error = %crate::answer::chain(&error), "closures cannot be verified");
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::tests::{info, put};
    use super::super::{AskedPart, PathProgress};
    use super::*;

    /// ROL-9: what a set names stays with all that it needs; the rest goes after its time.
    #[test]
    fn what_nothing_names_goes_after_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = ClosureShelf::new(dir.path());
        let parts = [info(0, &[]), info(1, &[0]), info(2, &[0]), info(3, &[])];
        parts.iter().for_each(|part| put(&shelf, part));
        let there = |shelf: &ClosureShelf| {
            let is_there = |part: &&(NarInfo, Vec<u8>)| {
                let info = shelf.info(part.0.path.hash()).unwrap();
                assert_eq!(info.is_some(), shelf.nar(&part.0.nar_hash).unwrap().is_some());
                info.is_some()
            };
            parts.iter().filter(is_there).map(|part| part.0.path.name()[..1].to_owned()).collect::<String>()
        };
        let named = BTreeSet::from([parts[1].0.path.clone()]);
        assert_eq!(
            shelf.sweep(&BTreeSet::new(), SystemTime::now()).unwrap(),
            0,
            "they were uploaded just now"
        );
        let later = SystemTime::now() + KEPT_FOR + Duration::from_secs(60);
        assert_eq!(shelf.sweep(&named, later).unwrap(), 2);
        assert_eq!(there(&shelf), "01");
        // Its time begins when it was last named.
        assert_eq!(shelf.sweep(&BTreeSet::new(), later + KEPT_FOR / 2).unwrap(), 0);
        assert_eq!(shelf.sweep(&BTreeSet::new(), later + KEPT_FOR * 2).unwrap(), 2);
        assert_eq!(there(&shelf), "");
    }

    /// ROL-9: an archive that rotted is found, piece by piece of all of them, and its path is not here until it is
    /// uploaded again.
    #[test]
    fn what_rots_goes_and_is_uploaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = ClosureShelf::new(dir.path());
        let parts = [info(0, &[]), info(1, &[0]), info(2, &[0])];
        parts.iter().for_each(|part| put(&shelf, part));
        let (below, top) = (&parts[0], BTreeSet::from([parts[1].0.path.clone()]));
        let asked = AskedPart::Nar(below.0.nar_hash);
        assert!(shelf.has(&top, &asked).unwrap());
        let (file, length) = shelf.nar(&below.0.nar_hash).unwrap().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[1234] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        // One archive at a time: each is looked at within as many turns as there are.
        let gone: Vec<StorePath> = (0..parts.len()).flat_map(|_| shelf.scrub(1).unwrap()).collect();
        assert_eq!(gone, std::slice::from_ref(&below.0.path));
        assert_eq!(shelf.nar(&below.0.nar_hash).unwrap(), None);
        assert_eq!(shelf.info(below.0.path.hash()).unwrap(), None);
        assert!(!shelf.has(&top, &asked).unwrap(), "nobody is promised what is not here");
        let left = std::fs::read_dir(dir.path().join("closures/corrupt")).unwrap().count();
        assert_eq!(left, 0, "its bytes take no room");
        assert!(matches!(shelf.put(&parts[1].0, 0, &[]), Err(super::super::PutPathError::Lacking { .. })));
        assert_eq!(shelf.put(&below.0, 0, &below.1).unwrap(), PathProgress::Whole);
        assert_eq!(shelf.put(&parts[1].0, 0, &[]).unwrap(), PathProgress::Whole);
        assert!(
            shelf.has(&top, &asked).unwrap() && shelf.nar(&below.0.nar_hash).unwrap().unwrap().1 == length
        );
        assert!((0..10).flat_map(|_| shelf.scrub(1).unwrap()).next().is_none(), "all is well");
    }
}
