//! Hosts that ask to join: who is let in, who waits for an operator, and how fast (ENR-9, CFG-8).
//!
//! ```text
//! request --JoinPacer: one of so many a second--> judge(ground, declared key, what was decided before)
//!   Admit(KeyConfirmation)   certified and recorded in one transaction
//!   Wait                     kept in PendingJoins, within bounds; no access of any sort
//!   Denied, OtherKeyDeclared refused, each time
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Hostname, JoinState, KeyConfirmation, NodeId, PendingJoin, Timestamp};
use trust::group_token::GroupAdmission;

/// Joins that are looked at in a second, once [`JOINS_AT_ONCE`] are spent: each costs two verified signatures, a
/// signed certificate and a share of a durable write.
pub const JOINS_PER_SEC: u32 = 100;
/// Joins that are looked at at once after a rest.
pub const JOINS_AT_ONCE: u32 = 200;
/// The longest that a host is told to stay away before it asks again.
pub const MAX_JOIN_WAIT: Duration = Duration::from_secs(300);
/// The most hosts that wait for an operator.
pub const MAX_PENDING: usize = 1000;
/// The most of them from one address prefix.
pub const MAX_PENDING_PER_PREFIX: usize = 64;
/// The most keys that stay denied.
pub const MAX_DENIED: usize = 10_000;
/// A host that waits and does not ask again within this is forgotten.
pub const PENDING_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How soon a host that waits asks again, at first.
pub const PENDING_POLL: Duration = Duration::from_secs(15);
/// One that has waited for long asks once in this.
pub const MAX_PENDING_POLL: Duration = Duration::from_secs(300);

/// By what a host asks to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinGround {
    /// A token for just its hostname, which names its key or not.
    Token(TokenBinding),
    /// A group token.
    Group(GroupAdmission),
    /// Nothing but its key.
    Nothing,
}

/// Whether a token names the key that may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenBinding {
    /// It does.
    NamesKey,
    /// Whoever holds it may use it, once.
    NamesNoKey,
}

/// What the fleet repo declares of a host's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredKey {
    /// Nothing.
    None,
    /// That it is this one.
    Same,
    /// That it is another one.
    Other,
}

/// What becomes of a request to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinVerdict {
    /// It is let in, and its key is confirmed by this.
    Admit(KeyConfirmation),
    /// An operator decides.
    Wait,
    /// An operator denied its key.
    Denied,
    /// The fleet repo declares another key for this hostname.
    OtherKeyDeclared,
}

/// Judges a request to join whose key is proven. What a signature of the root key or the release key says comes before
/// what operators decided at the control plane.
pub fn judge(ground: JoinGround, declared: DeclaredKey, kept: Option<JoinState>) -> JoinVerdict {
    match (declared, ground, kept) {
        (DeclaredKey::Other, _, _) => JoinVerdict::OtherKeyDeclared,
        (DeclaredKey::Same, _, _) => JoinVerdict::Admit(KeyConfirmation::Declared),
        (_, JoinGround::Token(TokenBinding::NamesKey), _) => JoinVerdict::Admit(KeyConfirmation::Token),
        (_, JoinGround::Token(TokenBinding::NamesNoKey), _) => JoinVerdict::Admit(KeyConfirmation::None),
        (_, _, Some(JoinState::Denied)) => JoinVerdict::Denied,
        (_, _, Some(JoinState::Approved)) => JoinVerdict::Admit(KeyConfirmation::Operator),
        (_, JoinGround::Group(GroupAdmission::ByToken), _) => JoinVerdict::Admit(KeyConfirmation::None),
        (_, JoinGround::Group(GroupAdmission::ByOperator) | JoinGround::Nothing, _) => JoinVerdict::Wait,
    }
}

/// By whose word a node's key is its host's now: the fleet repo may have declared it since the node joined.
pub fn confirmation_now(recorded: KeyConfirmation, declared: DeclaredKey) -> KeyConfirmation {
    match declared {
        DeclaredKey::Same => KeyConfirmation::Declared,
        DeclaredKey::None | DeclaredKey::Other => recorded,
    }
}

/// How fast joins are looked at, and when those come back that are too many now. Each of these is given a moment of its
/// own, so that a storm comes back as a line and not as a storm (WIR-6).
#[derive(Clone, Debug)]
pub struct JoinPacer {
    /// When the bucket would be full again, in microseconds: a request moves it by one interval.
    full_at: i64,
    /// The last moment that was given to somebody to come back at, in microseconds.
    promised: i64,
}

