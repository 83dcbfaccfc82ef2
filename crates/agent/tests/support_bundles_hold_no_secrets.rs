//! SEC-3: a support bundle holds what helps, and no key, no token, no parameter and no content: there
//! is a canary in each of them, and the unpacked bundle is searched for it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Command;

use test_support::agent_local::LocalHost;
use test_support::agent_pair::files;
use test_support::agent_state::{file, module, resource};

const CANARY: &str = "canary";

fn host() -> LocalHost {
    let mut base = module("base");
    let mut secret = file("/etc/secret", "canary-in-a-sensitive-file\n");
    secret.sensitive = true;
    let command = vec!["sh", "-c", "echo canary-in-output; exit 1"];
    let mut told = resource("exec", "told", &[("command", command.into())]);
    told.sensitive = true;
    let url = vec!["sh", "-c", "echo http://u:canary-password@proxy/ muster1.canary.token; exit 1"];
    let open = resource("exec", "open", &[("command", url.into())]);
    base.resources = vec![secret, file("/etc/plain", "canary-in-a-plain-file\n"), told, open];
    LocalHost::new(vec![base])
}

fn unpacked(host: &LocalHost, name: &str) -> String {
    let archive = host.dir.join(name);
    let output = host
        .command(&["bundle", "--output", archive.to_str().unwrap()])
        .env("MUSTER_TOKEN", "muster1.canary-in-the-environment")
        .env("https_proxy", "http://user:canary-proxy@127.0.0.1:9")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&archive).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let into = host.dir.join(format!("{name}.d"));
    std::fs::create_dir(&into).unwrap();
    // The tar of the host reads what we wrote.
    let tar = Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(&into).output().unwrap();
    assert!(tar.status.success(), "{tar:?}");
    let found = files(&into);
    assert!(found.len() >= 10, "{found:?}");
    found
        .iter()
        .map(|path| format!("== {}\n{}\n", shown(path), std::fs::read_to_string(path).unwrap()))
        .collect()
}

fn shown(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn canaries_are_in_no_bundle() {
    let mut host = host();
    host.start();
    let key = std::fs::read_to_string(host.state().join("identity.key")).unwrap();
    let key = key.trim().rsplit(':').next().unwrap().to_owned();
    // What somebody may have left in the state directory.
    std::fs::write(host.state().join("token"), "muster1.canary-in-a-token-file").unwrap();
    for name in ["with.tar.gz", "without.tar.gz"] {
        let text = unpacked(&host, name);
        for (number, line) in text.lines().enumerate() {
            assert!(!line.contains(CANARY), "line {number} of {name}: {line}");
        }
        assert!(!text.contains(&key), "the machine's key is in {name}");
        for helps in ["== doctor.txt", "== status.json", "base/exec:open", "exited with 1", "== journal.txt"]
        {
            assert!(text.contains(helps), "{name} lacks {helps}:\n{text}");
        }
        host.kill();
    }
    let again = host.agent(&["bundle", "--output", host.dir.join("with.tar.gz").to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1), "what is there is not written over");
}
