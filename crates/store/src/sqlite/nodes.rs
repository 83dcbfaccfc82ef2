//! Nodes: enrollment, contacts, traits and requests for runs.

use model::exchange::{HeldRelease, RunNote, Signed, TraitReport};
use model::log::Cursor;
use model::tags::TaggedRun;
use model::{AgentCapabilities, Hostname, KeyConfirmation, NodeConditions, NodeId, Timestamp};
use rusqlite::{Connection, Row, params};
use trust::sealing::RelayedStatement;

use super::Store;
use super::cell::{Bytes32, Json, Text, dig, int, uint};
use super::joins;
use super::query::{self, change};
use crate::MAX_LISTED;
use crate::closure::limit;
use crate::enrollment::{self, Before, Known};
use crate::error::{EnrollError, Result, StoreError};
use crate::log::Derived;
use crate::record::{Enrolled, NewNode, NodeRecord, RenewedCertificate, TokenUse, Touch};

/// The number of an active node.
pub(super) fn active(db: &Connection, node: &NodeId) -> Result<i64> {
    let sql = "SELECT no FROM node WHERE id = ?1 AND removed IS NULL";
    let found = query::one(db, "find a node", sql, [node.as_str()], |row| row.get(0))?;
    found.ok_or_else(|| StoreError::UnknownNode(node.clone()))
}

pub(super) fn enroll(
    db: &Connection,
    node: &NewNode,
    token: &TokenUse,
    now: Timestamp,
) -> Result<Enrolled, EnrollError> {
    super::joining::judged_by(db, token.lists)?;
    let before = before(db, node, &token.nonce)?;
    let enrolled = enrollment::decide(node, token, &before)?;
    if let (Enrolled::Replacing, Some(predecessor)) = (enrolled, &before.same_hostname) {
        remove(db, predecessor, now)?;
    }
    let burn = "INSERT INTO nonce (nonce, expires_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    change(db, "burn a token", burn, params![token.nonce, token.expires_at.0])?;
    record(db, node, &token.nonce, enrolled, before.same_id.as_ref(), now)?;
    joins::forget(db, &node.node_id)?;
    Ok(enrolled)
}

pub(super) fn before(db: &Connection, node: &NewNode, nonce: &str) -> Result<Before> {
    const SAME_ID: &str = "SELECT hostname, public_key, removed IS NULL, cert_used, nonce, key_confirmation FROM node WHERE id = ?1";
    const SAME_HOSTNAME: &str = "SELECT id FROM node WHERE hostname = ?1 AND removed IS NULL";
    const NONCE: &str = "SELECT 1 FROM nonce WHERE nonce = ?1";
    const READ: &str = "read what an enrollment touches";
    let same_id = query::one(db, READ, SAME_ID, [node.node_id.as_str()], |row| {
        Ok(Known {
            hostname: row.get::<_, Text<_>>(0)?.0,
            public_key: row.get(1)?,
            active: row.get(2)?,
            cert_used: row.get(3)?,
            nonce: row.get(4)?,
            confirmation: KeyConfirmation::named(row.get_ref(5)?.as_str()?),
        })
    })?;
    let hostname = [node.hostname.as_str()];
    let same_hostname = query::one(db, READ, SAME_HOSTNAME, hostname, |row| Ok(row.get::<_, Text<_>>(0)?.0))?;
    let nonce_burned = query::one(db, READ, NONCE, [nonce], |_| Ok(()))?.is_some();
    Ok(Before { same_id, same_hostname, nonce_burned })
}

