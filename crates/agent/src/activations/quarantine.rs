//! [`QuarantinedRelease`]: a content that this host holds back, for people at the host, and the verb that lifts that
//! (ROL-12). The control plane has no way here: whoever stole it could wear a host out with a release that it left.

use std::fmt;
use std::path::Path;

use activation::{ActivationInput, ActivationRecord, GenerationId, QuarantinedGeneration};
use model::Timestamp;
use model::text::one_line;
use model::time::when;
use node::NodeInput;
use serde::{Deserialize, Serialize};
use spool::{PeekedFile, SpoolError};

use super::task::ActivationTask;
use crate::clock::now;
use crate::events::DaemonEvent;
use crate::generations::{ActivationOwner, GenerationFiles, boot_moment, carry_out_all, peek_record};
use crate::invocation::command;
use crate::local::{LocalProblem, LocalProblemCode};
use crate::machine::Machine;
use crate::render::chain;
use crate::service;

/// A content that this host holds back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinedRelease {
    /// The number of the release that it was tried as the last time.
    pub release: u64,
    /// What identifies it.
    pub content: GenerationId,
    /// Why the host returned from it the last time.
    pub cause: String,
    /// How often it did.
    pub returns: u32,
    /// Since when, of one that was returned from in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl QuarantinedRelease {
    fn of(known: &QuarantinedGeneration) -> QuarantinedRelease {
        let moment = boot_moment().ok();
        let of_this_boot =
            moment.zip(known.returned.as_ref()).filter(|(now, returned)| now.boot == returned.boot);
        QuarantinedRelease {
            release: known.seq,
            content: known.id,
            cause: known.cause.to_string(),
            returns: known.returns,
            since: of_this_boot.map(|(moment, returned)| now().minus(moment.at.since(returned.at))),
        }
    }

    /// What lifts it.
    pub(crate) fn lift(&self) -> String {
        command(&format!("quarantine lift {}", self.release))
    }
}

impl fmt::Display for QuarantinedRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.map_or("before the last boot".to_owned(), |at| when(at, now()));
        write!(f, "release {}, since {since}: {}", self.release, one_line(&self.cause))
    }
}

/// What is held back, or was until now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineView {
    /// The contents, the oldest first.
    pub releases: Vec<QuarantinedRelease>,
}

impl QuarantineView {
    fn of<'a>(known: impl IntoIterator<Item = &'a QuarantinedGeneration>) -> QuarantineView {
        QuarantineView { releases: known.into_iter().map(QuarantinedRelease::of).collect() }
    }

    /// What is held back by the record in a state directory, whether a daemon runs or not.
    ///
    /// # Errors
    /// When it cannot be read, or a newer version wrote it.
    pub fn read(state: &Path) -> Result<QuarantineView, SpoolError> {
        Ok(match peek_record(state)? {
            PeekedFile::Value(record) => QuarantineView::of(record.quarantine.held()),
            // Whoever loads it forgets what the host returned from.
            PeekedFile::Absent | PeekedFile::Damaged => QuarantineView::default(),
        })
    }
}

/// Lifts it on a host whose state no daemon has.
///
/// # Errors
/// The refusal, as the daemon would give it.
pub(crate) fn lift_without_daemon(machine: &Machine, release: u64) -> Result<QuarantineView, LocalProblem> {
    let files = GenerationFiles::of(machine.options(), machine.durable.disk());
    let mut record = match files.peek().map_err(|error| not_lifted(&chain(&error)))? {
        PeekedFile::Value(record) => record,
        PeekedFile::Absent | PeekedFile::Damaged => ActivationRecord::default(),
    };
    let lifted = record.quarantine.lift_release(release);
    if lifted.is_empty() {
        return Err(not_held(release));
    }
    files.persist(&record).map_err(|error| not_lifted(&chain(&error)))?;
    Ok(QuarantineView::of(&lifted))
}

impl ActivationTask {
    /// Somebody at the host lifts it; answered once that is durable.
    pub(super) fn lift_quarantine(&mut self, release: u64) -> Result<QuarantineView, LocalProblem> {
        if self.activation.is_none()
            && let Some((_, effects)) = self.load()
        {
            carry_out_all(self, effects);
        }
        let record = self.record().ok_or_else(|| not_lifted("the record cannot be used"))?;
        let held = QuarantineView::of(record.quarantine.held().filter(|known| known.seq == release));
        self.give(ActivationInput::LiftQuarantine(release));
        self.settle();
        // Where nothing is under way any more it is durable, and let go of.
        let is_held = |record: &ActivationRecord| record.quarantine.held().any(|known| known.seq == release);
        if self.record().is_some_and(is_held) {
            return Err(not_lifted("the record could not be written"));
        }
        if held.releases.is_empty() {
            return Err(not_held(release));
        }
        for lifted in &held.releases {
            tracing::warn!("held back no more, as somebody at this host says: {lifted}");
        }
        self.setup.daemon.send_blocking(DaemonEvent::Input(NodeInput::QuarantineLifted));
        Ok(held)
    }
}

fn not_held(release: u64) -> LocalProblem {
    LocalProblem::new(LocalProblemCode::NotFound, format!("nothing of release {release} is held back"))
        .with_next(format!("{} shows what is", command("quarantine list")))
}

fn not_lifted(why: &str) -> LocalProblem {
    LocalProblem::new(LocalProblemCode::Failed, format!("it is held back as before: {why}"))
        .with_next(service::journal())
}
