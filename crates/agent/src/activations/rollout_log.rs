//! [`RolloutLog`]: events of rollouts as facts of the node's log, each with its number and, where a probe found something,
//! with the host's signature (ROL-5).

use std::sync::{Arc, Mutex, PoisonError};

use model::log::{Cursor, FactBody};
use model::rollout::{RolloutEventBody, RolloutFact, RolloutId};
use model::{NodeId, Timestamp};
use node::RolloutNumbers;
use spool::StateFile;
use trust::{ProbeEvidence, SigningKey};

use crate::clock::now;
use crate::state::{Durable, StateError};
use crate::storage::Storage;

const FILE: &str = "rollout-events.json";
const MODE: u32 = 0o600;

/// The numbers, and the key that signs.
pub(crate) struct RolloutLog {
    node: NodeId,
    key: Arc<SigningKey>,
    file: StateFile<RolloutNumbers>,
    /// What the file says, once it was read.
    numbers: Mutex<Option<RolloutNumbers>>,
}

impl RolloutLog {
    pub(crate) fn new(durable: &Durable, node: NodeId, key: Arc<SigningKey>) -> RolloutLog {
        let file = StateFile::new(durable.disk(), durable.path().join(FILE), MODE);
        RolloutLog { node, key, file, numbers: Mutex::default() }
    }

    /// Appends an event; says where in the log it is, durable.
    ///
    /// # Errors
    /// When its number cannot be made durable, or the log has no room.
    pub(crate) async fn append(
        self: Arc<Self>,
        storage: &Storage,
        rollout: RolloutId,
        event: RolloutEventBody,
    ) -> Result<Cursor, StateError> {
        storage.append_made(move |durable, at| self.fact(durable, rollout, event, at)).await
    }

    /// As [`RolloutLog::append`], from a thread outside the runtime.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn append_blocking(
        self: &Arc<Self>,
        storage: &Storage,
        rollout: RolloutId,
        event: RolloutEventBody,
    ) -> Result<Cursor, StateError> {
        let log = self.clone();
        storage.append_made_blocking(move |durable, at| log.fact(durable, rollout, event, at))
    }

    /// The fact; its number is durable when it returns, so that none is given twice.
    fn fact(
        &self,
        durable: &Durable,
        rollout: RolloutId,
        event: RolloutEventBody,
        at: Timestamp,
    ) -> Result<FactBody, StateError> {
        let incarnation = durable.incarnation();
        let failed = |source| StateError::Spool { what: "number an event of a rollout", source };
        let mut known = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = match known.take() {
            Some(numbers) => numbers,
            None => {
                let loaded = self.file.load().map_err(failed)?;
                match (loaded.value, loaded.set_aside) {
                    (Some(numbers), _) => numbers,
                    (None, None) => RolloutNumbers::default(),
                    // Above all that it can have given: nobody says so much in a second.
                    (None, Some(_)) => {
                        RolloutNumbers::above(incarnation.clone(), u64::try_from(now().0 / 1000).unwrap_or(0))
                    }
                }
            }
        };
        let event_seq = numbers.next(&incarnation, &rollout);
        let stored = self.file.store(&numbers).map_err(failed);
        *known = Some(numbers);
        stored?;
        let signature = match &event {
            RolloutEventBody::ProbeResult { probe, outcome, boot } => {
                let evidence = ProbeEvidence {
                    node: self.node.clone(),
                    incarnation,
                    rollout: rollout.clone(),
                    event_seq,
                    boot: boot.clone(),
                    probe: probe.clone(),
                    outcome: *outcome,
                    at,
                };
                // Only a number beyond 2^53 cannot be written; without a signature the result counts for nothing.
                evidence.sign(&self.key).ok().flatten()
            }
            _ => None,
        };
        Ok(FactBody::Rollout(RolloutFact { rollout, event_seq, event, signature }))
    }
}
