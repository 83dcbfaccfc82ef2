//! What the socket's routes do: off the daemon's thread, or by an event to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use converge::RunMode;
use model::log::FactBody;
use net::tasks;
use node::{Adoption, RunOrder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, oneshot};
use trust::SigningKey;

use super::messages::{
    DaemonView, FileRestoreRequest, LiftQuarantineRequest, PauseRequest, RunLimit, RunProgress, RunTicket,
};
use super::problem::{LocalProblem, LocalProblemCode};
use super::route::{LocalAccess, LocalCall};
use super::state::SharedLocalState;
use crate::clock::now;
use crate::events::{DaemonEvent, DaemonHandle, LocalCommand, LocalReply};
use crate::files::{self, FileVersionError, OVERWRITE_UNKEPT};
use crate::healing::HostWatch;
use crate::invocation::command;
use crate::render::chain;
use crate::runner::{Runner, RunnerError, scope_of};
use crate::seen_record::seen_record;
use crate::status::AgentStatusView;
use crate::storage::Storage;
use crate::why::{self, WhyError};

/// The longest wait for the end of a run in one request.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// What the routes work with.
pub(crate) struct LocalHandler {
    pub(crate) directory: PathBuf,
    pub(crate) state: SharedLocalState,
    pub(crate) daemon: DaemonHandle,
    pub(crate) runner: Arc<Runner>,
    pub(crate) storage: Storage,
    pub(crate) host: Arc<host::Host>,
    pub(crate) watch: HostWatch,
    /// The node's own key.
    pub(crate) key: Arc<SigningKey>,
    /// One plan or explanation at a time: each binds the set.
    pub(crate) turn: Arc<Semaphore>,
}

type LocalAnswer = Result<Vec<u8>, LocalProblem>;

