//! The audit log's entries and how they are chained (OPS-5): pure, so that whoever reads a database, a backup or an
//! answer of the operator port verifies in the same way.
//!
//! An entry is the canonical JSON (RFC 8785) of an [`AuditEntry`]; its digest is the SHA-256 of those bytes, and the
//! next entry says it as `before`. So whoever knows the head knows all that is before it.

use std::fmt;
use std::str::FromStr;

use model::canonical::{self, CanonicalError};
use model::{Digest, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most nodes that an entry names; of more it says how many.
pub const MAX_NAMED_NODES: usize = 100;
/// The longest text in an entry, in bytes.
pub const MAX_AUDIT_TEXT: usize = 1024;

/// What is to be noted of a request; the log gives it its number and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDraft {
    /// When it came.
    pub at: Timestamp,
    /// The operator's name.
    pub by: String,
    /// The request's id, as a refusal and the control plane's logs name it.
    pub request: String,
    /// Method and path of the operation.
    pub operation: String,
    /// What it is about.
    pub subject: AuditSubject,
    /// The code of why it was refused.
    pub refused: Option<String>,
    /// Refusals of the same author before it that have no entry.
    pub left_out: u64,
}

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditSubject {
    /// Hostnames, the first [`MAX_NAMED_NODES`].
    pub nodes: Vec<String>,
    /// How many nodes.
    pub node_count: u64,
    /// What else, in words; never a secret.
    pub what: Option<String>,
}

impl AuditSubject {
    /// No nodes, and this.
    pub fn of(what: impl Into<String>) -> AuditSubject {
        AuditSubject { what: Some(what.into()), ..AuditSubject::default() }
    }

    /// These nodes; the first of them are named.
    pub fn nodes<T: ToString>(hostnames: impl IntoIterator<Item = T>) -> AuditSubject {
        let (mut nodes, mut node_count) = (Vec::new(), 0);
        for hostname in hostnames {
            node_count += 1;
            if nodes.len() < MAX_NAMED_NODES {
                nodes.push(hostname.to_string());
            }
        }
        AuditSubject { nodes, node_count, what: None }
    }

    /// The same, and this.
    #[must_use]
    pub fn and(self, what: impl Into<String>) -> AuditSubject {
        AuditSubject { what: Some(what.into()), ..self }
    }
}

/// An entry of the audit log.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// From 1, without a gap.
    pub number: u64,
    /// The digest of the entry before; of the first 64 zeros.
    pub before: Digest,
    /// When the request came.
    pub at: Timestamp,
    /// The operator's name.
    pub by: String,
    /// The request's id.
    pub request: String,
    /// Method and path of the operation.
    pub operation: String,
    /// Hostnames that it is about, the first [`MAX_NAMED_NODES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// How many nodes it is about.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub node_count: u64,
    /// What else it is about, in words.
    pub what: Option<String>,
    /// The code of why it was refused; absent where it was done.
    pub refused: Option<String>,
    /// Refusals of the same author before it that have no entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A stored entry: its canonical JSON and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRow {
    /// The number that it is stored under.
    pub number: u64,
    /// The digest that it is stored with.
    pub digest: Digest,
    /// The canonical JSON of its [`AuditEntry`].
    pub entry: String,
}

/// The newest entry: its number, 0 of an empty log, and its digest. Text form: `NUMBER:DIGEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditHead {
    /// The entry's number.
    pub number: u64,
    /// Its digest.
    pub digest: Digest,
}

impl Default for AuditHead {
    fn default() -> AuditHead {
        AuditHead { number: 0, digest: Digest::ZERO }
    }
}

impl fmt::Display for AuditHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.digest)
    }
}

/// The text is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a head of the audit log is NUMBER:DIGEST, as `muster audit list` prints it")]
pub struct ParseAuditHeadError;

impl FromStr for AuditHead {
    type Err = ParseAuditHeadError;

    fn from_str(text: &str) -> Result<AuditHead, ParseAuditHeadError> {
        let (number, digest) = text.trim().split_once(':').ok_or(ParseAuditHeadError)?;
        let number = number.parse().map_err(|_| ParseAuditHeadError)?;
        Ok(AuditHead { number, digest: digest.parse().map_err(|_| ParseAuditHeadError)? })
    }
}

