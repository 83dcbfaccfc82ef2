//! The way to the control planes: names, TCP, TLS, proxies.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use host::SpawnCompactly;
use http::{Method, Request};
use http_body_util::Full;
use model::text::chain;
use net::client::{Client, ClientError};
use net::tls::{self, ClientKey};
use net::{Destination, ProxyUrl};
use rustls::ClientConfig;
use trust::token::{KeySource, TlsTermination};

use super::Finding;
use crate::identity::{self, KEY_FILE, Membership};
use crate::invocation::command;
use crate::local::messages::ContactProblem;
use crate::machine::MachineOptions;
use crate::membership::believed_authority;
use crate::state::read_trusted;

/// How long a name's resolution may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a TCP connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the answer to a request may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Variables that name proxies to other programs.
const PROXY_VARIABLES: [&str; 6] =
    ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// The proxy that is set, else those that the environment names, of which the agent uses none.
pub(super) fn proxies(set: Option<&ProxyUrl>, variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    if let Some(proxy) = set {
        return vec![Finding::ok("proxy", format!("{proxy} is set; it leads to the control plane"))];
    }
    let named = PROXY_VARIABLES.iter().filter_map(|name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some(format!("{name}={}", without_password(&value)))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() {
        return vec![Finding::ok("proxy", "none is set, and this environment names none")];
    }
    let next = format!(
        "the agent dials the control plane directly, whatever the environment says: where only a proxy may, {}",
        command("proxy URL")
    );
    vec![Finding::warn("proxy", named.join(", "), next)]
}

/// A proxy's URL without what stands before its host.
fn without_password(url: &str) -> String {
    match url.rsplit_once('@') {
        None => url.to_owned(),
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
            format!("{scheme}(hidden)@{host}")
        }
    }
}

/// Each control plane, step by step; a step that fails ends its way. Through a proxy the proxy's steps come first, once.
pub(super) fn servers(options: &MachineOptions, membership: &Membership) -> Vec<Finding> {
    let tls = client_config(options, membership);
    let mut findings = Vec::new();
    if let Some(proxy) = &membership.proxy
        && !connects(proxy.host(), proxy.authority(), &mut findings)
    {
        return findings;
    }
    for url in &membership.servers {
        let is_direct = membership.proxy.is_none();
        if is_direct && !connects(url.host(), url.authority(), &mut findings) {
            continue;
        }
        let to = Destination { url: url.clone(), proxy: membership.proxy.clone() };
        match &tls {
            Ok(tls) => findings.push(speak(&to, tls)),
            Err(why) => {
                let next = "run it with sudo; if key or certificate are damaged, join again";
                findings.push(Finding::fail(format!("TLS {}", url.host()), why.clone(), next));
            }
        }
    }
    findings
}

/// Name and TCP; whether both work.
fn connects(host: &str, authority: String, findings: &mut Vec<Finding>) -> bool {
    let steps = resolve(host, authority.clone()).and_then(|(addresses, finding)| {
        findings.push(finding);
        reach(&authority, &addresses)
    });
    let works = steps.is_ok();
    findings.push(steps.unwrap_or_else(|finding| finding));
    works
}

fn client_config(options: &MachineOptions, membership: &Membership) -> Result<Arc<ClientConfig>, String> {
    let state = options.state_dir();
    // The key is made when there is none; looking must not do that.
    if membership.key == KeySource::Own && !state.join(KEY_FILE).exists() {
        return Err(format!("the machine's key {} is missing", state.join(KEY_FILE).display()));
    }
    let trusted = read_trusted(&state, &membership.trust).map_err(|error| chain(&error))?;
    let authority = believed_authority(membership, trusted.certificate_authority.as_ref());
    if membership.tls_termination == TlsTermination::Proxy {
        let config = tls::client_without_certificate(authority, TlsTermination::Proxy);
        return config.map_err(|error| chain(&error));
    }
    let root = options.root.clone().or_else(|| membership.root.clone()).unwrap_or_else(|| "/".into());
    let key = identity::key(membership.key, &state, &root).map_err(|error| chain(&error))?;
    let config = tls::client_believing(authority, &membership.cert_pem, ClientKey::Node(&key));
    config.map_err(|error| chain(&error))
}

