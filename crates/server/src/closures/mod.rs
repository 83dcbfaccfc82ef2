//! [`ClosureShelf`]: closures of NixOS for nodes that reach no cache (ROL-9), in files beside the database.
//!
//! ```text
//! DATA/closures/paths/HASH.narinfo   what is known of a path, with the signatures of its cache
//!              /blobs, partial       archives by SHA-256; those that are on their way
//! ```
//!
//! Invariants:
//! - A path is there only once all that it needs is, and its archive has the SHA-256 that its narinfo states.
//! - What is there of a path never changes, but that signatures are added which a later upload brings.
//! - Nothing is believed of who signed what: nodes verify that by the keys that their release pins.
//! - A path that no set names which a node is pointed to, or will be once its wave opens, goes [`KEPT_FOR`] after it was last
//!   named or uploaded.
//! - An archive that rotted goes, with what is known of its path: it is uploaded again ([`upkeep`]).

mod parts;
mod turns;
mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use model::Digest;
use spool::atomic::{read_file, write_file};
use spool::{BlobStore, Disk, SpoolError};
use trust::nix::{MAX_NAR, MAX_NARINFO, NarCompression, NarInfo, StorePath, is_store_hash};

pub(crate) use self::parts::AskedPart;
use self::parts::{ClosurePart, PathHash};
pub(crate) use self::turns::{ClosureTurn, ClosureTurns};
pub(crate) use self::upkeep::{scrub, sweep};
use crate::cache::ByteCache;

/// The most bytes of all archives together.
pub(crate) const MAX_CLOSURES: u64 = 256 * 1024 * 1024 * 1024;
/// What stays free on the disk, in MiB: the database may be on it.
const RESERVE_MIB: u64 = 1024;
/// How long a path stays that nothing names any more.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(14 * 24 * 3600);
/// What paths need, kept in memory, in bytes: about 70,000 paths. Hosts of one fleet share most of theirs.
const PARTS_BYTES: u64 = 32 * 1024 * 1024;
const MODE: u32 = 0o600;

/// Why a piece of a path is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutPathError {
    /// The archive is packed: its pieces could not be verified by its hash.
    #[error(
        "the archive of {0} is packed: upload from a folder that `nix copy --to \
         'file:///DIR?compression=none' PATH` made"
    )]
    Packed(StorePath),
    /// A path that it needs is not there.
    #[error("{path} needs {needs}, which is not here: what is needed comes first")]
    Lacking {
        /// The path.
        path: StorePath,
        /// What it needs.
        needs: StorePath,
    },
    /// The path is there with another archive.
    #[error("{0} is here with other bytes: two builds of it differ, and a node would get either")]
    Other(StorePath),
    /// The disk is too full.
    #[error(
        "the control plane's disk has {left_mib} MiB left for {size_mib} MiB, and {RESERVE_MIB} MiB stay free for its \
         database"
    )]
    NoRoom {
        /// What is left of the disk.
        left_mib: u64,
        /// What would come.
        size_mib: u64,
    },
    /// It cannot be kept.
    #[error("the closure cannot be kept")]
    Spool(#[from] SpoolError),
}

/// How far a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathProgress {
    /// So many bytes of its archive are here.
    Partial(u64),
    /// All of it is here.
    Whole,
}

/// The closures of one control plane. What touches the disk waits for it.
pub(crate) struct ClosureShelf {
    dir: PathBuf,
    disk: Disk,
    /// Opened by the first upload, or where there is one.
    nars: Mutex<Option<Arc<BlobStore>>>,
    /// What stays free on the disk, in MiB.
    reserve_mib: u64,
    /// Locked while a piece is taken or paths are removed, which may take minutes; whoever reads does not wait for it.
    writing: Mutex<()>,
    /// What paths need.
    parts: ByteCache<Arc<ClosurePart>, PathHash>,
    swept: Mutex<SweepTimes>,
    /// The last archive that was verified, while there are some after it; locked by who verifies.
    scrubbed: Mutex<Option<Digest>>,
}

#[derive(Default)]
struct SweepTimes {
    put: Option<SystemTime>,
    swept: Option<SystemTime>,
}

fn too_large(what: &'static str, limit: u64) -> SpoolError {
    SpoolError::TooLarge { what, limit }
}

/// The time after which a path goes counts from now on: it was named or uploaded. Where that cannot be written down it goes
/// earlier, and is uploaded again.
fn begins_anew(info_file: &Path, now: SystemTime) {
    let file = std::fs::File::open(info_file);
    let _ = file.and_then(|file| file.set_modified(now));
}

impl ClosureShelf {
    /// The closures in a control plane's directory; nothing is read or made yet.
    pub(crate) fn new(data: &Path) -> ClosureShelf {
        ClosureShelf {
            dir: data.join("closures"),
            disk: Disk::new(),
            nars: Mutex::default(),
            reserve_mib: RESERVE_MIB,
            writing: Mutex::default(),
            parts: ByteCache::new(PARTS_BYTES),
            swept: Mutex::default(),
            scrubbed: Mutex::default(),
        }
    }