impl AuditHead {
    /// The entry that follows, as it is stored.
    ///
    /// # Errors
    /// Never for texts and numbers that a log holds.
    pub fn follow(&self, draft: &AuditDraft) -> Result<AuditRow, CanonicalError> {
        let AuditDraft { at, by, request, operation, subject, refused, left_out } = draft;
        let clip = |text: &String| text[..text.floor_char_boundary(MAX_AUDIT_TEXT)].to_owned();
        let AuditSubject { nodes, node_count, what } = subject;
        let entry = AuditEntry {
            number: self.number + 1,
            before: self.digest,
            at: *at,
            by: clip(by),
            request: clip(request),
            operation: clip(operation),
            nodes: nodes.iter().take(MAX_NAMED_NODES).map(clip).collect(),
            node_count: *node_count,
            what: what.as_ref().map(clip),
            refused: refused.as_ref().map(clip),
            left_out: *left_out,
        };
        let bytes = canonical::to_bytes(&entry)?;
        let digest = Digest::of(&bytes);
        // Canonical JSON is UTF-8.
        Ok(AuditRow { number: entry.number, digest, entry: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// Where a chain breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {number} of the audit log: {why}")]
pub struct AuditBreak {
    /// The first entry that does not hold.
    pub number: u64,
    /// Why.
    pub why: AuditBreakCause,
}

/// Why an entry does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditBreakCause {
    /// It is not there.
    #[error("it is missing")]
    Missing,
    /// It is no entry.
    #[error("it is no canonical entry")]
    Malformed,
    /// Its bytes have another digest than the one beside them.
    #[error("it was changed: its digest is another one")]
    Changed,
    /// It follows another entry than the one before it.
    #[error("it does not follow the entry before it")]
    Unchained,
    /// It is another one than was noted.
    #[error("it is another one than the head that was noted")]
    OtherHead,
}

/// Verifies a chain, entry by entry from the first on.
#[derive(Clone, Debug, Default)]
pub struct AuditVerifier {
    head: AuditHead,
    /// Heads that were noted elsewhere and are not passed yet.
    noted: Vec<AuditHead>,
}

impl AuditVerifier {
    /// Verifies that these heads, which were noted elsewhere, are in the chain too: so one that was cut off at its end,
    /// or made anew as a whole, is found.
    pub fn with_noted(noted: impl IntoIterator<Item = AuditHead>) -> AuditVerifier {
        let noted = noted.into_iter().filter(|head| head.number > 0).collect();
        AuditVerifier { head: AuditHead::default(), noted }
    }

    /// The newest entry that was taken.
    pub fn head(&self) -> AuditHead {
        self.head
    }

    /// Takes the next entry.
    ///
    /// # Errors
    /// [`AuditBreak`] when it does not hold; no other is to be taken then.
    pub fn take(&mut self, row: &AuditRow) -> Result<AuditEntry, AuditBreak> {
        let broken = |number, why| AuditBreak { number, why };
        let number = self.head.number + 1;
        if row.number != number {
            return Err(broken(number, AuditBreakCause::Missing));
        }
        if Digest::of(row.entry.as_bytes()) != row.digest {
            return Err(broken(number, AuditBreakCause::Changed));
        }
        let entry: AuditEntry = canonical::parse_canonical(row.entry.as_bytes())
            .map_err(|_| broken(number, AuditBreakCause::Malformed))?;
        if entry.number != number || entry.before != self.head.digest {
            return Err(broken(number, AuditBreakCause::Unchained));
        }
        if self.noted.iter().any(|noted| noted.number == number && noted.digest != row.digest) {
            return Err(broken(number, AuditBreakCause::OtherHead));
        }
        self.head = AuditHead { number, digest: row.digest };
        Ok(entry)
    }

    /// There is no other entry.
    ///
    /// # Errors
    /// [`AuditBreak`] when a noted head is beyond the last one.
    pub fn end(self) -> Result<AuditHead, AuditBreak> {
        match self.noted.iter().any(|noted| noted.number > self.head.number) {
            true => Err(AuditBreak { number: self.head.number + 1, why: AuditBreakCause::Missing }),
            false => Ok(self.head),
        }
    }
}

/// Which entries are listed, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only from then on.
    pub since: Option<Timestamp>,
    /// Only by this operator.
    pub author: Option<String>,
    /// Only about this node, by hostname; those about more nodes than they name among them.
    pub node: Option<String>,
    /// Only with a lower number.
    pub before: Option<u64>,
    /// The most of them.
    pub limit: usize,
}
