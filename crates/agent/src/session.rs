//! [`Session`]: signed calls to the control plane over one kept connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use model::time::SLACK;
use model::{NodeId, Timestamp};
use net::ServerUrl;
use net::client::{Client, ClientError};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::SigningKey;
use wire::body::{self, BodyError, GZIP, JSON, MAX_ANSWER};
use wire::headers::{
    AGENT_VERSION_HEADER, CONTENT_DIGEST, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT,
};
use wire::problem::PROBLEM_JSON;
use wire::signature::{self, Target};
use wire::{Code, Problem};

use crate::clock::now;

/// How long an answer may take, a long poll's wait apart.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No server could be spoken to.
    #[error("the control plane cannot be reached")]
    Reach(#[from] ClientError),
    /// It refused.
    #[error("the control plane refused: {0}")]
    Refused(Box<Problem>),
    /// Its answer makes no sense.
    #[error("the control plane's answer cannot be read")]
    Answer(#[from] BodyError),
    /// A request could not be put together.
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
}

/// Signed calls of one node.
pub struct Session {
    urls: Vec<ServerUrl>,
    at: usize,
    tls: Arc<ClientConfig>,
    client: Option<Client>,
    node: NodeId,
    key: Arc<SigningKey>,
    /// What the control plane's clock is ahead of ours, in milliseconds, when it refused
    /// for skew.
    offset: i64,
    nonce: u64,
}

impl Session {
    /// A session of a node with one or more control planes, tried in order.
    pub fn new(urls: Vec<ServerUrl>, tls: Arc<ClientConfig>, node: NodeId, key: Arc<SigningKey>) -> Session {
        Session { urls, at: 0, tls, client: None, node, key, offset: 0, nonce: 0 }
    }

    /// The control plane's time, as far as a refusal for skew told it; else the host's own.
    pub fn server_time(&self) -> Timestamp {
        Timestamp(now().0.saturating_add(self.offset))
    }

    /// Posts a message and reads the answer.
    ///
    /// # Errors
    /// [`CallError`] says what failed; after a failure to reach it, the next call tries
    /// the next URL.
    pub async fn post<T: Serialize, A: DeserializeOwned>(
        &mut self,
        path: &str,
        message: &T,
    ) -> Result<A, CallError> {
        let plain = body::encode(message)?;
        let packed = body::compress(&plain);
        let coding = packed.is_some().then_some(GZIP);
        let bytes = Bytes::from(packed.unwrap_or(plain));
        let response = self.call(Method::POST, path, bytes, coding, None).await?;
        Ok(body::decode(&unpack(response)?)?)
    }

    /// Gets bytes, from an offset on; the second value is the whole length.
    ///
    /// # Errors
    /// [`CallError`] says what failed.
    pub async fn get_range(&mut self, path: &str, from: u64) -> Result<(Bytes, u64), CallError> {
        let response = self.call(Method::GET, path, Bytes::new(), None, Some(from)).await?;
        let range = response.headers().get(header::CONTENT_RANGE);
        let total = range
            .and_then(|range| range.to_str().ok()?.rsplit_once('/')?.1.parse().ok())
            .ok_or_else(|| BodyError::Json("the answer names no length".to_owned()))?;
        Ok((response.into_body(), total))
    }

    async fn call(
        &mut self,
        method: Method,
        path: &str,
        bytes: Bytes,
        coding: Option<&'static str>,
        from: Option<u64>,
    ) -> Result<Response<Bytes>, CallError> {
        let mut fresh = 0;
        loop {
            let request = self.signed(&method, path, &bytes, coding, from)?;
            let kept = self.client.as_ref().is_some_and(|client| !client.is_closed());
            let response = match self.client().await?.call(request, MAX_ANSWER, ANSWER_TIMEOUT).await {
                Ok(response) => response,
                Err(error) => {
                    self.client = None;
                    // A kept connection may have been closed just now; that is no outage.
                    if kept && fresh == 0 && matches!(error, ClientError::Exchange { .. }) {
                        fresh += 1;
                        continue;
                    }
                    self.next_url();
                    return Err(error.into());
                }
            };
            match refusal(&response) {
                None => return Ok(response),
                Some(problem) if fresh < 2 && (self.learn_time(&problem) || self.learn_number(&problem)) => {
                    fresh += 2;
                }
                Some(problem) => return Err(CallError::Refused(Box::new(problem))),
            }
        }
    }

    /// Takes the control plane's time out of a refusal for skew.
    fn learn_time(&mut self, problem: &Problem) -> bool {
        let Some(time) = problem.server_time.filter(|_| problem.code == Code::Skewed.as_str()) else {
            return false;
        };
        self.offset = time.0.saturating_sub(now().0);
        tracing::warn!(
            offset_secs = self.offset / 1000,
            "this host's clock differs from the control plane's; requests are signed with the offset"
        );
        true
    }

    /// Goes on from the number that the control plane would take: after a restart with a clock
    /// that was set back, ours would be refused as replays until the clock has caught up.
    fn learn_number(&mut self, problem: &Problem) -> bool {
        let next =
            problem.next_number.filter(|next| *next > self.nonce && problem.code == Code::Replayed.as_str());
        if let Some(next) = next {
            self.nonce = next - 1;
        }
        next.is_some()
    }

    fn signed(
        &mut self,
        method: &Method,
        path: &str,
        bytes: &Bytes,
        coding: Option<&'static str>,
        from: Option<u64>,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let now = Timestamp(now().0.saturating_add(self.offset));
        self.nonce = next_number(self.nonce, now);
        let (bare, query) = path.split_once('?').unwrap_or((path, ""));
        let target = Target { method: method.as_str(), path: bare, query, body: bytes };
        let signed = signature::sign(target, &self.node, &self.key, now, self.nonce);
        let authority = self.urls[self.at].authority();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{authority}{path}"))
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, env!("CARGO_PKG_VERSION"))
            .header(header::ACCEPT_ENCODING, GZIP)
            .header(SIGNATURE_INPUT, signed.input)
            .header(SIGNATURE, signed.signature);
        if let Some(digest) = signed.content_digest {
            request = request.header(CONTENT_DIGEST, digest).header(header::CONTENT_TYPE, JSON);
        }
        if let Some(coding) = coding {
            request = request.header(header::CONTENT_ENCODING, coding);
        }
        if let Some(from) = from {
            request = request.header(
                header::RANGE,
                HeaderValue::from_str(&format!("bytes={from}-")).map_err(http::Error::from)?,
            );
        }
        Ok(request.body(Full::new(bytes.clone()))?)
    }

    async fn client(&mut self) -> Result<&mut Client, CallError> {
        if self.client.as_ref().is_some_and(Client::is_closed) {
            self.client = None;
        }
        if self.client.is_none() {
            match Client::dial(&self.urls[self.at], self.tls.clone()).await {
                Ok(client) => self.client = Some(client),
                Err(error) => {
                    self.next_url();
                    return Err(error.into());
                }
            }
        }
        self.client.as_mut().ok_or_else(|| BodyError::Json("the connection went away".to_owned()).into())
    }

    fn next_url(&mut self) {
        self.at = (self.at + 1) % self.urls.len();
    }
}

