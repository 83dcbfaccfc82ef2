//! IDN-2, IDN-11: a renewal gives the open connection up only for one that is made. A host whose clock is years ahead
//! verifies no new one: it goes on over the one that it has, and dials anew later. IDN-8: where whoever is there may be
//! believed no more, it is given up at once, and so is one that was being made.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::session::{CallError, NodeSession, SessionCredentials, Signer};
use model::CertificateValidity;
use model::exchange::{Acked, Report};
use model::log::Cursor;
use net::ServerUrl;
use net::accept::Connection;
use net::client::ClientError;
use net::tls::ClientKey;
use test_support::agent_links::fleet;
use test_support::scripted::{ScriptedControl, json, key, now};
use test_support::wait::soon;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
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

/// IDN-8: whoever is there may be believed no more.
#[tokio::test]
async fn unless_it_is_given_up() {
    let control = ScriptedControl::start(&["127.0.0.1"], |_, _| {
        json(&Acked { acked: Cursor { incarnation: "i1".parse().unwrap(), seq: 0 } })
    })
    .await;
    let key = Arc::new(key(1));
    let signer = Signer::new(fleet(), key.public().node_id(), key, TlsTermination::ControlPlane);
    let session = NodeSession::new(credentials(&control), signer);
    report(&session).await.unwrap();
    control.certify(ended());
    session.renew(credentials(&control));
    report(&session).await.unwrap();
    session.give_up();
    let refused = report(&session).await.unwrap_err();
    assert!(matches!(refused, CallError::Reach(ClientError::ServerCertificateEnded { .. })), "{refused:?}");
}

/// A way to a server on which nothing passes before it is let.
struct HeldWay {
    url: ServerUrl,
    made: watch::Receiver<usize>,
    open: watch::Sender<bool>,
}

impl HeldWay {
    async fn to(there: ServerUrl) -> HeldWay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (count, made) = watch::channel(0);
        let (open, opened) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                count.send_modify(|made| *made += 1);
                let (there, mut opened) = (there.authority(), opened.clone());
                tokio::spawn(async move {
                    opened.wait_for(|open| *open).await.ok()?;
                    let mut far = TcpStream::connect(there).await.ok()?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok()
                });
            }
        });
        HeldWay { url, made, open }
    }
}

/// The thief of a CA may hold a handshake up until the node has heard that the CA counts no more.
#[tokio::test]
async fn one_that_is_being_made_is_of_the_credentials_of_now() {
    let control = ScriptedControl::start(&["127.0.0.1"], |_, _| {
        json(&Acked { acked: Cursor { incarnation: "i1".parse().unwrap(), seq: 0 } })
    })
    .await;
    let mut way = HeldWay::to(control.url()).await;
    let over = |url: &ServerUrl| SessionCredentials { urls: vec![url.clone()], ..credentials(&control) };
    let key = Arc::new(key(1));
    let signer = Signer::new(fleet(), key.public().node_id(), key, TlsTermination::ControlPlane);
    let session = Arc::new(NodeSession::new(over(&way.url), signer));
    let calling = session.clone();
    let call = tokio::spawn(async move { report(&calling).await });
    soon(way.made.wait_for(|made| *made == 1)).await.unwrap();
    session.renew(over(&way.url));
    session.give_up();
    way.open.send_replace(true);
    soon(call).await.unwrap().unwrap();
    assert_eq!(*way.made.borrow(), 2, "the one that was dialled before is not used");
    report(&session).await.unwrap();
    assert_eq!(*way.made.borrow(), 2, "it stays");
}
