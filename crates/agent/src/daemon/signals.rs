//! [`DaemonSignals`]: what the daemon is told by signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// SIGTERM, SIGINT: end in order (LIF-3).
    Stop,
    /// SIGUSR1: end once nothing runs, so that the supervisor starts the agent anew.
    RestartWhenIdle,
    /// SIGHUP: check in and converge at once.
    Nudge,
}

/// The signals that the daemon hears. Made before anything else of it begins: until then SIGTERM ends the process
/// at once, whatever it is at.
pub(super) struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    restart: Signal,
}

impl DaemonSignals {
    /// Hears signals from now on; one that comes before the first call of [`DaemonSignals::next`] is kept.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn hear() -> std::io::Result<DaemonSignals> {
        Ok(DaemonSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            restart: signal(SignalKind::user_defined1())?,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.restart.recv() => SignalRequest::RestartWhenIdle,
            _ = self.hangup.recv() => SignalRequest::Nudge,
        }
    }
}