fn resolve(host: &str, authority: String) -> Result<(Vec<SocketAddr>, Finding), Finding> {
    let subject = format!("name {host}");
    let (answer, answered) = mpsc::channel();
    // The C library may hang for long.
    let asked = std::thread::Builder::new().name("muster resolve".to_owned()).spawn_compactly(move || {
        let _ = answer.send(authority.to_socket_addrs().map(Iterator::collect::<Vec<_>>));
    });
    let next = "look at /etc/resolv.conf and /etc/hosts: getent hosts NAME must find it";
    if let Err(error) = asked {
        return Err(Finding::fail(subject, format!("no thread could be started: {error}"), next));
    }
    let began = Instant::now();
    match answered.recv_timeout(RESOLVE_TIMEOUT) {
        Ok(Ok(addresses)) if !addresses.is_empty() => {
            let is_address = host.parse::<IpAddr>().is_ok();
            let shown: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
            let evidence = match is_address {
                true => "is an address".to_owned(),
                false => format!("is {} ({} ms)", shown.join(", "), began.elapsed().as_millis()),
            };
            Ok((addresses, Finding::ok(subject, evidence)))
        }
        Ok(Ok(_)) => Err(Finding::fail(subject, "has no address", next)),
        Ok(Err(error)) => Err(Finding::fail(subject, format!("is not known: {error}"), next)),
        Err(_) => {
            let evidence = format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs());
            Err(Finding::fail(subject, evidence, next))
        }
    }
}

fn reach(authority: &str, addresses: &[SocketAddr]) -> Result<Finding, Finding> {
    let subject = format!("TCP {authority}");
    let mut causes = Vec::new();
    for address in addresses {
        let began = Instant::now();
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            Ok(_) => {
                let evidence = format!("{address} answers ({} ms)", began.elapsed().as_millis());
                return Ok(Finding::ok(subject, evidence));
            }
            Err(error) => causes.push((format!("{address}: {error}"), error.kind())),
        }
    }
    let next = match causes.first().map(|(_, kind)| *kind) {
        Some(io::ErrorKind::ConnectionRefused) => {
            "nothing listens there: is the control plane up, and is this its address and port?"
        }
        Some(io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
            "packets are dropped on the way: look for a firewall between here and there"
        }
        Some(io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) => {
            "there is no route: look at `ip route` and `ip -6 route`"
        }
        _ => "look at this host's network, and at the control plane's",
    };
    let evidence: Vec<String> = causes.into_iter().map(|(cause, _)| cause).collect();
    Err(Finding::fail(subject, evidence.join("; "), next))
}

/// A TLS session, through the proxy where one is set, and one request that needs no signature to be answered.
fn speak(to: &Destination, tls: &Arc<ClientConfig>) -> Finding {
    let url = &to.url;
    let subject = format!("TLS {}", url.authority());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Finding::fail(subject, error.to_string(), "try again"),
    };
    let spoken: Result<(), ClientError> = runtime.block_on(async {
        let mut client = Client::dial(to.clone(), tls.clone()).await?;
        let request = Request::builder()
            .method(Method::GET)
            .uri(format!("https://{}{}", url.authority(), wire::route::STATE))
            .body(Full::new(Bytes::new()));
        // Made of a URL that was parsed, so it cannot fail.
        let Ok(request) = request else { return Ok(()) };
        client.call(request, MAX_ANSWER, ANSWER_TIMEOUT).await.map(drop)
    });
    match spoken {
        Ok(()) => Finding::ok(subject, "a session, and an answer"),
        Err(error) => {
            let problem = ContactProblem::of_dial(&error);
            let next = problem
                .on_the_way(&command("proxy --file FILE"))
                .unwrap_or_else(|| on_the_way(&error).to_owned());
            Finding::fail(subject, chain(&error), next)
        }
    }
}

/// What to do about a failure that has no step of its own.
fn on_the_way(error: &ClientError) -> &'static str {
    match error {
        ClientError::Handshake { .. } => {
            "is this host's clock right, is the certificate still good, and does nothing on the way end TLS? \
             (docs/proxy.md)"
        }
        ClientError::ServerCertificateEnded { .. } => {
            "set this host's clock; if it is right, see why the control plane shows an old certificate"
        }
        ClientError::CertificateRevoked { .. } => {
            "this host was revoked: a token that is minted now lets it in again"
        }
        ClientError::Dial { .. } | ClientError::Timeout { .. } => {
            "something answers TCP there that does not answer TLS: is the port right?"
        }
        _ => "look at the control plane's log, and for a proxy on the way",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::doctor::FindingLevel;

    #[test]
    fn a_proxy_s_password_is_shown_nowhere() {
        let set = |name: &str| match name {
            "https_proxy" => Some("http://user:canary@proxy.example:3128".to_owned()),
            "ALL_PROXY" => Some("user:canary@proxy.example".to_owned()),
            _ => None,
        };
        let findings = proxies(None, set);
        assert_eq!(findings[0].level, FindingLevel::Warn);
        let text = format!("{findings:?}");
        assert!(!text.contains("canary") && text.contains("proxy.example:3128"), "{text}");
        assert_eq!(proxies(None, |_| None)[0].level, FindingLevel::Ok);
        let kept = "http://user:canary@proxy.example:3128".parse().unwrap();
        let kept = proxies(Some(&kept), set);
        assert_eq!(kept[0].level, FindingLevel::Ok);
        assert!(!format!("{kept:?}").contains("canary"), "{kept:?}");
    }
}
