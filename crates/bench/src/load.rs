//! The load: nodes that check in, over kept connections or a new one each time, and that renew certificates.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use model::Incarnation;
use model::exchange::{Answer, CheckIn, HeldRelease, RunNote, TraitReport};
use model::log::{Cursor, Fact, FactBody};
use model::{Digest, RunCounts, RunReport};
use net::ServerUrl;
use net::client::Client;
use tokio::task::JoinSet;
use trust::seen::Seen;
use wire::enroll::RenewRequest;
use wire::headers::{
    AGENT_VERSION_HEADER, CONTENT_DIGEST, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT,
};
use wire::signature::{self, SignedTarget};
use wire::{body, route};

use crate::fleet::{BenchNode, now};
use crate::process::Server;
use crate::{BenchError, wait_for};

/// How long one check-in may take under load.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a measurement came to.
pub(super) struct Measured {
    /// Check-ins a second.
    pub(super) rate: f64,
    /// Half of them took at most this long.
    pub(super) p50: Duration,
    /// All but one in a hundred took at most this long.
    pub(super) p99: Duration,
    /// The server's CPU time for one.
    pub(super) cpu: Duration,
    /// Bytes both ways for one, TLS and framing included.
    pub(super) bytes: f64,
}

/// One node's check-ins.
pub(super) struct Caller {
    node: BenchNode,
    url: ServerUrl,
    /// The first check-in, which carries traits, the report of a run and the `seen` document.
    first: Option<Bytes>,
    body: Bytes,
    /// What the body says, for those that say more later.
    message: CheckIn,
    nonce: u64,
}

impl Caller {
    pub(super) fn new(node: BenchNode, url: &ServerUrl) -> Result<Caller, BenchError> {
        let incarnation: Incarnation = "i0123456789abcdef".parse()?;
        let seen = Seen {
            node: node.id.clone(),
            header: node.held.header,
            seq: node.held.seq,
            log_head: Cursor { incarnation: incarnation.clone(), seq: 1 },
            at: now(),
            acked: None,
        };
        let run = run_of(&node);
        let mut message = CheckIn {
            unmade_run: None,
            freshness: None,
            running_since: None,
            held: Some(node.held.clone()),
            incarnation,
            run: Some(RunNote { at: run.started, outcome: node.held.root }),
            facts: vec![Fact { seq: 1, at: now(), body: FactBody::Run(run) }],
            traits: Some(traits()),
            full: false,
            run_confirmed: None,
            tagged_run_confirmed: None,
            seen: Some(seen.sign(&node.key)?),
            header: None,
            acked: Some(0),
            trust: None,
            renewal_failure: None,
            unadopted: None,
            instance: None,
            capabilities: None,
        };
        let first = Some(body::encode(&message)?.into());
        // What the control plane has does not travel again: a kept check-in is this one.
        (message.seen, message.traits, message.facts) = (None, None, Vec::new());
        message.acked = Some(1);
        let body = body::encode(&message)?.into();
        Ok(Caller { node, url: url.clone(), first, body, message, nonce: 0 })
    }

    /// The control plane has what it sends first.
    pub(super) fn has_reported(&mut self) {
        self.first = None;
    }

    pub(super) async fn dial(&self) -> Result<Client, BenchError> {
        Ok(Client::dial(&self.url, self.node.tls.clone()).await?)
    }

    pub(super) async fn check_in(&mut self, client: &mut Client) -> Result<(), BenchError> {
        let body = self.first.as_ref().unwrap_or(&self.body).clone();
        self.post(client, route::CHECKIN, body).await?;
        self.first = None;
        Ok(())
    }

    /// Checks in as before; gives what it is answered.
    pub(super) async fn ask(&mut self, client: &mut Client) -> Result<Answer, BenchError> {
        let answer = self.post(client, route::CHECKIN, self.body.clone()).await?;
        Ok(body::decode(&answer)?)
    }

    /// Checks in with the next facts of its log, which are acknowledged when it returns, and from now on with what it
    /// holds where that is another release.
    pub(super) async fn report(
        &mut self,
        client: &mut Client,
        facts: Vec<FactBody>,
        held: Option<HeldRelease>,
    ) -> Result<(), BenchError> {
        let message = &mut self.message;
        let acked = message.acked.unwrap_or_default();
        let fact = |(seq, body)| Fact { seq, at: now(), body };
        message.facts = (acked + 1..).zip(facts).map(fact).collect();
        let last = acked + u64::try_from(message.facts.len())?;
        message.held = held.or(message.held.take());
        let body = body::encode(message)?.into();
        let answer: Answer = body::decode(&self.post(client, route::CHECKIN, body).await?)?;
        if answer.acked.as_ref().is_none_or(|acked| acked.seq != last) {
            return Err(format!("facts up to {last} were not acknowledged: {:?}", answer.acked).into());
        }
        self.message.facts = Vec::new();
        self.message.acked = Some(last);
        self.body = body::encode(&self.message)?.into();
        Ok(())
    }

    /// Asks for another certificate of the same key.
    pub(super) async fn renew(&mut self, client: &mut Client) -> Result<(), BenchError> {
        let csr_pem = net::issue::node_request(&self.node.key, &self.node.hostname)?;
        let body = body::encode(&RenewRequest::of(csr_pem))?;
        self.post(client, route::RENEW, body.into()).await.map(drop)
    }

