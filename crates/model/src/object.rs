//! Objects: `{kind, namespace, name, uid, content}`, compared by digest.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Digest;

/// Content up to this many bytes may travel inside an answer; larger content is fetched
/// by digest as a blob.
pub const MAX_INLINE: u64 = 4 * 1024;
/// The largest content of one object or blob, in bytes.
pub const MAX_BLOB: u64 = 64 * 1024 * 1024;

/// What sort of thing an object is. Open: a kind is a name, not an enum to edit.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Kind(Arc<str>);

/// The order of texts; the same text at one address is not looked at.
fn in_order(a: &Arc<str>, b: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) }
}

impl Ord for Kind {
    fn cmp(&self, other: &Kind) -> Ordering {
        in_order(&self.0, &other.0)
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Kind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Whose signature makes objects of a kind count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Declared by operators, under a release's signature.
    Release,
    /// What a node says of itself.
    Node,
    /// The control plane's own; takes effect only inside a delegation.
    ControlPlane,
}

/// The kinds that this version knows, with their authority.
pub const KINDS: &[(&str, Authority)] = &[
    (Kind::MODULE, Authority::Release),
    (Kind::PARAMS, Authority::Release),
    (Kind::POLICY, Authority::Release),
    (Kind::SELECTION, Authority::Release),
    (Kind::DELEGATION, Authority::Release),
    (Kind::SYNC, Authority::Release),
    (Kind::SECRET_REF, Authority::Release),
    (Kind::SECRET_KEYS, Authority::Release),
    (Kind::ACTION, Authority::ControlPlane),
];

/// How the source document names kinds in lower case, and the kind that each stands for (WIR-5).
pub const FOREIGN_KINDS: &[(&str, &str)] = &[
    ("application", "Application"),
    ("appproject", "AppProject"),
    ("applicationset", "ApplicationSet"),
    ("repository", "Repository"),
    ("gpgkey", "GPGKey"),
];

impl Kind {
    /// A module.
    pub const MODULE: &'static str = "Module";
    /// What a node entry adds to its modules.
    pub const PARAMS: &'static str = "Params";
    /// A channel's settings for a node.
    pub const POLICY: &'static str = "Policy";
    /// A hostname's entry in a release.
    pub const SELECTION: &'static str = "Selection";
    /// What the control plane may ask a node for.
    pub const DELEGATION: &'static str = "Delegation";
    /// Which objects are synchronized with a node, and how.
    pub const SYNC: &'static str = "Sync";
    /// A secret, sealed: the same for all nodes that get it.
    pub const SECRET_REF: &'static str = "SecretRef";
    /// A node's own keys to its secrets.
    pub const SECRET_KEYS: &'static str = "SecretKeys";
    /// Work that the control plane asks a node for.
    pub const ACTION: &'static str = "Action";

    /// A kind by name.
    pub fn new(name: &str) -> Kind {
        Kind(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The authority that this kind belongs to, if the kind is known.
    pub fn authority(&self) -> Option<Authority> {
        KINDS.iter().find(|(name, _)| *name == &*self.0).map(|(_, authority)| *authority)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A section: the objects of one kind in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SectionKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for fleet-wide kinds.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
}

impl Ord for SectionKey {
    fn cmp(&self, other: &SectionKey) -> Ordering {
        self.kind.cmp(&other.kind).then_with(|| in_order(&self.namespace, &other.namespace))
    }
}

impl PartialOrd for SectionKey {
    fn partial_cmp(&self, other: &SectionKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl SectionKey {
    /// The section of a kind without namespaces.
    pub fn of(kind: &str) -> SectionKey {
        SectionKey { kind: Kind::new(kind), namespace: "".into() }
    }
}

/// What names an object. Text form: `Kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its section.
    pub section: SectionKey,
    /// Its name in the section.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object of a kind without namespaces.
    pub fn of(kind: &str, name: &str) -> ObjectKey {
        ObjectKey { section: SectionKey::of(kind), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.section.kind, self.section.namespace, self.name)
    }
}

/// The text is not `Kind/namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an object's key is Kind/namespace/name")]
pub struct ParseObjectKeyError;

impl FromStr for ObjectKey {
    type Err = ParseObjectKeyError;

    fn from_str(text: &str) -> Result<ObjectKey, ParseObjectKeyError> {
        let mut parts = text.splitn(3, '/');
        let (Some(kind), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ParseObjectKeyError);
        };
        if kind.is_empty() || name.is_empty() {
            return Err(ParseObjectKeyError);
        }
        let section = SectionKey { kind: Kind::new(kind), namespace: namespace.into() };
        Ok(ObjectKey { section, name: name.into() })
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectKey, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An object without its content: what sets hold and what travels as a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stub {
    /// Distinguishes two objects that had one name; empty for kinds that have only one.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub uid: Arc<str>,
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Length of the content in bytes.
    pub size: u64,
}

impl Stub {
    /// The stub of an object with this content and no uid.
    pub fn of(content: &[u8]) -> Stub {
        Stub { uid: "".into(), digest: Digest::of(content), size: content.len() as u64 }
    }
}

/// The blobs that an object's content names. Content that is not JSON with a list of them
/// names none.
pub fn blobs_named(content: &[u8]) -> BTreeSet<Digest> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        blobs: BTreeSet<Digest>,
    }
    serde_json::from_slice::<Named>(content).map(|named| named.blobs).unwrap_or_default()
}

/// The leaf hash of an object: `H(0x00, kind, namespace, name, uid, content digest)`, the
/// texts with their lengths before them.
pub fn leaf_hash(section: &SectionKey, name: &str, stub: &Stub) -> Digest {
    let mut hasher = crate::digest::Hasher::new();
    hasher.update(&[0x00]);
    for text in [section.kind.as_str(), &section.namespace, name, &stub.uid] {
        hasher.update(&(text.len() as u32).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.update(stub.digest.as_bytes());
    hasher.finish()
}
