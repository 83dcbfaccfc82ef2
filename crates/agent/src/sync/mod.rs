//! Synchronization on the node: the sets and their place, links and what carries them.
//!
//! Three threads of control: the *world* owns the place of the users' objects and writes both
//! sets; *work* runs actions; the *links* are a task of the daemon's runtime. They meet in
//! [`sets::Sets`] and by messages.

mod autonomous;
pub mod carriers;
mod managed;
pub mod posts;
pub mod sets;
pub mod shore;
pub mod transport;
pub mod view;
pub mod world;

use std::path::PathBuf;
use std::sync::Arc;

use host::Host;
use model::Timestamp;
use model::exchange::{Answer, CheckIn};
use model::policy::Policy;
use node::Adoption;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::daemon::Word;
use crate::opening::Opener;
use crate::render::chain;
use crate::session::Signer;
use crate::state::{Durable, StateError, fresh_incarnation};
use crate::work::{self, StartWorkError, WorkHandle};
use sets::{Sets, SetsError};
use transport::Links;
use view::View;
use world::World;

/// Why synchronization cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sets.
    #[error(transparent)]
    Sets(#[from] SetsError),
    /// Work.
    #[error(transparent)]
    Work(#[from] StartWorkError),
    /// The release held.
    #[error("the release held cannot be read")]
    State(#[from] StateError),
    /// The operating system.
    #[error("no thread could be started")]
    Thread(#[from] std::io::Error),
}

/// What it needs.
pub struct Parts {
    /// The state directory.
    pub durable: Arc<Durable>,
    /// Where commands run, and whose root the folder is under.
    pub host: Arc<Host>,
    /// Signs.
    pub signer: Arc<Signer>,
    /// Opens transports.
    pub opener: Opener,
    /// The way to the daemon.
    pub words: UnboundedSender<Word>,
    /// Spreads waits.
    pub seed: u64,
}

/// Synchronization and work of one node, as the daemon has them.
pub struct Synchronization {
    durable: Arc<Durable>,
    world: World,
    work: WorkHandle,
    links: Links,
    view: Arc<View>,
    writer: JoinHandle<()>,
}

impl Synchronization {
    /// Starts the threads and the task, on what is held.
    ///
    /// # Errors
    /// When the state cannot be used.
    pub fn start(parts: Parts) -> Result<Synchronization, StartError> {
        let Parts { durable, host, signer, opener, words, seed } = parts;
        let sets = Arc::new(Sets::open(durable.clone())?);
        let view = Arc::new(View::default());
        let adoption = durable.adoption()?;
        let (policy, delegations) = match &adoption {
            Some(adoption) => (durable.policy(adoption)?, durable.delegations(adoption)?),
            None => (Policy::default(), Vec::new()),
        };
        let sync = adoption.as_ref().map(|adoption| durable.sync_policy(adoption)).transpose()?.flatten();
        let root: PathBuf = host.root().canonicalize().unwrap_or_else(|_| host.root().to_owned());
        let work = work::start(work::Parts {
            durable: durable.clone(),
            sets: sets.clone(),
            host,
            signer,
            view: view.clone(),
            words: words.clone(),
            delegations,
            newest: newest(adoption.as_ref()),
        })?;
        let world = World::start(world::Parts {
            durable: durable.clone(),
            sets: sets.clone(),
            work: work.clone(),
            view: view.clone(),
            root,
            policy: sync,
        })?;
        let instance = fresh_incarnation()?.to_string();
        let links = Links::start(transport::Parts {
            opener,
            sets,
            world: world.clone(),
            view: view.clone(),
            words,
            policy,
            instance,
            seed,
        });
        let writer = tokio::spawn(write_view(view.clone(), durable.clone()));
        Ok(Synchronization { durable, world, work, links, view, writer })
    }

    /// Another release is held: its leave to synchronize, its delegations, its settings.
    pub async fn held(&self, adoption: &Adoption, policy: &Policy) {
        match self.durable.sync_policy(adoption) {
            Ok(sync) => self.world.held(sync),
            Err(error) => tracing::error!(error = %chain(&error), "the release cannot be read"),
        }
        let delegations = self.durable.delegations(adoption).unwrap_or_else(|error| {
            // What cannot be read allows nothing.
            tracing::error!(error = %chain(&error), "the release's delegations cannot be read");
            Vec::new()
        });
        self.work.held(delegations, newest(Some(adoption))).await;
        self.links.held(policy.clone());
    }

    /// The control plane wants a stream.
    pub fn requested(&self) {
        self.links.requested();
    }

    /// Whether check-ins can go over an open stream.
    pub fn is_open(&self) -> bool {
        self.links.is_open()
    }

    /// Checks in over the open stream; `None`: there is none, or no answer came.
    pub async fn check_in(&self, message: CheckIn) -> Option<Answer> {
        let answer = self.links.check_in(message).await;
        self.view.set(|view| view.counts.check_ins += u64::from(answer.is_some()));
        answer
    }

    /// Begins no more work, and waits for what runs, within its bound.
    pub async fn drain(&self) {
        self.work.drain().await;
    }

    /// Ends the link in order (SYN-14).
    pub async fn stop(&self) {
        self.links.stop().await;
        self.writer.abort();
        self.show();
    }

    fn show(&self) {
        if let Err(error) = self.view.write(self.durable.path()) {
            tracing::debug!(%error, "the status cannot be written");
        }
    }
}

/// The newest signature that was verified.
fn newest(adoption: Option<&Adoption>) -> Timestamp {
    adoption.map_or(Timestamp::default(), |adoption| adoption.floor.newest_signature)
}

async fn write_view(view: Arc<View>, durable: Arc<Durable>) {
    loop {
        if let Err(error) = view.write(durable.path()) {
            tracing::debug!(%error, "the status cannot be written");
        }
        tokio::time::sleep(view::EVERY).await;
    }
}
