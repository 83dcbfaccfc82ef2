//! Signed requests: RFC 9421 signatures over RFC 9530 digests (IDN-4).
//!
//! Covered are method, path, query and, when there is a body, its digest; of a request for
//! server-sent events its `Last-Event-ID`. `tag` is the fleet, as one key may be in two. `created` is
//! the signer's time; `nonce` is a number that only rises (its clock in microseconds, or one
//! more than the last), so that the receiver needs to remember one small window a node to
//! refuse every replay, and can refuse what was signed before it began to remember.
//!
//! ```text
//! head --parse--> ParsedSignature --verify(key on record)--> SignedBody --holds(body)--> believed
//! ```
//!
//! Invariant: the signature is over the digest of the body and not over the body, so that a request
//! is known to be its node's before a byte of the body is read.

use data_encoding::BASE64;
use http::{HeaderMap, Method, Uri};
use model::time::SLACK;
use model::{Digest, FleetId, NodeId, Timestamp};
use trust::{KeyAlgorithm, PublicKey, SigningKey};

use crate::headers::{CONTENT_DIGEST, SIGNATURE, SIGNATURE_INPUT};
use crate::sse::LAST_EVENT_ID;

const LABEL: &str = "muster";
/// The longest signature header that is read.
const MAX_HEADER: usize = 1024;

/// What a signature is over.
#[derive(Clone, Copy, Debug)]
pub struct SignedTarget<'a> {
    /// The method in upper case.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    /// The query without its question mark; empty when there is none.
    pub query: &'a str,
    /// The body as sent; empty when there is none.
    pub body: &'a [u8],
    /// `Last-Event-ID`, where the request has it; then it has no body.
    pub last_event_id: Option<&'a str>,
}

/// The header values of a signed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureHeaders {
    /// `Content-Digest`, when there is a body.
    pub content_digest: Option<String>,
    /// `Signature-Input`.
    pub input: String,
    /// `Signature`.
    pub signature: String,
}

/// Why a signed request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A signature header is missing.
    #[error("the request has no `Signature-Input` or no `Signature`")]
    Missing,
    /// The signature headers are there and not of the form that is read.
    #[error(
        "the signature headers are not of the form of docs/protocol.md: label `muster`, these components \
         in this order, created, nonce of 16 hex digits, keyid, alg, tag"
    )]
    Form,
    /// There is a body or `Last-Event-ID`, and the signature covers none; or the other way round.
    #[error(
        "the signature must cover `content-digest` when the request has a body, and only then; \
         `last-event-id` as well"
    )]
    Coverage,
    /// The digest is not the body's.
    #[error("the body does not have the digest that was signed")]
    Digest,
    /// The signature is of another key, or over something else.
    #[error("the signature does not hold for this request and key")]
    Signature,
    /// It was signed for another fleet.
    #[error("the request was signed for another fleet")]
    Fleet,
    /// The time is more than 60 s off.
    #[error(
        "the request was signed at {created}, by a clock that is {} the control plane's ({now}): more than 60 s \
         is refused",
        .created.beside(*.now)
    )]
    Skew {
        /// When it says it was signed.
        created: Timestamp,
        /// The control plane's time.
        now: Timestamp,
    },
}

/// Signs a request to a fleet at `now` with the number `nonce`, which must be higher than any before.
pub fn sign(
    target: SignedTarget<'_>,
    fleet: &FleetId,
    node: &NodeId,
    key: &SigningKey,
    now: Timestamp,
    nonce: u64,
) -> SignatureHeaders {
    let content_digest = (!target.body.is_empty()).then(|| content_digest(target.body));
    let (covers, value) = match (&content_digest, target.last_event_id) {
        (Some(digest), _) => (Covers::Body, digest.as_str()),
        (None, Some(id)) => (Covers::LastEventId, id),
        (None, None) => (Covers::Nothing, ""),
    };
    let (components, created, alg) = (covers.components(), now.secs(), key.algorithm().http_name());
    let params = format!(
        r#"{components};created={created};nonce="{nonce:016x}";keyid="{node}";alg="{alg}";tag="{fleet}""#
    );
    let signature = key.sign(base(target, covers, value, &params).as_bytes());
    SignatureHeaders {
        content_digest,
        input: format!("{LABEL}={params}"),
        signature: format!("{LABEL}=:{}:", BASE64.encode(&signature)),
    }
}

/// Keeps the headers of a signature out of the connection's compression table: they differ from
/// request to request, and would only drive out what comes again.
pub fn keep_out_of_table(headers: &mut http::HeaderMap) {
    for name in [SIGNATURE_INPUT, SIGNATURE, CONTENT_DIGEST] {
        if let Some(value) = headers.get_mut(name) {
            value.set_sensitive(true);
        }
    }
}

/// What a signature covers besides method, path and query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covers {
    Nothing,
    Body,
    LastEventId,
}

impl Covers {
    const ALL: [Covers; 3] = [Covers::Nothing, Covers::Body, Covers::LastEventId];

    fn components(self) -> &'static str {
        match self {
            Covers::Nothing => r#"("@method" "@path" "@query")"#,
            Covers::Body => r#"("@method" "@path" "@query" "content-digest")"#,
            Covers::LastEventId => r#"("@method" "@path" "@query" "last-event-id")"#,
        }
    }
}

/// A signature's parameters, read but not yet believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedSignature<'a> {
    /// The node that claims to have signed.
    pub node: &'a str,
    /// When.
    pub created: Timestamp,
    /// Its number.
    pub nonce: u64,
    /// What it says it is signed with; the key on record decides.
    algorithm: KeyAlgorithm,
    covers: Covers,
    params: &'a str,
    signature: Vec<u8>,
    fleet: &'a str,
    content_digest: Option<&'a str>,
    last_event_id: Option<&'a str>,
}

