//! Who operates the fleet (OPS-5): operators with their credentials in memory, as the store has them.
//!
//! ```text
//! request: certificate or token --authenticate--> OperatorCaller: name, role, OperatorScope
//!   OperatorRoute: role and reach --> handler, which keeps to the scope --> RequestAudit: one entry
//! revoke: store, then the table --> requests under way of who was revoked are cut
//! ```
//!
//! Invariant: what is in memory is what the store has; it is read anew after each change, by one at a time.

pub(crate) mod audit;
pub(crate) mod authority;
pub(crate) mod scope;
pub(crate) mod token;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, header};
use model::Timestamp;
use net::identity::{CertifiedPeer, PeerRole};
use store::{OperatorRecord, OperatorRole, Store, StoreError};
use tokio::sync::watch;
use wire::{Code, Problem};

use self::authority::OperatorAuthority;
use self::scope::OperatorScope;
use self::token::OperatorToken;

/// The first admin, whose certificate names no credential.
pub(crate) const FOUNDER: &str = "operator";
/// What stands between name and credential in the URI of an operator's certificate; no name has it.
pub(crate) const CREDENTIAL_MARK: char = ':';
/// The author of what nobody who is known asked for.
const NOBODY: &str = "?";

/// All operators.
pub(crate) struct Operators {
    /// Issues their certificates.
    pub(crate) authority: Arc<OperatorAuthority>,
    table: watch::Sender<Arc<OperatorTable>>,
    /// One change at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

/// The operators at one time.
#[derive(Default)]
pub(crate) struct OperatorTable {
    by_name: BTreeMap<String, Arc<KnownOperator>>,
    /// Whose a credential is, and until when it counts.
    by_credential: BTreeMap<String, (Arc<KnownOperator>, Timestamp)>,
}

/// An operator, and his scope as it was read.
pub(crate) struct KnownOperator {
    pub(crate) record: OperatorRecord,
    pub(crate) scope: Arc<OperatorScope>,
}

/// Who asks, authenticated.
#[derive(Clone)]
pub(crate) struct OperatorCaller {
    pub(crate) name: String,
    pub(crate) role: OperatorRole,
    pub(crate) scope: Arc<OperatorScope>,
    pub(crate) credential: CallerCredential,
}

/// What a caller proved himself with.
#[derive(Clone)]
pub(crate) enum CallerCredential {
    /// The certificate of the first admin.
    Founder,
    /// A credential by its id.
    Issued(String),
}

/// Nobody who may ask: as whom, by what he showed, and why not.
pub(crate) struct UnknownCaller {
    pub(crate) name: String,
    pub(crate) problem: Problem,
}

impl OperatorTable {
    fn of(records: Vec<OperatorRecord>) -> OperatorTable {
        let mut table = OperatorTable::default();
        for record in records {
            let scope = Arc::new(OperatorScope::stored(record.nodes.as_deref()));
            let known = Arc::new(KnownOperator { record, scope });
            if known.record.revoked.is_none() {
                for credential in &known.record.credentials {
                    let held = (known.clone(), credential.expires);
                    table.by_credential.insert(credential.id.clone(), held);
                }
            }
            table.by_name.insert(known.record.name.clone(), known);
        }
        table
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &OperatorRecord> {
        self.by_name.values().map(|known| &known.record)
    }

    /// One by name.
    pub(crate) fn get(&self, name: &str) -> Option<&OperatorRecord> {
        self.by_name.get(name).map(|known| &known.record)
    }

    fn holder(&self, credential: &CallerCredential, now: Timestamp) -> Option<Arc<KnownOperator>> {
        match credential {
            // Who was added anew under the name is another one.
            CallerCredential::Founder => self
                .by_name
                .get(FOUNDER)
                .filter(|known| known.record.revoked.is_none() && known.record.created == Timestamp(0))
                .cloned(),
            CallerCredential::Issued(id) => {
                let (known, expires) = self.by_credential.get(id)?;
                (now < *expires).then(|| known.clone())
            }
        }
    }
}

impl Operators {
    pub(crate) fn new(authority: OperatorAuthority) -> Operators {
        let (authority, changing) = (Arc::new(authority), tokio::sync::Mutex::default());
        Operators { authority, table: watch::Sender::default(), changing }
    }

    /// Reads them from the store.
    pub(crate) async fn load(&self, store: &Store) -> Result<(), StoreError> {
        let table = OperatorTable::of(store.operators().await?);
        self.table.send_replace(Arc::new(table));
        Ok(())
    }

    /// The operators as they are now.
    pub(crate) fn table(&self) -> Arc<OperatorTable> {
        self.table.borrow().clone()
    }

    /// Who asks: by the token of the request, or by the certificate of its connection.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&CertifiedPeer>,
        now: Timestamp,
    ) -> Result<OperatorCaller, Box<UnknownCaller>> {
        let (shown, credential) = shown(headers, peer)?;
        let refused = |detail: &str| {
            let problem = Problem::new(Code::OperatorRefused, detail);
            Box::new(UnknownCaller { name: shown.clone(), problem })
        };
        let known = self.table().holder(&credential, now);
        let known =
            known.ok_or_else(|| refused("they were revoked, have ended, or were never given out here"))?;
        let (name, scope) = (known.record.name.clone(), known.scope.clone());
        if shown != NOBODY && shown != name {
            return Err(refused("the certificate names another operator than its credential is of"));
        }
        Ok(OperatorCaller { name, role: known.record.role, scope, credential })
    }

    /// Waits until the caller is none any more: he was revoked, or is another one by now.
    pub(crate) async fn revoked(&self, caller: &OperatorCaller) {
        let mut tables = self.table.subscribe();
        let gone = |table: &Arc<OperatorTable>| {
            let holder = table.holder(&caller.credential, Timestamp(i64::MIN));
            holder.is_none_or(|known| known.record.name != caller.name || known.record.role != caller.role)
        };
        if tables.wait_for(gone).await.is_err() {
            // The control plane ends, and with it all requests.
            std::future::pending::<()>().await;
        }
    }
}

/// Whom a request shows to be its author, and with what.
fn shown(
    headers: &HeaderMap,
    peer: Option<&CertifiedPeer>,
) -> Result<(String, CallerCredential), Box<UnknownCaller>> {
    let unknown = |name: &str, problem: Problem| Box::new(UnknownCaller { name: name.to_owned(), problem });
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(OperatorToken::of_header);
        let bad =
            || unknown(NOBODY, Problem::new(Code::OperatorRefused, "the header holds no operator's token"));
        let id = token.ok_or_else(bad)?.id();
        return Ok((NOBODY.to_owned(), CallerCredential::Issued(id)));
    }
    match peer.map(|peer| &peer.role) {
        Some(PeerRole::Operator(uri)) => match uri.split_once(CREDENTIAL_MARK) {
            Some((name, id)) => Ok((name.to_owned(), CallerCredential::Issued(id.to_owned()))),
            None if uri == FOUNDER => Ok((uri.clone(), CallerCredential::Founder)),
            None => Err(unknown(uri, Code::OperatorRefused.into())),
        },
        _ => Err(unknown(NOBODY, Code::OperatorRequired.into())),
    }
}
