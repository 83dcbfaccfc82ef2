//! SEC-1, SEC-2, CFG-2: a secret of the fleet repo is sealed by a publish, opened at its nodes before anything is rendered,
//! and blocks what is made of it, and no more, where nothing is sealed for the node.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use test_support::programs::{Host, Prefix, Server, text, write};
use test_support::wait::until_blocking as until;
use trust::SealingKey;
use trust::sealing::age;

struct SecretFleet {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
}

/// What a host prints of itself.
fn recipient(host: &Host) -> String {
    let printed = host.run(&["identity", "--json"]);
    let identity: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    identity["recipient"].as_str().unwrap().to_owned()
}

impl SecretFleet {
    fn new(nodes: &str, module: &str) -> SecretFleet {
        let temp = tempfile::tempdir().unwrap();
        let server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let repo = temp.path().join("repo");
        write(
            &repo.join("fleet.yaml"),
            "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h}\n\
             defaults: {channel: fast}\nsecrets: {sources: {files: {age: secrets/}}}\n",
        );
        write(&repo.join("nodes.yaml"), nodes);
        write(&repo.join("modules/app/module.yaml"), module);
        SecretFleet { temp, server, repo }
    }

    /// As `muster secret set` does, for an identity beside the credentials.
    fn set(&self, name: &str, value: &[u8]) {
        let identity = SealingKey::from_secret(&[9; 32]).unwrap();
        let file = self.server.dir.join("age.key");
        if !file.exists() {
            write(&file, &identity.to_file());
        }
        let seed = trust::SigningKey::from_seed(&[7; 32]).sign(value)[..32].try_into().unwrap();
        let encrypted = age::encrypt(value, &[identity.public()], &seed).unwrap();
        write(&self.repo.join(format!("secrets/{name}.age")), &age::armor(&encrypted));
    }

    fn repo(&self) -> &str {
        self.repo.to_str().unwrap()
    }

    fn joined(&self, name: &str) -> Host {
        let host = Host::new(self.temp.path(), name, &Prefix::new());
        self.server.token(name, &host.token_file());
        host.join();
        host
    }

    fn trust(&self, host: &Host) {
        self.server.ok(&["secret", "trust", &host.name, &recipient(host), "--repo", self.repo(), "--yes"]);
    }
}

const MODULE: &str = "\
params:
  password: {type: secret, required: true}
resources:
  - file: /etc/plain
    content: plain
  - file: /etc/app.key
    content: secret:app/key
  - file: /etc/app.conf
    template: app.conf.j2
";

