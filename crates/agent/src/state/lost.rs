//! A state directory that is lost while the agent runs: emptied, removed, replaced, or without parts of it.
//!
//! Written back is what the agent holds in memory, so that it goes on as the node that it is (LIF-10, IDN-1). The
//! rest was on the disk alone: contents and objects are fetched again, the ledger and kept versions are gone.

use std::fmt;

use model::log::FactBody;
use model::{Incarnation, Pause};
use node::{Adoption, FreshnessRecord, LastRun, Node, RebootMark, TrustRecord};
use spool::{FactLog, SpoolError, StateLock};

use super::{Durable, FactsWaiting, StateDir, StateError, fresh_incarnation, locked, spool};
use crate::clock::now;

/// The directories that an agent has from its start on.
const DIRECTORIES: [&str; 6] = ["ledger", "log", "content", "objects", "actions", "versions"];

/// What is lost of a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostState {
    /// It is another directory, or an empty one, than the one that was opened.
    replaced: bool,
    /// Which of its directories are gone.
    missing: Vec<&'static str>,
}

impl fmt::Display for LostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.replaced { "was emptied or replaced" } else { "lost parts" };
        write!(f, "the state directory {what} while the agent ran")?;
        match self.missing.is_empty() {
            true => Ok(()),
            false => write!(f, " (gone: {})", self.missing.join(", ")),
        }
    }
}

/// What the agent holds in memory of what it keeps.
pub struct RememberedState {
    /// The release held.
    pub adoption: Option<Adoption>,
    /// How fresh that is.
    pub freshness: Option<FreshnessRecord>,
    /// Whom the node believes, where that is not what the token named.
    pub trust: Option<TrustRecord>,
    /// The last run.
    pub last_run: Option<LastRun>,
    /// Why the host is paused.
    pub pause: Option<Pause>,
    /// The last reboot that was ordered.
    pub last_reboot: Option<RebootMark>,
    /// The first facts that wait.
    pub facts: FactsWaiting,
}

impl Durable {
    /// What is lost of the directory; `None` while it is as it was opened.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn lost(&self) -> Result<Option<LostState>, StateError> {
        let replaced = !self.has_lock()?;
        let missing: Vec<_> = DIRECTORIES.into_iter().filter(|name| !self.path.join(name).is_dir()).collect();
        Ok((replaced || !missing.is_empty()).then_some(LostState { replaced, missing }))
    }

    /// Makes the directory where it is gone, and not what it lay in: that may be a file system that is away.
    ///
    /// # Errors
    /// As [`StateDir::create`].
    pub fn make_directory(&self) -> Result<(), StateError> {
        use std::os::unix::fs::DirBuilderExt;
        if !self.path.is_dir() {
            let made = std::fs::DirBuilder::new().mode(0o700).create(&self.path);
            made.map_err(|source| StateError::Create { path: self.path.clone(), source })?;
        }
        StateDir::create(&self.path).map(drop)
    }

    fn has_lock(&self) -> Result<bool, StateError> {
        let in_place = self.lock.as_ref().map_or(Ok(true), |lock| lock.is_in_place(&self.path));
        in_place.map_err(spool("look at the state directory"))
    }

    /// Writes what the agent holds in memory to the directory that lies there now, for the next start. A release that
    /// was adopted there after the one in memory stays, and so do a later trust document and freshness.
    ///
    /// # Errors
    /// When another process has the directory, or the disk refuses.
    pub fn put_back(&self, lost: &LostState, held: &RememberedState) -> Result<(), StateError> {
        let lock = match self.has_lock()? {
            true => None,
            false => Some(StateLock::acquire(&self.path).map_err(spool("take the state directory"))?),
        };
        let dir = StateDir::at(&self.path, self.disk.clone());
        let there = dir.open_locked(lock)?;
        // First: what follows is judged by it.
        there.put_back_trust(&dir, held.trust.as_ref())?;
        if let Some(adoption) = &held.adoption
            && there.adoption()?.is_none_or(|found| found.floor.seq < adoption.floor.seq)
        {
            there.adoption.store(adoption).map_err(spool("record the release"))?;
        }
        there.put_back_freshness(held.freshness.as_ref())?;
        there.save_pause(&held.pause)?;
        if let Some(last) = &held.last_run {
            there.save_last_run(last)?;
        }
        if let Some(mark) = &held.last_reboot {
            there.save_reboot(mark)?;
        }
        let gone = append_again(&mut locked(&there.log), &held.facts, &fresh_incarnation()?);
        let gone = gone.map_err(spool("append to the log"))?;
        let facts = if gone > 0 { format!("; {gone} facts are lost") } else { String::new() };
        let message = format!("{lost}; the agent wrote back what it held in memory{facts}");
        there.append_all(vec![FactBody::Repaired { message }], now()).map(drop)
    }

    /// Keys that were dropped are not believed again (IDN-8).
    fn put_back_trust(&self, dir: &StateDir, held: Option<&TrustRecord>) -> Result<(), StateError> {
        let (Some(held), Some(member)) = (held, dir.membership()?) else { return Ok(()) };
        let found = Node::trusted(&member.trust, self.trust()?).version;
        // A record that begins at another document than the membership does not count.
        match Node::trusted(&member.trust, Some(held.clone())).version > found {
            true => self.save_trust(held),
            false => Ok(()),
        }
    }

    /// The newest time in any signature never goes back (IDN-11).
    fn put_back_freshness(&self, held: Option<&FreshnessRecord>) -> Result<(), StateError> {
        let (Some(held), Some(adoption)) = (held, self.adoption()?) else { return Ok(()) };
        let found = self.freshness(&adoption)?;
        let held = FreshnessRecord::restored(&adoption, Some(held));
        self.save_freshness(&found.with(held))
    }
}

/// Appends the facts that the log lacks; says how many more are nowhere. A log that is a copy of an earlier time
/// begins anew: its next numbers were used already.
fn append_again(log: &mut FactLog, held: &FactsWaiting, fresh: &Incarnation) -> Result<u64, SpoolError> {
    let same = *log.incarnation() == held.incarnation;
    let last = log.last();
    if same && last >= held.last {
        return Ok(0);
    }
    if same {
        log.ack(held.acked.min(last))?;
    }
    if last > 0 {
        log.begin_anew(fresh)?;
    }
    let known = if same { last } else { 0 };
    let lacking = held.facts.iter().filter(|fact| fact.seq > known);
    let mut appended = 0;
    for fact in lacking {
        log.stage(vec![fact.body.clone()], fact.at)?;
        appended += 1;
    }
    log.commit()?;
    Ok((held.last.saturating_sub(held.acked.max(known))).saturating_sub(appended))
}