/// Microseconds between two joins.
const INTERVAL: i64 = 1_000_000 / JOINS_PER_SEC as i64;
/// How far the bucket may be from full, in microseconds.
const DEPTH: i64 = INTERVAL * JOINS_AT_ONCE as i64;

impl Default for JoinPacer {
    fn default() -> JoinPacer {
        JoinPacer { full_at: i64::MIN, promised: i64::MIN }
    }
}

impl JoinPacer {
    /// Takes one of the joins that are looked at now.
    ///
    /// # Errors
    /// How long to stay away: at most [`MAX_JOIN_WAIT`].
    pub fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        let now = now.0.saturating_mul(1000);
        // A clock that was set back holds nobody up for longer than an empty bucket does.
        self.full_at = self.full_at.clamp(now, now.saturating_add(DEPTH));
        if self.full_at.saturating_add(INTERVAL) <= now.saturating_add(DEPTH) {
            self.full_at += INTERVAL;
            return Ok(());
        }
        let longest = i64::try_from(MAX_JOIN_WAIT.as_micros()).unwrap_or(i64::MAX);
        let next = self.promised.clamp(now, now.saturating_add(longest)).saturating_add(INTERVAL);
        self.promised = next.min(now.saturating_add(longest));
        Err(Duration::from_micros(u64::try_from(self.promised - now).unwrap_or(0)))
    }
}

/// Why a host cannot wait for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinBoundError {
    /// As many wait as may.
    #[error("{MAX_PENDING} hosts wait for approval already")]
    All,
    /// As many of its network wait as may.
    #[error("{MAX_PENDING_PER_PREFIX} hosts of this network wait for approval already")]
    Prefix,
    /// As many keys are denied as may be.
    #[error("{MAX_DENIED} keys are denied: forget those that ask no more")]
    Denied,
}

/// The keys that asked to join and are no nodes.
#[derive(Clone, Debug, Default)]
pub struct PendingJoins(BTreeMap<NodeId, HeardJoin>);

/// A key that asked to join, and when it did so last.
#[derive(Clone, Debug)]
pub struct HeardJoin {
    /// The key.
    pub join: PendingJoin,
    /// When it last asked; of before a start of the control plane, that start.
    pub heard: Timestamp,
}

impl PendingJoins {
    /// Those that were kept, at a start.
    pub fn restored(joins: Vec<PendingJoin>, now: Timestamp) -> PendingJoins {
        let heard = |join: PendingJoin| (join.node_id.clone(), HeardJoin { join, heard: now });
        PendingJoins(joins.into_iter().map(heard).collect())
    }

    /// A key asks again under a hostname: how it stands. What was decided for another hostname counts for that one
    /// alone, but a denial is of the key.
    pub fn asks(&mut self, id: &NodeId, hostname: &Hostname, now: Timestamp) -> Option<JoinState> {
        let kept = self.0.get_mut(id)?;
        kept.heard = now;
        let is_same = kept.join.hostname == *hostname;
        (is_same || kept.join.state == JoinState::Denied).then_some(kept.join.state)
    }

    /// Whether one more host of an address prefix may wait.
    ///
    /// # Errors
    /// The bound that is reached.
    pub fn room(&self, id: &NodeId, prefix: &str) -> Result<(), JoinBoundError> {
        let waiting = || {
            let others = self.0.iter().filter(|(other, _)| *other != id);
            others.filter(|(_, kept)| kept.join.state != JoinState::Denied)
        };
        if waiting().count() >= MAX_PENDING {
            return Err(JoinBoundError::All);
        }
        match waiting().filter(|(_, kept)| kept.join.prefix == prefix).count() {
            MAX_PENDING_PER_PREFIX.. => Err(JoinBoundError::Prefix),
            _ => Ok(()),
        }
    }

    /// Whether one more key may be denied.
    ///
    /// # Errors
    /// [`JoinBoundError::Denied`].
    pub fn room_for_denial(&self) -> Result<(), JoinBoundError> {
        let denied = self.0.values().filter(|kept| kept.join.state == JoinState::Denied).count();
        if denied >= MAX_DENIED { Err(JoinBoundError::Denied) } else { Ok(()) }
    }

    /// Keeps a key as it is now.
    pub fn keep(&mut self, join: PendingJoin, now: Timestamp) {
        self.0.insert(join.node_id.clone(), HeardJoin { join, heard: now });
    }

    /// Changes one that is kept.
    pub fn change(&mut self, join: PendingJoin) {
        if let Some(kept) = self.0.get_mut(&join.node_id) {
            kept.join = join;
        }
    }

