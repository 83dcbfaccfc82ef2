//! `muster bench joins`: hosts join at once by a group token, while others check in (ENR-9, WIR-6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cli::credentials::MintFiles;
use cli::token::group::{self, GroupMintRequest};
use http::{Request, StatusCode, header};
use http_body_util::Full;
use model::Hostname;
use net::ServerUrl;
use net::client::Client;
use node::joining::{JoinDelay, JoinPatience};
use plane::joining::{JOINS_AT_ONCE, JOINS_PER_SEC};
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use trust::SigningKey;
use trust::group_token::{GroupAdmission, MAX_GROUP_USES};
use trust::token::{KeySource, TlsTermination};
use wire::enroll::EnrollRequest;
use wire::headers::{AGENT_VERSION_HEADER, PROTOCOL, PROTOCOL_HEADER};
use wire::{Problem, body, route};

use crate::checkin::url_of;
use crate::fleet::{self, now};
use crate::load;
use crate::process::{ANY_PORT, Server};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, CONNECTIONS, wait_for};

/// Nodes that are there before, some of which check in.
const NODES: usize = 256;
/// Hosts that have a connection at the same time: this machine is all of them.
const DIALLING: usize = 256;
/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a host asks before the measurement fails.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Check-ins may take this long meanwhile, all but one in a hundred, in milliseconds.
const CHECKIN_P99_MS: f64 = 250.0;
/// All are in within twice the time that the rate alone takes.
const LEAST_RATE: f64 = JOINS_PER_SEC as f64 / 2.0;
/// The most that one host asks.
const MOST_TRIES: f64 = 8.0;

pub(super) async fn run(hosts: usize, time: Duration, figures: &Figures) -> Result<(), BenchError> {
    let hosts = hosts.clamp(1, MAX_GROUP_USES as usize);
    let dir = tempfile::tempdir()?;
    let nodes = fleet::fill(dir.path(), NODES, NODES).await?;
    let calling = &nodes[..CONNECTIONS];
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    let url = url_of(dir.path())?;
    let alone = load::measure(&server, &url, calling, time, true).await?;
    let (root, info) = MintFiles::of_dir(dir.path()).read()?;
    let request = GroupMintRequest {
        pattern: "join-*".to_owned(),
        uses: u32::try_from(hosts)?,
        admission: GroupAdmission::ByToken,
        labels: Vec::new(),
        valid: Duration::from_secs(3600),
        key: KeySource::Own,
    };
    let storm = Storm {
        token: group::mint(&request, &info, &root, now())?,
        url: url.clone(),
        tls: net::tls::client_pinned(info.ca, TlsTermination::ControlPlane)?,
        dialling: Semaphore::new(DIALLING),
        began: Instant::now(),
    };
    let (meanwhile, joined) =
        tokio::try_join!(load::measure(&server, &url, calling, time, true), storm.of(hosts))?;
    let took = joined.iter().map(|host| host.after).max().unwrap_or_default();
    let mut seconds: BTreeMap<u64, usize> = BTreeMap::new();
    joined.iter().for_each(|host| *seconds.entry(host.after.as_secs()).or_default() += 1);
    let busiest = seconds.values().max().copied().unwrap_or(0);
    let tries = joined.iter().map(|host| host.tries).max().unwrap_or(0);
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    // A second that is counted here may have parts of two of the control plane's.
    let most = f64::from(JOINS_AT_ONCE + 2 * JOINS_PER_SEC);
    figures.table(
        "joins",
        &format!("{hosts} hosts join at once by a group token"),
        vec![
            Row::plain("until the last is in", took.as_secs_f64(), Unit::Secs),
            Row::at_least(
                "joins a second",
                hosts as f64 / took.as_secs_f64().max(1.0),
                LEAST_RATE.min(hosts as f64 / 8.0),
                Unit::PerSecond,
            ),
            Row::at_most("joins in the busiest second", busiest as f64, most, Unit::Count),
            Row::at_most("tries of the host that asked most", f64::from(tries), MOST_TRIES, Unit::Count),
            Row::plain("check-in p99 alone", millis(alone.p99), Unit::Millis),
            Row::at_most("check-in p99 meanwhile", millis(meanwhile.p99), CHECKIN_P99_MS, Unit::Millis),
        ],
    )
}

/// Hosts that join at once.
struct Storm {
    token: String,
    url: ServerUrl,
    tls: Arc<ClientConfig>,
    dialling: Semaphore,
    began: Instant,
}

/// A host that was let in.
struct JoinedHost {
    after: Duration,
    tries: u32,
}

impl Storm {
    async fn of(self, hosts: usize) -> Result<Vec<JoinedHost>, BenchError> {
        let storm = Arc::new(self);
        let mut tasks = JoinSet::new();
        for number in 0..hosts {
            let storm = storm.clone();
            tasks.spawn(async move { storm.join(number).await });
        }
        wait_for(&mut tasks, 0).await
    }

    /// Asks as an agent does, over a new connection each time, until it is let in.
    async fn join(&self, number: usize) -> Result<JoinedHost, BenchError> {
        let hostname: Hostname = format!("join-{number}").parse()?;
        let key = SigningKey::from_seed(&server::posture::random()?);
        let csr_pem = net::issue::node_request(&key, &hostname)?;
        let message =
            EnrollRequest { token: Some(self.token.clone()), hostname: hostname.to_string(), csr_pem };
        let message: Bytes = body::encode(&message)?.into();
        let mut patience = JoinPatience::new(now().plus(PATIENCE), number as u64);
        let mut tries = 0;
        loop {
            tries += 1;
            let asked = {
                let _permit = self.dialling.acquire().await?;
                self.ask(message.clone()).await?
            };
            let Some(delay) = asked else { return Ok(JoinedHost { after: self.began.elapsed(), tries }) };
            let wait = patience.wait(delay, now()).ok_or_else(|| format!("{hostname} was never let in"))?;
            tokio::time::sleep(wait).await;
        }
    }

    /// When the host is to come back; `None` where it is in.
    async fn ask(&self, message: Bytes) -> Result<Option<JoinDelay>, BenchError> {
        let Ok(mut client) = Client::dial(&self.url, self.tls.clone()).await else {
            return Ok(Some(JoinDelay::Unknown));
        };
        let request = Request::post(format!("https://{}{}", self.url.authority(), route::ENROLL))
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, env!("CARGO_PKG_VERSION"))
            .header(header::CONTENT_TYPE, body::JSON)
            .body(Full::new(message))?;
        let Ok(response) = client.call(request, body::MAX_ANSWER, TIMEOUT).await else {
            return Ok(Some(JoinDelay::Unknown));
        };
        match response.status() {
            StatusCode::OK => Ok(None),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let problem: Problem = serde_json::from_slice(response.body())?;
                let told = |secs| JoinDelay::Asked(Duration::from_secs(secs));
                Ok(Some(problem.retry_after_secs.map_or(JoinDelay::Unknown, told)))
            }
            _ => Err(format!("a host was refused: {}", String::from_utf8_lossy(response.body())).into()),
        }
    }
}
