//! IDN-1: the real programs with a host whose key is ECDSA P-256, its own or its SSH host key: it
//! joins, checks in, adopts and converges.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use test_support::programs::{Host, Prefix, Server, text, write, write_repo};
use test_support::wait::until_blocking as until;
use trust::{KeyAlgorithm, SigningKey};

/// Written by `ssh-keygen -t ecdsa -b 256 -N ''`; used nowhere else.
const SSH_KEY: &str = include_str!("keys/ssh_host_ecdsa_key");

fn private(path: &Path, content: &str) {
    write(path, content);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn its_own_key_and_its_ssh_host_key() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let _control = server.start();
    write_repo(&repo, "hello");
    server.publish(&repo);

    let own = Host::new(dir, "web-1", &Prefix::new());
    let key = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[5; 32]).unwrap();
    private(&own.dir.join("state/identity.key"), &key.to_file());
    std::fs::set_permissions(own.dir.join("state"), std::fs::Permissions::from_mode(0o700)).unwrap();
    server.token("web-1", &own.token_file());
    own.join();
    let _own = own.start();
    own.until_read("etc/hello", "hello web-1\n");
    server.until_state("web-1", "converged");
    assert_eq!(server.node("web-1")["fingerprint"], key.public().fingerprint());
    until("what it has seen is signed and kept", || (server.node("web-1")["seen"]["seq"] == 1).then_some(()));

    let ssh = Host::new(dir, "web-2", &Prefix::new());
    private(&ssh.path("etc/ssh/ssh_host_ecdsa_key"), SSH_KEY);
    let printed = ssh.run(&["fingerprint", "--ssh-host-ecdsa-key"]);
    let fingerprint = text(&printed.stdout).trim().to_owned();
    let data = server.dir.to_str().unwrap();
    let mint =
        ["token", "mint", "web-2", "--data", data, "--ssh-host-ecdsa-key", "--fingerprint", &fingerprint];
    write(&ssh.token_file(), server.json(&mint)["token"].as_str().unwrap());
    ssh.join();
    let _ssh = ssh.start();
    ssh.until_read("etc/hello", "hello web-2\n");
    assert_eq!(server.node("web-2")["fingerprint"], fingerprint);
}
