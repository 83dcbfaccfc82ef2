//! OPS-2: what an operator may ask of a host is answered from what is there, within bounds,
//! without the arguments of processes, and never with a file that a link leads away to.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use host::{Host, HostOptions};
use model::{Digest, Timestamp};
use providers::query::{Ask, MAX_ANSWER, MAX_CONTENT, answer};
use serde_json::{Value, json};

fn ask_with(root: &Path, ask: &Ask, allowed: &dyn Fn(&str) -> bool) -> Result<Value, String> {
    let host = Arc::new(Host::open(root, HostOptions::default()).unwrap());
    let answer = answer(&host, ask, "1.2.3", Timestamp(0), allowed)?;
    assert!(answer.to_string().len() <= MAX_ANSWER);
    Ok(answer)
}

fn ask(root: &Path, what: &Ask) -> Value {
    ask_with(root, what, &|_| true).unwrap()
}

fn file(path: &str) -> Ask {
    Ask::File { path: path.into() }
}

fn put(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn row<'a>(answer: &'a Value, list: &str, is: impl Fn(&Value) -> bool) -> &'a Value {
    answer[list].as_array().unwrap().iter().find(|row| is(row)).unwrap()
}

#[test]
fn words_are_read_strictly() {
    assert_eq!(Ask::of("traits", None), Some(Ask::Traits));
    assert_eq!(Ask::of("file", Some("/etc/hosts")), Some(file("/etc/hosts")));
    for (what, path) in [("file", None), ("traits", Some("/x")), ("", None), ("secrets", None)] {
        assert_eq!(Ask::of(what, path), None, "{what}");
    }
}

#[test]
fn the_real_host_answers() {
    let root = Path::new("/");
    let traits = ask(root, &Ask::Traits);
    assert_eq!(traits["traits"]["agent"]["version"], "1.2.3");
    let own = std::process::id();
    let processes = ask(root, &Ask::Processes);
    let me = row(&processes, "processes", |row| row["pid"] == own);
    assert!(me["rssKib"].as_u64().unwrap() > 0 && me["threads"].as_u64().unwrap() > 0);
    assert_eq!(me["exe"].as_str().unwrap(), std::env::current_exe().unwrap().to_str().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listeners = ask(root, &Ask::Listeners);
    for (protocol, port) in
        [("tcp", tcp.local_addr().unwrap().port()), ("udp", udp.local_addr().unwrap().port())]
    {
        let mine = row(&listeners, "listeners", |row| row["port"] == port && row["protocol"] == protocol);
        assert_eq!((mine["address"].as_str(), mine["pid"].as_u64()), (Some("127.0.0.1"), Some(own.into())));
    }
    let disks = ask(root, &Ask::Disks);
    let root_disk = row(&disks, "disks", |row| row["mount"] == "/");
    assert!(root_disk["totalBytes"].as_u64() >= root_disk["freeBytes"].as_u64(), "{root_disk}");
}

#[test]
fn arguments_and_environment_are_never_told() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "proc/stat", "cpu\n");
    put(root, "etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n");
    put(root, "proc/7/stat", "7 (a) (b) S 1 7 7 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 100 0 0");
    put(root, "proc/7/status", "Name:\ta\nUid:\t1000\t1000\t1000\t1000\nVmRSS:\t   2048 kB\n");
    put(root, "proc/7/cmdline", "psql\0password=hunter2\0");
    put(root, "proc/7/environ", "TOKEN=hunter2\0");
    symlink("/usr/bin/psql", root.join("proc/7/exe")).unwrap();
    put(root, "proc/8/stat", "half written");
    let answer = ask(root, &Ask::Processes);
    let wanted = json!({"processes": [{
        "pid": 7, "ppid": 1, "user": "ada", "name": "a) (b", "exe": "/usr/bin/psql", "state": "S",
        "threads": 3, "rssKib": 2048, "cpuMs": 3000,
    }], "leftOut": 0});
    assert_eq!(answer, wanted);
    assert!(!answer.to_string().contains("hunter2"));
}

#[test]
fn too_many_processes_leave_out_the_small_ones() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "proc/stat", "cpu\n");
    let (total, name) = (150u64, "n".repeat(3000));
    for pid in 1..=total {
        // The smallest would fit into what is left.
        let name = if pid == 1 { "n" } else { &name };
        put(
            root,
            &format!("proc/{pid}/stat"),
            format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0"),
        );
        put(root, &format!("proc/{pid}/status"), format!("Uid:\t0\t0\t0\t0\nVmRSS:\t{pid} kB\n"));
    }
    let answer = ask(root, &Ask::Processes);
    let kept = answer["processes"].as_array().unwrap();
    assert_eq!(kept.len() as u64 + answer["leftOut"].as_u64().unwrap(), total);
    assert!(answer["leftOut"].as_u64().unwrap() > 0);
    assert_eq!(kept[0]["rssKib"], total);
    assert!(kept.last().unwrap()["rssKib"].as_u64().unwrap() > answer["leftOut"].as_u64().unwrap());
}