    /// Forgets a key.
    pub fn forget(&mut self, id: &NodeId) {
        self.0.remove(id);
    }

    /// One key by the id of the node that it would be.
    pub fn get(&self, id: &NodeId) -> Option<&HeardJoin> {
        self.0.get(id)
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<&HeardJoin> {
        let mut all: Vec<_> = self.0.values().collect();
        all.sort_by(|a, b| (a.join.since, &a.join.node_id).cmp(&(b.join.since, &b.join.node_id)));
        all
    }

    /// Those that are meant by a hostname, or by the id of the node that a key would be.
    pub fn named(&self, name: &str) -> Vec<&HeardJoin> {
        let is_named =
            |kept: &&HeardJoin| kept.join.node_id.as_str() == name || kept.join.hostname.as_str() == name;
        self.all().into_iter().filter(is_named).collect()
    }

    /// Those that are forgotten, as they did not ask again. A denied key stays.
    pub fn lapsed(&self, now: Timestamp) -> Vec<NodeId> {
        let lapsed =
            |kept: &&HeardJoin| kept.join.state != JoinState::Denied && now.since(kept.heard) > PENDING_KEPT;
        self.0.values().filter(lapsed).map(|kept| kept.join.node_id.clone()).collect()
    }
}

/// How soon a host that has waited since then asks again: ever later, within bounds.
pub fn poll_again_in(since: Timestamp, now: Timestamp) -> Duration {
    (now.since(since) / 8).clamp(PENDING_POLL, MAX_PENDING_POLL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-8: a key that the fleet repo declares is the host's by its word, also where that came after the join.
    #[test]
    fn a_key_that_is_declared_later_is_the_fleet_repos_word() {
        use DeclaredKey::{None as Undeclared, Other, Same};
        for recorded in KeyConfirmation::ALL {
            assert_eq!(confirmation_now(recorded, Same), KeyConfirmation::Declared);
            assert_eq!([Undeclared, Other].map(|it| confirmation_now(recorded, it)), [recorded; 2]);
        }
    }

    /// ENR-9, CFG-8: who is let in, and by whose word.
    #[test]
    fn what_is_signed_comes_before_what_is_clicked() {
        use DeclaredKey::{None as Undeclared, Other, Same};
        use JoinVerdict::{Admit, Denied, OtherKeyDeclared, Wait};
        let named = JoinGround::Token(TokenBinding::NamesKey);
        let unnamed = JoinGround::Token(TokenBinding::NamesNoKey);
        let group = JoinGround::Group(GroupAdmission::ByOperator);
        let open = JoinGround::Group(GroupAdmission::ByToken);
        let nothing = JoinGround::Nothing;
        let (waiting, approved, denied) =
            (Some(JoinState::Waiting), Some(JoinState::Approved), Some(JoinState::Denied));
        for (ground, declared, kept, want) in [
            (named, Undeclared, None, Admit(KeyConfirmation::Token)),
            (named, Undeclared, denied, Admit(KeyConfirmation::Token)),
            (named, Other, None, OtherKeyDeclared),
            (unnamed, Undeclared, None, Admit(KeyConfirmation::None)),
            (unnamed, Same, None, Admit(KeyConfirmation::Declared)),
            (group, Undeclared, None, Wait),
            (group, Undeclared, waiting, Wait),
            (group, Undeclared, approved, Admit(KeyConfirmation::Operator)),
            (group, Undeclared, denied, Denied),
            (open, Undeclared, None, Admit(KeyConfirmation::None)),
            (open, Undeclared, denied, Denied),
            (nothing, Undeclared, None, Wait),
            (nothing, Undeclared, approved, Admit(KeyConfirmation::Operator)),
            (nothing, Undeclared, denied, Denied),
            (nothing, Same, None, Admit(KeyConfirmation::Declared)),
            (nothing, Same, denied, Admit(KeyConfirmation::Declared)),
            (nothing, Other, approved, OtherKeyDeclared),
        ] {
            assert_eq!(judge(ground, declared, kept), want, "{ground:?} {declared:?} {kept:?}");
        }
    }

    #[test]
    fn one_that_waits_asks_ever_more_rarely() {
        let since = Timestamp::from_secs(1_800_000_000);
        let after = |secs| poll_again_in(since, since.plus(Duration::from_secs(secs))).as_secs();
        assert_eq!([0, 60, 800, 86_400].map(after), [15, 15, 100, 300]);
    }
}
