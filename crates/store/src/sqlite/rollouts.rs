//! Rollouts in their tables.

use model::rollout::RolloutId;
use model::{Channel, Timestamp};
use rollout::{
    BudgetVersions, DecisionGuard, MemberRecord, RolloutChange, RolloutCommit, RolloutDocument, RolloutKey,
    RolloutState,
};
use rusqlite::{Connection, Row, params};

use super::Store;
use super::cell::{Json, int, uint};
use super::query::{self, change};
use super::{facts, nodes};
use crate::closure::limit;
use crate::error::{Result, StoreError};
use crate::record::Accepted;
use crate::rollouts::{CommitRolloutsError, KeptRollout, MAX_PRUNED_ROLLOUTS, RolloutWrite, StoredMembers};

/// What a changed member takes in the writer's queue, about, in bytes.
const MEMBER_BYTES: usize = 600;

impl Store {
    /// Changes rollouts, by compare-and-set, together with the facts that changed them: all of it or nothing. Says of
    /// each batch of facts how far its log is durable now; of a node that is not active `None`, and its facts are left
    /// out.
    ///
    /// # Errors
    /// [`CommitRolloutsError::Outdated`] where another version of a rollout or budget is stored.
    pub async fn commit_rollouts(
        &self,
        write: RolloutWrite,
        now: Timestamp,
    ) -> Result<Vec<Option<Accepted>>, CommitRolloutsError> {
        for batch in &write.facts {
            limit("facts in one call", batch.facts.len() as u64, model::log::MAX_FACTS as u64)?;
        }
        let changes = write.commits.iter().flat_map(|commit| &commit.rollouts);
        let bytes = changes.map(|change| change.members.len() * MEMBER_BYTES).sum();
        self.write(bytes, move |session| commit(&session.db, write, now)).await
    }

    /// Rollouts with their members, in the order of channels and numbers, and the versions of all budgets; both of one
    /// moment.
    pub async fn rollouts(&self, which: StoredMembers) -> Result<(Vec<KeptRollout>, BudgetVersions)> {
        // A read is one transaction.
        self.read(move |db| Ok((read(db, which)?, budgets(db)?))).await
    }

    /// The document of a rollout, pruned or not, by what the wire calls it.
    pub async fn rollout(&self, id: &RolloutId) -> Result<Option<RolloutDocument>> {
        const SQL: &str = "SELECT document FROM rollout WHERE id = ?1";
        let id = id.clone();
        self.read(move |db| query::one(db, "read a rollout", SQL, [id.as_str()], document)).await
    }

