//! A control plane in this process, its operators, and nodes that sign by hand.

pub mod described;
pub mod link;
pub mod lists;
pub mod operators;
pub mod proxy;
pub mod release;
pub mod rollouts;
pub mod synced;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use model::exchange::{Answer, CheckIn, HeldRelease};
use model::log::Cursor;
use model::{FleetId, Hostname, NodeId, Timestamp};
use net::ServerUrl;
use net::client::{Client, ClientError};
use net::issue::Ca;
use net::tls::ClientKey;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use server::{CertificateSettings, Config, Credentials, EnrollInfo, RunningServer, posture};
use tempfile::TempDir;
use trust::group_token::{GroupAdmission, GroupClaims};
use trust::seen::Seen;
use trust::token::{Claims, KeySource, TlsTermination};
use trust::{SigningKey, token};
use wire::enroll::{EnrollAnswer, EnrollRequest};
use wire::headers::{CONTENT_DIGEST, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT};
use wire::signature::{self, SignedTarget};
use wire::{Code, Problem, body, route};

/// The longest body that a test reads.
pub const LIMIT: usize = 64 * 1024 * 1024;
/// How long an answer may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What time it is.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

/// A number that rises, as the protocol wants it: microseconds, or one more than the last.
pub fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    LAST.fetch_max(micros, Ordering::Relaxed);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A fleet with its control plane.
pub struct Fleet {
    pub dir: TempDir,
    running: Option<RunningServer>,
}

impl Fleet {
    /// Starts a control plane in an empty directory.
    pub async fn start() -> Fleet {
        Fleet::certifying(CertificateSettings::default()).await
    }

    /// The same, which certifies in this way.
    pub async fn certifying(certificates: CertificateSettings) -> Fleet {
        Fleet::called(&[], certificates).await
    }

    /// The same, whose control plane has these names too. It has a key that proves what it gives.
    pub async fn called(names: &[&str], certificates: CertificateSettings) -> Fleet {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { certificates, ..config(dir.path(), 0, 0) };
        config.names.extend(names.iter().map(|name| (*name).to_owned()));
        // So that its nodes take only what is proven (IDN-9).
        std::fs::write(dir.path().join(posture::CONTROL_PLANE_KEY), new_key().to_file().as_bytes()).unwrap();
        let running = server::start(config).await.unwrap();
        Fleet { dir, running: Some(running) }
    }

    /// A fleet whose control plane was started by hand.
    pub fn of(dir: TempDir, running: RunningServer) -> Fleet {
        Fleet { dir, running: Some(running) }
    }

    /// Stops the control plane; the directory stays.
    pub async fn stop(&mut self) {
        self.running.take().unwrap().stop().await;
    }

    /// Starts it again on the same directory, at new addresses.
    pub async fn start_again(&mut self) {
        self.start_again_certifying(CertificateSettings::default()).await;
    }

    /// The same, and it certifies in this way from now on.
    pub async fn start_again_certifying(&mut self, certificates: CertificateSettings) {
        let config = Config { certificates, ..config(self.dir.path(), 0, 0) };
        self.running = Some(server::start(config).await.unwrap());
    }

    /// A copy of the directory of a fleet that is stopped.
    pub fn backup(&self) -> TempDir {
        let backup = TempDir::new().unwrap();
        copy(self.dir.path(), backup.path());
        backup
    }