pub(super) fn record(
    db: &Connection,
    node: &NewNode,
    nonce: &str,
    enrolled: Enrolled,
    known: Option<&Known>,
    now: Timestamp,
) -> Result<()> {
    const NEW: &str = "INSERT INTO node (id, hostname, public_key, enrolled, cert_not_before, cert_serial,
            cert_used, key_confirmation, declared, nonce, cert_not_after, cert_authority)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT (id) DO UPDATE SET hostname = ?2, enrolled = ?4, removed = NULL, cert_not_before = ?5,
            cert_serial = ?6, cert_used = 0, key_confirmation = ?7, declared = ?8, nonce = ?9,
            cert_not_after = ?10, cert_authority = ?11, cert_renewed = NULL, copied = NULL, capabilities = NULL";
    const AGAIN: &str = "UPDATE node SET cert_not_before = ?2, cert_serial = ?3, cert_used = 0,
            key_confirmation = ?4, declared = ?5, nonce = ?6, cert_not_after = ?7, cert_authority = ?8,
            cert_renewed = NULL
        WHERE id = ?1";
    let (id, hostname) = (node.node_id.as_str(), node.hostname.as_str());
    let (from, serial) = (node.cert_not_before.0, &node.cert_serial);
    let (until, authority) = (node.cert_not_after.map(|at| at.0), &node.cert_authority);
    // What was confirmed of the same key before stays so.
    let before = known.filter(|_| enrolled == Enrolled::Again).map(|known| known.confirmation);
    let confirmation = before.unwrap_or_default().max(node.key_confirmation).as_str();
    let declared = Json(&node.declared);
    match enrolled {
        Enrolled::Again => {
            change(
                db,
                "record a node",
                AGAIN,
                params![id, from, serial, confirmation, declared, nonce, until, authority],
            )?;
        }
        Enrolled::New | Enrolled::Replacing => {
            let key = &node.public_key;
            let row = params![
                id,
                hostname,
                key,
                now.0,
                from,
                serial,
                confirmation,
                declared,
                nonce,
                until,
                authority
            ];
            change(db, "record a node", NEW, row)?;
            if known.is_some() {
                // Its history stays, but what it said of itself in its former incarnation is over.
                let stale = "DELETE FROM contact WHERE node = (SELECT no FROM node WHERE id = ?1)";
                change(db, "record a node", stale, [id])?;
                let stale = "DELETE FROM seen WHERE node = (SELECT no FROM node WHERE id = ?1)";
                change(db, "record a node", stale, [id])?;
                super::sync::forget(db, active(db, &node.node_id)?)?;
            }
        }
    }
    Ok(())
}

pub(super) fn certificate_used(db: &Connection, node: &NodeId) -> Result<()> {
    let sql = "UPDATE node SET cert_used = 1 WHERE id = ?1 AND cert_used = 0";
    change(db, "note the use of a certificate", sql, [node.as_str()]).map(|_| ())
}

impl Store {
    /// Records the certificate that an active node gets in place of the one before (IDN-2).
    ///
    /// # Errors
    /// [`StoreError::UnknownNode`] when no active node has the id.
    pub async fn renew_certificate(&self, node: &NodeId, certificate: RenewedCertificate) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| renew(&session.db, &node, &certificate)).await
    }
}

fn renew(db: &Connection, node: &NodeId, certificate: &RenewedCertificate) -> Result<()> {
    let sql = "UPDATE node SET cert_renewed = ?2, cert_not_after = ?3, cert_serial = ?4, cert_used = 1,
            cert_authority = ?5
        WHERE id = ?1 AND removed IS NULL";
    let RenewedCertificate { validity, serial, authority } = certificate;
    let row = params![node.as_str(), validity.from.0, validity.until.0, serial, authority];
    match change(db, "record a renewed certificate", sql, row)? {
        0 => Err(StoreError::UnknownNode(node.clone())),
        _ => Ok(()),
    }
}

pub(super) fn set_copied(db: &Connection, node: &NodeId, copied: Option<Timestamp>) -> Result<()> {
    // Once one host alone holds the key, what was said of its agent may be the other one's word.
    let sql =
        "UPDATE node SET copied = ?2, capabilities = CASE WHEN ?2 IS NULL THEN NULL ELSE capabilities END
        WHERE id = ?1 AND removed IS NULL";
    let row = params![node.as_str(), copied.map(|at| at.0)];
    match change(db, "note how many hosts hold a key", sql, row)? {
        0 => Err(StoreError::UnknownNode(node.clone())),
        _ => Ok(()),
    }
}

pub(super) fn put_capabilities(
    db: &Connection,
    node: &NodeId,
    capabilities: &AgentCapabilities,
) -> Result<()> {
    let sql = "UPDATE node SET capabilities = ?2 WHERE id = ?1 AND removed IS NULL";
    match change(db, "keep what an agent can do", sql, params![node.as_str(), Json(capabilities)])? {
        0 => Err(StoreError::UnknownNode(node.clone())),
        _ => Ok(()),
    }
}

