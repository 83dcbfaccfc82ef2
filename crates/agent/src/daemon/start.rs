//! Starting the daemon: what it is made of, in the order in which one part needs another.

use std::sync::{Arc, Mutex};

use activation::ActivationProcess;
use lang::Value;
use model::AgentInstance;
use model::policy::Policy;
use net::tasks;
use node::{Node, Restored};
use providers::traits::Collectors;
use trust::FeedOwner;

use super::Daemon;
use super::guarded::ContactGuard;
use super::trusted::ControlPlaneTrust;
use crate::activations::{ActivationParts, FoundActivations};
use crate::capabilities;
use crate::clock::now;
use crate::closure_relay::SessionClosures;
use crate::dialing::TransportDialer;
use crate::events::{self, DaemonHandle, DaemonInbox};
use crate::exchange::{AgentIntroduction, CheckInClient};
use crate::healing::HostWatch;
use crate::local::state::SharedLocalState;
use crate::machine::Machine;
use crate::membership::MembershipFile;
use crate::rejoin::RejoinFollower;
use crate::release::ActiveRelease;
use crate::runner::Runner;
use crate::session::NodeSession;
use crate::state_guard::StateGuard;
use crate::storage::Storage;
use crate::sync::operations::OperationQueue;
use crate::sync::sets::AgentSets;
use crate::sync::view::SharedStatus;
use crate::sync::{SyncContext, Synchronization};
use crate::work::{self, WorkHandle, WorkSetup};

type StartError = Box<dyn std::error::Error>;

/// What all parts of a daemon are made from.
struct DaemonFoundation {
    machine: Machine,
    session: Arc<NodeSession>,
    member: Arc<MembershipFile>,
    storage: Storage,
    release: Arc<ActiveRelease>,
    sets: Arc<AgentSets>,
    view: Arc<SharedStatus>,
    operations: OperationQueue,
    handle: DaemonHandle,
    instance: AgentInstance,
}

impl Daemon {
    pub(super) fn start(machine: Machine) -> Result<(Daemon, DaemonInbox), StartError> {
        let (identity, restored, seed) = machine.start_of_node()?;
        let found = FoundActivations::look(&machine, machine.membership.node_id.clone(), machine.key()?)?;
        let restored = Restored { rollout: found.part.clone(), trial: found.stage, ..restored };
        let collectors = collectors(&restored.settings.policy);
        let node = Node::new(identity, restored, seed, now());
        let (handle, inbox) = events::channel();
        let local = SharedLocalState::new(machine.state().to_owned(), node.pause().cloned(), now());
        let base = DaemonFoundation::open(machine, handle)?;
        let work = base.start_work()?;
        let owner =
            FeedOwner { fleet: node.trust().fleet.clone(), node: base.machine.membership.node_id.clone() };
        let control_plane = ControlPlaneTrust::of(owner, node.trust());
        let sync = base.start_sync(&work, &control_plane, seed)?;
        let rejoin = base.follow_rejoins(&sync);
        let exchange = base.check_in_client(&rejoin, &sync);
        let watch = HostWatch::start(base.machine.kinds.clone(), base.handle.clone())?;
        let runner = Arc::new(base.runner());
        base.guard_runs(&runner, found.process());
        let activations = found.go_on(ActivationParts {
            storage: base.storage.clone(),
            release: base.release.clone(),
            runner: runner.clone(),
            host: base.machine.kinds.host().clone(),
            daemon: base.handle.clone(),
            local: local.clone(),
        });
        let guard = StateGuard::new(base.storage.durable().clone(), base.member.clone());
        let daemon = Daemon {
            node,
            hostname: base.machine.membership.hostname.clone(),
            runner,
            activations,
            collectors: Arc::new(Mutex::new(collectors)),
            host: base.machine.kinds.host().clone(),
            cancel: base.machine.cancel.clone(),
            storage: base.storage,
            release: base.release,
            session: base.session,
            member: base.member,
            handle: base.handle,
            view: base.view,
            traits: Value::Map(Default::default()),
            sync,
            work,
            rejoin,
            exchange: Arc::new(exchange),
            last_check_in: None,
            contact_kept: None,
            check_ins: 0,
            checking_in: false,
            acked_before: 0,
            appending: 0,
            flush_at: None,
            flushing: false,
            observed: Arc::default(),
            running: false,
            local,
            control_plane,
            run_log: Arc::default(),
            pause_replies: Vec::new(),
            guard,
            lost_state: None,
            restarting: false,
            stopping: false,
            watch,
        };
        Ok((daemon, inbox))
    }
}

