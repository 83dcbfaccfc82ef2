//! [`SignedLists`]: the allowlist of tokens and the revocations, as they count (ENR-3, IDN-6).
//!
//! ```text
//! operator port --add: verified, follows--> store (one transaction, with its audit entry)
//!   --load--> in memory --> tokens are judged by it (enroll)
//!                       --> nodes are judged anew: links end, long polls are answered, connections are cut
//! ```
//!
//! Invariant: what counts in memory is what the store has. While that cannot be read or verified, who depends on it
//! is answered 503 (WIR-4): enrollments and everything of nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use model::exchange::Signed;
use model::{Hostname, Timestamp};
use net::revoked::RevokedCertificates;
use plane::lists::{
    AllowlistRule, AllowlistState, FleetLists, JoinCredential, KeptList, RevocationChange, TokenListRefusal,
    TokenRules,
};
use store::audit::AuditSubject;
use store::{ListVersions, PutListError, StoredList};
use trust::lists::{self, HeldList, ListSuccession};
use trust::signed;
use trust::{ChainHead, ListName, ListRefusal, RevocationSet, SignedList, TokenAllowlist};
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::api::lists::{AddLists, ListsAdded, ListsView, MAX_CUT_NAMED};
use crate::index::NodeSlot;
use crate::operator_port::OperatorCall;
use crate::posture::Posture;
use crate::state::{ControlPlane, now, run_to_completion};

/// The lists of a control plane that runs.
pub(crate) struct SignedLists {
    loaded: RwLock<Result<Arc<LoadedLists>, String>>,
    /// One reads or changes them at a time.
    changing: tokio::sync::Mutex<()>,
    /// For the ports' handshakes and connections.
    pub(crate) revoked: RevokedCertificates,
}

/// The lists as they were read last.
pub(crate) struct LoadedLists {
    pub(crate) lists: FleetLists,
    /// From when on the database knows which tokens were used.
    known_from: Timestamp,
}

impl Default for SignedLists {
    fn default() -> SignedLists {
        let loaded = RwLock::new(Err("they are not read yet".to_owned()));
        SignedLists {
            loaded,
            changing: tokio::sync::Mutex::default(),
            revoked: RevokedCertificates::default(),
        }
    }
}

impl SignedLists {
    /// The lists that count.
    ///
    /// # Errors
    /// [`Code::NotReady`] while they cannot be read or verified.
    pub(crate) fn ready(&self) -> Result<Arc<LoadedLists>, Problem> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.clone().map_err(|why| Problem::new(Code::NotReady, format!("the signed lists: {why}")))
    }

    /// Why they do not count, while they do not.
    pub(crate) fn not_ready(&self) -> Option<String> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().err().map(|why| format!("the signed lists: {why}"))
    }

    /// Waits until what the store has counts in memory too.
    pub(crate) async fn settled(&self) {
        drop(self.changing.lock().await);
    }
}

impl LoadedLists {
    /// By what a token is judged and its node recorded.
    pub(crate) fn versions(&self) -> ListVersions {
        let (allowlist, revocations) = (self.lists.allowlist_seq(), self.lists.revocations_seq());
        ListVersions { allowlist, revocations }
    }

    /// Whether what lets a host in, which is good by itself, counts.
    pub(crate) fn judge(
        &self,
        hostname: &Hostname,
        credential: JoinCredential<'_>,
        posture: Posture,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let allowlist = match posture {
            Posture::Lab => AllowlistRule::OncePublished,
            Posture::Sealed => AllowlistRule::Always,
        };
        let rules = TokenRules { allowlist, known_from: self.known_from };
        self.lists.judge_join(hostname, credential, rules, now).map_err(|refusal| {
            let code = match refusal {
                TokenListRefusal::Outdated { .. } => Code::TokenOutdated,
                TokenListRefusal::NotListed { .. }
                | TokenListRefusal::NoList
                | TokenListRefusal::ListRejected => Code::TokenNotListed,
                TokenListRefusal::Ended { .. } => Code::TokenExpired,
                TokenListRefusal::Revoked { .. } => Code::Revoked,
            };
            Problem::new(code, refusal.to_string())
        })
    }
}

