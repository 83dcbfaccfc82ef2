//! [`ServerUrl`]: where a control plane is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The node port, unless a URL says otherwise.
pub const DEFAULT_NODE_PORT: u16 = 1530;

/// An `https://host:port` URL without path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerUrl {
    host: String,
    port: u16,
}

/// The text is not such a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a control plane's URL: write https://HOST or https://HOST:PORT")]
pub struct ParseUrlError(String);

impl ServerUrl {
    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl FromStr for ServerUrl {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<ServerUrl, ParseUrlError> {
        parse(text).ok_or_else(|| ParseUrlError(text.chars().take(300).collect()))
    }
}

fn parse(text: &str) -> Option<ServerUrl> {
    let rest = text.strip_prefix("https://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = read_authority(rest, DEFAULT_NODE_PORT)?;
    Some(ServerUrl { host, port })
}

/// Host and port of `HOST`, `HOST:PORT` or the same with an IPv6 address in brackets.
pub(crate) fn read_authority(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, after) = v6.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, after.strip_prefix(':').or(after.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = if port.is_empty() { default_port } else { port.parse().ok()? };
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':');
    let good = !host.is_empty() && host.len() <= 253 && host.bytes().all(fits);
    good.then(|| (host.to_owned(), port))
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

impl TryFrom<String> for ServerUrl {
    type Error = ParseUrlError;

    fn try_from(text: String) -> Result<ServerUrl, ParseUrlError> {
        text.parse()
    }
}

impl From<ServerUrl> for String {
    fn from(url: ServerUrl) -> String {
        url.to_string()
    }
}
