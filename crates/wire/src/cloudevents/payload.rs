//! What frames carry as JSON, apart from contents of objects.

use std::borrow::Cow;
use std::sync::Arc;

use data_encoding::BASE64;
use model::{Digest, Kind, ObjectKey, SectionKey, TrieNode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sync::frame::{
    Capabilities, GoAway, Have, Hello, Interop, MAX_REQUESTED, Resource, ResyncRequest, ResyncResponse,
};
use sync::object::MAX_CONTENT;
use sync::{FeedCursor, Frame, Mode, Role, backoff, events};

use super::names::Name;
use super::{MAX_ATTRIBUTE, MAX_NUMBER, ReadFrameError, WriteFrameError};

/// The longest message for people and the longest code that are read, in bytes.
const MAX_MESSAGE: usize = 4096;
/// The most capabilities that are read.
const MAX_CAPABILITIES: usize = 64;
/// The nibbles of a digest: no path in a trie is longer.
const MAX_PATH: usize = 64;

pub(super) fn write<T: Serialize>(value: &T) -> Result<Vec<u8>, WriteFrameError> {
    serde_json::to_vec(value).map_err(|error| WriteFrameError::Payload(error.to_string()))
}

pub(super) fn read<T: DeserializeOwned>(name: &'static str, data: &[u8]) -> Result<T, ReadFrameError> {
    serde_json::from_slice(data).map_err(|error| ReadFrameError::Payload { name, what: error.to_string() })
}

fn wrong(name: &'static str, what: &str) -> ReadFrameError {
    ReadFrameError::Payload { name, what: what.to_owned() }
}

fn bounded(what: &'static str, count: usize, limit: usize) -> Result<(), ReadFrameError> {
    if count > limit { Err(ReadFrameError::TooMany { what, limit }) } else { Ok(()) }
}

/// A text that becomes part of a key, or a uid.
fn short(name: &'static str, text: &str) -> Result<(), ReadFrameError> {
    if text.len() > MAX_ATTRIBUTE { Err(wrong(name, "a name or a uid is too long")) } else { Ok(()) }
}

fn short_section(name: &'static str, section: &SectionKey) -> Result<(), ReadFrameError> {
    short(name, section.kind.as_str())?;
    short(name, &section.namespace)
}

fn counted(name: &'static str, cursor: &FeedCursor) -> Result<(), ReadFrameError> {
    if cursor.position().highest() > MAX_NUMBER { Err(wrong(name, "a number is too high")) } else { Ok(()) }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HelloData {
    versions: (u32, u32),
    #[serde(default)]
    capabilities: Vec<Cow<'static, str>>,
    role: Role,
    mode: Mode,
    instance: String,
    head: FeedCursor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    have: Option<HaveData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<FeedCursor>,
}

#[derive(Serialize, Deserialize)]
struct HaveData {
    cursor: FeedCursor,
    root: Digest,
}

/// What a side can do, by name.
pub(crate) fn capability_names(capabilities: Capabilities) -> impl Iterator<Item = &'static str> {
    let Capabilities { walk, gzip, checkin } = capabilities;
    let all = [("walk", walk), ("gzip", gzip), ("checkin", checkin)];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name)
}

/// The capabilities of these names; unknown ones are a newer peer's.
pub(crate) fn capabilities<'a>(names: impl Iterator<Item = &'a str>) -> Capabilities {
    let mut found = Capabilities::default();
    for name in names {
        match name {
            "walk" => found.walk = true,
            "gzip" => found.gzip = true,
            "checkin" => found.checkin = true,
            _ => {}
        }
    }
    found
}

pub(super) fn write_hello(hello: &Hello) -> Result<Vec<u8>, WriteFrameError> {
    write(&HelloData {
        versions: hello.versions,
        capabilities: capability_names(hello.capabilities).map(Cow::Borrowed).collect(),
        role: hello.role,
        mode: hello.mode,
        instance: hello.instance.clone(),
        head: hello.head.clone(),
        have: hello.have.as_ref().map(|have| HaveData { cursor: have.cursor.clone(), root: have.root }),
        after: hello.after.clone(),
    })
}

