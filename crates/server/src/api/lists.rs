//! Signed lists and failed joins on the operator port (ENR-3, ENR-4, IDN-6).

use model::Hostname;
use model::exchange::Signed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::FailedJoinRecord;

use super::operation::{Empty, Limit, Operation};

/// The signed lists that are kept.
pub static LISTS: Operation<Empty, ListsView> = Operation::get("/v1/lists");
/// Has signed lists count from now on, all of them or none; one that counts already is no mistake.
pub static ADD_LISTS: Operation<AddLists, ListsAdded> = Operation::transfer("/v1/lists").by_operators();
/// Why hosts could not join, by their own word; the newest first.
pub static FAILED_JOINS: Operation<FailedJoinsAsked, Vec<FailedJoinRecord>> =
    Operation::get("/v1/failed-joins");

/// The most nodes named in an answer to [`ADD_LISTS`].
pub const MAX_CUT_NAMED: usize = 100;

/// The signed lists that are kept; who asks verifies them.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListsView {
    /// The nonces of tokens that may be used; absent before one was published.
    pub allowlist: Option<Signed>,
    /// Hosts whose certificates count no more; absent before a set was published.
    pub revocations: Option<Signed>,
}

/// Lists that are to count.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AddLists {
    /// A `token-allowlist`, signed with a release key.
    pub allowlist: Option<Signed>,
    /// A `revocation-set`, signed with a release key.
    pub revocations: Option<Signed>,
}

/// The answer to [`AddLists`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListsAdded {
    /// How many enrolled nodes are revoked from now on that were not before.
    pub count: usize,
    /// The first [`MAX_CUT_NAMED`] of them.
    pub cut: Vec<Hostname>,
}

/// Which failed joins.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FailedJoinsAsked {
    /// Only with a lower number.
    pub before: Option<u64>,
    /// The most in one answer.
    pub limit: Limit,
}
