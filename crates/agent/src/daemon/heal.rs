//! The daemon's end of the watch over the host: what was touched, and what runs over it came to (CNV-7).

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use lang::Value;
use model::Action;
use node::NodeInput;

use super::{Daemon, RunLog};
use crate::healing::HostWatch;
use crate::local::state::SharedLocalState;
use crate::outcomes::LastRunView;
use crate::render::chain;
use crate::runner::{CompletedRun, Runner, RunnerError};
use crate::storage::Storage;

/// The most resources that the journal names of one run.
const MAX_NAMED: usize = 20;

impl Daemon {
    pub(super) fn hear_touched(&mut self) {
        let touched = self.watch.take();
        self.take(NodeInput::Touched(touched));
    }
}

/// Watches what is bound, before a run over it looks at all of it.
pub(super) fn follow(watch: &HostWatch, runner: &Runner, storage: &Storage, traits: &Value) {
    // Why it cannot be bound is said by the run.
    if let Ok(Some(adoption)) = storage.durable().adoption()
        && let Ok(desired) = runner.desired(&adoption, traits)
    {
        watch.follow(&desired);
    }
}

/// What a run over suspects came to. It is counted as nobody's run, and shown only where it found something.
pub(super) fn healed(
    run: Result<Result<CompletedRun, RunnerError>, Box<dyn Any + Send>>,
    local: &SharedLocalState,
    log: &Mutex<RunLog>,
) -> NodeInput {
    let run = match run {
        Ok(Ok(run)) => run,
        Ok(Err(error)) => return NodeInput::RunFailed(chain(&error)),
        Err(_) => return NodeInput::RunFailed("the agent panicked; see its log".to_owned()),
    };
    if run.report.items.is_empty() {
        return NodeInput::Ran(Box::new(run.report));
    }
    log.lock().unwrap_or_else(PoisonError::into_inner).ended(&run.report);
    let changed = run.report.items.iter().filter(|item| item.action == Action::Changed);
    for item in changed.take(MAX_NAMED) {
        tracing::info!(resource = item.resource, "was changed by other hands, and is put right");
    }
    let before = local.shown().last_run;
    let view = LastRunView::after(before.as_deref(), &run.report, run.resources);
    // What is changed all the time and only observed is no reason to write the same again.
    if before.is_none_or(|before| !before.tells_the_same(&view)) {
        local.healed(view);
    }
    NodeInput::Ran(Box::new(run.report))
}
