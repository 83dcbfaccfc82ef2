//! `user` on a host.

use catalog::types::UserSpec;
use converge::JobFailure;
use converge::kinds::user;
use model::{Edit, Fields, PathState};

use crate::Kinds;
use crate::provider::{ChangeTurn, StateChange, StateProvider};

impl StateProvider for UserSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        Ok(user::observe(self, &*kinds.account_database()?))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        Ok(user::desired(self, now))
    }

    fn refuse(&self, kinds: &Kinds, edit: &Edit<Fields>) -> Result<(), String> {
        let database = kinds.account_database()?;
        if let Some(why) = user::refuse(self, &database, edit) {
            return Err(why);
        }
        match edit {
            Edit::Add { to } if self.create_home => {
                let home = to.get("home").cloned().unwrap_or_else(|| format!("/home/{}", self.name));
                free_for(kinds, &home, self.uid)
            }
            Edit::Change { to, .. } if self.move_home => match to.get("home") {
                Some(home)
                    if kinds.mount_of_path(&kinds.mounts_that_may_hang(), home).is_none()
                        && kinds.look(home)? != PathState::Missing =>
                {
                    Err(format!("its home cannot be moved to {home}: that is there already"))
                }
                Some(_) | None => Ok(()),
            },
            Edit::Remove { from } if self.remove_home => {
                let home = from.get("home").map_or("", String::as_str);
                match database.others_at_home(&self.name, home).next() {
                    Some(other) => Err(format!("its home {home} is that of {other} too; drop `remove_home`")),
                    None => Ok(()),
                }
            }
            Edit::Add { .. } | Edit::Change { .. } | Edit::Remove { .. } => Ok(()),
        }
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        let calls = user::calls(self, &*kinds.account_database()?, now, to);
        let uid = now.and_then(|now| now.get("uid")?.parse().ok());
        kinds.call_account_tools(calls, uid, timeout).map(|()| None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Accounts
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        user::note(self, edit)
    }
}

/// A home that is there already is nobody's but root's or the user's own.
fn free_for(kinds: &Kinds, home: &str, uid: Option<u32>) -> Result<(), String> {
    // Where it may hang only the tools look, which have a limit of time.
    if kinds.mount_of_path(&kinds.mounts_that_may_hang(), home).is_some() {
        return Ok(());
    }
    let owner = match kinds.look(home)? {
        PathState::Missing | PathState::Symlink { .. } => return Ok(()),
        PathState::Directory { uid: owner, .. } if owner == 0 || Some(owner) == uid => return Ok(()),
        PathState::Directory { uid: owner, .. } => owner,
        PathState::File { .. } | PathState::Other { .. } => {
            return Err(format!("its home {home} is not a directory; move that away"));
        }
    };
    let database = kinds.account_database()?;
    let name = database.user_name(owner).map_or_else(|| format!("the uid {owner}"), str::to_owned);
    Err(format!(
        "its home {home} is there and belongs to {name}; nothing is taken over: give it to root first, \
         declare another `home`, or `create_home: false`"
    ))
}
