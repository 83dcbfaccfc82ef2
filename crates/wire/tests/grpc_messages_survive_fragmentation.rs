//! SYN-1, WIR-6: gRPC messages come out whole however the body is cut, within their bound, and nothing is held between them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use wire::grpc::{
    COMPRESS_FROM, GrpcDecoder, GrpcStatus, PREFIX, ReadGrpcError, StatusCode, agree, announce, append,
    is_grpc,
};
use wire::{Code, Problem};

const LIMIT: usize = 64 * 1024;

fn packed(messages: &[Vec<u8>], gzip: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(message);
            Ok::<_, Infallible>(())
        };
        append(&mut out, gzip, write).unwrap();
    }
    out
}

fn unpacked(
    decoder: &mut GrpcDecoder,
    chunks: impl IntoIterator<Item = Bytes>,
) -> Result<Vec<Vec<u8>>, ReadGrpcError> {
    let mut found = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(message) = decoder.next()? {
            found.push(message.to_vec());
        }
    }
    Ok(found)
}

fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let message = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..50),
        (0..5000_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ];
    prop::collection::vec(message, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_will_do(messages in messages(), cuts in prop::collection::vec(0..400_usize, 1..20), gzip in any::<bool>()) {
        let mut rest = Bytes::from(packed(&messages, gzip));
        let mut chunks = Vec::new();
        for cut in cuts.into_iter().cycle().take(5000) {
            chunks.push(rest.split_to((cut + 1).min(rest.len())));
        }
        chunks.push(rest);
        let mut decoder = GrpcDecoder::new(LIMIT, gzip);
        prop_assert_eq!(unpacked(&mut decoder, chunks).unwrap(), messages);
        prop_assert_eq!(decoder.held(), 0);
        prop_assert_eq!(decoder.finish(), Ok(()));
    }
}

#[test]
fn byte_by_byte() {
    let messages = vec![b"one".to_vec(), Vec::new(), vec![b'x'; 3000]];
    let bytes = Bytes::from(packed(&messages, true));
    let mut decoder = GrpcDecoder::new(LIMIT, true);
    let chunks = (0..bytes.len()).map(|at| bytes.slice(at..=at));
    assert_eq!(unpacked(&mut decoder, chunks).unwrap(), messages);
}

#[test]
fn a_message_that_came_whole_is_not_copied() {
    let bytes = Bytes::from(packed(&[b"one".to_vec(), b"two".to_vec()], false));
    let at = bytes.as_ptr();
    let mut decoder = GrpcDecoder::new(LIMIT, false);
    decoder.push(bytes);
    assert_eq!(decoder.next().unwrap().unwrap().as_ptr(), at.wrapping_add(PREFIX));
}

#[test]
fn pieces_may_come_before_they_are_asked_for() {
    let messages: Vec<Vec<u8>> = (1..40_u8).map(|n| vec![n; usize::from(n) * 3]).collect();
    let all = Bytes::from(packed(&messages, false));
    for size in [1, 2, 7, 50, 400] {
        let mut decoder = GrpcDecoder::new(LIMIT, false);
        let mut found = Vec::new();
        for (at, piece) in all.chunks(size).enumerate() {
            decoder.push(Bytes::copy_from_slice(piece));
            // Only now and then, and then not all.
            if at % 3 == 0 {
                found.extend(decoder.next().unwrap().map(|message| message.to_vec()));
            }
        }
        while let Some(message) = decoder.next().unwrap() {
            found.push(message.to_vec());
        }
        assert_eq!(found, messages, "in pieces of {size}");
        assert_eq!(decoder.held(), 0);
    }
}

