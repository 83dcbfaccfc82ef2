//! WIR-7, IDN-3, IDN-4: what is in the way to the control plane is named by `join`, with what to do about it: a captive
//! portal, a certificate of another CA, a name that nobody knows, an address without a route, a proxy that refuses or
//! sends a page. With several control planes one that answers is enough, also where it does not answer to everybody.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use model::replication::{Mode, TransportPolicy};
use server::CertificateSettings;
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_pair::{Pair, says};
use test_support::agent_state::module;
use test_support::children::{program, without_proxies};
use test_support::connect_proxy::ConnectProxy;
use test_support::fleet::Fleet;
use trust::token;

/// Answers each connection with these bytes once something came.
fn portal(answer: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer));
        }
    });
    address
}

const PAGE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>Please sign in to hotel-wifi</html>";

/// What `join` says of a token for these control planes.
fn join(pair: &Pair, servers: &[String], arguments: &[&str]) -> (Option<i32>, String) {
    let mut claims = pair.fleet.claims("web-2");
    claims.servers = servers.to_vec();
    let token = token::mint(&claims, &pair.fleet.root_key()).unwrap();
    let typed = ["join", "--token", &token];
    let mut command = pair.command_at(&pair.dir.join("other"), &[&typed, arguments].concat());
    tokio::task::block_in_place(|| printed(&command.output().unwrap()))
}

async fn unjoined() -> Pair {
    Pair::hidden(&says(Mode::Off, None, TransportPolicy::Auto), CertificateSettings::default()).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_proxy() {
    let (pair, other) = (unjoined().await, Fleet::start().await);
    let at = |address: std::net::SocketAddr| format!("https://{address}");
    for (server, says, next) in [
        (at(portal(PAGE)), "speaks no TLS: it says \"HTTP/1.1 200 OK", "a captive portal or another service"),
        (
            other.url().to_string(),
            "is not this fleet's control plane: its certificate was issued by",
            "TLS is weakened for nobody",
        ),
        (
            "https://control.invalid:1".to_owned(),
            "the name control.invalid is not known",
            "getent hosts NAME",
        ),
        // Documentation's addresses have no route (RFC 3849), and there may be no IPv6 at all.
        (
            "https://[100::1]:1".to_owned(),
            "no connection to https://[100::1]:1: [100::1]:1: ",
            "check the address and port",
        ),
        (
            "https://127.0.0.1:1".to_owned(),
            "no connection to https://127.0.0.1:1",
            "check the address and port",
        ),
    ] {
        let (code, text) = join(&pair, std::slice::from_ref(&server), &["--proxy", "none"]);
        assert_eq!(code, Some(4), "{server}: {text}");
        assert!(text.contains(says) && text.contains(next), "{server}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_proxy() {
    let pair = unjoined().await;
    let wants = ConnectProxy::start(Some("Basic dTpjYW5hcnk="));
    let server = [pair.fleet.url().to_string()];
    let again = "the same with --proxy-file FILE";
    for (proxy, says, next) in [
        (wants.url(), "asks for a user and password, and none are set", "into a file, then: "),
        (
            wants.url().replace("//", "//u:canary2@"),
            "does not take the user and password",
            "into a file, then: ",
        ),
        (
            format!("http://{}", portal(b"HTTP/1.1 403 Forbidden\r\n\r\n")),
            "refuses to connect there: 403 Forbidden",
            "have the proxy allow CONNECT",
        ),
        (
            format!("http://{}", portal(b"HTTP/1.1 200 OK\r\n\r\n<html>pay here</html>")),
            "a page instead of a tunnel",
            "sign in to the network",
        ),
        (format!("http://{}", portal(b"220 smtp ready\r\n")), "is no HTTP proxy", "sign in to the network"),
        ("http://127.0.0.1:1".to_owned(), "the proxy cannot be reached", "is the proxy up"),
    ] {
        let (code, text) = join(&pair, &server, &["--proxy", &proxy]);
        assert_eq!(code, Some(4), "{proxy}: {text}");
        assert!(text.contains(says) && text.contains(next) && text.contains(again), "{proxy}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
    let (code, text) = join(&pair, &server, &["--proxy", "socks5://u:canary@127.0.0.1:1"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("not over `socks5://`") && !text.contains("canary"), "{text}");
}

/// The first does not answer, the second is somebody else: the third has the host.
#[tokio::test(flavor = "multi_thread")]
async fn one_control_plane_that_answers_is_enough() {
    let pair = unjoined().await;
    let portal = format!("https://{}", portal(PAGE));
    let servers = ["https://127.0.0.1:1".to_owned(), portal, pair.fleet.url().to_string()];
    let (code, text) = join(&pair, &servers, &[]);
    assert_eq!(code, Some(0), "{text}");
}

/// ENR-6: a `--root` that is not there may be a typing error: nothing is made there, and the token stays good.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_is_not_there_costs_no_token() {
    let pair = unjoined().await;
    let token = pair.fleet.token("web-2");
    let join = |root: &str| {
        let mut command = Command::new(program("muster-agent"));
        command.arg("--root").arg(pair.dir.join(root)).args(["join", "--token", &token]);
        without_proxies(&mut command);
        tokio::task::block_in_place(|| printed(&command.output().unwrap()))
    };
    let (code, text) = join("rooot");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is no directory ") && text.contains("/rooot, and the token"), "{text}");
    assert!(text.contains("correct --root, or make it: mkdir -p "), "{text}");
    assert!(!pair.dir.join("rooot").exists());
    let (code, text) = join("root");
    assert_eq!(code, Some(0), "{text}");
}

/// A daemon says the same in its journal and in `status`, and `doctor` step by step.
#[test]
fn and_a_member_s_daemon_status_and_doctor_say_it_too() {
    let mut host = LocalHost::new(vec![module("base")]);
    let wants = ConnectProxy::start(Some("Basic dTpjYW5hcnk="));
    let (code, text) = printed(&host.agent(&["proxy", &wants.url()]));
    assert_eq!(
        (code, text.trim()),
        (Some(0), format!("the control plane is reached through {}", wants.url()).as_str())
    );
    host.start();
    let says = "the proxy asks for a user and password, and none are set";
    let next = "http://USER:PASSWORD@HOST:PORT of the proxy into a file, then: muster-agent";
    let (code, text) = test_support::wait::until_blocking("status says why", || {
        let (code, text) = printed(&host.agent(&["status"]));
        text.contains(says).then_some((code, text))
    });
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains(next) && text.contains("proxy --file FILE"), "{text}");
    assert!(text.contains(&format!("through        {}", wants.url())), "{text}");
    assert!(host.log().contains(says) && host.log().contains("into a file, then"), "{}", host.log());
    let (_, text) = printed(&host.agent(&["doctor"]));
    assert!(text.contains(&format!("ok    proxy            {} is set", wants.url())), "{text}");
    assert!(text.contains(&format!("ok    TCP {}", wants.address)), "{text}");
    assert!(text.contains(says) && text.contains(next), "{text}");
}
