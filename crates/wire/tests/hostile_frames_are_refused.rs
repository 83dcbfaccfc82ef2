//! WIR-6: bytes from outside never panic, are bounded, and are refused by name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use support::{frames, put};
use sync::Frame;
use sync::object::MAX_CONTENT;
use wire::cloudevents::{MAX_DOWN, MAX_UP, Origin, ReadFrameError, WriteFrameError, json, protobuf};
use wire::{Code, Problem, batch, grpc, sse};

fn json_of(frame: &Frame) -> String {
    let mut out = Vec::new();
    json::encode(&mut Origin::principal("l"), frame, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(text: String) -> Result<Frame, ReadFrameError> {
    json::decode(&text.into(), None, MAX_UP)
}

/// Everything that reads, on the same bytes.
fn read_all(bytes: &Bytes) {
    let _ = protobuf::decode(bytes, None, MAX_UP);
    let _ = json::decode(bytes, Some("web-1"), MAX_UP);
    let _ = json::decode_all(bytes, None, MAX_UP);
    let _ = batch::decode(bytes, None, MAX_UP);
    let mut decoder = grpc::GrpcDecoder::new(100, true);
    decoder.push(bytes.clone());
    while let Ok(Some(_)) = decoder.next() {}
    let mut decoder = sse::SseDecoder::new(100);
    decoder.push(bytes.clone());
    while let Ok(Some(_)) = decoder.next() {}
    let _ = wire::rpc::read::<wire::rpc::VersionResponse>(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes.into());
    }

    #[test]
    fn no_change_of_a_good_frame_makes_it_panic(
        frame in frames(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        protobuf::encode(&mut Origin::principal("l"), &frame, &mut bytes).unwrap();
        for mut bytes in [bytes, json_of(&frame).into_bytes()] {
            for (place, byte) in &places {
                let at = place.index(bytes.len());
                bytes[at] = *byte;
            }
            read_all(&bytes.clone().into());
            bytes.truncate(end.index(bytes.len()));
            read_all(&bytes.into());
        }
    }
}

#[test]
fn what_is_missing_has_a_name() {
    let text = json_of(&Frame::Event(Box::new(put("index", b"{}"))));
    let without = |name: &str| {
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value.as_object_mut().unwrap().remove(name).unwrap();
        value
    };
    for (name, want) in [
        ("resourceid", ReadFrameError::Missing("resourceid")),
        ("type", ReadFrameError::Missing("type")),
        ("seq", ReadFrameError::Missing("seq")),
        ("rev", ReadFrameError::Missing("rev")),
        ("dataschema", ReadFrameError::Missing("dataschema")),
        ("subject", ReadFrameError::Missing("subject")),
        ("specversion", ReadFrameError::SpecVersion(String::new())),
    ] {
        assert_eq!(read(without(name).to_string()), Err(want), "{name}");
    }
    let mut nameless = without("id");
    nameless.as_object_mut().unwrap().remove("eventid");
    assert_eq!(read(nameless.to_string()), Err(ReadFrameError::Missing("id")));
}

#[test]
fn what_is_wrong_has_a_name() {
    let text = json_of(&Frame::Event(Box::new(put("index", b"{}"))));
    for (from, to, want) in [
        (r#""specversion":"1.0""#, r#""specversion":"2.0""#, ReadFrameError::SpecVersion("2.0".to_owned())),
        (r#""specversion":"1.0""#, r#""specversion":"10""#, ReadFrameError::SpecVersion("10".to_owned())),
        (r#""resourceid":"u-1""#, r#""resourceid":"""#, ReadFrameError::Missing("resourceid")),
        (r#""seq":"1""#, r#""seq":"-1""#, ReadFrameError::Attribute("seq")),
        (r#""seq":"1""#, r#""seq":"+1""#, ReadFrameError::Attribute("seq")),
        (r#""seq":"1""#, r#""seq":"99999999999999999999""#, ReadFrameError::Attribute("seq")),
        (r#""at":"1800000000000""#, r#""at":"noon""#, ReadFrameError::Attribute("at")),
        (r#""subject":"web/index""#, r#""subject":"web/""#, ReadFrameError::Attribute("subject")),
        (r#""dataschema":"Site""#, r#""dataschema":"a/b""#, ReadFrameError::Attribute("dataschema")),
        (r#""data":{}"#, r#""data":1e999"#, ReadFrameError::Attribute("data")),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let read = read(text.replace(from, to));
        let json_itself = matches!(read, Err(ReadFrameError::Json(_))) && to.contains("1e999");
        assert!(read == Err(want) || json_itself, "{to}: {read:?}");
    }
    let no_base64 = read(text.replace(r#""data":{}"#, r#""data_base64":"?""#));
    assert!(matches!(no_base64, Err(ReadFrameError::Json(_))), "{no_base64:?}");
    let long = text.replace("u-1", &"u".repeat(1025));
    assert_eq!(read(long), Err(ReadFrameError::Attribute("resourceid")));
    let other = json::decode(&text.into(), Some("web-1"), MAX_UP);
    assert_eq!(other, Err(ReadFrameError::Source("principal".to_owned())));
    assert_eq!(Problem::from(other.unwrap_err()).code, Code::OtherNode.as_str());
}

#[test]
fn sizes_are_bounded() {
    let large = Frame::Event(Box::new(put("x", &vec![b'x'; MAX_CONTENT])));
    let over = Frame::Event(Box::new(put("x", &vec![b'x'; MAX_CONTENT + 1])));
    let (mut bytes, mut text) = (b"before".to_vec(), b"before".to_vec());
    let mut origin = Origin::principal("l");
    let refused = Err(WriteFrameError::TooLarge { bytes: MAX_CONTENT + 1 });
    assert_eq!(protobuf::encode(&mut origin, &over, &mut bytes), refused);
    assert_eq!(json::encode_all(&mut origin, [&large, &over], &mut text), refused);
    assert_eq!((&bytes[..], &text[..]), (&b"before"[..], &b"before"[..]), "nothing half is left");
    let text = json_of(&large);
    assert!(text.len() <= MAX_UP, "the largest object fits the bound in base64");
    assert_eq!(read(text).unwrap(), large);
    let more = json_of(&Frame::Event(Box::new(put("x", b"{}"))));
    let content = format!(r#""data":"{}""#, "x".repeat(MAX_CONTENT));
    let refused = read(more.replace(r#""data":{}"#, &content)).unwrap_err();
    assert_eq!(refused, ReadFrameError::ObjectTooLarge { bytes: MAX_CONTENT + 2 });
    assert_eq!(Problem::from(refused).code, Code::ObjectTooLarge.as_str());
    let huge = Bytes::from(vec![b' '; MAX_UP + 1]);
    let want = ReadFrameError::TooLarge { limit: MAX_UP };
    assert_eq!(protobuf::decode(&huge, None, MAX_UP).unwrap_err(), want);
    assert_eq!(json::decode(&huge, None, MAX_UP).unwrap_err(), want);
    assert_eq!(json::decode_all(&huge, None, MAX_UP).unwrap_err(), want);
    assert_eq!(batch::decode(&huge, None, MAX_UP).unwrap_err(), want);
    const { assert!(MAX_DOWN > wire::body::MAX_ANSWER) };
}

#[test]
fn numbers_that_overflow_are_not_read() {
    let text = json_of(&Frame::Event(Box::new(put("index", b"{}"))));
    for (from, to, name) in [
        (r#""seq":"1""#, r#""seq":"9223372036854775808""#, "seq"),
        (r#""rev":"7""#, r#""rev":"18446744073709551615""#, "rev"),
        (r#""upto":"9""#, r#""upto":"18446744073709551615""#, "upto"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        assert_eq!(read(text.replace(from, to)), Err(ReadFrameError::Attribute(name)));
    }
    let hello = json_of(&support::hello(sync::Role::Agent));
    let high = hello.replace(r#""revision":9"#, r#""revision":18446744073709551615"#);
    assert!(
        high != hello && matches!(read(high), Err(ReadFrameError::Payload { name, .. }) if name == "hello")
    );
    // A wait is at most an hour, whatever is asked for.
    let away =
        sync::frame::GoAway { code: "x".to_owned(), message: String::new(), retry_after: Some(u64::MAX) };
    let Ok(Frame::GoAway(read)) = read(json_of(&Frame::GoAway(away))) else { panic!("it is read") };
    assert_eq!(read.retry_after, Some(3600));
}

/// The name of a signed batch is reserved (IDN-9): it reads like any that a newer version knows.
#[test]
fn a_reserved_name_is_unknown() {
    let text = json_of(&Frame::StateUpdated).replace("state-updated", "signed-batch");
    assert_eq!(read(text), Ok(Frame::Unknown("signed-batch".to_owned())));
}

#[test]
fn resync_responses_are_bounded() {
    use model::TrieNode;
    use model::chunk::LeafChunk;
    use sync::frame::ResyncResponse;
    let tell = |name: &str, uid: &str, size: u64| {
        let stub = model::Stub { uid: uid.into(), digest: model::Digest::ZERO, size };
        let section = model::SectionKey { kind: model::Kind::new("Site"), namespace: "web".into() };
        let tops = vec![(Vec::new(), TrieNode::Bucket(vec![LeafChunk { name: name.into(), stub }]))];
        read(json_of(&Frame::ResyncResponse(Box::new(ResyncResponse::Tops { section, tops }))))
    };
    assert!(tell("index", "u", MAX_CONTENT as u64).is_ok());
    let long = "x".repeat(1025);
    for refused in [tell("index", "u", u64::MAX), tell(&long, "u", 1), tell("index", &long, 1)] {
        assert!(matches!(refused, Err(ReadFrameError::Payload { .. })), "{refused:?}");
    }
}

#[test]
fn numbers_of_things_are_bounded() {
    let ping = json_of(&Frame::StateUpdated);
    let many = format!("[{}]", vec![ping.as_str(); json::MAX_FRAMES + 1].join(","));
    let want = Err(ReadFrameError::TooMany { what: "frames", limit: json::MAX_FRAMES });
    assert_eq!(json::decode_all(&many.clone().into(), None, MAX_UP), want);
    let batch = format!(r#"{{"frames":{many}}}"#);
    assert!(matches!(batch::decode(&batch.into(), None, MAX_UP), Err(ReadFrameError::TooMany { .. })));
    let ask = |data: &str| {
        let head = ping.replace("state-updated", "resync-request");
        read(format!(r#"{},"data":{data}}}"#, head.strip_suffix('}').unwrap()))
    };
    let tops = |paths: &str| ask(&format!(r#"{{"tops":{{"section":{{"kind":"Site"}},"paths":[{paths}]}}}}"#));
    assert!(tops(&["[0]"; 256].join(",")).is_ok());
    let keys = ["\"Site//a\""; 257].join(",");
    let objects = ask(&format!(r#"{{"objects":[{keys}]}}"#));
    for refused in [tops(&["[0]"; 257].join(",")), tops("[16]"), objects, ask("{}")] {
        assert!(
            matches!(refused, Err(ReadFrameError::Payload { ref name, .. }) if name == "resync-request"),
            "{refused:?}"
        );
    }
    assert!(ask(&"[".repeat(100_000)).is_err());
}