    /// Documents of rollouts, pruned ones too, the newest release first, below `before`.
    pub async fn rollout_documents(
        &self,
        channel: Option<&Channel>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RolloutDocument>> {
        const SQL: &str = "SELECT document FROM rollout WHERE (?1 IS NULL OR channel = ?1) AND seq < ?2
            ORDER BY seq DESC, channel LIMIT ?3";
        let (channel, before) = (channel.map(|channel| channel.as_str().to_owned()), query::upper(before));
        let limit = query::listed(limit);
        self.read(move |db| query::all(db, "read rollouts", SQL, params![channel, before, limit], document))
            .await
    }
}

fn document(row: &Row<'_>) -> rusqlite::Result<RolloutDocument> {
    Ok(row.get::<_, Json<_>>(0)?.0)
}

fn commit(
    db: &Connection,
    write: RolloutWrite,
    now: Timestamp,
) -> Result<Vec<Option<Accepted>>, CommitRolloutsError> {
    for commit in &write.commits {
        apply(db, commit)?;
    }
    let mut accepted = Vec::with_capacity(write.facts.len());
    for batch in write.facts {
        match nodes::active(db, &batch.node) {
            Ok(_) => {
                accepted.push(Some(facts::append(db, &batch.node, &batch.incarnation, batch.facts, now)?))
            }
            Err(StoreError::UnknownNode(_)) => accepted.push(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(accepted)
}

fn apply(db: &Connection, commit: &RolloutCommit) -> Result<(), CommitRolloutsError> {
    commit.budgets.iter().try_for_each(|guard| take_slots(db, guard))?;
    commit.rollouts.iter().try_for_each(|changed| apply_change(db, changed))
}

fn take_slots(db: &Connection, guard: &DecisionGuard) -> Result<(), CommitRolloutsError> {
    const NEW: &str = "INSERT INTO rollout_budget (budget, version) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    const NEXT: &str = "UPDATE rollout_budget SET version = ?2 WHERE budget = ?1 AND version = ?3";
    let (next, expected) = (int(guard.next), int(guard.expected));
    let changed = match guard.expected {
        0 => change(db, "take a budget's slots", NEW, params![guard.budget, next])?,
        _ => change(db, "take a budget's slots", NEXT, params![guard.budget, next, expected])?,
    };
    if changed == 1 { Ok(()) } else { Err(CommitRolloutsError::Outdated) }
}

fn apply_change(db: &Connection, changed: &RolloutChange) -> Result<(), CommitRolloutsError> {
    const MEMBER: &str = "INSERT INTO rollout_member (rollout, node, before, record) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (rollout, node) DO UPDATE SET before = ?3, record = ?4";
    const GONE: &str = "DELETE FROM rollout_member WHERE rollout = ?1 AND node = ?2";
    const ALL_GONE: &str = "DELETE FROM rollout_member WHERE rollout = ?1";
    let no = put_document(db, changed)?;
    if changed.drops_members {
        change(db, "drop a rollout's members", ALL_GONE, [no])?;
    }
    for node in &changed.removed {
        change(db, "drop a rollout's member", GONE, params![no, node.as_str()])?;
    }
    for member in &changed.members {
        let row = params![no, member.node.as_str(), member.before.map(int), Json(member)];
        change(db, "keep a rollout's member", MEMBER, row)?;
    }
    Ok(())
}

/// Puts the document in the place of the version that was expected; its row.
fn put_document(db: &Connection, changed: &RolloutChange) -> Result<i64, CommitRolloutsError> {
    const NEW: &str = "INSERT INTO rollout (channel, seq, id, version, pruned, document)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING RETURNING no";
    const NEXT: &str = "UPDATE rollout SET version = ?3, pruned = ?4, document = ?5
        WHERE channel = ?1 AND seq = ?2 AND version = ?6 RETURNING no";
    let RolloutDocument { key, id, version, state, .. } = &changed.document;
    let (channel, seq, version) = (key.channel.as_str(), int(key.seq), int(*version));
    let (pruned, document) = (*state == RolloutState::Pruned, Json(&changed.document));
    let row = |row: &Row<'_>| row.get(0);
    let no = match changed.expected {
        0 => {
            let new = params![channel, seq, id.as_str(), version, pruned, document];
            query::one(db, "keep a rollout", NEW, new, row)?
        }
        expected => {
            let next = params![channel, seq, version, pruned, document, int(expected)];
            query::one(db, "keep a rollout", NEXT, next, row)?
        }
    };
    no.ok_or(CommitRolloutsError::Outdated)
}

fn read(db: &Connection, which: StoredMembers) -> Result<Vec<KeptRollout>> {
    const LIVE: &str = "SELECT no, document FROM rollout WHERE pruned = 0 ORDER BY channel, seq";
    const ONE: &str = "SELECT no, document FROM rollout WHERE pruned = 0 AND channel = ?1 AND seq = ?2";
    let of_row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Json<RolloutDocument>>(1)?.0));
    let found = match which {
        StoredMembers::OfLive => query::all(db, "read the rollouts", LIVE, [], of_row)?,
        StoredMembers::Of(keys) => {
            let mut found = Vec::with_capacity(keys.len());
            for RolloutKey { channel, seq } in keys {
                let name = params![channel.as_str(), int(seq)];
                found.extend(query::one(db, "read a rollout", ONE, name, of_row)?);
            }
            found
        }
    };
    let with_members = |(no, document)| Ok(KeptRollout { document, members: members(db, no)? });
    found.into_iter().map(with_members).collect()
}

fn members(db: &Connection, rollout: i64) -> Result<Vec<MemberRecord>> {
    const SQL: &str = "SELECT record FROM rollout_member WHERE rollout = ?1 ORDER BY node";
    query::all(db, "read a rollout's members", SQL, [rollout], |row| Ok(row.get::<_, Json<_>>(0)?.0))
}

fn budgets(db: &Connection) -> Result<BudgetVersions> {
    const SQL: &str = "SELECT budget, version FROM rollout_budget";
    let all = query::all(db, "read the budgets", SQL, [], |row| Ok((row.get(0)?, uint(row.get(1)?))))?;
    Ok(all.into_iter().collect())
}

/// Takes away documents of pruned rollouts beyond the newest so many.
pub(super) fn prune(db: &Connection) -> Result<()> {
    const SQL: &str = "DELETE FROM rollout WHERE pruned = 1
        AND no NOT IN (SELECT no FROM rollout WHERE pruned = 1 ORDER BY no DESC LIMIT ?1)";
    change(db, "prune rollouts", SQL, [int(MAX_PRUNED_ROLLOUTS as u64)]).map(|_| ())
}