impl LocalHandler {
    /// Does what a route does.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn carry_out(
        self: &Arc<Self>,
        call: LocalCall,
        access: LocalAccess,
        query: &str,
        body: &[u8],
    ) -> LocalAnswer {
        match call {
            LocalCall::Status => self.aside(move |handler| handler.status(access)).await,
            LocalCall::Plan => {
                let limit = limit(body)?;
                self.in_turn(move |handler| handler.plan(&limit)).await
            }
            LocalCall::Run => {
                let limit = limit(body)?;
                if !limit.tags.is_empty() {
                    // A tag that means nothing is refused before anything runs.
                    let limit = limit.clone();
                    self.in_turn(move |handler| handler.check_tags(&limit)).await?;
                }
                let ticket: RunTicket = self.command(|reply| LocalCommand::Run(limit.tags, reply)).await?;
                json(&ticket)
            }
            LocalCall::FollowRun => {
                let run = number(query, "run")?;
                let wait = Duration::from_secs(number(query, "wait").unwrap_or(0)).min(MAX_WAIT);
                let progress: RunProgress = self.state.follow(run, wait).await;
                self.aside(move |_| json(&progress)).await
            }
            LocalCall::Pause => {
                let request: PauseRequest = read(body)?;
                let pause = request.pause(now()).map_err(|error| bad(error.to_string()))?;
                json(&self.command(|answer| LocalCommand::Pause(pause, answer)).await?)
            }
            LocalCall::Resume => json(&self.command(LocalCommand::Resume).await?),
            LocalCall::Why => {
                let name =
                    parameter(query, "name").ok_or_else(|| bad("the query names no resource".into()))?;
                self.in_turn(move |handler| handler.why(&name)).await
            }
            LocalCall::FileVersions => {
                let path = parameter(query, "path");
                let show = move |handler: &LocalHandler| {
                    let found = files::versions(handler.storage.durable(), path.as_deref());
                    json(&found.map_err(|error| failed(chain(&error)))?)
                };
                self.aside(show).await
            }
            LocalCall::FileDiff => {
                let path = parameter(query, "path").ok_or_else(|| bad("the query names no path".into()))?;
                let version = match parameter(query, "version") {
                    Some(_) => Some(number(query, "version")?),
                    None => None,
                };
                self.in_turn(move |handler| handler.file_diff(&path, version)).await
            }
            LocalCall::FileRestore => {
                let request: FileRestoreRequest = read(body)?;
                self.in_turn(move |handler| handler.file_restore(&request)).await
            }
            LocalCall::LiftQuarantine => {
                let LiftQuarantineRequest { release } = read(body)?;
                json(&self.command(|answer| LocalCommand::LiftQuarantine(release, answer)).await?)
            }
            LocalCall::Seen => self.aside(|handler| handler.seen()).await,
        }
    }

    fn status(&self, access: LocalAccess) -> LocalAnswer {
        let shown = self.state.shown();
        let last_run = shown.last_run();
        let view: AgentStatusView =
            crate::status::read(&self.directory).map_err(|error| failed(chain(&error)))?;
        let mut view = view.of_daemon(DaemonView {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: shown.since,
            contact: shown.contact,
            facts_waiting: self.storage.facts_waiting(),
            running_since: shown.running_since,
            unmade_run: shown.unmade_run,
            watch: Some(self.watch.view()),
            reboot: shown.reboot,
            refused_trust: shown.refused_trust,
            unadopted: shown.unadopted,
            activation: shown.activation,
            guard: self.runner.guard().map(|guard| guard.view()).unwrap_or_default(),
        });
        (view.last_run, view.paused, view.cut_off_run) = (last_run, shown.pause, shown.cut_off);
        match access {
            LocalAccess::Act => json(&view),
            // What was read from the host and written to it is for those who may read it there.
            LocalAccess::Read => json(&view.without_edits()),
        }
    }

    fn seen(&self) -> LocalAnswer {
        let record = seen_record(&self.key, Some(self.held()?), &self.storage.facts(), now());
        json(&record.map_err(|error| failed(chain(&error)))?)
    }

    fn held(&self) -> Result<Adoption, LocalProblem> {
        let adoption = self.storage.durable().adoption().map_err(|error| failed(chain(&error)))?;
        adoption.ok_or_else(nothing_held)
    }

    fn check_tags(&self, limit: &RunLimit) -> LocalAnswer {
        let traits = crate::runner::observed(&self.host);
        self.held()?;
        let bound = self.runner.bind(&traits).map_err(|error| failed(chain(&error)))?;
        scope_of(&limit.tags).check(bound.desired()).map_err(|error| bad(error.to_string()))?;
        Ok(Vec::new())
    }

    fn plan(&self, limit: &RunLimit) -> LocalAnswer {
        let adoption = self.held()?;
        let traits = crate::runner::observed(&self.host);
        let order = RunOrder {
            unfinished: Vec::new(),
            seq: adoption.seq,
            root: adoption.root,
            intended: false,
            pause: None,
            scope: scope_of(&limit.tags),
            requested_tags: Default::default(),
        };
        let planned = self.runner.run(&order, &traits, RunMode::Plan);
        json(&planned.map_err(|error| failed(chain(&error)))?.report)
    }

    fn why(&self, name: &str) -> LocalAnswer {
        let traits = crate::runner::observed(&self.host);
        let shown = self.state.shown();
        let last = shown.last_run();
        match why::explain(&self.runner, self.storage.durable(), &traits, last.as_ref(), name) {
            Ok(mut explained) => {
                explained.same_cause = shown.contact.same_cause.get(explained.resource.as_str()).copied();
                let contended = self.watch.view().contended;
                explained.contention =
                    contended.into_iter().find(|one| one.resource == explained.resource.as_str());
                let guard = self.runner.guard().map(|guard| guard.view()).unwrap_or_default();
                explained.guard = guard.of(&explained.resource);
                explained.activation = shown.activation;
                json(&explained)
            }
            Err(WhyError::Runner(RunnerError::NothingHeld)) => Err(nothing_held()),
            Err(error @ WhyError::Unknown { .. }) => {
                let problem = LocalProblem::new(LocalProblemCode::NotFound, error.to_string());
                Err(problem.with_next(format!("{} names every resource", command("status --all"))))
            }
            Err(error) => Err(failed(chain(&error))),
        }
    }

    fn file_diff(&self, path: &str, version: Option<u64>) -> LocalAnswer {
        let traits = crate::runner::observed(&self.host);
        let diff = files::diff(&self.runner, &traits, path, version);
        json(&diff.map_err(refused_version)?)
    }

    fn file_restore(&self, request: &FileRestoreRequest) -> LocalAnswer {
        let FileRestoreRequest { path, version, .. } = request;
        let traits = crate::runner::observed(&self.host);
        let restored = files::restore(&self.runner, &traits, path, *version, request.unkept());
        let restored = restored.map_err(refused_version)?;
        if !restored.unchanged {
            let fact = FactBody::FileRestored { path: path.clone(), version: *version };
            match self.storage.append_blocking(fact) {
                Ok(()) => self.daemon.facts_wait(),
                Err(error) => tracing::error!(error = %chain(&error), "a fact could not be recorded"),
            }
        }
        let pause = self.state.shown().pause;
        let next = files::after_restore(&self.runner, &traits, path, pause);
        json(&restored.with_next(path, next))
    }

    /// Asks the daemon, and waits for its answer.
    async fn command<T>(
        &self,
        command: impl FnOnce(LocalReply<T>) -> LocalCommand,
    ) -> Result<T, LocalProblem> {
        let (answer, answered) = oneshot::channel();
        self.daemon.send(DaemonEvent::Local(command(answer))).await;
        answered.await.map_err(|_| failed("the daemon is stopping".to_owned()))?
    }

    async fn in_turn(
        self: &Arc<Self>,
        work: impl FnOnce(&LocalHandler) -> LocalAnswer + Send + 'static,
    ) -> LocalAnswer {
        let busy = || LocalProblem::new(LocalProblemCode::Busy, "a plan or `why` is being worked on already");
        let Ok(turn) = self.turn.clone().try_acquire_owned() else {
            return Err(busy().with_next("try again when it ended"));
        };
        // The work goes on when who asked went away, and the turn with it.
        self.aside(move |handler| {
            let _turn = turn;
            let answer = work(handler);
            // It may have bound the whole set.
            host::release_free_memory();
            answer
        })
        .await
    }

    /// Works on a thread that may wait for the disk and for commands.
    async fn aside(
        self: &Arc<Self>,
        work: impl FnOnce(&LocalHandler) -> LocalAnswer + Send + 'static,
    ) -> LocalAnswer {
        let handler = self.clone();
        let worked = tasks::spawn_blocking(move || work(&handler)).await;
        worked.unwrap_or_else(|_| Err(failed("the agent panicked at it; see its log".to_owned())))
    }
}

