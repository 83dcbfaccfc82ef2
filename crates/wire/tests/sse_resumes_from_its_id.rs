//! SYN-11: events come out of a stream of server-sent events however it is cut, each with the cursor to go on from.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use support::{cursor, frames, hello, put};
use sync::{Frame, Role};
use wire::cloudevents::{MAX_DOWN, Origin, json};
use wire::sse::{self, ReadSseError, SseDecoder, SseEvent, cursor_text, read_cursor};

fn events(
    decoder: &mut SseDecoder,
    chunks: impl IntoIterator<Item = Bytes>,
) -> Result<Vec<SseEvent>, ReadSseError> {
    let mut found = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(event) = decoder.next()? {
            found.push(event);
        }
    }
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_come_back_however_cut(frames in prop::collection::vec(frames(), 0..5), cut in 1..300_usize) {
        let (mut origin, mut out) = (Origin::principal("l"), Vec::new());
        for frame in &frames {
            sse::encode(&mut origin, frame, &mut out).unwrap();
            sse::keepalive(&mut out);
        }
        let mut decoder = SseDecoder::new(MAX_DOWN);
        let found = events(&mut decoder, out.chunks(cut).map(Bytes::copy_from_slice)).unwrap();
        let read = found.iter().map(|e| json::decode(&e.data, Some("principal"), MAX_DOWN).unwrap());
        prop_assert_eq!(read.collect::<Vec<_>>(), frames);
        prop_assert_eq!(decoder.held(), 0);
    }

    #[test]
    fn cursors_come_back(cursor in support::cursors()) {
        prop_assert_eq!(read_cursor(&cursor_text(&cursor)), Some(cursor));
    }

    #[test]
    fn no_text_is_taken_for_a_cursor_wrongly(text in ".{0,40}") {
        if let Some(cursor) = read_cursor(&text) {
            prop_assert_eq!(read_cursor(&cursor_text(&cursor)), Some(cursor));
        }
    }
}

#[test]
fn a_numbered_change_has_the_cursor_as_its_id() {
    let (mut origin, mut out) = (Origin::principal("l"), Vec::new());
    let change = put("index", b"{}");
    let answer = Frame::Event(Box::new(sync::frame::Event { seq: 0, ..change.clone() }));
    sse::retry(1500, &mut out);
    for frame in [hello(Role::Principal), Frame::Event(Box::new(change)), answer, Frame::StateUpdated] {
        sse::encode(&mut origin, &frame, &mut out).unwrap();
    }
    let text = String::from_utf8(out.clone()).unwrap();
    assert_eq!(text.matches("id: ").count(), 1, "{text}");
    assert!(text.contains("\nid: i1.9\ndata: {"), "{text}");
    let mut decoder = SseDecoder::new(MAX_DOWN);
    let found = events(&mut decoder, [Bytes::from(out)]).unwrap();
    let ids: Vec<Option<&str>> = found.iter().map(|event| event.id.as_deref()).collect();
    assert_eq!(ids, [None, Some("i1.9"), Some("i1.9"), Some("i1.9")]);
    assert_eq!(decoder.last_id().and_then(read_cursor), Some(cursor("i1", 9)));
    assert_eq!(decoder.retry(), Some(1500));
    for bad in ["", "i1", "i1.", ".9", "i1.x", "i1.+9", "I1.9", "i1.99999999999999999999"] {
        assert_eq!(read_cursor(bad), None, "{bad}");
    }
}

#[test]
fn the_forms_that_others_write_are_read() {
    let text = "\u{feff}event: add\r\ndata: one\rdata:two\n: comment\nid: 7\nretry: x\nother\n\n\
                id\ndata\n\nevent: nothing\n\ndata: last";
    let mut decoder = SseDecoder::new(100);
    let found = events(&mut decoder, text.as_bytes().chunks(1).map(Bytes::copy_from_slice)).unwrap();
    let event = |id: Option<&str>, event: &str, data: &'static str| SseEvent {
        id: id.map(str::to_owned),
        event: event.to_owned(),
        data: Bytes::from_static(data.as_bytes()),
    };
    assert_eq!(found, [event(Some("7"), "add", "one\ntwo"), event(None, "", "")]);
    assert!(decoder.held() > 0, "the last is not whole");
}

#[test]
fn an_event_is_bounded() {
    let mut decoder = SseDecoder::new(100);
    let endless = std::iter::repeat_n(Bytes::from_static(b"data: xxxxxxxx"), 20);
    assert_eq!(events(&mut decoder, endless), Err(ReadSseError::TooLarge { limit: 100 }));
    let mut decoder = SseDecoder::new(100);
    let lines = std::iter::repeat_n(Bytes::from_static(b"data: xxxxxxxx\n"), 20);
    assert_eq!(events(&mut decoder, lines), Err(ReadSseError::TooLarge { limit: 100 }));
    let mut decoder = SseDecoder::new(100);
    let comments = std::iter::repeat_n(Bytes::from_static(b":\n\n"), 1000);
    assert_eq!(events(&mut decoder, comments), Ok(vec![]), "what is kept alive is not counted");
}
