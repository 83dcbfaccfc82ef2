//! Joining: a token against a certificate, in one command (ENR-1, ENR-2, ENR-6).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use net::client::{Client, ClientError};
use net::proxy::{ParseProxyError, ProxySettings};
use net::{Destination, ProxyUrl, ServerUrl};
use trust::PublicKey;
use trust::token::{self, Claims, TokenError};
use wire::Problem;
use wire::body::{self, BodyError, JSON};
use wire::enroll::{EnrollAnswer, EnrollRequest};
use wire::headers::{AGENT_VERSION_HEADER, PROTOCOL, PROTOCOL_HEADER};
use wire::route;

use crate::identity::{self, KeyError, Membership};
use crate::membership::is_of_key;
use crate::render::chain;
use crate::session::{refusal, unpack};
use crate::state::{StateDir, StateError};

/// How long the answer to an enrollment may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer to an enrollment, in bytes.
const MAX_ANSWER: usize = 256 * 1024;

/// What `muster-agent join` is asked to do.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The token.
    pub token: String,
    /// The file that it came from, deleted after success (ENR-6).
    pub token_file: Option<PathBuf>,
    /// The hostname that is asked for; the token's when absent.
    pub hostname: Option<String>,
    /// The root to converge.
    pub root: Option<PathBuf>,
    /// Commands may run under that root.
    pub allow_exec: bool,
    /// The way to the control plane.
    pub proxy: JoinProxy,
}

/// Which proxy leads to the control planes of the token.
#[derive(Clone, Debug)]
pub enum JoinProxy {
    /// That of the membership where the host has one; else that of the environment, unless it excepts all of them.
    Found(ProxySettings),
    /// This one, or none.
    Chosen(Option<Arc<ProxyUrl>>),
}

impl JoinProxy {
    /// `kept`: the proxy of the membership, where there is one.
    fn choose(
        self,
        kept: Option<Option<Arc<ProxyUrl>>>,
        servers: &[ServerUrl],
    ) -> Result<Option<Arc<ProxyUrl>>, ParseProxyError> {
        match (self, kept) {
            (JoinProxy::Chosen(proxy), _) | (JoinProxy::Found(_), Some(proxy)) => Ok(proxy),
            (JoinProxy::Found(settings), None) => {
                let excepted = servers.iter().all(|url| settings.excepts(url.host()));
                settings.https.filter(|_| !excepted).transpose().map(|proxy| proxy.map(Arc::new))
            }
        }
    }
}

