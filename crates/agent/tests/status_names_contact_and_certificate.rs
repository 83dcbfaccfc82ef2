//! LIF-1, IDN-2, CNV-3: `muster-agent status` and the journal name the last contact, what failed since and the
//! next step, also after a restart and without a daemon; a certificate whose renewal is late, or that has ended, is named, and a
//! running daemon takes up the one that `join` writes anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use agent::identity;
use agent::state::StateDir;
use agent::status::{AgentStatusView, ShownResources};
use model::replication::{Mode, TransportPolicy};
use net::issue::{CertificateRequest, NODE_LIFE, node_request};
use serde_json::{Value, json};
use server::{CertificateRecovery, CertificateSettings};
use test_support::agent_local::printed;
use test_support::agent_pair::{NODE, Pair, says};
use test_support::fleet;
use test_support::wait::until;
use trust::SigningKey;
use trust::token::{KeySource, TlsTermination};

async fn pair() -> Pair {
    Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await
}

/// What `status` prints, once it has all of these parts; its exit code.
async fn status(pair: &Pair, parts: &[&str]) -> (Option<i32>, String) {
    until(&format!("status says {parts:?}"), async || {
        let (code, text) = printed(&pair.agent(&["status"]));
        parts.iter().all(|part| text.contains(part)).then_some((code, text))
    })
    .await
}

