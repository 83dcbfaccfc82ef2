//! [`ControlPlane`]: what every handler shares.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use model::{NodeId, Timestamp};
use net::peers::Peers;
use plane::Heads;
use plane::renewal::CertificateRecovery;
use store::Store;
use tokio::sync::{Notify, Semaphore, watch};
use wire::{Code, Problem};

use crate::authority::NodeAuthorities;
use crate::closures::{ClosureShelf, ClosureTurns};
use crate::failed_joins;
use crate::grants::GrantIndex;
use crate::hub::Hub;
use crate::index::FleetIndex;
use crate::joins::JoinRequests;
use crate::lists::SignedLists;
use crate::log::LogControl;
use crate::metrics::Metrics;
use crate::operators::Operators;
use crate::operators::audit::Refusals;
use crate::operators::authority::OperatorAuthority;
use crate::posture::{self, Founded, Posture};
use crate::prefix_limits::PrefixLimits;
use crate::renew::NodeCertificates;
use crate::rollouts::RolloutOwner;
use crate::sets::ReleaseSets;
use crate::settings::CertificateSettings;
use crate::streams::{FleetAdmission, StreamConfig};
use crate::trust_chain::TrustChain;
use crate::trust_links::OpenLinks;
use crate::work::Orchestrator;

/// Enrollments at once; more are refused as busy.
const ENROLLMENTS: usize = 32;
/// Blobs sent at once; more wait.
const BLOBS: usize = 8;

pub(crate) struct ControlPlane {
    pub(crate) store: Arc<Store>,
    pub(crate) index: Arc<FleetIndex>,
    pub(crate) sets: ReleaseSets,
    /// Closures for nodes that reach no cache.
    pub(crate) closures: Arc<ClosureShelf>,
    /// What releases grant, by root.
    pub(crate) grants: GrantIndex,
    /// The two sets of every node that synchronizes, and their links.
    pub(crate) hub: Arc<Hub>,
    /// Tasks and workflows.
    pub(crate) work: Orchestrator,
    /// Releases on their way.
    pub(crate) rollouts: RolloutOwner,
    pub(crate) metrics: Metrics,
    /// Changes the level of logs, where that can be done.
    pub(crate) log: Option<LogControl>,
    pub(crate) heads: watch::Sender<Arc<Heads>>,
    pub(crate) trust: TrustChain,
    /// The CAs of nodes, proxies and the control plane itself.
    pub(crate) authorities: Arc<NodeAuthorities>,
    pub(crate) certificates: NodeCertificates,
    /// Which tokens may be used, and whose certificates count no more.
    pub(crate) lists: SignedLists,
    /// How many failed joins are told from where.
    pub(crate) reports: PrefixLimits,
    /// The trust documents for those whom nobody knows.
    pub(crate) open_links: OpenLinks,
    /// Who may ask at the operator port.
    pub(crate) operators: Operators,
    /// How many refusals are in the audit log lately.
    pub(crate) refusals: Refusals,
    /// The host names and addresses in its own certificate, by which nobody else is certified.
    pub(crate) names: Vec<String>,
    dir: PathBuf,
    pub(crate) started: Timestamp,
    /// Hosts that ask to join.
    pub(crate) joins: JoinRequests,
    pub(crate) enrollments: Semaphore,
    /// Enrollments through proxies, from the first byte of their bodies on.
    pub(crate) proxied_enrollments: Semaphore,
    pub(crate) blobs: Semaphore,
    /// Archives of closures sent at once.
    pub(crate) archive_turns: ClosureTurns,
    /// Closures that are looked through for who may have a part.
    pub(crate) closure_lookups: ClosureTurns,
    /// Requests under way of nodes behind proxies.
    pub(crate) proxied: Arc<Peers>,
    /// Wakes who notifies links of requests for runs.
    pub(crate) run_requested: Notify,
    /// One request for runs by tag at a time.
    pub(crate) requesting_runs: tokio::sync::Mutex<()>,
    /// One publish at a time.
    pub(crate) publishing: tokio::sync::Mutex<()>,
    /// The heads are read and replaced by one at a time.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// What the last attempt to read the heads said, while it fails.
    pub(crate) not_ready: Mutex<Option<String>>,
    requests: AtomicU64,
    boot: String,
    /// What all links with nodes share.
    pub(crate) admission: FleetAdmission,
}

/// What the control plane is told at its start.
pub(crate) struct PlaneSettings {
    /// The host names and addresses in its own certificate.
    pub(crate) names: Vec<String>,
    pub(crate) log: Option<LogControl>,
    pub(crate) links: StreamConfig,
    pub(crate) certificates: CertificateSettings,
}

