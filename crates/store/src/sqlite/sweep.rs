//! Takes away chunks and contents that nothing reaches, while other work goes on.
//!
//! What is garbage is found in a reader's snapshot; meanwhile the writer notes whatever
//! is put or reported as present, and spares it with everything below. Chunks go from the
//! top down, so whoever has a chunk has everything below it at every moment.

use std::collections::BTreeSet;

use model::{Digest, Timestamp};
use rusqlite::{Connection, Params};

use super::cell::{Bytes32, dig};
use super::chunks::{self, TOUCH_GRAIN_MS, Table};
use super::query::{self, change};
use super::writer::Session;
use crate::closure;
use crate::error::Result;

/// The most digests that are noted during a sweep; with more the sweep gives up, and the
/// next one has less to do.
const MAX_RECENT: usize = 1_000_000;
/// How many digests go in one transaction.
pub(super) const BATCH: usize = 2_000;

/// Chunks and contents.
#[derive(Debug, Default)]
struct Marked {
    chunks: BTreeSet<Digest>,
    contents: BTreeSet<Digest>,
    /// Contents whose blobs are marked too.
    modules: BTreeSet<Digest>,
}

impl Marked {
    /// Marks `roots` and everything below them. Cost: what is newly marked.
    fn mark(&mut self, roots: impl IntoIterator<Item = Digest>, db: &Connection) -> Result<()> {
        let mut stack: Vec<Digest> = roots.into_iter().collect();
        while let Some(chunk) = stack.pop() {
            if !self.chunks.insert(chunk) {
                continue;
            }
            let Some(chunk) = chunks::chunk(db, &chunk)? else { continue };
            for module in closure::modules(&chunk) {
                if self.modules.insert(module) {
                    self.contents.extend(chunks::blobs(db, &module)?);
                }
            }
            let needs = chunk.needs();
            self.contents.extend(needs.contents.iter().map(|(digest, _)| *digest));
            stack.extend(needs.chunks);
        }
        Ok(())
    }
}

/// What was put or reported as present since a sweep began.
pub(super) struct Recent {
    sweep: u64,
    /// Chunks whose trees are not yet in `spared`.
    fresh: Vec<Digest>,
    spared: Marked,
}

impl Recent {
    /// Notes a digest if a sweep is under way.
    pub(super) fn note(recent: &mut Option<Recent>, table: Table, digest: &Digest) {
        let Some(noted) = recent else { return };
        if noted.fresh.len() + noted.spared.contents.len() >= MAX_RECENT {
            *recent = None;
            return;
        }
        match table {
            Table::Chunk => noted.fresh.push(*digest),
            Table::Content => {
                noted.spared.contents.insert(*digest);
            }
        }
    }
}

/// Begins a sweep, in place of one that may be under way; returns its number.
pub(super) fn begin(session: &mut Session) -> u64 {
    session.sweeps += 1;
    session.recent = Some(Recent { sweep: session.sweeps, fresh: Vec::new(), spared: Marked::default() });
    session.sweeps
}

/// Ends a sweep, if it is still this one.
pub(super) fn end(session: &mut Session, sweep: u64) {
    session.recent = session.recent.take().filter(|recent| recent.sweep != sweep);
}

/// What may go.
#[derive(Default)]
pub(super) struct Garbage {
    /// From the top down.
    pub(super) chunks: Vec<Digest>,
    pub(super) contents: Vec<Digest>,
}

/// What neither a release reaches nor anything touched since `cutoff`.
pub(super) fn garbage(db: &Connection, cutoff: Timestamp) -> Result<Garbage> {
    let cutoff = cutoff.0.saturating_sub(TOUCH_GRAIN_MS);
    let mut kept = Marked::default();
    let roots = digests(db, "SELECT selection FROM release", [])?;
    kept.mark(roots, db)?;
    let touched = digests(db, "SELECT digest FROM chunk WHERE touched >= ?1", [cutoff])?;
    kept.mark(touched, db)?;
    // A chunk is higher than any below it.
    let mut chunks =
        digests(db, "SELECT digest FROM chunk WHERE touched < ?1 ORDER BY height DESC", [cutoff])?;
    chunks.retain(|digest| !kept.chunks.contains(digest));
    let mut contents = digests(db, "SELECT digest FROM content WHERE touched < ?1", [cutoff])?;
    contents.retain(|digest| !kept.contents.contains(digest));
    Ok(Garbage { chunks, contents })
}

