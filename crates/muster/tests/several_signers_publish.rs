//! IDN-8: by the runbooks of docs/keys.md, a channel asks for several signers, who sign at once or one after the other,
//! and keys lie in age files and behind commands. Nothing that has too few signatures is published or adopted; a
//! mistake of a signer is named and changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::process::Output;

use test_support::programs::{Host, Prefix, Running, Server, text, write_repo};
use test_support::wait::until_blocking as until;
use trust::SigningKey;

/// Names the folder in which [`helper_signs`] works.
const HELPER_ENV: &str = "MUSTER_TEST_SIGNER";

struct SigningFleet {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
    _running: Running,
}

impl SigningFleet {
    fn new() -> SigningFleet {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let (_running, repo) = (server.start(), temp.path().join("repo"));
        SigningFleet { temp, server, repo, _running }
    }

    fn file(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    /// A new key, and its public half beside it.
    fn key(&self, name: &str, algorithm: &str) -> String {
        let path = self.file(name);
        let public = self.server.ok(&["key", "new", &path, "--algorithm", algorithm]);
        std::fs::write(self.file(&format!("{name}.pub")), public).unwrap();
        path
    }

    fn publish_with(&self, greeting: &str, arguments: &[&str]) -> Output {
        write_repo(&self.repo, greeting);
        let repo = self.repo.to_str().unwrap();
        self.server.muster(&[&["publish", "--repo", repo, "--yes"], arguments].concat())
    }

    fn joined(&self, name: &str) -> (Host, Running) {
        let host = Host::new(self.temp.path(), name, &Prefix::new());
        self.server.token(name, &host.token_file());
        host.join();
        let running = host.start();
        (host, running)
    }

    /// The newest release, which nobody but the signers makes.
    fn seq(&self) -> u64 {
        self.server.json(&["status"])["channels"][0]["seq"].as_u64().unwrap()
    }

    fn until_all_hold(&self, version: u64) {
        until(&format!("nodes hold trust document {version}"), || {
            let shown = self.server.json(&["key", "show"]);
            let holding = shown["holding"].as_array().unwrap().clone();
            (holding.len() == 1 && holding[0]["version"] == version).then_some(())
        });
    }
}

#[track_caller]
fn refused(output: &Output, why: &str, next: &str) {
    let said = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(why) && said.contains(next), "{said}");
}

