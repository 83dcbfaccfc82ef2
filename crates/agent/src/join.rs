//! Joining: a token, or a key that is declared or approved, against a certificate, in one command (ENR-1, ENR-2, ENR-6,
//! ENR-9).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use model::id::ParseIdError;
use model::{Digest, FleetId, Hostname};
use net::client::{Client, ClientError};
use net::proxy::{ParseProxyError, ProxySettings};
use net::tls::TlsError;
use net::{BelievedAuthority, Destination, ProxyUrl, ServerUrl, trust_links};
use node::joining::{JoinDelay, JoinPatience};
use trust::chain::ChainHead;
use trust::token::{self, KeySource, TlsTermination, TokenError};
use trust::{PublicKey, group_token};
use wire::body::{self, BodyError, JSON};
use wire::enroll::{EnrollAnswer, EnrollRequest};
use wire::headers::{AGENT_VERSION_HEADER, PROTOCOL, PROTOCOL_HEADER};
use wire::{Code, Problem, route};

use crate::clock::now;
use crate::failed_join;
use crate::identity::{self, KeyError, Membership};
use crate::membership::check_holder;
use crate::outgoing_call::{refusal, unpack};
use crate::render::chain as error_chain;
use crate::state::{StateDir, StateError};

/// How long the answer to an enrollment may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer to an enrollment, in bytes.
const MAX_ANSWER: usize = 256 * 1024;

/// How long a host asks to be let in by default.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// By what a host asks to join.
#[derive(Clone, Debug)]
pub enum JoinBy {
    /// A token for this host, or for a group of hosts.
    Token {
        /// The token.
        token: String,
        /// The file that it came from, deleted after success (ENR-6).
        file: Option<PathBuf>,
    },
    /// Its key alone: the fleet repo declares it, or an operator approves it (ENR-9).
    Key(KeyJoin),
}

/// What a host that has no token goes by.
#[derive(Clone, Debug)]
pub struct KeyJoin {
    /// The control plane.
    pub server: ServerUrl,
    /// SHA-256 of its CA certificate: the server is verified by it before the host says anything.
    pub ca: Digest,
    /// The digest of the trust document; absent: whom to believe is the control plane's word, this once.
    pub trust: Option<Digest>,
    /// Which key is the machine's.
    pub key: KeySource,
}

/// What `muster-agent join` is asked to do.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// By what.
    pub by: JoinBy,
    /// The hostname that is asked for; the token's when absent, else the host's own.
    pub hostname: Option<String>,
    /// The root to converge.
    pub root: Option<PathBuf>,
    /// Commands may run under that root.
    pub allow_exec: bool,
    /// How long it waits to be approved, or for its turn.
    pub patience: Duration,
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

/// What is known of the fleet before anything was said.
pub(crate) struct JoinTerms {
    /// The token, as it is sent.
    pub(crate) token: Option<String>,
    fleet: Option<FleetId>,
    /// The host that the token is for alone.
    pub(crate) hostname: Option<Hostname>,
    pub(crate) servers: Vec<ServerUrl>,
    /// The proxy whose tunnel leads there, once it is chosen.
    pub(crate) proxy: Option<Arc<ProxyUrl>>,
    pub(crate) tls_termination: TlsTermination,
    pub(crate) ca: Digest,
    trust: Option<Digest>,
    key: KeySource,
}

impl JoinTerms {
    fn of(by: &JoinBy) -> Result<JoinTerms, JoinError> {
        let read = |urls: &[String]| urls.iter().filter_map(|url| url.parse().ok()).collect();
        Ok(match by {
            JoinBy::Token { token, .. } if group_token::is_group_token(token) => {
                let claims = group_token::peek(token)?;
                JoinTerms {
                    token: Some(token.trim().to_owned()),
                    servers: read(&claims.servers),
                    proxy: None,
                    fleet: Some(claims.fleet),
                    hostname: None,
                    tls_termination: TlsTermination::ControlPlane,
                    ca: claims.ca,
                    trust: Some(claims.trust),
                    key: claims.key,
                }
            }
            JoinBy::Token { token, .. } => {
                let claims = token::peek(token)?;
                JoinTerms {
                    token: Some(token.trim().to_owned()),
                    servers: read(&claims.servers),
                    proxy: None,
                    fleet: Some(claims.fleet),
                    hostname: Some(claims.hostname),
                    tls_termination: claims.tls_termination,
                    ca: claims.ca,
                    trust: Some(claims.trust),
                    key: claims.key,
                }
            }
            JoinBy::Key(KeyJoin { server, ca, trust, key }) => JoinTerms {
                token: None,
                fleet: None,
                proxy: None,
                hostname: None,
                servers: vec![server.clone()],
                tls_termination: TlsTermination::ControlPlane,
                ca: *ca,
                trust: *trust,
                key: *key,
            },
        })
    }