fn collectors(policy: &Policy) -> Collectors {
    let mut collectors = Collectors::new(env!("CARGO_PKG_VERSION"));
    collectors.set_ttls(&policy.trait_ttl_secs);
    collectors
}

impl DaemonFoundation {
    /// Opens what the state directory holds, and starts the thread that writes it.
    fn open(machine: Machine, handle: DaemonHandle) -> Result<DaemonFoundation, StartError> {
        let key = machine.key()?;
        let session = Arc::new(machine.session(&key)?);
        machine.kinds.relay_closures(Arc::new(SessionClosures::new(session.clone())));
        let member = Arc::new(MembershipFile::new(&machine, key)?);
        let durable = &machine.durable;
        // Temporary files of a run that died lie only beside managed paths.
        machine.kinds.sweep(durable.ledger()?.entries.values().map(|entry| entry.path.as_str()));
        let storage = Storage::start(durable.clone())?;
        let release = Arc::new(ActiveRelease::open(durable)?);
        let sets = Arc::new(AgentSets::open(durable)?);
        let (view, operations) = (Arc::new(SharedStatus::default()), OperationQueue::default());
        let instance = durable.begin_instance()?;
        Ok(DaemonFoundation {
            machine,
            session,
            member,
            storage,
            release,
            sets,
            view,
            operations,
            handle,
            instance,
        })
    }

    fn runner(&self) -> Runner {
        let hostname = self.machine.membership.hostname.to_string();
        let guard = crate::guard::guard_of(&self.machine, &self.storage);
        Runner::new(self.machine.kinds.clone(), self.storage.clone(), hostname).guarded(Arc::new(guard))
    }

    /// Goes on with what an earlier agent's run left to be followed by a contact (CNV-11).
    fn guard_runs(&self, runner: &Runner, process: ActivationProcess) {
        let Some(guard) = runner.guard() else { return };
        let (session, handle) = (self.session.clone(), self.handle.clone());
        guard.connect(Box::new(ContactGuard { session, handle, runtime: tokio::runtime::Handle::current() }));
        if let Err(error) = guard.resume(process) {
            tracing::error!(error, "what a guarded run left is the watchdog's");
        }
    }

    fn start_work(&self) -> Result<WorkHandle, StartError> {
        let work = work::start(WorkSetup {
            storage: self.storage.clone(),
            sets: self.sets.clone(),
            host: self.machine.kinds.host().clone(),
            signer: self.session.signer().clone(),
            view: self.view.clone(),
            daemon: self.handle.clone(),
            delegations: self.release.delegations().clone(),
            operations: self.operations.clone(),
        })?;
        tasks::spawn(work.clone().observe(self.release.terms()));
        Ok(work)
    }

    fn start_sync(
        &self,
        work: &WorkHandle,
        control_plane: &ControlPlaneTrust,
        seed: u64,
    ) -> Result<Arc<Synchronization>, StartError> {
        let membership = &self.machine.membership;
        let root = self.machine.kinds.host().root();
        let context = SyncContext {
            durable: self.machine.durable.clone(),
            sets: self.sets.clone(),
            view: self.view.clone(),
            root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            actions: Arc::new(work.clone()),
            operations: self.operations.clone(),
            delegations: self.release.delegations().clone(),
            control_plane: control_plane.verifier(),
            tls_termination: membership.tls_termination,
            daemon: self.handle.clone(),
        };
        let dialer = TransportDialer::new(self.session.clone(), membership.hostname.clone());
        Ok(Arc::new(Synchronization::start(context, self.release.terms(), dialer, &self.instance, seed)?))
    }

    fn follow_rejoins(&self, sync: &Arc<Synchronization>) -> RejoinFollower {
        RejoinFollower::new(self.session.clone(), self.member.clone(), sync.clone(), self.handle.clone())
    }

    fn check_in_client(&self, rejoin: &RejoinFollower, sync: &Arc<Synchronization>) -> CheckInClient {
        let delegations = self.release.delegations().held().delegations.clone();
        let capabilities = capabilities::read(self.machine.kinds.host().root(), &delegations);
        CheckInClient::new(
            self.session.clone(),
            self.member.clone(),
            rejoin.clone(),
            sync.clone(),
            self.storage.clone(),
            self.handle.clone(),
            AgentIntroduction {
                instance: self.instance.clone(),
                capabilities,
                hostname: self.machine.membership.hostname.clone(),
                // Where it cannot be read, that was logged as the machine was opened.
                recipient: self.machine.durable.sealing_key().ok().map(|key| key.public()),
            },
        )
    }
}
