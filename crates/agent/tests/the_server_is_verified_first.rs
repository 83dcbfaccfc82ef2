//! ENR-1, ENR-2, ENR-6, ENR-7: the agent verifies the control plane by its token before it
//! says anything, believes no answer that the token did not promise, and keeps the token's
//! file until it has joined.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::join::{JoinBy, JoinError, JoinProxy, JoinRequest, join};
use http::StatusCode;
use model::Digest;
use net::client::ClientError;
use net::issue::{Ca, CertificateRequest};
use test_support::scripted::{Reply, ScriptedControl, json, key, now, problem, reply};
use trust::token::{self, Claims, KeySource};
use trust::{Slots, TrustDocument};
use wire::enroll::{EnrollAnswer, EnrollRequest};
use wire::{Code, Problem, route};

fn trust() -> TrustDocument {
    let (release, root) = (Slots::of(key(2).public()), Slots::of(key(3).public()));
    TrustDocument::first("test-1".parse().unwrap(), release, root)
}

/// A token for web-1 that promises this CA and these servers.
fn token(ca: Digest, servers: &[&net::ServerUrl]) -> String {
    let claims = Claims {
        fleet: trust().fleet,
        hostname: "web-1".parse().unwrap(),
        expected_pubkey_fingerprint: None,
        key: KeySource::Own,
        issued_at: now(),
        expires_at: now().plus(Duration::from_secs(600)),
        nonce: "n".to_owned(),
        servers: servers.iter().map(|url| url.to_string()).collect(),
        tls_termination: Default::default(),
        ca,
        trust: trust().digest().unwrap(),
        replaces: None,
    };
    token::mint(&claims, &key(3)).unwrap()
}

/// A control plane that enrolls whoever asks, and what it was asked.
#[derive(Clone, Default)]
struct Enrolls {
    ca: Arc<Mutex<Option<Ca>>>,
    asked: Arc<Mutex<Vec<EnrollRequest>>>,
    /// The name that it certifies, where that is not the host's.
    named: Option<&'static str>,
}

impl Enrolls {
    async fn start(
        &self,
        twist: impl Fn(EnrollAnswer) -> Reply + Clone + Send + Sync + 'static,
    ) -> ScriptedControl {
        self.start_as(&["127.0.0.1"], twist).await
    }

