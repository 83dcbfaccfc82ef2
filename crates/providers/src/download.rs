//! `download` on a host.

use std::io::{self, Read};
use std::time::Duration;

use catalog::types::{DownloadSpec, Ensure};
use converge::kinds::{DEFAULT_FILE_MODE, download};
use host::{FileWrite, MAX_FILE};
use model::digest::Hasher;
use model::text::chain;
use net::download::{Download, DownloadRequest, ProxySettings};

use crate::Kinds;
use crate::kinds::{MAX_EDITED, text};
use crate::provider::{Decided, PathProvider};

impl PathProvider for DownloadSpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let (prior, wanted, note) = kinds.prior(&self.path, self.ensure, &self.ownership)?;
        let edit = download::assess(self, &prior, &wanted, &kinds.names())?;
        Ok(Decided { prior, wanted, edit, note, bytes: None })
    }

    fn act(&self, kinds: &Kinds, decided: &Decided, timeout: Duration) -> Result<(), String> {
        if self.ensure == Ensure::Absent {
            return kinds.host.remove_file(&self.path).map(drop).map_err(text);
        }
        if !download::fetches(self, &decided.prior) {
            return kinds.host.set_ownership(&self.path, &decided.wanted).map_err(text);
        }
        let mut fetched =
            Fetched { content: open(kinds, self, timeout)?, kinds, hasher: Hasher::new(), bytes: 0 };
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
                let (is, bytes) = (fetched.hasher.finish(), fetched.bytes);
                let (url, wanted) = (&self.url, self.digest);
                Err(format!(
                    "what {url} gave is sha256:{is} ({bytes} bytes) and not the declared sha256:{wanted}; \
                     nothing was written"
                ))
            }
            written => written.map_err(text),
        }
    }
}

fn open(kinds: &Kinds, spec: &DownloadSpec, timeout: Duration) -> Result<Download, String> {
    let roots = kinds.host.read_followed(&spec.ca_file, MAX_EDITED).map(Option::unwrap_or_default);
    let roots = match spec.url.starts_with("https:") {
        true => roots.map_err(text)?,
        // Over http the digest alone says what is right; they are needed only where it leads to https.
        false => roots.unwrap_or_default(),
    };
    let request = DownloadRequest {
        url: spec.url.clone(),
        headers: spec.headers.clone().into_iter().collect(),
        roots_pem: roots,
        max_size: MAX_FILE,
        timeout,
        proxies: ProxySettings::from_environment(),
    };
    Download::open(request).map_err(|error| chain(&error))
}

/// What is fetched, with its digest; it ends when the agent stops.
struct Fetched<'a> {
    content: Download,
    kinds: &'a Kinds,
    hasher: Hasher,
    bytes: u64,
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