/// Gives the node a certificate of the fleet that was issued so long ago.
fn certify(pair: &Pair, ago: Duration) {
    let dir = StateDir::create(&pair.state()).unwrap();
    let mut member = dir.membership().unwrap().unwrap();
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let request = CertificateRequest::read(&node_request(&key, &member.hostname).unwrap()).unwrap();
    let from = fleet::now().minus(ago);
    let ca = pair.fleet.node_ca();
    member.cert_pem = ca
        .issue_node(&request, &member.node_id, &member.hostname, [9; 16], net::issue::node_validity(from))
        .unwrap();
    dir.save_membership(&member).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_is_gone_is_named_with_the_last_contact() {
    let mut pair = pair().await;
    let daemon = pair.daemon();
    let (code, _) = status(&pair, &["last contact   2", "release        1 of"]).await;
    assert_eq!(code, Some(0));
    pair.fleet.stop().await;
    let (code, text) = status(&pair, &["; since then FAILED, last 2", "doctor"]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    let log = daemon.log();
    assert_eq!(log.matches("WARN agent::daemon::contact").count(), 1, "{log}");
    until("it is written down", async || {
        let kept = std::fs::read_to_string(pair.state().join("contact.json")).ok()?;
        kept.contains("unreachable").then_some(())
    })
    .await;
    daemon.kill();
    // Nobody asked anew: it is what the last daemon knew.
    let (code, text) = printed(&pair.agent(&["status"]));
    assert_eq!(code, Some(1), "nothing is kept as declared: {text}");
    assert!(text.contains("last contact   2") && text.contains("Connection refused"), "{text}");
    let _daemon = pair.daemon();
    let (code, text) = status(&pair, &["daemon         runs", "Connection refused"]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("last contact   2"), "the contact before the restart: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_removed_is_told_and_comes_back_by_joining() {
    let mut pair = pair().await;
    let daemon = pair.daemon();
    status(&pair, &["last contact   2"]).await;
    let _: Value = pair.operator.delete(&format!("/v1/nodes/{NODE}")).await.unwrap();
    let next = format!("muster token mint {NODE}; then here: muster-agent --state ");
    let (code, text) = status(&pair, &["unknown-node", &next]).await;
    assert_eq!(code, Some(5), "{text}");
    let log = daemon.log();
    let refused: Vec<&str> =
        log.lines().filter(|line| line.contains("the control plane refuses this host")).collect();
    assert!(refused.len() == 1 && refused[0].contains("WARN"), "once: {log}");
    assert!(refused[0].contains("unknown-node") && refused[0].contains("muster token mint"), "{refused:?}");
    let token = pair.fleet.token(NODE);
    let (code, joined) = printed(&pair.agent(&["join", "--token", &token]));
    assert_eq!(code, Some(0), "{joined}");
    assert!(joined.contains("the daemon that runs here takes it up now"), "{joined}");
    until("contacts are answered again", async || {
        let (code, text) = printed(&pair.agent(&["status"]));
        (code == Some(0) && !text.contains("FAILED")).then_some(())
    })
    .await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_named_and_a_new_one_is_taken_up() {
    // Else its key would be enough.
    let recovery = Some(CertificateRecovery::Off);
    let certificates = CertificateSettings { recovery, ..CertificateSettings::default() };
    let mut pair = Pair::certified(&says(Mode::Off, None, TransportPolicy::Auto), certificates).await;
    certify(&pair, NODE_LIFE + Duration::from_secs(24 * 3600));
    let daemon = pair.daemon();
    let mint = format!("muster token mint {NODE}");
    let (code, text) =
        status(&pair, &["CERTIFICATE    EXPIRED 2", "this host's certificate has ended: "]).await;
    assert_eq!(code, Some(5), "{text}");
    assert_eq!(text.matches(&mint).count(), 2, "beside the certificate and the contact: {text}");
    let (_, doctor) = printed(&pair.agent(&["doctor"]));
    assert!(doctor.contains("FAIL  certificate") && doctor.contains(&mint), "{doctor}");
    let log = daemon.log();
    let refused = log.lines().find(|line| line.contains("the control plane refuses this host")).unwrap();
    assert!(refused.contains("WARN") && refused.contains(&mint), "{refused}");

    let token = pair.fleet.token(NODE);
    let (code, joined) = printed(&pair.agent(&["join", "--token", &token]));
    assert_eq!(code, Some(0), "{joined}");
    let (code, text) = status(&pair, &["certificate    ends 2", "release        1 of"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(daemon.log().contains("a new certificate is taken up"), "{}", daemon.log());
    until("the control plane hears what it holds", async || pair.operator.node(NODE).await.held).await;
}

/// Without a daemon nothing renews it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_late_is_named() {
    let pair = pair().await;
    let day = Duration::from_secs(24 * 3600);
    certify(&pair, day * 20);
    let (_, text) = printed(&pair.agent(&["status"]));
    assert!(text.contains("certificate    ends 2") && text.contains("to be renewed 2"), "{text}");
    certify(&pair, day * 23);
    let (_, text) = printed(&pair.agent(&["status"]));
    assert!(text.contains("CERTIFICATE    ends 2") && text.contains("and its renewal is late"), "{text}");
    let (_, doctor) = printed(&pair.agent(&["doctor"]));
    assert!(doctor.contains("warn  certificate") && doctor.contains("its renewal is late"), "{doctor}");
}

/// The control plane judges a certificate by its own clock: on a host whose clock is a month ahead none has ended.
#[test]
fn a_clock_that_is_ahead_ends_no_certificate() {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    let text = |clock_ahead_ms: i64| {
        let view: AgentStatusView = serde_json::from_value(json!({
            "fleet": "test-fleet",
            "hostname": NODE,
            "nodeId": SigningKey::from_seed(&[7; 32]).public().node_id(),
            "servers": [],
            "tlsTermination": TlsTermination::ControlPlane,
            "certificateEnds": fleet::now().minus(Duration::from_secs(24 * 3600)),
            "certificate": {"from": fleet::now().minus(Duration::from_secs(31 * 24 * 3600)), "renewAt": fleet::now()},
            "contact": {"clockAheadMs": clock_ahead_ms},
        }))
        .unwrap();
        view.text(ShownResources::Notable)
    };
    assert!(text(0).contains("CERTIFICATE    EXPIRED"), "{}", text(0));
    assert!(text(-31 * DAY_MS).contains("certificate    ends"), "{}", text(-31 * DAY_MS));
    assert!(text(-3 * DAY_MS).contains("CERTIFICATE    ends"), "it ends in two days: {}", text(-3 * DAY_MS));
}
