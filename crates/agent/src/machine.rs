//! [`Machine`]: membership, state, key and host put together, for every verb that needs them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{Cancel, Host, OpenHostError};
use net::tls::TlsError;
use node::{HeldSettings, Identity, Node, Restored};
use providers::Kinds;
use trust::{SigningKey, TrustDocument};

use crate::clock::BUILT;
use crate::identity::{self, KeyError, Membership};
use crate::membership;
use crate::session::{NodeSession, Signer};
use crate::state::{Durable, StateDir, StateError};

/// Where archives of closures lie until they are imported, in the state directory.
const CLOSURES: &str = "closures";

/// Where the state is, unless an option names another directory.
pub const DEFAULT_STATE: &str = catalog::state_directories::AGENT_STATE;

/// Where the agent works; what is absent is as it was joined.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct MachineOptions {
    /// The state directory [default: ROOT/var/lib/muster]
    #[arg(long, global = true, value_name = "DIR", env = "MUSTER_STATE")]
    pub state: Option<PathBuf>,
    /// Converge this directory instead of the whole host
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// With --root: let commands and scripts run, with MUSTER_ROOT set
    #[arg(long, global = true)]
    pub allow_exec: bool,
}

impl MachineOptions {
    /// With absolute paths, by the directory that this process was called in: what is kept of them, and what people
    /// are told to type, means the same from anywhere.
    ///
    /// # Errors
    /// When that directory is gone, or a path is empty.
    pub fn absolute(self) -> std::io::Result<MachineOptions> {
        let absolute = |path: Option<PathBuf>| path.map(std::path::absolute).transpose();
        Ok(MachineOptions { state: absolute(self.state)?, root: absolute(self.root)?, ..self })
    }

    /// The root as named; `/` when none is.
    pub fn root_dir(&self) -> PathBuf {
        self.root.clone().unwrap_or_else(|| PathBuf::from("/"))
    }