/// Why joining failed. The token is not burned by any of these, except that a reply may
/// have been lost: then the same command again ends well (ENR-7).
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token cannot be read.
    #[error("the token cannot be used")]
    Token(#[from] TokenError),
    /// The environment names a proxy that cannot be used.
    #[error("the proxy of this environment (https_proxy) cannot be used")]
    Proxy(#[from] ParseProxyError),
    /// The token names no server.
    #[error("the token names no control plane's URL that can be read")]
    NoServer,
    /// The agent belongs to a fleet already.
    #[error("this host joined fleet {fleet} as {hostname} before; its state is in {}", state.display())]
    Joined {
        /// The fleet.
        fleet: String,
        /// Its hostname there.
        hostname: String,
        /// Where that is recorded.
        state: PathBuf,
    },
    /// The machine's key cannot be used.
    #[error("the machine's key cannot be used")]
    Key(#[from] KeyError),
    /// The state directory cannot be used.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    /// The certificate request or TLS could not be made.
    #[error("the certificate request cannot be made: {0}")]
    Request(String),
    /// No server could be spoken to, or the server is another one than the token names.
    #[error("the control plane cannot be reached")]
    Reach(#[from] ClientError),
    /// The control plane refused.
    #[error("the control plane refused: {0}")]
    Refused(Box<Problem>),
    /// Its answer cannot be read.
    #[error("the control plane's answer cannot be read")]
    Answer(#[from] BodyError),
    /// Its answer is not what the token promised.
    #[error("the control plane's answer is not what the token promised: {0}")]
    NotAsPromised(&'static str),
    /// The token's file could not be deleted.
    #[error("joined, but the token's file {} could not be deleted", path.display())]
    DeleteToken {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Joins, and records the membership.
///
/// # Errors
/// [`JoinError`] says what failed.
pub async fn join(request: JoinRequest, state: &Path) -> Result<Membership, JoinError> {
    let claims = token::peek(&request.token)?;
    let dir = StateDir::create(state)?;
    if let Some(aside) = dir.set_aside_earlier()? {
        tracing::warn!(aside = %aside.display(), "state of an earlier version was set aside");
    }
    let known = dir.membership()?;
    let kept_proxy = known.as_ref().map(|known| known.proxy.clone());
    // In its own fleet a token may name a newer trust document, as after a root key that was lost (IDN-8).
    if let Some(known) = known.filter(|known| known.trust.fleet != claims.fleet) {
        let (fleet, hostname) = (known.trust.fleet.to_string(), known.hostname.to_string());
        return Err(JoinError::Joined { fleet, hostname, state: state.to_owned() });
    }
    let hostname = request.hostname.clone().unwrap_or_else(|| claims.hostname.to_string());
    let root = request.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let key = identity::key(claims.key, state, &root)?;
    let csr_pem = net::issue::node_request(&key, &claims.hostname)
        .map_err(|error| JoinError::Request(error.to_string()))?;
    let message = EnrollRequest { token: request.token.trim().to_owned(), hostname, csr_pem };
    let servers: Vec<ServerUrl> = claims.servers.iter().filter_map(|url| url.parse().ok()).collect();
    let proxy = request.proxy.choose(kept_proxy, &servers)?;
    let answer = enroll(&claims, &message, &servers, proxy.as_ref()).await?;
    check(&claims, &answer, &key.public())?;
    let membership = Membership {
        node_id: answer.node_id,
        hostname: claims.hostname,
        servers,
        tls_termination: claims.tls_termination,
        proxy,
        ca_pem: answer.ca_pem,
        cert_pem: answer.cert_pem,
        trust: answer.trust,
        key: claims.key,
        root: request.root,
        allow_exec: request.allow_exec,
    };
    dir.save_membership(&membership)?;
    if let Some(path) = request.token_file {
        fs::remove_file(&path).map_err(|source| JoinError::DeleteToken { path, source })?;
    }
    Ok(membership)
}

async fn enroll(
    claims: &Claims,
    message: &EnrollRequest,
    servers: &[ServerUrl],
    proxy: Option<&Arc<ProxyUrl>>,
) -> Result<EnrollAnswer, JoinError> {
    let tls = net::tls::client_pinned(claims.ca, claims.tls_termination)
        .map_err(|error| JoinError::Request(error.to_string()))?;
    let mut last = JoinError::NoServer;
    for url in servers {
        let to = Destination { url: url.clone(), proxy: proxy.cloned() };
        let mut client = match Client::dial(to, tls.clone()).await {
            Ok(client) => client,
            Err(error) => {
                tracing::info!(%url, error = %chain(&error), "this control plane is not reached");
                last = error.into();
                continue;
            }
        };
        let request = Request::post(format!("https://{}{}", url.authority(), route::ENROLL))
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, env!("CARGO_PKG_VERSION"))
            .header(header::CONTENT_TYPE, JSON)
            .body(Full::new(Bytes::from(body::encode(message)?)))
            .map_err(|error| JoinError::Request(error.to_string()))?;
        match client.call(request, MAX_ANSWER, TIMEOUT).await {
            Err(error) => last = error.into(),
            Ok(response) => match refusal(&response) {
                // It is up, and takes nothing from anybody now: another one may.
                Some(problem) if problem.status >= 500 => last = JoinError::Refused(Box::new(problem)),
                Some(problem) => return Err(JoinError::Refused(Box::new(problem))),
                None => return Ok(body::decode(&unpack(response, MAX_ANSWER)?)?),
            },
        }
    }
    Err(last)
}

/// The server was verified by the token's CA digest; what it says must fit the rest.
fn check(claims: &Claims, answer: &EnrollAnswer, key: &PublicKey) -> Result<(), JoinError> {
    if answer.trust.digest().ok() != Some(claims.trust) || answer.trust.fleet != claims.fleet {
        return Err(JoinError::NotAsPromised("another trust document"));
    }
    if answer.node_id != key.node_id() {
        return Err(JoinError::NotAsPromised("an id that is not this key's"));
    }
    if net::tls::digest(&answer.ca_pem).ok() != Some(claims.ca) {
        return Err(JoinError::NotAsPromised("another CA"));
    }
    match is_of_key(&answer.cert_pem, key) {
        true => Ok(()),
        false => Err(JoinError::NotAsPromised("a certificate that is not this key's")),
    }
}