    fn info_file(&self, hash: &str) -> PathBuf {
        self.dir.join("paths").join(format!("{hash}.narinfo"))
    }

    /// One writes at a time.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The archives, where there are some.
    fn opened(&self) -> Result<Option<Arc<BlobStore>>, SpoolError> {
        let mut nars = self.nars.lock().unwrap_or_else(PoisonError::into_inner);
        if nars.is_none() && self.dir.is_dir() {
            *nars = Some(Arc::new(BlobStore::open_dir(&self.disk, &self.dir, MAX_CLOSURES)?));
        }
        Ok(nars.clone())
    }

    /// What is known of the path with this hash.
    pub(crate) fn info(&self, hash: &str) -> Result<Option<NarInfo>, SpoolError> {
        if !is_store_hash(hash) {
            return Ok(None);
        }
        let text = read_file(&self.info_file(hash), MAX_NARINFO as u64)?;
        let info = text.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        Ok(info.filter(|info: &NarInfo| info.path.hash() == hash))
    }

    /// Whether so many bytes more fit on the disk.
    fn has_room(&self, bytes: u64) -> Result<(), PutPathError> {
        let failed = |errno: rustix::io::Errno| SpoolError::Disk {
            op: spool::DiskOp::Read,
            path: self.dir.clone(),
            source: errno.into(),
        };
        let stat = rustix::fs::statvfs(&self.dir).map_err(failed)?;
        let (left_mib, size_mib) = (stat.f_bavail.saturating_mul(stat.f_frsize) >> 20, bytes >> 20);
        match size_mib.saturating_add(self.reserve_mib) > left_mib {
            true => Err(PutPathError::NoRoom { left_mib, size_mib }),
            false => Ok(()),
        }
    }

    /// The file of an archive, and its length.
    pub(crate) fn nar(&self, digest: &Digest) -> Result<Option<(PathBuf, u64)>, SpoolError> {
        let Some(nars) = self.opened()? else { return Ok(None) };
        Ok(nars.size(digest).map(|size| (nars.path(digest), size)))
    }

