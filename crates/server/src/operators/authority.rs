//! [`OperatorAuthority`]: the CA of operators' certificates, and how another one takes its place (OPS-5, IDN-8).
//!
//! ```text
//! rotate:  operator-ca.next --> operator-ca.key, operator-ca.pem --> operator-ca.previous
//!          certificates of both open the operator port; new ones are of the new one
//! renew:   an operator gets one of the new CA by the one that he has
//! retire:  operator-ca.previous goes; its certificates open nothing, and what they opened ends
//! ```
//!
//! Nobody but this control plane believes it: no trust document names it, and what lies in the directory counts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::Timestamp;
use net::issue::{Ca, Certified, issued_at};
use net::revoked::{BelievedIssuers, RevokedCertificates};
use net::tls::TlsError;
use store::{CredentialKind, OperatorCredential, OperatorRecord};
use tokio::sync::watch;

use crate::authority_files::AuthorityFiles;
use crate::posture::{self, FoundError, NEXT_OPERATOR_CA, OPERATOR_CA, PREVIOUS_OPERATOR_CA};

const FILES: AuthorityFiles =
    AuthorityFiles { name: OPERATOR_CA, next: NEXT_OPERATOR_CA, previous: PREVIOUS_OPERATOR_CA };

/// How long the operator port may take to go by other CAs.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(5);

/// The CAs of operators that count.
pub struct OperatorAuthoritySet {
    current: Arc<Ca>,
    previous: Option<Arc<Ca>>,
    /// When the current one was made, and so took the place of the one before.
    made: Timestamp,
}

impl OperatorAuthoritySet {
    /// Those in a directory. One that was not put in its place wholly certifies already.
    ///
    /// # Errors
    /// [`FoundError`] names the file.
    pub(crate) fn open(dir: &Path) -> Result<OperatorAuthoritySet, FoundError> {
        let (current, previous) = match FILES.next(dir)? {
            None => (FILES.current(dir)?, FILES.previous(dir)?),
            Some(next) => match FILES.current(dir) {
                Ok(before) if before.key() != next.key() => (next, Some(before)),
                _ => (next, FILES.previous(dir)?),
            },
        };
        let made = net::identity::validity(current.cert_pem().as_bytes()).map_or(Timestamp(0), issued_at);
        Ok(OperatorAuthoritySet { current: Arc::new(current), previous: previous.map(Arc::new), made })
    }

    /// Goes on with a change that was cut off.
    ///
    /// # Errors
    /// [`FoundError`] names the file.
    pub(crate) fn settle(dir: &Path) -> Result<(), FoundError> {
        FILES.put_in_place(dir, |_| true)
    }

    /// The one that certifies.
    pub(crate) fn current(&self) -> &Arc<Ca> {
        &self.current
    }

    /// The one before, while it counts.
    pub(crate) fn previous(&self) -> Option<&Arc<Ca>> {
        self.previous.as_ref()
    }

    /// Their certificates in PEM.
    pub(crate) fn bundle(&self) -> String {
        std::iter::once(&self.current).chain(&self.previous).map(|ca| ca.cert_pem()).collect()
    }

    /// Whose certificates count on connections that are open.
    pub(crate) fn issuers(&self) -> Result<BelievedIssuers, TlsError> {
        BelievedIssuers::of(&self.bundle(), None, Duration::ZERO)
    }

    /// A credential is a certificate of a CA before the current one. A CA's certificate knows whole seconds: of the second
    /// in which it was made a credential counts as its own.
    pub(crate) fn is_of_before(&self, credential: &OperatorCredential) -> bool {
        credential.kind == CredentialKind::Certificate && credential.created.secs() < self.made.secs()
    }

    /// An operator has a certificate of a CA before, and nothing that counts once that does not.
    pub(crate) fn shuts_out(&self, operator: &OperatorRecord, now: Timestamp) -> bool {
        let mut counting =
            operator.credentials.iter().filter(|credential| now < credential.expires).peekable();
        counting.peek().is_some() && counting.all(|credential| self.is_of_before(credential))
    }
}

/// The CAs of operators of a control plane that runs.
pub(crate) struct OperatorAuthority {
    dir: PathBuf,
    set: watch::Sender<Arc<OperatorAuthoritySet>>,
    /// One change at a time. From threads that may wait for the disk.
    changing: Mutex<()>,
    /// For the port's connections.
    pub(crate) revoked: RevokedCertificates,
}

impl OperatorAuthority {
    pub(crate) fn new(dir: &Path, set: OperatorAuthoritySet) -> OperatorAuthority {
        OperatorAuthority {
            dir: dir.to_owned(),
            set: watch::Sender::new(Arc::new(set)),
            changing: Mutex::default(),
            revoked: RevokedCertificates::default(),
        }
    }

    /// Those that count now.
    pub(crate) fn set(&self) -> Arc<OperatorAuthoritySet> {
        self.set.borrow().clone()
    }

    /// Says when other ones count.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<OperatorAuthoritySet>> {
        self.set.subscribe()
    }

    /// Makes another CA, which certifies from now on; the one before counts beside it. Certificates of one before that count
    /// no more. The first admin's credentials get a certificate of the new one, where they lie in the directory.
    pub(crate) fn rotate(&self, fleet: &str, now: Timestamp) -> Result<(), FoundError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Each has a name of its own: TLS libraries find a certificate's CA by that.
        let name = format!("{fleet} {OPERATOR_CA} {}", now.0);
        let (ca, made): (Ca, Certified) = Ca::generate(&name, now).map_err(posture::authority(&self.dir))?;
        OperatorAuthoritySet::settle(&self.dir)?;
        FILES.stage(&self.dir, &made)?;
        OperatorAuthoritySet::settle(&self.dir)?;
        let set = OperatorAuthoritySet::open(&self.dir)?;
        posture::recertify_founder(&self.dir, set.current(), now)?;
        tracing::info!(key = ca.key().id(), "another CA certifies operators");
        self.set.send_replace(Arc::new(set));
        Ok(())
    }

    /// The one before counts no more.
    pub(crate) fn retire(&self) -> Result<(), FoundError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        FILES.drop_previous(&self.dir)?;
        let set = OperatorAuthoritySet::open(&self.dir)?;
        tracing::info!(key = set.current().key().id(), "one CA alone certifies operators");
        self.set.send_replace(Arc::new(set));
        Ok(())
    }

    /// Waits until the port goes by what counts now, within [`TAKEN_UP_WITHIN`].
    pub(crate) async fn taken_up(&self) {
        let Ok(issuers) = self.set().issuers() else { return };
        if tokio::time::timeout(TAKEN_UP_WITHIN, self.revoked.until_believed(&issuers)).await.is_err() {
            tracing::warn!("the operator port does not go by the CAs of operators yet that count");
        }
    }

    /// The first admin gets a certificate of the CA that certifies by the credentials in the directory.
    pub(crate) fn founder_is_here(&self) -> bool {
        posture::holds_founder(&self.dir)
    }
}
