//! The daemon's end of its socket: what somebody at the host asks for, and what the socket shows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{Pause, Timestamp};
use net::tasks;
use node::NodeInput;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::Daemon;
use crate::activations::ActivationCommand;
use crate::clock::now;
use crate::events::{LocalCommand, LocalReply};
use crate::invocation::command;
use crate::local::handler::{LocalHandler, nothing_held};
use crate::local::messages::{PauseView, RunTicket};
use crate::local::server::LocalSocket;
use crate::local::{LocalProblem, LocalProblemCode, path};
use crate::render::{self, chain};

/// How long the answer to a pause waits for a repair under way; below what who asks waits for an answer.
const REPAIR_ENDS_WITHIN: Duration = Duration::from_secs(20);

impl Daemon {
    /// Opens the socket. Without one the host is kept as declared all the same.
    pub(super) fn open_socket(&self) -> Option<JoinHandle<()>> {
        let directory = self.storage.durable().path().to_owned();
        let own = self.host.euid();
        let path = path::listen_at(&directory, own == 0);
        let socket = match LocalSocket::bind(&path) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(error = %chain(&error), "local verbs cannot reach this agent");
                return None;
            }
        };
        let handler = LocalHandler {
            directory,
            state: self.local.clone(),
            daemon: self.handle.clone(),
            runner: self.runner.clone(),
            storage: self.storage.clone(),
            host: self.host.clone(),
            watch: self.watch.clone(),
            key: self.member.key().clone(),
            turn: Arc::new(Semaphore::new(1)),
        };
        Some(tasks::spawn(socket.serve(Arc::new(handler), own)))
    }

    /// Does what somebody at the host asks for.
    pub(super) fn local(&mut self, command: LocalCommand) {
        match command {
            LocalCommand::Run(tags, reply) => {
                // Who asked may be gone.
                let _ = reply.send(self.run_now(tags));
            }
            LocalCommand::Pause(pause, reply) => {
                let view = self.pause_view();
                self.pause_replies.push((reply, view));
                self.take(NodeInput::Pause(pause));
            }
            LocalCommand::Resume(reply) => self.resume(reply),
            LocalCommand::LiftQuarantine(release, reply) => {
                self.activations.send(ActivationCommand::LiftQuarantine(release, reply));
            }
        }
    }

    fn run_now(&mut self, tags: BTreeSet<String>) -> Result<RunTicket, LocalProblem> {
        if self.node.adoption().is_none() {
            return Err(nothing_held());
        }
        if let Some(pause) = self.node.pause() {
            return Err(refused_for(pause, now()));
        }
        // One under way began before this was asked.
        let run = self.local.shown().begun + 1;
        self.take(NodeInput::RunNow(tags));
        Ok(RunTicket { run })
    }

    fn resume(&mut self, reply: LocalReply<PauseView>) {
        let view = self.pause_view();
        if view.before.is_none() {
            let _ = reply.send(Ok(view));
            return;
        }
        self.pause_replies.push((reply, view));
        self.take(NodeInput::Resume);
    }

    fn pause_view(&self) -> PauseView {
        let shown = self.local.shown();
        let run_under_way = shown.running_since.map(|_| shown.begun);
        PauseView { pause: None, before: self.node.pause().cloned(), run_under_way, repair_under_way: None }
    }

    /// Makes a pause durable, or its end, and then answers those who asked: that the host is paused, once a repair
    /// under way is over too.
    pub(super) fn save_pause(&mut self, pause: Option<Pause>) {
        self.local.set(|state| state.pause.clone_from(&pause));
        match &pause {
            Some(pause) => tracing::warn!(reason = pause.reason, "paused: nothing is changed on this host"),
            None => tracing::info!("the pause is over"),
        }
        let replies = std::mem::take(&mut self.pause_replies);
        let (storage, local) = (self.storage.clone(), self.local.clone());
        tasks::spawn(async move {
            let saving = pause.clone();
            let saved = storage.run(move |durable| durable.save_pause(&saving)).await;
            let saved = saved.map_err(|error| {
                let why = format!("it holds until the agent stops, but cannot be kept: {}", chain(&error));
                tracing::warn!(why, "whether the host is paused could not be recorded");
                LocalProblem::new(LocalProblemCode::Failed, why)
            });
            let repair_under_way = match pause {
                Some(_) => local.wait_for_repair(REPAIR_ENDS_WITHIN).await,
                None => None,
            };
            for (reply, view) in replies {
                let view = PauseView { pause: pause.clone(), repair_under_way, ..view };
                let _ = reply.send(saved.clone().map(|()| view));
            }
        });
    }
}

/// Why a paused host is not changed.
pub(crate) fn refused_for(pause: &Pause, now: Timestamp) -> LocalProblem {
    let text = format!("this host is paused {}", render::pause(pause, now));
    LocalProblem::new(LocalProblemCode::Paused, text).with_next(format!(
        "{} ends the pause; {} shows what would change",
        command("resume"),
        command("plan")
    ))
}
