//! [`spawn`]: tasks that are run by one piece of machine code, whatever they do.
//!
//! What tokio keeps around a task is compiled anew for each future, two kilobytes each, and the agent is to
//! stay small. Here it is compiled once for each type of result.

use std::pin::Pin;

use hyper::rt::Executor;
use tokio::task::JoinHandle;

/// As [`tokio::spawn`], for tasks that are few.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let task: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(task);
    tokio::spawn(task)
}

/// As [`tokio::task::spawn_blocking`], for work that is rare.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}

/// Runs what a connection has besides itself as [`spawn`] does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionExecutor;

impl<F> Executor<F> for ConnectionExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        drop(spawn(task));
    }
}