#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runbook "a channel asks for several signers".
#[test]
fn a_channel_asks_for_two_of_three() {
    let fleet = SigningFleet::new();
    done(fleet.publish_with("one", &[]));
    let (host, _agent) = fleet.joined("web-1");
    host.until_read("/etc/hello", "one web-1\n");
    let [a, b, c] = [("a.key", "ed25519"), ("b.key", "ecdsa-p256"), ("c.key", "ed25519")]
        .map(|(name, algorithm)| fleet.key(name, algorithm));
    let stranger = fleet.key("stranger.key", "ed25519");
    let b_public = std::fs::read_to_string(fleet.file("b.key.pub")).unwrap();
    let c_public = fleet.file("c.key.pub");
    let threshold = |arguments: &[&str]| fleet.server.muster(&[&["key", "threshold"], arguments].concat());

    // Mistakes, named.
    refused(&threshold(&["fast", "2"]), "has no signers yet", "--signer KEY");
    refused(
        &threshold(&["fast", "3", "--signer", &a, "--signer", &c]),
        "3 signatures of 2 signers",
        "muster key show",
    );
    refused(&threshold(&["fast", "2", "--signer", &a, "--signer", &a]), "twice", "nothing was changed");
    let root = fleet.server.dir.join("root.key");
    refused(&threshold(&["fast", "1", "--signer", root.to_str().unwrap()]), "is the fleet's root key", "");
    refused(&threshold(&["fast", "--remove"]), "asks for that already", "nothing was changed");

    // A file with a private half, a public key, and a file with one.
    let told =
        done(threshold(&["fast", "2", "--signer", &a, "--signer", b_public.trim(), "--signer", &c_public]));
    assert!(
        told.contains("channel fast asks for 2 of 3 signers") && told.contains("muster publish"),
        "{told}"
    );
    assert!(fleet.server.ok(&["key", "show"]).contains("channel fast asks for 2 of 3 signers"));
    fleet.until_all_hold(2);

    // Neither the release key nor one signer publishes, nor one signer twice, nor a stranger.
    refused(&fleet.publish_with("two", &[]), "asks for 2 signatures, and has 0", "muster sign FILE");
    refused(
        &fleet.publish_with("two", &["--key", &a]),
        "asks for 2 signatures, and has 1",
        "muster publish --out",
    );
    refused(&fleet.publish_with("two", &["--key", &a, "--key", &a]), "is given twice", "");
    refused(
        &fleet.publish_with("two", &["--key", &a, "--key", &stranger]),
        "do not believe the release key",
        "",
    );
    assert_eq!(fleet.seq(), 1);
    // At once.
    done(fleet.publish_with("two", &["--key", &a, "--key", &b]));
    host.until_read("/etc/hello", "two web-1\n");

    // One after the other.
    let request = fleet.file("r.json");
    let told = done(fleet.publish_with("three", &["--key", &b, "--out", &request]));
    assert!(told.contains("1 of 2 signatures") && told.contains("muster sign"), "{told}");
    let seq = fleet.seq();
    let from = || fleet.server.muster(&["publish", "--from", &request, "--yes"]);
    refused(&from(), "asks for 2 signatures, and has 1", "muster sign FILE");
    let sign = |arguments: &[&str]| fleet.server.muster(&[&["sign", &request, "--yes"], arguments].concat());
    refused(&sign(&["--key", &b]), "has signed it already", "");
    refused(&sign(&["--key", &stranger]), "is no signer of any channel", "muster key show");
    write_repo(&fleet.repo, "something else");
    let repo = fleet.repo.to_str().unwrap();
    refused(&sign(&["--key", &c, "--repo", repo]), "its content differs", "nothing was signed");
    refused(&from(), "has 1", "");
    write_repo(&fleet.repo, "three");
    let told = done(sign(&["--key", &c, "--repo", repo]));
    assert!(told.contains("2 of 2 signatures") && told.contains("publish --from"), "{told}");
    assert_eq!(fleet.seq(), seq, "signing publishes nothing");
    done(from());
    host.until_read("/etc/hello", "three web-1\n");
    refused(&from(), "was published meanwhile", "");

    // Back to the release from before the threshold: signed anew by as many.
    let rollback = ["release", "rollback", "1", "--yes", "--key", &a];
    refused(&fleet.server.muster(&rollback), "asks for 2 signatures, and has 1", "");
    done(fleet.server.muster(&[&rollback[..], &["--key", &c]].concat()));
    host.until_read("/etc/hello", "one web-1\n");
    let again = ["release", "rollback", "2", "--yes", "--key", &a, "--out", &request];
    done(fleet.server.muster(&again));
    done(sign(&["--key", &b]));
    done(from());
    host.until_read("/etc/hello", "two web-1\n");

    // A beacon is of one key: it keeps fresh what two signed.
    done(fleet.server.muster(&["beacon"]));
    // A signer that was stolen goes; two of the others stay.
    done(threshold(&["fast", "2", "--signer", &b, "--signer", &c_public]));
    refused(&fleet.publish_with("four", &["--key", &a, "--key", &b]), "do not believe the release key", "");
    done(fleet.publish_with("four", &["--key", &c, "--key", &b]));
    host.until_read("/etc/hello", "four web-1\n");
    done(threshold(&["fast", "--remove"]));
    done(fleet.publish_with("five", &[]));
    host.until_read("/etc/hello", "five web-1\n");
}

/// No test but a program of the others: a key service that signs the file `in` of a folder with the file `key`, into
/// the file `out`. It does nothing where no folder is named.
#[test]
fn helper_signs() {
    let Some(folder) = std::env::var_os(HELPER_ENV).map(PathBuf::from) else { return };
    let key = SigningKey::from_file(&std::fs::read_to_string(folder.join("key")).unwrap()).unwrap();
    let signature = key.sign(&std::fs::read(folder.join("in")).unwrap());
    std::fs::write(folder.join("out"), data_encoding::BASE64.encode(&signature)).unwrap();
    std::fs::write(folder.join("public"), key.public().to_string()).unwrap();
}

