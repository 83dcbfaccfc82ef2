//! What the daemon does when its state directory is lost while it runs: it ends what runs, writes back what it holds
//! in memory, and starts anew there, as the same process (LIF-10).

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::Daemon;
use crate::render::chain;
use crate::state::{Durable, LostState, RememberedState};

/// This program, also where its file was replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

impl Daemon {
    /// The node's identity lies there again. All else that is held in memory follows once nothing runs.
    pub(super) fn state_lost(&mut self, lost: LostState) {
        if self.lost_state.is_none() {
            tracing::error!("{lost}: starting anew with what is held in memory once nothing runs");
            self.lost_state = Some(lost);
            self.restarting = true;
        }
    }

    /// Writes back what the daemon holds in memory, where its state was lost; says whether it was.
    pub(super) async fn put_back_state(&mut self) -> bool {
        let Some(lost) = self.lost_state.take() else { return false };
        let held = RememberedState {
            adoption: self.node.adoption().cloned(),
            freshness: self.node.freshness_record().cloned(),
            trust: self.node.trust_record().cloned(),
            last_run: self.node.last_run().cloned(),
            pause: self.node.pause().cloned(),
            last_reboot: self.node.last_reboot().cloned(),
            facts: self.storage.facts(),
        };
        // Who emptied the directory may have gone on after it was looked at: without its identity it starts nowhere.
        let guard = self.guard.clone();
        let write_back = move |durable: &Durable| {
            if let Err(error) = guard.check() {
                tracing::error!(error = %chain(&error), "the node's identity cannot be written back");
            }
            durable.put_back(&lost, &held)
        };
        // What cannot be written back is fetched or reported anew.
        if let Err(error) = self.storage.run(write_back).await {
            tracing::error!(error = %chain(&error), "what was held in memory cannot be written back");
        }
        true
    }
}

/// Starts this process anew, as it was called. Returns why that is not possible.
pub fn start_anew() -> std::io::Error {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(OWN_PROGRAM);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).exec()
}
