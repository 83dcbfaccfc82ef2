//! IDN-7: both sides take a certificate up to 60 s before it begins and after it ends, and not later.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::{CertificateValidity, Timestamp};
use net::issue::{Ca, CertificateRequest, node_request, node_validity, own_validity};
use net::tls::{self, ClientAuth, ClientKey};
use rustls_pki_types::ServerName;
use test_support::tls_server::now;
use test_support::wait::soon;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trust::SigningKey;

const DAY: Duration = Duration::from_secs(86_400);

/// One that ended so many seconds ago, or begins in so many.
fn ended(secs: u64) -> CertificateValidity {
    let until = now().minus(Duration::from_secs(secs));
    CertificateValidity { from: until.minus(DAY), until }
}

fn begins(secs: u64) -> CertificateValidity {
    // What a CA makes begins earlier than it says.
    let span = DAY;
    CertificateValidity::starting(now().plus(Duration::from_secs(secs) + span / 24), span)
}

/// Whether a session is had by these certificates, as both sides see it.
async fn session(server: CertificateValidity, node: CertificateValidity) -> Result<(), String> {
    let (ca, _) = Ca::generate("test", Timestamp(now().0 - 86_400_000 * 99)).unwrap();
    let own = ca.issue_server(&["127.0.0.1".to_owned()], [1; 16], server).unwrap();
    let server = tls::server(&own.cert_pem, &own.key_pem, ca.cert_pem(), ca.cert_pem(), ClientAuth::Required);
    let (key, hostname) = (SigningKey::from_seed(&[2; 32]), "web-1".parse().unwrap());
    let request = CertificateRequest::read(&node_request(&key, &hostname).unwrap()).unwrap();
    let cert = ca.issue_node(&request, &key.public().node_id(), &hostname, [2; 16], node).unwrap();
    let client = tls::client(ca.cert_pem(), &cert, ClientKey::Node(&key)).unwrap();
    let (near, far) = tokio::io::duplex(65_536);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let near = async {
        let mut session = TlsConnector::from(client).connect(name, near).await?;
        // What the server thinks of the client comes after the handshake.
        session.read_u8().await.map(drop)
    };
    let far = async {
        let mut session = TlsAcceptor::from(server.unwrap()).accept(far).await?;
        session.write_u8(1).await?;
        session.flush().await
    };
    let (near, far) = soon(async { tokio::join!(near, far) }).await;
    near.and(far).map_err(|error| error.to_string())
}

#[tokio::test]
async fn of_a_minute_at_both_ends_on_both_sides() {
    let (server, node) = (own_validity(now()), node_validity(now()));
    session(server, node).await.unwrap();
    for near in [ended(50), begins(50)] {
        session(near, node).await.unwrap();
        session(server, near).await.unwrap();
    }
    assert!(session(ended(90), node).await.unwrap_err().contains("expired"));
    assert!(session(server, ended(90)).await.unwrap_err().contains("CertificateExpired"));
    assert!(session(server, begins(90)).await.is_err());
}
