//! [`ActiveRelease`]: the release that this node holds, adopted durably and then observed by all who
//! go by it.
//!
//! ```text
//! check-in -> node::Node verifies -> Storage -> ActiveRelease::adopt: durable -> observed
//!                                                 watch of ReleaseTerms -> links, reconciler, work
//!                                                 DelegationGate        -> work, at each action
//! ```
//!
//! Invariants: nobody goes by a release that is not durable; what of it cannot be read allows
//! nothing, and is named.

use std::sync::Arc;

use model::policy::Policy;
use model::replication::SyncPolicy;
use node::{Adoption, FreshnessRecord, HeldSettings};
use tokio::sync::watch;

use crate::delegated::{DelegationGate, Delegations};
use crate::render::chain;
use crate::state::{Durable, StateError};

/// What the release that is held says.
#[derive(Clone, Debug, Default)]
pub struct ReleaseTerms {
    /// The channel's settings.
    pub policy: Policy,
    /// The leave to synchronize; `None` when it gives none.
    pub sync: Option<SyncPolicy>,
    /// Why the leave to synchronize cannot be read.
    pub sync_problem: Option<String>,
    /// Why the delegations cannot be read.
    pub delegations_problem: Option<String>,
}

/// The release that is held.
pub struct ActiveRelease {
    terms: watch::Sender<ReleaseTerms>,
    delegations: Arc<DelegationGate>,
}

impl ActiveRelease {
    /// The release that the state directory holds; terms that allow nothing when it holds none.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn open(durable: &Durable) -> Result<ActiveRelease, StateError> {
        let mut terms = ReleaseTerms::default();
        let mut delegations = Delegations::default();
        if let Some(adoption) = durable.adoption()? {
            terms.policy = match durable.settings(&adoption) {
                Ok(settings) => settings.policy,
                // It is fetched again; until then the defaults count.
                Err(StateError::Lost { .. }) => Policy::default(),
                Err(error) => return Err(error),
            };
            delegations = terms.read(durable, &adoption)?;
        }
        let delegations = Arc::new(DelegationGate::new(delegations));
        Ok(ActiveRelease { terms: watch::Sender::new(terms), delegations })
    }

    /// What the release says, and each one adopted after it.
    pub fn terms(&self) -> watch::Receiver<ReleaseTerms> {
        self.terms.subscribe()
    }

    /// What the control plane may ask for.
    pub fn delegations(&self) -> &Arc<DelegationGate> {
        &self.delegations
    }

    /// How fresh what is held is counts from now on, and is made durable. Waits for the disk.
    ///
    /// # Errors
    /// When it cannot be made durable; it counts all the same.
    pub fn set_freshness(&self, durable: &Durable, freshness: &FreshnessRecord) -> Result<(), StateError> {
        if !self.delegations.set_freshness(freshness) {
            return Ok(());
        }
        durable.save_freshness(freshness)
    }

    /// Adopts a release: from then on its terms count, and none of the one before. Waits for the
    /// disk.
    ///
    /// # Errors
    /// When it cannot be made durable; the one before counts still.
    pub fn adopt(&self, durable: &Durable, adoption: &Adoption) -> Result<HeldSettings, StateError> {
        let mut terms = ReleaseTerms::default();
        // Said before: a release without it must not count.
        let says = terms.read(durable, adoption)?;
        let settings = self.delegations.adopt(|| durable.adopt(adoption), || says)?;
        terms.policy = settings.policy.clone();
        self.terms.send_replace(terms);
        Ok(settings)
    }
}

impl ReleaseTerms {
    /// Reads all but the channel's settings; gives what the control plane may ask for.
    fn read(&mut self, durable: &Durable, adoption: &Adoption) -> Result<Delegations, StateError> {
        let freshness = durable.freshness(adoption)?;
        match durable.sync_policy(adoption) {
            Ok(sync) => self.sync = sync,
            Err(error) => self.sync_problem = Some(unread(&error, "nothing is synchronized")),
        }
        let delegations = durable.delegations(adoption).unwrap_or_else(|error| {
            self.delegations_problem = Some(unread(&error, "nothing is delegated"));
            Vec::new()
        });
        Ok(Delegations {
            number: 0,
            seq: adoption.seq,
            delegations: delegations.into(),
            sync: self.sync.clone().map(Arc::new),
            newest: freshness.newest_signature,
            header: Some(freshness.header),
            fresh_until: freshness.fresh_until(),
        })
    }
}

fn unread(error: &StateError, so: &str) -> String {
    let problem = format!("{}; {so}", chain(error));
    tracing::error!(problem, "the release held cannot be read");
    problem
}
