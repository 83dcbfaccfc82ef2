//! IDN-4: a node whose clock is an hour off is told the control plane's time in the refusal,
//! signs with the offset and goes on by itself; and it is not locked out once its clock is
//! put right.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};

use agent::session::{CallError, MAX_PROXIED_OFFSET, NodeSession, SessionCredentials, Signer};
use http::request::Parts;
use model::Timestamp;
use model::exchange::{Acked, Answer, Report};
use model::log::Cursor;
use model::time::SLACK;
use net::client::ClientError;
use net::tls::ClientKey;
use test_support::agent_links::fleet;
use test_support::scripted::{AsSent, Reply, ScriptedControl, json, key, now, problem};
use trust::token::TlsTermination;
use wire::signature::{self, SignatureError};
use wire::{Code, Problem, route};

/// A control plane whose clock differs from this host's, and what it saw.
#[derive(Clone, Default)]
struct Server {
    ahead_ms: Arc<Mutex<i64>>,
    refused: Arc<Mutex<usize>>,
    accepted: Arc<Mutex<Vec<u64>>>,
}

impl Server {
    fn time(&self) -> Timestamp {
        Timestamp(now().0 + *self.ahead_ms.lock().unwrap())
    }

    fn answer(&self, parts: &Parts) -> Reply {
        let signed = signature::parse(&parts.headers).unwrap();
        let body = parts.extensions.get::<AsSent>().unwrap().0.clone();
        let verified = signed.verify(&parts.method, &parts.uri, &fleet(), &key(1).public(), self.time());
        match verified.and_then(|signed| signed.holds(&body)) {
            Ok(()) => {
                self.accepted.lock().unwrap().push(signed.nonce);
                json(&Acked { acked: Cursor { incarnation: "i1".parse().unwrap(), seq: 0 } })
            }
            Err(error @ SignatureError::Skew { .. }) => {
                *self.refused.lock().unwrap() += 1;
                let mut told = Problem::new(Code::Skewed, error.to_string());
                told.server_time = Some(self.time());
                problem(&told)
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn session(control: &ScriptedControl) -> NodeSession {
    session_through(control, TlsTermination::ControlPlane)
}

fn session_through(control: &ScriptedControl, tls_termination: TlsTermination) -> NodeSession {
    let key = Arc::new(key(1));
    let cert = control.certificate(&key, &"web-1".parse().unwrap());
    let tls = net::tls::client(control.ca().cert_pem(), &cert, ClientKey::Node(&key)).unwrap();
    NodeSession::new(
        SessionCredentials { urls: vec![control.url()], proxy: None, tls, number: 0 },
        Signer::new(fleet(), key.public().node_id(), key, tls_termination),
    )
}

async fn report(session: &NodeSession) -> Result<Acked, CallError> {
    session.post(route::REPORT, &Report { incarnation: "i1".parse().unwrap(), facts: Vec::new() }).await
}

#[tokio::test]
async fn an_hour_either_way_is_overcome_in_one_call() {
    const HOUR: i64 = 3_600_000;
    for ahead in [HOUR, -HOUR, 0, 70_000, -70_000] {
        let server = Server::default();
        *server.ahead_ms.lock().unwrap() = ahead;
        let seen = server.clone();
        let control = ScriptedControl::start(&["127.0.0.1"], move |parts, _| seen.answer(parts)).await;
        let session = session(&control);
        for _ in 0..5 {
            report(&session).await.unwrap();
        }
        let refused = *server.refused.lock().unwrap();
        assert_eq!(refused, usize::from(ahead != 0), "{ahead} ms: it learns the time once");
        let accepted = server.accepted.lock().unwrap().clone();
        assert!(accepted.is_sorted_by(|a, b| a < b), "its numbers only rise: {accepted:?}");
        let offset = server.time().0 - session.server_time().0;
        assert!(offset.abs() < 5_000, "it goes by the server's time, off by {offset} ms");
        // Numbers that were spent lie near the server's time: an agent that starts anew with
        // its clock put right is not taken for a replay, but for a moment.
        let moment = u64::try_from(server.time().plus(SLACK * 2).0).unwrap() * 1000;
        assert!(
            accepted.iter().all(|number| *number < moment),
            "{ahead} ms: {accepted:?} not below {moment}"
        );
    }
}

/// CNV-12: an answer on a link tells the control plane's time; a proxy's does not count beyond what a proxy may
/// say, and an older control plane's says nothing: then the clocks were not compared.
#[tokio::test]
async fn an_answer_on_a_link_tells_the_server_s_time() {
    let key = Arc::new(key(1));
    let minutes = |minutes: i64| Some(Timestamp(now().0 + minutes * 60_000));
    for (what, tls_termination, said, counts) in [
        ("what it says", TlsTermination::ControlPlane, minutes(60), true),
        ("what it says, behind", TlsTermination::ControlPlane, minutes(-60), true),
        ("an older control plane", TlsTermination::ControlPlane, None, false),
        ("a proxy, near", TlsTermination::Proxy, minutes(4), true),
        ("a proxy, far", TlsTermination::Proxy, minutes(60), false),
    ] {
        let signer = Signer::new(fleet(), key.public().node_id(), key.clone(), tls_termination);
        let mut answer: Answer = serde_json::from_str(r#"{"nextCheckinSecs":60}"#).unwrap();
        answer.server_time = said;
        assert_eq!(signer.time_on_link(&answer), said.filter(|_| counts), "{what}");
    }
}

/// A proxy could keep what is signed for a time to come, and deliver it then.
#[tokio::test]
async fn a_proxy_moves_the_time_by_minutes_alone() {
    let bound = i64::try_from(MAX_PROXIED_OFFSET.as_millis()).unwrap();
    for ahead in [3_600_000, -3_600_000, bound + 10_000] {
        let server = Server::default();
        *server.ahead_ms.lock().unwrap() = ahead;
        let seen = server.clone();
        let control = ScriptedControl::start(&["127.0.0.1"], move |parts, _| seen.answer(parts)).await;
        let session = session_through(&control, TlsTermination::Proxy);
        for _ in 0..2 {
            let error = report(&session).await.unwrap_err();
            let CallError::ClockOff { offset_secs } = error else { panic!("{error:?}") };
            assert!((offset_secs * 1000 - ahead).abs() < 5_000, "{offset_secs} s of {ahead} ms");
            assert!(error.to_string().contains("set this host's clock"), "{error}");
            let moved = (session.server_time().0 - now().0).abs();
            assert!(moved < 5_000, "it goes by its own clock, moved by {moved} ms");
        }
        assert_eq!(*server.refused.lock().unwrap(), 2, "nothing was signed for another time");
    }
    let server = Server::default();
    *server.ahead_ms.lock().unwrap() = bound - 10_000;
    let seen = server.clone();
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, _| seen.answer(parts)).await;
    report(&session_through(&control, TlsTermination::Proxy)).await.unwrap();
}

/// An agent that starts anew with a clock that was set back goes on from the number that the
/// control plane would take; one that is refused without end gives up.
#[tokio::test]
async fn a_replay_s_refusal_says_where_to_go_on() {
    let highest = Arc::new(Mutex::new(u64::try_from(now().plus(SLACK).0).unwrap() * 1000));
    let asked = Arc::new(Mutex::new(0));
    let (seen, count) = (highest.clone(), asked.clone());
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, _| {
        *count.lock().unwrap() += 1;
        let signed = signature::parse(&parts.headers).unwrap();
        let mut highest = seen.lock().unwrap();
        if signed.nonce > *highest {
            *highest = signed.nonce;
            return json(&Acked { acked: Cursor { incarnation: "i1".parse().unwrap(), seq: 0 } });
        }
        let mut told = Problem::new(Code::Replayed, "seen");
        told.next_number = Some(*highest + 1);
        problem(&told)
    })
    .await;
    let session = session(&control);
    for _ in 0..3 {
        report(&session).await.unwrap();
    }
    assert_eq!(*asked.lock().unwrap(), 4, "it learns once");
    *highest.lock().unwrap() = u64::MAX - 1;
    for _ in 0..2 {
        let refused = report(&session).await.unwrap_err();
        assert!(matches!(&refused, CallError::Refused(problem) if problem.code == "replayed"), "{refused:?}");
    }
}

/// A server that names a time and refuses that one too is not asked for ever.
#[tokio::test]
async fn a_server_that_is_never_content_is_given_up() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let control = ScriptedControl::start(&["127.0.0.1"], move |_, _| {
        *count.lock().unwrap() += 1;
        let mut told = Problem::new(Code::Skewed, "never");
        // The latest time that can be written.
        told.server_time = Some("9999-12-01T00:00:00Z".parse().unwrap());
        problem(&told)
    })
    .await;
    let session = session(&control);
    for calls in 1..=3 {
        let refused = report(&session).await.unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(problem) if problem.code == "clock-skew"),
            "{refused:?}"
        );
        assert_eq!(*asked.lock().unwrap(), calls * 2);
    }
}

/// One of several control planes is enough (WIR-7).
#[tokio::test]
async fn the_next_url_is_tried_after_one_that_does_not_answer() {
    let server = Server::default();
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, _| server.answer(parts)).await;
    let dead = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("https://{}", dead.local_addr().unwrap()).parse().unwrap();
    drop(dead);
    let key = Arc::new(key(1));
    let cert = control.certificate(&key, &"web-1".parse().unwrap());
    let tls = net::tls::client(control.ca().cert_pem(), &cert, ClientKey::Node(&key)).unwrap();
    let id = key.public().node_id();
    let signer = Signer::new(fleet(), id, key, TlsTermination::ControlPlane);
    let session = NodeSession::new(
        SessionCredentials { urls: vec![nobody, control.url()], proxy: None, tls, number: 0 },
        signer,
    );
    let first = report(&session).await.unwrap_err();
    assert!(matches!(first, CallError::Reach(ClientError::Dial { .. })), "{first:?}");
    for _ in 0..3 {
        report(&session).await.unwrap();
    }
}
