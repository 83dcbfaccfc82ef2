//! What is written down of a full run that was made without the daemon, as the daemon would.

use model::log::FactBody;
use model::{Digest, RunReport};
use node::LastRun;

use crate::clock::now;
use crate::outcomes::LastRunView;
use crate::runner::CompletedRun;
use crate::state::StateError;
use crate::storage::Storage;

/// Writes a run down, whose bound inputs have this digest: its fact waits for the next check-in.
///
/// # Errors
/// When the disk refuses.
pub fn record_full_run(
    storage: &Storage,
    inputs: Digest,
    run: CompletedRun,
) -> Result<RunReport, StateError> {
    let durable = storage.durable();
    let last = durable.last_run()?;
    let written = LastRun::after(last.as_ref(), inputs, &run.report, &durable.incarnation(), now());
    if written.fact {
        storage.append_blocking(FactBody::Run(run.report.clone()))?;
    }
    if written.save {
        durable.save_last_run(&written.last)?;
    }
    show_run(storage, &run.report, run.resources)?;
    Ok(run.report)
}

/// Lets `status` show a run.
///
/// # Errors
/// When the disk refuses.
pub fn show_run(
    storage: &Storage,
    report: &RunReport,
    resources: crate::outcomes::RunResources,
) -> Result<(), StateError> {
    let state = storage.durable().path();
    let before = LastRunView::read(state);
    LastRunView::after(before.as_ref(), report, resources)
        .write(state)
        .map_err(|source| StateError::Spool { what: "write what the last run came to", source })
}
