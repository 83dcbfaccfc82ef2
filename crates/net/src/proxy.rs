//! [`ProxyUrl`]: the HTTP proxy that connections go out through, and the tunnel that it opens (WIR-7).
//!
//! ```text
//! TCP to the proxy --> CONNECT host:port, credentials --> 2xx --> TLS with the control plane, end to end
//!                                                     --> anything else: ProxyError
//! ```
//!
//! Invariants: a proxy that is set is never passed by; the head of its answer has bounds in bytes and time, and not one
//! byte after it is read here; its password is in nothing that can be printed.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use data_encoding::BASE64;
use ipnet::IpNet;
use model::text::{beginning, bounded_line};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use crate::dial::TcpDialError;
use crate::url::{authority, read_authority};

/// A proxy's port, unless its URL says otherwise: that of its scheme.
const DEFAULT_PROXY_PORT: u16 = 80;
/// The longest proxy URL, in bytes.
const MAX_PROXY_URL: usize = 1024;
/// How long a proxy may take to answer once it was asked: it dials the control plane meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// The longest head of a proxy's answer, in bytes.
const MAX_PROXY_ANSWER: usize = 8 * 1024;
/// How much of a proxy's words is shown, in bytes.
const MAX_SHOWN: usize = 100;
/// How an answer over HTTP begins.
const HTTP: &[u8] = b"HTTP/1.";
/// The name of the only credentials that are spoken here (RFC 7617).
const BASIC: &str = "basic";

/// An HTTP proxy that opens tunnels (`CONNECT`): `http://[USER:PASSWORD@]HOST[:PORT]`. Shown without user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    host: String,
    port: u16,
    credentials: Option<ProxyCredentials>,
}

/// User and password of a proxy, as they stand in its URL.
#[derive(Clone, PartialEq, Eq)]
struct ProxyCredentials(Zeroizing<String>);

/// The text is no proxy's URL. It is not repeated, as it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseProxyError {
    /// Another scheme than `http`.
    #[error("a proxy is reached over `http://`, not over `{0}://`: TLS goes through it, end to end")]
    Scheme(String),
    /// It has another form.
    #[error("not a proxy's URL: write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")]
    Form,
    /// User or password hold what cannot be sent.
    #[error(
        "the proxy's user or password cannot be sent: write `%40` for `@`, `%3A` for `:` in the user, `%25` for `%`"
    )]
    Credentials,
}

impl ProxyUrl {
    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// The whole URL with user and password, for the file that it is kept in.
    pub fn expose(&self) -> Zeroizing<String> {
        let credentials = self.credentials.as_ref().map(|it| format!("{}@", *it.0)).map(Zeroizing::new);
        let shown = credentials.as_ref().map_or("", |it| it.as_str());
        Zeroizing::new(format!("http://{shown}{}", self.authority()))
    }

    /// The value of `Proxy-Authorization`, where user and password are set.
    pub(crate) fn authorization(&self) -> Option<Zeroizing<String>> {
        let plain = self.credentials.as_ref().and_then(ProxyCredentials::decoded)?;
        let encoded = Zeroizing::new(BASE64.encode(&plain));
        Some(Zeroizing::new(format!("Basic {}", *encoded)))
    }
}

impl ProxyCredentials {
    /// `user:password` as it is sent; `None` where it cannot be.
    fn decoded(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(self.0.len() + 1));
        let mut bytes = self.0.bytes();
        while let Some(byte) = bytes.next() {
            let byte = match byte {
                b'%' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    u8::try_from(digit()? * 16 + digit()?).ok()?
                }
                byte => byte,
            };
            if byte.is_ascii_control() {
                return None;
            }
            plain.push(byte);
        }
        if !self.0.contains(':') {
            plain.push(b':');
        }
        Some(plain)
    }
}

impl FromStr for ProxyUrl {
    type Err = ParseProxyError;

    fn from_str(text: &str) -> Result<ProxyUrl, ParseProxyError> {
        let text = text.trim();
        if text.len() > MAX_PROXY_URL {
            return Err(ParseProxyError::Form);
        }
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                return Err(ParseProxyError::Scheme(beginning(scheme, 16).to_owned()));
            }
            Some(_) => return Err(ParseProxyError::Form),
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // A password may hold an `@`; a host may not.
        let (credentials, authority) = match rest.rsplit_once('@') {
            Some((before, authority)) => {
                (Some(ProxyCredentials(Zeroizing::new(before.to_owned()))), authority)
            }
            None => (None, rest),
        };
        if credentials.as_ref().is_some_and(|it| it.decoded().is_none()) {
            return Err(ParseProxyError::Credentials);
        }
        let (host, port) = read_authority(authority, DEFAULT_PROXY_PORT).ok_or(ParseProxyError::Form)?;
        Ok(ProxyUrl { host, port, credentials })
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The proxies that the environment names.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    /// For `https://`.
    pub https: Option<Result<ProxyUrl, ParseProxyError>>,
    /// For `http://`.
    pub http: Option<Result<ProxyUrl, ParseProxyError>>,
    /// Hosts, domains and networks that are reached without one, separated by commas.
    pub none: String,
}

