//! IDN-8, IDN-2: the runbooks "the CA changes" and "the CA was stolen" of docs/keys.md, with the real programs. Planned,
//! nothing is interrupted; a node that sleeps meanwhile, a token of before and an operator's credentials elsewhere come
//! back by the chain of trust documents. Stolen, the CA of before regains no node that heard so, and no node has to join
//! anew, also where certificates that have ended are not recovered.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use test_support::programs::{Host, Prefix, Running, Server, text, write_repo};
use test_support::wait::until_blocking as until;

struct CertifiedFleet {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
}

impl CertifiedFleet {
    fn new() -> (CertifiedFleet, Running) {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let running = server.start();
        let fleet = CertifiedFleet { repo: temp.path().join("repo"), server, temp };
        fleet.publish("one", &[]);
        (fleet, running)
    }

    #[track_caller]
    fn publish(&self, greeting: &str, more: &[&str]) {
        write_repo(&self.repo, greeting);
        let publish = ["publish", "--repo", self.repo.to_str().unwrap(), "--yes"];
        self.server.ok(&[&publish, more].concat());
    }

    fn host(&self, name: &str) -> Host {
        let host = Host::new(self.temp.path(), name, &Prefix::new());
        self.server.token(name, &host.token_file());
        host
    }

    fn joined(&self, name: &str) -> (Host, Running) {
        let host = self.host(name);
        host.join();
        let agent = host.start();
        host.until_read("/etc/hello", &format!("one {name}\n"));
        (host, agent)
    }

