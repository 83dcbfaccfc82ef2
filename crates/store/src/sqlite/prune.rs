//! Takes away history beyond what is to be kept, in small transactions.

use model::{Digest, Timestamp};
use rusqlite::{Connection, params};

use super::Store;
use super::cell::{int, uint};
use super::chunks::Table;
use super::query::{self, change};
use super::writer::Session;
use super::{rollouts, sweep, sync, tasks};
use crate::NONCE_KEPT;
use crate::error::Result;
use crate::log::Sort;
use crate::record::{Pruned, Retention};

/// Nodes whose facts are pruned in one transaction.
const NODES_IN_BATCH: usize = 100;
/// Removed nodes that go in one transaction, with their whole history.
const REMOVED_IN_BATCH: i64 = 10;
/// Objects of removed nodes that go in one transaction.
const OBJECTS_IN_BATCH: usize = 2_000;
/// The newest logs of a node that are kept when they have no facts left. A log that is
/// forgotten would be accepted again from its beginning, so this is far more than a node
/// has incarnations of its log.
const LOGS_PER_NODE: i64 = 1000;

pub(super) async fn prune(store: &Store, now: Timestamp, retention: Retention) -> Result<Pruned> {
    let objects = removed_objects(store).await?;
    let nodes = removed_nodes(store, now.minus(retention.removed_nodes)).await?;
    let tasks = finished_tasks(store, retention.finished_tasks).await?;
    let facts = facts(store, &retention).await?;
    let newest = int(retention.releases.max(1) as u64);
    let forgotten = now.minus(NONCE_KEPT);
    let (releases, nonces) = store
        .write(0, move |session| {
            rollouts::prune(&session.db)?;
            // Those that members of rollouts are on, go to, or may go back to are served on.
            let releases = "DELETE FROM release WHERE seq NOT IN (SELECT seq FROM head)
                AND seq NOT IN (SELECT seq FROM release ORDER BY seq DESC LIMIT ?1)
                AND seq NOT IN (SELECT seq FROM rollout WHERE pruned = 0)
                AND NOT EXISTS (SELECT 1 FROM rollout_member WHERE before = release.seq)";
            let releases = change(&session.db, "prune releases", releases, [newest])?;
            let nonces = "DELETE FROM nonce WHERE expires_at < ?1";
            let nonces = change(&session.db, "prune nonces", nonces, [forgotten.0])?;
            let uses = "DELETE FROM group_use WHERE expires_at < ?1";
            let uses = change(&session.db, "prune uses of group tokens", uses, [forgotten.0])?;
            Ok((releases as u64, (nonces + uses) as u64))
        })
        .await?;
    let (chunks, contents) = garbage(store, now.minus(retention.grace)).await?;
    Ok(Pruned { facts, releases, chunks, contents, nonces, nodes, objects, tasks })
}

async fn removed_nodes(store: &Store, cutoff: Timestamp) -> Result<u64> {
    let mut total = 0;
    loop {
        let gone = store
            .write(0, move |session| {
                let sql = "DELETE FROM node WHERE no IN
                    (SELECT no FROM node WHERE removed < ?1
                        AND NOT EXISTS (SELECT 1 FROM sync WHERE sync.node = node.no) LIMIT ?2)";
                change(&session.db, "prune nodes", sql, params![cutoff.0, REMOVED_IN_BATCH])
            })
            .await?;
        if gone == 0 {
            return Ok(total);
        }
        total += gone as u64;
    }
}

/// The sets of removed nodes, whether their history is kept or not.
async fn removed_objects(store: &Store) -> Result<u64> {
    const SQL: &str = "SELECT node.no FROM node JOIN sync ON sync.node = node.no WHERE removed IS NOT NULL";
    let nodes = store.read(|db| query::all(db, "read removed nodes", SQL, [], |row| row.get::<_, i64>(0)));
    let mut total = 0;
    for node in nodes.await? {
        loop {
            let some = move |session: &mut Session| sync::forget_some(&session.db, node, OBJECTS_IN_BATCH);
            let (gone, all) = store.write(0, some).await?;
            total += gone;
            if all {
                break;
            }
        }
    }
    Ok(total)
}

async fn finished_tasks(store: &Store, keep: usize) -> Result<u64> {
    let mut total = 0;
    // One at a time: each may have a row for every node.
    while store.write(0, move |session| tasks::prune_one(&session.db, keep)).await? {
        total += 1;
    }
    Ok(total)
}

async fn facts(store: &Store, retention: &Retention) -> Result<u64> {
    let keep = Keep {
        others: int(retention.facts_per_node as u64),
        runs: int(retention.runs_per_node as u64),
        actions: int(retention.action_facts_per_node as u64),
    };
    let nodes = store
        .read(move |db| {
            let sql = "SELECT node FROM fact GROUP BY node
                HAVING sum(sort = 0) > ?1 OR sum(sort = 1) > ?2 OR sum(sort = 2) > ?3";
            let bounds = params![keep.others, keep.runs, keep.actions];
            query::all(db, "read what to prune", sql, bounds, |row| row.get::<_, i64>(0))
        })
        .await?;
    let mut total = 0;
    for batch in nodes.chunks(NODES_IN_BATCH) {
        let batch = batch.to_vec();
        let gone = store.write(0, move |session| facts_of(&session.db, &batch, keep)).await?;
        total += gone;
    }
    Ok(total + facts_by_bytes(store, retention).await?)
}

