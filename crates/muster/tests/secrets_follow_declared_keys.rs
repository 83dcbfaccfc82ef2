//! SEC-1, CFG-8: secrets are sealed for what a host signed with the key that nodes.yaml declares, without a line in
//! recipients.yaml; a control plane that relays something else makes nobody a recipient.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use model::exchange::Signed;
use model::{FleetId, Timestamp};
use serde_json::{Value, json};
use test_support::programs::{Host, Prefix, Running, Server, text, write};
use test_support::wait::until_blocking as until;
use trust::sealing::{SealingStatement, age};
use trust::{RecipientKey, SealingKey, SigningKey};

struct DeclaredFleet {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
}

const FLEET: &str = "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h}\n\
                     defaults: {channel: fast}\nsecrets: {sources: {files: {age: secrets/}}}\n";
const MODULE: &str = "resources:\n  - file: /etc/app.key\n    content: secret:app/key\n";

fn fingerprint(host: &Host) -> String {
    text(&host.run(&["fingerprint"]).stdout).trim().to_owned()
}

impl DeclaredFleet {
    fn new() -> (DeclaredFleet, Running) {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let running = server.start();
        let repo = temp.path().join("repo");
        write(&repo.join("fleet.yaml"), FLEET);
        write(&repo.join("modules/app/module.yaml"), MODULE);
        let fleet = DeclaredFleet { temp, server, repo };
        fleet.set(b"first");
        (fleet, running)
    }

    /// As `muster secret set` does.
    fn set(&self, value: &[u8]) {
        let identity = SealingKey::from_secret(&[9; 32]).unwrap();
        write(&self.server.dir.join("age.key"), &identity.to_file());
        let seed = SigningKey::from_seed(&[7; 32]).sign(value)[..32].try_into().unwrap();
        let encrypted = age::encrypt(value, &[identity.public()], &seed).unwrap();
        write(&self.repo.join("secrets/app/key.age"), &age::armor(&encrypted));
    }

    /// nodes.yaml names web-1, with this key.
    fn declare(&self, fingerprint: &str) {
        let nodes = format!("nodes:\n  - match: [web-1]\n    modules: [app]\n    key: {fingerprint}\n");
        write(&self.repo.join("nodes.yaml"), &nodes);
    }

    /// A host that is declared, has joined and runs, and whose statement the control plane has.
    fn started(&self) -> (Host, Running) {
        let host = Host::new(self.temp.path(), "web-1", &Prefix::new());
        self.declare(&fingerprint(&host));
        self.server.token("web-1", &host.token_file());
        host.join();
        let agent = host.start();
        until("the control plane has what the host signed", || {
            self.server.node("web-1")["capabilities"]["sealingKey"].is_object().then_some(())
        });
        (host, agent)
    }

    fn repo(&self) -> &str {
        self.repo.to_str().unwrap()
    }

    /// Publishes; what is said beside the result.
    #[track_caller]
    fn published(&self) -> String {
        let output = self.server.muster(&["publish", "--repo", self.repo(), "--yes"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    }

    fn reach(&self) -> Value {
        self.server.json(&["secret", "reach", "app/key", "--repo", self.repo()])["app/key"].clone()
    }

    fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.server.dir.join("muster.db")).unwrap()
    }

    /// What the control plane relays of web-1.
    fn relayed(&self) -> Value {
        let kept = "SELECT capabilities FROM node WHERE hostname = 'web-1' AND removed IS NULL";
        let kept: String = self.database().query_row(kept, [], |row| row.get(0)).unwrap();
        serde_json::from_str(&kept).unwrap()
    }

    /// The control plane relays this from now on, under an identity of its choice.
    fn relay(&self, statement: &Value, identity: Option<&SigningKey>) {
        let mut capabilities = self.relayed();
        capabilities["sealingKey"] = statement.clone();
        let db = self.database();
        let said = db.execute(
            "UPDATE node SET capabilities = ?1 WHERE hostname = 'web-1'",
            [capabilities.to_string()],
        );
        assert_eq!(said.unwrap(), 1);
        if let Some(identity) = identity {
            let key = identity.public().to_string();
            db.execute("UPDATE node SET public_key = ?1 WHERE hostname = 'web-1'", [key]).unwrap();
        }
    }

    fn id(&self) -> FleetId {
        let enroll: Value =
            serde_json::from_str(&std::fs::read_to_string(self.server.dir.join("enroll.json")).unwrap())
                .unwrap();
        enroll["fleet"].as_str().unwrap().parse().unwrap()
    }

    fn signed(&self, identity: &SigningKey, recipient: RecipientKey) -> Value {
        let (hostname, at) = ("web-1".parse().unwrap(), Timestamp::from_secs(1_800_000_000));
        let statement: Signed =
            SealingStatement { fleet: self.id(), hostname, recipient, at }.sign(identity).unwrap();
        serde_json::to_value(statement).unwrap()
    }
}

