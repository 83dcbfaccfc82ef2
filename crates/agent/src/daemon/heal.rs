//! The daemon's end of the watch over the host: what is suspected to have drifted, and what runs over it came to (CNV-7).

use std::sync::{Mutex, PoisonError};

use model::{Action, RunReport};
use node::NodeInput;

use super::{Daemon, RunLog};
use crate::local::state::SharedLocalState;
use crate::outcomes::LastRunView;
use crate::runner::CompletedRun;

/// The most resources that the journal names of one run.
const MAX_NAMED: usize = 20;

impl Daemon {
    pub(super) fn hear_suspected_drift(&mut self) {
        let drift = self.watch.take();
        self.take(NodeInput::SuspectedDrift(drift));
    }
}

/// Shows what a run over suspects came to: it is nobody's run, and is shown only where it found something.
pub(super) fn show(run: CompletedRun, local: &SharedLocalState, log: &Mutex<RunLog>) {
    if run.report.items.is_empty() {
        return;
    }
    let before = local.shown().last_run();
    let (report, view) = logged(run, local, log);
    let changed = report.items.iter().filter(|item| item.action == Action::Changed);
    for item in changed.take(MAX_NAMED) {
        tracing::info!(resource = item.resource, "was changed out of band, and is put right");
    }
    // What is changed all the time and only observed is no reason to write the same again.
    if before.is_none_or(|before| !before.tells_the_same(&view)) {
        local.healed(view);
    }
}

/// Writes down in the journal what a run came to; what it shows of every resource.
pub(super) fn logged(
    run: CompletedRun,
    local: &SharedLocalState,
    log: &Mutex<RunLog>,
) -> (RunReport, LastRunView) {
    log.lock().unwrap_or_else(PoisonError::into_inner).ended(&run.report);
    let before = local.shown().last_run();
    let view = LastRunView::after(before.as_ref(), &run.report, run.resources);
    (run.report, view)
}
