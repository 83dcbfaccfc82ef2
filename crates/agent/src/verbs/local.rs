//! The verbs that speak with the daemon of this host over its socket, or do without one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use activation::ActivationProcess;
use converge::{RunMode, RunScope};
use model::log::FactBody;
use model::{RunCounts, RunReport};
use node::{LastRun, RunOrder};

use super::{VerbFailure, exit, print, show};
use crate::clock::now;
use crate::daemon::local::refused_for;
use crate::full_runs::{record_full_run, show_run};
use crate::guard::guard_of;
use crate::invocation::command;
use crate::local::client::{LocalClient, LocalClientError};
use crate::local::messages::{FileRestoreRequest, PauseRequest, PauseView, RunLimit, RunProgress};
use crate::machine::{Machine, MachineOptions};
use crate::outcomes::LastRunView;
use crate::render::{self, report};
use crate::run_mark::RunMark;
use crate::runner::{Runner, lower_priority, observed, scope_of};
use crate::seen_record::seen_record;
use crate::state::{StateDir, StateError};
use crate::status::{HostHealth, ShownResources};
use crate::storage::Storage;
use crate::{bundle, doctor, files, status, why};

/// A run that the daemon could not make.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskedRunError {
    /// It says why.
    #[error("the run could not be made: {0}")]
    Failed(String),
    /// It ended, and what it came to is not kept any more.
    #[error("the run ended, and later ones after it; {} says what the last came to", command("status"))]
    Forgotten,
}

