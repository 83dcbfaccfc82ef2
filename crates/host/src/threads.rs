//! [`SpawnCompactly`]: threads that are started by one piece of machine code, whatever they do.
//!
//! `spawn` of the standard library is compiled anew for each closure, two kilobytes each, and the agent is to
//! stay small.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starting threads that are few.
pub trait SpawnCompactly {
    /// As [`Builder::spawn`].
    ///
    /// # Errors
    /// When the system has no thread to give.
    fn spawn_compactly<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>>;
}

impl SpawnCompactly for Builder {
    fn spawn_compactly<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
        self.spawn(work)
    }
}
