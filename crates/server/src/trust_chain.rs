//! [`TrustChain`]: the fleet's trust documents, from the first to the newest (IDN-8).
//!
//! ```text
//! trust.json         the first version; tokens named its digest
//! trust-links.json   the signed versions after it, in order; absent before the first rotation
//! ```
//!
//! A link comes through the operator port, and then the chain must lead to it; or by the file, which is read again
//! when it changed. What is in the file has the authority of the directory, so that it may begin the chain anew with
//! a root key that the one before did not sign: nodes follow that only by a token.
//!
//! Invariant: a link is durable in the file before it counts. A file that cannot be used changes nothing while the
//! control plane runs, and it does not start with one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use model::exchange::{HeldTrust, Signed};
use model::{Digest, FleetId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::chain::{ChainError, ChainHead, MAX_LINKS};
use trust::signed::VerifyError;
use trust::{Header, SigningKey, TrustDocument};
use wire::enroll::TrustLinksAnswer;

use crate::authority::NodeAuthorities;
use crate::posture::{self, EnrollInfo, FoundError};

/// The signed versions after the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustLinks {
    /// In order, from version 2.
    pub links: Vec<Signed>,
}

/// How the chain came to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VersionOrigin {
    /// The fleet was founded with it.
    Founded,
    /// A root key of the version before signed it.
    Followed,
    /// Its own root key alone signed it: nodes come to it by a token.
    BegunAnew,
}

/// A version of the trust document.
#[derive(Clone, Debug)]
pub(crate) struct ChainVersion {
    pub(crate) head: ChainHead,
    pub(crate) origin: VersionOrigin,
}

/// Links that a node lacks.
pub(crate) struct LinksAfter<'a> {
    /// In order, at most [`MAX_LINKS`].
    pub(crate) links: &'a [Signed],
    /// The version that they lead to.
    pub(crate) last: u64,
}

/// All versions; never empty.
#[derive(Clone, Debug)]
pub struct ChainDocuments {
    pub(crate) versions: Vec<ChainVersion>,
    links: TrustLinks,
}

impl ChainDocuments {
    /// Reads both files of a directory.
    ///
    /// # Errors
    /// [`FoundError`] names the file. The chain must lead from each version to the next, and to the one that new tokens
    /// name: without the links to that, keys that were retired would count again.
    pub fn read(dir: &Path) -> Result<ChainDocuments, FoundError> {
        let chain = ChainDocuments::read_files(dir)?;
        let enroll = dir.join(posture::ENROLL);
        let info: Option<EnrollInfo> =
            if enroll.exists() { Some(posture::read_json(&enroll)?) } else { None };
        let is_of_fleet = |info: &EnrollInfo| info.fleet == chain.newest().document.fleet;
        match info.filter(is_of_fleet).is_none_or(|info| chain.named(&info.trust).is_some()) {
            true => Ok(chain),
            false => Err(FoundError::LinksMissing { path: dir.join(posture::TRUST_LINKS) }),
        }
    }

    fn read_files(dir: &Path) -> Result<ChainDocuments, FoundError> {
        let first: TrustDocument = posture::read_json(&dir.join(posture::TRUST))?;
        let path = dir.join(posture::TRUST_LINKS);
        let links: TrustLinks =
            if path.exists() { posture::read_json(&path)? } else { TrustLinks::default() };
        ChainDocuments::of(first, links)
            .map_err(|error| FoundError::Malformed { path, what: error.to_string() })
    }

    pub(crate) fn of(first: TrustDocument, links: TrustLinks) -> Result<ChainDocuments, ChainError> {
        let mut newest = ChainHead::of(first);
        let mut versions = vec![ChainVersion { head: newest.clone(), origin: VersionOrigin::Founded }];
        for link in &links.links {
            let (head, origin) = match newest.follow(link) {
                Ok(head) => (head, VersionOrigin::Followed),
                Err(ChainError::Forged { .. }) => (newest.begin_anew(link)?, VersionOrigin::BegunAnew),
                Err(error) => return Err(error),
            };
            newest = head.clone();
            versions.push(ChainVersion { head, origin });
        }
        Ok(ChainDocuments { versions, links })
    }

    /// The chain with one more link: the next version, or one that begins it anew.
    ///
    /// # Errors
    /// When it does not follow the newest version.
    pub fn with_link(&self, link: Signed) -> Result<ChainDocuments, ChainError> {
        let mut links = self.links.clone();
        links.links.push(link);
        ChainDocuments::of(self.versions[0].head.document.clone(), links)
    }