    /// Puts a backup in the place of the directory of a fleet that is stopped.
    pub fn restore(&self, backup: &TempDir) {
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap()
            } else {
                std::fs::remove_file(path).unwrap()
            }
        }
        copy(backup.path(), self.dir.path());
    }

    /// Where nodes call.
    pub fn url(&self) -> ServerUrl {
        self.running.as_ref().unwrap().node_urls[0].clone()
    }

    /// Where operators call.
    pub fn operator_url(&self) -> ServerUrl {
        self.running.as_ref().unwrap().operator_url.clone()
    }

    /// Where proxies call.
    pub fn proxy_url(&self) -> ServerUrl {
        self.running.as_ref().unwrap().proxy_url.clone().unwrap()
    }

    pub fn enroll_info(&self) -> EnrollInfo {
        posture::read_json(&self.dir.path().join("enroll.json")).unwrap()
    }

    pub fn root_key(&self) -> SigningKey {
        self.key("root.key")
    }

    pub fn release_key(&self) -> SigningKey {
        self.key("release.key")
    }

    fn key(&self, name: &str) -> SigningKey {
        posture::read_key(&self.dir.path().join(name)).unwrap().unwrap()
    }

    /// The CA that nodes' certificates are under, with its key.
    pub fn node_ca(&self) -> Ca {
        let file = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap();
        Ca::load(&file("node-ca.pem"), &file("node-ca.key")).unwrap()
    }

    /// What a good token for a host says.
    pub fn claims(&self, hostname: &str) -> Claims {
        let info = self.enroll_info();
        Claims {
            fleet: info.fleet,
            hostname: hostname.parse().unwrap(),
            expected_pubkey_fingerprint: None,
            key: KeySource::Own,
            issued_at: now(),
            expires_at: now().plus(Duration::from_secs(600)),
            nonce: format!("nonce-{}", number()),
            servers: vec![self.url().to_string()],
            tls_termination: Default::default(),
            ca: info.ca,
            trust: info.trust,
            replaces: None,
        }
    }

    /// What a good token says for so many hosts of a pattern, who wait for an operator.
    pub fn group_claims(&self, pattern: &str, uses: u32) -> GroupClaims {
        let Claims { fleet, issued_at, expires_at, nonce, servers, ca, trust, .. } = self.claims("any");
        GroupClaims {
            fleet,
            pattern: pattern.to_owned(),
            uses,
            admission: GroupAdmission::ByOperator,
            labels: Default::default(),
            key: KeySource::Own,
            issued_at,
            expires_at,
            nonce,
            servers,
            ca,
            trust,
        }
    }

    /// A good token for a host.
    pub fn token(&self, hostname: &str) -> String {
        token::mint(&self.claims(hostname), &self.root_key()).unwrap()
    }

    /// Enrolls a new node.
    pub async fn node(&self, hostname: &str) -> Member {
        let key = new_key();
        let token = self.token(hostname);
        let begun = std::time::Instant::now();
        loop {
            match self.enroll(&token, hostname, &key).await {
                // Joins are paced: one that comes too soon comes again, as an agent does.
                Err(problem)
                    if problem.code == Code::Busy.as_str() && begun.elapsed() < crate::wait::DEADLINE =>
                {
                    tokio::time::sleep(crate::wait::PAUSE).await;
                }
                answer => return self.member(hostname, key, &answer.unwrap()),
            }
        }
    }

    /// A node with the certificate of an answer.
    pub fn member(&self, hostname: &str, key: SigningKey, answer: &EnrollAnswer) -> Member {
        let tls = net::tls::client(&answer.ca_pem, &answer.cert_pem, ClientKey::Node(&key)).unwrap();
        let (id, hostname) = (answer.node_id.clone(), hostname.parse().unwrap());
        Member {
            fleet: answer.trust.fleet.clone(),
            id,
            hostname,
            key,
            cert_pem: answer.cert_pem.clone(),
            tls,
            url: self.url(),
        }
    }

    /// Asks for a certificate with a token and a good request of this key.
    pub async fn enroll(
        &self,
        token: &str,
        hostname: &str,
        key: &SigningKey,
    ) -> Result<EnrollAnswer, Problem> {
        let csr_pem = net::issue::node_request(key, &hostname.parse().unwrap()).unwrap();
        self.enroll_with(token, hostname, &csr_pem).await
    }

    /// Asks for a certificate with any request.
    pub async fn enroll_with(
        &self,
        token: &str,
        hostname: &str,
        csr_pem: &str,
    ) -> Result<EnrollAnswer, Problem> {
        self.enroll_at(&self.url(), token, hostname, csr_pem).await
    }

    /// Asks for one at the control plane's URL, or at a proxy's.
    pub async fn enroll_at(
        &self,
        url: &ServerUrl,
        token: &str,
        hostname: &str,
        csr_pem: &str,
    ) -> Result<EnrollAnswer, Problem> {
        self.ask_to_join(url, Some(token), hostname, csr_pem).await
    }

    /// Asks to be let in by its key alone, with a good request of it.
    pub async fn ask(&self, hostname: &str, key: &SigningKey) -> Result<EnrollAnswer, Problem> {
        let csr_pem = net::issue::node_request(key, &hostname.parse().unwrap()).unwrap();
        self.ask_to_join(&self.url(), None, hostname, &csr_pem).await
    }

    async fn ask_to_join(
        &self,
        url: &ServerUrl,
        token: Option<&str>,
        hostname: &str,
        csr_pem: &str,
    ) -> Result<EnrollAnswer, Problem> {
        let (token, hostname) = (token.map(str::to_owned), hostname.to_owned());
        let ends_at = if *url == self.url() { TlsTermination::ControlPlane } else { TlsTermination::Proxy };
        let message = EnrollRequest { token, hostname, csr_pem: csr_pem.to_owned() };
        let request = plain(url, route::ENROLL, body::encode(&message).unwrap());
        let mut client = Client::dial(url, self.without_certificate(ends_at)).await.unwrap();
        decoded(&call(&mut client, request).await)
    }

    /// A connection without a certificate.
    pub async fn anonymous(&self) -> Client {
        Client::dial(&self.url(), self.without_certificate(TlsTermination::ControlPlane)).await.unwrap()
    }

    /// What a client without a certificate goes by.
    pub fn without_certificate(&self, ends_at: TlsTermination) -> Arc<ClientConfig> {
        net::tls::client_pinned(self.enroll_info().ca, ends_at).unwrap()
    }

    /// A connection of the operator.
    pub async fn operator(&self) -> Operator {
        let credentials: Credentials = posture::read_json(&self.dir.path().join("operator.json")).unwrap();
        let Credentials { ca_pem, cert_pem, key_pem, .. } = credentials;
        let tls = net::tls::client(&ca_pem, &cert_pem, ClientKey::Pem(&key_pem)).unwrap();
        let url = self.operator_url();
        Operator { client: Client::dial(&url, tls).await.unwrap(), url, token: None }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let there = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&there).unwrap();
            copy(&path, &there);
        } else {
            std::fs::copy(&path, &there).unwrap();
        }
    }
}

