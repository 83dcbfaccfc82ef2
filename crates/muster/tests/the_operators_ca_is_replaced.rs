//! OPS-5, IDN-8: the runbooks "the CA of operators changes" and "the CA of operators was stolen" of docs/keys.md, with the
//! real programs. Planned, no operator is interrupted who renews; a copy of the credentials that nobody renewed opens nothing
//! afterwards. Stolen, what the CA of before certifies opens nothing at once, in the first admin's name neither.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use test_support::programs::{Prefix, Running, Server, text};

struct OperatedFleet {
    temp: tempfile::TempDir,
    server: Server,
}

impl OperatedFleet {
    fn new() -> (OperatedFleet, Running) {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let running = server.start();
        (OperatedFleet { server, temp }, running)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// An operator with a certificate; the file of his credentials.
    fn operator(&self, name: &str) -> String {
        let file = self.file(&format!("{name}.json")).display().to_string();
        self.server.ok(&["operator", "add", name, "--role", "viewer", "--out", &file]);
        file
    }

    /// Copies credentials.
    fn copy(&self, of: &str, to: &str) -> String {
        let to = self.file(to).display().to_string();
        std::fs::copy(of, &to).unwrap();
        to
    }

    #[track_caller]
    fn is_shut_out(&self, credentials: &str) {
        let refused = self.server.muster(&["node", "list", "--operator", credentials]);
        assert!(!refused.status.success(), "{}", text(&refused.stdout));
    }

    fn own(&self) -> String {
        self.server.dir.join("operator.json").display().to_string()
    }
}

/// A CA's certificate knows whole seconds.
fn until_the_next_second() {
    let secs = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let began = secs();
    test_support::wait::until_blocking("the second is over", || (secs() > began).then_some(()));
}

#[test]
fn the_planned_change_of_the_runbook_interrupts_nobody() {
    let (mut fleet, running) = OperatedFleet::new();
    let (alice, bob) = (fleet.operator("alice"), fleet.operator("bob"));
    let (copied, own_copied) = (fleet.copy(&alice, "copied.json"), fleet.copy(&fleet.own(), "own.json"));
    until_the_next_second();
    let refused = fleet.server.muster(&["key", "rotate", "operator-authority", "--root-key", "root.key"]);
    assert!(text(&refused.stderr).contains("no trust document names it"), "{}", text(&refused.stderr));

    let told = fleet.server.ok(&["key", "rotate", "operator-authority"]);
    assert!(told.contains("which still counts") && told.contains("muster operator renew"), "{told}");
    let shown = fleet.server.ok(&["key", "show"]);
    assert!(shown.contains("2 operators with a certificate of the CA before: alice, bob"), "{shown}");
    for credentials in [&alice, &bob, &copied, &own_copied] {
        fleet.server.ok(&["node", "list", "--operator", credentials]);
    }
    // A second change at once would drop the CA that theirs are of.
    let asked = fleet.server.muster(&["key", "rotate", "operator-authority"]);
    assert!(text(&asked.stderr).contains("the change before is not finished"), "{}", text(&asked.stderr));
    let told = fleet.server.ok(&["operator", "renew", "--operator", &alice]);
    assert!(told.contains("another certificate, until"), "{told}");
    let shown = fleet.server.ok(&["key", "show"]);
    assert!(shown.contains("1 operator with a certificate of the CA before: bob"), "{shown}");

    let asked = fleet.server.muster(&["key", "retire", "operator-authority"]);
    assert!(text(&asked.stderr).contains("bob"), "{}", text(&asked.stderr));
    fleet.server.ok(&["key", "retire", "operator-authority", "--yes"]);
    for _ in 0..2 {
        fleet.server.ok(&["node", "list", "--operator", &alice]);
        fleet.server.ok(&["operator", "list"]);
        for credentials in [&bob, &copied, &own_copied] {
            fleet.is_shut_out(credentials);
        }
        let shown = fleet.server.ok(&["key", "show"]);
        assert!(!shown.contains("of the CA before"), "{shown}");
    }
    // Also after a start.
    drop(running);
    let _running = fleet.server.start();
    fleet.server.ok(&["node", "list", "--operator", &alice]);
    fleet.is_shut_out(&bob);
}

#[test]
fn a_stolen_ca_of_operators_opens_nothing() {
    let (fleet, _running) = OperatedFleet::new();
    // With the whole directory the thief has the first admin's credentials and the CA.
    let thief = fleet.copy(&fleet.own(), "thief.json");
    let alice = fleet.operator("alice");
    let ci = fleet.file("ci.json").display().to_string();
    fleet.server.ok(&["operator", "add", "ci", "--role", "operator", "--token", "--out", &ci]);
    let [cert, key] = ["pem", "key"]
        .map(|kind| std::fs::read_to_string(fleet.server.dir.join(format!("operator-ca.{kind}"))).unwrap());
    let stolen = net::issue::Ca::load(&cert, &key).unwrap();
    fleet.server.ok(&["node", "list", "--operator", &thief]);

    let asked = fleet.server.muster(&["key", "rotate", "operator-authority", "--drop-previous"]);
    assert!(text(&asked.stderr).contains("open nothing any more"), "{}", text(&asked.stderr));
    until_the_next_second();
    let told = fleet.server.ok(&["key", "rotate", "operator-authority", "--drop-previous", "--yes"]);
    assert!(told.contains("no other counts"), "{told}");
    fleet.is_shut_out(&thief);
    fleet.is_shut_out(&alice);
    // One that is made now is of the stolen CA all the same.
    let now = test_support::fleet::now();
    let forged = stolen.issue_operator("operator", [5; 16], now).unwrap();
    let mut credentials: serde_json::Value = serde_json::from_slice(&std::fs::read(&thief).unwrap()).unwrap();
    credentials["certPem"] = forged.cert_pem.into();
    credentials["keyPem"] = forged.key_pem.to_string().into();
    std::fs::write(&thief, credentials.to_string()).unwrap();
    fleet.is_shut_out(&thief);
    fleet.server.ok(&["node", "list", "--operator", &ci]);
    let added = fleet.operator("alice-2");
    fleet.server.ok(&["node", "list", "--operator", &added]);
}
