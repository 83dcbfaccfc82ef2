//! [`Recorder`]: the agent's own code in this process, which joins a control plane behind a [`Tap`] and says what an agent
//! says.

use std::sync::Arc;
use std::time::Duration;

use agent::join::{JoinBy, JoinProxy, JoinRequest, join};
use agent::membership::credentials;
use agent::session::{NodeSession, Signer};
use agent::state::StateDir;
use model::exchange::{Answer, CheckIn, HeldFreshness, HeldRelease, RunNote, TraitReport};
use model::log::{Cursor, Fact, FactBody};
use model::replication::{Mode, TransportPolicy};
use model::{AgentCapabilities, AgentInstance, Digest, Incarnation};
use net::tls::ClientKey;
use serde_json::json;
use server::api::objects::{Apply, Mapping, ObjectResults};
use server::api::work::TaskView;
use spool::Disk;
use trust::seen::Seen;
use trust::token::{self, TlsTermination};
use wire::route;

use super::{RecordedExchange, Tap, Upstream, unpacked};
use crate::agent_links::{Node, manifest, policy};
use crate::fleet::release::{Made, Plan, make};
use crate::fleet::{Fleet, Operator, now, quiet};
use crate::scripted::stage;
use crate::scripted::victim::{DELEGATED, delegating};
use crate::wait::{eventually, until};

/// The one node of a recording.
pub const HOST: &str = "web-1";
/// The seed of its key, which is of tests alone, is this byte 32 times.
pub const SEED: u8 = 42;

/// What the fleet of a recording declares for its one node: objects in a folder, a command, a file.
pub async fn publish(fleet: &Fleet, operator: &mut Operator) -> Made {
    let objects = stage::objects(&delegating(1, "hello\n"));
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node(HOST, &objects);
    let made = make(&plan, &fleet.release_key());
    operator.publish(&made).await.unwrap();
    made
}

/// An object and a piece of work wait for the node.
pub async fn request_work(operator: &mut Operator) {
    let manifests = vec![serde_json::from_slice(&manifest("one", "an object")).unwrap()];
    let node = Some(HOST.to_owned());
    let apply = Apply { manifests, node, mapping: Mapping::Namespace, dry_run: false, trace: None };
    let _: ObjectResults = operator.post("/v1/objects", &apply).await.unwrap();
    let work = json!({"kind": "command", "argv": DELEGATED});
    let task = json!({"selector": HOST, "work": work, "timeoutSecs": 60, "waitSecs": 600});
    let _: TaskView = operator.post("/v1/tasks", &task).await.unwrap();
}

/// An agent in this process, behind a tap.
pub struct Recorder {
    pub fleet: Fleet,
    pub operator: Operator,
    pub tap: Tap,
    pub session: Arc<NodeSession>,
    pub key: Arc<trust::SigningKey>,
    pub incarnation: Incarnation,
    facts: u64,
    _dir: tempfile::TempDir,
}

impl Recorder {
    /// The host joins.
    pub async fn join() -> Recorder {
        let fleet = Fleet::start().await;
        let operator = fleet.operator().await;
        let anyone =
            Upstream { url: fleet.url(), tls: fleet.without_certificate(TlsTermination::ControlPlane) };
        let tap = Tap::start(fleet.node_ca(), anyone).await;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        StateDir::create(&state).unwrap();
        let key = Arc::new(trust::SigningKey::from_seed(&[SEED; 32]));
        stage::write_key(&state.join("identity.key"), &key);
        let claims = token::Claims { servers: vec![tap.url().to_string()], ..fleet.claims(HOST) };
        let asked = JoinRequest {
            by: JoinBy::Token { token: token::mint(&claims, &fleet.root_key()).unwrap(), file: None },
            hostname: None,
            root: Some("/nowhere".into()),
            allow_exec: false,
            patience: Duration::ZERO,
            proxy: JoinProxy::Chosen(None),
        };
        let member = join(asked, &state).await.unwrap();
        let tls = net::tls::client(&member.ca_pem, &member.cert_pem, ClientKey::Node(&key)).unwrap();
        tap.lead(Upstream { url: fleet.url(), tls });
        let signer =
            Signer::new(member.trust.fleet.clone(), member.node_id.clone(), key.clone(), Default::default());
        let session = Arc::new(NodeSession::new(credentials(&member, &key).unwrap(), signer));
        let incarnation = "i0123456789abcdef".parse().unwrap();
        Recorder { fleet, operator, tap, session, key, incarnation, facts: 0, _dir: dir }
    }