pub fn config(dir: &Path, node_port: u16, operator_port: u16) -> Config {
    Config {
        dir: dir.to_owned(),
        fleet: "test".parse().ok(),
        node_address: ([127, 0, 0, 1], node_port).into(),
        operator_address: ([127, 0, 0, 1], operator_port).into(),
        names: vec!["127.0.0.1".to_owned()],
        connections: 256,
        balancers: Default::default(),
        metrics_address: None,
        proxy_address: Some(([127, 0, 0, 1], 0).into()),
        log: None,
        links: Default::default(),
        certificates: Default::default(),
    }
}

/// A key that nobody had before.
pub fn new_key() -> SigningKey {
    SigningKey::from_seed(&posture::random().unwrap())
}

/// An enrolled node.
pub struct Member {
    pub fleet: FleetId,
    pub id: NodeId,
    pub hostname: Hostname,
    pub key: SigningKey,
    pub cert_pem: String,
    pub tls: Arc<ClientConfig>,
    pub url: ServerUrl,
}

impl Member {
    /// A connection with the node's certificate.
    pub async fn dial(&self) -> Client {
        Client::dial(&self.url, self.tls.clone()).await.unwrap()
    }

    /// A signed request, good in every way.
    pub fn signed(&self, method: Method, path: &str, bytes: Vec<u8>) -> Request<Full<Bytes>> {
        self.signed_at(method, path, bytes, now(), number())
    }