/// Reads the lists from the store, verifies them and judges the nodes by them.
pub(crate) async fn load(plane: &ControlPlane) -> Result<(), Problem> {
    let _one = plane.lists.changing.lock().await;
    reload(plane).await.map(drop)
}

/// As [`load`], by who holds `changing`; gives the nodes that are revoked from now on.
async fn reload(plane: &ControlPlane) -> Result<Vec<Arc<NodeSlot>>, Problem> {
    let read = read(plane).await.map(Arc::new);
    let mut loaded = plane.lists.loaded.write().unwrap_or_else(PoisonError::into_inner);
    match read {
        Ok(read) => {
            *loaded = Ok(read.clone());
            // Whoever is recorded from here on is judged by these.
            drop(loaded);
            Ok(apply(plane, &read.lists))
        }
        Err(problem) => {
            *loaded = Err(problem.to_string());
            Err(problem)
        }
    }
}

async fn read(plane: &ControlPlane) -> Result<LoadedLists, Problem> {
    let stored = plane.store.signed_lists().await.map_err(store_problem)?;
    let incarnation = plane.store.incarnation().await.map_err(store_problem)?;
    let documents = plane.trust.documents();
    let newest_first: Vec<&ChainHead> =
        documents.versions.iter().rev().map(|version| &version.head).collect();
    let mut lists = FleetLists::default();
    for StoredList { name, document, .. } in stored {
        match name {
            ListName::Allowlist => {
                let kept = AllowlistState::kept(document, newest_first.iter().copied());
                lists.allowlist = kept.map_err(|refusal| refused(name, refusal))?;
            }
            ListName::Revocations => {
                let kept = KeptList::<RevocationSet>::kept(document, newest_first.iter().copied());
                lists.revocations = Some(kept.map_err(|refusal| refused(name, refusal))?);
            }
        }
    }
    let known_from = incarnation.map_or(Timestamp(i64::MIN), |incarnation| incarnation.began);
    Ok(LoadedLists { lists, known_from })
}

fn refused(name: ListName, refusal: ListRefusal) -> Problem {
    let code = match refusal {
        ListRefusal::Signature(_) => Code::ListSignature,
        ListRefusal::Malformed(_) => Code::ListMalformed,
        ListRefusal::OtherFleet { .. } => Code::ListOtherFleet,
        ListRefusal::Future { .. } => Code::ListFuture,
        ListRefusal::Older { .. } => Code::ListOlder,
    };
    Problem::new(code, format!("the {} is refused: {refusal}", what(name)))
}

fn what(name: ListName) -> &'static str {
    match name {
        ListName::Allowlist => "allowlist of tokens",
        ListName::Revocations => "set of revocations",
    }
}

/// Judges every node by the lists. What is revoked is cut at once: its link, its long polls and its connections.
fn apply(plane: &ControlPlane, lists: &FleetLists) -> Vec<Arc<NodeSlot>> {
    let hosts: BTreeMap<Hostname, Timestamp> = lists.revocations.iter().flat_map(revoked_hosts).collect();
    let mut cut = Vec::new();
    for slot in plane.index.all() {
        let mut entry = slot.lock();
        let change = entry.node.judge_revocation(lists);
        if change == RevocationChange::Same {
            continue;
        }
        plane.index.mark_entry(&slot, &mut entry);
        if change == RevocationChange::Revoked {
            let (id, hostname) = (entry.node.id.clone(), entry.node.hostname.clone());
            drop(entry);
            plane.hub.revoke(&id);
            slot.wake.notify_waiters();
            tracing::warn!(node = %id, %hostname, "a node is revoked");
            cut.push(slot);
        }
    }
    plane.lists.revoked.replace(hosts);
    cut
}

fn revoked_hosts(kept: &KeptList<RevocationSet>) -> impl Iterator<Item = (Hostname, Timestamp)> {
    kept.list.revoked.iter().map(|(host, revocation)| (host.clone(), revocation.not_before))
}

