//! [`ControlPlane`]: what every handler shares.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use model::Timestamp;
use net::issue::Ca;
use plane::Heads;
use store::Store;
use tokio::sync::{Notify, Semaphore, watch};
use trust::{SigningKey, TrustDocument};

use crate::index::FleetIndex;
use crate::posture::Posture;
use crate::sets::Sets;

/// Enrollments at once; more are told to come back.
const ENROLLMENTS: usize = 32;
/// Blobs sent at once; more wait.
const BLOBS: usize = 8;

pub(crate) struct ControlPlane {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) index: FleetIndex,
    pub(crate) sets: Sets,
    pub(crate) heads: watch::Sender<Arc<Heads>>,
    pub(crate) trust: TrustDocument,
    pub(crate) node_ca: Ca,
    pub(crate) release_key: Option<SigningKey>,
    pub(crate) posture: Posture,
    pub(crate) started: Timestamp,
    pub(crate) enrollments: Semaphore,
    pub(crate) blobs: Semaphore,
    /// Wakes long polls when a push was set.
    pub(crate) pushes: Notify,
    /// One publish at a time.
    pub(crate) publishing: tokio::sync::Mutex<()>,
    /// What the last attempt to read the heads said, while it fails.
    pub(crate) not_ready: Mutex<Option<String>>,
    requests: AtomicU64,
    boot: String,
}

/// The parts that [`ControlPlane::new`] is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) trust: TrustDocument,
    pub(crate) node_ca: Ca,
    pub(crate) release_key: Option<SigningKey>,
    pub(crate) posture: Posture,
    /// Tells this start's request ids from those of others.
    pub(crate) boot: String,
}

impl ControlPlane {
    pub(crate) fn new(parts: Parts) -> ControlPlane {
        ControlPlane {
            sets: Sets::new(parts.store.clone()),
            store: parts.store,
            index: FleetIndex::default(),
            heads: watch::Sender::new(Arc::new(Heads::default())),
            trust: parts.trust,
            node_ca: parts.node_ca,
            release_key: parts.release_key,
            posture: parts.posture,
            started: now(),
            enrollments: Semaphore::new(ENROLLMENTS),
            blobs: Semaphore::new(BLOBS),
            pushes: Notify::new(),
            publishing: tokio::sync::Mutex::new(()),
            not_ready: Mutex::new(None),
            requests: AtomicU64::new(0),
            boot: parts.boot,
        }
    }

    /// The heads as they are now.
    pub(crate) fn heads(&self) -> Arc<Heads> {
        self.heads.borrow().clone()
    }

    /// A name for a request, unique in this start.
    pub(crate) fn request_id(&self) -> String {
        format!("{}-{}", self.boot, self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Why the signed artifacts are not loaded, while they are not (WIR-4).
    pub(crate) fn not_ready(&self) -> Option<String> {
        self.not_ready.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The control plane's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