#[test]
fn a_declared_host_gets_secrets_without_a_line_for_it() {
    let (fleet, _running) = DeclaredFleet::new();
    let (host, _agent) = fleet.started();
    let said = fleet.published();
    assert!(!said.contains("recipient key"), "{said}");
    host.until_read("/etc/app.key", "first");
    assert!(!fleet.repo.join("recipients.yaml").exists());
    // What a publish would do is what was done, and where the key comes from is said.
    assert!(fleet.server.muster(&["diff", "--repo", fleet.repo()]).status.success());
    let reach = fleet.reach();
    assert_eq!((&reach["open"], &reach["byStatement"]), (&json!(["web-1"]), &json!(["web-1"])), "{reach}");
    let shown = fleet.server.ok(&["secret", "reach", "--repo", fleet.repo()]);
    assert!(shown.contains("with the key that nodes.yaml declares: web-1"), "{shown}");
    let listed = fleet.server.ok(&["secret", "list", "--repo", fleet.repo()]);
    assert!(listed.contains("1 can open it, 1 by what they signed"), "{listed}");
    // A rollback seals for it, too.
    fleet.set(b"second");
    fleet.published();
    host.until_read("/etc/app.key", "second");
    let back = fleet.server.muster(&["release", "rollback", "1", "--repo", fleet.repo(), "--yes"]);
    assert!(
        back.status.success() && !text(&back.stderr).contains("no recipient key"),
        "{}",
        text(&back.stderr)
    );

    // The fleet repo's own word comes first.
    let other = SealingKey::from_secret(&[8; 32]).unwrap().public().to_string();
    fleet.server.ok(&["secret", "trust", "web-1", &other, "--repo", fleet.repo(), "--yes"]);
    let reach = fleet.reach();
    assert_eq!((&reach["open"], reach.get("byStatement")), (&json!(["web-1"]), None), "{reach}");
    std::fs::remove_file(fleet.repo.join("recipients.yaml")).unwrap();
    let replaced = fleet.server.muster(&["node", "replace", "web-1", "--repo", fleet.repo()]);
    assert!(text(&replaced.stderr).contains("change `key` there"), "{}", text(&replaced.stderr));
    // Who is revoked has lost its word, also once it joins anew.
    fleet.server.ok(&["node", "revoke", "web-1", "--repo", fleet.repo(), "--yes"]);
    assert_eq!(fleet.reach()["blocked"], json!(["web-1"]));
}

#[test]
fn a_control_plane_that_lies_makes_nobody_a_recipient() {
    let (mut fleet, running) = DeclaredFleet::new();
    let (host, agent) = fleet.started();
    agent.end();
    let own = fleet.relayed()["sealingKey"].clone();
    let (thief, loot) =
        (SigningKey::from_seed(&[66; 32]), SealingKey::from_secret(&[66; 32]).unwrap().public());
    let forged = fleet.signed(&thief, loot);
    let mut changed = own.clone();
    let payload = own["payload"].as_str().unwrap();
    let recipient = payload.split("\"recipient\":\"").nth(1).unwrap().split('"').next().unwrap();
    changed["payload"] = json!(payload.replace(recipient, &loot.to_string()));
    running.end();
    for (lie, identity) in [(&forged, None), (&changed, None), (&forged, Some(&thief))] {
        fleet.relay(lie, identity);
        let running = fleet.server.start();
        assert_eq!(fleet.reach()["blocked"], json!(["web-1"]), "{lie}");
        let said = fleet.published();
        assert!(
            said.contains("nothing is sealed for the key that web-1 is said to have signed for"),
            "{said}"
        );
        assert!(said.contains("no recipient key"), "{said}");
        running.end();
    }
    // The host that had the name before: its statement is a good one, and nodes.yaml declares another key since.
    let before = host.dir.join("state/identity.key");
    let before = SigningKey::from_file(&std::fs::read_to_string(before).unwrap()).unwrap();
    fleet.relay(&own, Some(&before));
    let _running = fleet.server.start();
    assert_eq!(fleet.reach()["byStatement"], json!(["web-1"]), "it is told apart by nothing but nodes.yaml");
    fleet.declare(&fingerprint(&Host::new(&fleet.temp.path().join("next"), "web-1", &Prefix::new())));
    assert_eq!(fleet.reach()["blocked"], json!(["web-1"]));
    assert!(fleet.published().contains("nodes.yaml declares another key"));
}

/// Where nobody can be asked, that is said, and nothing is taken for known.
#[test]
fn who_was_not_asked_is_named() {
    let (fleet, running) = DeclaredFleet::new();
    fleet.declare(&SigningKey::from_seed(&[1; 32]).public().fingerprint());
    assert_eq!(fleet.reach()["blocked"], json!(["web-1"]), "it has not joined");
    running.end();
    let reach = fleet.reach();
    assert_eq!((&reach["unasked"], &reach["open"]), (&json!(["web-1"]), &json!([])), "{reach}");
    let output = fleet.server.muster(&["secret", "list", "--repo", fleet.repo()]);
    assert!(text(&output.stderr).contains("the control plane cannot be asked"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("0 can open it, 1 not known"), "{}", text(&output.stdout));
}
