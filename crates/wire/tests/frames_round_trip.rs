//! WIR-5, SYN-2: every frame comes back as it was from protobuf and from JSON, contents byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[rustfmt::skip]
#[path = "../src/generated/io_cloudevents_v1.rs"]
#[allow(missing_docs, dead_code, clippy::all)]
mod io_cloudevents_v1;
#[rustfmt::skip]
#[path = "../src/generated/muster_v1.rs"]
#[allow(missing_docs, dead_code, clippy::all)]
mod muster_v1;
mod support;

use bytes::Bytes;
use io_cloudevents_v1::cloud_event::CloudEventAttributeValue;
use io_cloudevents_v1::cloud_event::Data;
use io_cloudevents_v1::cloud_event::cloud_event_attribute_value::Attr;
use model::{Digest, Kind, Stub};
use proptest::prelude::*;
use prost::Message;
use support::{contents, frames, hello, put};
use sync::frame::{Interop, InventoryItem, Op};
use sync::{Frame, Role};
use wire::batch::{self, FrameBatch};
use wire::cloudevents::names::{FOREIGN_PREFIX, PREFIX};
use wire::cloudevents::{MAX_UP, Origin, json, protobuf};

fn origin() -> Origin {
    Origin::agent(&"web-1".parse().unwrap(), "link-1")
}

fn protobuf_of(frame: &Frame) -> Bytes {
    let mut out = Vec::new();
    protobuf::encode(&mut origin(), frame, &mut out).unwrap();
    out.into()
}

