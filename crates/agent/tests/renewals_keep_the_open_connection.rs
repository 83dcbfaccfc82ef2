//! IDN-2, IDN-11: a renewal gives the open connection up only for one that is made. A host whose clock is years ahead
//! verifies no new one: it goes on over the one that it has, and dials anew later.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::session::{CallError, NodeSession, SessionCredentials, Signer};
use model::CertificateValidity;
use model::exchange::{Acked, Report};
use model::log::Cursor;
use net::accept::Connection;
use net::client::ClientError;
use net::tls::ClientKey;
use test_support::agent_links::fleet;
use test_support::scripted::{ScriptedControl, json, key, now};
use trust::token::TlsTermination;
use wire::route;

const DAY: Duration = Duration::from_secs(86_400);

/// What a host whose clock is years ahead takes every certificate for.
fn ended() -> CertificateValidity {
    CertificateValidity { from: now().minus(DAY * 2), until: now().minus(DAY) }
}

fn credentials(control: &ScriptedControl) -> SessionCredentials {
    let key = Arc::new(key(1));
    let cert = control.certificate(&key, &"web-1".parse().unwrap());
    let tls = net::tls::client(control.ca().cert_pem(), &cert, ClientKey::Node(&key)).unwrap();
    SessionCredentials { urls: vec![control.url()], proxy: None, tls, number: 0 }
}

async fn report(session: &NodeSession) -> Result<Acked, CallError> {
    session.post(route::REPORT, &Report { incarnation: "i1".parse().unwrap(), facts: Vec::new() }).await
}

#[tokio::test]
async fn until_another_one_is_made() {
    let connections: Arc<Mutex<BTreeSet<SocketAddr>>> = Arc::default();
    let seen = connections.clone();
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, _| {
        seen.lock().unwrap().insert(parts.extensions.get::<Connection>().unwrap().address);
        json(&Acked { acked: Cursor { incarnation: "i1".parse().unwrap(), seq: 0 } })
    })
    .await;
    let made = || connections.lock().unwrap().len();
    let key = Arc::new(key(1));
    let signer = Signer::new(fleet(), key.public().node_id(), key, TlsTermination::ControlPlane);
    let session = NodeSession::new(credentials(&control), signer);
    report(&session).await.unwrap();

    control.certify(ended());
    session.renew(credentials(&control));
    for _ in 0..3 {
        report(&session).await.unwrap();
    }
    assert_eq!(made(), 1, "it goes on");

    control.certify(net::issue::own_validity(now()));
    report(&session).await.unwrap();
    assert_eq!(made(), 1, "it dials no more often than it may");
    session.renew(credentials(&control));
    for _ in 0..3 {
        report(&session).await.unwrap();
    }
    assert_eq!(made(), 2, "one that is made takes its place");

    // Where the host was joined to another place the connection of before is of no use.
    control.certify(ended());
    let elsewhere = SessionCredentials { urls: vec![control.url(); 2], ..credentials(&control) };
    session.renew(elsewhere);
    let refused = report(&session).await.unwrap_err();
    assert!(matches!(refused, CallError::Reach(ClientError::ServerCertificateEnded { .. })), "{refused:?}");
}
