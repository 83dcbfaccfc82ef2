//! Signed lists: who may join and who is revoked, declared in the fleet repo, signed here, kept by the control plane
//! (ENR-3, IDN-6).
//!
//! ```text
//! tokens.yaml, revocations.yaml --ListSigner::plan--> what differs from what counts --publish--> signed, one number higher
//! ```

pub(crate) mod declare;

use std::collections::BTreeMap;

use model::canonical;
use model::exchange::Signed;
use model::time::SLACK;
use model::{Hostname, Timestamp};
use resolve::{DeclaredRevocation, DeclaredToken};
use server::api::lists::{ADD_LISTS, AddLists, LISTS, ListsAdded};
use server::api::operation::Empty;
use trust::lists::{self, MAX_LISTED, Revocation, RevocationSet, SignedList, TokenAllowlist};
use trust::{TrustDocument, signed};

use crate::exit::Exit;
use crate::failure::UserError;
use crate::operator::{Operator, OperatorCallError};
use crate::screen::plural;
use crate::signer::{self, FleetSigner, SignError};

/// The most hosts that a sentence names.
const NAMED: usize = 10;

/// Why lists are not published.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The control plane did not do what it was asked.
    #[error("the signed lists cannot be published")]
    Call(#[from] OperatorCallError),
    /// A host is revoked from a time on that is to come.
    #[error("{host} is revoked from {at} on, which is to come")]
    Future {
        /// The host.
        host: Hostname,
        /// From when on.
        at: Timestamp,
    },
    /// There are more entries than a list may have.
    #[error("there are more than {MAX_LISTED} {0}")]
    TooMany(&'static str),
    /// A list cannot be signed.
    #[error("the list cannot be signed")]
    Sign(#[source] SignError),
    /// No key is at hand that signs lists.
    #[error("lists of tokens and revocations are signed with a release key, and none of the keys is one")]
    NoReleaseKey,
    /// The control plane's list cannot be read, so that no number follows it.
    #[error("the control plane's {0} cannot be read")]
    Unreadable(&'static str),
}

impl UserError for ListError {
    fn exit(&self) -> Exit {
        match self {
            ListError::Call(error) => error.exit(),
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            ListError::Call(error) => return error.hint(),
            ListError::Future { .. } => {
                "write a time that is over, or set this machine's clock if that is wrong".to_owned()
            }
            ListError::TooMany(_) => "take out those that are long over".to_owned(),
            ListError::NoReleaseKey => "name the fleet's release key: --key FILE".to_owned(),
            ListError::Sign(error) => return error.hint(),
            ListError::Unreadable(_) => return None,
        })
    }
}

/// Signs lists for a fleet.
pub(crate) struct ListSigner<'a> {
    pub(crate) operator: &'a Operator,
    pub(crate) trust: &'a TrustDocument,
    /// A release key, where one is at hand.
    pub(crate) key: Option<&'a FleetSigner>,
}

/// Whether hosts that are revoked now, and that are not declared, stay revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undeclared {
    /// What is declared is all: they are let in again.
    Dropped,
    /// They stay.
    Kept,
}

/// What is to be published of lists, in words too.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListsPlan {
    pub(crate) add: AddLists,
    /// What changes.
    pub(crate) changes: Vec<String>,
    /// Hosts that are revoked and not declared.
    pub(crate) undeclared: Vec<Hostname>,
}

impl ListsPlan {
    /// Nothing differs from what counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.add.allowlist.is_none() && self.add.revocations.is_none()
    }
}

/// A list of the control plane.
struct KnownList<L> {
    /// What it says.
    list: L,
    /// Who signed it.
    signer: ListSignature,
}

/// By which key a list of the control plane is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListSignature {
    /// By the current release key.
    Current,
    /// By the one before, which counts still.
    Previous,
    /// By none that counts now: its key was retired, or it is nobody's.
    NotBelieved,
}

