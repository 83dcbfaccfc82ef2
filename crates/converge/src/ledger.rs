//! [`Ledger`]: what was made or changed, with the state before (CNV-10).

use std::collections::BTreeMap;

use catalog::module::OnRemove;
use catalog::schema::{self, Manages};
use catalog::types::ResourceSubject;
use lang::Value;
use model::collect::CollectInserting;
use model::{Digest, Edit, Fields, PathState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ResourceId;
use crate::kinds::tree;

/// The largest file, in bytes, whose bytes are kept before it is changed.
pub const MAX_KEPT: u64 = 64 * 1024 * 1024;

/// Everything that Muster made or changed on this host and still answers for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    /// By resource.
    pub entries: BTreeMap<ResourceId, LedgerEntry>,
}

/// What was there before a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PriorForm", into = "PriorForm")]
pub enum Prior {
    /// What was at a path.
    Path(PathState),
    /// What a thing of the host was, as named texts; `None` when there was none.
    State(Option<Fields>),
}

/// How [`Prior`] is stored: an agent of a version that knows paths alone reads `prior`.
#[derive(Serialize, Deserialize)]
struct PriorForm {
    prior: PathState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateForm>,
}

#[derive(Serialize, Deserialize)]
struct StateForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<Fields>,
}

impl From<PriorForm> for Prior {
    fn from(form: PriorForm) -> Prior {
        match form.state {
            Some(state) => Prior::State(state.fields),
            None => Prior::Path(form.prior),
        }
    }
}

impl From<Prior> for PriorForm {
    fn from(prior: Prior) -> PriorForm {
        match prior {
            Prior::Path(prior) => PriorForm { prior, state: None },
            Prior::State(fields) => PriorForm {
                prior: PathState::Other { what: "a state".to_owned() },
                state: Some(StateForm { fields }),
            },
        }
    }
}

impl Prior {
    /// As much of it as an edit changes: what a thing was otherwise is not Muster's to put back. All of
    /// it for a thing that is removed.
    pub(crate) fn of_edit(&self, edit: Option<&Edit<Fields>>) -> Prior {
        match (self, edit) {
            (Prior::State(Some(fields)), Some(Edit::Change { to, .. })) => {
                let changed = fields.iter().filter(|(name, _)| to.contains_key(*name));
                Prior::State(Some(
                    changed.map(|(name, text)| (name.clone(), text.clone())).collect_inserting(),
                ))
            }
            (prior, _) => prior.clone(),
        }
    }

    /// Nothing was there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Prior::Path(PathState::Missing) | Prior::State(None))
    }

    /// The digests of the contents that putting it back needs.
    pub fn digests(&self) -> Vec<Digest> {
        match self {
            Prior::Path(PathState::File { digest, .. }) => vec![*digest],
            Prior::Path(_) | Prior::State(None) => Vec::new(),
            Prior::State(Some(fields)) => {
                fields.values().filter_map(|text| tree::kept_digest(text)).collect()
            }
        }
    }

    /// What was there in one or two words.
    pub fn what(&self) -> &str {
        match self {
            Prior::Path(state) => state.what(),
            Prior::State(Some(_)) => "what it was before",
            Prior::State(None) => "nothing",
        }
    }
}

/// One thing that was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "LedgerEntryForm")]
pub struct LedgerEntry {
    /// The resource's type.
    pub kind: String,
    /// The path that it manages; the resource's name where its type manages none.
    pub path: String,
    /// What was there before Muster first changed it.
    #[serde(flatten)]
    pub prior: Prior,
    /// The prior bytes are in the blob store, so it can be restored. Of a resource that holds a secret they are
    /// sealed under the agent's own key, and the prior state has the digest of that (SEC-3).
    pub kept: bool,
    /// What happens when the resource leaves the set, as declared last.
    pub on_remove: OnRemove,
    /// When it was first changed.
    pub at: Timestamp,
    /// Its content is shown nowhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// The attributes by which the resource can be removed without its declaration
    /// (`ResourceType::removal`), as declared last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Value>,
    /// The files and directories around it that were made for it or for another resource: a removal takes
    /// them away when nothing is left in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
    /// The root of the set whose run made or changed it first: the generation that answers for it (ROL-10). An
    /// earlier version did not keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Digest>,
}

/// How [`LedgerEntry`] is read: in one struct, as serde keeps every value of a flattened one aside first, and each run
/// reads the whole ledger.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LedgerEntryForm {
    kind: String,
    path: String,
    prior: PathState,
    #[serde(default)]
    state: Option<StateForm>,
    kept: bool,
    on_remove: OnRemove,
    at: Timestamp,
    #[serde(default)]
    sensitive: bool,
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
    #[serde(default)]
    made: Vec<String>,
    #[serde(default)]
    generation: Option<Digest>,
}

impl From<LedgerEntryForm> for LedgerEntry {
    fn from(form: LedgerEntryForm) -> LedgerEntry {
        LedgerEntry {
            kind: form.kind,
            path: form.path,
            prior: PriorForm { prior: form.prior, state: form.state }.into(),
            kept: form.kept,
            on_remove: form.on_remove,
            at: form.at,
            sensitive: form.sensitive,
            attributes: form.attributes,
            made: form.made,
            generation: form.generation,
        }
    }
}

impl LedgerEntry {
    /// Why `restore` cannot bring everything back, if so; reported before anything is removed.
    pub fn cannot_restore(&self) -> Option<&'static str> {
        cannot_restore(&self.prior, self.kept)
    }

    fn manages_path(&self) -> bool {
        schema::find(&self.kind).is_some_and(|kind| kind.manages == Manages::Path)
    }

    /// What it is about.
    pub fn subject(&self) -> ResourceSubject<'_> {
        match &self.prior {
            Prior::Path(_) => ResourceSubject::Path(&self.path),
            // The state of a directory with its files is about its path too.
            Prior::State(_) if self.manages_path() => ResourceSubject::Path(&self.path),
            Prior::State(_) => ResourceSubject::Named { kind: &self.kind, name: &self.path },
        }
    }
}

/// Why a prior state cannot be brought back whole, if so.
pub(crate) fn cannot_restore(prior: &Prior, kept: bool) -> Option<&'static str> {
    let Prior::Path(prior) = prior else { return None };
    match prior {
        PathState::File { .. } if !kept => Some("the bytes that were there before were not kept"),
        PathState::Directory { empty: false, .. } => Some("what was inside the directory was not kept"),
        PathState::Other { .. } => Some("what was there before is nothing that Muster can make"),
        PathState::Missing
        | PathState::File { .. }
        | PathState::Directory { .. }
        | PathState::Symlink { .. } => None,
    }
}