    fn file(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    fn data(&self, name: &str) -> PathBuf {
        self.server.dir.join(name)
    }

    fn certificates(&self) -> Value {
        self.server.json(&["key", "show"])["certificates"].clone()
    }

    /// The nodes with a certificate of a CA of before.
    fn until_of_before(&self, nodes: &[&str]) {
        until(&format!("{nodes:?} have a certificate of the CA before"), || {
            let named = self.certificates()["nodes"].clone();
            (named == serde_json::json!(nodes) || nodes.is_empty() && named.is_null()).then_some(())
        });
    }
}

fn status(host: &Host) -> String {
    text(&host.run(&["status"]).stdout)
}

fn read_json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_planned_change_of_the_runbook_interrupts_nothing() {
    let (mut fleet, running) = CertifiedFleet::new();
    let (host, agent) = fleet.joined("web-1");
    let (sleeper, asleep) = fleet.joined("web-2");
    fleet.server.until_state("web-2", "converged");
    asleep.kill();
    let late = fleet.host("web-3");
    // Credentials elsewhere, and such as a version of before wrote.
    let (elsewhere, of_before) = (fleet.file("elsewhere.json"), fleet.file("of-before.json"));
    std::fs::copy(fleet.data("operator.json"), &elsewhere).unwrap();
    let mut credentials = read_json(&elsewhere);
    credentials.as_object_mut().unwrap().remove("trust").unwrap();
    std::fs::write(&of_before, credentials.to_string()).unwrap();
    // They take no document by the connection alone: whoever stole the CA could answer. The digest is compared.
    let told = fleet.server.muster(&["node", "list", "--operator", &of_before]);
    assert!(text(&told.stderr).contains("muster operator trust"), "{}", text(&told.stderr));
    assert_eq!(read_json(&of_before)["trust"], Value::Null);
    let never = fleet.file("never.json");
    std::fs::copy(&of_before, &never).unwrap();
    let digest = fleet.server.json(&["key", "show"])["versions"][0]["digest"].as_str().unwrap().to_owned();
    let shown = fleet.server.ok(&["operator", "trust", "--operator", &of_before]);
    assert!(shown.contains(&format!("muster operator trust {digest}")), "{shown}");
    let other = model::Digest::of(b"another document").to_string();
    let refused = fleet.server.muster(&["operator", "trust", &other, "--operator", &of_before]);
    assert!(text(&refused.stderr).contains("nothing was changed"), "{}", text(&refused.stderr));
    assert_eq!(read_json(&of_before)["trust"], Value::Null);
    fleet.server.ok(&["operator", "trust", &digest, "--operator", &of_before]);
    assert_eq!(read_json(&of_before)["trust"]["version"], 1);

    let first = std::fs::read_to_string(fleet.data("node-ca.pem")).unwrap();
    let refused = fleet.server.muster(&["key", "rotate", "certificate-authority", "--to", "new.key"]);
    assert!(text(&refused.stderr).contains("is not the one that lies there"), "{}", text(&refused.stderr));
    // Away from the control plane's directory nothing but the id that somebody read there confirms the next CA.
    let root = fleet.data("root.key").display().to_string();
    let away = ["key", "rotate", "certificate-authority", "--root-key", &root, "--operator", &elsewhere];
    let refused = fleet.server.muster(&away);
    assert!(text(&refused.stderr).contains("nothing here confirms it"), "{}", text(&refused.stderr));
    let told = fleet.server.ok(&["key", "rotate", "certificate-authority"]);
    assert!(told.contains("trust document 2: certificate-authority key"), "{told}");
    assert_ne!(std::fs::read_to_string(fleet.data("node-ca.pem")).unwrap(), first);
    assert!(fleet.data("node-ca.previous").exists() && !fleet.data("node-ca.next").exists());
    // The node that is awake renews, and the server shows what everybody believes.
    fleet.until_of_before(&["web-2"]);
    assert!(status(&host).contains("trust          document 2, CA "), "{}", status(&host));
    let said = text(&fleet.server.muster(&["status"]).stdout);
    assert!(said.contains("1 node with a certificate of a CA of before: web-2"), "{said}");
    fleet.publish("two", &[]);
    host.until_read("/etc/hello", "two web-1\n");
    fleet.server.ok(&["node", "list", "--operator", &elsewhere]);

    // Another change at once would drop the CA that the sleeper's certificate is of.
    let asked = fleet.server.muster(&["key", "rotate", "certificate-authority"]);
    assert!(text(&asked.stderr).contains("web-2"), "{}", text(&asked.stderr));
    let retire = ["key", "retire", "certificate-authority"];
    let asked = fleet.server.muster(&retire);
    assert!(text(&asked.stderr).contains("web-2"), "{}", text(&asked.stderr));
    fleet.server.ok(&[&retire[..], &["--yes"]].concat());
    fleet.publish("three", &[]);
    host.until_read("/etc/hello", "three web-1\n");
    // Connections that are new from here on are of the new CA alone.
    drop(running);
    let _running = fleet.server.start();
    fleet.publish("four", &[]);
    host.until_read("/etc/hello", "four web-1\n");
    assert!(!agent.log().contains("is not this fleet's control plane"), "{}", agent.log());

    let _awake = sleeper.start();
    sleeper.until_read("/etc/hello", "four web-2\n");
    fleet.until_of_before(&[]);
    late.join();
    let _late = late.start();
    late.until_read("/etc/hello", "four web-3\n");
    for file in [&elsewhere, &of_before] {
        fleet.server.ok(&["node", "list", "--operator", file]);
        assert_eq!(read_json(file)["trust"]["version"], 3, "{file}");
    }
    let stranded = fleet.server.muster(&["node", "list", "--operator", &never]);
    assert!(text(&stranded.stderr).contains("muster operator add"), "{}", text(&stranded.stderr));
    assert_eq!(read_json(&never)["trust"], Value::Null);
    assert_eq!(fleet.host_joins_anew(), "four web-4\n");
}

impl CertifiedFleet {
    /// A host that joins with a token of now.
    fn host_joins_anew(&self) -> String {
        let host = self.host("web-4");
        host.join();
        let _agent = host.start();
        host.until_read("/etc/hello", "four web-4\n");
        host.read("/etc/hello")
    }
}

#[test]
fn a_stolen_ca_regains_no_node_and_strands_none() {
    let (mut fleet, running) = CertifiedFleet::new();
    let (host, agent) = fleet.joined("web-1");
    fleet.server.until_state("web-1", "converged");
    // The keys of intent lie elsewhere: a certificate that has ended is recovered by nobody.
    let [root, release] = ["root.key", "release.key"].map(|name| {
        let to = fleet.file(name);
        std::fs::rename(fleet.data(name), &to).unwrap();
        to
    });
    let thief = fleet.temp.path().join("thief");
    std::fs::create_dir(&thief).unwrap();
    let copied = Command::new("cp").arg("-r").arg(&fleet.server.dir).arg(&thief).status().unwrap();
    assert!(copied.success());

    let rotate = ["key", "rotate", "certificate-authority", "--drop-previous", "--root-key", &root];
    let told = fleet.server.ok(&rotate);
    assert!(told.contains("no other counts"), "{told}");
    fleet.until_of_before(&[]);
    fleet.publish("two", &["--key", &release]);
    host.until_read("/etc/hello", "two web-1\n");

    drop(running);
    let mut impostor = fleet.server.in_its_place(&thief);
    let stolen = impostor.start();
    // Also after a restart.
    let refusals = |agent: &Running| agent.log().matches("is not this fleet's control plane").count();
    until("the node does not believe the stolen CA", || (refusals(&agent) > 0).then_some(()));
    agent.kill();
    let agent = host.start();
    let before = refusals(&agent);
    until("it does not believe it afterwards", || (refusals(&agent) > before).then_some(()));
    drop(stolen);
    let _running = fleet.server.start();
    fleet.publish("three", &["--key", &release]);
    host.until_read("/etc/hello", "three web-1\n");
}

/// `--reject-before` while the CA before counts on, where the keys of intent lie elsewhere and nobody recovers a certificate
/// that has ended: the control plane and the node certify themselves anew, by the node's key.
#[test]
fn certificates_from_before_a_time_are_given_anew() {
    let (fleet, _running) = CertifiedFleet::new();
    let (host, agent) = fleet.joined("web-1");
    fleet.server.until_state("web-1", "converged");
    let [root, release] = ["root.key", "release.key"].map(|name| {
        let to = fleet.file(name);
        std::fs::rename(fleet.data(name), &to).unwrap();
        to
    });
    let of_the_host = || {
        // A line that names its format comes first.
        let file = std::fs::read_to_string(host.dir.join("state/membership.json")).unwrap();
        let (_, member) = file.split_once('\n').unwrap();
        let member: Value = serde_json::from_str(member).unwrap();
        member["certPem"].as_str().unwrap().to_owned()
    };
    let before = of_the_host();
    let issued = net::issue::issued_at(net::identity::validity(before.as_bytes()).unwrap());
    let limit = until("certificates know whole seconds", || {
        let now = test_support::tls_server::now().secs();
        (now > issued.secs()).then(|| model::Timestamp::from_secs(now).to_string())
    });
    let rotate = ["key", "rotate", "certificate-authority", "--root-key", &root];
    let future = fleet.server.muster(&[&rotate[..], &["--reject-before", "2100-01-01T00:00:00Z"]].concat());
    assert!(text(&future.stderr).contains("that is in the future"), "{}", text(&future.stderr));
    let told = fleet.server.ok(&[&rotate[..], &["--reject-before", &limit]].concat());
    assert!(told.contains("which still counts") && told.contains("counts no more"), "{told}");
    fleet.until_of_before(&[]);
    until("it has another certificate", || (of_the_host() != before).then_some(()));
    fleet.publish("two", &["--key", &release]);
    host.until_read("/etc/hello", "two web-1\n");
    assert!(agent.log().contains("the certificate was renewed"), "{}", agent.log());
}

/// A file of the next CA that is damaged is named, and changes nothing; what was cut off is gone on with.
#[test]
fn files_of_a_ca_that_are_damaged_or_cut_off_are_named_and_mended() {
    let (mut fleet, running) = CertifiedFleet::new();
    let (host, _agent) = fleet.joined("web-1");
    std::fs::write(fleet.data("node-ca.next"), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    let refused = fleet.server.muster(&["key", "rotate", "certificate-authority"]);
    assert!(text(&refused.stderr).contains("node-ca.next"), "{}", text(&refused.stderr));
    assert!(!fleet.data("trust-links.json").exists());
    std::fs::remove_file(fleet.data("node-ca.next")).unwrap();
    fleet.server.ok(&["key", "rotate", "certificate-authority"]);
    fleet.until_of_before(&[]);
    // As if the control plane had been killed between the two files of the CA in its place.
    drop(running);
    let bundle = [fleet.data("node-ca.pem"), fleet.data("node-ca.key")];
    let bundle: String = bundle.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    std::fs::write(fleet.data("node-ca.next"), bundle).unwrap();
    std::fs::write(fleet.data("node-ca.pem"), "half").unwrap();
    let _running = fleet.server.start();
    assert!(!fleet.data("node-ca.next").exists());
    assert!(std::fs::read_to_string(fleet.data("node-ca.pem")).unwrap().contains("END CERTIFICATE"));
    fleet.publish("two", &[]);
    host.until_read("/etc/hello", "two web-1\n");
    assert_eq!(fleet.certificates()["unusable"], Value::Null);
}
