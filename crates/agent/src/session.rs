//! [`NodeSession`]: signed calls to the control plane, multiplexed over one kept connection.
//!
//! ```text
//! call --> connection() --> sign --> request on the shared HTTP/2 connection --> answer
//!            | none: dial, one at a time                    | failed: the next call dials the
//!            v                                              v next URL
//! ```
//!
//! Invariants: no lock is held across a request, so a slow answer delays no other call; the numbers
//! of signatures rise over all sessions of a node, and those of requests under way together are
//! close enough for the control plane's window, in whatever order they arrive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use model::canonical::CanonicalError;
use model::exchange::{Answer, Signed};
use model::time::SLACK;
use model::{FleetId, Hostname, NodeId, Timestamp};
use net::client::{Client, ClientError};
use net::{Destination, ProxyUrl, ServerUrl};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::sealing::SealingStatement;
use trust::seen::Seen;
use trust::token::TlsTermination;
use trust::{RecipientKey, SigningKey};
use wire::body::{self, BodyError, GZIP, JSON, MAX_ANSWER};
use wire::headers::{
    AGENT_VERSION_HEADER, CONTENT_DIGEST, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT,
};
use wire::signature::{self, SignatureHeaders, SignedTarget};
use wire::{Code, Problem, batch, route};

use crate::clock::now;
use crate::outgoing_call::{OutgoingCall, packed, refusal, unpack};
use crate::render::chain;

/// How long an answer may take, a long poll's wait apart.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How far a proxy may say that this host's clock is off: nobody signs what it says, and it could keep
/// what is signed for a time to come, to deliver it then (IDN-4).
pub const MAX_PROXIED_OFFSET: Duration = Duration::from_secs(300);
/// How long a connection of before credentials were renewed goes on where none could be made in its place.
const REPLACE_AGAIN: Duration = Duration::from_secs(60);

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
    /// By what comes through a proxy this host's clock is off by more than is believed (IDN-4).
    #[error(
        "the proxy says that this host's clock differs by {offset_secs} s from the control plane's, and \
         beyond {} s that is not believed: set this host's clock; if it is right, see what the proxy does",
        MAX_PROXIED_OFFSET.as_secs()
    )]
    ClockOff {
        /// What the control plane's clock would be ahead of ours, in seconds.
        offset_secs: i64,
    },
    /// A request could not be put together.
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
}

/// What signs for one node. All its sessions share it, so that numbers rise over all of them.
pub struct Signer {
    fleet: FleetId,
    node: NodeId,
    key: Arc<SigningKey>,
    pub(crate) tls_termination: TlsTermination,
    clock: Mutex<SignerClock>,
}

#[derive(Clone, Copy, Default)]
struct SignerClock {
    /// What the control plane's clock is ahead of ours, in milliseconds, when it refused for skew.
    offset: i64,
    /// The number of the last signature.
    number: u64,
    /// Calls under way.
    under_way: u32,
    /// The next number goes by the clock, whatever is under way.
    by_time: bool,
}

impl Signer {
    /// Signs for a node, whose TLS sessions end there.
    pub fn new(
        fleet: FleetId,
        node: NodeId,
        key: Arc<SigningKey>,
        tls_termination: TlsTermination,
    ) -> Signer {
        Signer { fleet, node, key, tls_termination, clock: Mutex::default() }
    }

    fn clock(&self) -> MutexGuard<'_, SignerClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The control plane's time, as far as a refusal for skew named it; else the host's own.
    pub fn server_time(&self) -> Timestamp {
        Timestamp(now().0.saturating_add(self.clock().offset))
    }

    /// The time and the number of the next signature. `own`: calls under way that wait for it.
    fn next(&self, own: u32) -> (Timestamp, u64) {
        let now = self.server_time();
        let mut clock = self.clock();
        // Requests under way may overtake one another. The receiver takes numbers that lie less
        // than its window's width below the highest, so theirs lie beside each other.
        let close = clock.under_way > own && !std::mem::take(&mut clock.by_time);
        clock.number = next_number(clock.number, now, close);
        (now, clock.number)
    }

