//! Running a command beside everything else: its output is given as it comes, and it can be
//! ended at any time (OPS-2).

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::{Cancel, Command, End, Host, RunError, SpawnCompactly};
use model::work::OutputStream;

/// The stack of the thread that stays with a command, in bytes.
const STACK: usize = 256 * 1024;

/// What happens to a command that runs beside.
#[derive(Debug)]
pub enum CommandEvent<'a> {
    /// It printed something: at most 64 KiB at a time, as it came. [`Command::output_limit`]
    /// does not count here.
    Output(OutputStream, &'a [u8]),
    /// It is over, with its process group. The last event.
    Ended(Result<End, RunError>),
}

/// A command that runs beside. Dropping it does not end the command.
#[derive(Debug)]
pub struct StreamingCommand {
    cancel: Cancel,
    thread: JoinHandle<()>,
}

impl StreamingCommand {
    /// Ends the command and its process group: asks first, kills after two seconds. The
    /// last event says [`End::Cancelled`] unless it was over already.
    pub fn kill(&self) {
        self.cancel.cancel();
    }

    /// The last event was given.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the last event was given.
    pub fn wait(self) {
        // A panic of the listener was printed where it happened.
        let _ = self.thread.join();
    }
}

impl Host {
    /// Starts a command on a thread of its own and gives what it prints and how it ends.
    /// Environment, time limit and process group are those of [`Host::run`]. While the
    /// listener does not return, the command's output waits in its pipe, and neither its
    /// time limit nor [`StreamingCommand::kill`] is looked at: it must not wait for long.
    ///
    /// # Errors
    /// When there is no thread; that it cannot be started is in the last event.
    pub fn run_streaming(
        self: &Arc<Host>,
        command: Command,
        mut listener: impl FnMut(CommandEvent<'_>) + Send + 'static,
    ) -> Result<StreamingCommand, RunError> {
        let (host, cancel) = (Arc::clone(self), Cancel::default());
        let switch = cancel.clone();
        let program = command.program.name().to_owned();
        let stay = move || {
            let mut sink = |stream, bytes: &[u8]| listener(CommandEvent::Output(stream, bytes));
            let ended = host.attend(&command, Some(&switch), &mut sink);
            listener(CommandEvent::Ended(ended));
        };
        let builder = std::thread::Builder::new().name("command".to_owned()).stack_size(STACK);
        let thread = builder.spawn_compactly(stay).map_err(|source| RunError::Attend { program, source })?;
        Ok(StreamingCommand { cancel, thread })
    }
}
