//! [`AccountDatabase`]: users and groups as the host's own files hold them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use catalog::types::{PasswordHash, date_of_days};
use model::collect::CollectInserting;

/// Below this a uid or gid is the system's.
pub const FIRST_ORDINARY: u32 = 1000;
/// The number of `nobody` and `nogroup`.
const NOBODY: u32 = 65534;

/// Users and groups. Of two entries with one name the first counts; lines that are no entries are
/// ignored.
#[derive(Clone, Debug, Default)]
pub struct AccountDatabase {
    users: BTreeMap<String, UserRecord>,
    groups: BTreeMap<String, GroupRecord>,
    group_names: BTreeMap<u32, String>,
    user_names: BTreeMap<u32, String>,
    /// By user, the groups whose entries name it.
    memberships: BTreeMap<String, BTreeSet<String>>,
}

/// A line of the passwd file.
#[derive(Clone, Debug)]
pub struct UserRecord {
    /// Number.
    pub uid: u32,
    /// Number of the primary group.
    pub gid: u32,
    /// Full name.
    pub comment: String,
    /// Home directory.
    pub home: String,
    /// Login shell.
    pub shell: String,
    /// Its line of the shadow file.
    pub shadow: Option<ShadowRecord>,
}

/// A line of the shadow file.
#[derive(Clone)]
pub struct ShadowRecord {
    /// The hash.
    pub password: PasswordHash,
    /// The hash carries the mark of a locked password.
    pub locked: bool,
    /// The first day on which the account is expired, as a date; `never`.
    pub expires: String,
    /// `password_min_days`, as the file has it.
    pub min_days: String,
    /// `password_max_days`, as the file has it.
    pub max_days: String,
    /// `password_warn_days`, as the file has it.
    pub warn_days: String,
}

impl fmt::Debug for ShadowRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShadowRecord").field("locked", &self.locked).finish_non_exhaustive()
    }
}

/// A line of the group file.
#[derive(Clone, Debug)]
pub struct GroupRecord {
    /// Number.
    pub gid: u32,
    /// Names of the users that it lists.
    pub members: BTreeSet<String>,
}

impl AccountDatabase {
    /// Reads the texts of a passwd, a shadow and a group file.
    pub fn parse(passwd: &str, shadow: &str, group: &str) -> AccountDatabase {
        let mut shadows = BTreeMap::new();
        for line in shadow.lines() {
            if let Some((name, record)) = shadow_record(line) {
                shadows.entry(name).or_insert(record);
            }
        }
        let mut database = AccountDatabase::default();
        for line in passwd.lines() {
            let Some((name, mut record)) = user_record(line) else { continue };
            record.shadow = shadows.remove(name);
            database.user_names.entry(record.uid).or_insert_with(|| name.to_owned());
            database.users.entry(name.to_owned()).or_insert(record);
        }
        for line in group.lines() {
            let Some((name, record)) = group_record(line) else { continue };
            if database.groups.contains_key(name) {
                continue;
            }
            for member in &record.members {
                database.memberships.entry(member.clone()).or_default().insert(name.to_owned());
            }
            database.group_names.entry(record.gid).or_insert_with(|| name.to_owned());
            database.groups.insert(name.to_owned(), record);
        }
        database
    }

    /// A user by name.
    pub fn user(&self, name: &str) -> Option<&UserRecord> {
        self.users.get(name)
    }

    /// A group by name.
    pub fn group(&self, name: &str) -> Option<&GroupRecord> {
        self.groups.get(name)
    }

    /// The name of a group's number.
    pub fn group_name(&self, gid: u32) -> Option<&str> {
        self.group_names.get(&gid).map(String::as_str)
    }

    /// The name of the first user with this number.
    pub fn user_name(&self, uid: u32) -> Option<&str> {
        self.user_names.get(&uid).map(String::as_str)
    }

    /// The groups whose entries name a user.
    pub fn groups_of(&self, user: &str) -> impl Iterator<Item = &str> {
        self.memberships.get(user).into_iter().flatten().map(String::as_str)
    }

    /// The users whose primary group has this number.
    pub fn users_of_group(&self, gid: u32) -> impl Iterator<Item = &str> {
        self.users.iter().filter(move |(_, user)| user.gid == gid).map(|(name, _)| name.as_str())
    }

    /// The other users with this home.
    pub fn others_at_home<'a>(&'a self, name: &'a str, home: &'a str) -> impl Iterator<Item = &'a str> {
        let other = move |(other, user): &(&String, &UserRecord)| *other != name && user.home == home;
        self.users.iter().filter(other).map(|(name, _)| name.as_str())
    }
}

/// Whether a number belongs to the system rather than to people and their programs.
pub fn is_system_number(number: u32) -> bool {
    number < FIRST_ORDINARY || number == NOBODY
}

fn user_record(line: &str) -> Option<(&str, UserRecord)> {
    let parts: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, comment, home, shell, ..] = parts.as_slice() else { return None };
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    let text = |text: &&str| (*text).to_owned();
    let record =
        UserRecord { uid, gid, comment: text(comment), home: text(home), shell: text(shell), shadow: None };
    Some((name, record))
}

fn shadow_record(line: &str) -> Option<(&str, ShadowRecord)> {
    let parts: Vec<&str> = line.split(':').collect();
    let [name, password, _, min, max, warn, _, expires, ..] = parts.as_slice() else { return None };
    let text = |text: &&str| (*text).to_owned();
    let expires = expires.parse().ok().filter(|days| *days >= 0);
    let record = ShadowRecord {
        password: PasswordHash::of_shadow(password),
        locked: password.starts_with('!'),
        expires: expires.map_or_else(|| "never".to_owned(), date_of_days),
        min_days: text(min),
        max_days: text(max),
        warn_days: text(warn),
    };
    Some((name, record))
}

fn group_record(line: &str) -> Option<(&str, GroupRecord)> {
    let parts: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members, ..] = parts.as_slice() else { return None };
    let members =
        members.split(',').filter(|member| !member.is_empty()).map(str::to_owned).collect_inserting();
    Some((name, GroupRecord { gid: gid.parse().ok()?, members }))
}
