//! IDN-6: a certificate that is revoked opens no session, and its holder learns why; a session that is open is cut. One
//! that is issued afterwards counts, and so do those of others.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use model::{CertificateValidity, Hostname, Timestamp};
use net::ServerUrl;
use net::accept::{AcceptLimits, serve};
use net::client::{Client, ClientError};
use net::issue::{Ca, CertificateRequest, node_request};
use net::revoked::{BelievedIssuers, RevokedCertificates};
use net::tls::{self, BelievedClients, ClientAuth, ClientKey};
use test_support::wait::eventually;
use tokio::net::TcpListener;
use tokio::sync::watch;
use trust::SigningKey;

const PATIENCE: Duration = Duration::from_secs(20);

fn today() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_secs(i64::try_from(since.as_secs()).unwrap())
}

struct Server {
    url: ServerUrl,
    ca: Ca,
    revoked: RevokedCertificates,
    _stop: watch::Sender<bool>,
}

async fn start() -> Server {
    let (ca, _) = Ca::generate("test", today()).unwrap();
    let validity = net::issue::own_validity(today());
    let own = ca.issue_server(&["127.0.0.1".to_owned()], [7; 16], validity).unwrap();
    let (ca_pem, revoked) = (ca.cert_pem().to_owned(), RevokedCertificates::default());
    let (auth, reject_before) = (ClientAuth::Optional, None);
    let clients = BelievedClients { ca_pem: &ca_pem, auth, revoked: revoked.clone(), reject_before };
    let config = tls::server_believing(&own.cert_pem, &own.key_pem, &ca_pem, clients).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let stop = watch::Sender::new(false);
    let (tls, shutdown) = (watch::Sender::new(config), stop.subscribe());
    let limits = AcceptLimits { revoked: revoked.clone(), ..AcceptLimits::default() };
    tokio::spawn(async move {
        serve(listener, tls.subscribe(), limits, shutdown, |request| async move {
            if request.uri().path() == "/held" {
                std::future::pending::<()>().await;
            }
            Response::new(Full::new(Bytes::from_static(b"hello")))
        })
        .await;
    });
    Server { url, ca, revoked, _stop: stop }
}

impl Server {
    /// A session of a host, with a certificate that was issued then and counts for so long.
    async fn connect(&self, host: &str, issued: Timestamp, span: Duration) -> Result<Client, ClientError> {
        let (key, hostname) = (SigningKey::from_seed(&[1; 32]), host.parse::<Hostname>().unwrap());
        let request = CertificateRequest::read(&node_request(&key, &hostname).unwrap()).unwrap();
        let id = key.public().node_id();
        let validity = CertificateValidity::starting(issued, span);
        let cert = self.ca.issue_node(&request, &id, &hostname, [1; 16], validity).unwrap();
        let tls = tls::client(self.ca.cert_pem(), &cert, ClientKey::Node(&key)).unwrap();
        let mut client = Client::dial(&self.url, tls).await?;
        self.ask(&mut client, "/").await?;
        Ok(client)
    }

    async fn ask(&self, client: &mut Client, path: &str) -> Result<Response<Bytes>, ClientError> {
        let ask = Request::get(format!("{}{path}", self.url)).body(Full::default()).unwrap();
        client.call(ask, 1024, PATIENCE).await
    }

    fn revoke(&self, host: &str, not_before: Timestamp) {
        self.revoked.replace(BTreeMap::from([(host.parse().unwrap(), not_before)]));
    }
}

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

#[tokio::test(flavor = "multi_thread")]
async fn its_holder_is_cut_and_learns_why() {
    let (server, issued) = (start().await, today().minus(Duration::from_secs(10)));
    let mut idle = server.connect("web-1", issued, MONTH).await.unwrap();
    let mut held = server.connect("web-1", issued, MONTH).await.unwrap();
    let mut other = server.connect("web-2", issued, MONTH).await.unwrap();
    let asked = {
        let ask = Request::get(format!("{}/held", server.url)).body(Full::default()).unwrap();
        tokio::spawn(async move { held.call(ask, 1024, PATIENCE).await })
    };
    server.revoke("web-1", today());
    assert!(asked.await.unwrap().is_err(), "a request that is held is cut");
    eventually("an idle session is cut", || idle.is_closed()).await;
    assert!(server.ask(&mut idle, "/").await.is_err());
    assert_eq!(server.ask(&mut other, "/").await.unwrap().status(), 200);
    // However often, the reason is there: it is read before the connection is closed.
    for _ in 0..20 {
        let error = server.connect("web-1", issued, MONTH).await.expect_err("it is revoked");
        assert!(matches!(error, ClientError::CertificateRevoked { .. }), "{error:?}");
    }
    assert!(server.connect("web-1", today(), MONTH).await.is_ok(), "of afterwards");
    assert!(server.connect("web-2", issued, MONTH).await.is_ok(), "of another host");
    server.revoke("web-3", today());
    assert!(server.connect("web-1", issued, MONTH).await.is_ok(), "revoked no more");
}

/// Certificates begin to count before they are issued, for clocks that are behind: what counts is when they were issued.
#[tokio::test]
async fn it_is_judged_by_when_it_was_issued() {
    let server = start().await;
    let now = today();
    for span in [60, 3600, 24 * 3600, 25 * 3600, 30 * 24 * 3600] {
        let span = Duration::from_secs(span);
        server.revoke("web-1", now.minus(Duration::from_secs(20)));
        assert!(server.connect("web-1", now.minus(Duration::from_secs(18)), span).await.is_ok(), "{span:?}");
        assert!(server.connect("web-1", now.minus(Duration::from_secs(25)), span).await.is_err(), "{span:?}");
    }
}

/// IDN-8: a connection that was opened with a certificate of a CA that counts no more ends, as does one of before the time
/// from which certificates count. Those of the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_counts_no_more_cuts_what_it_opened() {
    let (server, issued) = (start().await, today().minus(Duration::from_secs(10)));
    let mut idle = server.connect("web-1", issued, MONTH).await.unwrap();
    let (other, _) = Ca::generate("test 2", today()).unwrap();
    let both = format!("{}{}", server.ca.cert_pem(), other.cert_pem());
    let believe = |ca_pem: &str, reject_before| {
        server.revoked.believe(BelievedIssuers::of(ca_pem, reject_before, Duration::ZERO).unwrap());
    };
    believe(&both, None);
    assert_eq!(server.ask(&mut idle, "/").await.unwrap().status(), 200, "it counts beside another");
    believe(&both, Some(today().minus(Duration::from_secs(5))));
    eventually("one of before the time is cut", || idle.is_closed()).await;
    believe(&both, None);
    let mut idle = server.connect("web-1", issued, MONTH).await.unwrap();
    let mut held = server.connect("web-2", issued, MONTH).await.unwrap();
    // Cuts of nodes are spread over a time; that of a revoked one is at once all the same.
    let long = BelievedIssuers::of(other.cert_pem(), None, Duration::from_secs(36_000)).unwrap();
    server.revoked.believe(long);
    assert_eq!(server.ask(&mut held, "/").await.unwrap().status(), 200, "it is not its turn yet");
    server.revoke("web-2", today());
    eventually("a revoked one is cut", || held.is_closed()).await;
    assert_eq!(server.ask(&mut idle, "/").await.unwrap().status(), 200);
    believe(other.cert_pem(), None);
    let opened_since = server.connect("web-3", issued, MONTH).await;
    assert!(opened_since.is_err() || eventually_closed(opened_since.unwrap()).await);
}

async fn eventually_closed(client: Client) -> bool {
    eventually("what was opened meanwhile is cut", || client.is_closed()).await;
    true
}