impl<L> KnownList<L> {
    /// What it says, where a key signed it that counts.
    fn believed(&self) -> Option<&L> {
        (self.signer != ListSignature::NotBelieved).then_some(&self.list)
    }

    fn is_current(&self) -> bool {
        self.signer == ListSignature::Current
    }
}

impl ListSigner<'_> {
    /// What is to be published so that what is declared counts; what is not declared at all stays as it is.
    ///
    /// # Errors
    /// When the control plane cannot be asked, or what is declared cannot be signed.
    pub(crate) async fn plan(
        &self,
        tokens: Option<&[DeclaredToken]>,
        revocations: Option<&[DeclaredRevocation]>,
        undeclared: Undeclared,
        now: Timestamp,
    ) -> Result<ListsPlan, ListError> {
        let mut plan = ListsPlan::default();
        if tokens.is_none() && revocations.is_none() {
            return Ok(plan);
        }
        let held = self.operator.call(&LISTS, Empty {}).await?;
        if let Some(tokens) = tokens {
            self.plan_tokens(tokens, held.allowlist.as_ref(), now, &mut plan)?;
        }
        if let Some(revocations) = revocations {
            let held = held.revocations.as_ref();
            self.plan_revocations(revocations, held, undeclared, now, &mut plan)?;
        }
        Ok(plan)
    }

    fn plan_tokens(
        &self,
        declared: &[DeclaredToken],
        held: Option<&Signed>,
        now: Timestamp,
        plan: &mut ListsPlan,
    ) -> Result<(), ListError> {
        let counts = declared.iter().filter(|token| token.expires_at.plus(SLACK) >= now);
        let tokens: BTreeMap<String, Timestamp> =
            counts.map(|token| (token.nonce.clone(), token.expires_at)).collect();
        if tokens.len() > MAX_LISTED {
            return Err(ListError::TooMany("tokens"));
        }
        let known: Option<KnownList<TokenAllowlist>> = self.known(held)?;
        let before = known.as_ref().and_then(KnownList::believed).map(|list| &list.tokens);
        if known.as_ref().is_some_and(KnownList::is_current) && before == Some(&tokens) {
            return Ok(());
        }
        let count = plural(tokens.len(), "token");
        plan.changes.push(match (&known, before) {
            (None, _) => format!("the first allowlist, of {count}: no other token is used"),
            (Some(_), None) => format!("allowlist of {count}, signed anew"),
            (Some(_), Some(before)) => {
                let new = tokens.keys().filter(|nonce| !before.contains_key(*nonce)).count();
                let over = before.keys().filter(|nonce| !tokens.contains_key(*nonce)).count();
                format!("allowlist of {count}: {new} new, {over} gone")
            }
        });
        let (fleet, seq) = (self.trust.fleet.clone(), after(known.as_ref()));
        plan.add.allowlist = Some(self.sign(&TokenAllowlist { fleet, seq, at: now, tokens })?);
        Ok(())
    }

    fn plan_revocations(
        &self,
        declared: &[DeclaredRevocation],
        held: Option<&Signed>,
        undeclared: Undeclared,
        now: Timestamp,
        plan: &mut ListsPlan,
    ) -> Result<(), ListError> {
        let mut revoked = latest(declared, now)?;
        let known: Option<KnownList<RevocationSet>> = self.known(held)?;
        let nothing = BTreeMap::new();
        let before = known.as_ref().and_then(KnownList::believed).map(|list| &list.revoked);
        // Also of a set that nobody is known to have signed: who is out stays out until somebody says otherwise.
        let before_all = known.as_ref().map_or(&nothing, |known| &known.list.revoked);
        let is_new = |(host, revocation): &(&Hostname, &Revocation)| {
            before_all.get(*host).is_none_or(|known| known.not_before < revocation.not_before)
        };
        let new: Vec<Hostname> = revoked.iter().filter(is_new).map(|(host, _)| host.clone()).collect();
        plan.undeclared = before_all.keys().filter(|host| !revoked.contains_key(*host)).cloned().collect();
        if undeclared == Undeclared::Kept {
            let kept = plan.undeclared.iter().filter_map(|host| before_all.get_key_value(host));
            revoked.extend(kept.map(|(host, revocation)| (host.clone(), revocation.clone())));
        }
        if revoked.len() > MAX_LISTED {
            return Err(ListError::TooMany("revoked hosts"));
        }
        let is_same = match before {
            Some(before) => *before == revoked,
            // Nothing is revoked, and nothing ever was.
            None => revoked.is_empty() && known.is_none(),
        };
        if is_same && known.as_ref().is_none_or(KnownList::is_current) {
            return Ok(());
        }
        if !new.is_empty() {
            plan.changes.push(format!("revoked: {}", named(&new)));
        }
        if undeclared == Undeclared::Dropped && !plan.undeclared.is_empty() {
            plan.changes.push(format!("revoked no more: {}", named(&plan.undeclared)));
        }
        if plan.changes.is_empty() {
            plan.changes.push(format!("revocations of {}", plural(revoked.len(), "host")));
        }
        let (fleet, seq) = (self.trust.fleet.clone(), after(known.as_ref()));
        plan.add.revocations = Some(self.sign(&RevocationSet { fleet, seq, at: now, revoked })?);
        Ok(())
    }

    /// What the control plane has of a list.
    fn known<L: SignedList>(&self, held: Option<&Signed>) -> Result<Option<KnownList<L>>, ListError> {
        let Some(document) = held else { return Ok(None) };
        let unread = |_| ListError::Unreadable(L::NAME.as_str());
        let list: L = canonical::parse_canonical(document.payload.as_bytes()).map_err(unread)?;
        let current = trust::Slots { previous: None, ..self.trust.release.clone() };
        let signer = match lists::open::<L>(document, self.trust) {
            Err(_) => ListSignature::NotBelieved,
            Ok(_) if signed::verify::<L>(document, &current).is_ok() => ListSignature::Current,
            Ok(_) => ListSignature::Previous,
        };
        Ok(Some(KnownList { list, signer }))
    }

    fn sign<L: SignedList>(&self, list: &L) -> Result<Signed, ListError> {
        signer::sign(list, &[self.key.ok_or(ListError::NoReleaseKey)?]).map_err(ListError::Sign)
    }

    /// Has the lists count.
    ///
    /// # Errors
    /// When the control plane refuses them.
    pub(crate) async fn publish(&self, plan: &ListsPlan) -> Result<ListsAdded, ListError> {
        Ok(self.operator.call(&ADD_LISTS, plan.add.clone()).await?)
    }
}

/// The latest of what is declared of each host.
fn latest(
    declared: &[DeclaredRevocation],
    now: Timestamp,
) -> Result<BTreeMap<Hostname, Revocation>, ListError> {
    let mut revoked: BTreeMap<Hostname, Revocation> = BTreeMap::new();
    for DeclaredRevocation { host, not_before, why, .. } in declared {
        if *not_before > now.plus(SLACK) {
            return Err(ListError::Future { host: host.clone(), at: *not_before });
        }
        if revoked.get(host).is_none_or(|known| known.not_before < *not_before) {
            revoked.insert(host.clone(), Revocation { not_before: *not_before, why: why.clone() });
        }
    }
    Ok(revoked)
}

/// The number after that of the list that is there.
fn after<L: SignedList>(known: Option<&KnownList<L>>) -> u64 {
    known.map_or(0, |known| known.list.seq()).saturating_add(1)
}

/// The first few of hosts, and how many there are more.
pub(crate) fn named(hosts: &[Hostname]) -> String {
    let first: Vec<&str> = hosts.iter().take(NAMED).map(Hostname::as_str).collect();
    match hosts.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} +{more}", first.join(", ")),
    }
}
