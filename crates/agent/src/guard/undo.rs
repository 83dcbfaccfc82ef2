//! What a guarded run changed is put back, offline; then the host is made to go by it.

use std::time::Duration;

use catalog::module::CommandLine;
use converge::RunScope;
use providers::Kinds;

use super::{GuardedChanges, LiveGuard, RunGuard};
use crate::generations::ReturnWatchdog;
use crate::render::chain;
use activation::GenerationId;

/// The time of a command that makes the host go by what was put back.
const AFTER_TIMEOUT: Duration = Duration::from_secs(120);

/// What of a guarded run is still to be undone.
pub(super) struct LeftToUndo {
    /// The changes, by their place, the last one first.
    changes: Vec<usize>,
    /// The agent's program and unit.
    agent: bool,
    /// What makes the host go by what was put back.
    commands: Vec<CommandLine>,
}

impl LeftToUndo {
    fn all(changes: &GuardedChanges) -> LeftToUndo {
        let mut commands: Vec<CommandLine> = Vec::new();
        for change in changes.changes.iter().filter(|change| !change.agent) {
            commands.extend(change.then.clone().filter(|command| !commands.contains(command)));
        }
        LeftToUndo {
            changes: (0..changes.changes.len()).rev().collect(),
            agent: changes.touches_agent(),
            commands,
        }
    }
}

impl RunGuard {
    /// Undoes all changes, the last one first, or what could not be undone before, and gives what could not be now. Doing
    /// it twice does no harm.
    pub(super) fn undo_all(&self, guard: &mut LiveGuard, again: bool) -> Vec<String> {
        let before = guard.left.take().filter(|_| again);
        let mut left = before.unwrap_or_else(|| LeftToUndo::all(&guard.changes));
        let mut failures = Vec::new();
        self.kinds.begin_run(RunScope::All.purpose());
        left.changes.retain(|at| {
            let Some(change) = guard.changes.changes.get(*at) else { return false };
            let undone = change.undo.as_ref().map_or(Ok(()), |undo| self.kinds.undo(undo));
            failures.extend(undone.as_ref().err().map(|error| format!("{}: {error}", change.resource)));
            undone.is_err()
        });
        if left.agent {
            let failed = self.put_back_agent(guard);
            left.agent = !failed.is_empty();
            failures.extend(failed);
        }
        let is_whole = failures.is_empty();
        if !left.commands.is_empty() {
            reload_units(&self.kinds);
        }
        left.commands.retain(|command| {
            if let Some(reset) = reset_failed(command) {
                let _ = self.kinds.verify(&reset, AFTER_TIMEOUT);
            }
            let done = self.kinds.verify(command, AFTER_TIMEOUT);
            failures.extend(done.as_ref().err().map(ToString::to_string));
            // It went by what is not put back yet.
            done.is_err() || !is_whole
        });
        guard.left = (!failures.is_empty()).then_some(left);
        failures
    }

    fn put_back_agent(&self, guard: &mut LiveGuard) -> Vec<String> {
        let mut failures = Vec::new();
        match self.files.put_back_agent(GenerationId::AS_FOUND) {
            Ok(agent) => guard.put_back = agent.program.or(guard.put_back.take()),
            Err(error) => failures.push(chain(&error)),
        }
        if let ReturnWatchdog::Units(units) = self.files.watchdog()
            && let Err(error) = units.reload()
        {
            failures.push(error.to_string());
        }
        failures
    }
}

/// Has systemd read unit files again; where there is none, there is nothing to read.
fn reload_units(kinds: &Kinds) {
    let reload = CommandLine::Argv(["systemctl", "daemon-reload"].map(str::to_owned).to_vec());
    if let Err(error) = kinds.verify(&reload, AFTER_TIMEOUT) {
        tracing::debug!(%error, "unit files are not read again");
    }
}

/// A unit that failed too often within a short time is started again all the same.
fn reset_failed(command: &CommandLine) -> Option<CommandLine> {
    let CommandLine::Argv(argv) = command else { return None };
    let [program, _, unit] = argv.as_slice() else { return None };
    let argv = ["systemctl", "reset-failed", unit.as_str()].map(str::to_owned).to_vec();
    (program == "systemctl").then_some(CommandLine::Argv(argv))
}