#[test]
fn listeners_are_read_from_the_kernels_tables() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "proc/stat", "cpu\n");
    let head = "  sl  local_address rem_address st tx_queue tr tm->when retrnsmt uid timeout inode\n";
    let line = |local: &str, state: &str, inode: u32| {
        format!(
            "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 1000 0 {inode} 1\n"
        )
    };
    let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    let v6 = format!("{:08X}{:08X}{:08X}{:08X}", 0, 0, 0, u32::from_ne_bytes([0, 0, 0, 1]));
    let tcp = format!(
        "{head}{}{}",
        line(&format!("{loopback}:0050"), "0A", 11),
        line(&format!("{loopback}:1F90"), "01", 12)
    );
    put(root, "proc/net/tcp", tcp);
    put(root, "proc/net/tcp6", format!("{head}{}", line(&format!("{v6}:01BB"), "0A", 13)));
    put(root, "proc/net/udp", format!("{head}{}garbage\n", line("00000000:0035", "07", 14)));
    put(root, "proc/9/comm", "nginx\n");
    fs::create_dir_all(root.join("proc/9/fd")).unwrap();
    symlink("socket:[11]", root.join("proc/9/fd/3")).unwrap();
    let wanted = json!({"leftOut": 0, "listeners": [
        {"protocol": "tcp", "address": "127.0.0.1", "port": 80, "user": "1000", "pid": 9, "process": "nginx"},
        {"protocol": "tcp", "address": "::1", "port": 443, "user": "1000"},
        {"protocol": "udp", "address": "0.0.0.0", "port": 53, "user": "1000"},
    ]});
    assert_eq!(ask(root, &Ask::Listeners), wanted);
}

#[test]
fn a_file_is_shown_with_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "etc/motd", "hello\n");
    fs::set_permissions(root.join("etc/motd"), fs::Permissions::from_mode(0o640)).unwrap();
    let answer = ask(root, &file("/etc/motd"));
    let told = (&answer["text"], &answer["size"], &answer["mode"], &answer["kind"], &answer["realPath"]);
    assert_eq!(told, (&json!("hello\n"), &json!(6), &json!("0640"), &json!("a file"), &Value::Null));
    assert_eq!(answer["sha256"], Digest::of(b"hello\n").to_string());
    assert_eq!(ask(root, &file("/etc/none")), json!({"path": "/etc/none", "exists": false}));
    assert_eq!(ask(root, &file("/etc/motd/x"))["exists"], false);
    let directory = ask(root, &file("/etc"));
    assert_eq!((&directory["kind"], &directory["text"]), (&json!("a directory"), &Value::Null));
    put(root, "bin", b"\x00\xff");
    assert_eq!(ask(root, &file("/bin"))["base64"], "AP8=");
    put(root, "escape", "\u{1b}[2J");
    assert!(ask(root, &file("/escape"))["base64"].is_string());
    assert!(ask_with(root, &file("relative"), &|_| true).is_err());
    assert!(ask_with(root, &file("/etc/../etc/motd"), &|_| true).is_err());
}

#[test]
fn a_large_file_is_cut_and_hashed_whole() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let text = "\u{20ac}".repeat(MAX_CONTENT);
    put(root, "large", &text);
    let answer = ask(root, &file("/large"));
    assert_eq!((&answer["truncated"], &answer["size"]), (&json!(true), &json!(text.len())));
    assert_eq!(answer["sha256"], Digest::of(text.as_bytes()).to_string());
    let shown = answer["text"].as_str().unwrap();
    assert!(text.starts_with(shown) && shown.len() > MAX_CONTENT - 3);
    put(root, "zeros", vec![0; 2 * MAX_CONTENT]);
    assert!(ask(root, &file("/zeros"))["base64"].as_str().unwrap().len() >= MAX_CONTENT);
}

#[test]
fn a_link_is_judged_by_where_it_leads() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "srv/app/config", "public");
    put(root, "etc/shadow", "secret");
    symlink("/etc/shadow", root.join("srv/app/link")).unwrap();
    symlink("/etc", root.join("srv/app/etc")).unwrap();
    symlink("config", root.join("srv/app/current")).unwrap();
    let allowed = |path: &str| path.starts_with("/srv/app/");
    let shown = |path: &str| ask_with(root, &file(path), &allowed);
    assert_eq!(shown("/srv/app/config").unwrap()["text"], "public");
    let current = shown("/srv/app/current").unwrap();
    assert_eq!((&current["text"], &current["realPath"]), (&json!("public"), &json!("/srv/app/config")));
    for away in ["/srv/app/link", "/srv/app/etc/shadow", "/srv/app/etc"] {
        let why = shown(away).unwrap_err();
        assert!(why.contains("no release delegates") && !why.contains("shadow/"), "{why}");
    }
    let why = shown("/srv/app/link").unwrap_err();
    assert!(!why.contains("/etc"), "where it leads is not told: {why}");
    // What cannot be read at once is named, not waited for.
    let status = std::process::Command::new("mkfifo").arg(root.join("srv/app/pipe")).status().unwrap();
    assert!(status.success());
    assert_eq!(shown("/srv/app/pipe").unwrap()["kind"], "a FIFO");
}