/// Takes facts of the nodes that have more bytes of them than are kept.
async fn facts_by_bytes(store: &Store, retention: &Retention) -> Result<u64> {
    const SQL: &str = "SELECT node, fact_bytes FROM contact WHERE fact_bytes > 0";
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, uint(row.get(1)?)));
    let nodes = store.read(move |db| query::all(db, "read how many bytes facts are", SQL, [], pair)).await?;
    let all = share_of_each(nodes.iter().map(|(_, bytes)| *bytes).collect(), retention.fact_bytes);
    let each = retention.fact_bytes_per_node.min(all);
    let mut total = 0;
    for (node, _) in nodes.into_iter().filter(|(_, bytes)| *bytes > each) {
        total += store.write(0, move |session| by_bytes(&session.db, node, each)).await?;
    }
    Ok(total)
}

/// The most that each may have so that all together have no more than `total`: who has the most gives way first.
fn share_of_each(mut sizes: Vec<u64>, total: u64) -> u64 {
    sizes.sort_unstable();
    let (mut left, mut sharing) = (total, sizes.len() as u64);
    for size in sizes {
        let share = left / sharing;
        if size > share {
            return share;
        }
        left -= size;
        sharing -= 1;
    }
    u64::MAX
}

/// Takes the oldest facts of a node that has more bytes of them than are kept, whatever sort they are, and counts
/// what is left.
pub(super) fn by_bytes(db: &Connection, node: i64, keep: u64) -> Result<u64> {
    const FACTS: &str = "DELETE FROM fact WHERE node = ?1 AND id <= (SELECT max(id) FROM
        (SELECT id, sum(octet_length(body)) OVER (ORDER BY id DESC) AS bytes FROM fact WHERE node = ?1)
        WHERE bytes > ?2)";
    let gone = change(db, "prune facts by bytes", FACTS, params![node, int(keep)])?;
    count(db, node)?;
    Ok(gone as u64)
}

fn count(db: &Connection, node: i64) -> Result<()> {
    const COUNT: &str = "UPDATE contact SET fact_bytes =
        (SELECT coalesce(sum(octet_length(body)), 0) FROM fact WHERE node = ?1) WHERE node = ?1";
    change(db, "count a node's facts", COUNT, [node]).map(|_| ())
}

/// How many facts of each sort are kept.
#[derive(Clone, Copy)]
struct Keep {
    others: i64,
    runs: i64,
    actions: i64,
}

fn facts_of(db: &Connection, nodes: &[i64], keep: Keep) -> Result<u64> {
    const FACTS: &str = "DELETE FROM fact WHERE node = ?1 AND sort = ?2 AND id <=
        (SELECT id FROM fact WHERE node = ?1 AND sort = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)";
    const LOGS: &str = "DELETE FROM log WHERE node = ?1
        AND no NOT IN (SELECT no FROM log WHERE node = ?1 ORDER BY no DESC LIMIT ?2)
        AND NOT EXISTS (SELECT 1 FROM fact WHERE fact.log = log.no)
        AND NOT EXISTS (SELECT 1 FROM contact WHERE contact.log = log.no)";
    let mut gone = 0;
    for node in nodes {
        let sorts = [(Sort::Other, keep.others), (Sort::Run, keep.runs), (Sort::Action, keep.actions)];
        for (sort, keep) in sorts {
            gone += change(db, "prune facts", FACTS, params![node, sort as i64, keep])? as u64;
        }
        change(db, "prune logs", LOGS, params![node, LOGS_PER_NODE])?;
        count(db, *node)?;
    }
    Ok(gone)
}

async fn garbage(store: &Store, cutoff: Timestamp) -> Result<(u64, u64)> {
    let sweep = store.write(0, |session| Ok::<_, crate::StoreError>(sweep::begin(session))).await?;
    let swept = swept(store, cutoff, sweep).await;
    let ended = store
        .write(0, move |session| {
            sweep::end(session, sweep);
            Ok(())
        })
        .await;
    let swept = swept?;
    ended?;
    Ok(swept)
}

async fn swept(store: &Store, cutoff: Timestamp, sweep: u64) -> Result<(u64, u64)> {
    let garbage = store.read(move |db| sweep::garbage(db, cutoff)).await?;
    let chunks = take(store, sweep, Table::Chunk, &garbage.chunks).await?;
    let contents = take(store, sweep, Table::Content, &garbage.contents).await?;
    Ok((chunks, contents))
}

async fn take(store: &Store, sweep: u64, table: Table, digests: &[Digest]) -> Result<u64> {
    let mut total = 0;
    for batch in digests.chunks(sweep::BATCH) {
        let batch = batch.to_vec();
        match store.write(0, move |session| sweep::batch(session, sweep, table, &batch)).await? {
            Some(gone) => total += gone,
            None => break,
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_most_gives_way_first() {
        for (sizes, total, each) in [
            (&[][..], 10, u64::MAX),
            (&[3, 4], 10, u64::MAX),
            (&[5, 5], 10, u64::MAX),
            (&[1, 2, 100], 10, 7),
            (&[8, 8, 8], 12, 4),
            (&[1, 8, 8], 11, 5),
            (&[7], 0, 0),
        ] {
            assert_eq!(share_of_each(sizes.to_vec(), total), each, "{sizes:?} of {total}");
        }
    }
}
