//! Pauses: while somebody on the host pauses it, runs only observe (CNV-6).
//!
//! ```text
//! Pause(reason, until) -> SavePause, then a run that only observes and says why
//! Resume, or its time is over -> SavePause(none), then a run that makes the host as declared
//! ```

use model::{Pause, Timestamp};

use super::Node;
use crate::io::NodeEffect;

impl Node {
    /// Why and since when the host is paused.
    pub fn pause(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    /// A pause whose time is over ends by itself.
    pub(super) fn end_pause_in_time(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if self.pause.as_ref().is_some_and(|pause| pause.is_over(now)) {
            effects.push(NodeEffect::Warn("the pause ended: the host is made as declared again".to_owned()));
            self.set_pause(None, effects);
        }
    }

    pub(super) fn on_resume(&mut self, effects: &mut Vec<NodeEffect>) {
        if self.pause.is_some() {
            self.set_pause(None, effects);
        }
    }

    /// A pause of a host that is paused keeps its beginning.
    pub(super) fn on_pause(&mut self, pause: Pause, effects: &mut Vec<NodeEffect>) {
        let since = self.pause.as_ref().map_or(pause.since, |before| before.since);
        self.set_pause(Some(Pause { since, ..pause }), effects);
    }

    /// A run follows at once: it makes the host as declared again, or its report says that the host is
    /// paused.
    fn set_pause(&mut self, pause: Option<Pause>, effects: &mut Vec<NodeEffect>) {
        self.pause.clone_from(&pause);
        self.run_due = self.adoption.is_some();
        effects.push(NodeEffect::SavePause(pause));
    }
}