    /// A request signed at a time with a number.
    pub fn signed_at(
        &self,
        method: Method,
        path: &str,
        bytes: Vec<u8>,
        at: Timestamp,
        number: u64,
    ) -> Request<Full<Bytes>> {
        let (bare, query) = path.split_once('?').unwrap_or((path, ""));
        let method_name = method.as_str();
        let target =
            SignedTarget { method: method_name, path: bare, query, body: &bytes, last_event_id: None };
        let signed = signature::sign(target, &self.fleet, &self.id, &self.key, at, number);
        let mut request = plain(&self.url, path, bytes);
        *request.method_mut() = method;
        let headers = request.headers_mut();
        headers.insert(SIGNATURE_INPUT, signed.input.parse().unwrap());
        headers.insert(SIGNATURE, signed.signature.parse().unwrap());
        if let Some(digest) = signed.content_digest {
            headers.insert(CONTENT_DIGEST, digest.parse().unwrap());
        }
        request
    }

    /// Sends a request over a connection of its own.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        call(&mut self.dial().await, request).await
    }

    /// Posts a message, signed.
    pub async fn post<T: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        message: &T,
    ) -> Result<A, Problem> {
        decoded(&self.send(self.signed(Method::POST, path, body::encode(message).unwrap())).await)
    }

    /// Checks in.
    pub async fn check_in(&self, message: &CheckIn) -> Result<Answer, Problem> {
        self.post(route::CHECKIN, message).await
    }

    /// Gets something by its digest, from an offset on.
    pub async fn blob(&self, digest: &model::Digest, from: Option<u64>) -> Response<Bytes> {
        let path = route::BLOB.replace("{digest}", &digest.to_string());
        let mut request = self.signed(Method::GET, &path, Vec::new());
        if let Some(from) = from {
            let range = HeaderValue::from_str(&format!("bytes={from}-")).unwrap();
            request.headers_mut().insert(header::RANGE, range);
        }
        self.send(request).await
    }

    /// What this node says it has seen when it holds a release and wrote so many facts.
    pub fn seen(&self, held: &HeldRelease, facts: u64) -> Seen {
        let log_head = Cursor { incarnation: "i1".parse().unwrap(), seq: facts };
        Seen { node: self.id.clone(), header: held.header, seq: held.seq, log_head, at: now(), acked: None }
    }

    /// After an attack the same control plane still answers a good check-in.
    pub async fn survives(&self) {
        self.check_in(&quiet()).await.expect("a good check-in is answered");
    }
}

/// A check-in of a node that holds nothing and has nothing to say.
pub fn quiet() -> CheckIn {
    CheckIn {
        held: None,
        incarnation: "i1".parse().unwrap(),
        facts: Vec::new(),
        run: None,
        unmade_run: None,
        freshness: None,
        running_since: None,
        traits: None,
        full: false,
        run_confirmed: None,
        tagged_run_confirmed: None,
        seen: None,
        header: None,
        acked: None,
        trust: None,
        renewal_failure: None,
        unadopted: None,
        instance: None,
        capabilities: None,
    }
}

/// An operator's connection.
#[derive(Clone)]
pub struct Operator {
    client: Client,
    url: ServerUrl,
    /// What each request shows, where no certificate does.
    token: Option<String>,
}

impl Operator {
    pub async fn get<A: DeserializeOwned>(&mut self, path: &str) -> Result<A, Problem> {
        self.ask(Method::GET, path, Vec::new()).await
    }

    pub async fn delete<A: DeserializeOwned>(&mut self, path: &str) -> Result<A, Problem> {
        self.ask(Method::DELETE, path, Vec::new()).await
    }

    pub async fn post<T: Serialize, A: DeserializeOwned>(
        &mut self,
        path: &str,
        what: &T,
    ) -> Result<A, Problem> {
        self.ask(Method::POST, path, body::encode(what).unwrap()).await
    }