    /// Counts a call as under way until the value is dropped.
    pub fn begin(&self) -> UnderWay<'_> {
        self.clock().under_way += 1;
        UnderWay(self)
    }

    /// Signs a request of a call that is counted as under way.
    pub fn sign(&self, target: SignedTarget<'_>) -> SignatureHeaders {
        let (now, number) = self.next(1);
        signature::sign(target, &self.fleet, &self.node, &self.key, now, number)
    }

    /// Signs what the node has seen.
    ///
    /// # Errors
    /// Never for a number within 2^53.
    pub fn sign_seen(&self, seen: &Seen) -> Result<Signed, CanonicalError> {
        seen.sign(&self.key)
    }

    /// Signs for which key the node's secrets are sealed (SEC-1).
    ///
    /// # Errors
    /// Never: all of it is text and a time.
    pub fn sign_sealing_key(
        &self,
        hostname: Hostname,
        recipient: RecipientKey,
    ) -> Result<Signed, CanonicalError> {
        SealingStatement { fleet: self.fleet.clone(), hostname, recipient, at: self.server_time() }
            .sign(&self.key)
    }

    /// The node's id.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Takes out of a refusal what makes the next try a better one, if it says anything.
    pub fn learn(&self, problem: &Problem) -> bool {
        self.learn_time(problem) || self.learn_number(problem)
    }

    /// What the control plane's clock is ahead of ours by a refusal for skew, in milliseconds; the error
    /// holds one that a proxy may not make this node believe.
    fn offset(&self, problem: &Problem) -> Option<Result<i64, i64>> {
        let time = problem.server_time.filter(|_| problem.code == Code::Skewed.as_str())?;
        Some(self.believed(time))
    }

    fn believed(&self, server_time: Timestamp) -> Result<i64, i64> {
        let offset = server_time.0.saturating_sub(now().0);
        let is_far = u128::from(offset.unsigned_abs()) > MAX_PROXIED_OFFSET.as_millis();
        if is_far && !self.tls_termination.is_control_plane() { Err(offset) } else { Ok(offset) }
    }

    /// The control plane's time by an answer that came on a link just now; `None` when it does not say it, or
    /// a proxy may not make this node believe it.
    pub fn time_on_link(&self, answer: &Answer) -> Option<Timestamp> {
        answer.server_time.filter(|time| self.believed(*time).is_ok())
    }

    /// Takes the control plane's time out of a refusal for skew.
    fn learn_time(&self, problem: &Problem) -> bool {
        let offset = match self.offset(problem) {
            Some(Ok(offset)) => offset,
            Some(Err(offset)) => {
                tracing::warn!(
                    offset_secs = offset / 1000,
                    believed_secs = MAX_PROXIED_OFFSET.as_secs(),
                    "the proxy says that this host's clock is off by more than is believed; set the clock"
                );
                return false;
            }
            None => return false,
        };
        let mut clock = self.clock();
        (clock.offset, clock.by_time) = (offset, true);
        drop(clock);
        let beside = now().beside(Timestamp(now().0.saturating_add(offset)));
        tracing::warn!(
            "this host's clock is {beside} the control plane's; requests are signed with the offset"
        );
        true
    }

    /// Goes on from the number that the control plane would take: after a restart with a clock
    /// that was set back, ours would be refused as replays until the clock has caught up. Of
    /// two requests at once the later number may come first; the other one is signed anew.
    fn learn_number(&self, problem: &Problem) -> bool {
        let Some(next) = problem.next_number.filter(|_| problem.code == Code::Replayed.as_str()) else {
            return false;
        };
        let mut clock = self.clock();
        clock.number = clock.number.max(next.saturating_sub(1));
        true
    }
}

/// A call that is under way until the value is dropped.
pub struct UnderWay<'a>(&'a Signer);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.clock().under_way -= 1;
    }
}

/// Signed calls of one node. Calls run beside each other over one connection.
pub struct NodeSession {
    signer: Arc<Signer>,
    /// Locked for moments only.
    shared: Mutex<SharedConnection>,
    /// Held while a connection is dialled, so that calls share it. No request waits for it that has a connection.
    dialing: tokio::sync::Mutex<()>,
}

/// Where the control planes are, and what TLS sessions with them are opened with.
#[derive(Clone, Debug)]
pub struct SessionCredentials {
    /// In order of preference; at least one.
    pub urls: Vec<ServerUrl>,
    /// The proxy whose tunnel leads to all of them; without one they are dialled directly.
    pub proxy: Option<Arc<ProxyUrl>>,
    /// With the node's certificate, unless a proxy ends TLS.
    pub tls: Arc<ClientConfig>,
    /// Rises with each change of what they are made from: none takes the place of later ones.
    pub number: u64,
}

