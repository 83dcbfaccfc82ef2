//! IDN-8: a CA is its key. Who believes keys takes a certificate that one of them signed, whatever the CA's own certificate
//! says; not one of another CA that has the same name, nor one that is shown beside a certificate with the key alone, nor
//! what was issued before certificates of these keys count.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use model::Timestamp;
use net::accept::{AcceptLimits, serve};
use net::client::{Client, ClientError};
use net::issue::{Ca, CertificateRequest, node_request, node_validity, own_validity};
use net::tls::{self, ClientAuth, ClientKey};
use net::{BelievedAuthority, ServerUrl};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use trust::token::TlsTermination;
use trust::{SigningKey, Slots};

fn today() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_secs(i64::try_from(since.as_secs()).unwrap())
}

fn ca() -> Ca {
    Ca::generate("one name", today()).unwrap().0
}

/// A server certified by one CA, which shows the certificate of another behind its own.
fn config(issuer: &Ca, shown: &Ca) -> Arc<ServerConfig> {
    let own = issuer.issue_server(&["127.0.0.1".to_owned()], [7; 16], own_validity(today())).unwrap();
    let pem = shown.cert_pem();
    tls::server(&own.cert_pem, &own.key_pem, pem, pem, ClientAuth::Optional).unwrap()
}

async fn start(config: Arc<ServerConfig>) -> (ServerUrl, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (stop, tls) = (watch::Sender::new(false), watch::Sender::new(config));
    let shutdown = stop.subscribe();
    tokio::spawn(async move {
        serve(listener, tls.subscribe(), AcceptLimits::default(), shutdown, |_| async {
            Response::new(Full::new(Bytes::new()))
        })
        .await;
    });
    (url, stop)
}

async fn dial(url: &ServerUrl, slots: Slots) -> Result<Client, ClientError> {
    let authority = BelievedAuthority::named(slots);
    let tls = tls::client_without_certificate(authority, TlsTermination::ControlPlane).unwrap();
    Client::dial(url, tls).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_believed_by_the_key_that_signed_its_certificate() {
    let (first, second, thief) = (ca(), ca(), ca());
    let (url, _stop) = start(config(&first, &first)).await;
    let keys = |current: &Ca, previous: Option<&Ca>| Slots {
        previous: previous.map(|ca| *ca.key()),
        ..Slots::of(*current.key())
    };
    dial(&url, keys(&first, None)).await.unwrap();
    dial(&url, keys(&second, Some(&first))).await.unwrap();
    let foreign = |dialled| matches!(dialled, Err(ClientError::ForeignServer { .. }));
    assert!(foreign(dial(&url, keys(&second, None)).await));
    // The certificate of a CA that is believed proves nothing beside one that another CA of that name signed.
    let (url, _stop) = start(config(&thief, &first)).await;
    assert!(foreign(dial(&url, keys(&first, Some(&second))).await));
    Client::dial(&url, tls::client_of_anybody().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_issued_before_a_time_counts_no_more() {
    let ca = ca();
    let (url, _stop) = start(config(&ca, &ca)).await;
    let from = |at: Timestamp| Slots { reject_before: Some(at), ..Slots::of(*ca.key()) };
    dial(&url, from(today().minus(Duration::from_secs(60)))).await.unwrap();
    let refused = dial(&url, from(today().plus(Duration::from_secs(60)))).await;
    assert!(matches!(refused, Err(ClientError::ForeignServer { .. })));
}

#[test]
fn a_node_knows_which_ca_issued_its_certificate() {
    let (first, second) = (ca(), ca());
    let key = SigningKey::from_seed(&[3; 32]);
    let (id, hostname) = (key.public().node_id(), "web-1".parse().unwrap());
    let request = CertificateRequest::read(&node_request(&key, &hostname).unwrap()).unwrap();
    let cert = first.issue_node(&request, &id, &hostname, [3; 16], node_validity(today())).unwrap();
    let by = |authority: BelievedAuthority| authority.certifies(&cert).unwrap();
    assert!(by(BelievedAuthority::named(Slots::of(*first.key()))));
    assert!(!by(BelievedAuthority::named(Slots::of(*second.key()))));
    assert!(by(BelievedAuthority::Certificates(first.cert_pem().to_owned())));
    assert!(by(BelievedAuthority::Certificates(format!("{}{}", second.cert_pem(), first.cert_pem()))));
    assert!(BelievedAuthority::named(Slots::of(*first.key())).has_certificate(first.cert_pem()));
    assert!(!BelievedAuthority::named(Slots::of(*first.key())).has_certificate(second.cert_pem()));
    tls::client_believing(BelievedAuthority::Digest(first.digest()), &cert, ClientKey::Node(&key)).unwrap();
}

/// A CA's files that do not go together are refused when they are read.
#[test]
fn a_ca_whose_key_is_another_is_not_loaded() {
    let (_, files) = Ca::generate("one", today()).unwrap();
    let (_, others) = Ca::generate("one", today()).unwrap();
    assert!(Ca::load(&files.cert_pem, &others.key_pem).is_err());
    assert!(Ca::load(&files.cert_pem, &files.key_pem[..40]).is_err());
    assert!(Ca::load(&files.cert_pem, &files.key_pem).is_ok());
}
