//! The names of events and of their attributes, whatever the encoding (SYN-2).

use std::borrow::Cow;

use model::Kind;
use model::object::FOREIGN_KINDS;
use serde::{Deserialize, Serialize, Serializer};
use sync::frame::{Event, Op};
use sync::object::is_status;

/// What types of events begin with when they are written.
pub const PREFIX: &str = "dev.muster.event.";
/// What they may begin with as well when they are read (WIR-5).
pub const FOREIGN_PREFIX: &str = "io.argoproj.argocd-agent.event.";
/// The longest name of an unknown event that is kept.
pub const MAX_NAME: usize = 100;

/// The `dataschema` of the events of an inventory resync, by which peers of the source document
/// choose their handler.
pub const RESOURCE_RESYNC: &str = "resourceResync";

/// The name in a type, without the prefixes that are read.
pub(super) fn bare(type_: &str) -> &str {
    type_.strip_prefix(PREFIX).or_else(|| type_.strip_prefix(FOREIGN_PREFIX)).unwrap_or(type_)
}

/// The names of changes: of an object that is new to the receiver, has other content, is gone. Some
/// kinds have names of their own: peers of the mesh; statuses, work for a node and the mesh's policy,
/// which are named alike whatever happened to them.
pub(super) const CHANGES: [[&str; 3]; 5] = [
    ["create", "spec-update", "delete"],
    ["peer-added", "peer-updated", "peer-removed"],
    [STATUS_UPDATE; 3],
    ["action-request"; 3],
    ["policy-updated"; 3],
];
pub(super) const STATUS_UPDATE: &str = "status-update";

/// The name of a change.
pub(super) fn name_of(change: &Event) -> &'static str {
    let kind = &change.key.section.kind;
    let names = match kind.as_str() {
        "Peer" => CHANGES[1],
        _ if is_status(kind) => CHANGES[2],
        Kind::ACTION => CHANGES[3],
        Kind::POLICY => CHANGES[4],
        _ => CHANGES[0],
    };
    match change.op {
        Op::Put { created: true, .. } => names[0],
        Op::Put { .. } => names[1],
        Op::Delete { .. } => names[2],
    }
}

/// Whether the name of a change says by itself that the object is new.
pub(super) fn says_created(name: &str) -> bool {
    matches!(name, "create" | "peer-added")
}

/// Whether the name of a change says by itself that the object is gone.
pub(super) fn says_gone(name: &str) -> bool {
    matches!(name, "delete" | "peer-removed")
}

/// The kind that a `dataschema` names: itself, or what the source document writes in lower case.
pub(super) fn kind_of(schema: &str) -> Kind {
    let foreign = FOREIGN_KINDS.iter().find(|(foreign, _)| *foreign == schema);
    Kind::new(foreign.map_or(schema, |(_, kind)| kind))
}

macro_rules! attributes {
    ($($variant:ident $name:literal)*) => {
        /// The attributes that are read and written, and what is beside them in JSON. The first four
        /// are fields of their own in protobuf, numbered as here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
        pub(super) enum Attribute {
            $(#[serde(rename = $name)] $variant,)*
            /// No attribute: the data.
            #[serde(rename = "data")]
            Data,
            /// No attribute: the data, in base64.
            #[serde(rename = "data_base64")]
            DataBase64,
            /// One that is not read.
            #[serde(other)]
            Other,
        }

        /// The names of those that are read and written, in the same order.
        pub(super) const ATTRIBUTES: &[&str] = &[$($name,)*];
    };
}

attributes! {
    Id "id"
    Source "source"
    SpecVersion "specversion"
    Type "type"
    ContentType "datacontenttype"
    Schema "dataschema"
    Subject "subject"
    ResourceId "resourceid"
    EventId "eventid"
    Seq "seq"
    Rev "rev"
    Upto "upto"
    Pass "pass"
    Digest "digest"
    Created "created"
    Gone "gone"
    At "at"
    Trace "traceparent"
    Proof "proof"
}

impl Attribute {
    /// Its name.
    pub(super) fn as_str(self) -> &'static str {
        ATTRIBUTES.get(self as usize).copied().unwrap_or_default()
    }
}

/// Attributes with their values.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes<'a>([Option<Cow<'a, str>>; ATTRIBUTES.len()]);

impl<'a> Attributes<'a> {
    /// The value of one; `None` when it is absent.
    pub(super) fn get(&self, attribute: Attribute) -> Option<&str> {
        self.0.get(attribute as usize)?.as_deref()
    }

    /// Sets one.
    pub(super) fn set(&mut self, attribute: Attribute, value: impl Into<Cow<'a, str>>) {
        if let Some(slot) = self.0.get_mut(attribute as usize) {
            *slot = Some(value.into());
        }
    }

    /// Sets one by name; unknown names are ignored.
    pub(super) fn put(&mut self, name: &str, value: Cow<'a, str>) {
        if let Some(at) = ATTRIBUTES.iter().position(|known| *known == name) {
            self.0[at] = Some(value);
        }
    }

    /// Those that are there, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Cow<'a, str>)> {
        ATTRIBUTES.iter().zip(&self.0).filter_map(|(name, value)| Some((*name, value.as_ref()?)))
    }
}

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