#[test]
fn bounds_and_marks_are_kept() {
    let decode = |bytes: Vec<u8>, limit, gzip| {
        let mut decoder = GrpcDecoder::new(limit, gzip);
        unpacked(&mut decoder, [Bytes::from(bytes)])
    };
    let message = vec![b'x'; COMPRESS_FROM];
    let (all, less) = (COMPRESS_FROM, COMPRESS_FROM - 1);
    assert!(decode(packed(std::slice::from_ref(&message), false), all, false).is_ok());
    let too_large = Err(ReadGrpcError::TooLarge { limit: less });
    assert_eq!(decode(packed(std::slice::from_ref(&message), false), less, false), too_large);
    // The length is believed before anything is held for it.
    assert_eq!(decode(vec![0, 0xff, 0xff, 0xff, 0xff], less, false), too_large);
    assert_eq!(packed(&[vec![b'x'; less]], true).len(), PREFIX + less, "a small one is not packed");
    let zipped = packed(&[message], true);
    assert!(zipped.len() < 200);
    assert_eq!(decode(zipped.clone(), less, true), too_large, "as unpacked");
    assert_eq!(decode(zipped.clone(), 4000, false), Err(ReadGrpcError::Flag(1)), "no coding was named");
    assert_eq!(decode(vec![2, 0, 0, 0, 0], 4000, true), Err(ReadGrpcError::Flag(2)));
    let mut broken = zipped;
    let last = broken.len() - 6;
    broken[last] ^= 1;
    assert_eq!(decode(broken, all, true), Err(ReadGrpcError::Compression));
    let mut decoder = GrpcDecoder::new(LIMIT, false);
    decoder.push(Bytes::from_static(&[0, 0, 0]));
    assert_eq!(decoder.next(), Ok(None));
    assert_eq!(decoder.finish(), Err(ReadGrpcError::CutOff));
}

#[test]
fn headers_say_what_is_spoken() {
    let with = |pairs: &[(&'static str, &'static str)]| {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.insert(*name, HeaderValue::from_static(value));
        }
        map
    };
    for (text, good) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc; charset=utf-8", true),
        ("application/grpc+json", false),
        ("application/grpc-web", false),
        ("application/json", false),
    ] {
        assert_eq!(is_grpc(&with(&[("content-type", text)])), good, "{text}");
    }
    assert_eq!(agree(&HeaderMap::new()).unwrap_err().code, Code::MediaType.as_str());
    let all = agree(&with(&[
        ("content-type", "application/grpc"),
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "identity,deflate, gzip"),
        ("grpc-timeout", "1500m"),
    ]));
    let all = all.unwrap();
    assert!(all.incoming_gzip && all.outgoing_gzip);
    assert_eq!(all.timeout, Some(Duration::from_millis(1500)));
    for odd in ["", "S", "123456789S", "-1S", "1x", "1"] {
        let headers = with(&[("content-type", "application/grpc"), ("grpc-timeout", odd)]);
        assert_eq!(agree(&headers).unwrap().timeout, None, "{odd}: tolerated");
    }
    let other = with(&[("content-type", "application/grpc"), ("grpc-encoding", "zstd")]);
    assert_eq!(agree(&other).unwrap_err().code, Code::MediaType.as_str());
    let mut own = HeaderMap::new();
    announce(&mut own, true);
    let own = agree(&own).unwrap();
    assert!(own.incoming_gzip && own.outgoing_gzip);
}

#[test]
fn a_call_ends_with_a_status_that_carries_its_problem() {
    let ok = GrpcStatus::ok().headers();
    assert_eq!((ok.len(), &ok["grpc-status"]), (1, &HeaderValue::from_static("0")));
    for code in Code::ALL {
        let problem = Problem::new(*code, "100 % wrong: ä\nand more");
        let status = GrpcStatus::of(problem.clone());
        assert_ne!(status.code, StatusCode::OK);
        let headers = status.headers();
        assert!(headers["grpc-message"].to_str().unwrap().contains("100 %25 wrong: %C3%A4%0Aand"));
        assert_eq!(GrpcStatus::read(&headers), Some(status), "{}", problem.code);
    }
    assert_eq!(GrpcStatus::read(&HeaderMap::new()), None);
    let mut odd = HeaderMap::new();
    odd.insert("grpc-status", HeaderValue::from_static("x"));
    odd.insert("grpc-message", HeaderValue::from_static("%zz%4"));
    let odd = GrpcStatus::read(&odd).unwrap();
    assert_eq!((odd.code, odd.message.as_str()), (StatusCode::UNKNOWN, "%zz%4"));
    assert_eq!(GrpcStatus::of(Code::CertificateRequired.into()).code, StatusCode::UNAUTHENTICATED);
    assert_eq!(GrpcStatus::of(Code::Busy.into()).code, StatusCode::UNAVAILABLE);
}
