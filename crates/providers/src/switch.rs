//! `switch` on a host (ROL-10).
//!
//! ```text
//! set: remember that it begins -> run -> remember that it ended
//! ```
//!
//! Invariant: what is run is remembered durably before it begins; where it does not end, or not well, the memory says so.

use catalog::module::CommandLine;
use catalog::types::{Ensure, SwitchSpec};
use converge::JobFailure;
use converge::kinds::switch::{self, SwitchMemory};
use host::End;
use model::Fields;
use model::text::chain;

use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, PROBE_TIMEOUT, because, failure, output, program};
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};

impl StateProvider for SwitchSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let printed = self.current.as_ref().map(|current| printed(kinds, current)).transpose()?;
        Ok(switch::observed(remembered(kinds, self)?.as_ref(), printed.as_deref()))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn desired_here(&self, kinds: &Kinds, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        // What was taken back, or never switched, is as it is to be: `current` prints something all the same.
        if self.ensure == Ensure::Absent && remembered(kinds, self)?.is_none() {
            return Ok(now.cloned());
        }
        as_declared(self)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        let memory = remembered(kinds, self)?;
        let Some(step) = switch::step(self, memory.as_ref(), now, to) else { return Ok(None) };
        remember(kinds, self, Some(&step.during))?;
        let command = host::Command::new(program(&step.command), timeout, MAX_OUTPUT);
        let finished = kinds.host.run(&command).map_err(|error| chain(&error))?;
        if finished.end != End::Exited(0) {
            let what = if Some(&step.command) == self.run.as_ref() { "run" } else { "back" };
            let message = format!("{what} {}", failure(finished.end, &finished, timeout));
            return Err(because(finished.end, what, message));
        }
        remember(kinds, self, step.after.as_ref())?;
        Ok(output(&finished))
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Units
    }
}

fn printed(kinds: &Kinds, current: &CommandLine) -> Result<String, String> {
    let command = host::Command::new(program(current), PROBE_TIMEOUT, MAX_OUTPUT);
    let finished = kinds.host.run(&command).map_err(|error| format!("current: {}", chain(&error)))?;
    match finished.end {
        End::Exited(0) => Ok(String::from_utf8_lossy(&finished.stdout.bytes).trim().to_owned()),
        end => Err(format!("current {}", failure(end, &finished, PROBE_TIMEOUT))),
    }
}

/// Under which name it is remembered: no path.
fn key(spec: &SwitchSpec) -> String {
    format!("switch:{}", spec.name)
}

fn remembered(kinds: &Kinds, spec: &SwitchSpec) -> Result<Option<SwitchMemory>, String> {
    let found = kinds.blobs.unpacked(&key(spec));
    let found = found.map_err(|error| format!("cannot read what {} is switched to: {error}", spec.name))?;
    Ok(found.as_ref().and_then(SwitchMemory::read))
}

fn remember(kinds: &Kinds, spec: &SwitchSpec, memory: Option<&SwitchMemory>) -> Result<(), String> {
    let fields = memory.map(SwitchMemory::write).transpose()?;
    let kept = kinds.blobs.keep_unpacked(&key(spec), fields.as_ref());
    kept.map_err(|error| format!("cannot write down what {} is switched to: {error}", spec.name))
}