/// The daemon, or `None` when none runs.
pub(super) fn daemon_of(options: &MachineOptions) -> Result<Option<LocalClient>, LocalClientError> {
    match LocalClient::find(options) {
        Ok(client) => Ok(Some(client)),
        Err(LocalClientError::NoDaemon(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn status(options: &MachineOptions, all: bool, json: bool) -> Result<ExitCode, VerbFailure> {
    let view = match daemon_of(options)? {
        None => status::read(&options.state_dir())?,
        Some(daemon) => match daemon.status() {
            Err(LocalClientError::Silent { .. }) => status::read(&options.state_dir())?.of_silent_daemon(),
            answered => answered?,
        },
    };
    let shown = if all { ShownResources::All } else { ShownResources::Notable };
    show(json, &view, || view.text(shown))?;
    Ok(ExitCode::from(match view.health() {
        HostHealth::Failed => exit::SOME_FAILED,
        HostHealth::NotKept => exit::ERROR,
        HostHealth::Refused => exit::REFUSED,
        HostHealth::OutOfContact => exit::UNREACHABLE,
        HostHealth::Differs => exit::DIFFERENCES,
        HostHealth::AsDeclared => exit::AS_DECLARED,
    }))
}

pub(super) fn plan(options: &MachineOptions, limit: &RunLimit, json: bool) -> Result<ExitCode, VerbFailure> {
    let done = match daemon_of(options)? {
        Some(daemon) => daemon.plan(limit)?,
        None => run_once(&Machine::open(options)?, RunMode::Plan, scope_of(&limit.tags))?,
    };
    ended(&done, json)
}

/// `once`: without a daemon, make the run in this process.
pub(super) fn apply(
    options: &MachineOptions,
    once: bool,
    limit: &RunLimit,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let done = match LocalClient::find(options) {
        Ok(daemon) => {
            let ticket = daemon.run(limit)?;
            follow(&daemon, ticket.run)?
        }
        Err(LocalClientError::NoDaemon(_)) if once => {
            run_once(&Machine::open(options)?, RunMode::Apply, scope_of(&limit.tags))?
        }
        Err(error @ LocalClientError::NoDaemon(_)) => {
            // None can be started before the host has joined.
            let state = options.state_dir();
            let membership = StateDir::at(&state, spool::Disk::new()).membership()?;
            return Err(membership.map_or_else(|| StateError::NotJoined(state).into(), |_| error.into()));
        }
        Err(error) => return Err(error.into()),
    };
    ended(&done, json)
}

/// Follows a run to its end, and says on stderr that it waits.
fn follow(daemon: &LocalClient, run: u64) -> Result<RunReport, VerbFailure> {
    let waits = |so_far: Duration| eprintln!("the run goes on ({})", render::short(so_far));
    match daemon.follow(run, waits)? {
        RunProgress::Ended { report: Some(report) } => Ok(*report),
        RunProgress::Failed { cause } => Err(AskedRunError::Failed(cause).into()),
        RunProgress::Ended { report: None } | RunProgress::Waiting | RunProgress::Running { .. } => {
            Err(AskedRunError::Forgotten.into())
        }
    }
}

fn ended(done: &RunReport, json: bool) -> Result<ExitCode, VerbFailure> {
    show(json, done, || report(done))?;
    Ok(ExitCode::from(match done.counts {
        RunCounts { failed: 1.., .. } => exit::SOME_FAILED,
        // After `apply` what only observes; after `plan` all that differs.
        RunCounts { would_change: 1.., .. } => exit::DIFFERENCES,
        _ => exit::AS_DECLARED,
    }))
}

/// One run on the held set, recorded as the daemon would: the fact waits for the next
/// check-in. A partial run is a fact and not the last run.
///
/// # Errors
/// When nothing is held, no resource has a tag of the scope, the host is paused and the run would change it, or the state cannot be used.
pub fn run_once(machine: &Machine, mode: RunMode, scope: RunScope) -> Result<RunReport, VerbFailure> {
    lower_priority();
    let durable = &machine.durable;
    let pause = durable.pause()?.filter(|pause| !pause.is_over(now()));
    if let Some(pause) = pause.filter(|_| mode == RunMode::Apply) {
        return Err(refused_for(&pause, now()).into());
    }
    let traits = observed(machine.kinds.host());
    let storage = Storage::start(durable.clone())?;
    let runner = runner(machine, &storage);
    let guard = Arc::new(guard_of(machine, &storage));
    // Nobody is there to try a contact, and whoever types this sees what comes of it: only a guard that is up goes on.
    let runner = match mode == RunMode::Apply && guard.resume(ActivationProcess::Agent)? {
        true => runner.guarded(guard),
        false => runner,
    };
    let bound = runner.bind(&traits)?;
    let (seq, root) = (bound.adoption().seq, bound.adoption().root);
    let read = runner.read_traits(&traits).map_or(model::Digest::ZERO, |read| read.digest);
    let inputs = node::step::inputs_digest(&root, &read);
    let last = durable.last_run()?;
    let intended = last.as_ref().is_none_or(|last| last.inputs != inputs);
    let order = RunOrder {
        seq,
        root,
        intended,
        unfinished: last.as_ref().map(|last| last.unfinished.clone()).unwrap_or_default(),
        pause: None,
        scope,
        requested_tags: Default::default(),
    };
    if mode == RunMode::Apply {
        // Without a mark it is made all the same.
        let _ = RunMark::begin(durable.path(), now());
    }
    let run = runner.run_bound(&order, &bound, mode);
    if mode == RunMode::Apply {
        RunMark::end(durable.path());
    }
    let run = run?;
    if runner.guard().is_some_and(|guard| guard.is_up()) {
        eprintln!(
            "this can cut the host off: the agent must reach the control plane within the window, or it is undone"
        );
    }
    if mode == RunMode::Apply && run.report.partial.is_some() {
        if LastRun::partial_is_fact(&run.report) {
            if let Some(last) = last {
                durable.save_last_run(&last.unreported())?;
            }
            storage.append_blocking(FactBody::Run(run.report.clone()))?;
        }
        show_run(&storage, &run.report, run.resources)?;
    } else if mode == RunMode::Apply {
        return Ok(record_full_run(&storage, inputs, run)?);
    }
    Ok(run.report)
}

pub(super) fn pause(
    options: &MachineOptions,
    reason: String,
    for_secs: Option<u64>,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let request = PauseRequest { reason, for_secs };
    // Refused here as the daemon would, and without one too.
    let pause = request.pause(now())?;
    let view = match daemon_of(options)? {
        Some(daemon) => {
            let view = daemon.pause(&request)?;
            if let Some(run) = view.run_under_way {
                eprintln!("a run is under way; it ends first");
                daemon.follow(run, |so_far| eprintln!("it goes on ({})", render::short(so_far)))?;
            }
            if let Some(since) = view.repair_under_way {
                eprintln!(
                    "a repair that began at {since} goes on to its end, and may still change what it repairs"
                );
            }
            view
        }
        None => {
            let machine = Machine::open(options)?;
            let before = machine.durable.pause()?;
            machine.durable.save_pause(&Some(pause.clone()))?;
            PauseView { pause: Some(pause), before, ..PauseView::default() }
        }
    };
    show(json, &view, || {
        let pause = view.pause.as_ref().map(|pause| render::pause(pause, now())).unwrap_or_default();
        let resume = command("resume");
        let ended = view.before.as_ref().and_then(|before| before.until);
        let dropped = ended.filter(|_| view.pause.as_ref().is_some_and(|pause| pause.until.is_none()));
        let dropped = dropped.map(|at| format!("it does not end by itself any more, as it did at {at}\n"));
        let dropped = dropped.unwrap_or_default();
        format!("paused {pause}\n{dropped}runs only observe, and nothing is changed; to go on: {resume}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn resume(options: &MachineOptions, json: bool) -> Result<ExitCode, VerbFailure> {
    let view = match daemon_of(options)? {
        Some(daemon) => daemon.resume()?,
        None => {
            let machine = Machine::open(options)?;
            let before = machine.durable.pause()?;
            machine.durable.save_pause(&None)?;
            PauseView { before, ..PauseView::default() }
        }
    };
    show(json, &view, || match &view.before {
        None => "this host is not paused\n".to_owned(),
        Some(before) => format!("resumed; it was paused {}\n", render::pause(before, now())),
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn why(options: &MachineOptions, name: &str, json: bool) -> Result<ExitCode, VerbFailure> {
    let explained = match daemon_of(options)? {
        Some(daemon) => daemon.why(name)?,
        None => {
            let machine = Machine::open(options)?;
            let storage = Storage::start(machine.durable.clone())?;
            let runner = runner(&machine, &storage);
            let traits = observed(machine.kinds.host());
            let last = LastRunView::read(machine.durable.path());
            why::explain(&runner, &machine.durable, &traits, last.as_ref(), name)?
        }
    };
    show(json, &explained, || explained.to_string())?;
    let failed = explained.outcome.as_ref().is_some_and(|known| known.action == Some(model::Action::Failed));
    Ok(if failed { ExitCode::from(exit::SOME_FAILED) } else { ExitCode::SUCCESS })
}

pub(super) fn seen(options: &MachineOptions, out: Option<&Path>) -> Result<ExitCode, VerbFailure> {
    let record = match daemon_of(options)? {
        Some(daemon) => daemon.seen()?,
        None => {
            let machine = Machine::open(options)?;
            let durable = &machine.durable;
            seen_record(&*machine.key()?, durable.adoption()?, &durable.first_facts()?, now())?
        }
    };
    let text = serde_json::to_string(&record)? + "\n";
    match out {
        None => print(&text),
        Some(path) => {
            std::fs::write(path, text)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            print(&format!("written to {}\n", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn file_versions(
    options: &MachineOptions,
    path: Option<&str>,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let view = match daemon_of(options)? {
        Some(daemon) => daemon.file_versions(path)?,
        None => files::versions(&Machine::open(options)?.durable, path)?,
    };
    show(json, &view, || view.text(now()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn file_diff(
    options: &MachineOptions,
    path: &str,
    version: Option<u64>,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let diff = match daemon_of(options)? {
        Some(daemon) => daemon.file_diff(path, version)?,
        None => {
            let machine = Machine::open(options)?;
            let runner = runner(&machine, &Storage::start(machine.durable.clone())?);
            let traits = observed(machine.kinds.host());
            files::diff(&runner, &traits, path, version)?
        }
    };
    show(json, &diff, || diff.to_string())?;
    let same = diff.lines.is_empty() && diff.attributes.is_empty();
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(exit::DIFFERENCES) })
}

pub(super) fn file_restore(
    options: &MachineOptions,
    request: FileRestoreRequest,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let restored = match daemon_of(options)? {
        Some(daemon) => daemon.file_restore(&request)?,
        None => {
            let machine = Machine::open(options)?;
            let durable = &machine.durable;
            let unkept = request.unkept();
            let FileRestoreRequest { path, version, .. } = request;
            let storage = Storage::start(durable.clone())?;
            let runner = runner(&machine, &storage);
            let traits = observed(machine.kinds.host());
            let restored = files::restore(&runner, &traits, &path, version, unkept)?;
            if !restored.unchanged {
                storage.append_blocking(FactBody::FileRestored { path: path.clone(), version })?;
            }
            let pause = durable.pause()?.filter(|pause| !pause.is_over(now()));
            let next = files::after_restore(&runner, &traits, &path, pause);
            restored.with_next(&path, next)
        }
    };
    show(json, &restored, || restored.text(now()))?;
    Ok(ExitCode::SUCCESS)
}

fn runner(machine: &Machine, storage: &Storage) -> Runner {
    Runner::new(machine.kinds.clone(), storage.clone(), machine.membership.hostname.to_string())
}

pub(super) fn doctor(options: &MachineOptions, json: bool) -> Result<ExitCode, VerbFailure> {
    let diagnosis = doctor::diagnose(options);
    show(json, &diagnosis, || diagnosis.to_string())?;
    Ok(if diagnosis.failed() { ExitCode::from(exit::ERROR) } else { ExitCode::SUCCESS })
}

pub(super) fn bundle(
    options: &MachineOptions,
    output: Option<PathBuf>,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let bundle = bundle::write(options, output)?;
    show(json, &bundle, || bundle.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// A length of time as people type it: `90s`, `30m`, `2h`, `7d`; in seconds.
///
/// # Errors
/// In words, when it is none.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let unit = |unit: char| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    };
    let read = || {
        let last = text.chars().next_back()?;
        let number: u64 = text.strip_suffix(last)?.parse().ok()?;
        number.checked_mul(unit(last)?)
    };
    read().ok_or_else(|| format!("{text:?} is no length of time: write 90s, 30m, 2h or 7d"))
}

/// Says that nothing is held back, or approves it.
pub(super) fn approve_deletes(options: &MachineOptions) -> Result<ExitCode, VerbFailure> {
    let dir = options.state_dir();
    let held = crate::sync::view::read(&dir).and_then(|view| view.held);
    let Some(held) = held else {
        return Err(format!("nothing is held back, as far as {} says", dir.display()).into());
    };
    crate::sync::reconciler::approve(&dir)?;
    print(&format!("approved: {held}\n"));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn lengths_of_time_are_read() {
        for (text, want) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604_800), ("0s", 0)] {
            assert_eq!(seconds(text), Ok(want), "{text}");
        }
        for text in ["", "30", "m", "2 h", "1w", "-3m", "99999999999999999999d", "18446744073709551615d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
