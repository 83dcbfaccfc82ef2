//! IDN-4: every node request is signed with the node's key over method, path, query and body.
//! A replay, a clock an hour off, another path, query, method or key: refused, and after each
//! a good check-in is answered. All of it holds for a node that dials the control plane itself and
//! for one behind a proxy that ends TLS.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use model::exchange::{Acked, Answer, Report};
use test_support::fleet::proxy::Forwarder;
use test_support::fleet::{Fleet, Member, call, decoded, new_key, now, number, quiet, refused};
use wire::headers::{CONTENT_DIGEST, SIGNATURE, SIGNATURE_INPUT};
use wire::{Code, body, route};

/// A report without facts: it changes nothing, and its connection stays open.
fn empty_report() -> Vec<u8> {
    body::encode(&Report { incarnation: "i1".parse().unwrap(), facts: Vec::new() }).unwrap()
}

/// Runs a test with a node that dials the control plane itself, and with one behind a proxy.
async fn both_ways(test: impl AsyncFn(Member)) {
    let fleet = Fleet::start().await;
    test(fleet.node("web-1").await).await;
    let proxy = Forwarder::start(&fleet).await;
    test(proxy.node(&fleet, "web-2").await).await;
}

fn report(node: &Member) -> Request<Full<Bytes>> {
    node.signed(Method::POST, route::REPORT, empty_report())
}

#[tokio::test]
async fn an_unsigned_request_is_refused() {
    both_ways(async |node| {
    let mut client = node.dial().await;
    for absent in [&[SIGNATURE][..], &[SIGNATURE_INPUT], &[SIGNATURE, SIGNATURE_INPUT, CONTENT_DIGEST]] {
        let mut request = report(&node);
        for name in absent {
            request.headers_mut().remove(*name);
        }
        refused(&call(&mut client, request).await, Code::Unsigned);
    }
    for input in [
        "muster=()",
        "muster=(\"@method\");created=1",
        "other=x",
        "",
        "muster=(\"@method\" \"@path\" \"@query\");created=1e9;nonce=\"0000000000000001\";keyid=\"x\";alg=\"none\"",
    ] {
        let mut request = report(&node);
        request.headers_mut().insert(SIGNATURE_INPUT, HeaderValue::from_str(input).unwrap());
        refused(&call(&mut client, request).await, Code::Unsigned);
    }
    let mut long = report(&node);
    long.headers_mut()
        .insert(SIGNATURE, HeaderValue::from_str(&format!("muster=:{}:", "A".repeat(4000))).unwrap());
    refused(&call(&mut client, long).await, Code::Unsigned);
    node.survives().await;
    })
    .await;
}

