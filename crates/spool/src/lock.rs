//! One process for each state directory, and one at a time that changes a file which several processes write.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::DiskOp;
use crate::disk::failed;
use crate::error::{Result, SpoolError};

/// Name of the lock's file in the directory.
pub const NAME: &str = "lock";

/// The state directory is this process's alone as long as this lives; the kernel gives it
/// back however the process ends.
#[derive(Debug)]
pub struct StateLock {
    file: File,
}

impl StateLock {
    /// Takes the directory, which must be there. Never waits.
    ///
    /// # Errors
    /// [`SpoolError::Locked`] names the process that has it; and those of the disk.
    pub fn acquire(directory: &Path) -> Result<StateLock> {
        let path = directory.join(NAME);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(&path).map_err(|error| failed(DiskOp::Open, &path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SpoolError::Locked { pid: holder(&mut file), path }),
            Err(TryLockError::Error(error)) => return Err(failed(DiskOp::Lock, &path, error)),
        }
        // Only for the message of the process that comes second: a full disk is no reason
        // not to start (LIF-10).
        let _ = say_pid(&mut file);
        Ok(StateLock { file })
    }
}

impl StateLock {
    /// Whether the directory still has this lock's file: not after it was emptied, removed or replaced.
    ///
    /// # Errors
    /// When that cannot be looked at.
    pub fn is_in_place(&self, directory: &Path) -> Result<bool> {
        let path = directory.join(NAME);
        let held = self.file.metadata().map_err(|error| failed(DiskOp::Read, &path, error))?;
        match std::fs::metadata(&path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(DiskOp::Read, &path, error)),
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // A child that was forked and is not its own program yet has the file too: closing it here
        // alone would leave the directory locked for a moment.
        let _ = self.file.unlock();
    }
}

/// How long a turn at a directory may be waited for: whoever has it reads one small file and writes it.
pub const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether the turn is free.
const TURN_LOOK: Duration = Duration::from_millis(5);

/// A turn at changing what several processes write in one directory: the lock of the directory itself, which leaves no
/// file behind. The kernel gives it back however the process ends.
#[derive(Debug)]
pub struct DirectoryTurn {
    directory: File,
}

impl DirectoryTurn {
    /// Takes the turn, for which it waits at most [`TURN_WITHIN`].
    ///
    /// # Errors
    /// [`SpoolError::TurnTaken`] when another process keeps it for longer; and those of the disk.
    pub fn take(directory: &Path) -> Result<DirectoryTurn> {
        let file = File::open(directory).map_err(|error| failed(DiskOp::Open, directory, error))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(DirectoryTurn { directory: file }),
                Err(TryLockError::Error(error)) => return Err(failed(DiskOp::Lock, directory, error)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < TURN_WITHIN => {
                    std::thread::sleep(TURN_LOOK)
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(SpoolError::TurnTaken { path: directory.to_owned() });
                }
            }
        }
    }
}

impl Drop for DirectoryTurn {
    fn drop(&mut self) {
        // As for a state lock: a child may have the file too.
        let _ = self.directory.unlock();
    }
}

fn say_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn the_second_is_told_who_is_first() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateLock::acquire(directory.path()).unwrap();
        let error = StateLock::acquire(directory.path()).unwrap_err();
        assert!(matches!(error, SpoolError::Locked { pid: Some(pid), .. } if pid == std::process::id()));
        assert!(error.to_string().contains(&std::process::id().to_string()));
        drop(first);
        StateLock::acquire(directory.path()).unwrap();
    }

    #[test]
    fn a_directory_that_was_emptied_or_replaced_has_another_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let lock = StateLock::acquire(&path).unwrap();
        assert!(lock.is_in_place(&path).unwrap());
        let aside = directory.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        assert!(!lock.is_in_place(&path).unwrap(), "it is gone");
        std::fs::create_dir(&path).unwrap();
        let _other = StateLock::acquire(&path).unwrap();
        assert!(!lock.is_in_place(&path).unwrap(), "it is another one");
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        assert!(lock.is_in_place(&path).unwrap());
        std::fs::remove_file(path.join(NAME)).unwrap();
        assert!(!lock.is_in_place(&path).unwrap(), "it was emptied");
    }
}
