//! Reboots: the mark and the fact first, then the service manager is told.

use std::time::Duration;

use host::{Command, End, Program};
use net::tasks;
use node::{NodeInput, RebootMark};

use super::Daemon;
use crate::events::DaemonEvent;
use crate::render::chain;

/// How long the service manager may take to hear that the host goes down.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much is kept of what it says, in bytes.
const MAX_OUTPUT: usize = 4096;
/// There where systemd is the service manager that runs.
const SYSTEMD: &str = "/run/systemd/system";

impl Daemon {
    pub(super) fn reboot(&self, mark: RebootMark) {
        let (storage, handle, host) = (self.storage.clone(), self.handle.clone(), self.host.clone());
        tasks::spawn(async move {
            let fact = mark.fact();
            let saved = storage.run(move |durable| durable.save_reboot(&mark)).await;
            let rebooted = match saved {
                Ok(()) => {
                    if let Err(error) = storage.append(fact).await {
                        // The host is kept without a log (LIF-10).
                        tracing::error!(error = %chain(&error), "a fact could not be recorded");
                    }
                    let told = tasks::spawn_blocking(move || tell_to_reboot(&host)).await;
                    told.unwrap_or_else(|error| Err(chain(&error)))
                }
                Err(error) => Err(chain(&error)),
            };
            if let Err(why) = rebooted {
                handle.send(DaemonEvent::Input(NodeInput::RebootFailed(why))).await;
            }
        });
    }

    /// Remembers how the last reboot stands.
    pub(super) fn save_reboot(&self, mark: RebootMark) {
        let storage = self.storage.clone();
        tasks::spawn(async move {
            if let Err(error) = storage.run(move |durable| durable.save_reboot(&mark)).await {
                tracing::warn!(error = %chain(&error), "the last reboot could not be recorded");
            }
        });
    }

    /// Shows on the socket how a reboot stands.
    pub(super) fn show_reboot(&self) {
        let reboot = self.node.reboot();
        if self.local.shown().reboot != reboot {
            self.local.set(|state| state.reboot = reboot);
        }
    }
}

/// Tells systemd to reboot, which stops what runs in its order.
fn tell_to_reboot(host: &host::Host) -> Result<(), String> {
    if host.rooted() {
        return Err("the agent keeps a folder, not the machine".to_owned());
    }
    if !host.exists(SYSTEMD).unwrap_or(false) {
        return Err("systemd does not run here".to_owned());
    }
    let program = Program::Argv(vec!["systemctl".to_owned(), "--no-wall".to_owned(), "reboot".to_owned()]);
    let finished = host.run(&Command::new(program, TIMEOUT, MAX_OUTPUT)).map_err(|error| chain(&error))?;
    match finished.end {
        End::Exited(0) => Ok(()),
        _ => Err(format!("systemctl reboot: {}", String::from_utf8_lossy(&finished.stderr.bytes).trim())),
    }
}