#[tokio::test]
async fn a_replay_is_refused() {
    both_ways(async |node| {
        let mut client = node.dial().await;
        let request = report(&node);
        let _: Acked = decoded(&call(&mut client, request.clone()).await).unwrap();
        for _ in 0..3 {
            let problem = refused(&call(&mut client, request.clone()).await, Code::Replayed);
            assert!(problem.next_number.is_some_and(|next| next <= number()), "the agent goes on from there");
        }
        // Over another connection too.
        refused(&node.send(request).await, Code::Replayed);
        // A late one counts once; one from before the window never does.
        let (late, newer) = (number(), number());
        let at = |number| node.signed_at(Method::POST, route::REPORT, empty_report(), now(), number);
        let _: Acked = decoded(&call(&mut client, at(newer)).await).unwrap();
        let _: Acked = decoded(&call(&mut client, at(late)).await).unwrap();
        refused(&call(&mut client, at(late)).await, Code::Replayed);
        refused(&call(&mut client, at(newer - 1000)).await, Code::Replayed);
        node.survives().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_copies_at_once_one_counts() {
    both_ways(async |node| {
        let request = report(&node);
        let mut copies = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (mut client, request) = (node.dial().await, request.clone());
            copies.spawn(async move { call(&mut client, request).await.status().as_u16() });
        }
        let mut statuses = copies.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses[0], 200);
        assert!(statuses[1..].iter().all(|status| *status == Code::Replayed.status()), "{statuses:?}");
        node.survives().await;
    })
    .await;
}

/// The refusal carries the control plane's time, by which the agent signs anew.
#[tokio::test]
async fn a_clock_an_hour_off_is_refused_with_the_time() {
    both_ways(async |node| {
        let mut client = node.dial().await;
        let hour = Duration::from_secs(3600);
        for at in [now().minus(hour), now().plus(hour), now().minus(Duration::from_secs(63))] {
            let request = node.signed_at(Method::POST, route::REPORT, empty_report(), at, number());
            let problem = refused(&call(&mut client, request).await, Code::Skewed);
            let server = problem.server_time.expect("the refusal carries the server's time");
            assert!(server.secs().abs_diff(now().secs()) <= 5, "{server}");
            let detail = problem.detail.unwrap();
            assert!(detail.contains("the control plane's") && detail.contains("more than 60 s"), "{detail}");
        }
        // Within the slack all is well, in both directions (IDN-7).
        for at in [now().minus(Duration::from_secs(57)), now().plus(Duration::from_secs(57))] {
            let request = node.signed_at(Method::POST, route::REPORT, empty_report(), at, number());
            let _: Acked = decoded(&call(&mut client, request).await).unwrap();
        }
        node.survives().await;
    })
    .await;
}

/// A refusal for skew spends no number: an agent whose clock ran ahead is not locked out.
#[tokio::test]
async fn a_refused_number_is_not_spent() {
    both_ways(async |node| {
        let ahead = now().plus(Duration::from_secs(3600));
        let micros = u64::try_from(ahead.0).unwrap() * 1000;
        let request = node.signed_at(Method::POST, route::REPORT, empty_report(), ahead, micros);
        refused(&node.send(request).await, Code::Skewed);
        // Nor does one with a number from that far ahead, signed now.
        let request = node.signed_at(Method::POST, route::REPORT, empty_report(), now(), micros);
        refused(&node.send(request).await, Code::Skewed);
        // Nor does one whose signature does not hold.
        let mut request = node.signed_at(Method::POST, route::REPORT, empty_report(), now(), micros);
        request.headers_mut().insert(SIGNATURE, "muster=:AAAA:".parse().unwrap());
        refused(&node.send(request).await, Code::BadSignature);
        node.survives().await;
    })
    .await;
}

#[tokio::test]
async fn a_signature_counts_for_what_was_signed_alone() {
    both_ways(async |node| {
        let mut client = node.dial().await;
        let authority = node.url.authority();
        let uri = |path: &str| format!("https://{authority}{path}").parse().unwrap();
        let own = format!("/v1/nodes/{}/report", node.id);
        for (signed, sent) in [
            (route::REPORT, own.as_str()),
            (route::REPORT, "/v1/agent/checkin"),
            (route::REPORT, "/v1/agent/report?wait=60"),
            ("/v1/agent/report?a=1", "/v1/agent/report?a=2"),
            ("/v1/agent/report?a=1", "/v1/agent/report"),
        ] {
            let mut request = node.signed(Method::POST, signed, empty_report());
            *request.uri_mut() = uri(sent);
            refused(&call(&mut client, request).await, Code::BadSignature);
        }
        // Another method: what was signed as a POST of nothing is no GET.
        let mut request = node.signed(Method::POST, route::STATE, Vec::new());
        *request.method_mut() = Method::GET;
        refused(&call(&mut client, request).await, Code::BadSignature);
        // Another key under the node's name.
        let stranger = Member {
            fleet: node.fleet.clone(),
            id: node.id.clone(),
            hostname: node.hostname.clone(),
            key: new_key(),
            cert_pem: String::new(),
            tls: node.tls.clone(),
            url: node.url.clone(),
        };
        refused(&call(&mut client, report(&stranger)).await, Code::BadSignature);
        let request = node.signed(Method::POST, "/v1/agent/report?a=1", empty_report());
        let _: Acked = decoded(&call(&mut client, request).await).unwrap();
        node.survives().await;
    })
    .await;
}

/// One changed character anywhere in the headers that carry the proof.
#[tokio::test]
async fn a_changed_character_anywhere_is_refused() {
    both_ways(async |node| {
        let mut client = node.dial().await;
        for name in [SIGNATURE_INPUT, SIGNATURE, CONTENT_DIGEST] {
            let good = report(&node);
            let text = good.headers()[name].to_str().unwrap().to_owned();
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
                let mut request = good.clone();
                request.headers_mut().insert(name, HeaderValue::from_bytes(&bytes).unwrap());
                let status = call(&mut client, request).await.status().as_u16();
                assert!([401, 403].contains(&status), "{name} changed at {at} gives {status}: {text}");
            }
        }
        node.survives().await;
    })
    .await;
}

/// What was seen before a start is forgotten, so nothing from before it counts.
#[tokio::test]
async fn a_request_from_before_the_start_is_refused() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let old = report(&node);
    let _: Acked = decoded(&node.send(old.clone()).await).unwrap();
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let problem = refused(&node.send(old).await, Code::Skewed);
    assert!(problem.server_time.is_some(), "the agent signs anew by it");
    let _: Answer = node.check_in(&quiet()).await.unwrap();
}
