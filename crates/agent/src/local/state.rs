//! [`LocalState`]: what the daemon shows to its socket.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::unadopted::UnadoptedRelease;
use model::{Pause, RunReport, Timestamp, UnmadeRun};
use node::RebootOutlook;
use tokio::sync::watch;
use trust::ChainError;

use super::messages::{ContactView, RunProgress};
use crate::activations::ActivationView;
use crate::outcomes::{self, LastRunView};
use crate::packed::Packed;

/// How many reports of runs are kept for those who follow them.
const REPORTS: usize = 2;

/// What the daemon shows now.
#[derive(Clone, Debug)]
pub struct LocalState {
    /// Since when the daemon runs.
    pub since: Timestamp,
    /// How its contacts went.
    pub contact: ContactView,
    /// Why the host is paused.
    pub pause: Option<Pause>,
    /// Every resource of the last run.
    last_run: Option<Packed<LastRunView>>,
    /// Runs begun since the start.
    pub begun: u64,
    /// When the one under way began.
    pub running_since: Option<Timestamp>,
    /// When the run over what was changed out of band began that is under way.
    pub repairing_since: Option<Timestamp>,
    /// Why no run can be made.
    pub unmade_run: Option<UnmadeRun>,
    /// Why the release that was offered is not adopted.
    pub unadopted: Option<UnadoptedRelease>,
    /// When a run began that was cut off, until another one ended.
    pub cut_off: Option<Timestamp>,
    /// How a reboot stands that is required.
    pub reboot: Option<RebootOutlook>,
    /// How the activation of a release stands.
    pub activation: Option<ActivationView>,
    /// Why newer trust documents are not followed.
    pub refused_trust: Option<String>,
    ended: VecDeque<(u64, Result<Packed<RunReport>, String>)>,
}

impl LocalState {
    /// Every resource of the last run.
    pub fn last_run(&self) -> Option<LastRunView> {
        // What was packed here is read again.
        self.last_run.as_ref()?.value().ok()
    }

    /// Whether a run has ended, or could not be made.
    fn is_over(&self, run: u64) -> bool {
        let is_known = self.ended.iter().any(|(number, _)| *number == run);
        let is_next = run > self.begun;
        let is_under_way = run == self.begun && self.running_since.is_some();
        is_known || !(is_next || is_under_way)
    }

    /// How a run stands.
    pub fn progress(&self, run: u64) -> RunProgress {
        match self.ended.iter().find(|(number, _)| *number == run) {
            Some((_, Ok(report))) => {
                return RunProgress::Ended { report: report.value().ok().map(Box::new) };
            }
            Some((_, Err(cause))) => return RunProgress::Failed { cause: cause.clone() },
            None => {}
        }
        match self.running_since {
            Some(since) if run == self.begun => RunProgress::Running { since },
            _ if run > self.begun => RunProgress::Waiting,
            _ => RunProgress::Ended { report: None },
        }
    }
}

/// The state that the daemon writes and its socket reads. Cheap to clone.
#[derive(Clone)]
pub struct SharedLocalState {
    state: Arc<watch::Sender<LocalState>>,
    directory: Arc<PathBuf>,
}

impl SharedLocalState {
    /// A daemon that begins, with what earlier runs left in its state directory.
    pub fn new(directory: PathBuf, pause: Option<Pause>, since: Timestamp) -> SharedLocalState {
        let state = LocalState {
            since,
            contact: ContactView::read(&directory).unwrap_or_default(),
            pause,
            last_run: LastRunView::read(&directory).and_then(|view| Packed::new(&view).ok()),
            begun: 0,
            running_since: None,
            repairing_since: None,
            unmade_run: None,
            unadopted: None,
            cut_off: None,
            reboot: None,
            activation: None,
            refused_trust: None,
            ended: VecDeque::new(),
        };
        SharedLocalState { state: Arc::new(watch::Sender::new(state)), directory: Arc::new(directory) }
    }

    /// What is shown now.
    pub fn shown(&self) -> LocalState {
        self.state.borrow().clone()
    }

    /// Changes what is shown.
    pub fn set(&self, change: impl FnOnce(&mut LocalState)) {
        self.state.send_modify(change);
    }

    /// Shows why no run can be made, or that runs are made.
    pub fn show_unmade(&self, unmade: Option<&UnmadeRun>) {
        self.state.send_if_modified(|state| {
            let differs = state.unmade_run.as_ref() != unmade;
            if differs {
                state.unmade_run = unmade.cloned();
            }
            differs
        });
    }