impl ProxySettings {
    /// As the environment names them, by the names that curl reads.
    pub fn from_environment() -> ProxySettings {
        let get = |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok());
        let proxy = |names: &[&str]| get(names).filter(|url| !url.trim().is_empty()).map(|url| url.parse());
        ProxySettings {
            https: proxy(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            http: proxy(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            none: get(&["no_proxy", "NO_PROXY"]).unwrap_or_default(),
        }
    }

    /// Whether a host is reached without a proxy. Names are compared as curl does: in any case, an IPv6 address with or
    /// without brackets.
    pub fn excepts(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let names = self.none.split(',').map(|name| name.trim().trim_start_matches('.').to_ascii_lowercase());
        names.filter(|name| !name.is_empty()).any(|name| {
            let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
            let within =
                || bare.parse::<IpNet>().is_ok_and(|net| address.is_some_and(|at| net.contains(&at)));
            let same = || bare.parse::<IpAddr>().is_ok_and(|one| address == Some(one));
            let below = || host.strip_suffix(bare).is_some_and(|rest| rest.ends_with('.'));
            bare == "*" || host == bare || below() || same() || within()
        })
    }
}

/// Why there is no tunnel through a proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It cannot be dialled.
    #[error("the proxy cannot be reached")]
    Unreachable(#[from] TcpDialError),
    /// It asks for a user and password, and none are set.
    #[error("the proxy asks for a user and password, and none are set")]
    CredentialsAsked,
    /// It does not take the user and password that are set.
    #[error("the proxy does not take the user and password that are set")]
    CredentialsRefused,
    /// It takes no user and password.
    #[error("the proxy takes no user and password (Basic), only: {0}")]
    CredentialsOther(String),
    /// It refuses the tunnel.
    #[error("the proxy refuses to connect there: {0}")]
    Refused(String),
    /// It speaks no HTTP.
    #[error("what answers there is no HTTP proxy: it says {0:?}")]
    NotHttp(String),
    /// It agreed, and sent something else than what the control plane says.
    #[error("the proxy agrees to connect, and then sends no TLS but {0:?}: a page instead of a tunnel")]
    Page(String),
    /// The head of its answer has no end.
    #[error("the head of the proxy's answer is longer than {MAX_PROXY_ANSWER} bytes")]
    HeadTooLong,
    /// It hung up.
    #[error("the proxy closed the connection before anything came through it")]
    Closed,
    /// It did not answer.
    #[error("the proxy did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent,
    /// The connection to it broke.
    #[error("the connection to the proxy broke")]
    Broke(#[source] io::Error),
}

/// Asks a proxy for a tunnel to `to` (`host:port`). What comes after the head of its answer is the other end's, and
/// stays in the stream.
///
/// # Errors
/// [`ProxyError`] says what it answered.
pub(crate) async fn open_tunnel(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    to: &str,
    proxy: &ProxyUrl,
) -> Result<(), ProxyError> {
    let authorization = proxy.authorization();
    let header = authorization.as_ref().map(|value| format!("Proxy-Authorization: {}\r\n", **value));
    let header = header.map(Zeroizing::new);
    let header = header.as_ref().map_or("", |header| header.as_str());
    let request = Zeroizing::new(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{header}\r\n"));
    let asked = async {
        stream.write_all(request.as_bytes()).await.map_err(broke)?;
        stream.flush().await.map_err(broke)?;
        read_answer(stream, authorization.is_some()).await
    };
    tokio::time::timeout(ANSWER_WITHIN, asked).await.map_err(|_| ProxyError::Silent)?
}

/// Reads a proxy's answer to who asked for a tunnel, with a user and password or without. What comes after the head is
/// the other end's, and stays in the stream.
///
/// # Errors
/// [`ProxyError`] says what it answered instead.
pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin), authorized: bool) -> Result<(), ProxyError> {
    judge(&read_head(stream).await?, authorized)
}

fn broke(error: io::Error) -> ProxyError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ProxyError::Closed
        }
        _ => ProxyError::Broke(error),
    }
}

