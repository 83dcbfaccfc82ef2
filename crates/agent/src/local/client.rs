//! [`LocalClient`]: a verb's end of the socket.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::equivocation::SeenRecord;

use super::messages::{
    FileRestoreRequest, LiftQuarantineRequest, PauseRequest, PauseView, RunLimit, RunProgress, RunTicket,
};
use super::problem::LocalProblem;
use super::{path, route, server};
use crate::activations::QuarantineView;
use crate::files::{FileVersionDiff, FileVersionsView, RestoredVersion};
use crate::http_exchange::exchange;
use crate::machine::MachineOptions;
use crate::render::chain;
use crate::status::AgentStatusView;
use crate::why::ResourceExplanation;

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How long an answer may take that waits for nothing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the daemon may take to say how the node stands: after that it is taken for one that is stopped, and who
/// asks reads what is on disk.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a plan may take: its commands have timeouts of their own.
const PLAN_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// How long one request waits for the end of a run, in seconds.
const FOLLOW_SECS: u64 = 20;

/// Why the daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalClientError {
    /// No daemon answers.
    #[error("no agent runs here: nobody answers on {}", .0.display())]
    NoDaemon(PathBuf),
    /// This user may not connect.
    #[error("this user may not speak with the agent on {}", .0.display())]
    Denied(PathBuf),
    /// The connection broke.
    #[error("the agent on {} {what}", path.display())]
    Broke {
        /// The socket.
        path: PathBuf,
        /// What happened.
        what: String,
    },
    /// It is there, and gave no answer in time.
    #[error("the agent on {} does not answer (it may be stopped): nothing came within {} s", path.display(), timeout.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// It refused.
    #[error(transparent)]
    Refused(#[from] LocalProblem),
}

/// The way to the daemon of this host.
#[derive(Debug)]
pub struct LocalClient {
    path: PathBuf,
}

impl LocalClient {
    /// Finds the daemon.
    ///
    /// # Errors
    /// [`LocalClientError::NoDaemon`] or [`LocalClientError::Denied`].
    pub fn find(options: &MachineOptions) -> Result<LocalClient, LocalClientError> {
        let paths = path::look_at(options);
        let first = paths.first().cloned().unwrap_or_default();
        for path in paths {
            match server::connect(&path) {
                Ok(_) => return Ok(LocalClient { path }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(LocalClientError::Denied(path));
                }
                Err(_) => {}
            }
        }
        Err(LocalClientError::NoDaemon(first))
    }

    /// How the node stands.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed; [`LocalClientError::Silent`] after [`STATUS_TIMEOUT`].
    pub fn status(&self) -> Result<AgentStatusView, LocalClientError> {
        self.call(Method::GET, route::STATUS, Bytes::new(), STATUS_TIMEOUT)
    }

    /// What a run would change.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn plan(&self, limit: &RunLimit) -> Result<model::RunReport, LocalClientError> {
        let body = serde_json::to_vec(limit).map_err(|error| self.broke(error))?;
        self.call(Method::POST, route::PLAN, body.into(), PLAN_TIMEOUT)
    }

    /// Asks for a run now.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn run(&self, limit: &RunLimit) -> Result<RunTicket, LocalClientError> {
        self.post(route::RUNS, limit)
    }

    /// Waits for the end of a run, however long it takes; `waits` hears now and then that it does, and since when.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed; the run goes on all the same.
    pub fn follow(&self, run: u64, mut waits: impl FnMut(Duration)) -> Result<RunProgress, LocalClientError> {
        let asked = Instant::now();
        loop {
            let progress = self.get(&format!("{}?run={run}&wait={FOLLOW_SECS}", route::RUNS))?;
            match progress {
                RunProgress::Waiting | RunProgress::Running { .. } => waits(asked.elapsed()),
                RunProgress::Ended { .. } | RunProgress::Failed { .. } => return Ok(progress),
            }
        }
    }

    /// Pauses the host.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn pause(&self, request: &PauseRequest) -> Result<PauseView, LocalClientError> {
        self.post(route::PAUSE, request)
    }

    /// Ends the pause.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn resume(&self) -> Result<PauseView, LocalClientError> {
        self.call(Method::POST, route::RESUME, Bytes::new(), ANSWER_TIMEOUT)
    }

    /// All about one resource.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn why(&self, name: &str) -> Result<ResourceExplanation, LocalClientError> {
        self.get(&format!("{}?name={}", route::RESOURCES, wire::percent::encode_component(name)))
    }

    /// The kept versions of a file, or of all files below a directory; of all for `None`.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn file_versions(&self, path: Option<&str>) -> Result<FileVersionsView, LocalClientError> {
        let query = path.map(|path| format!("?path={}", wire::percent::encode_component(path)));
        self.get(&format!("{}{}", route::FILES, query.unwrap_or_default()))
    }

    /// How a version of a file differs from what is there now; the newest for `None`.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn file_diff(&self, path: &str, version: Option<u64>) -> Result<FileVersionDiff, LocalClientError> {
        let version = version.map(|version| format!("&version={version}")).unwrap_or_default();
        self.get(&format!("{}?path={}{version}", route::FILE_DIFF, wire::percent::encode_component(path)))
    }

    /// Puts a version of a file back.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn file_restore(&self, request: &FileRestoreRequest) -> Result<RestoredVersion, LocalClientError> {
        self.post(route::FILE_RESTORE, request)
    }

    /// Lets what is held back of a release be tried again; gives what was.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn lift_quarantine(&self, release: u64) -> Result<QuarantineView, LocalClientError> {
        self.post(route::LIFT_QUARANTINE, &LiftQuarantineRequest { release })
    }

    /// What the node was given, signed by it.
    ///
    /// # Errors
    /// [`LocalClientError`] says what failed.
    pub fn seen(&self) -> Result<SeenRecord, LocalClientError> {
        self.get(route::SEEN)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, LocalClientError> {
        let wait = ANSWER_TIMEOUT + Duration::from_secs(FOLLOW_SECS);
        self.call(Method::GET, path, Bytes::new(), wait)
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, LocalClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.broke(error))?;
        self.call(Method::POST, path, body.into(), ANSWER_TIMEOUT)
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<T, LocalClientError> {
        let answer = self.exchange(method, path, body, timeout)?;
        serde_json::from_slice(&answer).map_err(|error| self.broke(error))
    }

    /// One request. Apart from [`LocalClient::call`], so that it is compiled once and not for each answer.
    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, LocalClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.broke(error))?;
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.body(Full::new(body)).map_err(|error| self.broke(error))?;
        let exchanged = async {
            let stream = server::connect(&self.path).map_err(|error| self.broke(error))?;
            stream.set_nonblocking(true).map_err(|error| self.broke(error))?;
            let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| self.broke(error))?;
            exchange(Box::new(stream), request, MAX_ANSWER).await.map_err(|error| self.broke(chain(&error)))
        };
        let late = || LocalClientError::Silent { path: self.path.clone(), timeout };
        let (status, bytes) = runtime.block_on(async {
            tokio::time::timeout(timeout, exchanged).await.unwrap_or_else(|_| Err(late()))
        })?;
        if status.is_success() {
            return Ok(bytes);
        }
        match serde_json::from_slice::<LocalProblem>(&bytes) {
            Ok(problem) => Err(problem.into()),
            Err(_) => Err(self.broke(format!("answered {status}"))),
        }
    }

    fn broke(&self, what: impl std::fmt::Display) -> LocalClientError {
        LocalClientError::Broke { path: self.path.clone(), what: format!("cannot be asked: {what}") }
    }
}
