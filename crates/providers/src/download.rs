//! `download` on a host.

use std::io::{self, Read};
use std::time::Duration;

use catalog::types::{DownloadFrom, DownloadSpec, Ensure};
use converge::JobFailure;
use converge::kinds::{DEFAULT_FILE_MODE, download};
use host::{FileWrite, MAX_FILE};
use model::Digest;
use model::digest::Hasher;
use model::text::chain;
use net::download::{Download, DownloadRequest};
use net::proxy::ProxySettings;

use crate::Kinds;
use crate::kinds::{MAX_EDITED, fault, text};
use crate::provider::{Decided, PathProvider};

impl PathProvider for DownloadSpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let (prior, wanted, note) = kinds.prior(&self.path, self.ensure, &self.ownership)?;
        let edit = download::assess(self, &prior, &wanted, &kinds.names())?;
        Ok(Decided { prior, wanted, edit, note, bytes: None })
    }

    fn act(&self, kinds: &Kinds, decided: &Decided, timeout: Duration) -> Result<(), JobFailure> {
        if self.ensure == Ensure::Absent {
            return kinds.host.remove_file(&self.path).map(drop).map_err(fault);
        }
        if !download::fetches(self, &decided.prior) {
            return kinds.host.set_ownership(&self.path, &decided.wanted).map_err(fault);
        }
        let mut fetched = fetch(kinds, &self.from, MAX_FILE, timeout)?;
        let write = FileWrite {
            content: &mut fetched,
            digest: self.digest,
            ownership: decided.wanted,
            default_mode: DEFAULT_FILE_MODE,
            backup: false,
            validate: None,
        };
        match kinds.host.write(&self.path, write) {
            Err(error) if matches!(error.source, host::PathProblem::WrongDigest) => {
                let (is, bytes) = fetched.finish();
                let (url, wanted) = (&self.from.url, self.digest);
                Err(format!(
                    "what {url} gave is sha256:{is} ({bytes} bytes) and not the declared sha256:{wanted}; \
                     nothing was written"
                )
                .into())
            }
            written => written.map_err(fault),
        }
    }
}

/// Begins to fetch something of at most `max_size` bytes.
pub(crate) fn fetch<'a>(
    kinds: &'a Kinds,
    from: &DownloadFrom,
    max_size: u64,
    timeout: Duration,
) -> Result<Fetched<'a>, String> {
    let roots = kinds.host.read_followed(&from.ca_file, MAX_EDITED).map(Option::unwrap_or_default);
    let roots = match from.url.starts_with("https:") {
        true => roots.map_err(text)?,
        // Over http the digest alone says what is right; they are needed only where it leads to https.
        false => roots.unwrap_or_default(),
    };
    let request = DownloadRequest {
        url: from.url.clone(),
        headers: from.headers.clone().into_iter().collect(),
        roots_pem: roots,
        from: 0,
        max_size,
        timeout,
        proxies: ProxySettings::from_environment(),
    };
    let content = Download::open(request).map_err(|error| chain(&error))?;
    Ok(Fetched { content, kinds, hasher: Hasher::new(), bytes: 0 })
}

/// What is fetched, with its digest; it ends when the agent stops.
pub(crate) struct Fetched<'a> {
    content: Download,
    kinds: &'a Kinds,
    hasher: Hasher,
    bytes: u64,
}

impl Fetched<'_> {
    /// Digest and length of what was read.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.bytes)
    }
}

impl Read for Fetched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.kinds.host.is_cancelled() {
            return Err(io::Error::other("the agent is stopping"));
        }
        let count = self.content.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