    pub async fn ask<A: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        bytes: Vec<u8>,
    ) -> Result<A, Problem> {
        decoded(&self.raw(method, path, bytes).await)
    }

    /// The response as it came; request and answer are what docs/schema says of them.
    pub async fn raw(&mut self, method: Method, path: &str, bytes: Vec<u8>) -> Response<Bytes> {
        self.raw_or_cut(method, path, bytes).await.unwrap()
    }

    /// As [`Operator::raw`]; where the connection ends before the answer is there, how.
    pub async fn raw_or_cut(
        &mut self,
        method: Method,
        path: &str,
        bytes: Vec<u8>,
    ) -> Result<Response<Bytes>, ClientError> {
        let mut request = plain(&self.url, path, bytes.clone());
        *request.method_mut() = method.clone();
        if let Some(token) = &self.token {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        let response = self.client.call(request, LIMIT, PATIENCE).await?;
        described::check(&method, path, &bytes, &response);
        Ok(response)
    }

    pub async fn node(&mut self, hostname: &str) -> server::api::NodeView {
        self.get(&format!("/v1/nodes/{hostname}")).await.unwrap()
    }

    pub async fn status(&mut self) -> server::api::StatusView {
        self.get("/v1/status").await.unwrap()
    }
}

/// A message as it travels.
pub fn body_of<T: Serialize>(message: &T) -> Vec<u8> {
    body::encode(message).unwrap()
}

/// A request with the headers of the protocol and no signature.
pub fn plain(url: &ServerUrl, path: &str, bytes: Vec<u8>) -> Request<Full<Bytes>> {
    Request::post(format!("https://{}{path}", url.authority()))
        .header(PROTOCOL_HEADER, PROTOCOL)
        .header(header::CONTENT_TYPE, body::JSON)
        .body(Full::new(bytes.into()))
        .unwrap()
}

/// Sends a request and reads the whole response.
pub async fn call(client: &mut Client, request: Request<Full<Bytes>>) -> Response<Bytes> {
    client.call(request, LIMIT, PATIENCE).await.unwrap()
}

/// What a response says, or why it refuses.
pub fn decoded<A: DeserializeOwned>(response: &Response<Bytes>) -> Result<A, Problem> {
    assert_eq!(response.headers().get(PROTOCOL_HEADER).unwrap(), PROTOCOL, "on every response (WIR-1)");
    if response.status().is_success() {
        Ok(body::decode(response.body()).unwrap())
    } else {
        Err(problem(response))
    }
}

/// The problem that a response is; whole in every way that WIR-2 asks for.
pub fn problem(response: &Response<Bytes>) -> Problem {
    let kind = response.headers().get(header::CONTENT_TYPE).unwrap();
    assert_eq!(kind, wire::problem::PROBLEM_JSON, "{response:?}");
    let problem: Problem = body::decode(response.body()).unwrap();
    assert_eq!(problem.status, response.status().as_u16());
    assert!(problem.request_id.as_ref().is_some_and(|id| !id.is_empty()), "{problem:?}");
    assert!(problem.help.as_ref().is_some_and(|help| !help.is_empty()), "{problem:?}");
    assert!(Code::ALL.iter().any(|code| code.as_str() == problem.code), "{problem:?}");
    problem
}

/// Asserts that a response is this refusal.
#[track_caller]
pub fn refused(response: &Response<Bytes>, code: Code) -> Problem {
    let problem = problem(response);
    assert_eq!((problem.code.as_str(), problem.status), (code.as_str(), code.status()), "{problem}");
    problem
}

/// Asserts that something was refused with this code.
#[track_caller]
pub fn refuses<T: std::fmt::Debug>(result: Result<T, Problem>, code: Code) -> Problem {
    let problem = result.expect_err("it should have been refused");
    assert_eq!(problem.code, code.as_str(), "{problem}");
    problem
}

/// Memory of this process that is resident, in KiB.
pub fn resident_kib() -> u64 {
    status_kib("VmRSS:")
}

/// A line of this process's status, in KiB.
pub fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
