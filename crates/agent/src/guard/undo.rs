//! What a guarded run changed is put back, offline; then the host is made to go by it.

use std::time::Duration;

use catalog::module::CommandLine;
use converge::RunScope;
use providers::Kinds;

use super::{LiveGuard, RunGuard};
use crate::generations::ReturnWatchdog;
use crate::render::chain;
use activation::GenerationId;

/// The time of a command that makes the host go by what was put back.
const AFTER_TIMEOUT: Duration = Duration::from_secs(120);

impl RunGuard {
    /// Undoes all changes, the last one first, and gives what could not be undone. Doing it twice does no harm.
    pub(super) fn undo_all(&self, guard: &mut LiveGuard) -> Vec<String> {
        let mut failures = Vec::new();
        self.kinds.begin_run(RunScope::All.purpose());
        for change in guard.changes.changes.iter().rev() {
            if let Some(undo) = &change.undo
                && let Err(error) = self.kinds.undo(undo)
            {
                failures.push(format!("{}: {error}", change.resource));
            }
        }
        if guard.changes.touches_agent() {
            match self.files.put_back_agent(GenerationId::AS_FOUND) {
                Ok(agent) => guard.put_back = agent.program.or(guard.put_back.take()),
                Err(error) => failures.push(chain(&error)),
            }
            if let ReturnWatchdog::Units(units) = self.files.watchdog()
                && let Err(error) = units.reload()
            {
                failures.push(error.to_string());
            }
        }
        let mut commands: Vec<&CommandLine> = Vec::new();
        for command in guard
            .changes
            .changes
            .iter()
            .filter(|change| !change.agent)
            .filter_map(|change| change.then.as_ref())
        {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        if !commands.is_empty() {
            reload_units(&self.kinds);
        }
        for command in commands {
            if let Some(reset) = reset_failed(command) {
                let _ = self.kinds.verify(&reset, AFTER_TIMEOUT);
            }
            if let Err(error) = self.kinds.verify(command, AFTER_TIMEOUT) {
                failures.push(error.to_string());
            }
        }
        failures
    }
}

/// Has systemd read unit files again; where there is none, there is nothing to read.
pub(super) fn reload_units(kinds: &Kinds) {
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
