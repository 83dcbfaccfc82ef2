//! Header names and the protocol's version (WIR-1).

use http::HeaderMap;
use model::ReleaseVersion;

/// The protocol's major version, in every request and response.
pub const PROTOCOL_HEADER: &str = "muster-protocol";
/// The major version that this program speaks.
pub const PROTOCOL: &str = "1";
/// The agent's version; informational, except that one below the minimum is refused.
pub const AGENT_VERSION_HEADER: &str = "muster-agent-version";
/// The oldest agent that this control plane serves.
pub const MINIMUM_AGENT: ReleaseVersion = ReleaseVersion(0, 1, 0);
/// Names a request in problems and logs.
pub const REQUEST_ID_HEADER: &str = "muster-request-id";
/// RFC 9530 digest of the body as sent.
pub const CONTENT_DIGEST: &str = "content-digest";
/// RFC 9421 signature parameters.
pub const SIGNATURE_INPUT: &str = "signature-input";
/// RFC 9421 signature.
pub const SIGNATURE: &str = "signature";

/// What a peer's version headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionCheck {
    /// It speaks this protocol and is new enough.
    Fits,
    /// It speaks another major version, or names none.
    OtherProtocol,
    /// Its agent is older than this control plane serves.
    TooOld,
}

/// Judges a request's version headers.
pub fn version(headers: &HeaderMap) -> VersionCheck {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text(PROTOCOL_HEADER) != Some(PROTOCOL) {
        return VersionCheck::OtherProtocol;
    }
    match agent_version(headers) {
        Some(version) if version < MINIMUM_AGENT => VersionCheck::TooOld,
        Some(_) | None => VersionCheck::Fits,
    }
}

/// The version of the agent that sends these headers, where it says one that can be read.
pub fn agent_version(headers: &HeaderMap) -> Option<ReleaseVersion> {
    ReleaseVersion::parse(headers.get(AGENT_VERSION_HEADER)?.to_str().ok()?)
}