/// Lists that are to take the place of what is held, and what the audit log says of them.
#[derive(Default)]
struct Successors {
    stored: Vec<StoredList>,
    said: Vec<String>,
    hosts: Vec<Hostname>,
}

impl Successors {
    /// Verifies a list that was sent; gives it if it follows what is held.
    fn take<L: SignedList>(
        &mut self,
        plane: &ControlPlane,
        held: &[StoredList],
        document: Option<Signed>,
    ) -> Result<Option<L>, Problem> {
        let Some(document) = document else { return Ok(None) };
        let problem = |refusal| refused(L::NAME, refusal);
        let list: L = lists::open(&document, &plane.trust.documents().newest().document).map_err(problem)?;
        let held = held.iter().find(|held| held.name == L::NAME);
        let held = held.map(|held| HeldList { seq: held.seq, digest: signed::digest(&held.document) });
        match lists::follows(&list, &signed::digest(&document), held, now()).map_err(problem)? {
            ListSuccession::Same => Ok(None),
            ListSuccession::Follows => {
                self.stored.push(StoredList { name: L::NAME, seq: list.seq(), document });
                Ok(Some(list))
            }
        }
    }

    fn subject(&self) -> AuditSubject {
        let what = match self.said.as_slice() {
            [] => "signed lists that count already".to_owned(),
            said => said.join(", "),
        };
        AuditSubject::nodes(&self.hosts).and(what)
    }
}

/// Takes lists up, also when who asked hangs up: what is stored is what nodes are judged by.
pub(crate) async fn add(call: OperatorCall, sent: AddLists) -> Result<ListsAdded, Problem> {
    run_to_completion(async move {
        let plane = &call.plane;
        let _one = plane.lists.changing.lock().await;
        let held = plane.store.signed_lists().await.map_err(store_problem)?;
        let mut new = Successors::default();
        if let Some(list) = new.take::<TokenAllowlist>(plane, &held, sent.allowlist)? {
            new.said.push(format!("allowlist {} of {} tokens", list.seq, list.tokens.len()));
        }
        if let Some(set) = new.take::<RevocationSet>(plane, &held, sent.revocations)? {
            new.said.push(format!("revocations {} of {} hosts", set.seq, set.revoked.len()));
            new.hosts = newly_named(&set, plane.lists.ready().ok().as_deref());
        }
        let cut = match new.stored.is_empty() {
            true => Vec::new(),
            false => {
                let store = call.recording(new.subject());
                store.put_lists(new.stored).await.map_err(put_problem)?;
                reload(plane).await?
            }
        };
        let names: Vec<Hostname> = cut.iter().map(|slot| slot.names().1).collect();
        tracing::info!(by = call.by, said = ?new.said, cut = names.len(), "signed lists were published");
        Ok(ListsAdded { count: names.len(), cut: names.into_iter().take(MAX_CUT_NAMED).collect() })
    })
    .await
}

/// The hosts of a set that were not in the one before, or later now.
fn newly_named(set: &RevocationSet, before: Option<&LoadedLists>) -> Vec<Hostname> {
    let before = before.and_then(|before| before.lists.revocations.as_ref()).map(|kept| &kept.list.revoked);
    let is_new = |host: &&Hostname| {
        let known = before.and_then(|before| before.get(*host));
        known.map(|known| known.not_before) != set.revoked.get(*host).map(|now| now.not_before)
    };
    set.revoked.keys().filter(is_new).cloned().collect()
}

fn put_problem(error: PutListError) -> Problem {
    match error {
        PutListError::NotNewer { .. } => Problem::new(Code::ListOlder, error.to_string()),
        PutListError::Store(error) => store_problem(error),
    }
}

/// The lists as they are stored, which who asks verifies himself.
pub(crate) async fn view(call: OperatorCall) -> Result<ListsView, Problem> {
    let mut view = ListsView::default();
    for StoredList { name, document, .. } in call.plane.store.signed_lists().await.map_err(store_problem)? {
        match name {
            ListName::Allowlist => view.allowlist = Some(document),
            ListName::Revocations => view.revocations = Some(document),
        }
    }
    Ok(view)
}
