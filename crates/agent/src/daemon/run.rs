//! A run of the daemon, on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use converge::{RunMode, RunScope};
use host::SpawnCompactly;
use net::tasks;
use node::{NodeInput, RunFailure, RunOrder};

use super::{Daemon, heal};
use crate::clock::now;
use crate::events::DaemonEvent;
use crate::run_mark::RunMark;
use crate::runner::{self, CompletedRun};
use crate::state_guard::StateHold;

impl Daemon {
    pub(super) fn start_run(&mut self, order: RunOrder) {
        // An agent that starts anew makes it: a long run would hold up one that a release waits for.
        if self.stopping || self.restarting {
            return;
        }
        self.running = true;
        let healing = matches!(order.scope, RunScope::Resources(_));
        let state = (!healing).then(|| self.storage.durable().path().to_owned());
        match healing {
            true => self.local.repair_begins(now()),
            false => self.local.run_begins(now()),
        }
        let (runner, handle, traits) = (self.runner.clone(), self.handle.clone(), self.traits.clone());
        let (local, log) = (self.local.clone(), self.run_log.clone());
        let (watch, guard) = (self.watch.clone(), self.guard.clone());
        let spawned = std::thread::Builder::new().name("muster run".to_owned()).spawn_compactly(move || {
            runner::lower_priority();
            let mut content_missing = false;
            let hold = state.as_ref().and_then(|state| guard.begin_run(state, now()).err());
            // A panic ends this run, not the keeping of the host.
            let run = catch_unwind(AssertUnwindSafe(|| -> Result<CompletedRun, RunFailure> {
                if let Some(hold) = &hold {
                    return Err(hold.failure());
                }
                let bound = runner.bind(&traits).map_err(|error| error.failure())?;
                if order.scope == RunScope::All {
                    watch.follow(bound.desired());
                }
                let run =
                    runner.run_bound(&order, &bound, RunMode::Apply).map_err(|error| error.failure())?;
                content_missing =
                    run.report.counts.failed > 0 && runner.durable().lacks_content(bound.adoption());
                if order.scope == RunScope::All && run.report.counts.changed > 0 {
                    // A home that was made, what was unpacked: only now is it known what to watch there.
                    watch.follow(bound.desired());
                }
                Ok(run)
            }));
            if let Some(state) = state.filter(|_| hold.is_none()) {
                RunMark::end(&state);
            }
            let is_held = hold.is_some();
            if let Some(StateHold::Lost(lost)) = hold {
                handle.send_blocking(DaemonEvent::StateLost(lost));
            }
            let run = run.unwrap_or_else(|_| Err(RunFailure::other("the agent panicked; see its log")));
            let input = match &run {
                Ok(run) => NodeInput::Ran(Box::new(run.report.clone())),
                Err(failure) => NodeInput::RunFailed(failure.clone()),
            };
            if healing {
                local.repair_ended();
            }
            match run {
                Ok(run) if healing => heal::show(run, &local, &log),
                Err(_) if healing => {}
                run => {
                    let run = run.map_err(|failure| failure.reason);
                    local.run_ended(run.map(|run| heal::logged(run, &local, &log)));
                }
            }
            handle.send_blocking(DaemonEvent::Input(input));
            if !content_missing && !is_held {
                // After what the run came to was said: it may take a second.
                content_missing = runner.durable().scrub_when_due(Instant::now()).unwrap_or_else(|error| {
                    tracing::warn!(%error, "contents were not verified");
                    false
                });
            }
            if content_missing {
                handle.send_blocking(DaemonEvent::Input(NodeInput::ContentMissing));
            }
        });
        if let Err(error) = spawned {
            let handle = self.handle.clone();
            let why = format!("no thread could be started: {error}");
            match healing {
                true => self.local.repair_ended(),
                false => self.local.run_ended(Err(why.clone())),
            }
            let failed = NodeInput::RunFailed(RunFailure::other(why));
            tasks::spawn(async move { handle.send(DaemonEvent::Input(failed)).await });
        }
    }
}