impl ControlPlane {
    /// `boot` distinguishes this start's request ids from those of others.
    pub(crate) fn new(
        store: Arc<Store>,
        dir: &Path,
        founded: Founded,
        boot: String,
        settings: PlaneSettings,
    ) -> ControlPlane {
        let PlaneSettings { names, log, links, certificates } = settings;
        let index = Arc::new(FleetIndex::default());
        let authorities = Arc::new(NodeAuthorities::new(dir, founded.node_ca));
        ControlPlane {
            sets: ReleaseSets::new(store.clone()),
            closures: Arc::new(ClosureShelf::new(dir)),
            grants: GrantIndex::new(store.clone()),
            hub: Arc::new(Hub::new(store.clone(), index.clone())),
            work: Orchestrator::new(),
            rollouts: RolloutOwner::new(),
            metrics: Metrics::new(),
            log,
            store,
            index,
            heads: watch::Sender::new(Arc::new(Heads::default())),
            trust: TrustChain::new(dir, founded.chain),
            certificates: NodeCertificates::new(authorities.clone(), certificates),
            lists: SignedLists::default(),
            reports: failed_joins::limits(),
            open_links: OpenLinks::default(),
            operators: Operators::new(OperatorAuthority::new(dir, founded.operator_ca)),
            refusals: Refusals::default(),
            authorities,
            names,
            dir: dir.to_owned(),
            started: now(),
            joins: JoinRequests::default(),
            enrollments: Semaphore::new(ENROLLMENTS),
            proxied_enrollments: Semaphore::new(ENROLLMENTS),
            blobs: Semaphore::new(BLOBS),
            archive_turns: ClosureTurns::default(),
            closure_lookups: ClosureTurns::default(),
            proxied: Arc::default(),
            run_requested: Notify::new(),
            requesting_runs: tokio::sync::Mutex::new(()),
            publishing: tokio::sync::Mutex::new(()),
            loading: tokio::sync::Mutex::new(()),
            not_ready: Mutex::new(None),
            requests: AtomicU64::new(0),
            boot,
            admission: FleetAdmission::new(links),
        }
    }

    /// The heads as they are now.
    pub(crate) fn heads(&self) -> Arc<Heads> {
        self.heads.borrow().clone()
    }

    /// Certifies, and signs what nodes are given, as they believe it now. While a key for that does not lie in the
    /// directory, the one before goes on; a change of what is wrong is logged once.
    pub(crate) fn follow_own_keys(&self) {
        let documents = self.trust.documents();
        self.authorities.follow(&documents);
        let trust = &documents.newest().document;
        match posture::control_plane_key(&self.dir, trust) {
            Ok(key) => {
                if self.hub.signing.follow(key, trust) {
                    self.hub.signers_changed();
                }
            }
            Err(error) => self.hub.signing.cannot_follow(&error),
        }
    }

    /// Lab or sealed, as it is now.
    pub(crate) fn posture(&self) -> Posture {
        Posture::of(&self.dir)
    }

    /// How a recovery of a certificate is judged in this posture.
    pub(crate) fn certificate_recovery(&self) -> CertificateRecovery {
        self.certificates.settings.recovery_in(self.posture())
    }

    /// Tells this start from others.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// A name for a request, unique in this start.
    pub(crate) fn request_id(&self) -> String {
        format!("{}-{}", self.boot, self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// A node was removed from the store: nothing of it stays in memory, and its link ends.
    pub(crate) fn forget(&self, node: &NodeId) {
        self.index.remove(node);
        self.hub.remove(node);
        self.work.removed(node);
        self.rollouts.membership(node);
    }

    /// Why the signed artifacts are not loaded, while they are not (WIR-4).
    pub(crate) fn not_ready(&self) -> Option<String> {
        let heads = self.not_ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
        heads.or_else(|| self.lists.not_ready())
    }
}

/// The control plane's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Does something to its end, even when the request that it is for is given up: what the store took and memory
/// did not would be known to nobody until it is loaded anew.
pub(crate) async fn run_to_completion<T: Send + 'static, E: From<GivenUp> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    tokio::spawn(work).await.unwrap_or_else(|_| Err(GivenUp.into()))
}

/// Work came to no end: it panicked, or the program stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the work was given up")]
pub(crate) struct GivenUp;

impl From<GivenUp> for Problem {
    fn from(_: GivenUp) -> Problem {
        Code::Internal.into()
    }
}
