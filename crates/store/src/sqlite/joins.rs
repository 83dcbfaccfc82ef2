//! Keys that ask to join without a token of their own: they wait, are decided, and are admitted (ENR-9).

use model::{JoinDecision, JoinState, NodeId, PendingJoin, Timestamp};
use rusqlite::{Connection, Row, params};

use super::cell::Text;
use super::joining::judged_by;
use super::query::{self, change};
use super::{Store, nodes};
use crate::enrollment::{self, JoinBefore};
use crate::error::{EnrollError, Result};
use crate::joining::ListVersions;
use crate::record::{Enrolled, GroupUse, JoinAdmission, NewNode};

impl Store {
    /// Records a node that joins without a token of its own, in one transaction with what admits it: the use of its
    /// group token, or what was decided of its key. A lost reply and a retry yield the same node until its certificate
    /// is first used (ENR-7). `lists` are those by which the caller let it pass.
    ///
    /// # Errors
    /// [`EnrollError`] names the refusal, which is [`EnrollError::ListsMoved`] where other lists count by now; nothing is
    /// used up by one.
    pub async fn admit(
        &self,
        node: NewNode,
        admission: JoinAdmission,
        lists: ListVersions,
        now: Timestamp,
    ) -> Result<Enrolled, EnrollError> {
        let admit = move |db: &Connection| {
            judged_by(db, lists)?;
            admit(db, &node, &admission, now)
        };
        self.write(0, move |session| admit(&session.db)).await
    }

    /// Keeps a key that waits for an operator, with the use of its group token.
    ///
    /// # Errors
    /// [`EnrollError::HostnameTaken`], [`EnrollError::KeyTaken`] and [`EnrollError::GroupSpent`].
    pub async fn keep_waiting(&self, join: PendingJoin, group: Option<GroupUse>) -> Result<(), EnrollError> {
        self.write(0, move |session| keep_waiting(&session.db, &join, group.as_ref())).await
    }

    /// Keeps a key that asked to join as it was decided.
    pub async fn decide_join(&self, join: PendingJoin) -> Result<()> {
        self.write(0, move |session| put(&session.db, &join)).await
    }

    /// Forgets keys that asked to join.
    pub async fn forget_joins(&self, ids: Vec<NodeId>) -> Result<()> {
        self.write(0, move |session| ids.iter().try_for_each(|id| forget(&session.db, id))).await
    }

    /// All keys that asked to join and are no nodes.
    pub async fn pending_joins(&self) -> Result<Vec<PendingJoin>> {
        self.read(all).await
    }
}

fn admit(
    db: &Connection,
    node: &NewNode,
    admission: &JoinAdmission,
    now: Timestamp,
) -> Result<Enrolled, EnrollError> {
    let before = JoinBefore {
        nodes: nodes::before(db, node, admission.nonce())?,
        pending: one(db, &node.node_id)?,
        other_uses: match admission {
            JoinAdmission::Group(group) => other_uses(db, group, &node.node_id)?,
            JoinAdmission::Approved | JoinAdmission::Declared | JoinAdmission::Retry => 0,
        },
    };
    let enrolled = enrollment::decide_admission(node, admission, &before)?;
    if let JoinAdmission::Group(group) = admission {
        use_group(db, group, &node.node_id)?;
    }
    nodes::record(db, node, admission.nonce(), enrolled, before.nodes.same_id.as_ref(), now)?;
    forget(db, &node.node_id)?;
    Ok(enrolled)
}

fn keep_waiting(db: &Connection, join: &PendingJoin, group: Option<&GroupUse>) -> Result<(), EnrollError> {
    const ACTIVE: &str = "SELECT id, hostname FROM node WHERE removed IS NULL AND (hostname = ?1 OR id = ?2)";
    let names = [join.hostname.as_str(), join.node_id.as_str()];
    let taken = query::one(db, "read what a join touches", ACTIVE, names, |row| {
        Ok((row.get::<_, Text<NodeId>>(0)?.0, row.get::<_, Text<_>>(1)?.0))
    })?;
    match taken {
        Some((id, by)) if id == join.node_id => return Err(EnrollError::KeyTaken { by }),
        Some((by, _)) => return Err(EnrollError::HostnameTaken { by }),
        None => {}
    }
    if let Some(group) = group {
        if other_uses(db, group, &join.node_id)? >= group.uses {
            return Err(EnrollError::GroupSpent { uses: group.uses });
        }
        use_group(db, group, &join.node_id)?;
    }
    Ok(put(db, join)?)
}

/// How many other keys used a group token.
fn other_uses(db: &Connection, group: &GroupUse, id: &NodeId) -> Result<u32> {
    const SQL: &str = "SELECT count(*) FROM group_use WHERE nonce = ?1 AND node_id <> ?2";
    let row = params![group.nonce, id.as_str()];
    Ok(query::one(db, "count the uses of a group token", SQL, row, |row| row.get(0))?.unwrap_or(0))
}

fn use_group(db: &Connection, group: &GroupUse, id: &NodeId) -> Result<()> {
    const SQL: &str =
        "INSERT INTO group_use (nonce, node_id, expires_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let row = params![group.nonce, id.as_str(), group.expires_at.0];
    change(db, "use a group token", SQL, row).map(|_| ())
}

fn put(db: &Connection, join: &PendingJoin) -> Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO pending_join
            (node_id, hostname, public_key, address, prefix, nonce, since, state, decided, decided_by)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let PendingJoin { node_id, hostname, public_key, address, prefix, group, since, state, decided } = join;
    let (at, by) = decided.as_ref().map(|decided| (decided.at.0, &decided.by)).unzip();
    let (id, hostname, state) = (node_id.as_str(), hostname.as_str(), state.as_str());
    let row = params![id, hostname, public_key, address, prefix, group, since.0, state, at, by];
    change(db, "keep a host that asks to join", SQL, row).map(|_| ())
}

pub(super) fn forget(db: &Connection, id: &NodeId) -> Result<()> {
    let sql = "DELETE FROM pending_join WHERE node_id = ?1";
    change(db, "forget a host that asks to join", sql, [id.as_str()]).map(|_| ())
}

macro_rules! select_joins {
    ($rest:literal) => {
        concat!(
            "SELECT node_id, hostname, public_key, address, prefix, nonce, since, state, decided, decided_by
            FROM pending_join ",
            $rest
        )
    };
}

fn all(db: &Connection) -> Result<Vec<PendingJoin>> {
    const SQL: &str = select_joins!("ORDER BY node_id");
    query::all(db, "read the hosts that ask to join", SQL, [], join)
}

fn one(db: &Connection, id: &NodeId) -> Result<Option<PendingJoin>> {
    const SQL: &str = select_joins!("WHERE node_id = ?1");
    query::one(db, "read a host that asks to join", SQL, [id.as_str()], join)
}

fn join(row: &Row<'_>) -> rusqlite::Result<PendingJoin> {
    let (decided, by): (Option<i64>, Option<String>) = (row.get(8)?, row.get(9)?);
    Ok(PendingJoin {
        node_id: row.get::<_, Text<_>>(0)?.0,
        hostname: row.get::<_, Text<_>>(1)?.0,
        public_key: row.get(2)?,
        address: row.get(3)?,
        prefix: row.get(4)?,
        group: row.get(5)?,
        since: Timestamp(row.get(6)?),
        state: JoinState::named(row.get_ref(7)?.as_str()?),
        decided: decided.map(|at| JoinDecision { at: Timestamp(at), by: by.unwrap_or_default() }),
    })
}
