//! `ssh_key` on a host: a file in a home that its user owns.
//!
//! The user may put a link or another directory in the way at any moment. Nothing is written through
//! a link (see [`host`]), and what is made belongs to the user before it has its name.

use catalog::types::SshKeySpec;
use converge::JobFailure;
use converge::kinds::accounts::{AccountDatabase, UserRecord};
use converge::kinds::ssh_key;
use host::FileWrite;
use model::{Digest, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{MAX_EDITED, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};

/// Permission bits of the directory and of the file in a home; of a file elsewhere, which the
/// server reads as the user.
const DIRECTORY_MODE: u32 = 0o700;
const HOME_MODE: u32 = 0o600;
const ELSEWHERE_MODE: u32 = 0o644;

/// The home of a user, by name or number; `None` when there is no such user, or none can be found out.
pub(crate) fn home(user: &str, kinds: &Kinds) -> Option<String> {
    let database = kinds.account_database().ok()?;
    user_of(&database, user).map(|user| user.home.clone())
}

/// A user by name or number.
fn user_of<'d>(database: &'d AccountDatabase, user: &str) -> Option<&'d UserRecord> {
    let name = match user.parse() {
        Ok(uid) => database.user_name(uid),
        Err(_) => Some(user),
    };
    database.user(name?)
}

/// The file of a user.
struct KeyFile {
    path: String,
    directory: String,
    /// It lies in the user's home.
    at_home: bool,
    home: String,
    uid: u32,
    gid: u32,
}

impl KeyFile {
    /// `None` when there is no such user.
    fn of(spec: &SshKeySpec, kinds: &Kinds) -> Result<Option<KeyFile>, String> {
        let database = kinds.account_database()?;
        let Some(user) = user_of(&database, &spec.user) else { return Ok(None) };
        let home = user.home.trim_end_matches('/').to_owned();
        let path = spec.path.clone().unwrap_or_else(|| format!("{home}/.ssh/authorized_keys"));
        let (directory, _) = path.rsplit_once('/').ok_or_else(|| format!("{path} is not absolute"))?;
        let directory = directory.to_owned();
        let at_home = path.starts_with(&format!("{home}/")) && !home.is_empty();
        Ok(Some(KeyFile { path, directory, at_home, home, uid: user.uid, gid: user.gid }))
    }

    /// What is at the directory and at the file.
    fn look(&self, kinds: &Kinds) -> Result<[PathState; 2], String> {
        Ok([kinds.look(&self.directory)?, kinds.look(&self.path)?])
    }

    /// The file's text and its mode. Who owns the directory may have put any file there, so nothing is
    /// read that they could not read.
    fn read(&self, kinds: &Kinds) -> Result<Option<(String, u32)>, String> {
        if let other @ (PathState::Directory { .. } | PathState::Symlink { .. } | PathState::Other { .. }) =
            kinds.look(&self.path)?
        {
            return Err(format!("{} is not a regular file ({}); it is left alone", self.path, other.what()));
        }
        let wanted = PathOwnership { mode: None, ..self.ownership(HOME_MODE) };
        let Some(file) = kinds.host.read_to_give(&self.path, MAX_EDITED, &wanted).map_err(text)? else {
            return Ok(None);
        };
        let utf8 = String::from_utf8(file.bytes)
            .map_err(|_| format!("{} is not UTF-8 text; it is left alone", self.path))?;
        Ok(Some((utf8, file.ownership.mode.unwrap_or(HOME_MODE))))
    }

    fn ownership(&self, mode: u32) -> PathOwnership {
        let (uid, gid) = if self.at_home { (self.uid, self.gid) } else { (0, 0) };
        PathOwnership { mode: Some(mode), uid: Some(uid), gid: Some(gid) }
    }

    /// Makes the directory, or takes it from those who should not write it.
    fn prepare_directory(&self, kinds: &Kinds, now: &PathState) -> Result<(), String> {
        if !self.at_home {
            return Ok(());
        }
        let wanted = self.ownership(DIRECTORY_MODE);
        match now {
            PathState::Missing if kinds.look(&self.home)? == PathState::Missing => {
                Err(format!("its home {} does not exist; declare a `directory` for it", self.home))
            }
            PathState::Missing => {
                kinds.host.make_directory(&self.directory, &wanted, DIRECTORY_MODE).map_err(text)
            }
            now if ssh_key::is_private(&ssh_key::access(now, self.uid)) => Ok(()),
            _ => kinds.host.keep_directory(&self.directory, self.uid, &wanted).map_err(text),
        }
    }

    fn write(&self, kinds: &Kinds, now: Option<u32>, new: &str) -> Result<(), String> {
        let mode = match (now, self.at_home) {
            (Some(mode), _) => mode & !0o022,
            (None, true) => HOME_MODE,
            (None, false) => ELSEWHERE_MODE,
        };
        let write = FileWrite {
            content: &mut new.as_bytes(),
            digest: Digest::of(new.as_bytes()),
            ownership: self.ownership(mode),
            default_mode: mode,
            backup: false,
            validate: None,
        };
        kinds.host.write(&self.path, write).map_err(text)
    }
}

impl StateProvider for SshKeySpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let Some(file) = KeyFile::of(self, kinds)? else { return Ok(None) };
        let Some((bytes, _)) = file.read(kinds)? else { return Ok(None) };
        let Some(keys) = ssh_key::observe(self, &bytes) else { return Ok(None) };
        let mut access: Vec<String> = Vec::new();
        if kinds.host.enforces_ownership() {
            access.extend(file.look(kinds)?.iter().map(|state| ssh_key::access(state, file.uid)));
        }
        let private = ssh_key::access(&PathState::Missing, file.uid);
        let access = access.into_iter().find(|access| !ssh_key::is_private(access)).unwrap_or(private);
        Ok(Some(Fields::from([("keys".to_owned(), keys), ("access".to_owned(), access)])))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { to, .. } = change;
        let Some(file) = KeyFile::of(self, kinds)? else {
            return match to {
                Some(_) => {
                    let why = "on the host; declare a `user` before it";
                    Err(format!("there is no user `{}` {why}", self.user).into())
                }
                None => Ok(None),
            };
        };
        let directory = kinds.look(&file.directory)?;
        let (old, mode) = file.read(kinds)?.unzip();
        let keys = to.and_then(|to| to.get("keys")).map(String::as_str);
        let new = ssh_key::edit(self, old.as_deref().unwrap_or_default(), keys);
        if old.is_some() || keys.is_some() {
            file.prepare_directory(kinds, &directory)?;
            file.write(kinds, mode, &new)?;
        }
        Ok(None)
    }

    fn surroundings(&self, kinds: &Kinds) -> Result<Vec<String>, String> {
        let Some(file) = KeyFile::of(self, kinds)? else { return Ok(Vec::new()) };
        // The home itself is the user's, whoever makes it.
        let directory = Some(file.directory).filter(|directory| file.at_home && *directory != file.home);
        Ok([file.path].into_iter().chain(directory).collect())
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    fn works_below_root(&self) -> bool {
        true
    }
}