    pub fn facts(&mut self, bodies: Vec<FactBody>) -> Vec<Fact> {
        let numbered = bodies.into_iter().map(|body| {
            self.facts += 1;
            Fact { seq: self.facts, at: now(), body }
        });
        numbered.collect()
    }

    async fn check_in(&self, message: &CheckIn) -> Answer {
        self.session.post(route::CHECKIN, message).await.unwrap()
    }

    /// The first contact: it holds nothing, and says what it is.
    pub async fn first_contact(&mut self) -> Answer {
        let values = json!({"os": {"family": "debian", "id": "debian", "version": "13"}});
        let digest = Digest::of(&model::canonical::to_bytes(&values).unwrap());
        let capabilities = AgentCapabilities {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: Some(Digest::of(b"the program")),
            builtins: vec!["traits".to_owned()],
            hooks: Default::default(),
            sealing_key: None,
        };
        let started = FactBody::Started {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: "b".repeat(36),
            invocation: None,
            cut_off_run: None,
        };
        let facts = self.facts(vec![started]);
        let first = CheckIn {
            incarnation: self.incarnation.clone(),
            facts,
            traits: Some(TraitReport { digest, base: None, values, removed: Vec::new() }),
            instance: Some(AgentInstance { id: "i1".to_owned(), after: None }),
            capabilities: Some(Box::new(capabilities)),
            acked: Some(0),
            ..quiet()
        };
        self.check_in(&first).await
    }

    /// It adopted the release, and says how it fares.
    pub async fn holding(&mut self, held: HeldRelease, more: Vec<FactBody>) -> Answer {
        let adopted = FactBody::Adopted { seq: held.seq, header: held.header, root: held.root };
        let mut bodies = vec![
            adopted,
            FactBody::Refused { code: "release-older".to_owned(), message: "release 0 is older".to_owned() },
            FactBody::Repaired { message: "a file was set aside".to_owned() },
            FactBody::FileRestored { path: "/etc/motd".to_owned(), version: 3 },
        ];
        bodies.extend(more);
        let facts = self.facts(bodies);
        let log_head = Cursor { incarnation: self.incarnation.clone(), seq: self.facts };
        let seen = Seen {
            node: self.session.signer().node().clone(),
            header: held.header,
            seq: held.seq,
            log_head,
            at: now(),
            acked: None,
        };
        let message = CheckIn {
            held: Some(held),
            incarnation: self.incarnation.clone(),
            facts,
            run: Some(RunNote { at: now(), outcome: Digest::of(b"what it came to") }),
            freshness: Some(HeldFreshness { signed_at: now(), not_fresh_since: None, stale_since: None }),
            seen: Some(self.session.signer().sign_seen(&seen).unwrap()),
            instance: Some(AgentInstance { id: "i1".to_owned(), after: None }),
            acked: Some(1),
            ..quiet()
        };
        self.check_in(&message).await
    }

    /// Polls: objects come, work is done, statuses go; what became of the work.
    pub async fn poll(&mut self) -> Vec<FactBody> {
        request_work(&mut self.operator).await;
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("root/srv/manifests")).unwrap();
        let commands = vec![DELEGATED.map(str::to_owned).to_vec()];
        let delegations = vec![model::work::Delegation { commands, ..Default::default() }];
        let managed = policy(Mode::Managed, Some("/srv/manifests"));
        let node = Node::start(temp.path(), Disk::new(), managed, delegations);
        let links = node.links_over(self.session.clone(), TransportPolicy::Poll);
        let file = temp.path().join("root/srv/manifests/item/web/one.yaml");
        let ran = temp.path().join("root/ran");
        links.requested();
        eventually("the object and the work are here", || file.exists() && ran.exists()).await;
        std::fs::write(file.with_extension("yaml.status.json"), r#"{"ready":true}"#).unwrap();
        let polls = self.tap.passed().len();
        until("the status went up", async || {
            let passed = self.tap.passed();
            let posts = passed.iter().skip(polls);
            let said = |it: &RecordedExchange| {
                let body = unpacked(&it.request.headers, &it.request.body);
                String::from_utf8_lossy(&body).contains("status-update")
            };
            posts.into_iter().any(said).then_some(())
        })
        .await;
        links.stop().await;
        node.work.drain().await;
        let facts = node.durable.facts(1000, 1 << 20).unwrap();
        facts.into_iter().map(|fact| fact.body).filter(|body| matches!(body, FactBody::Action(_))).collect()
    }
}
