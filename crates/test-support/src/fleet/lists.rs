//! Signed lists made by hand (ENR-3, IDN-6).

use model::exchange::Signed;
use model::{FleetId, Timestamp};
use server::api::lists::{AddLists, ListsAdded};
use trust::lists::{Revocation, RevocationSet, SignedList, TokenAllowlist};
use trust::{SigningKey, signed};
use wire::Problem;

use super::{Fleet, Operator, now};

/// A list, signed.
pub fn sign<L: SignedList>(list: &L, key: &SigningKey) -> Signed {
    signed::sign(list, &[key]).unwrap()
}

/// An allowlist of these nonces.
pub fn allowlist(fleet: &FleetId, seq: u64, tokens: &[(&str, Timestamp)]) -> TokenAllowlist {
    let tokens = tokens.iter().map(|(nonce, until)| ((*nonce).to_owned(), *until)).collect();
    TokenAllowlist { fleet: fleet.clone(), seq, at: now(), tokens }
}

/// A set that revokes these hosts.
pub fn revocations(fleet: &FleetId, seq: u64, hosts: &[(&str, Timestamp)]) -> RevocationSet {
    let revocation = |not_before| Revocation { not_before, why: Some("stolen".to_owned()) };
    let revoked = hosts.iter().map(|(host, at)| (host.parse().unwrap(), revocation(*at))).collect();
    RevocationSet { fleet: fleet.clone(), seq, at: now(), revoked }
}

impl Fleet {
    /// Has exactly these tokens count.
    pub async fn allow(&self, seq: u64, tokens: &[(&str, Timestamp)]) -> Result<ListsAdded, Problem> {
        let list = allowlist(&self.enroll_info().fleet, seq, tokens);
        self.operator().await.add_allowlist(sign(&list, &self.release_key())).await
    }

    /// Revokes exactly these hosts.
    pub async fn revoke(&self, seq: u64, hosts: &[(&str, Timestamp)]) -> Result<ListsAdded, Problem> {
        let set = revocations(&self.enroll_info().fleet, seq, hosts);
        self.operator().await.add_revocations(sign(&set, &self.release_key())).await
    }
}

impl Operator {
    pub async fn add_allowlist(&mut self, document: Signed) -> Result<ListsAdded, Problem> {
        self.post("/v1/lists", &AddLists { allowlist: Some(document), revocations: None }).await
    }

    pub async fn add_revocations(&mut self, document: Signed) -> Result<ListsAdded, Problem> {
        self.post("/v1/lists", &AddLists { allowlist: None, revocations: Some(document) }).await
    }
}