#[test]
fn it_is_opened_where_it_is_sealed_for_and_blocks_no_more_elsewhere() {
    let nodes = "nodes:\n  - match: [web-1, web-2]\n    modules: [app]\n    vars: {app.password: secret:app/password}\n";
    let mut fleet = SecretFleet::new(nodes, MODULE);
    write(&fleet.repo.join("modules/app/templates/app.conf.j2"), "password={{ params.password|upper }}\n");
    let running = fleet.server.start();
    let missing = fleet.server.muster(&["publish", "--repo", fleet.repo(), "--yes"]);
    assert!(
        text(&missing.stderr).contains("secret `app/key` is in none of files"),
        "{}",
        text(&missing.stderr)
    );
    fleet.set("app/key", b"-----BEGIN KEY-----\nplanted-key\n");
    fleet.set("app/password", b"planted-word\n");
    let (one, two) = (fleet.joined("web-1"), fleet.joined("web-2"));
    fleet.trust(&one);
    let published = fleet.server.muster(&["publish", "--repo", fleet.repo(), "--yes"]);
    let said = text(&published.stderr);
    assert!(published.status.success(), "{said}");
    assert!(said.contains("no recipient key") && said.contains("web-2") && !said.contains("web-1"), "{said}");
    let agents = (one.start(), two.start());
    // The file keeps the newline that the value ends with, the template does not.
    one.until_read("/etc/app.key", "-----BEGIN KEY-----\nplanted-key\n");
    one.until_read("/etc/app.conf", "password=PLANTED-WORD\n");
    fleet.server.until_state("web-1", "converged");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(one.path("/etc/app.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a secret is its owner's alone where nothing else is declared");
    // All else converges, and what is blocked says why.
    two.until_read("/etc/plain", "plain");
    fleet.server.until_state("web-2", "degraded");
    let status = text(&two.run(&["status"]).stdout);
    assert!(
        status.contains("blocked: secret `app/key`") && status.contains("recipient key was not known"),
        "{status}"
    );
    assert!(!two.path("/etc/app.key").exists() && !two.path("/etc/app.conf").exists());
    // Once its key is trusted nothing is blocked.
    fleet.trust(&two);
    fleet.server.publish(&fleet.repo);
    two.until_read("/etc/app.conf", "password=PLANTED-WORD\n");
    fleet.server.until_state("web-2", "converged");
    // Nothing changed: nothing is sealed anew.
    let again = fleet.server.ok(&["publish", "--repo", fleet.repo(), "--yes"]);
    assert!(again.contains("already holds this"), "{again}");
    // Rotation applies what is made of the secret, and nothing else.
    let before = std::fs::metadata(one.path("/etc/app.key")).unwrap().modified().unwrap();
    fleet.set("app/password", b"rotated-word\n");
    let differs = fleet.server.muster(&["diff", "--repo", fleet.repo()]);
    let shown = text(&differs.stdout);
    assert_eq!(differs.status.code(), Some(2), "{shown}{}", text(&differs.stderr));
    assert!(shown.contains("secret app/password") && shown.contains("(secret)"), "{shown}");
    assert!(!shown.contains("secret app/key") && !shown.contains("-word"), "{shown}");
    fleet.server.publish(&fleet.repo);
    one.until_read("/etc/app.conf", "password=ROTATED-WORD\n");
    two.until_read("/etc/app.conf", "password=ROTATED-WORD\n");
    assert_eq!(std::fs::metadata(one.path("/etc/app.key")).unwrap().modified().unwrap(), before);
    // What a node holds it opens by itself: without a control plane, after a restart.
    drop((running, agents));
    for file in ["/etc/app.key", "/etc/app.conf"] {
        std::fs::remove_file(one.path(file)).unwrap();
    }
    let _agent = one.start();
    one.until_read("/etc/app.conf", "password=ROTATED-WORD\n");
    one.until_read("/etc/app.key", "-----BEGIN KEY-----\nplanted-key\n");
}

#[test]
fn nodes_of_a_pattern_get_keys_of_their_own_and_each_secret_is_named() {
    let nodes =
        "nodes:\n  - match: [\"web-*\"]\n    modules: [app]\n    vars: {app.password: secret:app/password}\n";
    let mut fleet = SecretFleet::new(nodes, MODULE);
    write(&fleet.repo.join("modules/app/templates/app.conf.j2"), "password={{ params.password }}\n");
    let _running = fleet.server.start();
    fleet.set("app/key", &[0xff, 0xfe, 0]);
    fleet.set("app/password", b"planted-word");
    let one = fleet.joined("web-1");
    fleet.trust(&one);
    fleet.server.publish(&fleet.repo);
    let _agent = one.start();
    one.until_read("/etc/app.conf", "password=planted-word\n");
    until("the bytes of a secret that is no text", || {
        (std::fs::read(one.path("/etc/app.key")).ok()? == [0xff, 0xfe, 0]).then_some(())
    });
    let reach = fleet.server.json(&["secret", "reach", "app/key", "--repo", fleet.repo()]);
    assert_eq!(reach["app/key"]["open"], serde_json::json!(["web-1"]), "{reach}");
    assert_eq!(reach["app/key"]["patterns"], serde_json::json!(["web-*"]));
    let listed = fleet.server.json(&["secret", "list", "--repo", fleet.repo()]);
    assert_eq!((listed[0]["name"].as_str(), listed[0]["source"].as_str()), (Some("app/key"), Some("files")));
    // One that is no text cannot stand in one, and one that is too long nowhere: nothing is published.
    for (value, why) in
        [(&[0xff][..], "is not UTF-8"), (&vec![b'x'; 10 << 20][..256 << 10], "more than 65536 bytes")]
    {
        fleet.set("app/password", value);
        let refused = fleet.server.muster(&["publish", "--repo", fleet.repo(), "--yes"]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("app/password") && said.contains(why), "{said}");
    }
}

/// What was rotated since is not undone by a rollback, where the fleet repo is at hand.
#[test]
fn a_rollback_asks_for_secrets_anew() {
    let nodes =
        "nodes:\n  - match: [web-1]\n    modules: [app]\n    vars: {app.password: secret:app/password}\n";
    let mut fleet = SecretFleet::new(nodes, MODULE);
    let template = fleet.repo.join("modules/app/templates/app.conf.j2");
    write(&template, "old={{ params.password }}\n");
    let _running = fleet.server.start();
    fleet.set("app/key", b"planted-key");
    fleet.set("app/password", b"first-word");
    let one = fleet.joined("web-1");
    fleet.trust(&one);
    fleet.server.publish(&fleet.repo);
    let _agent = one.start();
    one.until_read("/etc/app.conf", "old=first-word\n");
    fleet.set("app/password", b"second-word");
    write(&template, "new={{ params.password }}\n");
    fleet.server.publish(&fleet.repo);
    one.until_read("/etc/app.conf", "new=second-word\n");

    let asked = fleet.server.muster(&["release", "rollback", "1", "--repo", fleet.repo(), "--dry-run"]);
    assert_eq!(asked.status.code(), Some(2), "{}", text(&asked.stderr));
    let said = fleet.server.ok(&["release", "rollback", "1", "--repo", fleet.repo(), "--yes"]);
    assert!(said.contains("and 2 secrets as their sources have them now"), "{said}");
    one.until_read("/etc/app.conf", "old=second-word\n");
    let again = fleet.server.ok(&["release", "rollback", "1", "--repo", fleet.repo(), "--yes"]);
    assert!(again.contains("already holds what release 1 held"), "{again}");

    // Without it the values of then come back, which is said before anybody is asked.
    let plain = fleet.server.muster(&["release", "rollback", "1", "--yes"]);
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    assert!(text(&plain.stderr).contains("--repo DIR asks their sources anew"), "{}", text(&plain.stderr));
    one.until_read("/etc/app.conf", "old=first-word\n");

    // Nothing is sealed for a key that the fleet repo does not name any more.
    std::fs::remove_file(fleet.repo.join("recipients.yaml")).unwrap();
    let refused = fleet.server.muster(&["release", "rollback", "2", "--repo", fleet.repo()]);
    assert!(text(&refused.stderr).contains("no recipient key of 1 node"), "{}", text(&refused.stderr));
}

/// IDN-6, IDN-10: a host that is out, and one that is replaced, has a key that nothing is sealed for any more.
#[test]
fn nothing_is_sealed_for_a_host_that_is_out() {
    let nodes = "nodes:\n  - match: [web-1, web-2]\n    modules: [app]\n    vars: {app.password: secret:app/password}\n";
    let mut fleet = SecretFleet::new(nodes, MODULE);
    write(&fleet.repo.join("modules/app/templates/app.conf.j2"), "password={{ params.password }}\n");
    let _running = fleet.server.start();
    fleet.set("app/key", b"planted-key");
    fleet.set("app/password", b"planted-word");
    let (one, two) = (fleet.joined("web-1"), fleet.joined("web-2"));
    fleet.trust(&one);
    fleet.trust(&two);
    fleet.server.publish(&fleet.repo);
    let file = fleet.repo.join("recipients.yaml");
    let read = || std::fs::read_to_string(&file).unwrap();

    let out = fleet.server.muster(&["node", "revoke", "web-1", "--repo", fleet.repo(), "--yes"]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("muster secret rotate app/key, app/password"), "{said}");
    assert!(!read().contains("web-1") && read().contains("web-2"), "{}", read());
    let reach = fleet.server.json(&["secret", "reach", "app/key", "--repo", fleet.repo()]);
    assert_eq!(reach["app/key"]["open"], serde_json::json!(["web-2"]), "{reach}");
    // A name that nobody has is a mistake more often than not.
    let nobody = fleet.server.muster(&["node", "revoke", "web-11", "--repo", fleet.repo(), "--yes"]);
    assert!(text(&nobody.stderr).contains("no node is called web-11"), "{}", text(&nobody.stderr));

    let out = fleet.server.muster(&["node", "replace", "web-2", "--repo", fleet.repo()]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("out of recipients.yaml"), "{said}");
    assert!(said.contains("muster secret trust web-2 KEY"), "{said}");
    assert!(read().contains("recipients: {}"), "{}", read());
    fleet.server.publish(&fleet.repo);
    // The list that was emptied takes the next key.
    fleet.trust(&two);
    assert!(read().contains("recipients:\n  web-2: age1"), "{}", read());
    // One in another file is left alone, and told.
    std::fs::create_dir(fleet.repo.join("recipients")).unwrap();
    std::fs::rename(&file, fleet.repo.join("recipients/more.yaml")).unwrap();
    let trusted =
        fleet.server.muster(&["secret", "trust", "web-2", &recipient(&one), "--repo", fleet.repo(), "--yes"]);
    assert!(text(&trusted.stderr).contains("below recipients/"), "{}", text(&trusted.stderr));
    let out = fleet.server.muster(&["node", "revoke", "web-2", "--repo", fleet.repo(), "--yes"]);
    assert!(text(&out.stderr).contains("still sealed for the key of web-2"), "{}", text(&out.stderr));
}