    async fn start_as(
        &self,
        names: &[&str],
        twist: impl Fn(EnrollAnswer) -> Reply + Clone + Send + Sync + 'static,
    ) -> ScriptedControl {
        let enrolls = self.clone();
        let control = ScriptedControl::start(names, move |head, body| {
            if head.uri.path() == route::BOOTSTRAP_REPORT {
                return reply(StatusCode::NO_CONTENT, "application/json", Vec::new());
            }
            let request: EnrollRequest = serde_json::from_slice(&body).unwrap();
            let csr = CertificateRequest::read(&request.csr_pem).unwrap();
            enrolls.asked.lock().unwrap().push(request);
            let ca = enrolls.ca.lock().unwrap();
            let (ca, id, name) =
                (ca.as_ref().unwrap(), csr.key().node_id(), enrolls.named.unwrap_or("web-1"));
            let cert_pem = ca
                .issue_node(&csr, &id, &name.parse().unwrap(), [1; 16], net::issue::node_validity(now()))
                .unwrap();
            twist(EnrollAnswer { node_id: id, cert_pem, ca_pem: ca.cert_pem().to_owned(), trust: trust() })
        })
        .await;
        // Whichever CA signs: only what the answer says of itself matters here.
        *self.ca.lock().unwrap() = Some(Ca::generate("other", now()).unwrap().0);
        control
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// A host that was told to join with a token in a file.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new(token: &str) -> Host {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), token).unwrap();
        Host { dir }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    async fn join(&self) -> Result<agent::identity::Membership, JoinError> {
        let file = self.dir.path().join("token");
        let token = std::fs::read_to_string(&file).unwrap();
        let asked = JoinRequest {
            by: JoinBy::Token { token, file: Some(file) },
            hostname: None,
            root: Some("/nowhere".into()),
            allow_exec: false,
            patience: Duration::ZERO,
            proxy: JoinProxy::Chosen(None),
        };
        join(asked, &self.state()).await
    }

    /// Nothing was recorded, and the token is still there to try again.
    #[track_caller]
    fn has_not_joined(&self) {
        assert!(!self.state().join("membership.json").exists());
        assert!(self.dir.path().join("token").exists(), "the token's file is deleted only after success");
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_server_under_another_ca_is_told_nothing() {
    let enrolls = Enrolls::default();
    let control = enrolls.start(|answer| json(&answer)).await;
    let host = Host::new(&token(Digest::of(b"the CA that the token names"), &[&control.url()]));
    let error = host.join().await.unwrap_err();
    let JoinError::Reach(ClientError::ForeignServer { source, .. }) = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("not by the CA of this fleet"), "{source}");
    assert_eq!(enrolls.asked(), 0, "nothing was sent");
    host.has_not_joined();
}

#[tokio::test]
async fn a_server_of_another_name_is_told_nothing() {
    let enrolls = Enrolls::default();
    let control = enrolls.start_as(&["control.example"], |answer| json(&answer)).await;
    let host = Host::new(&token(control.ca().digest(), &[&control.url()]));
    let error = host.join().await.unwrap_err();
    assert!(matches!(error, JoinError::Reach(ClientError::Handshake { .. })), "{error:?}");
    assert_eq!(enrolls.asked(), 0, "nothing was sent");
    host.has_not_joined();
}

#[tokio::test]
async fn an_answer_that_the_token_did_not_promise_is_not_believed() {
    type Twist = Arc<dyn Fn(EnrollAnswer) -> EnrollAnswer + Send + Sync>;
    let other_trust: Twist = Arc::new(|answer| {
        let release = Slots::of(key(66).public());
        EnrollAnswer { trust: TrustDocument { release, ..answer.trust }, ..answer }
    });
    let other_node: Twist = Arc::new(|answer| EnrollAnswer { node_id: key(67).public().node_id(), ..answer });
    let certificate_of = |other: trust::SigningKey| {
        let hostname = "web-1".parse().unwrap();
        let csr = CertificateRequest::read(&net::issue::node_request(&other, &hostname).unwrap()).unwrap();
        let id = csr.key().node_id();
        Ca::generate("x", now())
            .unwrap()
            .0
            .issue_node(&csr, &id, &hostname, [1; 16], net::issue::node_validity(now()))
            .unwrap()
    };
    let other_key = certificate_of(key(68));
    let ca_pem = Arc::new(Mutex::new(String::new()));
    let promised = ca_pem.clone();
    let other_certificate: Twist = Arc::new(move |answer| {
        let ca_pem = promised.lock().unwrap().clone();
        EnrollAnswer { cert_pem: other_key.clone(), ca_pem, ..answer }
    });
    let promised = ca_pem.clone();
    let no_certificate: Twist = Arc::new(move |answer| {
        let ca_pem = promised.lock().unwrap().clone();
        EnrollAnswer { cert_pem: String::new(), ca_pem, ..answer }
    });
    let other_ca: Twist = Arc::new(|answer| answer);
    let no_ca: Twist = Arc::new(|answer| EnrollAnswer { ca_pem: String::new(), ..answer });
    for (twist, says) in [
        (other_trust, "another trust document"),
        (other_node, "an id that is not this key's"),
        (other_ca, "another CA"),
        (no_ca, "another CA"),
        (other_certificate, "a certificate that is not this key's"),
        (no_certificate, "a certificate that is not this key's"),
    ] {
        let enrolls = Enrolls::default();
        let control = enrolls.start(move |answer| json(&twist(answer))).await;
        *ca_pem.lock().unwrap() = control.ca().cert_pem().to_owned();
        let host = Host::new(&token(control.ca().digest(), &[&control.url()]));
        let error = host.join().await.unwrap_err();
        assert!(matches!(&error, JoinError::NotAsPromised(what) if *what == says), "{says}: {error:?}");
        host.has_not_joined();
    }
}

/// The agent would be locked out by it, and by whoever has the control plane afterwards.
#[tokio::test]
async fn a_certificate_of_another_name_is_no_membership() {
    let ca_pem = Arc::new(Mutex::new(String::new()));
    let promised = ca_pem.clone();
    let enrolls = Enrolls { named: Some("web-2"), ..Enrolls::default() };
    let control = enrolls
        .start(move |answer| json(&EnrollAnswer { ca_pem: promised.lock().unwrap().clone(), ..answer }))
        .await;
    *ca_pem.lock().unwrap() = control.ca().cert_pem().to_owned();
    let host = Host::new(&token(control.ca().digest(), &[&control.url()]));
    let error = host.join().await.unwrap_err();
    let says = "a certificate of another hostname";
    assert!(matches!(&error, JoinError::NotAsPromised(what) if *what == says), "{error:?}");
    host.has_not_joined();
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_no_membership() {
    let long = vec![b' '; 300 * 1024];
    let cases: Vec<(&str, Reply)> = vec![
        ("not JSON", reply(StatusCode::OK, "application/json", b"hello".to_vec())),
        ("cut off", reply(StatusCode::OK, "application/json", b"{\"nodeId\":".to_vec())),
        ("too long", reply(StatusCode::OK, "application/json", long)),
        ("an error page", reply(StatusCode::BAD_GATEWAY, "text/html", b"<h1>proxy</h1>".to_vec())),
        ("a refusal", problem(&Problem::new(Code::TokenUsed, "it was used"))),
    ];
    for (what, answer) in cases {
        let enrolls = Enrolls::default();
        let control = enrolls.start(move |_| answer.clone()).await;
        let host = Host::new(&token(control.ca().digest(), &[&control.url()]));
        let error = host.join().await.expect_err(what);
        if what == "a refusal" {
            assert!(
                matches!(&error, JoinError::Refused(problem) if problem.code == "token-used"),
                "{error:?}"
            );
        }
        assert_eq!(enrolls.asked(), 1, "{what}");
        host.has_not_joined();
    }
}

#[tokio::test]
async fn a_token_cut_off_or_without_a_server_goes_nowhere() {
    let whole = token(Digest::of(b"ca"), &[]);
    for (text, truncated) in
        [(&whole[..whole.len() - 5], true), (&whole[..20], true), ("muster1", true), ("x", false)]
    {
        let host = Host::new(text);
        let error = host.join().await.unwrap_err();
        let JoinError::Token(why) = &error else { panic!("{text}: {error:?}") };
        assert_eq!(*why == token::TokenError::Truncated, truncated, "{text}: {why}");
        host.has_not_joined();
        assert!(!host.state().join("identity.key").exists(), "no key was made for it");
    }
    let host = Host::new(&whole);
    assert!(matches!(host.join().await.unwrap_err(), JoinError::NoServer));
    host.has_not_joined();
}

#[tokio::test]
async fn a_promised_answer_joins_also_after_a_lost_reply_and_over_another_url() {
    // The first URL is of nobody, as when one of several control planes is down.
    let nobody: net::ServerUrl = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("https://{}", listener.local_addr().unwrap()).parse().unwrap()
    };
    let ca_pem = Arc::new(Mutex::new(String::new()));
    let (promised, first) = (ca_pem.clone(), Arc::new(Mutex::new(true)));
    let enrolls = Enrolls::default();
    let control = enrolls
        .start(move |answer| {
            // The first reply is lost: an answer that breaks off.
            if std::mem::take(&mut *first.lock().unwrap()) {
                return reply(StatusCode::OK, "application/json", b"{".to_vec());
            }
            json(&EnrollAnswer { ca_pem: promised.lock().unwrap().clone(), ..answer })
        })
        .await;
    *ca_pem.lock().unwrap() = control.ca().cert_pem().to_owned();
    let token = token(control.ca().digest(), &[&nobody, &control.url()]);
    let host = Host::new(&token);
    assert!(matches!(host.join().await.unwrap_err(), JoinError::Answer(_)));
    host.has_not_joined();
    let member = host.join().await.unwrap();
    assert_eq!(member.hostname.as_str(), "web-1");
    let asked = enrolls.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].token, asked[1].token);
    let of = |request: &EnrollRequest| *CertificateRequest::read(&request.csr_pem).unwrap().key();
    assert_eq!(of(&asked[0]), of(&asked[1]), "the same token and the same key (ENR-7)");
    assert!(!host.dir.path().join("token").exists(), "deleted after success (ENR-6)");
    assert_eq!(mode(&host.state().join("identity.key")), 0o600, "IDN-1");
    assert_eq!(mode(&host.state().join("membership.json")), 0o600);
    assert_eq!(mode(&host.state()), 0o700);
    let sent = serde_json::to_string(&asked).unwrap();
    let private = std::fs::read_to_string(host.state().join("identity.key")).unwrap();
    let private = private.trim().rsplit(':').next().unwrap().to_owned();
    assert!(!sent.contains(&private), "the private half never leaves the node");
    // A token of another fleet does not take over a host that joined.
    let mut claims = token::peek(&token).unwrap();
    claims.fleet = "other-1".parse().unwrap();
    std::fs::write(host.dir.path().join("token"), token::mint(&claims, &key(3)).unwrap()).unwrap();
    let error = host.join().await.unwrap_err();
    assert!(matches!(error, JoinError::Joined { .. }), "{error:?}");
}
