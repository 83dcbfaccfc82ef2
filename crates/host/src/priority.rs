//! What the machine's own work goes before.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of runs and of the commands that they start. Without a priority of its own for input
/// and output a process has the one that follows from it: best effort, 6 of 7.
const NICE: i32 = 10;

/// Lets the machine's own work go before the calling thread, and before the threads and commands that it
/// starts. A thread that is nicer already stays so.
///
/// # Errors
/// When the kernel refuses; the priority stays as it is.
pub fn lower_own_priority() -> io::Result<()> {
    // The kernel counts for each thread, and without a number means the calling one.
    if getpriority_process(None)? < NICE {
        setpriority_process(None, NICE)?;
    }
    Ok(())
}
