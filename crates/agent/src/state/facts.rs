//! Facts: what the node says happened, durable until the control plane acknowledged it.

use model::Timestamp;
use model::log::{Cursor, Fact, FactBody, MAX_FACT_BYTES, MAX_FACTS, MAX_REQUEST_FACT_BYTES};
use spool::SpoolError;

use super::{Durable, FactsWaiting, StateError, fresh_incarnation, locked, spool};

impl Durable {
    /// Appends facts with one sync; durable when it returns. Says of each what became of it: a
    /// fact for which the log has no room keeps no other out.
    ///
    /// # Errors
    /// When the log cannot be written; nothing was appended then.
    pub fn append_all(
        &self,
        bodies: Vec<FactBody>,
        at: Timestamp,
    ) -> Result<Vec<Result<(), StateError>>, StateError> {
        let mut log = locked(&self.log);
        let staged = bodies.into_iter().map(|body| {
            let (kind, of_action) = (body.kind(), matches!(body, FactBody::Action(_)));
            match log.stage(vec![body], at) {
                // What cannot be told must not be tried for ever; of an action nothing else may be told.
                Err(SpoolError::TooLarge { .. }) if !of_action => {
                    let message = format!("a fact ({kind}) of more than {MAX_FACT_BYTES} bytes was left out");
                    log.stage(vec![FactBody::Repaired { message }], at)
                }
                staged => staged,
            }
        });
        let staged = staged.map(|staged| staged.map(drop).map_err(spool("append to the log"))).collect();
        log.commit().map(|()| staged).map_err(spool("append to the log"))
    }

    /// Facts that wait, from the first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn facts(&self, count: usize, bytes: usize) -> Result<Vec<Fact>, StateError> {
        locked(&self.log).pending(count, bytes).map_err(spool("read the log"))
    }

    /// How many facts wait.
    pub fn facts_waiting(&self) -> u64 {
        let log = locked(&self.log);
        log.last().saturating_sub(log.acked())
    }

    /// The number of the newest fact.
    pub fn last_fact(&self) -> u64 {
        locked(&self.log).last()
    }

    /// The first facts that wait, as many as one check-in carries.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn first_facts(&self) -> Result<FactsWaiting, StateError> {
        let log = locked(&self.log);
        let facts = log.pending(MAX_FACTS, MAX_REQUEST_FACT_BYTES).map_err(spool("read the log"))?;
        let (incarnation, acked, last) = (log.incarnation().clone(), log.acked(), log.last());
        Ok(FactsWaiting { incarnation, acked, last, facts })
    }

    /// As [`Durable::first_facts`]. Where facts are gone from the disk, those that are `remembered` and those that can
    /// be read are written down in a new incarnation first.
    ///
    /// # Errors
    /// As [`Durable::first_facts`].
    pub fn first_facts_mended(&self, remembered: &FactsWaiting) -> Result<FactsWaiting, StateError> {
        let found = self.first_facts();
        if !matches!(&found, Err(StateError::Spool { source: SpoolError::Damaged { .. }, .. })) {
            return found;
        }
        let mut log = locked(&self.log);
        let same = remembered.incarnation == *log.incarnation();
        let facts = if same { remembered.facts.as_slice() } else { &[] };
        let repairs = log.mend(&fresh_incarnation()?, facts).map_err(spool("write the log anew"))?;
        drop(log);
        repairs.into_iter().for_each(|repair| self.repaired(repair));
        self.first_facts()
    }

    /// Facts up to a cursor are durable at the control plane; says whether more wait.
    ///
    /// `acked_before`: how far facts were acknowledged when those were sent that the cursor
    /// answers. A cursor behind that is of a control plane restored from an old backup: the facts after it
    /// are sent again (SCL-4), where one of them is gone here, in another incarnation of the log. A
    /// cursor that is behind only what was acknowledged meanwhile was overtaken by a later one, and
    /// says nothing.
    ///
    /// # Errors
    /// When that cannot be recorded; they are sent again then.
    pub fn ack(&self, cursor: &Cursor, acked_before: u64) -> Result<bool, StateError> {
        let mut log = locked(&self.log);
        if *log.incarnation() != cursor.incarnation {
            return Ok(log.last() > log.acked());
        }
        if cursor.seq < acked_before && cursor.seq < log.acked() {
            log.resend_after(cursor.seq, &fresh_incarnation()?).map_err(spool("send facts again"))?;
            tracing::warn!(after = cursor.seq, "the control plane's data went back: facts are sent again");
            return Ok(log.last() > log.acked());
        }
        if cursor.seq > log.last() {
            log.begin_anew(&fresh_incarnation()?).map_err(spool("begin the log anew"))?;
            locked(&self.repairs)
                .push("the control plane's cursor and the log disagreed; the log begins anew".to_owned());
            return Ok(log.last() > 0);
        }
        log.ack(cursor.seq).map_err(spool("trim the log"))?;
        Ok(log.last() > log.acked())
    }
}