    /// Shows why the release that was offered is not adopted, or that nothing is in its way.
    pub fn show_unadopted(&self, unadopted: Option<&UnadoptedRelease>) {
        self.state.send_if_modified(|state| {
            let differs = state.unadopted.as_ref() != unadopted;
            if differs {
                state.unadopted = unadopted.cloned();
            }
            differs
        });
    }

    /// Shows why newer trust documents are not followed, or that they are.
    pub fn show_refused_trust(&self, refused: Option<&ChainError>) {
        let refused = refused.map(ToString::to_string);
        self.state.send_if_modified(|state| {
            let differs = state.refused_trust != refused;
            state.refused_trust = refused;
            differs
        });
    }

    /// Shows why the certificate cannot be renewed, or that it can be.
    pub fn show_renewal_failure(&self, failure: Option<&str>) {
        self.state.send_if_modified(|state| {
            let differs = state.contact.renewal_failure.as_deref() != failure;
            if differs {
                state.contact.renewal_failure = failure.map(str::to_owned);
            }
            differs
        });
    }

    /// A run begins.
    pub fn run_begins(&self, at: Timestamp) {
        self.set(|state| {
            state.begun += 1;
            state.running_since = Some(at);
        });
    }

    /// A run came to this; of one that could be made, with every resource. From the run's thread: the
    /// file is written before those who follow hear of it.
    pub fn run_ended(&self, ended: Result<(RunReport, LastRunView), String>) {
        let (outcome, view) = match ended {
            Ok((mut report, view)) => {
                report.items = outcomes::bounded(&report.items);
                let report = Packed::new(&report).map_err(|error| error.to_string());
                (report, self.keep(&view))
            }
            Err(cause) => (Err(cause), None),
        };
        self.set(|state| {
            state.running_since = None;
            if view.is_some() {
                state.cut_off = None;
            }
            state.last_run = view.or(state.last_run.take());
            state.ended.push_back((state.begun, outcome));
            while state.ended.len() > REPORTS {
                state.ended.pop_front();
            }
        });
    }

    /// A run over what was changed out of band begins. It has no number: nobody asked for it.
    pub(crate) fn repair_begins(&self, at: Timestamp) {
        self.set(|state| state.repairing_since = Some(at));
    }

    /// That run is over, whatever it came to.
    pub(crate) fn repair_ended(&self) {
        self.set(|state| state.repairing_since = None);
    }

    /// Waits until no repair is under way, or for so long; since when one is that goes on.
    pub(crate) async fn wait_for_repair(&self, wait: Duration) -> Option<Timestamp> {
        let mut watch = self.state.subscribe();
        let over = watch.wait_for(|state| state.repairing_since.is_none());
        match tokio::time::timeout(wait, over).await {
            // The sender is held here: the wait cannot end by its going.
            Ok(_) => None,
            Err(_) => self.shown().repairing_since,
        }
    }

    /// A run over what was changed out of band came to this. Nobody follows it.
    pub(crate) fn healed(&self, view: LastRunView) {
        let view = self.keep(&view);
        self.set(|state| state.last_run = view.or(state.last_run.take()));
    }

    /// A run was written down that was not the daemon's own, as that of a return: what it came to is shown.
    pub(crate) fn recorded(&self) {
        let view = LastRunView::read(&self.directory).and_then(|view| Packed::new(&view).ok());
        self.set(|state| state.last_run = view.or(state.last_run.take()));
    }

    /// Writes the file that `muster-agent status` reads while no daemon runs; gives what stays in memory.
    fn keep(&self, view: &LastRunView) -> Option<Packed<LastRunView>> {
        if let Err(error) = view.write(&self.directory) {
            tracing::warn!(%error, "what the run came to cannot be kept for `muster-agent status`");
        }
        Packed::new(view).ok()
    }

    /// How a run stands; waits until it ended, or for so long.
    pub async fn follow(&self, run: u64, wait: Duration) -> RunProgress {
        let mut watch = self.state.subscribe();
        // Its end is looked at below: late, or the daemon is gone.
        let _ = tokio::time::timeout(wait, watch.wait_for(|state| state.is_over(run))).await.is_ok();
        self.shown().progress(run)
    }
}