impl Store {
    /// What the active nodes of these hostnames say of the keys that their secrets are sealed for (SEC-1); at most
    /// [`crate::MAX_LISTED`] are asked for. It is relayed: whoever goes by it verifies it. While two hosts hold a node's
    /// key, nothing is (IDN-10).
    pub async fn sealing_statements(&self, hostnames: Vec<Hostname>) -> Result<Vec<RelayedStatement>> {
        limit("hostnames asked for", hostnames.len() as u64, MAX_LISTED as u64)?;
        self.read(move |db| sealing_statements(db, &hostnames)).await
    }
}

/// What the active nodes of these hostnames say of their sealing keys; of two that hold one key neither counts.
fn sealing_statements(db: &Connection, hostnames: &[Hostname]) -> Result<Vec<RelayedStatement>> {
    const SQL: &str = "SELECT public_key, capabilities FROM node
        WHERE hostname = ?1 AND removed IS NULL AND copied IS NULL AND capabilities IS NOT NULL";
    let read = |row: &Row<'_>| {
        let said = row.get::<_, Json<AgentCapabilities>>(1)?.0.sealing_key;
        Ok((row.get::<_, String>(0)?, said))
    };
    let mut found = Vec::new();
    for hostname in hostnames {
        let said = query::one(db, "read what nodes say of their keys", SQL, [hostname.as_str()], read)?;
        let Some((key, Some(statement))) = said else { continue };
        let identity = key.parse().map_err(|error| StoreError::Corrupt(format!("a node's key: {error}")))?;
        found.push(RelayedStatement { hostname: hostname.clone(), identity, statement });
    }
    Ok(found)
}

pub(super) fn remove(db: &Connection, node: &NodeId, now: Timestamp) -> Result<bool> {
    let request = "DELETE FROM push WHERE node = (SELECT no FROM node WHERE id = ?1)";
    change(db, "remove a node", request, [node.as_str()])?;
    let request = "DELETE FROM tagged_run WHERE node = (SELECT no FROM node WHERE id = ?1)";
    change(db, "remove a node", request, [node.as_str()])?;
    let sql = "UPDATE node SET removed = ?2 WHERE id = ?1 AND removed IS NULL";
    Ok(change(db, "remove a node", sql, params![node.as_str(), now.0])? > 0)
}

macro_rules! select_nodes {
    ($rest:literal) => {
        concat!(
            "SELECT node.id, hostname, public_key, enrolled, removed, cert_not_before, cert_serial, cert_used,
                key_confirmation, declared, last_seen, promised_secs, held_channel, held_seq, held_header,
                held_root, run_at, run_outcome, last_run, streak, log.incarnation, log.cursor,
                traits.digest, push.number, seen.document, tagged_run.number, tagged_run.tags,
                cert_not_after, contact.runs_heard, cert_renewed, contact.conditions, contact.trust_version,
                copied, capabilities, cert_authority
            FROM node LEFT JOIN contact ON contact.node = node.no LEFT JOIN log ON log.no = contact.log
                LEFT JOIN traits ON traits.node = node.no LEFT JOIN push ON push.node = node.no
                LEFT JOIN seen ON seen.node = node.no LEFT JOIN tagged_run ON tagged_run.node = node.no ",
            $rest
        )
    };
}

pub(super) fn page(db: &Connection, after: Option<&NodeId>, limit: usize) -> Result<Vec<NodeRecord>> {
    const SQL: &str = select_nodes!("WHERE removed IS NULL AND node.id > ?1 ORDER BY node.id LIMIT ?2");
    let after = after.map_or("", NodeId::as_str);
    query::all(db, "read the nodes", SQL, params![after, int(limit as u64)], node_record)
}

pub(super) fn one(db: &Connection, node: &NodeId) -> Result<Option<NodeRecord>> {
    const SQL: &str = select_nodes!("WHERE node.id = ?1");
    query::one(db, "read a node", SQL, [node.as_str()], node_record)
}

