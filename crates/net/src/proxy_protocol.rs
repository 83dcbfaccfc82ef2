//! The PROXY protocol, version 2: the address of who called a load balancer that passes TLS on unread.
//! Only balancers that are configured are asked for it, and they must send it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use ipnet::IpNet;
use ppp::v2::{Addresses, Command, Header, ParseError};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The part of a header that says how long the rest is, in bytes.
const FIXED: usize = 16;
/// The longest rest of a header that is read, in bytes: the longest addresses, and 1.8 KiB of options.
const MAX_REST: usize = 2048;
/// How long a balancer may take to send a header.
pub(crate) const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// Connections of balancers at once whose header is not here yet.
pub(crate) const HEADERS_AT_ONCE: usize = 1024;

/// The balancers whose headers are believed: none, unless configured.
#[derive(Clone, Debug, Default)]
pub struct Balancers(Arc<[IpNet]>);

impl Balancers {
    /// Those of these networks.
    pub fn new(networks: Vec<IpNet>) -> Balancers {
        Balancers(networks.into())
    }

    /// Whether an address is a balancer's.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Why there is no header.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// It cannot be read.
    #[error("the balancer sent no whole PROXY header")]
    Read(#[from] io::Error),
    /// It is longer than any that is known.
    #[error("the balancer's PROXY header is longer than {MAX_REST} bytes")]
    TooLong,
    /// It is none of version 2.
    #[error("what the balancer sent is no PROXY header of version 2")]
    Malformed(#[source] ParseError),
}

/// Reads the header from the front of a connection, and nothing behind it. Gives the address of who called
/// the balancer; `None` when the balancer calls for itself, or says none.
///
/// # Errors
/// When what comes is no such header.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let mut header = vec![0; FIXED];
    stream.read_exact(&mut header).await?;
    let rest = usize::from(u16::from_be_bytes([header[14], header[15]]));
    if !header.starts_with(ppp::v2::PROTOCOL_PREFIX) {
        return Err(ProxyHeaderError::Malformed(ParseError::Prefix));
    }
    if rest > MAX_REST {
        return Err(ProxyHeaderError::TooLong);
    }
    header.resize(FIXED + rest, 0);
    stream.read_exact(&mut header[FIXED..]).await?;
    let header = Header::try_from(header.as_slice()).map_err(ProxyHeaderError::Malformed)?;
    if header.command == Command::Local {
        return Ok(None);
    }
    Ok(match header.addresses {
        Addresses::IPv4(of) => Some((of.source_address, of.source_port).into()),
        Addresses::IPv6(of) => Some((of.source_address, of.source_port).into()),
        Addresses::Unspecified | Addresses::Unix(_) => None,
    })
}