impl SigningFleet {
    /// A signer file for a command that has the key, which is in no file of the operator's any more.
    fn behind_a_command(&self, key: &str) -> String {
        let folder = PathBuf::from(format!("{key}.service"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::rename(key, folder.join("key")).unwrap();
        let test = std::env::current_exe().unwrap();
        let script = format!(
            "cd {folder}; cat > in; {HELPER_ENV}={folder} {test} --exact several_signers_publish::helper_signs \
             >&2 || exit 1; case $MUSTER_SIGNER in sign) cat out ;; *) cat public ;; esac",
            folder = folder.display(),
            test = test.display()
        );
        let signer = format!("{key}.yaml");
        let argv = serde_json::json!(["/bin/sh", "-c", script]);
        std::fs::write(&signer, format!("command: {argv}\n")).unwrap();
        signer
    }
}

/// Runbook "a key in an age file, or behind a command".
#[test]
fn keys_lie_in_age_files_and_behind_commands() {
    let fleet = SigningFleet::new();
    done(fleet.publish_with("one", &[]));
    let (host, _agent) = fleet.joined("web-1");
    host.until_read("/etc/hello", "one web-1\n");
    // The root key behind a command, the release key in an age file.
    let data = |name: &str| fleet.server.dir.join(name).to_str().unwrap().to_owned();
    let root = fleet.file("root.key");
    std::fs::rename(data("root.key"), &root).unwrap();
    let root = fleet.behind_a_command(&root);
    let identity = trust::SealingKey::from_secret(&[3; 32]).unwrap();
    std::fs::write(fleet.file("own.txt"), identity.to_file().as_bytes()).unwrap();
    let (new, signer) = (fleet.file("release-2.key.age"), fleet.file("release-2.yaml"));
    let public = fleet.server.ok(&["key", "new", &new, "--encrypt-for", &identity.public().to_string()]);
    assert!(std::fs::read_to_string(&new).unwrap().starts_with("-----BEGIN AGE ENCRYPTED FILE-----"));
    std::fs::write(&signer, "age: release-2.key.age\nidentity: own.txt\n").unwrap();
    assert_eq!(fleet.server.ok(&["key", "show", &signer]), public);
    fleet.server.ok(&["key", "rotate", "release", "--to", &signer, "--root-key", &root]);
    refused(
        &fleet.publish_with("two", &["--key", &new]),
        "no identity is named that opens it",
        "MUSTER_KEY_IDENTITY",
    );
    done(fleet.publish_with("two", &["--key", &signer]));
    host.until_read("/etc/hello", "two web-1\n");
    done(fleet.server.muster(&["beacon", "--key", &signer]));
    // A token of a root key that no program of ours has seen.
    let enroll = data("enroll.json");
    let token = ["token", "mint", "web-2", "--root-key", &root, "--enroll", &enroll];
    let token = fleet.server.json(&token)["token"].as_str().unwrap().to_owned();
    let late = Host::new(fleet.temp.path(), "web-2", &Prefix::new());
    std::fs::write(late.token_file(), token).unwrap();
    let joined = late.run(&["join", "--token-file", late.token_file().to_str().unwrap()]);
    assert!(
        joined.status.success() || text(&joined.stderr).contains("no allowlist is published"),
        "{joined:?}"
    );
    // A passphrase.
    std::fs::write(fleet.file("passphrase"), "open sesame\n").unwrap();
    let (third, by) = (fleet.file("release-3.key.age"), fleet.file("release-3.yaml"));
    fleet.server.ok(&["key", "new", &third, "--passphrase-file", &fleet.file("passphrase")]);
    std::fs::write(&by, "age: release-3.key.age\npassphraseFile: passphrase\n").unwrap();
    fleet.server.ok(&["key", "rotate", "release", "--to", &by, "--root-key", &root]);
    done(fleet.publish_with("three", &["--key", &by]));
    host.until_read("/etc/hello", "three web-1\n");
    // A command that does not sign changes nothing.
    let broken = fleet.file("broken.yaml");
    let public = fleet.server.ok(&["key", "show", &by]);
    let says = "echo the token is not plugged in >&2; exit 2";
    std::fs::write(&broken, format!("command: [/bin/sh, -c, {says:?}]\npublic: {public}")).unwrap();
    refused(
        &fleet.publish_with("four", &["--key", &broken]),
        "the token is not plugged in",
        "nothing was sent",
    );
    assert_eq!(host.read("/etc/hello"), "three web-1\n");
    std::fs::write(&broken, format!("command: [/bin/echo, hello]\npublic: {public}")).unwrap();
    refused(&fleet.publish_with("four", &["--key", &broken]), "printed no signature", "nothing was sent");
}
