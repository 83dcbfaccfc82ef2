//! [`SessionClosures`]: closures from the control plane, for who may wait (ROL-9).

use std::sync::Arc;
use std::time::Duration;

use model::Digest;
use model::text::chain;
use providers::ClosureRelay;
use tokio::runtime::Handle;
use wire::{Code, route};

use crate::session::{CallError, NodeSession};

/// How much of an archive is asked for at a time, and held, in bytes: other requests of the session are not held up long.
const PART: u64 = 1024 * 1024;
/// How often the control plane is asked again while it has too much to do, and how long it is waited before each time at
/// most: a release is not to fail because its whole fleet fetches at once.
const BUSY_TRIES: usize = 6;
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// The session with the control plane, for the threads that carry out runs.
pub struct SessionClosures {
    session: Arc<NodeSession>,
    runtime: Handle,
}

impl SessionClosures {
    /// Over this session; within the runtime that it is used in.
    pub fn new(session: Arc<NodeSession>) -> SessionClosures {
        SessionClosures { session, runtime: Handle::current() }
    }
}

/// Asks, and again while the control plane is busy.
async fn asked<T>(ask: impl AsyncFn() -> Result<T, CallError>) -> Result<T, CallError> {
    for _ in 0..BUSY_TRIES {
        match ask().await {
            Err(CallError::Refused(problem)) if problem.code == Code::Busy.as_str() => {
                let wait = problem.retry_after_secs.map_or(BUSY_WAIT, Duration::from_secs);
                tokio::time::sleep(wait.min(BUSY_WAIT)).await;
            }
            answer => return answer,
        }
    }
    ask().await
}

fn path(asked: &str) -> String {
    route::CLOSURE.replace("{hash}", asked)
}

impl ClosureRelay for SessionClosures {
    fn narinfo(&self, hash: &str) -> Result<Option<Vec<u8>>, String> {
        let path = path(hash);
        match self.runtime.block_on(asked(async || self.session.get_bytes(&path).await)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(CallError::Refused(problem)) if problem.code == Code::NotFound.as_str() => Ok(None),
            Err(error) => Err(chain(&error)),
        }
    }

    fn archive(&self, digest: &Digest, from: u64) -> Result<Vec<u8>, String> {
        let path = path(&digest.to_string());
        let part = self.runtime.block_on(asked(async || self.session.get_part(&path, from, PART).await));
        part.map(|bytes| bytes.to_vec()).map_err(|error| chain(&error))
    }
}
