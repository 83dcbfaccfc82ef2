//! IDN-11: a client whose clock is slow believes a certificate of its CA that is valid only later, and
//! one whose clock runs ahead is told of its clock; neither believes another CA.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::{Digest, Timestamp};
use net::client::{Client, ClientError};
use net::issue::Ca;
use net::tls::{self, ClientAuth};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use test_support::wait::soon;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trust::token::TlsTermination;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn now() -> Timestamp {
    Timestamp::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap())
}

/// The configurations of a server whose certificate was issued at this time, and of a client that pins a CA.
fn configurations(
    issued: Timestamp,
    pinned: impl Fn(&Ca) -> Digest,
) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let (ca, _) = Ca::generate("test", issued).unwrap();
    let own = ca.issue_server(&["127.0.0.1".to_owned()], [1; 16], net::issue::own_validity(issued)).unwrap();
    let server = tls::server(&own.cert_pem, &own.key_pem, ca.cert_pem(), ca.cert_pem(), ClientAuth::Optional);
    (server.unwrap(), tls::client_pinned(pinned(&ca), TlsTermination::ControlPlane).unwrap())
}

/// What a client that pins a CA says of a server whose certificate was issued at this time.
async fn handshake(issued: Timestamp, pinned: impl Fn(&Ca) -> Digest) -> Result<(), String> {
    let (server, client) = configurations(issued, pinned);
    let (near, far) = tokio::io::duplex(65_536);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let both = async {
        tokio::join!(TlsConnector::from(client).connect(name, near), TlsAcceptor::from(server).accept(far))
    };
    soon(both).await.0.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn and_a_fast_one_is_named() {
    handshake(now(), Ca::digest).await.unwrap();
    handshake(now().plus(20 * YEAR), Ca::digest).await.unwrap();
    let fast = handshake(now().minus(2 * YEAR), Ca::digest).await.unwrap_err();
    assert!(fast.contains("expired") && fast.contains("this host's clock says 20"), "{fast}");
    assert!(fast.contains(" days ahead of that: is the clock right?"), "{fast}");
    let other = |_: &Ca| Ca::generate("other", now()).unwrap().0.digest();
    for issued in [now(), now().plus(20 * YEAR)] {
        assert!(handshake(issued, other).await.is_err());
    }
}

/// What dials says so by a type of its own, and of no other handshake that fails.
#[tokio::test]
async fn and_the_client_knows_it_by_its_type() {
    for (issued, of_other_ca) in [(now().minus(2 * YEAR), false), (now(), true)] {
        let other = Ca::generate("other", now()).unwrap().0.digest();
        let pinned = |ca: &Ca| if of_other_ca { other } else { ca.digest() };
        let (server, client) = configurations(issued, pinned);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let accept = async { TlsAcceptor::from(server).accept(listener.accept().await.unwrap().0).await };
        let (dialled, _) = soon(async { tokio::join!(Client::dial(&url, client), accept) }).await;
        match dialled.unwrap_err() {
            ClientError::ServerCertificateEnded { source, .. } => {
                assert!(!of_other_ca && source.end < now() && source.clock >= source.end, "{source}");
            }
            ClientError::ForeignServer { .. } => assert!(of_other_ca),
            error => panic!("{error:?}"),
        }
    }
}

/// Anybody on the way can show a certificate that has ended, with the fleet's CA after it: only one that this CA signed
/// says something of the clock.
#[tokio::test]
async fn and_by_a_certificate_of_its_ca_alone() {
    let issued = now().minus(2 * YEAR);
    let (ca, _) = Ca::generate("test", issued).unwrap();
    let (forger, _) = Ca::generate("test", issued).unwrap();
    let own =
        forger.issue_server(&["127.0.0.1".to_owned()], [1; 16], net::issue::own_validity(issued)).unwrap();
    let server = tls::server(&own.cert_pem, &own.key_pem, ca.cert_pem(), ca.cert_pem(), ClientAuth::Optional);
    let client = tls::client_pinned(ca.digest(), TlsTermination::ControlPlane).unwrap();
    let (near, far) = tokio::io::duplex(65_536);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let both = async {
        let accept = TlsAcceptor::from(server.unwrap()).accept(far);
        tokio::join!(TlsConnector::from(client).connect(name, near), accept)
    };
    let error = soon(both).await.0.map(drop).unwrap_err().to_string();
    assert!(!error.contains("clock"), "{error}");
}