/// The connection that calls share.
struct SharedConnection {
    credentials: SessionCredentials,
    /// The URL that is dialled next, or was dialled.
    at: usize,
    client: Option<Client>,
    /// The client was opened with credentials of before, for the same place: from then on another one is dialled, and
    /// takes its place.
    replace_at: Option<Instant>,
    /// Counts connections, to tell them apart.
    number: u64,
}

/// The connection that one call goes over.
struct CallConnection {
    client: Client,
    number: u64,
    /// It was there before the call.
    reused: bool,
}

impl NodeSession {
    /// A session of a node with one or more control planes, tried in order.
    pub fn new(credentials: SessionCredentials, signer: Signer) -> NodeSession {
        NodeSession::sharing(credentials, 0, Arc::new(signer))
    }

    fn sharing(credentials: SessionCredentials, at: usize, signer: Arc<Signer>) -> NodeSession {
        let shared =
            Mutex::new(SharedConnection { credentials, at, client: None, replace_at: None, number: 0 });
        NodeSession { signer, shared, dialing: tokio::sync::Mutex::default() }
    }

    /// Dials with other credentials of the same node from now on, unless later ones are used. Calls under way go on with
    /// their connection. One that leads to the same place is given up only once another one is made: a host whose clock
    /// is years ahead verifies none (IDN-11).
    pub fn renew(&self, credentials: SessionCredentials) {
        let mut shared = self.shared();
        if credentials.number < shared.credentials.number {
            return;
        }
        let before = std::mem::replace(&mut shared.credentials, credentials);
        let has_moved = before.urls != shared.credentials.urls;
        if has_moved {
            shared.at = 0;
        }
        match has_moved || before.proxy != shared.credentials.proxy {
            true => shared.client = None,
            false => shared.replace_at = Some(Instant::now()),
        }
    }

    /// Gives the open connection up: whoever is there may be believed no more. Calls under way on it go on.
    pub fn give_up(&self) {
        self.shared().client = None;
    }

    fn shared(&self) -> MutexGuard<'_, SharedConnection> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another session of the same node, with a connection of its own.
    pub fn beside(&self) -> NodeSession {
        let shared = self.shared();
        NodeSession::sharing(shared.credentials.clone(), shared.at, self.signer.clone())
    }

    /// Another session of the same node, opened with other credentials.
    pub fn with(&self, credentials: SessionCredentials) -> NodeSession {
        NodeSession::sharing(credentials, 0, self.signer.clone())
    }

    /// What signs for the node.
    pub fn signer(&self) -> &Arc<Signer> {
        &self.signer
    }

    /// Where the next connection leads, and through which proxy.
    pub fn destination(&self) -> Destination {
        let shared = self.shared();
        let SessionCredentials { urls, proxy, .. } = &shared.credentials;
        Destination { url: urls[shared.at].clone(), proxy: proxy.clone() }
    }

    /// The credentials of the TLS sessions.
    pub fn tls(&self) -> Arc<ClientConfig> {
        self.shared().credentials.tls.clone()
    }

    /// The control plane's time, as far as a refusal for skew named it; else the host's own.
    pub fn server_time(&self) -> Timestamp {
        self.signer.server_time()
    }