fn node_record(row: &Row<'_>) -> rusqlite::Result<NodeRecord> {
    let kept = row.get::<_, Option<Json<_>>>(18)?.map(|kept| kept.0);
    let streak = row.get::<_, Option<u32>>(19)?.unwrap_or(0);
    let Derived { runs, full_run, contended, invocation, refusal } = Derived::restored(kept, streak);
    Ok(NodeRecord {
        node_id: row.get::<_, Text<_>>(0)?.0,
        hostname: row.get::<_, Text<_>>(1)?.0,
        public_key: row.get(2)?,
        enrolled: Timestamp(row.get(3)?),
        removed: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        cert_not_before: Timestamp(row.get(5)?),
        cert_not_after: row.get::<_, Option<i64>>(27)?.map(Timestamp),
        cert_renewed: row.get::<_, Option<i64>>(29)?.map(Timestamp),
        cert_serial: row.get(6)?,
        cert_authority: row.get(34)?,
        cert_used: row.get(7)?,
        key_confirmation: KeyConfirmation::named(row.get_ref(8)?.as_str()?),
        copied: row.get::<_, Option<i64>>(32)?.map(Timestamp),
        capabilities: row.get::<_, Option<Json<_>>>(33)?.map(|said| said.0),
        declared: row.get::<_, Json<_>>(9)?.0,
        last_seen: row.get::<_, Option<i64>>(10)?.map(Timestamp),
        promised_secs: uint(row.get::<_, Option<i64>>(11)?.unwrap_or(0)),
        held: held(row)?,
        run: run_note(row)?,
        runs_heard: row.get::<_, Option<Json<_>>>(28)?.map(|heard| heard.0),
        runs,
        full_run,
        contended,
        invocation,
        refusal,
        cursor: cursor(row)?,
        traits: row.get::<_, Option<Bytes32>>(22)?.map(|digest| model::Digest(digest.0)),
        run_request: row.get::<_, Option<i64>>(23)?.map(uint),
        seen: row.get::<_, Option<Json<_>>>(24)?.map(|document| document.0),
        tagged_run: tagged_run(row)?,
        conditions: row.get::<_, Option<Json<_>>>(30)?.map(|conditions| conditions.0).unwrap_or_default(),
        trust_version: uint(row.get::<_, Option<i64>>(31)?.unwrap_or(0)),
    })
}

fn tagged_run(row: &Row<'_>) -> rusqlite::Result<Option<TaggedRun>> {
    let Some(number) = row.get::<_, Option<i64>>(25)? else { return Ok(None) };
    Ok(Some(TaggedRun { number: uint(number), tags: row.get::<_, Json<_>>(26)?.0 }))
}

fn held(row: &Row<'_>) -> rusqlite::Result<Option<HeldRelease>> {
    let Some(Text(channel)) = row.get::<_, Option<Text<_>>>(12)? else { return Ok(None) };
    Ok(Some(HeldRelease {
        channel,
        seq: uint(row.get(13)?),
        header: model::Digest(row.get::<_, Bytes32>(14)?.0),
        root: model::Digest(row.get::<_, Bytes32>(15)?.0),
    }))
}

fn run_note(row: &Row<'_>) -> rusqlite::Result<Option<RunNote>> {
    let Some(at) = row.get::<_, Option<i64>>(16)? else { return Ok(None) };
    Ok(Some(RunNote { at: Timestamp(at), outcome: model::Digest(row.get::<_, Bytes32>(17)?.0) }))
}

fn cursor(row: &Row<'_>) -> rusqlite::Result<Option<Cursor>> {
    let Some(Text(incarnation)) = row.get::<_, Option<Text<_>>>(20)? else { return Ok(None) };
    Ok(Some(Cursor { incarnation, seq: uint(row.get(21)?) }))
}

