//! WIR-7, ENR-1, IDN-2, SYN-1: where only a proxy with user and password leads to the control plane, a host joins, adopts a
//! release, opens a stream, takes objects and renews its certificate through it, and dials nothing else: the control
//! plane's name is known to the proxy alone. The proxy may change under a running daemon; its password is shown nowhere.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::replication::{Mode, TransportPolicy};
use server::CertificateSettings;
use test_support::agent_local::printed;
use test_support::agent_pair::{NODE, Pair, item, says};
use test_support::connect_proxy::{ConnectProxy, HIDDEN};
use test_support::wait::until;

const PASSWORD: &str = "canary-of-the-proxy";
/// `u:` and the password, as they are sent.
const AUTHORIZATION: &str = "Basic dTpjYW5hcnktb2YtdGhlLXByb3h5";

fn file_of(pair: &Pair, name: &str, proxy: &ConnectProxy) -> String {
    let path = pair.dir.join(name);
    std::fs::write(&path, format!("http://u:{PASSWORD}@{}\n", proxy.address)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn typed(pair: &Pair, arguments: &[&str]) -> (Option<i32>, String) {
    tokio::task::block_in_place(|| printed(&pair.agent(arguments)))
}

/// All that went through it are tunnels of TLS to the control plane.
fn tunnels(proxy: &ConnectProxy) -> usize {
    let seen = proxy.requests();
    for request in &seen {
        assert!(request.line.starts_with(&format!("CONNECT {HIDDEN}:")), "{request:?}");
        assert_eq!(request.authorization.as_deref(), Some(AUTHORIZATION));
        assert!(request.first.is_empty() || request.first[..2] == [22, 3], "TLS, and nothing before it");
    }
    seen.len()
}

async fn works(transport: TransportPolicy) {
    let certificates =
        CertificateSettings { node_validity: Duration::from_secs(20), ..CertificateSettings::default() };
    let (mut pair, token) = Pair::hidden(&says(Mode::Managed, None, transport), certificates).await;
    let proxy = ConnectProxy::start(Some(AUTHORIZATION));
    let (code, text) = typed(&pair, &["join", "--token", &token]);
    assert_eq!(code, Some(4), "no other way leads there: {text}");
    let file = file_of(&pair, "proxy", &proxy);
    let (code, text) = typed(&pair, &["join", "--token", &token, "--proxy-file", &file]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!(", through {}\n", proxy.url())), "{text}");
    assert_eq!(tunnels(&proxy), 1);

    let daemon = pair.daemon();
    pair.apply(vec![item("one", "a")]).await;
    until("the object is delivered", async || pair.object("one").await?.delivered?.then_some(())).await;
    until("the certificate is renewed", async || {
        daemon.log().contains("the certificate was renewed").then_some(())
    })
    .await;
    assert!(tunnels(&proxy) >= 2);

    // Another proxy: what is open leads the old way no longer.
    let (other, log) = (ConnectProxy::start(Some(AUTHORIZATION)), daemon.log());
    let begun = log.matches("a link begins").count();
    let (code, text) = typed(&pair, &["proxy", "--file", &file_of(&pair, "other", &other)]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the daemon that runs here takes it up now"), "{text}");
    pair.apply(vec![item("two", "b")]).await;
    until("and one more, the other way", async || pair.object("two").await?.delivered?.then_some(())).await;
    until("a link begins the other way", async || {
        (daemon.log().matches("a link begins").count() > begun && tunnels(&other) > 0).then_some(())
    })
    .await;
    let log = daemon.log();
    assert_eq!(log.matches("connections go out another way").count(), 1, "{log}");

    let (_, status) = typed(&pair, &["status"]);
    let (_, json) = typed(&pair, &["status", "--json"]);
    let (_, doctor) = typed(&pair, &["doctor"]);
    assert!(status.contains(&format!("through        {}", other.url())), "{status}");
    assert!(
        doctor.contains(&format!("TLS {HIDDEN}")) && doctor.contains("a session, and an answer"),
        "{doctor}"
    );
    let bundle = pair.dir.join("bundle.tar.gz");
    let (code, text) = typed(&pair, &["bundle", "--output", bundle.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    let unpacked = std::process::Command::new("tar").arg("xzOf").arg(&bundle).output().unwrap();
    let unpacked = String::from_utf8_lossy(&unpacked.stdout).into_owned();
    assert!(unpacked.contains(&other.url()), "{unpacked}");
    for text in [&log, &status, &json, &doctor, &unpacked] {
        assert!(!text.contains(PASSWORD) && !text.contains(&AUTHORIZATION["Basic ".len()..]), "{text}");
    }
    let kept = std::fs::metadata(pair.state().join("membership.json")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&kept.permissions()) & 0o777, 0o600);
    assert!(pair.operator.node(NODE).await.held.is_some());
    assert!(daemon.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc() {
    works(TransportPolicy::Grpc).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_websocket() {
    works(TransportPolicy::Websocket).await;
}

/// `join` goes by the environment until something else is said; a membership's setting stays.
#[tokio::test(flavor = "multi_thread")]
async fn the_environment_names_it_to_join() {
    let (pair, token) =
        Pair::hidden(&says(Mode::Off, None, TransportPolicy::Auto), CertificateSettings::default()).await;
    let proxy = ConnectProxy::start(Some(AUTHORIZATION));
    let url = format!("http://u:{PASSWORD}@{}", proxy.address);
    let join = |more: &[&str], environment: &[(&str, &str)]| {
        let mut command = pair.command(&[&["join", "--token", &token], more].concat());
        command.envs(environment.iter().copied());
        tokio::task::block_in_place(|| printed(&command.output().unwrap()))
    };
    for (more, environment) in [
        (&[][..], &[("HTTPS_PROXY", url.as_str()), ("no_proxy", "localhost,.invalid")][..]),
        (&["--proxy", "none"], &[("HTTPS_PROXY", url.as_str())]),
    ] {
        let (code, text) = join(more, environment);
        assert_eq!(code, Some(4), "{text}");
        assert!(text.contains("the name control.invalid is not known"), "{text}");
    }
    let (code, text) = join(&[], &[("https_proxy", "socks5://u:canary@127.0.0.1:1")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("--proxy none") && !text.contains("canary"), "{text}");
    assert_eq!(tunnels(&proxy), 0);
    let (code, text) = join(&[], &[("HTTPS_PROXY", &url)]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = join(&[], &[("HTTPS_PROXY", "http://127.0.0.1:1")]);
    assert_eq!(code, Some(0), "what is set stays: {text}");
    assert_eq!(tunnels(&proxy), 2);
    let (code, text) = typed(&pair, &["proxy", "none"]);
    assert_eq!((code, text.trim()), (Some(0), "the control plane is dialled directly"));
    let (_, text) = typed(&pair, &["proxy", "--json"]);
    assert_eq!(text.trim(), "{\"proxy\":null}");
}
