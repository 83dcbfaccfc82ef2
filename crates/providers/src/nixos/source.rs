//! Where the parts of a closure come from: caches in their order, then the control plane.

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use catalog::types::NixosSpec;
use model::Digest;
use model::text::chain;
use net::download::{Download, DownloadError, DownloadRequest};
use net::proxy::ProxySettings;
use trust::nix::{MAX_NARINFO, NarCompression, NarInfo, StorePath};

use crate::Kinds;
use crate::kinds::{MAX_EDITED, text};

/// How long a cache may take to say what it knows of a path.
const INFO_WITHIN: Duration = Duration::from_secs(60);

/// The control plane, as it gives closures (ROL-9). Its callers wait for it.
pub trait ClosureRelay: Send + Sync {
    /// What is known of the path with this hash; `None` where there is none.
    ///
    /// # Errors
    /// In words, when it cannot be asked or refuses.
    fn narinfo(&self, hash: &str) -> Result<Option<Vec<u8>>, String>;

    /// The next bytes of an archive, from an offset on; at least one.
    ///
    /// # Errors
    /// In words, when it cannot be asked or refuses.
    fn archive(&self, digest: &Digest, from: u64) -> Result<Vec<u8>, String>;
}

/// One of the sources of a fetch.
pub(super) struct ClosureSource {
    kind: SourceKind,
    /// Why it is asked no more: it could not be reached. The first word counts.
    gone: OnceLock<String>,
}

enum SourceKind {
    Cache { url: String, roots_pem: Arc<Vec<u8>> },
    ControlPlane(Arc<dyn ClosureRelay>),
}

/// Why a source does not give something.
pub(super) enum SourceFailure {
    /// It has no such path.
    Lacks,
    /// What is asked for begins behind the end.
    BehindEnd,
    /// What is the matter.
    Failed(String),
}

impl From<String> for SourceFailure {
    fn from(why: String) -> SourceFailure {
        SourceFailure::Failed(why)
    }
}

/// The sources of a closure, in the order in which they are asked.
pub(super) fn sources(kinds: &Kinds, spec: &NixosSpec) -> Result<Vec<ClosureSource>, String> {
    let is_tls = spec.caches.iter().any(|url| url.starts_with("https:"));
    let roots = kinds.host.read_followed(&spec.ca_file, MAX_EDITED).map(Option::unwrap_or_default);
    // Over http the signatures alone say what is right.
    let roots = if is_tls { roots.map_err(text)? } else { roots.unwrap_or_default() };
    let roots_pem = Arc::new(roots);
    let cache = |url: &String| SourceKind::Cache { url: url.clone(), roots_pem: roots_pem.clone() };
    let relay = kinds.nix.relay.get().filter(|_| spec.control_plane).cloned();
    let all = spec.caches.iter().map(cache).chain(relay.map(SourceKind::ControlPlane));
    Ok(all.map(|kind| ClosureSource { kind, gone: OnceLock::new() }).collect())
}

impl ClosureSource {
    /// What errors call it.
    pub(super) fn name(&self) -> &str {
        match &self.kind {
            SourceKind::Cache { url, .. } => url,
            SourceKind::ControlPlane(_) => "the control plane",
        }
    }

    /// What it says of a path, verified by the pinned keys.
    pub(super) fn info(&self, path: &StorePath, spec: &NixosSpec) -> Result<NarInfo, SourceFailure> {
        if let Some(why) = self.gone.get() {
            return Err(SourceFailure::Failed(why.clone()));
        }
        let bytes = match &self.kind {
            SourceKind::Cache { .. } => {
                let mut bytes = Vec::new();
                let read =
                    self.open(&format!("{}.narinfo", path.hash()), 0, MAX_NARINFO as u64, INFO_WITHIN)?;
                let read = read.take(MAX_NARINFO as u64 + 1).read_to_end(&mut bytes);
                read.map_err(|error| SourceFailure::Failed(error.to_string()))?;
                bytes
            }
            SourceKind::ControlPlane(relay) => relay.narinfo(path.hash())?.ok_or(SourceFailure::Lacks)?,
        };
        let text = String::from_utf8(bytes).map_err(|_| "its narinfo is no text".to_owned())?;
        let info: NarInfo = text.parse().map_err(|error| format!("{error}"))?;
        let info = info.verified(path, &spec.cache_keys).map_err(|error| error.to_string())?;
        if matches!(self.kind, SourceKind::ControlPlane(_)) && info.compression != NarCompression::None {
            return Err("the control plane gives archives that are not packed, and this one is"
                .to_owned()
                .into());
        }
        Ok(info)
    }

    /// The bytes of an archive as they lie there, from an offset on.
    pub(super) fn archive(
        &self,
        info: &NarInfo,
        from: u64,
        most: u64,
        within: Duration,
    ) -> Result<Box<dyn Read>, SourceFailure> {
        match &self.kind {
            SourceKind::Cache { .. } => Ok(Box::new(self.open(&info.url, from, most, within)?)),
            SourceKind::ControlPlane(relay) => {
                let (relay, digest) = (relay.clone(), info.nar_hash);
                let left = info.nar_size.saturating_sub(from);
                Ok(Box::new(RelayedArchive { relay, digest, at: from, left, piece: Vec::new(), read: 0 }))
            }
        }
    }

    fn open(
        &self,
        below: &str,
        from: u64,
        max_size: u64,
        timeout: Duration,
    ) -> Result<Download, SourceFailure> {
        let SourceKind::Cache { url, roots_pem } = &self.kind else { return Err(SourceFailure::Lacks) };
        let request = DownloadRequest {
            url: format!("{}/{below}", url.trim_end_matches('/')),
            headers: Vec::new(),
            roots_pem: roots_pem.to_vec(),
            from,
            max_size,
            timeout,
            proxies: ProxySettings::from_environment(),
        };
        Download::open(request).map_err(|error| match &error {
            // 403 is what object stores say of what they do not have.
            DownloadError::Status { status, .. } if matches!(status.as_u16(), 403 | 404 | 410) => {
                SourceFailure::Lacks
            }
            DownloadError::Status { status, .. } if status.as_u16() == 416 => SourceFailure::BehindEnd,
            DownloadError::Dial { .. } | DownloadError::Timeout { .. } => {
                let why = chain(&error);
                let _ = self.gone.set(why.clone());
                SourceFailure::Failed(why)
            }
            _ => SourceFailure::Failed(chain(&error)),
        })
    }
}

/// An archive from the control plane, piece by piece.
struct RelayedArchive {
    relay: Arc<dyn ClosureRelay>,
    digest: Digest,
    at: u64,
    left: u64,
    piece: Vec<u8>,
    read: usize,
}

impl Read for RelayedArchive {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.piece.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.piece = self.relay.archive(&self.digest, self.at).map_err(std::io::Error::other)?;
            self.read = 0;
            if self.piece.is_empty() {
                return Err(std::io::Error::other("the control plane gives nothing more"));
            }
            self.at += self.piece.len() as u64;
            self.left = self.left.saturating_sub(self.piece.len() as u64);
        }
        let count = buffer.len().min(self.piece.len() - self.read);
        buffer[..count].copy_from_slice(&self.piece[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