/// The number after `last` for a request signed at `now`: it rises, also over a restart.
///
/// One far ahead of `now` was never accepted, because its time was not: it came from a clock
/// that was wrong. To go on from it would make every request a replay once the clock is right
/// and the agent starts anew.
fn next_number(last: u64, now: Timestamp) -> u64 {
    let micros = |time: Timestamp| u64::try_from(time.0).unwrap_or(0).saturating_mul(1000);
    let accepted = last < micros(now.plus(SLACK * 2));
    if accepted { micros(now).max(last.saturating_add(1)) } else { micros(now) }
}

/// The problem that a response carries; `None` for a good one.
pub(crate) fn refusal(response: &Response<Bytes>) -> Option<Problem> {
    if response.status().is_success() {
        return None;
    }
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let told = (kind == Some(PROBLEM_JSON)).then(|| body::decode(response.body()).ok()).flatten();
    Some(told.unwrap_or_else(|| {
        let status = response.status();
        Problem::new(Code::Internal, format!("the server answered {status} without saying why"))
    }))
}

/// A response's body without its content coding.
pub(crate) fn unpack(response: Response<Bytes>) -> Result<Vec<u8>, BodyError> {
    let coding = response.headers().get(header::CONTENT_ENCODING).cloned();
    let coding = coding.as_ref().and_then(|value| value.to_str().ok());
    body::unpack(response.into_body().to_vec(), coding, MAX_ANSWER)
}
