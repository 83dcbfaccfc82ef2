//! IDN-4, SYN-1, ENR-1: an agent behind a proxy that ends TLS joins, adopts a release, has objects
//! synchronized both ways and does what it is asked for, over server-sent events and over polls; it
//! asks for no stream of two ways, and its status says how it reaches the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agent::join::{JoinBy, JoinError, JoinProxy, JoinRequest, join};
use model::replication::{Mode, TransportPolicy};
use net::client::ClientError;
use test_support::agent_pair::{NODE, Pair, item, says};
use test_support::fleet::proxy::Forwarder;
use test_support::fleet::{Fleet, new_key};
use test_support::wait::until;
use trust::token::{self, Claims, TlsTermination};

const FOLDER: &str = "/srv/manifests";

async fn down(transport: TransportPolicy, transport_kind: &str) {
    let says = says(Mode::Managed, None, transport).delegating(&[&["/bin/echo", "**"]]);
    let mut pair = Pair::reaching(&says, TlsTermination::Proxy).await;
    let daemon = pair.daemon();
    pair.apply(vec![item("a", "one"), item("b", "two")]).await;
    until("two objects are on the node", async || (pair.status()["replicaObjects"] == 2).then_some(())).await;
    let task = pair.begin(&["/bin/echo", "it", "works"]).await;
    let task = pair.task_over(&task.id).await;
    assert_eq!(task.summary.progress.succeeded, 1, "{task:?}");
    assert_eq!(pair.output(&task.id).await, "it works\n");
    let log = daemon.log();
    assert!(log.contains(&format!("transport_kind=\"{transport_kind}\"")), "{log}");
    for other in ["grpc", "websocket"] {
        assert!(!log.contains(&format!("transport_kind=\"{other}\"")), "{log}");
    }
    let status: serde_json::Value =
        serde_json::from_slice(&pair.agent(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["tlsTermination"], "proxy");
    assert!(status["release"]["seq"] == 1, "{status}");
    let text = String::from_utf8(pair.agent(&["status"]).stdout).unwrap();
    assert!(text.contains("ends at a proxy"), "{text}");
    assert!(daemon.end().await.success());
}

/// A proxy's certificate is under the CA of the fleet, and yet not the control plane's.
#[tokio::test(flavor = "multi_thread")]
async fn who_ends_tls_is_whom_the_token_names() {
    let fleet = Fleet::start().await;
    let proxy = Forwarder::start(&fleet).await;
    for (servers, tls_termination, says) in [
        (&proxy.url, TlsTermination::ControlPlane, "the server shows a proxy's certificate"),
        (&fleet.url(), TlsTermination::Proxy, "the server shows no proxy's certificate"),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let claims = Claims {
            servers: vec![servers.to_string()],
            tls_termination,
            expected_pubkey_fingerprint: Some(new_key().public().fingerprint()),
            ..fleet.claims(NODE)
        };
        let asked = JoinRequest {
            by: JoinBy::Token { token: token::mint(&claims, &fleet.root_key()).unwrap(), file: None },
            hostname: None,
            root: Some("/nowhere".into()),
            allow_exec: false,
            patience: std::time::Duration::ZERO,
            proxy: JoinProxy::Chosen(None),
        };
        let error = join(asked, &temp.path().join("state")).await.unwrap_err();
        let JoinError::Reach(ClientError::Handshake { source, .. }) = &error else { panic!("{error:?}") };
        assert!(source.to_string().contains(says), "{source}");
    }
}

async fn up(transport: TransportPolicy) {
    let says = says(Mode::Autonomous, Some(FOLDER), transport);
    let mut pair = Pair::reaching(&says, TlsTermination::Proxy).await;
    let folder = pair.root().join("srv/manifests");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.json"), item("a", "one").to_string()).unwrap();
    let _daemon = pair.daemon();
    until("the object is at the control plane", async || pair.object("a").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn down_over_server_sent_events() {
    down(TransportPolicy::Sse, "sse").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn down_by_polling() {
    down(TransportPolicy::Poll, "poll").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn down_by_itself() {
    down(TransportPolicy::Auto, "sse").await;
}

/// A channel that insists on a stream which cannot be had: polls bring what there is.
#[tokio::test(flavor = "multi_thread")]
async fn down_where_the_channel_names_another_stream() {
    down(TransportPolicy::Grpc, "poll").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_over_server_sent_events() {
    up(TransportPolicy::Sse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_by_polling() {
    up(TransportPolicy::Poll).await;
}
