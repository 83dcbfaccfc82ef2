//! `muster-agent quarantine`, as people type it (ROL-12).

use std::process::ExitCode;

use clap::Subcommand;

use super::{VerbFailure, local, show};
use crate::activations::{QuarantineView, QuarantinedRelease, lift_without_daemon};
use crate::machine::{Machine, MachineOptions};
use crate::state::{StateDir, StateError};

pub(super) const QUARANTINE_AFTER: &str = "\
A host that went back by itself from a release in a rollout (a probe, the switch or the agent
failed, or the host went down twice) refuses that content from then on, whatever the number of its
release. Where the content was not to blame, as where the power failed, `lift` lets it be tried
again: the host forgets that it went back from it. It begins when a rollout asks for it next; where
that one counts this host as failed, publish the same content with another label: `muster publish
--ref second-try`. If the host goes back from it again, it is held back again.

Only root lifts it, and only at the host: nothing that the control plane sends does.

Examples:
  sudo muster-agent quarantine list
  sudo muster-agent quarantine lift 42";

#[derive(Debug, Subcommand)]
pub(super) enum QuarantineVerb {
    /// Show what is held back, why and since when
    List,
    /// Let what is held back of a release be tried again
    Lift {
        /// The number of the release, as `list` shows it
        release: u64,
    },
}

pub(super) fn quarantine(
    options: &MachineOptions,
    verb: &QuarantineVerb,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    match verb {
        QuarantineVerb::List => list(options, json),
        QuarantineVerb::Lift { release } => lift(options, *release, json),
    }
}

fn list(options: &MachineOptions, json: bool) -> Result<ExitCode, VerbFailure> {
    let state = options.state_dir();
    if StateDir::at(&state, spool::Disk::new()).membership()?.is_none() {
        return Err(StateError::NotJoined(state).into());
    }
    let view = QuarantineView::read(&state)?;
    show(json, &view, || listed(&view))?;
    Ok(ExitCode::SUCCESS)
}

fn listed(view: &QuarantineView) -> String {
    if view.releases.is_empty() {
        return "nothing is held back\n".to_owned();
    }
    let text = |held: &QuarantinedRelease| {
        let times = if held.returns == 1 { "once".to_owned() } else { format!("{} times", held.returns) };
        let (content, lift) = (held.content, held.lift());
        format!(
            "{held}\n  this host went back from it {times}, and refuses content {content} whatever its number\n  to have \
             it tried again: {lift}\n"
        )
    };
    view.releases.iter().map(text).collect()
}

fn lift(options: &MachineOptions, release: u64, json: bool) -> Result<ExitCode, VerbFailure> {
    let view = match local::daemon_of(options)? {
        Some(daemon) => daemon.lift_quarantine(release)?,
        None => lift_without_daemon(&Machine::open(options)?, release)?,
    };
    show(json, &view, || {
        let lifted = view.releases.iter().map(|lifted| format!("held back no more: {lifted}\n"));
        lifted.chain(["this host tries it when a rollout asks for it next\n".to_owned()]).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