fn json(value: &impl Serialize) -> LocalAnswer {
    serde_json::to_vec(value).map_err(|error| failed(error.to_string()))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, LocalProblem> {
    serde_json::from_slice(body).map_err(|error| bad(format!("the body cannot be read: {error}")))
}

/// What a run is about; an empty body asks for all.
fn limit(body: &[u8]) -> Result<RunLimit, LocalProblem> {
    if body.is_empty() { Ok(RunLimit::default()) } else { read(body) }
}

fn refused_version(error: FileVersionError) -> LocalProblem {
    match &error {
        FileVersionError::Unknown { path, .. } => {
            let problem = LocalProblem::new(LocalProblemCode::NotFound, error.to_string());
            problem.with_next(command(&format!("file versions {path}")))
        }
        FileVersionError::NotKept { .. } => failed(error.to_string()).with_next(OVERWRITE_UNKEPT),
        _ => failed(chain(&error)),
    }
}

fn bad(message: String) -> LocalProblem {
    LocalProblem::new(LocalProblemCode::BadRequest, message)
}

fn failed(message: String) -> LocalProblem {
    LocalProblem::new(LocalProblemCode::Failed, message)
}

/// There is nothing to converge on.
pub(crate) fn nothing_held() -> LocalProblem {
    LocalProblem::new(LocalProblemCode::NothingHeld, "this node holds no release yet")
        .with_next(format!("publish one that names this host; {} shows its contacts", command("status")))
}

/// The value of a query's parameter, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(wire::percent::decode(value))
}

fn number(query: &str, name: &str) -> Result<u64, LocalProblem> {
    let number = parameter(query, name).and_then(|text| text.parse().ok());
    number.ok_or_else(|| bad(format!("the query needs {name}=NUMBER")))
}