    /// The hostname that is asked for, and the one that the host goes by then.
    fn names(&self, asked: Option<&str>) -> Result<(String, Hostname), JoinError> {
        let own = || rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let asked = match (asked, &self.hostname) {
            (Some(asked), _) => asked.to_owned(),
            (None, Some(hostname)) => hostname.to_string(),
            (None, None) => own(),
        };
        match &self.hostname {
            Some(hostname) => Ok((asked, hostname.clone())),
            None => {
                let hostname = asked.parse().map_err(JoinError::Hostname)?;
                Ok((asked, hostname))
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
    /// The host's name cannot be one of a node.
    #[error("this host's name cannot be a node's; name it with --hostname")]
    Hostname(#[source] ParseIdError),
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
    /// It asked for as long as it waits, and was not let in.
    #[error("it was not let in for as long as it waits")]
    OutOfPatience(#[source] Box<JoinError>),
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

/// Joins, and records the membership. While an operator is to approve the host, or more hosts join than are looked at,
/// it asks again, with its patience.
///
/// # Errors
/// [`JoinError`] says what failed.
pub async fn join(request: JoinRequest, state: &Path) -> Result<Membership, JoinError> {
    let mut terms = JoinTerms::of(&request.by)?;
    let dir = StateDir::create(state)?;
    if let Some(aside) = dir.set_aside_earlier()? {
        tracing::warn!(aside = %aside.display(), "state of an earlier version was set aside");
    }
    let known = dir.membership()?;
    let kept_proxy = known.as_ref().map(|known| known.proxy.clone());
    // In its own fleet a token may name a newer trust document, as after a root key that was lost (IDN-8).
    if let Some(known) = known.filter(|known| terms.fleet.as_ref() != Some(&known.trust.fleet)) {
        let (fleet, hostname) = (known.trust.fleet.to_string(), known.hostname.to_string());
        return Err(JoinError::Joined { fleet, hostname, state: state.to_owned() });
    }
    let (asked, hostname) = terms.names(request.hostname.as_deref())?;
    let root = request.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let key = identity::key(terms.key, state, &root)?;
    // Made before anybody may ask for it.
    identity::sealing_key(state)?;
    let csr_pem =
        net::issue::node_request(&key, &hostname).map_err(|error| JoinError::Request(error.to_string()))?;
    let message = EnrollRequest { token: terms.token.clone(), hostname: asked, csr_pem };
    terms.proxy = request.proxy.choose(kept_proxy, &terms.servers)?;
    let admitted = admitted(&terms, &message, &key.public(), request.patience).await;
    let checked = admitted.and_then(|Admitted { answer, authority }| {
        check(&terms, &authority, &answer, &key.public(), &hostname).map(|()| answer)
    });
    let answer = match checked {
        Ok(answer) => answer,
        Err(error) => {
            failed_join::tell(&terms, &message, &error).await;
            return Err(error);
        }
    };
    let membership = Membership {
        node_id: answer.node_id,
        hostname,
        servers: terms.servers,
        tls_termination: terms.tls_termination,
        proxy: terms.proxy,
        ca_pem: answer.ca_pem,
        cert_pem: answer.cert_pem,
        trust: answer.trust,
        key: terms.key,
        root: request.root,
        allow_exec: request.allow_exec,
    };
    dir.save_membership(&membership)?;
    if let JoinBy::Token { file: Some(path), .. } = request.by {
        fs::remove_file(&path).map_err(|source| JoinError::DeleteToken { path, source })?;
    }
    Ok(membership)
}

/// Asks until the host is let in, is refused for good, or its patience ends.
async fn admitted(
    terms: &JoinTerms,
    message: &EnrollRequest,
    key: &PublicKey,
    patience: Duration,
) -> Result<Admitted, JoinError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| JoinError::Request(error.to_string()))?;
    let mut patience = JoinPatience::new(now().plus(patience), u64::from_le_bytes(seed));
    let mut is_known = false;
    loop {
        let error = match enroll(terms, message).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let delay = match &error {
            JoinError::Refused(problem) => match delay_of(problem) {
                Some(delay) => delay,
                None => return Err(error),
            },
            // One that answered before comes back.
            JoinError::Reach(_) if is_known => JoinDelay::Unknown,
            _ => return Err(error),
        };
        if let JoinError::Refused(problem) = &error
            && !std::mem::replace(&mut is_known, true)
        {
            let (hostname, key) = (&message.hostname, key.fingerprint());
            tracing::info!(
                code = problem.code,
                "not let in yet; it asks again by itself. To approve it: `muster node approve {hostname}`, where the \
                 fingerprint must be {key}"
            );
        }
        let Some(wait) = patience.wait(delay, now()) else {
            return Err(JoinError::OutOfPatience(Box::new(error)));
        };
        tokio::time::sleep(wait).await;
    }
}

/// When a refusal is none for good: the host waits for an operator, or for its turn.
fn delay_of(problem: &Problem) -> Option<JoinDelay> {
    let passes = problem.code == Code::JoinPending.as_str() || matches!(problem.status, 429 | 503);
    let told = |secs| JoinDelay::Asked(Duration::from_secs(secs));
    passes.then(|| problem.retry_after_secs.map_or(JoinDelay::Unknown, told))
}

/// What let a host in, and by what the control plane was believed.
struct Admitted {
    answer: EnrollAnswer,
    authority: BelievedAuthority,
}

/// Dials a control plane that is believed, and says by what.
async fn dial(terms: &JoinTerms, to: &Destination) -> Result<(Client, BelievedAuthority), JoinError> {
    let request = |error: TlsError| JoinError::Request(error.to_string());
    let believing = |authority: &BelievedAuthority| {
        net::tls::client_without_certificate(authority.clone(), terms.tls_termination).map_err(request)
    };
    let pinned = BelievedAuthority::Digest(terms.ca);
    match Client::dial(to.clone(), believing(&pinned)?).await {
        Err(error @ ClientError::ForeignServer { .. }) => match later_authority(terms, to).await {
            Some(authority) => Ok((Client::dial(to.clone(), believing(&authority)?).await?, authority)),
            None => Err(error.into()),
        },
        dialled => Ok((dialled?, pinned)),
    }
}

/// The CAs that the fleet's trust documents name after the one that the token does: the token's CA may have been replaced
/// since it was minted (IDN-8).
async fn later_authority(terms: &JoinTerms, to: &Destination) -> Option<BelievedAuthority> {
    let pinned = terms.trust?;
    let answer = trust_links::fetch(to.clone(), &pinned).await.ok()?;
    let first = Some(ChainHead::of(answer.document)).filter(|first| first.digest == pinned)?;
    let head = trust_links::follow(to.clone(), first).await;
    head.document.certificate_authority.map(BelievedAuthority::named)
}

async fn enroll(terms: &JoinTerms, message: &EnrollRequest) -> Result<Admitted, JoinError> {
    let mut last = JoinError::NoServer;
    for url in &terms.servers {
        let to = Destination { url: url.clone(), proxy: terms.proxy.clone() };
        let (mut client, authority) = match dial(terms, &to).await {
            Ok(dialled) => dialled,
            Err(error) => {
                tracing::info!(%url, error = %error_chain(&error), "this control plane is not reached");
                last = error;
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
                None => {
                    let answer = body::decode(&unpack(response, MAX_ANSWER)?)?;
                    return Ok(Admitted { answer, authority });
                }
            },
        }
    }
    Err(last)
}

/// The server was verified by these CAs; what it says must fit the rest.
fn check(
    terms: &JoinTerms,
    authority: &BelievedAuthority,
    answer: &EnrollAnswer,
    key: &PublicKey,
    hostname: &Hostname,
) -> Result<(), JoinError> {
    let is_pinned = terms.trust.is_none_or(|trust| answer.trust.digest().ok() == Some(trust));
    if !is_pinned || terms.fleet.as_ref().is_some_and(|fleet| answer.trust.fleet != *fleet) {
        return Err(JoinError::NotAsPromised("another trust document"));
    }
    if answer.node_id != key.node_id() {
        return Err(JoinError::NotAsPromised("an id that is not this key's"));
    }
    if !authority.has_certificate(&answer.ca_pem) {
        return Err(JoinError::NotAsPromised("another CA"));
    }
    check_holder(&answer.cert_pem, key, hostname).map_err(JoinError::NotAsPromised)
}