/// Takes one batch away; `None` when the sweep was given up.
pub(super) fn batch(
    session: &mut Session,
    sweep: u64,
    table: Table,
    digests: &[Digest],
) -> Result<Option<u64>> {
    let Some(recent) = session.recent.as_mut().filter(|recent| recent.sweep == sweep) else {
        return Ok(None);
    };
    let db = &session.db;
    recent.spared.mark(recent.fresh.drain(..), db)?;
    let (spared, sql) = match table {
        Table::Chunk => (&recent.spared.chunks, "DELETE FROM chunk WHERE digest = ?1"),
        Table::Content => (&recent.spared.contents, "DELETE FROM content WHERE digest = ?1"),
    };
    let mut gone = 0;
    for digest in digests.iter().filter(|digest| !spared.contains(digest)) {
        gone += change(db, "take garbage away", sql, [dig(digest)])? as u64;
    }
    Ok(Some(gone))
}

fn digests(db: &Connection, sql: &'static str, bounds: impl Params) -> Result<Vec<Digest>> {
    query::all(db, "read digests", sql, bounds, |row| Ok(Digest(row.get::<_, Bytes32>(0)?.0)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::fixture::{DAY, Tree, at, tree};
    use crate::sqlite::migrate::migrate;

    fn session() -> Session {
        let db = Connection::open_in_memory().unwrap();
        migrate(&db).unwrap();
        Session { db, recent: None, sweeps: 0, next_body: None }
    }

    fn put(session: &mut Session, tree: &Tree, now: Timestamp) {
        let digests = closure::prepare_contents(&tree.contents).unwrap();
        chunks::put_contents(session, &digests, &tree.contents, now).unwrap();
        let (_, prepared) = closure::prepare(&tree.chunks).unwrap();
        chunks::put_chunks(session, &prepared, now).unwrap();
    }

    /// How many chunks there are; panics when one lacks something below it.
    fn closed(session: &Session, tree: &Tree) -> usize {
        let mut there = 0;
        for chunk in &tree.chunks {
            let digest = chunk.hash().unwrap();
            if chunks::chunk(&session.db, &digest).unwrap().is_none() {
                continue;
            }
            there += 1;
            for below in chunk.needs().chunks {
                assert!(
                    chunks::chunk(&session.db, &below).unwrap().is_some(),
                    "{below:?} went before {digest:?}"
                );
            }
            for (content, _) in chunk.needs().contents {
                assert!(chunks::size(&session.db, &content).unwrap().is_some(), "{content:?} is gone");
            }
        }
        there
    }

    /// Takes everything away in batches of one, with something done before one of them.
    fn sweep_with(session: &mut Session, tree: &Tree, when: usize, what: &dyn Fn(&mut Session)) -> usize {
        let sweep = begin(session);
        let garbage = garbage(&session.db, at(DAY)).unwrap();
        assert_eq!(garbage.chunks.len(), tree.chunks.len());
        for (n, digest) in garbage.chunks.iter().enumerate() {
            if n == when {
                what(session);
            }
            batch(session, sweep, Table::Chunk, &[*digest]).unwrap().unwrap();
            closed(session, tree);
        }
        batch(session, sweep, Table::Content, &garbage.contents).unwrap().unwrap();
        end(session, sweep);
        assert!(session.recent.is_none());
        closed(session, tree)
    }

    #[test]
    fn what_is_asked_for_during_a_sweep_stays_with_all_below_it() {
        let tree = tree(12, "a");
        for when in 0..tree.chunks.len() {
            let mut session = session();
            put(&mut session, &tree, at(0));
            let set = tree.sets.values().next().unwrap().root();
            let roots = [tree.root, set];
            let asked = std::cell::Cell::new(0);
            let left = sweep_with(&mut session, &tree, when, &|session| {
                let missing = chunks::missing(session, Table::Chunk, &roots, at(DAY)).unwrap();
                asked.set(roots.len() - missing.len());
            });
            for root in roots.iter().skip(roots.len() - asked.get()) {
                assert!(chunks::chunk(&session.db, root).unwrap().is_some(), "it was said to be there");
            }
            assert_eq!(left > 0, asked.get() > 0, "asked before batch {when}");
        }
    }

    #[test]
    fn what_is_put_during_a_sweep_stays_with_all_below_it() {
        let tree = tree(12, "a");
        for when in 0..tree.chunks.len() {
            let mut session = session();
            put(&mut session, &tree, at(0));
            let left = sweep_with(&mut session, &tree, when, &|session| put(session, &tree, at(DAY)));
            assert_eq!(left, tree.chunks.len(), "put before batch {when}");
        }
    }

    #[test]
    fn a_later_sweep_ends_the_one_before() {
        let mut session = session();
        let first = begin(&mut session);
        let second = begin(&mut session);
        assert_eq!(batch(&mut session, first, Table::Chunk, &[]).unwrap(), None);
        end(&mut session, first);
        assert_eq!(batch(&mut session, second, Table::Chunk, &[]).unwrap(), Some(0));
    }
}
