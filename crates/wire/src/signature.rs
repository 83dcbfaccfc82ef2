//! Signed requests: RFC 9421 signatures over RFC 9530 digests (IDN-4).
//!
//! Covered are method, path, query and, when there is a body, its digest. `created` is
//! the signer's time; `nonce` is a number that only rises (its clock in microseconds, or one
//! more than the last), so that the receiver needs to remember one small window a node to
//! refuse every replay, and can refuse what was signed before it began to remember.
//!
//! ```text
//! head --parse--> Parsed --verify(key on record)--> SignedBody --holds(body)--> believed
//! ```
//!
//! Invariant: the signature is over the digest of the body and not over the body, so that a request
//! is known to be its node's before a byte of the body is read.

use data_encoding::BASE64;
use http::{HeaderMap, Method, Uri};
use model::time::SLACK;
use model::{Digest, NodeId, Timestamp};
use trust::{KeyAlgorithm, PublicKey, SigningKey};

use crate::headers::{CONTENT_DIGEST, SIGNATURE, SIGNATURE_INPUT};

const LABEL: &str = "muster";
const WITH_BODY: &str = r#"("@method" "@path" "@query" "content-digest")"#;
const WITHOUT_BODY: &str = r#"("@method" "@path" "@query")"#;
/// The longest signature header that is read.
const MAX_HEADER: usize = 1024;

/// What a signature is over.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The method in upper case.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    /// The query without its question mark; empty when there is none.
    pub query: &'a str,
    /// The body as sent; empty when there is none.
    pub body: &'a [u8],
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
         in this order, created, nonce of 16 hex digits, keyid, alg"
    )]
    Form,
    /// There is a body, and the signature covers none; or the other way round.
    #[error("the signature must cover `content-digest` when the request has a body, and only then")]
    Coverage,
    /// The digest is not the body's.
    #[error("the body does not have the digest that was signed")]
    Digest,
    /// The signature is of another key, or over something else.
    #[error("the signature does not hold for this request and key")]
    Signature,
    /// The time is more than 60 s off.
    #[error("the request was signed at {created}, more than 60 s from the control plane's time")]
    Skew {
        /// When it says it was signed.
        created: Timestamp,
    },
}

/// Signs a request at `now` with the number `nonce`, which must be higher than any before.
pub fn sign(
    target: Target<'_>,
    node: &NodeId,
    key: &SigningKey,
    now: Timestamp,
    nonce: u64,
) -> SignatureHeaders {
    let content_digest = (!target.body.is_empty()).then(|| content_digest(target.body));
    let (covered, last) = match &content_digest {
        Some(digest) => (WITH_BODY, Some((CONTENT_DIGEST, digest.as_str()))),
        None => (WITHOUT_BODY, None),
    };
    let params = params(covered, node, key, now, nonce);
    let signature = key.sign(base(target, last, &params).as_bytes());
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

fn params(covered: &str, node: &NodeId, key: &SigningKey, now: Timestamp, nonce: u64) -> String {
    let (created, alg) = (now.secs(), key.algorithm().http_name());
    format!(r#"{covered};created={created};nonce="{nonce:016x}";keyid="{node}";alg="{alg}""#)
}

/// What a signature covers besides the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covers {
    Nothing,
    Body,
}

/// A signature's parameters, read but not yet believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
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
    content_digest: Option<&'a str>,
}

/// Reads the signature headers of a request.
///
/// # Errors
/// [`SignatureError::Missing`] when one is not there, [`SignatureError::Form`] when they are not of
/// the form that [`sign`] makes.
pub fn parse(headers: &HeaderMap) -> Result<Parsed<'_>, SignatureError> {
    if !headers.contains_key(SIGNATURE_INPUT) || !headers.contains_key(SIGNATURE) {
        return Err(SignatureError::Missing);
    }
    parse_headers(headers).ok_or(SignatureError::Form)
}

fn parse_headers(headers: &HeaderMap) -> Option<Parsed<'_>> {
    let text = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        (value.len() <= MAX_HEADER).then_some(value)
    };
    let params = text(SIGNATURE_INPUT)?.strip_prefix(LABEL)?.strip_prefix('=')?;
    let forms = [(WITH_BODY, Covers::Body), (WITHOUT_BODY, Covers::Nothing)];
    let covered = |(form, covers)| Some((covers, params.strip_prefix(form)?));
    let (covers, rest) = forms.into_iter().find_map(covered)?;
    let (created, rest) = rest.strip_prefix(";created=")?.split_once(";nonce=\"")?;
    let (nonce, rest) = rest.split_once("\";keyid=\"")?;
    let (node, alg) = rest.strip_suffix('"')?.split_once("\";alg=\"")?;
    let algorithm = KeyAlgorithm::ALL.into_iter().find(|known| known.http_name() == alg)?;
    let signature = text(SIGNATURE)?.strip_prefix(LABEL)?.strip_prefix("=:")?.strip_suffix(':')?;
    let created: i64 = created.parse().ok()?;
    if nonce.len() != 16 || created.unsigned_abs() > 1 << 40 {
        return None;
    }
    Some(Parsed {
        node,
        created: Timestamp::from_secs(created),
        nonce: u64::from_str_radix(nonce, 16).ok()?,
        algorithm,
        covers,
        params,
        signature: BASE64.decode(signature.as_bytes()).ok()?,
        content_digest: text(CONTENT_DIGEST),
    })
}

impl<'a> Parsed<'a> {
    /// Verifies the signature with the key on record, and the time; gives what was signed of the
    /// body. Replay is the caller's to judge, by [`Parsed::nonce`], after this.
    ///
    /// # Errors
    /// [`SignatureError`] says what does not hold.
    pub fn verify(
        &self,
        method: &Method,
        uri: &Uri,
        key: &PublicKey,
        now: Timestamp,
    ) -> Result<SignedBody<'a>, SignatureError> {
        let digest = match self.covers {
            Covers::Nothing => None,
            Covers::Body => Some(self.content_digest.ok_or(SignatureError::Digest)?),
        };
        let (method, path, query) = (method.as_str(), uri.path(), uri.query().unwrap_or(""));
        let last = digest.map(|digest| (CONTENT_DIGEST, digest));
        let base = base(Target { method, path, query, body: &[] }, last, self.params);
        if self.algorithm != key.algorithm() || !key.verifies(base.as_bytes(), &self.signature) {
            return Err(SignatureError::Signature);
        }
        // In whole seconds, as `created` is.
        if now.secs().abs_diff(self.created.secs()) > SLACK.as_secs() {
            return Err(SignatureError::Skew { created: self.created });
        }
        Ok(SignedBody(digest))
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

/// The signature base of RFC 9421 section 2.5; `last` is a covered header with its value.
fn base(target: Target<'_>, last: Option<(&str, &str)>, params: &str) -> String {
    let mut base = String::with_capacity(512);
    let mut line = |name: &str, value: &str, query: &str| {
        for part in ["\"", name, "\": ", query, value, "\n"] {
            base.push_str(part);
        }
    };
    line("@method", target.method, "");
    line("@path", target.path, "");
    line("@query", target.query, "?");
    if let Some((name, value)) = last {
        line(name, value, "");
    }
    base.push_str("\"@signature-params\": ");
    base.push_str(params);
    base
}