/// Byte by byte, so that nothing after it is taken out of the stream.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, ProxyError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if head.len() >= MAX_PROXY_ANSWER {
            return Err(ProxyError::HeadTooLong);
        }
        head.push(stream.read_u8().await.map_err(broke)?);
        let compared = head.len().min(HTTP.len());
        if head[..compared] != HTTP[..compared] {
            return Err(ProxyError::NotHttp(shown(&head)));
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn judge(head: &str, authorized: bool) -> Result<(), ProxyError> {
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split_once(' ')).map_or("", |(_, status)| status.trim());
    match status.split(' ').next().and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(credentials(lines, authorized)),
        Some(_) => Err(ProxyError::Refused(shown(status.as_bytes()))),
        None => Err(ProxyError::NotHttp(shown(head.as_bytes()))),
    }
}

/// What a proxy that asks for credentials asks for.
fn credentials<'a>(headers: impl Iterator<Item = &'a str>, authorized: bool) -> ProxyError {
    let asked = headers.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let scheme = value.split_whitespace().next()?;
        name.eq_ignore_ascii_case("proxy-authenticate").then(|| scheme.trim_end_matches(',').to_owned())
    });
    let asked: Vec<String> = asked.collect();
    match authorized {
        _ if !asked.is_empty() && !asked.iter().any(|scheme| scheme.eq_ignore_ascii_case(BASIC)) => {
            ProxyError::CredentialsOther(shown(asked.join(", ").as_bytes()))
        }
        true => ProxyError::CredentialsRefused,
        false => ProxyError::CredentialsAsked,
    }
}

/// The beginning of what somebody unknown sent, on one line.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    bounded_line(text.trim(), MAX_SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ProxyUrl, ParseProxyError> {
        text.parse()
    }

    #[test]
    fn a_proxy_s_url_is_read_and_shown_without_its_password() {
        let sent = |text: &str| {
            let plain = read(text).unwrap().authorization()?;
            let plain = BASE64.decode(plain.strip_prefix("Basic ").unwrap().as_bytes()).unwrap();
            Some(String::from_utf8(plain).unwrap())
        };
        for (text, shown, credentials) in [
            ("http://proxy.example:3128", "http://proxy.example:3128", None),
            ("proxy.example", "http://proxy.example:80", None),
            ("HTTP://[fd00::1]:8080/", "http://[fd00::1]:8080", None),
            ("http://jdoe:canary@10.0.0.1:1", "http://10.0.0.1:1", Some("jdoe:canary")),
            ("http://j%40doe:can%3Aa@ry%25@p:1\n", "http://p:1", Some("j@doe:can:a@ry%")),
            ("canary@p:1", "http://p:1", Some("canary:")),
        ] {
            let proxy = read(text).unwrap();
            assert_eq!((proxy.to_string(), format!("{proxy:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(sent(text).as_deref(), credentials, "{text}");
            assert_eq!(read(&proxy.expose()).unwrap(), proxy, "{text}");
        }
    }

    #[test]
    fn what_is_no_proxy_s_url_is_refused_without_being_repeated() {
        let long = format!("http://u:{}@p:1", "canary".repeat(200));
        for text in [
            "socks5://u:canary@p:1",
            "https://u:canary@p:1",
            "http://u:canary@p:1/path",
            "http://u:canary@",
            "http://u:canary@p:port",
            "http://u:canary%0d@p:1",
            "http://u:canary%4@p:1",
            "http://u:canary%c3%@p:1",
            "u:canary://p:1",
            "",
            &long,
        ] {
            let error = read(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
        assert_eq!(read("socks5://p:1"), Err(ParseProxyError::Scheme("socks5".to_owned())));
    }

    #[test]
    fn the_environment_excepts_hosts_domains_and_networks() {
        let settings = ProxySettings {
            none: " .corp.example, 10.0.0.0/8,fd00::/8,localhost,[FE80::1],Other.Example".to_owned(),
            ..ProxySettings::default()
        };
        for (host, excepted) in [
            ("x.corp.example", true),
            ("corp.example", true),
            ("xcorp.example", false),
            ("10.1.2.3", true),
            ("11.1.2.3", false),
            ("fd00::1", true),
            ("localhost", true),
            ("LOCALHOST", true),
            ("x.other.example", true),
            ("fe80:0::1", true),
            ("fe80::2", false),
            ("a.example", false),
        ] {
            assert_eq!(settings.excepts(host), excepted, "{host}");
        }
        assert!(ProxySettings { none: "*".to_owned(), ..ProxySettings::default() }.excepts("a.example"));
        assert!(!ProxySettings::default().excepts("a.example"));
    }
}
