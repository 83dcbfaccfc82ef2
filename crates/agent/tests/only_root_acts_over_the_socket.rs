//! CNV-6: root and the agent's own user do everything over the socket, others who may connect only
//! read, and see no content; requests and connections are bounded; a live agent's socket stays.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;

use agent::local::server::{BindSocketError, LocalSocket, MAX_BODY, MAX_CONNECTIONS};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{file, module};
use test_support::wait::until_blocking as until;

/// Nobody's user and group.
const OTHER: u32 = 65_534;

fn host() -> LocalHost {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", "canary-content\n")];
    LocalHost::new(vec![base])
}

/// One exchange over the socket, byte by byte.
fn exchange(socket: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    // The agent may answer, and hang up, before all was sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn another_user_only_reads_and_sees_no_content() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let mut host = host();
    host.start();
    let own = host.json(&["status"]).to_string();
    assert!(own.contains("canary-content"), "the agent's user sees what was changed: {own}");
    for (path, mode) in [(host.dir.clone(), 0o755), (host.state(), 0o755), (host.socket(), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // A copy that the other user may run, wherever this workspace lies.
    let copy = host.dir.join("muster-agent");
    std::fs::copy(test_support::children::program("muster-agent"), &copy).unwrap();
    let as_other = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&copy);
        command.arg("--state").arg(host.state()).args(arguments).uid(OTHER).gid(OTHER).current_dir("/");
        printed(&command.output().unwrap())
    };
    // 4 once the first contact came to nothing.
    let status = until("the control plane is not reached", || {
        let (code, status) = as_other(&["status", "--json"]);
        (code == Some(4)).then_some(status)
    });
    assert!(status.contains("base/file:/etc/motd") && !status.contains("canary"), "{status}");
    for verb in [
        &["apply"][..],
        &["plan"],
        &["pause", "--reason", "x"],
        &["resume"],
        &["why", "/etc/motd"],
        &["file", "versions"],
        &["file", "diff", "/etc/motd"],
        &["file", "restore", "/etc/motd", "1"],
        &["quarantine", "lift", "42"],
    ] {
        let (code, refused) = as_other(verb);
        assert_eq!(code, Some(5), "{verb:?}: {refused}");
        assert!(refused.contains("only root") && refused.contains("sudo"), "{verb:?}: {refused}");
    }
    assert!(host.json(&["status"])["paused"].is_null());
}

#[test]
fn what_is_sent_is_bounded() {
    let mut host = host();
    host.start();
    let mode = std::fs::metadata(host.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let post = |path: &str, length: usize| {
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        let mut request = head.into_bytes();
        request.resize(request.len() + length, b'x');
        exchange(&host.socket(), &request)
    };
    let large = post("/v1/local/pause", MAX_BODY + 1);
    assert!(large.starts_with("HTTP/1.1 400") && large.contains("bad-request"), "{large}");
    let unread = post("/v1/local/pause", 10);
    assert!(unread.starts_with("HTTP/1.1 400"), "{unread}");
    let none = post("/v1/local/nothing", 0);
    assert!(none.starts_with("HTTP/1.1 404") && none.contains("no-route"), "{none}");
    // As many as there may be, that say nothing; one more is told so.
    let silent: Vec<UnixStream> =
        (0..MAX_CONNECTIONS).map(|_| UnixStream::connect(host.socket()).unwrap()).collect();
    let busy = exchange(&host.socket(), b"");
    assert!(busy.starts_with("HTTP/1.1 503") && busy.contains("busy"), "{busy}");
    drop(silent);
    test_support::wait::until_blocking("there is room again", || {
        host.json(&["status"])["daemon"].is_object().then_some(())
    });
}

#[tokio::test]
async fn a_live_socket_stays_and_a_dead_one_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than an address of a socket may be.
    let deep = dir.path().join("d".repeat(120));
    for path in [dir.path().join("agent.sock"), deep.join("agent.sock")] {
        let first = LocalSocket::bind(&path).unwrap();
        assert!(matches!(LocalSocket::bind(&path), Err(BindSocketError::Live(live)) if live == path));
        assert!(agent::local::server::connect(&path).is_ok(), "the live one was disturbed");
        drop(first);
        assert!(!path.exists(), "an agent that ends takes its socket along");
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("dead.sock")).unwrap());
        std::fs::rename(dir.path().join("dead.sock"), &path).unwrap();
        let _next = LocalSocket::bind(&path).unwrap();
        assert!(agent::local::server::connect(&path).is_ok());
    }
    let file = dir.path().join("a file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(LocalSocket::bind(&file), Err(BindSocketError::NoSocket(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}
