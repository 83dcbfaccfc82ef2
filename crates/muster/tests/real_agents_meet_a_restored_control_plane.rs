//! SCL-4: two real agents with objects, one that polls and one with a stream, meet a control plane that was restored
//! from a backup of before what they hold. The header that is unknown there is asked for and answered, their facts
//! are sent again and none is there twice, `in sync` is said after a comparison only, and `publish` goes on above.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use test_support::programs::{Host, Prefix, Running, Server, text, write};
use test_support::wait::until_blocking as until;

/// The nodes, and how events travel with each.
const NODES: [(&str, &str); 2] = [("polls", "poll"), ("streams", "websocket")];
const FOLDER: &str = "/srv/manifests";

fn write_fleet(repo: &Path, greeting: &str) {
    let channel = |(name, transport): (&str, &str)| {
        format!(
            "  {name}: {{contact: 1s, converge: 1s, jitter: 10%, freshness: 24h, transport: {transport}}}\n"
        )
    };
    let node =
        |(name, _): (&str, &str)| format!("  - {{match: [{name}], channel: {name}, modules: [hello]}}\n");
    let sync = format!("sync:\n  all: {{nodes: [\"*\"], mode: managed, kinds: [Item], folder: {FOLDER}}}\n");
    write(
        &repo.join("fleet.yaml"),
        &format!("format: 1\nname: e2e\nchannels:\n{}{sync}", NODES.map(channel).concat()),
    );
    write(&repo.join("nodes.yaml"), &format!("nodes:\n{}", NODES.map(node).concat()));
    let module = format!(
        "resources:\n  - file: /etc/hello\n    content: \"{greeting} ${{{{ node.hostname }}}}\\n\"\n"
    );
    write(&repo.join("modules/hello/module.yaml"), &module);
}

struct Site {
    host: Host,
    _agent: Running,
}

impl Site {
    /// The names of the objects on the node.
    fn objects(&self) -> BTreeSet<String> {
        let folder = self.host.path(FOLDER).join(format!("item/{}", self.host.name));
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned)).collect()
    }

    fn apply(&self, server: &Server, name: &str) {
        let node = &self.host.name;
        let file = self.host.dir.join("manifest.yaml");
        write(
            &file,
            &format!("kind: Item\nmetadata: {{namespace: {node}, name: {name}}}\nspec: {{text: x}}\n"),
        );
        server.ok(&["object", "apply", "-f", file.to_str().unwrap()]);
    }

    /// Waits until the node is in sync; whenever the control plane says so, the node has exactly these.
    fn until_in_sync(&self, server: &Server, objects: &[&str]) {
        let wanted: BTreeSet<String> = objects.iter().map(ToString::to_string).collect();
        until(&format!("{} is in sync with {objects:?}", self.host.name), || {
            let output = server.muster(&["object", "status", &self.host.name, "--json"]);
            let status: Value = serde_json::from_slice(&output.stdout).ok()?;
            let is_in_sync = status[0]["condition"]["state"] == "in-sync";
            let here = self.objects();
            assert!(!is_in_sync || here == wanted, "in sync with {here:?}: {status}");
            is_in_sync.then_some(())
        });
    }

    /// What the control plane has of the node's facts: time and content of each.
    fn facts(&self, server: &Server) -> Vec<String> {
        let facts = server.json(&["node", "facts", &self.host.name, "--limit", "1000"]);
        let what = |fact: &Value| {
            let mut fact = fact.clone();
            // These may be others after a restore: the log of a node that lacks an acknowledged fact begins anew.
            for name in ["id", "received", "incarnation", "seq"] {
                fact.as_object_mut().unwrap().remove(name).unwrap();
            }
            fact.to_string()
        };
        facts.as_array().unwrap().iter().map(what).collect()
    }
}

#[test]
fn one_polls_and_one_has_a_stream() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let repo = temp.path().join("repo");
    let running = server.start();
    write_fleet(&repo, "one");
    server.publish(&repo);
    let sites = NODES.map(|(name, _)| {
        let host = Host::new(temp.path(), name, &Prefix::new());
        server.token(name, &host.token_file());
        host.join();
        let agent = host.start();
        Site { host, _agent: agent }
    });
    for site in &sites {
        site.apply(&server, "kept");
        site.apply(&server, "deleted");
        server.until_state(&site.host.name, "converged");
        site.until_in_sync(&server, &["deleted", "kept"]);
    }
    let data = server.dir.to_str().unwrap().to_owned();
    let backup = temp.path().join("fleet.backup").to_str().unwrap().to_owned();
    server.ok(&["backup", "--data", &data, &backup]);

    // All of this the backup lacks, and both nodes have.
    write_fleet(&repo, "two");
    server.publish(&repo);
    let mut known = Vec::new();
    for site in &sites {
        let name = &site.host.name;
        site.apply(&server, "later");
        server.ok(&["object", "delete", name, "Item/deleted", "--yes"]);
        site.host.until_read("/etc/hello", &format!("two {name}\n"));
        site.host.edit("/etc/hello", "by hand\n");
        site.host.until_read("/etc/hello", &format!("two {name}\n"));
        server.until_state(name, "converged");
        site.until_in_sync(&server, &["kept", "later"]);
        let facts = until("the correction of drift is a fact", || {
            let facts = site.facts(&server);
            facts.iter().any(|fact| fact.contains("by hand")).then_some(facts)
        });
        known.push(facts);
    }
    running.kill();
    let restored = server.muster(&["restore", &backup, "--data", &data, "--replace"]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));

    let _running = server.start();
    for site in &sites {
        site.until_in_sync(&server, &["deleted", "kept"]);
    }
    until("the header that nodes hold was asked for and answered", || {
        (server.json(&["status"])["overtakenBy"] == 2).then_some(())
    });
    for (site, known) in sites.iter().zip(&known) {
        let name = &site.host.name;
        assert_eq!(server.node(name)["held"]["seq"], 2);
        let facts = until(&format!("{name} sent again what the backup lacks"), || {
            let facts = site.facts(&server);
            known.iter().all(|fact| facts.contains(fact)).then_some(facts)
        });
        let distinct: BTreeSet<&String> = facts.iter().collect();
        assert_eq!(distinct.len(), facts.len(), "{facts:#?}");
    }

    write_fleet(&repo, "three");
    server.publish(&repo);
    for site in &sites {
        let name = &site.host.name;
        site.host.until_read("/etc/hello", &format!("three {name}\n"));
        server.until_state(name, "converged");
        assert_eq!(server.node(name)["held"]["seq"], 3);
        site.apply(&server, "last");
        site.until_in_sync(&server, &["deleted", "kept", "last"]);
    }
    assert_eq!(server.json(&["status"]).get("overtakenBy"), None);
}
