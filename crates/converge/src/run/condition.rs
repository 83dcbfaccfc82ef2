//! Asking a condition in the run: what the run knows itself, and what only the host knows.
//!
//! ```text
//! file, directory, command, process, port -> the host, one JobWork::Probe each
//! hour, day, window                       -> the run's own time and the host's offset from UTC
//! changed                                 -> notifications that are owed
//! ```

use lang::{EvalError, Probe};
use model::window::{ClockZone, WallClock};

use super::Run;
use super::machine::PredictedPath;
use crate::{BoundResource, When};

/// Whether a question is the host's to answer.
pub(super) fn is_of_host(probe: &Probe) -> bool {
    match probe {
        Probe::FileExists(_)
        | Probe::DirExists(_)
        | Probe::CommandSucceeds(_)
        | Probe::ProcessRunning(_)
        | Probe::PortListening(_) => true,
        Probe::HourRange { .. } | Probe::DayOfWeek { .. } | Probe::InWindow(_) | Probe::Changed(_) => false,
    }
}

impl Run {
    /// Evaluates a condition of a module or a resource; the host's next answer may be needed first.
    pub(super) fn ask(
        &mut self,
        m: usize,
        resource: Option<&BoundResource>,
        when: &When,
    ) -> Result<Result<bool, String>, Probe> {
        let condition = match when {
            When::Always => return Ok(Ok(true)),
            When::Never(_) => return Ok(Ok(false)),
            When::Failed(error) => return Ok(Err(format!("when: {error}"))),
            When::Ask(condition) => condition,
        };
        match condition.eval(&|probe| self.known(m, resource, probe)) {
            Ok(wanted) => Ok(Ok(wanted)),
            Err(EvalError::Needs(probe)) if is_of_host(&probe) => {
                self.modules[m].asked = Some(probe.clone());
                Err(probe)
            }
            Err(EvalError::Needs(Probe::InWindow(name))) => Ok(Err(self.no_window(&name))),
            Err(EvalError::Needs(probe)) => {
                Ok(Err(format!("when: nothing notifies it that `{probe}` could mean")))
            }
            Err(error) => Ok(Err(format!("when: {error}"))),
        }
    }

    /// What is known without asking the host once more.
    fn known(&self, m: usize, resource: Option<&BoundResource>, probe: &Probe) -> Option<bool> {
        let observe = resource.map_or_else(|| self.observes_module(m), |resource| self.observes(resource));
        let predicted = |path: &str| self.prediction.paths.get(path).filter(|_| observe);
        let answered = || self.modules[m].answers.get(probe).copied();
        match (probe, resource) {
            (Probe::FileExists(path), _) => {
                predicted(path).map(|there| *there != PredictedPath::Nothing).or_else(answered)
            }
            (Probe::DirExists(path), _) => match predicted(path) {
                Some(PredictedPath::Nothing) => Some(false),
                Some(PredictedPath::Directory) => Some(true),
                Some(PredictedPath::Other) | None => answered(),
            },
            (Probe::CommandSucceeds(_) | Probe::ProcessRunning(_) | Probe::PortListening(_), _) => answered(),
            (Probe::HourRange { from, to, zone }, _) => Some(self.wall_clock(*zone).is_between(*from, *to)),
            (Probe::DayOfWeek { days, zone }, _) => Some(days.contain(self.wall_clock(*zone))),
            (Probe::InWindow(name), _) => {
                Some(self.desired.windows.get(name)?.as_ref().ok()?.contains(self.now))
            }
            (Probe::Changed(None), Some(resource)) => Some(self.is_notified(resource, observe, None)),
            (Probe::Changed(Some(id)), Some(resource)) => {
                let notifiers = resource.notifiers.get(id)?;
                Some(notifiers.iter().any(|by| self.is_notified(resource, observe, Some(by))))
            }
            (Probe::Changed(_), None) => None,
        }
    }

    fn wall_clock(&self, zone: ClockZone) -> WallClock {
        let east_secs = match zone {
            ClockZone::Local => self.east_secs(),
            ClockZone::Fixed(east_secs) => east_secs,
        };
        WallClock::at(self.now, east_secs)
    }

    fn no_window(&self, name: &str) -> String {
        match self.desired.windows.get(name) {
            Some(Err(error)) => format!("when: window `{name}`: {error}"),
            _ => format!("when: there is no window `{name}`"),
        }
    }
}

/// The text of a condition.
pub(super) fn source(when: &When) -> &str {
    match when {
        When::Never(source) => source,
        When::Ask(condition) => condition.source(),
        When::Always | When::Failed(_) => "",
    }
}