    /// Makes the links durable in a directory.
    ///
    /// # Errors
    /// When they cannot be written; those before are there still.
    pub fn write(&self, dir: &Path) -> Result<(), FoundError> {
        posture::write_json(&dir.join(posture::TRUST_LINKS), &self.links, 0o644)
    }

    /// The newest version.
    pub fn newest(&self) -> &ChainHead {
        // There is always one.
        &self.versions[self.versions.len() - 1].head
    }

    /// Each version as it was signed; the first was not.
    pub(crate) fn signed(&self) -> impl Iterator<Item = Option<&Signed>> {
        std::iter::once(None).chain(self.links.links.iter().map(Some))
    }

    /// The version with this digest.
    pub(crate) fn named(&self, digest: &Digest) -> Option<&TrustDocument> {
        self.versions
            .iter()
            .map(|version| &version.head)
            .find(|head| head.digest == *digest)
            .map(|h| &h.document)
    }

    /// The links that lead on from what a node says that it holds; nothing says the first version.
    pub(crate) fn links_after(&self, held: Option<&HeldTrust>) -> LinksAfter<'_> {
        let all = &self.links.links;
        let known = match held {
            None => Some(0),
            Some(held) => self.versions.iter().position(|version| version.head.digest == held.digest),
        };
        let from = match (known, held) {
            (Some(position), _) => position,
            // It holds one that is not in this chain, or that this chain has not come to: by any link it finds out.
            (None, Some(held)) => {
                let position = usize::try_from(held.version).unwrap_or(usize::MAX).saturating_sub(1);
                position.min(all.len().saturating_sub(1))
            }
            (None, None) => 0,
        };
        let to = all.len().min(from.saturating_add(MAX_LINKS));
        LinksAfter {
            links: all.get(from..to).unwrap_or_default(),
            last: self.versions[to].head.document.version,
        }
    }

    /// What follows the version with this digest, for who knows that digest.
    pub(crate) fn links_from(&self, digest: &Digest) -> Option<TrustLinksAnswer> {
        let document = self.named(digest)?.clone();
        let held = HeldTrust { version: document.version, digest: *digest, refused: None, authority: None };
        let links = self.links_after(Some(&held)).links.to_vec();
        Some(TrustLinksAnswer { document, links })
    }

    /// Verifies a header by the newest version, or else by one before it: a release that was committed stays the
    /// one that is pointed to when its key is retired, or when its channel asks for more signatures.
    pub(crate) fn verify_committed(&self, header: &Signed) -> Result<Header, VerifyError> {
        let mut by = self.versions.iter().rev().map(|version| &version.head.document);
        let newest = by.next().map_or(Err(VerifyError::Untrusted), |document| document.header(header));
        newest.or_else(|error| by.find_map(|document| document.header(header).ok()).ok_or(error))
    }
}

/// What of the file tells that it changed.
type LinksStamp = Option<(u64, Option<SystemTime>)>;

/// Which file was looked at.
#[derive(Default)]
struct LinksFileSeen {
    /// The one that counts; nothing before one was read while the control plane runs.
    read: Option<LinksStamp>,
    /// The one that could not be used.
    unusable: Option<LinksStamp>,
}

/// Why the file of links cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadLinksError {
    #[error(transparent)]
    Found(#[from] FoundError),
    /// It is no chain without links.
    #[error("{} is gone: put it back, from a backup or from where it was moved to", path.display())]
    Missing { path: PathBuf },
    /// A chain never gets shorter: keys that were retired would count again.
    #[error(
        "{} ends at version {version}, and version {newest} counts: put the newer file back, from a backup or from \
         where it was moved to",
        path.display()
    )]
    Shorter { path: PathBuf, version: u64, newest: u64 },
}

/// The chain of a control plane that runs.
pub(crate) struct TrustChain {
    /// The fleet, which no version changes.
    pub(crate) fleet: FleetId,
    dir: PathBuf,
    documents: RwLock<Arc<ChainDocuments>>,
    /// Why the file cannot be used, while it cannot.
    unusable: Mutex<Option<String>>,
    /// One adds or reads again at a time.
    changing: tokio::sync::Mutex<LinksFileSeen>,
}