    /// The state directory: as named, else below the root, else [`DEFAULT_STATE`].
    pub fn state_dir(&self) -> PathBuf {
        match (&self.state, &self.root) {
            (Some(state), _) => state.clone(),
            (None, Some(root)) => root.join(DEFAULT_STATE.trim_start_matches('/')),
            (None, None) => PathBuf::from(DEFAULT_STATE),
        }
    }
}

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenMachineError {
    /// The state directory cannot be used.
    #[error("the state directory {} cannot be used", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: StateError,
    },
    /// The host's root cannot be used.
    #[error("the host's root cannot be used")]
    Host(#[from] OpenHostError),
    /// The machine's key cannot be used.
    #[error("the machine's key cannot be used")]
    Key(#[from] KeyError),
    /// The certificate and key do not go together.
    #[error("the node's certificate cannot be used")]
    Tls(#[from] TlsError),
    /// The operating system gives no randomness.
    #[error("no randomness")]
    Random(#[source] getrandom::Error),
}

/// A joined host, ready to run.
pub struct Machine {
    /// What joining recorded.
    pub membership: Membership,
    /// The state directory, opened.
    pub durable: Arc<Durable>,
    /// The resource types over the host.
    pub kinds: Arc<Kinds>,
    /// Ends every running command, with its process group.
    pub cancel: Cancel,
    options: MachineOptions,
    state: PathBuf,
    root: PathBuf,
}

impl OpenMachineError {
    /// Whether another process has the state directory, and which.
    pub fn holder(&self) -> Option<Option<u32>> {
        match self {
            OpenMachineError::State {
                source: StateError::Spool { source: spool::SpoolError::Locked { pid, .. }, .. },
                ..
            } => Some(*pid),
            _ => None,
        }
    }
}

impl Machine {
    /// Opens a joined host.
    ///
    /// # Errors
    /// [`OpenMachineError`] says what is in the way.
    pub fn open(options: &MachineOptions) -> Result<Machine, OpenMachineError> {
        Machine::open_at(options, &StateDir::at(&options.state_dir(), spool::Disk::new()))
    }

    /// As [`Machine::open`], over a state directory whose disk the caller chose.
    ///
    /// # Errors
    /// [`OpenMachineError`] says what is in the way.
    pub fn open_at(options: &MachineOptions, dir: &StateDir) -> Result<Machine, OpenMachineError> {
        let state = options.state_dir();
        let failed = |source| OpenMachineError::State { path: state.clone(), source };
        if let Some(aside) = dir.set_aside_earlier().map_err(failed)? {
            return Err(failed(StateError::Earlier { path: state.clone(), aside }));
        }
        let membership =
            dir.membership().map_err(failed)?.ok_or_else(|| failed(StateError::NotJoined(state.clone())))?;
        let durable = Arc::new(dir.open().map_err(failed)?);
        // A host that joined before there were secrets has none. Where it cannot be made, what needs it says so.
        if let Err(error) = durable.sealing_key() {
            tracing::warn!(error = %crate::render::chain(&error), "this host opens no secrets");
        }
        let root = options.root.clone().or_else(|| membership.root.clone());
        let root = root.unwrap_or_else(|| PathBuf::from("/"));
        let allow_exec = options.allow_exec || membership.allow_exec;
        let cancel = Cancel::default();
        let host = Arc::new(Host::open(&root, host::HostOptions { allow_exec, cancel: cancel.clone() })?);
        let kinds = Kinds::new(host, durable.clone()).staging_closures_in(state.join(CLOSURES));
        let kinds = Arc::new(kinds);
        Ok(Machine { membership, durable, kinds, cancel, options: options.clone(), state, root })
    }

    /// The machine's key.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn key(&self) -> Result<Arc<SigningKey>, KeyError> {
        identity::key(self.membership.key, &self.state, &self.root)
    }

    /// Whom the machine believes.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn trusted(&self) -> Result<TrustDocument, OpenMachineError> {
        let failed = |source| OpenMachineError::State { path: self.state.clone(), source };
        Ok(Node::trusted(&self.membership.trust, self.durable.trust().map_err(failed)?))
    }

    /// A session with the control plane, by the machine's key.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn session(&self, key: &Arc<SigningKey>) -> Result<NodeSession, OpenMachineError> {
        let member = &self.membership;
        let trusted = self.trusted()?;
        let authority = membership::believed_authority(member, trusted.certificate_authority.as_ref());
        let credentials = membership::credentials_believing(member, key, authority)?;
        let fleet = member.trust.fleet.clone();
        let signer = Signer::new(fleet, member.node_id.clone(), key.clone(), member.tls_termination);
        Ok(NodeSession::new(credentials, signer))
    }

    /// What the node's step starts from, with a seed for its waits.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn start_of_node(&self) -> Result<(Identity, Restored, u64), OpenMachineError> {
        let failed = |source| OpenMachineError::State { path: self.state.clone(), source };
        let durable = &self.durable;
        let adoption = durable.adoption().map_err(failed)?;
        // One that is damaged is no reason not to start: it is fetched again.
        let settings = adoption.as_ref().map(|adoption| durable.settings(adoption));
        let content_missing = matches!(settings, Some(Err(StateError::Lost { .. })));
        let settings = match settings {
            Some(Ok(settings)) => settings,
            Some(Err(StateError::Lost { .. })) | None => HeldSettings::default(),
            Some(Err(error)) => return Err(failed(error)),
        };
        let freshness = adoption.as_ref().map(|held| durable.freshness(held)).transpose().map_err(failed)?;
        let restored = Restored {
            adoption,
            freshness,
            settings,
            content_missing,
            last_run: durable.last_run().map_err(failed)?,
            facts_pending: durable.facts_waiting() > 0,
            pause: durable.pause().map_err(failed)?,
            last_reboot: durable.last_reboot().map_err(failed)?,
            trust: durable.trust().map_err(failed)?,
            certificate: membership::validity(&self.membership),
            // Whoever goes on with activations knows both.
            rollout: None,
            trial: Default::default(),
        };
        let identity = Identity {
            hostname: self.membership.hostname.clone(),
            incarnation: durable.incarnation(),
            trust: self.membership.trust.clone(),
            built: BUILT,
        };
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(OpenMachineError::Random)?;
        Ok((identity, restored, u64::from_le_bytes(seed)))
    }

    /// How the host was named.
    pub fn options(&self) -> &MachineOptions {
        &self.options
    }

    /// The state directory's path.
    pub fn state(&self) -> &Path {
        &self.state
    }
}