pub(super) fn touch(db: &Connection, touch: &Touch) -> Result<()> {
    const TOUCH: &str = "INSERT INTO contact (node, last_seen, promised_secs, held_channel, held_seq,
            held_header, held_root, run_at, run_outcome, runs_heard, conditions, trust_version)
        SELECT no, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM node WHERE id = ?1 AND removed IS NULL
        ON CONFLICT (node) DO UPDATE SET last_seen = ?2, promised_secs = ?3,
            held_channel = coalesce(?4, held_channel), held_seq = coalesce(?5, held_seq),
            held_header = coalesce(?6, held_header), held_root = coalesce(?7, held_root),
            run_at = coalesce(?8, run_at), run_outcome = coalesce(?9, run_outcome), runs_heard = ?10,
            conditions = ?11, trust_version = ?12
        WHERE contact.last_seen IS NULL OR contact.last_seen <= ?2";
    let (held, run) = (touch.held.as_ref(), touch.run.as_ref());
    let is_notable = touch.conditions != NodeConditions::default();
    let row = params![
        touch.node.as_str(),
        touch.last_seen.0,
        int(touch.promised_secs),
        held.map(|held| held.channel.as_str()),
        held.map(|held| int(held.seq)),
        held.map(|held| dig(&held.header)),
        held.map(|held| dig(&held.root)),
        run.map(|run| run.at.0),
        run.map(|run| dig(&run.outcome)),
        Json(&touch.runs_heard),
        is_notable.then_some(Json(&touch.conditions)),
        Some(touch.trust_version).filter(|version| *version > 0).map(int),
    ];
    change(db, "note a contact", TOUCH, row).map(|_| ())
}

pub(super) fn put_traits(db: &Connection, node: &NodeId, traits: &TraitReport, now: Timestamp) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO traits (node, digest, received, body) VALUES (?1, ?2, ?3, ?4)";
    let row = params![active(db, node)?, dig(&traits.digest), now.0, Json(&traits.values)];
    change(db, "keep traits", sql, row).map(|_| ())
}

pub(super) fn put_seen(db: &Connection, node: &NodeId, document: &Signed, now: Timestamp) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO seen (node, received, document) VALUES (?1, ?2, ?3)";
    change(db, "keep what a node has seen", sql, params![active(db, node)?, now.0, Json(document)])
        .map(|_| ())
}

pub(super) fn traits(db: &Connection, node: &NodeId) -> Result<Option<TraitReport>> {
    let sql = "SELECT digest, body FROM traits WHERE node = (SELECT no FROM node WHERE id = ?1)";
    query::one(db, "read traits", sql, [node.as_str()], |row| {
        let digest = model::Digest(row.get::<_, Bytes32>(0)?.0);
        Ok(TraitReport::whole(digest, row.get::<_, Json<_>>(1)?.0))
    })
}

pub(super) fn request_run(db: &Connection, nodes: &[NodeId], number: u64, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO push (node, number, asked)
        SELECT no, ?2, ?3 FROM node WHERE id = ?1 AND removed IS NULL
        ON CONFLICT (node) DO UPDATE SET number = ?2, asked = ?3";
    for node in nodes {
        change(db, "request a run", sql, params![node.as_str(), int(number), now.0])?;
    }
    Ok(())
}

pub(super) fn confirm_run(db: &Connection, node: &NodeId, number: u64) -> Result<()> {
    let sql = "DELETE FROM push WHERE node = (SELECT no FROM node WHERE id = ?1) AND number <= ?2";
    change(db, "confirm a run", sql, params![node.as_str(), int(number)]).map(|_| ())
}

pub(super) fn request_tagged_runs(
    db: &Connection,
    runs: &[(NodeId, TaggedRun)],
    now: Timestamp,
) -> Result<()> {
    let sql = "INSERT INTO tagged_run (node, number, tags, asked)
        SELECT no, ?2, ?3, ?4 FROM node WHERE id = ?1 AND removed IS NULL
        ON CONFLICT (node) DO UPDATE SET number = ?2, tags = ?3, asked = ?4";
    // What an earlier request named in vain is history once there is another.
    let forget = "UPDATE contact SET last_run = json_remove(last_run, '$.unknown_tags')
        WHERE node = (SELECT no FROM node WHERE id = ?1) AND last_run IS NOT NULL";
    for (node, run) in runs {
        let row = params![node.as_str(), int(run.number), Json(&run.tags), now.0];
        change(db, "request a run by tag", sql, row)?;
        change(db, "forget tags that nothing has", forget, [node.as_str()])?;
    }
    Ok(())
}

pub(super) fn confirm_tagged_run(db: &Connection, node: &NodeId, number: u64) -> Result<()> {
    let sql = "DELETE FROM tagged_run WHERE node = (SELECT no FROM node WHERE id = ?1) AND number <= ?2";
    change(db, "confirm a run by tag", sql, params![node.as_str(), int(number)]).map(|_| ())
}