pub(super) fn hello(data: &[u8]) -> Result<Frame, ReadFrameError> {
    let hello: HelloData = read(events::HELLO, data)?;
    bounded("capabilities", hello.capabilities.len(), MAX_CAPABILITIES)?;
    if hello.instance.len() > MAX_ATTRIBUTE {
        return Err(wrong(events::HELLO, "the instance is too long"));
    }
    counted(events::HELLO, &hello.head)?;
    for cursor in hello.have.iter().map(|have| &have.cursor).chain(&hello.after) {
        counted(events::HELLO, cursor)?;
    }
    Ok(Frame::Hello(Box::new(Hello {
        versions: hello.versions,
        capabilities: capabilities(hello.capabilities.iter().map(|name| &**name)),
        role: hello.role,
        mode: hello.mode,
        instance: hello.instance,
        head: hello.head,
        have: hello.have.map(|have| Have { cursor: have.cursor, root: have.root }),
        after: hello.after,
    })))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasonData {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl ReasonData {
    fn read(name: &'static str, data: &[u8]) -> Result<ReasonData, ReadFrameError> {
        let reason: ReasonData = read(name, data)?;
        if reason.code.len().max(reason.message.len()) > MAX_MESSAGE {
            return Err(wrong(name, "the code or the message is too long"));
        }
        Ok(reason)
    }
}

pub(super) fn write_reason(code: &str, message: &str) -> Result<Vec<u8>, WriteFrameError> {
    write(&ReasonData { code: code.to_owned(), message: message.to_owned(), retry_after: None })
}

pub(super) fn reason(data: &[u8]) -> Result<(String, String), ReadFrameError> {
    ReasonData::read(events::ERROR, data).map(|reason| (reason.code, reason.message))
}

pub(super) fn write_go_away(go: &GoAway) -> Result<Vec<u8>, WriteFrameError> {
    let (code, message) = (go.code.clone(), go.message.clone());
    write(&ReasonData { code, message, retry_after: go.retry_after })
}

pub(super) fn go_away(data: &[u8]) -> Result<Frame, ReadFrameError> {
    let ReasonData { code, message, retry_after } = ReasonData::read(events::GO_AWAY, data)?;
    // Nobody is kept away for ever by one word.
    Ok(Frame::GoAway(GoAway { code, message, retry_after: retry_after.map(backoff::asked) }))
}

#[derive(Serialize, Deserialize)]
struct SectionData {
    kind: Kind,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    namespace: Arc<str>,
}

impl From<&SectionKey> for SectionData {
    fn from(key: &SectionKey) -> SectionData {
        SectionData { kind: key.kind.clone(), namespace: key.namespace.clone() }
    }
}

impl From<SectionData> for SectionKey {
    fn from(data: SectionData) -> SectionKey {
        SectionKey { kind: data.kind, namespace: data.namespace }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
enum AskData {
    Sections,
    Tops { section: SectionData, paths: Vec<String> },
    Objects { keys: Vec<ObjectKey> },
    Done { from: FeedCursor },
}

pub(super) fn write_ask(ask: &ResyncRequest) -> Result<Vec<u8>, WriteFrameError> {
    write(&match ask {
        ResyncRequest::Sections => AskData::Sections,
        ResyncRequest::Tops { section, paths } => AskData::Tops {
            section: section.into(),
            paths: paths.iter().map(|path| path_text(path)).collect(),
        },
        ResyncRequest::Objects(keys) => AskData::Objects { keys: keys.clone() },
        ResyncRequest::Done { from } => AskData::Done { from: from.clone() },
    })
}

pub(super) fn ask(data: &[u8]) -> Result<Frame, ReadFrameError> {
    let ask = match read(events::WALK_ASK, data)? {
        AskData::Sections => ResyncRequest::Sections,
        AskData::Tops { section, paths } => {
            bounded("paths", paths.len(), MAX_REQUESTED)?;
            let paths = paths.iter().map(|text| path(events::WALK_ASK, text)).collect::<Result<_, _>>()?;
            let section = section.into();
            short_section(events::WALK_ASK, &section)?;
            ResyncRequest::Tops { section, paths }
        }
        AskData::Objects { keys } => {
            bounded("keys", keys.len(), MAX_REQUESTED)?;
            for key in &keys {
                short_section(events::WALK_ASK, &key.section)?;
                short(events::WALK_ASK, &key.name)?;
            }
            ResyncRequest::Objects(keys)
        }
        AskData::Done { from } => {
            counted(events::WALK_ASK, &from)?;
            ResyncRequest::Done { from }
        }
    };
    Ok(Frame::ResyncRequest(Box::new(ask)))
}

/// A path as text, one hex digit a nibble; what is no nibble makes a text that is refused.
fn path_text(path: &[u8]) -> String {
    path.iter().map(|nibble| char::from_digit(u32::from(*nibble), 16).unwrap_or('?')).collect()
}

fn path(name: &'static str, text: &str) -> Result<Vec<u8>, ReadFrameError> {
    let nibble = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let path: Option<Vec<u8>> = text.chars().take(MAX_PATH + 1).map(nibble).collect();
    path.filter(|path| path.len() <= MAX_PATH).ok_or_else(|| wrong(name, "a path is at most 64 hex digits"))
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "camelCase")]
enum TellData {
    Sections { cursor: FeedCursor, sections: Vec<SectionRoot> },
    Tops { section: SectionData, tops: Vec<TopData> },
    Objects { count: u64 },
    Wait { seconds: u64 },
}

#[derive(Serialize, Deserialize)]
struct SectionRoot {
    #[serde(flatten)]
    section: SectionData,
    root: Digest,
}

#[derive(Serialize, Deserialize)]
struct TopData {
    path: String,
    #[serde(flatten)]
    node: TrieNode,
}

pub(super) fn write_tell(tell: &ResyncResponse) -> Result<Vec<u8>, WriteFrameError> {
    write(&match tell {
        ResyncResponse::Sections { cursor, sections } => TellData::Sections {
            cursor: cursor.clone(),
            sections: sections
                .iter()
                .map(|(key, root)| SectionRoot { section: key.into(), root: *root })
                .collect(),
        },
        ResyncResponse::Tops { section, tops } => {
            TellData::Tops { section: section.into(), tops: tops.iter().map(top_data).collect() }
        }
        ResyncResponse::Objects(count) => TellData::Objects { count: *count },
        ResyncResponse::Wait(seconds) => TellData::Wait { seconds: *seconds },
    })
}

fn top_data((path, node): &(Vec<u8>, TrieNode)) -> TopData {
    TopData { path: path_text(path), node: node.clone() }
}

pub(super) fn tell(data: &[u8]) -> Result<Frame, ReadFrameError> {
    let tell = match read(events::WALK_TELL, data)? {
        TellData::Sections { cursor, sections } => {
            bounded("sections", sections.len(), model::set::MAX_SECTIONS)?;
            counted(events::WALK_TELL, &cursor)?;
            let section = |one: SectionRoot| {
                let section = one.section.into();
                short_section(events::WALK_TELL, &section).map(|()| (section, one.root))
            };
            ResyncResponse::Sections {
                cursor,
                sections: sections.into_iter().map(section).collect::<Result<_, _>>()?,
            }
        }
        TellData::Tops { section, tops } => {
            bounded("places", tops.len(), MAX_REQUESTED)?;
            let section = section.into();
            short_section(events::WALK_TELL, &section)?;
            ResyncResponse::Tops { section, tops: tops.into_iter().map(top).collect::<Result<_, _>>()? }
        }
        TellData::Objects { count } => ResyncResponse::Objects(count),
        TellData::Wait { seconds } => ResyncResponse::Wait(seconds),
    };
    Ok(Frame::ResyncResponse(Box::new(tell)))
}

fn top(data: TopData) -> Result<(Vec<u8>, TrieNode), ReadFrameError> {
    if let TrieNode::Bucket(leaves) = &data.node {
        bounded("leaves of a bucket", leaves.len(), model::trie::BUCKET)?;
        for leaf in leaves {
            short(events::WALK_TELL, &leaf.name)?;
            short(events::WALK_TELL, &leaf.stub.uid)?;
            if leaf.stub.size > MAX_CONTENT as u64 {
                return Err(wrong(events::WALK_TELL, "an object is too large"));
            }
        }
    }
    Ok((path(events::WALK_TELL, &data.path)?, data.node))
}

#[derive(Serialize, Deserialize)]
struct ListData {
    checksum: String,
}

#[derive(Serialize, Deserialize)]
struct ResourceData {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(default)]
    uid: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

fn checksum(digest: &Digest) -> String {
    BASE64.encode(digest.as_bytes())
}

/// A checksum in base64, as the source document's peers write it, or in hex.
fn read_checksum(name: &'static str, text: &str) -> Result<Digest, ReadFrameError> {
    if let Ok(digest) = text.parse() {
        return Ok(digest);
    }
    let bytes = BASE64.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.map(Digest).ok_or_else(|| wrong(name, "a checksum is SHA-256 in base64"))
}

pub(super) fn write_interop(interop: &Interop) -> Result<(Name, Vec<u8>), WriteFrameError> {
    let resource = |resource: &Resource| {
        let Resource { name, namespace, uid, kind, checksum: sum } = resource.clone();
        write(&ResourceData { name, namespace, uid, kind, checksum: sum.as_ref().map(checksum) })
    };
    Ok(match interop {
        Interop::RequestResync => (Name::RequestResourceResync, b"{}".to_vec()),
        Interop::RequestList { checksum: sum } => {
            (Name::RequestSyncedResourceList, write(&ListData { checksum: checksum(sum) })?)
        }
        Interop::Listed(one) => (Name::ResponseSyncedResource, resource(one)?),
        Interop::RequestUpdate(one) => (Name::RequestUpdate, resource(one)?),
    })
}

pub(super) fn interop(name: Name, data: &[u8]) -> Result<Frame, ReadFrameError> {
    let text = name.as_str();
    let resource = || {
        let data: ResourceData = read(text, data)?;
        if data.name.is_empty() || data.kind.is_empty() {
            return Err(wrong(text, "a resource has a name and a kind"));
        }
        for part in [&data.name, &data.namespace, &data.uid, &data.kind] {
            short(text, part)?;
        }
        // A null or empty checksum means that the sender has none.
        let sum = data.checksum.filter(|sum| !sum.is_empty());
        let checksum = sum.map(|sum| read_checksum(text, &sum)).transpose()?;
        let ResourceData { name, namespace, uid, kind, .. } = data;
        Ok(Resource { name, namespace, uid, kind, checksum })
    };
    Ok(Frame::Interop(Box::new(match name {
        Name::RequestSyncedResourceList => {
            let list: ListData = read(text, data)?;
            Interop::RequestList { checksum: read_checksum(text, &list.checksum)? }
        }
        Name::ResponseSyncedResource => Interop::Listed(resource()?),
        Name::RequestUpdate => Interop::RequestUpdate(resource()?),
        _ => Interop::RequestResync,
    })))
}
