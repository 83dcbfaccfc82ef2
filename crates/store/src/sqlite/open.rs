//! Opens the file, locked against a second control plane.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::cell::OrFail;
use super::migrate::migrate;
use crate::error::{Result, StoreError};

/// Pages that the writer keeps in memory, in KiB. They are taken only as they are used.
const WRITER_CACHE_KIB: i64 = 16 * 1024;
/// The same for each reader.
const READER_CACHE_KIB: i64 = 2 * 1024;
/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 128;
/// Bytes of a page of a new database. Contents of objects lie close together in it, and many changes
/// of one write share it: a page costs a commit two system calls, and two more later.
const PAGE_BYTES: i64 = 16 * 1024;
/// The write-ahead log is brought into the database from so many pages on: a page that many writes
/// change is then written there once.
const CHECKPOINT_PAGES: i64 = 2_000;
/// The write-ahead log is cut back to this after a checkpoint, in bytes.
const WAL_LIMIT: i64 = 64 * 1024 * 1024;
/// How long SQLite itself waits for another connection; there is only one writer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// An open database.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) readers: Vec<Connection>,
    /// Held as long as the database is open.
    pub(super) lock: DatabaseLock,
    /// Tells the file from copies of it.
    pub(super) file: String,
}

/// The database is this process's alone as long as this lives.
#[derive(Debug)]
pub struct DatabaseLock(File);

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        // A child that was forked and is not its own program yet has the file too: closing it here
        // alone would leave the database locked for a moment.
        let _ = self.0.unlock();
    }
}

pub(super) fn open(path: &Path, readers: usize) -> Result<Opened> {
    let lock = lock(path)?;
    create(path)?;
    let writer = connect(path, WRITER_CACHE_KIB)?;
    let pragmas = format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
        PRAGMA journal_size_limit = {WAL_LIMIT}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
        PRAGMA temp_store = MEMORY;"
    );
    writer.execute_batch(&pragmas).or_fail("prepare the database")?;
    migrate(&writer)?;
    let readers = (0..readers).map(|_| {
        let reader = connect(path, READER_CACHE_KIB)?;
        reader.execute_batch("PRAGMA query_only = ON").or_fail("prepare a reader")?;
        Ok(reader)
    });
    let readers = readers.collect::<Result<_>>()?;
    Ok(Opened { writer, readers, lock, file: identity(path)? })
}

/// What tells a file from a copy of it: where it lies on its disk, and since when. One that is written over
/// in place is not told apart.
fn identity(path: &Path) -> Result<String> {
    let data = std::fs::metadata(path).map_err(|error| file_error("look at the database's file", error))?;
    let born = data.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{}-{}", data.ino(), born.map_or(0, |since| since.as_millis())))
}

fn connect(path: &Path, cache_kib: i64) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).or_fail("open the database")?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // A plan is made once for each statement: else SQLite makes many of them anew for every other
    // number that is bound, which took more time than the reading itself.
    let stable = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
    stable.or_fail("prepare a connection")?;
    connection.busy_timeout(PATIENCE).or_fail("prepare a connection")?;
    connection.pragma_update(None, "cache_size", -cache_kib).or_fail("prepare a connection")?;
    Ok(connection)
}

pub(super) fn lock(path: &Path) -> Result<DatabaseLock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(PathBuf::from(name))
        .map_err(|error| file_error("open the lock", error))?;
    match file.try_lock() {
        Ok(()) => Ok(DatabaseLock(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse),
        Err(TryLockError::Error(error)) => Err(file_error("lock the database", error)),
    }
}

/// Makes the file if there is none, readable for its owner alone, so that it is there
/// after a crash too.
pub(super) fn create(path: &Path) -> Result<()> {
    let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(file_error("create the database", error)),
        Ok(_) => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
        .and_then(|directory| directory.sync_all())
        .map_err(|error| file_error("create the database", error))
}

fn file_error(operation: &'static str, error: std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full,
        std::io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly,
        _ => StoreError::Backend { operation, source: Arc::new(error) },
    }
}