    /// Posts a message and reads the answer.
    ///
    /// # Errors
    /// [`CallError`] says what failed; after a failure to reach it, the next call tries the next URL.
    pub async fn post<T: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        message: &T,
    ) -> Result<A, CallError> {
        let (bytes, coding) = packed(body::encode(message)?);
        let response = self.call(OutgoingCall::new(Method::POST, path, bytes, coding)).await?;
        Ok(body::decode(&unpack(response, MAX_ANSWER)?)?)
    }

    /// Posts frames; gives the answer's bytes.
    ///
    /// # Errors
    /// [`CallError`] says what failed.
    pub async fn post_frames(&self, frames: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let (bytes, coding) = packed(frames);
        let mut call = OutgoingCall::new(Method::POST, route::EVENTS, bytes, coding);
        call.limit = batch::MAX_ANSWER;
        Ok(unpack(self.call(call).await?, batch::MAX_ANSWER)?)
    }

    /// Gets bytes, from an offset on; the second value is the whole length.
    ///
    /// # Errors
    /// [`CallError`] says what failed.
    pub async fn get_range(&self, path: &str, from: u64) -> Result<(Bytes, u64), CallError> {
        let mut call = OutgoingCall::new(Method::GET, path, Bytes::new(), None);
        call.from = Some(from);
        let response = self.call(call).await?;
        let range = response.headers().get(header::CONTENT_RANGE);
        let total = range
            .and_then(|range| range.to_str().ok()?.rsplit_once('/')?.1.parse().ok())
            .ok_or_else(|| BodyError::Json("the answer names no length".to_owned()))?;
        Ok((response.into_body(), total))
    }

    /// Gets at most so many bytes, from an offset on.
    ///
    /// # Errors
    /// [`CallError`] says what failed.
    pub async fn get_part(&self, path: &str, from: u64, most: u64) -> Result<Bytes, CallError> {
        let mut call = OutgoingCall::new(Method::GET, path, Bytes::new(), None);
        (call.from, call.most) = (Some(from), Some(most));
        Ok(self.call(call).await?.into_body())
    }

    /// Gets what is no JSON, whole.
    ///
    /// # Errors
    /// [`CallError`] says what failed.
    pub async fn get_bytes(&self, path: &str) -> Result<Vec<u8>, CallError> {
        let call = OutgoingCall::new(Method::GET, path, Bytes::new(), None);
        Ok(unpack(self.call(call).await?, MAX_ANSWER)?)
    }

    async fn call(&self, call: OutgoingCall<'_>) -> Result<Response<Bytes>, CallError> {
        let _under_way = self.signer.begin();
        let (mut redialled, mut refused) = (false, 0);
        loop {
            let CallConnection { mut client, number, reused } = self.connection().await?;
            let request = self.signed(&call, client.url())?;
            let response = match client.call(request, call.limit, ANSWER_TIMEOUT).await {
                Ok(response) => response,
                // A kept connection may have been closed just now; that is no outage.
                Err(ClientError::Exchange { .. }) if reused && !redialled => {
                    redialled = true;
                    self.forget(number);
                    continue;
                }
                Err(error) => {
                    if self.forget(number) {
                        self.next_url();
                    }
                    return Err(error.into());
                }
            };
            let Some(problem) = refusal(&response) else { return Ok(response) };
            refused += 1;
            if refused > most_refusals(&problem) || !self.signer.learn(&problem) {
                return Err(match self.signer.offset(&problem) {
                    Some(Err(offset)) => CallError::ClockOff { offset_secs: offset / 1000 },
                    _ => CallError::Refused(Box::new(problem)),
                });
            }
        }
    }

    fn signed(&self, call: &OutgoingCall<'_>, url: &ServerUrl) -> Result<Request<Full<Bytes>>, CallError> {
        let (bare, query) = call.path.split_once('?').unwrap_or((call.path, ""));
        let (method, body) = (call.method.as_str(), &call.bytes);
        let target = SignedTarget { method, path: bare, query, body, last_event_id: None };
        let signed = self.signer.sign(target);
        let (authority, path) = (url.authority(), call.path);
        let mut request = Request::builder()
            .method(&call.method)
            .uri(format!("https://{authority}{path}"))
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, env!("CARGO_PKG_VERSION"))
            .header(header::ACCEPT_ENCODING, GZIP)
            .header(SIGNATURE_INPUT, signed.input)
            .header(SIGNATURE, signed.signature);
        if let Some(digest) = signed.content_digest {
            request = request.header(CONTENT_DIGEST, digest).header(header::CONTENT_TYPE, JSON);
        }
        if let Some(coding) = call.coding {
            request = request.header(header::CONTENT_ENCODING, coding);
        }
        if let Some(range) = call.range() {
            let range = HeaderValue::from_str(&range).map_err(http::Error::from)?;
            request = request.header(header::RANGE, range);
        }
        let mut request = request.body(Full::new(call.bytes.clone()))?;
        signature::keep_out_of_table(request.headers_mut());
        Ok(request)
    }

    /// The kept connection, or a new one.
    ///
    /// # Errors
    /// When there is none to be had; the next call tries the next URL.
    pub async fn client(&self) -> Result<Client, CallError> {
        self.connection().await.map(|connection| connection.client)
    }

    async fn connection(&self) -> Result<CallConnection, CallError> {
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        let _dialing = self.dialing.lock().await;
        // Another call may have dialled meanwhile.
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        loop {
            let (to, tls) = (self.destination(), self.tls());
            match Client::dial(to, tls.clone()).await {
                Ok(client) => {
                    let mut shared = self.shared();
                    // Whoever was dialled meanwhile is perhaps believed no more, or elsewhere: credentials change
                    // seldom, so this ends.
                    if !Arc::ptr_eq(&shared.credentials.tls, &tls) {
                        continue;
                    }
                    shared.number += 1;
                    (shared.client, shared.replace_at) = (Some(client.clone()), None);
                    return Ok(CallConnection { client, number: shared.number, reused: false });
                }
                Err(error) => {
                    if let Some(open) = self.postpone_replacement() {
                        tracing::debug!(error = %chain(&error), "the connection of before the renewal goes on");
                        return Ok(open);
                    }
                    self.next_url();
                    return Err(error.into());
                }
            }
        }
    }

    /// The connection that is kept, unless it is closed, or another one is to take its place by now.
    fn open_connection(&self) -> Option<CallConnection> {
        let shared = self.shared();
        let is_replaced = shared.replace_at.is_some_and(|at| at <= Instant::now());
        let client = shared.client.as_ref().filter(|client| !is_replaced && !client.is_closed())?.clone();
        Some(CallConnection { client, number: shared.number, reused: true })
    }

    /// No connection was made in place of the one that is kept, which goes on for some time if it is open.
    fn postpone_replacement(&self) -> Option<CallConnection> {
        if let Some(at) = &mut self.shared().replace_at {
            *at = Instant::now() + REPLACE_AGAIN;
        }
        self.open_connection()
    }

    /// Gives a connection up that failed; other calls on it go on. Says whether it was the kept one.
    fn forget(&self, number: u64) -> bool {
        let mut shared = self.shared();
        let is_kept = shared.number == number && shared.client.is_some();
        if is_kept {
            shared.client = None;
        }
        is_kept
    }

    /// Goes on to the next URL.
    pub fn next_url(&self) {
        let mut shared = self.shared();
        shared.client = None;
        shared.at = (shared.at + 1) % shared.credentials.urls.len();
    }
}