/// Reads the signature headers of a request.
///
/// # Errors
/// [`SignatureError::Missing`] when one is not there, [`SignatureError::Form`] when they are not of
/// the form that [`sign`] makes.
pub fn parse(headers: &HeaderMap) -> Result<ParsedSignature<'_>, SignatureError> {
    if !headers.contains_key(SIGNATURE_INPUT) || !headers.contains_key(SIGNATURE) {
        return Err(SignatureError::Missing);
    }
    parse_headers(headers).ok_or(SignatureError::Form)
}

fn parse_headers(headers: &HeaderMap) -> Option<ParsedSignature<'_>> {
    let text = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        (value.len() <= MAX_HEADER).then_some(value)
    };
    let params = text(SIGNATURE_INPUT)?.strip_prefix(LABEL)?.strip_prefix('=')?;
    let covered = |covers: Covers| Some((covers, params.strip_prefix(covers.components())?));
    let (covers, rest) = Covers::ALL.into_iter().find_map(covered)?;
    let (created, rest) = rest.strip_prefix(";created=")?.split_once(";nonce=\"")?;
    let (nonce, rest) = rest.split_once("\";keyid=\"")?;
    let (node, rest) = rest.split_once("\";alg=\"")?;
    let (alg, fleet) = rest.strip_suffix('"')?.split_once("\";tag=\"")?;
    let algorithm = KeyAlgorithm::ALL.into_iter().find(|known| known.http_name() == alg)?;
    let signature = text(SIGNATURE)?.strip_prefix(LABEL)?.strip_prefix("=:")?.strip_suffix(':')?;
    let created: i64 = created.parse().ok()?;
    if nonce.len() != 16 || created.unsigned_abs() > 1 << 40 {
        return None;
    }
    // One that is there and cannot be read is not one that is not there.
    let last_event_id = match headers.contains_key(LAST_EVENT_ID) {
        true => Some(text(LAST_EVENT_ID)?),
        false => None,
    };
    Some(ParsedSignature {
        node,
        created: Timestamp::from_secs(created),
        nonce: u64::from_str_radix(nonce, 16).ok()?,
        algorithm,
        covers,
        params,
        signature: BASE64.decode(signature.as_bytes()).ok()?,
        fleet,
        content_digest: text(CONTENT_DIGEST),
        last_event_id,
    })
}

impl<'a> ParsedSignature<'a> {
    /// Verifies the signature with the key on record, the fleet and the time; gives what was signed of
    /// the body. Replay is the caller's to judge, by [`ParsedSignature::nonce`], after this.
    ///
    /// # Errors
    /// [`SignatureError`] says what does not hold.
    pub fn verify(
        &self,
        method: &Method,
        uri: &Uri,
        fleet: &FleetId,
        key: &PublicKey,
        now: Timestamp,
    ) -> Result<SignedBody<'a>, SignatureError> {
        let value = match (self.covers, self.last_event_id) {
            (Covers::Nothing, None) => "",
            (Covers::Body, None) => self.content_digest.ok_or(SignatureError::Digest)?,
            (Covers::LastEventId, Some(id)) => id,
            _ => return Err(SignatureError::Coverage),
        };
        let (method, path, query) = (method.as_str(), uri.path(), uri.query().unwrap_or(""));
        let target = SignedTarget { method, path, query, body: &[], last_event_id: None };
        let base = base(target, self.covers, value, self.params);
        if self.algorithm != key.algorithm() || !key.verifies(base.as_bytes(), &self.signature) {
            return Err(SignatureError::Signature);
        }
        if self.fleet != fleet.as_str() {
            return Err(SignatureError::Fleet);
        }
        // In whole seconds, as `created` is.
        if now.secs().abs_diff(self.created.secs()) > SLACK.as_secs() {
            return Err(SignatureError::Skew { created: self.created, now });
        }
        Ok(SignedBody((self.covers == Covers::Body).then_some(value)))
    }
}

/// What a verified signature says of the request's body: its digest, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a body counts only once it is compared with what was signed"]
pub struct SignedBody<'a>(Option<&'a str>);

impl SignedBody<'_> {
    /// Whether this is the body that was signed, as it was sent.
    ///
    /// # Errors
    /// [`SignatureError::Digest`] or [`SignatureError::Coverage`].
    pub fn holds(self, body: &[u8]) -> Result<(), SignatureError> {
        match self.0 {
            None if body.is_empty() => Ok(()),
            Some(digest) if !body.is_empty() && digest == content_digest(body) => Ok(()),
            Some(_) if !body.is_empty() => Err(SignatureError::Digest),
            _ => Err(SignatureError::Coverage),
        }
    }
}

fn content_digest(body: &[u8]) -> String {
    format!("sha-256=:{}:", BASE64.encode(Digest::of(body).as_bytes()))
}

/// The signature base of RFC 9421 section 2.5; `value` is that of the covered header, if there is one.
fn base(target: SignedTarget<'_>, covers: Covers, value: &str, params: &str) -> String {
    let mut base = String::with_capacity(512);
    let mut line = |name: &str, value: &str, query: &str| {
        for part in ["\"", name, "\": ", query, value, "\n"] {
            base.push_str(part);
        }
    };
    line("@method", target.method, "");
    line("@path", target.path, "");
    line("@query", target.query, "?");
    match covers {
        Covers::Nothing => {}
        Covers::Body => line(CONTENT_DIGEST, value, ""),
        Covers::LastEventId => line(LAST_EVENT_ID, value, ""),
    }
    base.push_str("\"@signature-params\": ");
    base.push_str(params);
    base
}