/// Why a link was not added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddLinkError {
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error("the trust document cannot be kept")]
    Write(#[from] FoundError),
    #[error("the trust documents before it cannot be read")]
    Read(#[from] ReadLinksError),
    #[error("this control plane does not hold the CA key {0} that the trust document names")]
    AuthorityKey(String),
}

impl TrustChain {
    pub(crate) fn new(dir: &Path, documents: ChainDocuments) -> TrustChain {
        TrustChain {
            fleet: documents.newest().document.fleet.clone(),
            dir: dir.to_owned(),
            documents: RwLock::new(Arc::new(documents)),
            unusable: Mutex::default(),
            // Looked at once more: it may have changed since it was read.
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn documents(&self) -> Arc<ChainDocuments> {
        self.documents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The key that signs beacons, where one lies beside the control plane, as it is now: the beacon key, or else the
    /// release key.
    pub(crate) fn beacon_key(&self) -> Result<Option<SigningKey>, FoundError> {
        let documents = self.documents();
        let newest = &documents.newest().document;
        match posture::beacon_key(&self.dir, newest)? {
            Some(key) => Ok(Some(key)),
            None => {
                let key = posture::read_key(&self.dir.join(posture::RELEASE_KEY))?;
                Ok(key.filter(|key| newest.release.keys().any(|known| *known == key.public())))
            }
        }
    }

    /// Adds the link to the version after the newest. Nobody would believe a control plane that does not hold the CA which
    /// a version names.
    pub(crate) async fn add(&self, link: Signed, authorities: &NodeAuthorities) -> Result<u64, AddLinkError> {
        let mut seen = self.changing.lock().await;
        // Nothing of the file is lost that is not read yet.
        self.read_changed(&mut seen)?;
        let known = self.documents();
        let next = known.newest().follow(&link)?.document;
        if let Some(slots) = next.certificate_authority.as_ref().filter(|_| !authorities.holds(&next)) {
            return Err(AddLinkError::AuthorityKey(slots.current.id()));
        }
        let documents = known.with_link(link)?;
        documents.write(&self.dir)?;
        seen.read = Some(self.stamp());
        let version = documents.newest().document.version;
        self.take_up(documents);
        Ok(version)
    }

    /// Reads the file again if it changed; says whether the chain is another one. One that cannot be used is an
    /// error once, and [`TrustChain::unusable`] until it can.
    pub(crate) async fn read_again(&self) -> Result<bool, ReadLinksError> {
        let mut seen = self.changing.lock().await;
        if seen.unusable == Some(self.stamp()) {
            return Ok(false);
        }
        self.read_changed(&mut seen)
    }

    /// Why the file cannot be used, while it cannot; the chain before counts on.
    pub(crate) fn unusable(&self) -> Option<String> {
        self.unusable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read_changed(&self, seen: &mut LinksFileSeen) -> Result<bool, ReadLinksError> {
        let now = Some(self.stamp());
        let read = if seen.read == now { Ok(None) } else { self.read_file().map(Some) };
        let why = read.as_ref().err().map(|error| crate::answer::chain(error));
        *self.unusable.lock().unwrap_or_else(PoisonError::into_inner) = why;
        let Some(documents) = read.inspect_err(|_| seen.unusable = now)? else {
            seen.unusable = None;
            return Ok(false);
        };
        *seen = LinksFileSeen { read: now, unusable: None };
        let differs = documents.newest() != self.documents().newest();
        if differs {
            self.take_up(documents);
        }
        Ok(differs)
    }

    fn read_file(&self) -> Result<ChainDocuments, ReadLinksError> {
        let (documents, known) = (ChainDocuments::read_files(&self.dir)?, self.documents());
        let (read, newest) = (documents.newest(), known.newest());
        let is_shorter = read.digest != newest.digest && known.named(&read.digest).is_some();
        let path = self.dir.join(posture::TRUST_LINKS);
        match is_shorter {
            false => Ok(documents),
            true if !path.exists() => Err(ReadLinksError::Missing { path }),
            true => {
                let (version, newest) = (read.document.version, newest.document.version);
                Err(ReadLinksError::Shorter { path, version, newest })
            }
        }
    }

    fn stamp(&self) -> LinksStamp {
        let found = std::fs::metadata(self.dir.join(posture::TRUST_LINKS)).ok()?;
        Some((found.len(), found.modified().ok()))
    }

    fn take_up(&self, documents: ChainDocuments) {
        let newest = documents.newest().clone();
        *self.documents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(documents);
        // Tokens that are minted from here on name it. Those before are good as well.
        if let Err(error) = self.name_in_tokens(newest.digest) {
            tracing::warn!(error = %crate::answer::chain(&error), "tokens go on naming the version before");
        }
        tracing::info!(version = newest.document.version, "a newer trust document counts");
    }

    fn name_in_tokens(&self, digest: Digest) -> Result<(), FoundError> {
        let path = self.dir.join(posture::ENROLL);
        if !path.exists() {
            return Ok(());
        }
        let info: EnrollInfo = posture::read_json(&path)?;
        posture::write_json(&path, &EnrollInfo { trust: digest, ..info }, 0o644)
    }
}