    /// Takes a piece of a path's archive, which begins at `from`; says how far it is, so that a piece that does not go
    /// on from there is sent again from there. An empty piece asks.
    ///
    /// # Errors
    /// [`PutPathError`]; what came before stays.
    pub(crate) fn put(&self, info: &NarInfo, from: u64, piece: &[u8]) -> Result<PathProgress, PutPathError> {
        if info.compression != NarCompression::None {
            return Err(PutPathError::Packed(info.path.clone()));
        }
        let _turn = self.turn();
        for needs in info.needs() {
            if self.info(needs.hash())?.is_none_or(|known| known.path != *needs) {
                return Err(PutPathError::Lacking { path: info.path.clone(), needs: needs.clone() });
            }
        }
        self.disk.make_dir(&self.dir.join("paths"))?;
        let nars = self.opened()?.ok_or_else(|| PutPathError::Other(info.path.clone()))?;
        self.times().put = Some(SystemTime::now());
        let known = self.info(info.path.hash())?;
        if known.as_ref().is_some_and(|known| known.fingerprint() != info.fingerprint()) {
            return Err(PutPathError::Other(info.path.clone()));
        }
        if !nars.has(&info.nar_hash) {
            let mut partial = nars.partial(&info.nar_hash)?;
            if partial.offset() == from && !piece.is_empty() {
                let comes = info.nar_size.saturating_sub(from);
                if nars.total().saturating_add(nars.partial_total()?).saturating_add(comes) > MAX_CLOSURES {
                    return Err(too_large("all closures together", MAX_CLOSURES).into());
                }
                self.has_room(comes)?;
                partial.write(piece, info.nar_size.min(MAX_NAR))?;
            }
            if partial.offset() < info.nar_size {
                return Ok(PathProgress::Partial(partial.offset()));
            }
            nars.finish(&info.nar_hash)?;
        }
        let own = match &known {
            // It may have been uploaded before its cache signed it.
            Some(known) => known.clone().with_signatures_of(info),
            None => info.clone().unpacked_at(info.nar_hash.to_string()),
        };
        let (file, text) = (self.info_file(info.path.hash()), own.to_string());
        if text.len() > MAX_NARINFO {
            return Err(too_large("a narinfo", MAX_NARINFO as u64).into());
        }
        if known.as_ref() == Some(&own) {
            begins_anew(&file, SystemTime::now());
        } else {
            write_file(&self.disk, &file, text.as_bytes(), MODE)?;
        }
        Ok(PathProgress::Whole)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    pub(crate) fn info(number: u8, needs: &[u8]) -> (NarInfo, Vec<u8>) {
        let path = |number: u8| StorePath::of_name(&format!("{}-p", number.to_string().repeat(32))).unwrap();
        let nar = vec![number; 3000];
        let references: Vec<String> = needs.iter().map(|needs| path(*needs).name().to_owned()).collect();
        let text = format!(
            "StorePath: {}\nURL: nar/x\nCompression: none\nNarHash: sha256:{}\nNarSize: {}\nReferences: {}\n",
            path(number),
            Digest::of(&nar),
            nar.len(),
            references.join(" ")
        );
        (text.parse().unwrap(), nar)
    }

    pub(crate) fn put(shelf: &ClosureShelf, (info, nar): &(NarInfo, Vec<u8>)) {
        assert_eq!(shelf.put(info, 0, nar).unwrap(), PathProgress::Whole);
    }

    /// ROL-9: a path comes after what it needs, its archive is resumed and verified, and what is there stays as it is.
    #[test]
    fn a_path_is_there_once_it_and_all_that_it_needs_is() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = ClosureShelf::new(dir.path());
        let (above, below) = (info(1, &[0]), info(0, &[]));
        assert!(matches!(shelf.put(&above.0, 0, &above.1), Err(PutPathError::Lacking { .. })));
        assert_eq!(shelf.put(&below.0, 0, &below.1[..1000]).unwrap(), PathProgress::Partial(1000));
        // Broken off, asked, and sent again from another place.
        assert_eq!(shelf.put(&below.0, 0, &[]).unwrap(), PathProgress::Partial(1000));
        assert_eq!(shelf.put(&below.0, 500, &below.1[500..]).unwrap(), PathProgress::Partial(1000));
        assert!(shelf.info(below.0.path.hash()).unwrap().is_none());
        assert_eq!(shelf.put(&below.0, 1000, &below.1[1000..]).unwrap(), PathProgress::Whole);
        assert_eq!(shelf.put(&below.0, 0, &[]).unwrap(), PathProgress::Whole);
        put(&shelf, &above);
        let again = ClosureShelf::new(dir.path());
        let info_of = |part: &(NarInfo, Vec<u8>)| AskedPart::Info(part.0.path.hash().to_owned());
        let of = |part: &(NarInfo, Vec<u8>)| std::collections::BTreeSet::from([part.0.path.clone()]);
        assert!(again.has(&of(&above), &info_of(&below)).unwrap());
        assert!(again.has(&of(&above), &AskedPart::Nar(below.0.nar_hash)).unwrap());
        assert!(!again.has(&of(&below), &info_of(&above)).unwrap());
        // Other bytes under the hash, and another archive of the same path.
        let wrong = info(2, &[]);
        assert!(matches!(
            shelf.put(&wrong.0, 0, &[9; 3000]),
            Err(PutPathError::Spool(SpoolError::WrongDigest { .. }))
        ));
        assert!(shelf.info(wrong.0.path.hash()).unwrap().is_none());
        put(&shelf, &wrong);
        let own = info(3, &[]).0;
        let renamed = own.to_string().replace(own.path.name(), wrong.0.path.name());
        let other: NarInfo = renamed.parse().unwrap();
        assert!(matches!(shelf.put(&other, 0, &[]), Err(PutPathError::Other(_))));
        // What was uploaded before it was signed gets its signature.
        let unsigned = wrong.0.clone();
        let signed = unsigned.clone().signed("cache-1", &[7; 64]);
        assert_eq!(shelf.put(&signed, 0, &[]).unwrap(), PathProgress::Whole);
        assert_eq!(shelf.put(&unsigned, 0, &[]).unwrap(), PathProgress::Whole);
        let kept = shelf.info(unsigned.path.hash()).unwrap().unwrap();
        assert_eq!(kept, signed.unpacked_at(unsigned.nar_hash.to_string()));
        let packed: NarInfo = wrong.0.to_string().replace("none", "xz").parse().unwrap();
        assert!(matches!(shelf.put(&packed, 0, &[]), Err(PutPathError::Packed(_))));
    }

    /// ROL-9: neither the bound of all closures nor the disk that the database is on is passed.
    #[test]
    fn what_has_no_room_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut shelf = ClosureShelf::new(dir.path());
        put(&shelf, &info(0, &[]));
        let (next, nar) = info(1, &[]);
        // Another upload that is under way, of which nothing takes room on the disk.
        let partial = dir.path().join("closures/partial").join(Digest::of(b"another").to_string());
        let other = std::fs::File::create(&partial).unwrap();
        other.set_len(MAX_CLOSURES - 4000).unwrap();
        let full = shelf.put(&next, 0, &nar[..1000]);
        assert!(matches!(full, Err(PutPathError::Spool(SpoolError::TooLarge { .. }))), "{full:?}");
        other.set_len(0).unwrap();
        shelf.reserve_mib = u64::MAX;
        let full = shelf.put(&next, 0, &nar[..1000]);
        assert!(matches!(full, Err(PutPathError::NoRoom { .. })), "{full:?}");
        shelf.reserve_mib = 0;
        assert_eq!(shelf.put(&next, 0, &nar).unwrap(), PathProgress::Whole);
    }
}