/// How often a call that was refused is signed anew, when the refusal says how. Of requests under
/// way together each may make the number of another one too low.
fn most_refusals(problem: &Problem) -> u32 {
    /// The calls of one node that run beside each other: check-in, facts, contents, frames.
    const BESIDE: u32 = 4;
    if problem.code == Code::Replayed.as_str() { BESIDE } else { 1 }
}

/// The number after `last` for a request signed at `now`: it rises, also over a restart.
///
/// One far ahead of `now` was never accepted, because its time was not: it came from a clock
/// that was wrong. To go on from it would make every request a replay once the clock is right
/// and the agent starts anew.
///
/// `close`: right after `last`, if that may have been accepted.
fn next_number(last: u64, now: Timestamp, close: bool) -> u64 {
    let micros = |time: Timestamp| u64::try_from(time.0).unwrap_or(0).saturating_mul(1000);
    let accepted = last < micros(now.plus(SLACK * 2));
    match accepted {
        true if close && last > 0 => last.saturating_add(1),
        true => micros(now).max(last.saturating_add(1)),
        false => micros(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that overtake one another are no replays: the receiver's window is 64 wide.
    #[test]
    fn numbers_of_requests_under_way_lie_beside_each_other() {
        let key = Arc::new(SigningKey::from_seed(&[7; 32]));
        let fleet = "demo".parse().unwrap();
        let signer = Signer::new(fleet, key.public().node_id(), key, TlsTermination::ControlPlane);
        let first = signer.begin();
        let (_, alone) = signer.next(1);
        let second = signer.begin();
        let numbers: Vec<u64> = (0..4).map(|_| signer.next(1).1).collect();
        assert_eq!(numbers, (alone + 1..).take(4).collect::<Vec<_>>());
        drop((first, second));
        let micros = u64::try_from(now().0).unwrap() * 1000;
        assert!(signer.next(0).1 >= micros, "alone a request goes by the clock");
    }
}
