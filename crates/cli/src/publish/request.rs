//! [`SigningRequest`]: a release that is uploaded, in a file that goes from signer to signer.
//!
//! ```text
//! muster publish --out FILE      uploads, signs with what is at hand
//! muster sign FILE               each further signer; offline
//! muster publish --from FILE     publishes it, once every channel has what it asks for
//! ```
//!
//! Nothing of the file is believed: who signs is shown what its headers say, and the control plane and the nodes
//! verify them by their own trust document.

use std::io::Read;
use std::path::{Path, PathBuf};

use model::canonical::{self, CanonicalError};
use model::{Channel, Timestamp};
use serde::{Deserialize, Serialize};
use server::api::Commit;
use server::api::lists::AddLists;
use spool::atomic::{Existing, WholeFile};
use spool::{Disk, SpoolError};
use trust::{Header, PublicKey, TrustDocument};

use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::next_step::muster;
use crate::screen::Screen;

/// The format of a [`SigningRequest`].
const FORMAT: u32 = 1;
/// The longest request that is read, in bytes: two signed lists at their longest, and headers.
const MAX_REQUEST: u64 = 16 * 1024 * 1024;

/// A release that others are to sign.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SigningRequest {
    format: u32,
    /// When it was made, by the clock of who made it.
    made: Timestamp,
    /// What is to be published: headers with the signatures so far.
    pub(crate) commit: Commit,
    /// Lists that are published before it, signed by a release key.
    #[serde(default)]
    pub(crate) lists: AddLists,
    /// Who may sign, as the control plane said when it was made.
    pub(crate) trust: TrustDocument,
}

/// A channel's header in a request, and who signed it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestedHeader {
    /// What it says.
    pub(crate) header: Header,
    /// Ids of the keys that signed it and count.
    pub(crate) signed: Vec<String>,
    /// How many must.
    pub(crate) need: usize,
    /// Ids of the keys that may sign and did not.
    pub(crate) others: Vec<String>,
}

impl RequestedHeader {
    /// Whether it has what its channel asks for.
    pub(crate) fn is_enough(&self) -> bool {
        self.signed.len() >= self.need
    }

    /// In a line for people.
    pub(crate) fn line(&self) -> String {
        let Header { channel, seq, label, selection, .. } = &self.header;
        let label = label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        let by = if self.signed.is_empty() { String::new() } else { format!(": {}", self.signed.join(", ")) };
        let have = self.signed.len();
        format!(
            "channel {channel}: release {seq}{label}, selection {selection}; {have} of {} signatures{by}\n",
            self.need
        )
    }
}

/// Why a request to sign cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is longer than any is.
    #[error("{} has more than {MAX_REQUEST} bytes", .0.display())]
    TooLong(PathBuf),
    /// It is something else.
    #[error("{} is no request to sign", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Another version wrote it.
    #[error("the request to sign has format {0}, and this program reads {FORMAT}")]
    Format(u32),
    /// A header cannot be read.
    #[error("the request's header of channel {channel} cannot be read")]
    Header {
        /// The channel.
        channel: Channel,
        /// Why.
        #[source]
        source: CanonicalError,
    },
    /// Its headers do not belong together.
    #[error("the request's headers do not belong together: {0}")]
    Disagrees(&'static str),
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// It has no JSON form.
    #[error("the request has no JSON form")]
    Encode(#[from] serde_json::Error),
}

impl UserError for RequestError {
    fn hint(&self) -> Option<String> {
        match self {
            RequestError::Read { .. } | RequestError::Write { .. } => None,
            _ => Some("make one anew: `muster publish --out FILE`".to_owned()),
        }
    }
}

impl SigningRequest {
    pub(super) fn of(
        commit: Commit,
        lists: AddLists,
        trust: TrustDocument,
        made: Timestamp,
    ) -> SigningRequest {
        SigningRequest { format: FORMAT, made, commit, lists, trust }
    }

    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<SigningRequest, RequestError> {
        let failed = |source| RequestError::Read { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_REQUEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_REQUEST {
            return Err(RequestError::TooLong(path.to_owned()));
        }
        let parse = |source| RequestError::Parse { path: path.to_owned(), source };
        let request: SigningRequest = serde_json::from_slice(&bytes).map_err(parse)?;
        match request.format {
            FORMAT => Ok(request),
            other => Err(RequestError::Format(other)),
        }
    }

    /// Writes it in the place of what was there, whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), RequestError> {
        let text = serde_json::to_vec_pretty(self)?;
        let file = WholeFile { existing: Existing::Replace, ..WholeFile::new(path, 0o644) };
        let written = file.write(&Disk::new(), &text);
        written.map_err(|source| RequestError::Write { path: path.to_owned(), source })
    }

    /// Its headers, which are of one release, with who signed each by this trust document.
    pub(crate) fn headers(&self, trust: &TrustDocument) -> Result<Vec<RequestedHeader>, RequestError> {
        let mut headers: Vec<RequestedHeader> = Vec::new();
        for (channel, document) in &self.commit.headers {
            let header: Header = canonical::parse_canonical(document.payload.as_bytes())
                .map_err(|source| RequestError::Header { channel: channel.clone(), source })?;
            if header.channel != *channel || header.fleet != trust.fleet {
                return Err(RequestError::Disagrees("one is of another channel or fleet"));
            }
            let first = headers.first().map(|first| &first.header);
            if first.is_some_and(|first| first.seq != header.seq || first.selection != header.selection) {
                return Err(RequestError::Disagrees("they differ in number or selection"));
            }
            let asked = trust.header_signers(channel);
            let made = trust.header_signatures(document, channel);
            let others = asked.keys().into_iter().filter(|key| !made.contains(key));
            let others = others.map(PublicKey::id).collect();
            let signed = made.iter().map(|key| key.id()).collect();
            headers.push(RequestedHeader { header, signed, need: asked.needed(), others });
        }
        if headers.is_empty() { Err(RequestError::Disagrees("there is none")) } else { Ok(headers) }
    }
}

/// What is shown of a request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SigningRequestView<'a> {
    file: &'a Path,
    headers: &'a [RequestedHeader],
    /// Every channel has the signatures that it asks for.
    enough: bool,
}

/// Writes a request, and says how it stands and what is next.
pub(crate) fn written(request: &SigningRequest, out: &Path, screen: Screen) -> Result<Exit, Failure> {
    let headers = request.headers(&request.trust)?;
    request.write(out)?;
    let enough = headers.iter().all(RequestedHeader::is_enough);
    let view = SigningRequestView { file: out, headers: &headers, enough };
    Ok(screen.result(&view, || {
        let file = model::text::shell_word(&out.display().to_string()).into_owned();
        let lines: String = headers.iter().map(RequestedHeader::line).collect();
        let next = match enough {
            true => format!("next: {}\n", muster(&format!("publish --from {file}"))),
            false => {
                let mut others: Vec<&str> = headers
                    .iter()
                    .filter(|header| !header.is_enough())
                    .flat_map(|h| &h.others)
                    .map(|id| &**id)
                    .collect();
                others.sort_unstable();
                others.dedup();
                format!("next: another signer ({}): muster sign {file} --key FILE\n", others.join(", "))
            }
        };
        format!("{lines}nothing is published yet; it is in {file}\n{next}")
    })?)
}
