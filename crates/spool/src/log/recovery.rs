//! What opening a log finds, and beginning anew.

use std::path::{Path, PathBuf};

use model::Incarnation;
use model::log::Fact;

use super::{FactLog, Limits, MODE, State};
use crate::Op;
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::segment::{self, Segment};

impl FactLog {
    /// Fills `segments` with those that hold facts that were not acknowledged; removes the
    /// others.
    pub(super) fn read_segments(&mut self) -> Result<Found> {
        let acked = self.state.acked;
        let mut found = Found::default();
        // From the newest: the first number of a segment says where the one before it
        // ends, whatever else that one holds after an append that failed.
        let mut until = u64::MAX;
        for (first, path) in segment::list(&self.incarnation_path())?.into_iter().rev() {
            let content = segment::read(&path)?;
            let row = row(&content, first, until);
            let is_newest = until == u64::MAX;
            let whole = row.unbroken && if is_newest { !content.scan.damaged } else { row.next == until };
            let wanted = until > acked + 1;
            if wanted && !whole {
                found.gap = true;
                found.damaged.push(path.clone());
            }
            if row.next > first && row.next > acked + 1 {
                let bytes = content.scan.end as u64;
                self.segments.push(Segment { path, first, last: row.next - 1, bytes });
            } else if whole || !wanted {
                // Also fine if it stays: it is found again, and below the cursor.
                let _ = self.disk.unlink(&path);
            }
            if row.next > first {
                until = first;
            }
        }
        self.segments.reverse();
        found.gap |= self.segments.first().is_some_and(|oldest| oldest.first > acked + 1);
        Ok(found)
    }

    /// Makes the last segment ready to be appended to: cuts off a torn tail.
    pub(super) fn open_last(&mut self) -> Result<()> {
        let Some(last) = self.segments.last() else { return Ok(()) };
        let file = self.disk.open_append(&last.path, MODE)?;
        let length = file.metadata().map_err(|error| failed(Op::Read, &last.path, error))?.len();
        if length > last.bytes {
            self.disk.truncate(&file, &last.path, last.bytes)?;
            self.disk.sync(&file, &last.path)?;
        }
        self.active = Some(file);
        Ok(())
    }

    /// Calls `take(seq, json)` for each pending fact in order, until it says `false`.
    pub(super) fn each_pending(&self, take: &mut dyn FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        let mut done = self.state.acked;
        for segment in &self.segments {
            if segment.last <= done {
                continue;
            }
            let content = segment::read(&segment.path)?;
            // After an append that failed there may be more in it than counts.
            for (seq, json) in content.facts().filter(|(seq, _)| *seq <= segment.last) {
                if seq <= done {
                    continue;
                }
                if !take(seq, json)? {
                    return Ok(());
                }
                done = seq;
            }
        }
        Ok(())
    }

    /// Writes the pending facts as a new incarnation and changes over to it.
    pub(super) fn restart(&mut self, fresh: &Incarnation) -> Result<()> {
        if *fresh == self.state.incarnation {
            return Err(SpoolError::SameIncarnation);
        }
        let state = State { incarnation: fresh.clone(), acked: 0 };
        let mut new = FactLog {
            disk: self.disk.clone(),
            directory: self.directory.clone(),
            limits: Limits { max_bytes: u64::MAX, ..self.limits },
            slot: self.slot.clone(),
            state,
            segments: vec![],
            active: None,
            unsure: false,
        };
        self.disk.unlink_dir(&new.incarnation_path())?;
        let mut batch = Vec::new();
        let mut seq = 0;
        self.each_pending(&mut |old, json| {
            seq += 1;
            segment::push(&mut batch, &Fact { seq, ..segment::decode(old, json) })?;
            if batch.len() as u64 >= new.limits.segment_bytes {
                let first = new.last() + 1;
                new.append_bytes(&std::mem::take(&mut batch), first, seq)?;
            }
            Ok(true)
        })?;
        if !batch.is_empty() {
            let first = new.last() + 1;
            new.append_bytes(&batch, first, seq)?;
        }
        self.unsure = true;
        new.slot.store(&new.state)?;
        new.limits = self.limits;
        *self = new;
        Ok(())
    }

    pub(super) fn remove_other_lives(&self) -> Result<()> {
        for incarnation in incarnations(&self.directory)?
            .into_iter()
            .filter(|incarnation| *incarnation != self.state.incarnation)
        {
            self.disk.unlink_dir(&self.directory.join(incarnation.as_str()))?;
        }
        Ok(())
    }
}

/// What is not as it should be in an incarnation's segments.
#[derive(Default)]
pub(super) struct Found {
    /// Numbers are missing that were not acknowledged.
    pub(super) gap: bool,
    /// The segments in which they were.
    pub(super) damaged: Vec<PathBuf>,
}

/// The numbers in a segment.
struct Row {
    /// One more than the highest; `first` when there is none.
    next: u64,
    /// They begin with `first` and none is left out.
    unbroken: bool,
}

fn row(content: &segment::Content, first: u64, until: u64) -> Row {
    let mut row = Row { next: first, unbroken: true };
    for (seq, _) in content.facts().filter(|(seq, _)| *seq < until) {
        row.unbroken &= seq == row.next;
        row.next = row.next.max(seq.saturating_add(1));
    }
    row
}

/// The incarnation whose state is lost, if there is one.
pub(super) fn abandoned(directory: &Path) -> Result<Option<Incarnation>> {
    Ok(incarnations(directory)?.into_iter().next())
}

fn incarnations(directory: &Path) -> Result<Vec<Incarnation>> {
    let mut incarnations = Vec::new();
    let read = |error| failed(Op::Read, directory, error);
    for entry in std::fs::read_dir(directory).map_err(read)? {
        let entry = entry.map_err(read)?;
        if entry.file_type().map_err(read)?.is_dir() {
            incarnations.extend(entry.file_name().to_str().and_then(|name| name.parse().ok()));
        }
    }
    incarnations.sort();
    Ok(incarnations)
}
