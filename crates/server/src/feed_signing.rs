//! [`FeedSigning`]: proofs of what the control plane authors for nodes, one signature for each commit group (IDN-9).
//!
//! ```text
//! change of a node --leaves--> waiting --+
//! change of a node --leaves--> waiting --+--whoever has the turn--> one tree, one signature --> proofs
//! change of a node --leaves--> waiting --+
//! ```
//!
//! While one group is signed, the next gathers. The key lies beside the control plane
//! (`posture::control_plane_key`) and is read again with the trust documents; where these name none, nothing is signed.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use model::{Digest, Incarnation, NodeId};
use sync::Change;
use sync::link::{FeedProofs, FeedProver};
use tokio::sync::oneshot;
use trust::feed_proof::{self, MAX_GROUP};
use trust::{FeedSigner, SigningKey, Slots, TrustDocument};

use crate::answer::chain;
use crate::posture::FoundError;
use crate::state::now;

/// From so many leaves on a group is signed off the runtime's threads: hashing them takes milliseconds.
const BLOCKING_FROM: usize = 512;

/// Signs what nodes are given.
#[derive(Default)]
pub(crate) struct FeedSigning {
    current: RwLock<SigningKeyInUse>,
    /// Why the key that nodes believe does not sign, while it does not.
    problem: Mutex<Option<String>>,
    waiting: Mutex<Vec<WaitingChanges>>,
    turn: tokio::sync::Mutex<()>,
}

/// The key that signs, and those that nodes believe.
#[derive(Clone, Default)]
struct SigningKeyInUse {
    signer: Option<Arc<FeedSigner>>,
    believed: Option<Slots>,
}

/// Changes of one node that wait for their proofs.
struct WaitingChanges {
    leaves: Vec<Digest>,
    proofs: oneshot::Sender<Vec<Bytes>>,
}

impl FeedSigning {
    /// Signs by this key from here on, and goes by the newest trust document, which names it; `None` where that names
    /// none. Says whether something that was signed before may count no more.
    pub(crate) fn follow(&self, key: Option<SigningKey>, trust: &TrustDocument) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let same = current.signer.as_ref().map(|signer| signer.key()) == key.as_ref().map(|key| key.public());
        if !same {
            let signer = key.map(|key| FeedSigner::new(trust.fleet.clone(), key));
            current.signer = signer.map(Arc::new);
        }
        let believed = trust.control_plane.clone();
        let drops = current.believed.as_ref().is_none_or(|before| match &believed {
            Some(now) => {
                let kept = before.keys().all(|key| now.keys().any(|known| known == key));
                !kept || now.reject_before != before.reject_before
            }
            None => false,
        });
        let changed = current.believed != believed && drops;
        current.believed = believed;
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = None;
        changed
    }

    /// The key that nodes believe does not lie in the directory: said once. The one of before signs on.
    pub(crate) fn cannot_follow(&self, error: &FoundError) {
        let why = chain(error);
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if problem.as_ref() != Some(&why) {
            tracing::error!(error = %why, "what nodes are given is not signed as they believe it; they take nothing new");
            *problem = Some(why);
        }
    }

    fn current(&self) -> SigningKeyInUse {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the key that nodes believe does not sign, while it does not.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How a link with a node proves its feed.
    pub(crate) fn proofs(&self, node: &NodeId) -> FeedProofs {
        match self.current().signer {
            Some(signer) => FeedProofs::Made(FeedProver { owner: signer.owner(node.clone()), signer }),
            None => FeedProofs::Unsigned,
        }
    }

    /// Whether nodes believe a feed with these proofs, the oldest of each key that signed changes of it. Where the
    /// trust document names no key, nodes ask for no proof.
    pub(crate) fn believes(&self, first_proofs: &[Option<Bytes>]) -> bool {
        let SigningKeyInUse { believed, .. } = self.current();
        let Some(keys) = believed else { return true };
        first_proofs.iter().all(|proof| proof.as_ref().is_some_and(|proof| feed_proof::counts(proof, &keys)))
    }

    /// The proofs of changes of a node's feed, in their order; none where nothing is signed.
    pub(crate) async fn prove<'c>(
        &self,
        node: &NodeId,
        incarnation: &Incarnation,
        changes: impl Iterator<Item = &'c Change>,
    ) -> Vec<Bytes> {
        let FeedProofs::Made(prover) = self.proofs(node) else { return Vec::new() };
        let leaf = |change: &Change| prover.leaf(incarnation, change.rev, &change.key, &change.state);
        let leaves: Vec<Digest> = changes.map(leaf).collect();
        let (proofs, mine) = oneshot::channel();
        self.waiting().push(WaitingChanges { leaves, proofs });
        {
            let _turn = self.turn.lock().await;
            self.sign_waiting(&prover.signer).await;
        }
        // Whoever had the turn signed everything that waited.
        mine.await.unwrap_or_default()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<WaitingChanges>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signs all that waits, group by group.
    async fn sign_waiting(&self, signer: &Arc<FeedSigner>) {
        loop {
            let group = take_group(&mut self.waiting());
            if group.is_empty() {
                return;
            }
            let leaves: Vec<Digest> = group.iter().flat_map(|one| one.leaves.iter().copied()).collect();
            let at = now();
            let proofs = match leaves.len() {
                ..BLOCKING_FROM => signer.sign_changes(&leaves, at),
                _ => {
                    let signer = signer.clone();
                    tokio::task::spawn_blocking(move || signer.sign_changes(&leaves, at))
                        .await
                        .unwrap_or_default()
                }
            };
            let mut proofs = proofs.into_iter().map(Bytes::from);
            for one in group {
                let own = proofs.by_ref().take(one.leaves.len()).collect();
                // Nobody waits any more: the change is given up.
                let _ = one.proofs.send(own);
            }
        }
    }
}

/// What one signature covers: at least one node's changes, of which a write holds fewer than a group does.
fn take_group(waiting: &mut Vec<WaitingChanges>) -> Vec<WaitingChanges> {
    let mut leaves = 0;
    let mut fits = |one: &WaitingChanges| {
        leaves += one.leaves.len();
        leaves <= MAX_GROUP
    };
    let count = waiting.iter().take_while(|one| fits(one)).count();
    waiting.drain(..count.max(1).min(waiting.len())).collect()
}

const _: () = assert!(store::MAX_CHANGES_IN_WRITE <= MAX_GROUP, "one write is one group at most");