    /// Sends a signed request; gives the body of the answer, unpacked.
    async fn post(
        &mut self,
        client: &mut Client,
        path: &'static str,
        body: Bytes,
    ) -> Result<Vec<u8>, BenchError> {
        let now = now();
        self.nonce = (self.nonce + 1).max(u64::try_from(now.0)? * 1000);
        let target = SignedTarget { method: "POST", path, query: "", body: &body, last_event_id: None };
        let signed =
            signature::sign(target, &self.node.fleet, &self.node.id, &self.node.key, now, self.nonce);
        let mut request = Request::post(format!("https://{}{path}", self.url.authority()))
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, env!("CARGO_PKG_VERSION"))
            .header(header::ACCEPT_ENCODING, body::GZIP)
            .header(header::CONTENT_TYPE, body::JSON)
            .header(SIGNATURE_INPUT, signed.input)
            .header(SIGNATURE, signed.signature)
            .header(CONTENT_DIGEST, signed.content_digest.unwrap_or_default())
            .body(Full::new(body))?;
        signature::keep_out_of_table(request.headers_mut());
        let response = client.call(request, body::MAX_ANSWER, TIMEOUT).await?;
        if response.status() != http::StatusCode::OK {
            let text = String::from_utf8_lossy(response.body()).into_owned();
            return Err(format!("{path} was refused: {text}").into());
        }
        let coding = response.headers().get(header::CONTENT_ENCODING).map(HeaderValue::to_str).transpose()?;
        let coding = coding.map(str::to_owned);
        Ok(body::unpack(response.into_body().to_vec(), coding.as_deref(), body::MAX_ANSWER)?)
    }
}

/// A few traits.
fn traits() -> TraitReport {
    let values = serde_json::json!({"os": {"id": "debian", "release": "12"}});
    TraitReport::whole(Digest::of(values.to_string().as_bytes()), values)
}

/// The node's run over what it holds: all was right.
fn run_of(node: &BenchNode) -> RunReport {
    RunReport {
        started: now(),
        duration_ms: 1_000,
        seq: node.held.seq,
        root: node.held.root,
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: Vec::new(),
        unswitched: Vec::new(),
        counts: RunCounts { ok: 40, ..RunCounts::default() },
        items: Vec::new(),
    }
}

/// Calls for a while: over kept connections, or else over a new one each time, which is a full
/// handshake with both certificates.
pub(super) async fn measure(
    server: &Server,
    url: &ServerUrl,
    nodes: &[BenchNode],
    time: Duration,
    kept: bool,
) -> Result<Measured, BenchError> {
    let mut callers = Vec::new();
    for node in nodes {
        let mut caller = Caller::new(node.clone(), url)?;
        let mut client = None;
        if kept {
            // The first call fills the compression tables of HTTP/2; what follows is typical.
            caller.check_in(client.insert(caller.dial().await?)).await?;
        }
        callers.push((caller, client));
    }
    let (cpu, started) = (server.cpu()?, Instant::now());
    let mut tasks = JoinSet::new();
    for (mut caller, mut client) in callers {
        tasks.spawn(async move {
            let (mut times, mut bytes) = (Vec::new(), 0);
            while started.elapsed() < time {
                let began = Instant::now();
                let mut open = match client.take() {
                    Some(open) => open,
                    None => caller.dial().await?,
                };
                let before = if kept { total(&open) } else { 0 };
                caller.check_in(&mut open).await?;
                times.push(began.elapsed());
                bytes += total(&open) - before;
                client = kept.then_some(open);
            }
            Ok::<_, BenchError>((times, bytes))
        });
    }
    let done = wait_for(&mut tasks, 0).await?;
    let elapsed = started.elapsed();
    let cpu = server.cpu()?.saturating_sub(cpu);
    let bytes: u64 = done.iter().map(|(_, bytes)| bytes).sum();
    let mut times: Vec<Duration> = done.into_iter().flat_map(|(times, _)| times).collect();
    times.sort_unstable();
    let count = times.len().max(1);
    let at = |share: f64| times.get((count as f64 * share) as usize).copied().unwrap_or_default();
    Ok(Measured {
        rate: count as f64 / elapsed.as_secs_f64(),
        p50: at(0.50),
        p99: at(0.99),
        cpu: cpu.div_f64(count as f64),
        bytes: bytes as f64 / count as f64,
    })
}

fn total(client: &Client) -> u64 {
    client.traffic.up.load(Ordering::Relaxed) + client.traffic.down.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::{checkin, fleet};

    #[tokio::test]
    async fn an_unchanged_check_in_is_asked_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let node = fleet::fill(dir.path(), 1, 1).await.unwrap().remove(0);
        let server = fleet::served(dir.path()).await.unwrap();
        let mut caller = Caller::new(node, &checkin::url_of(dir.path()).unwrap()).unwrap();
        let mut client = caller.dial().await.unwrap();
        caller.check_in(&mut client).await.unwrap();
        let unchanged = caller.body.clone();
        let answer = caller.post(&mut client, route::CHECKIN, unchanged).await.unwrap();
        let answer: Answer = body::decode(&answer).unwrap();
        let asked = [answer.want_run, answer.want_seen, answer.want_traits, answer.want_header];
        assert_eq!(asked, [false; 4], "{answer:?}");
        assert!(answer.offer.is_none() && answer.run_request.is_none());
        server.stop().await;
    }
}