fn json_of(frame: &Frame) -> Bytes {
    let mut out = Vec::new();
    json::encode(&mut origin(), frame, &mut out).unwrap();
    out.into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_comes_back(frame in frames()) {
        let bytes = protobuf_of(&frame);
        prop_assert_eq!(&protobuf::decode(&bytes, Some("web-1"), MAX_UP).unwrap(), &frame);
        let text = json_of(&frame);
        prop_assert!(!text.contains(&b'\n'), "an SSE line holds it");
        prop_assert_eq!(&json::decode(&text, Some("web-1"), MAX_UP).unwrap(), &frame);
        let text = String::from_utf8(text.to_vec()).unwrap();
        for prefix in [FOREIGN_PREFIX, ""] {
            let text = text.replace(&format!(r#""type":"{PREFIX}"#), &format!(r#""type":"{prefix}"#));
            prop_assert_eq!(&json::decode(&text.into(), None, MAX_UP).unwrap(), &frame);
        }
    }

    #[test]
    fn a_standard_library_reads_and_writes_the_same_protobuf(frame in frames()) {
        let bytes = protobuf_of(&frame);
        let event = muster_v1::Event::decode(&bytes[..]).unwrap().event.unwrap();
        prop_assert_eq!(&event.spec_version, "1.0");
        prop_assert_eq!(&event.source, "web-1");
        prop_assert!(event.r#type.starts_with(PREFIX));
        prop_assert!(!event.id.is_empty());
        for (name, value) in &event.attributes {
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{}", name);
            let is_uri = matches!(value.attr, Some(Attr::CeUri(_)));
            prop_assert_eq!(is_uri, name == "dataschema");
        }
        if let Frame::Event(event_) = &frame && let Op::Put { content, .. } = &event_.op {
            prop_assert_eq!(event.data.clone(), Some(Data::BinaryData(content.to_vec())));
        }
        // In whatever order that library writes it.
        let again = muster_v1::Event { event: Some(event) }.encode_to_vec();
        prop_assert_eq!(again.len(), bytes.len());
        prop_assert_eq!(protobuf::decode(&again.into(), None, MAX_UP).unwrap(), frame);
    }

    #[test]
    fn json_is_what_the_specification_says(frame in frames()) {
        let value: serde_json::Value = serde_json::from_slice(&json_of(&frame)).unwrap();
        let members = value.as_object().unwrap();
        prop_assert_eq!(&value["specversion"], "1.0");
        prop_assert_eq!(&value["source"], "web-1");
        for (name, value) in members {
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            prop_assert!(plain || name == "data_base64", "{}", name);
            prop_assert!(value.is_string() || name == "data", "{}", name);
        }
    }

    /// A client that knows JSON as values only can make the bytes again, by RFC 8785.
    #[test]
    fn contents_survive_a_client_that_parses_json(content in contents()) {
        let frame = Frame::Event(Box::new(put("index", &content)));
        let value: serde_json::Value = serde_json::from_slice(&json_of(&frame)).unwrap();
        if let Some(data) = value.get("data") {
            prop_assert_eq!(&serde_json_canonicalizer::to_vec(data).unwrap(), &content);
        } else {
            let base64 = value["data_base64"].as_str().unwrap();
            prop_assert_eq!(&data_encoding::BASE64.decode(base64.as_bytes()).unwrap(), &content);
        }
        // And what it writes, with its own spaces, is read as those bytes.
        let pretty = serde_json::to_vec_pretty(&value).unwrap();
        prop_assert_eq!(json::decode(&pretty.into(), None, MAX_UP).unwrap(), frame);
    }

    #[test]
    fn batches_come_back(frames in prop::collection::vec(frames(), 0..5), more in any::<bool>()) {
        let batch = FrameBatch { frames, more };
        let bytes = Bytes::from(batch::encode(&mut origin(), &batch).unwrap());
        prop_assert_eq!(&batch::decode(&bytes, Some("web-1"), MAX_UP).unwrap(), &batch);
        let mut array = Vec::new();
        json::encode_all(&mut origin(), &batch.frames, &mut array).unwrap();
        prop_assert_eq!(json::decode_all(&array.into(), Some("web-1"), MAX_UP).unwrap(), batch.frames);
    }
}

#[test]
fn canonical_json_travels_as_json() {
    for content in ["{}", "[]", r#"{"a":[1,-2,true],"b":{"c":"é\n"}}"#, r#"{"a":0.5}"#] {
        let value: serde_json::Value =
            serde_json::from_slice(&json_of(&Frame::Event(Box::new(put("x", content.as_bytes()))))).unwrap();
        assert!(value.get("data").is_some(), "{content}");
        assert_eq!(value["datacontenttype"], "application/json");
    }
}

/// Keys order by UTF-16 in canonical JSON, and numbers are those of a double.
#[test]
fn what_a_client_would_write_otherwise_travels_as_bytes() {
    for (content, canonical) in [
        ("{\"\u{10000}\":1,\"\u{e000}\":2}", true),
        ("{\"\u{e000}\":1,\"\u{10000}\":2}", false),
        (r#"{"a":9007199254740993}"#, false),
        (r#"{"a":-0}"#, false),
        (r#"{"a":1.0}"#, false),
        (r#"{"a": 1}"#, false),
    ] {
        let value: serde_json::Value =
            serde_json::from_slice(&json_of(&Frame::Event(Box::new(put("x", content.as_bytes()))))).unwrap();
        assert_eq!(value.get("data").is_some(), canonical, "{content}");
    }
}

/// SYN-2
#[test]
fn changes_are_named_by_what_happened_and_by_their_kind() {
    for (kind, names) in [
        ("Application", ["create", "spec-update", "delete"]),
        ("Application:status", ["status-update"; 3]),
        ("Action", ["action-request"; 3]),
        ("Policy", ["policy-updated"; 3]),
        ("Peer", ["peer-added", "peer-updated", "peer-removed"]),
    ] {
        let made = |created| Op::Put { stub: Stub::of(b""), content: Bytes::new(), created };
        let ops = [made(true), made(false), Op::Delete { uid: "u".into() }];
        for (op, name) in ops.into_iter().zip(names) {
            let mut change = put("x", b"");
            (change.key.section.kind, change.op) = (Kind::new(kind), op);
            let value: serde_json::Value =
                serde_json::from_slice(&json_of(&Frame::Event(Box::new(change)))).unwrap();
            assert_eq!(value["type"], format!("{PREFIX}{name}"), "{kind}");
        }
    }
}

#[test]
fn a_name_that_is_not_known_is_kept() {
    let text = String::from_utf8(json_of(&Frame::StateUpdated).to_vec()).unwrap();
    let other = text.replace("state-updated", "state-forgotten");
    assert_eq!(
        json::decode(&other.into(), None, MAX_UP).unwrap(),
        Frame::Unknown("state-forgotten".to_owned())
    );
}

/// A peer may write attributes as other sorts of text, or numbers, and add its own.
#[test]
fn reading_is_liberal() {
    let frame = Frame::Event(Box::new(put("index", b"{}")));
    let mut event = muster_v1::Event::decode(&protobuf_of(&frame)[..]).unwrap().event.unwrap();
    let set = |event: &mut io_cloudevents_v1::CloudEvent, name: &str, attr: Attr| {
        let value = CloudEventAttributeValue { attr: Some(attr) };
        event.attributes.insert(name.to_owned(), value);
    };
    set(&mut event, "dataschema", Attr::CeString("Site".to_owned()));
    set(&mut event, "seq", Attr::CeInteger(1));
    set(&mut event, "newer", Attr::CeBytes(vec![1]));
    set(&mut event, "traceparent", Attr::CeString("x".repeat(500)));
    event.attributes.remove("upto");
    event.attributes.remove("digest");
    event.id = String::new();
    event.data = Some(Data::TextData("{}".to_owned()));
    let bytes = muster_v1::Event { event: Some(event) }.encode_to_vec();
    let mut want = put("index", b"{}");
    want.upto = sync::Position::at(want.rev);
    assert_eq!(protobuf::decode(&bytes.into(), None, MAX_UP).unwrap(), Frame::Event(Box::new(want)));
    let text = String::from_utf8(json_of(&frame).to_vec()).unwrap();
    let text = text.replace(r#""seq":"1""#, r#""seq":1,"newer":{"a":[null]},"traceparent":null"#);
    assert_eq!(json::decode(&text.into(), None, MAX_UP).unwrap(), frame);
}

/// WIR-5: the events of an inventory resync carry the schema by which peers of the source document
/// choose who handles them.
#[test]
fn inventory_resync_events_carry_their_schema() {
    let one = InventoryItem {
        name: "a".into(),
        namespace: "b".into(),
        uid: "u".into(),
        kind: "Site".into(),
        checksum: None,
    };
    for interop in [
        Interop::RequestResync,
        Interop::RequestList { checksum: Digest::of(b"") },
        Interop::Listed(one.clone()),
        Interop::RequestUpdate(one),
    ] {
        let frame = Frame::Interop(Box::new(interop));
        let value: serde_json::Value = serde_json::from_slice(&json_of(&frame)).unwrap();
        assert_eq!(value["dataschema"], "resourceResync", "{frame:?}");
        let event = muster_v1::Event::decode(&protobuf_of(&frame)[..]).unwrap().event.unwrap();
        let schema = event.attributes["dataschema"].attr.clone();
        assert_eq!(schema, Some(Attr::CeUri("resourceResync".to_owned())), "{frame:?}");
    }
}

/// WIR-5: what the source document writes in lower case is the kind that Muster has.
#[test]
fn foreign_schemas_are_kinds() {
    let text = String::from_utf8(json_of(&Frame::Event(Box::new(put("index", b"{}")))).to_vec()).unwrap();
    for (schema, kind) in [
        ("application", "Application"),
        ("appproject", "AppProject"),
        ("applicationset", "ApplicationSet"),
        ("repository", "Repository"),
        ("gpgkey", "GPGKey"),
        ("Application", "Application"),
        ("site", "site"),
    ] {
        let text = text.replace(r#""dataschema":"Site""#, &format!(r#""dataschema":"{schema}""#));
        let Frame::Event(event) = json::decode(&text.into(), None, MAX_UP).unwrap() else {
            panic!("{schema}")
        };
        assert_eq!(event.key.section.kind.as_str(), kind);
    }
}

#[test]
fn a_change_keeps_its_id_and_other_frames_have_their_own() {
    let mut origin = origin();
    let id = |origin: &mut Origin, frame: &Frame| {
        let mut out = Vec::new();
        json::encode(origin, frame, &mut out).unwrap();
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let change = Frame::Event(Box::new(put("index", b"{}")));
    assert_eq!(id(&mut origin, &hello(Role::Agent)), "link-1.1");
    assert_eq!(id(&mut origin, &change), "i1.7");
    assert_eq!(id(&mut origin, &change), "i1.7");
    assert_eq!(id(&mut origin, &Frame::StateUpdated), "link-1.2");
}
