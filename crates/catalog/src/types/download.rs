//! `download`: a file whose bytes come from a URL.

use std::collections::BTreeMap;

use lang::Value;
use model::Digest;

use super::{COMMAND_TIMEOUT_SECS, Ensure, GROUP, MODE, OWNER, Ownership, STATE, Spec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// Where Debian keeps the certificates of the CAs that a machine believes.
pub(super) const CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The headers of a request.
pub(super) const HEADERS: Attribute = Attribute::new(
    "headers",
    FieldKind::Texts,
    "",
    "headers of the request, sent to the host of `url` alone; they are shown nowhere",
)
.secret();
/// Whom a request believes.
pub(super) const CA: Attribute = Attribute::new(
    "ca_file",
    FieldKind::Path,
    CA_FILE,
    "the certificates of the CAs that are believed, in PEM",
);

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "download",
    summary: "A regular file from a URL, at most 256 MiB. It is fetched when what is there has another SHA-256 \
              than is declared, goes on where it broke off, and becomes visible only when the whole of it has \
              that SHA-256. Proxies are those of the agent's environment (`https_proxy`, `http_proxy`, \
              `no_proxy`). TLS 1.3 is needed.",
    short: Short::Path,
    attributes: &[
        STATE,
        Attribute::required(
            "url",
            FieldKind::Url,
            "where it is; `https://`, or `http://`, which the SHA-256 makes safe",
        ),
        Attribute::required("sha256", FieldKind::Sha256, "the SHA-256 of its bytes"),
        HEADERS,
        CA,
        MODE,
        OWNER,
        GROUP,
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- download: /opt/tool.tar.gz\n  url: https://downloads.example.com/tool-1.4.tar.gz\n  sha256: \
              9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n  mode: \"0644\"\n",
    manages: Manages::Path,
    removal: &[],
    rules,
    bind,
};

/// Where something is fetched from.
#[derive(Clone, PartialEq, Eq)]
pub struct DownloadFrom {
    /// Where it is.
    pub url: String,
    /// Headers of the request; shown nowhere.
    pub headers: BTreeMap<String, String>,
    /// The certificates of the CAs that are believed.
    pub ca_file: String,
}

impl DownloadFrom {
    /// Reads `headers` and `ca_file`.
    pub(super) fn read(given: &ResourceAttributes<'_>, url: String) -> DownloadFrom {
        let ca_file = given.text("ca_file").unwrap_or_else(|| CA_FILE.to_owned());
        DownloadFrom { url, headers: given.texts("headers"), ca_file }
    }
}

/// Without the values of headers, which are secrets.
impl std::fmt::Debug for DownloadFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DownloadFrom")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

/// `download`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadSpec {
    /// Absolute path.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Where it is.
    pub from: DownloadFrom,
    /// The SHA-256 of its bytes.
    pub digest: Digest,
    /// Declared ownership.
    pub ownership: Ownership,
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let given = ["url", "sha256"].into_iter().find(|name| attributes.contains_key(*name));
    match given.filter(|_| is_absent(attributes)) {
        Some(name) => {
            let message = format!("a file that is absent has no `{name}`");
            vec![AttributeProblem::conflict(name, message, "drop it, or drop `state: absent`")]
        }
        None => Vec::new(),
    }
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Download(DownloadSpec {
        path: given.name(),
        ensure: given.ensure(),
        from: DownloadFrom::read(given, given.text_or_empty("url")),
        digest: given.digest("sha256").unwrap_or(Digest::ZERO),
        ownership: given.ownership(),
    }))
}
