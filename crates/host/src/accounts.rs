//! Users and groups as the host's own files name them, read once and kept.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::{Host, HostError};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// The largest account file, in bytes, that is read.
const MAX_ACCOUNTS: u64 = 16 * 1024 * 1024;
/// The accounts are read again after so long.
const FRESH: Duration = Duration::from_secs(1);
/// What no user or group can have as number.
const NOBODY: u32 = u32::MAX;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Number.
    pub uid: u32,
    /// Number of the primary group.
    pub gid: u32,
    /// Home directory.
    pub home: String,
}

/// Users and groups by name. `root` is always known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    users: BTreeMap<String, User>,
    groups: BTreeMap<String, u32>,
    user_names: BTreeMap<u32, String>,
    group_names: BTreeMap<u32, String>,
}

impl Accounts {
    /// Reads the text of a passwd and a group file; lines that are no entries are ignored,
    /// and of two entries with one name or number the first counts.
    pub fn parse(passwd: &str, group: &str) -> Accounts {
        let mut accounts = Accounts::default();
        let root = "root:x:0:0::/root:";
        for line in passwd.lines().chain([root]) {
            let mut parts = line.split(':');
            let (Some(name), _, Some(uid), Some(gid), _, Some(home)) =
                (parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if let (Some(uid), Some(gid)) = (number(uid), number(gid)) {
                let user = User { uid, gid, home: home.to_owned() };
                accounts.users.entry(name.to_owned()).or_insert(user);
                accounts.user_names.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        for line in group.lines().chain(["root:x:0:"]) {
            let mut parts = line.split(':');
            if let (Some(name), _, Some(Some(gid))) = (parts.next(), parts.next(), parts.next().map(number)) {
                accounts.groups.entry(name.to_owned()).or_insert(gid);
                accounts.group_names.entry(gid).or_insert_with(|| name.to_owned());
            }
        }
        accounts
    }

    /// A user by name or number. A number without entry has itself as group, and `/` as home.
    pub fn user(&self, name: &str) -> Option<User> {
        if let Some(user) = self.users.get(name) {
            return Some(user.clone());
        }
        let uid = number(name)?;
        let known = self.user_names.get(&uid).and_then(|name| self.users.get(name)).cloned();
        Some(known.unwrap_or(User { uid, gid: uid, home: "/".to_owned() }))
    }

    /// A user's number by name or number.
    pub fn uid(&self, name: &str) -> Option<u32> {
        self.users.get(name).map(|user| user.uid).or_else(|| number(name))
    }

    /// A group's number by name or number.
    pub fn gid(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied().or_else(|| number(name))
    }

    /// The name of a user's number.
    pub fn user_name(&self, uid: u32) -> Option<&str> {
        self.user_names.get(&uid).map(String::as_str)
    }

    /// The name of a group's number.
    pub fn group_name(&self, gid: u32) -> Option<&str> {
        self.group_names.get(&gid).map(String::as_str)
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != NOBODY)
}

/// The accounts last read, and when.
pub(crate) type AccountCache = Option<(Arc<Accounts>, Instant)>;

/// The accounts; the files are read when that was not done in the last second, or in any case
/// when `look`.
pub(crate) fn current(host: &Host, look: bool) -> Result<Arc<Accounts>, HostError> {
    let mut cache = host.accounts.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = cache.as_ref().filter(|(_, read)| !look && read.elapsed() < FRESH);
    if let Some((accounts, _)) = fresh {
        return Ok(Arc::clone(accounts));
    }
    let text = |path| {
        let bytes = host.read_followed(path, MAX_ACCOUNTS)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let accounts = Arc::new(Accounts::parse(&text(PASSWD)?, &text(GROUP)?));
    Ok(cache.insert((accounts, Instant::now())).0.clone())
}
