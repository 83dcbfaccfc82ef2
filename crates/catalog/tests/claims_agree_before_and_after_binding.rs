//! E084: what a resource claims of the host's files is the same before its attributes are evaluated, where
//! `muster check` looks, and after it is bound, where the node does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use catalog::module::FileRef;
use catalog::schema::{BindContext, bind};
use catalog::types::{PathClaim, Spec, TYPES, declared_claims};
use lang::Value;
use model::Digest;

const FILE: &str = "file";

fn attributes(json: &str) -> BTreeMap<String, Value> {
    serde_json::from_str(json).unwrap()
}

fn bound(kind: &str, name: &str, json: &str) -> Spec {
    let file = FileRef { digest: Digest::of(b"x"), size: 1, executable: true };
    let files = BTreeMap::from([("files/a.txt".into(), file), ("executors/h.sh".into(), file)]);
    let context = BindContext { files: &files, rendered: Some("rendered".into()) };
    bind(kind, name, &attributes(json), &context).unwrap_or_else(|why| panic!("{kind} {name}: {why}"))
}

fn whole(paths: &[&str]) -> Vec<PathClaim> {
    paths.iter().map(|path| PathClaim::Whole((*path).to_owned())).collect()
}

const NIXOS: &str = r#"{"closure": "/nix/store/0c6kzph7l0dcbfmjap64f0czdafn3b7x-nixos-system-web-1-25.11",
    "cache_keys": ["cache.example.com-1:7UCCrstCuunXZ82WXD7dtbk0VWFiIz51xYBhuszbLcw="]}"#;

fn below(paths: &[&str]) -> Vec<PathClaim> {
    let mut claims: Vec<PathClaim> = paths.iter().map(|path| PathClaim::Below((*path).to_owned())).collect();
    claims.sort();
    claims
}

fn part(path: &str, what: &'static str) -> Vec<PathClaim> {
    vec![PathClaim::Part { path: path.to_owned(), what }]
}

#[test]
fn each_type_claims_the_same_files() {
    let digest = Digest::of(b"x").to_string();
    let download = format!(r#"{{"url": "https://x.test/a.tar.gz", "sha256": "{digest}"}}"#);
    let apt = r#""uris": "http://deb.test/", "suites": "s", "components": "c", "trusted": true"#;
    let repository = format!("{{{apt}}}");
    let pinned = format!(r#"{{{apt}, "priority": 5}}"#);
    let files = [
        "/etc/apt/keyrings/x.asc",
        "/etc/apt/keyrings/x.gpg",
        "/etc/apt/preferences.d/x.pref",
        "/etc/apt/sources.list.d/x.sources",
    ];
    let units = ["/etc/systemd/system/x.service", "/etc/systemd/system/x.timer"];
    let table: &[(&str, &str, &str, Vec<PathClaim>)] = &[
        (FILE, "/a", r#"{"content": "x"}"#, whole(&["/a"])),
        (FILE, "/a", r#"{"state": "absent"}"#, whole(&["/a"])),
        (FILE, "/a", r#"{"mode": "0600"}"#, vec![]),
        ("directory", "/a", "{}", whole(&["/a"])),
        ("directory", "/a", r#"{"state": "absent", "recurse": true}"#, whole(&["/a"])),
        ("symlink", "/a", r#"{"target": "/b"}"#, whole(&["/a"])),
        ("download", "/a", &download, whole(&["/a"])),
        ("archive", "/a", &download, whole(&["/a"])),
        ("image", "/srv/a", &download, below(&["/srv/a", "/srv/.a.generations"])),
        ("switch", "x", r#"{"to": "2", "run": ["true"], "back": ["true"]}"#, vec![]),
        ("nixos", "system", NIXOS, vec![]),
        ("line", "l", r#"{"path": "/a", "line": "x"}"#, part("/a", "a line")),
        ("block", "b", r#"{"path": "/a", "content": "x"}"#, part("/a", "a block")),
        ("ini", "i", r#"{"path": "/a", "section": "s", "key": "k", "value": "v"}"#, part("/a", "a key")),
        ("json", "j", r#"{"path": "/a", "pointer": "/k", "value": "v"}"#, part("/a", "a value")),
        ("host", "db", r#"{"address": "192.0.2.1"}"#, part("/etc/hosts", "an entry")),
        ("host", "db", r#"{"address": "192.0.2.1", "path": "/a"}"#, part("/a", "an entry")),
        ("repository", "x", &repository, whole(&files)),
        ("repository", "x", &pinned, whole(&files)),
        ("package", "nginx", "{}", vec![]),
        ("user", "x", "{}", vec![]),
        ("group", "x", "{}", vec![]),
        (
            "ssh_key",
            "k",
            r#"{"user": "x", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", "path": "/a"}"#,
            part("/a", "a key"),
        ),
        ("service", "x", r#"{"state": "running"}"#, vec![]),
        ("service", "x", r#"{"unit": "[Service]\n"}"#, whole(&units[..1])),
        ("timer", "x", r#"{"command": "true", "on_calendar": "daily"}"#, whole(&units)),
        ("cron", "x", r#"{"command": "true", "minute": "30"}"#, whole(&["/etc/cron.d/x"])),
        ("sudo", "x", r#"{"groups": ["adm"], "commands": ["/usr/bin/id"]}"#, whole(&["/etc/sudoers.d/x"])),
        ("sysctl", "vm.swappiness", r#"{"value": "1"}"#, part("/etc/sysctl.d/60-muster.conf", "a parameter")),
        ("sysctl", "vm.swappiness", r#"{"value": "1", "path": "/a"}"#, part("/a", "a parameter")),
        ("mount", "/srv", r#"{"device": "tmpfs", "fstype": "tmpfs"}"#, part("/etc/fstab", "an entry")),
        ("hostname", "x", "{}", whole(&["/etc/hostname"])),
        ("exec", "x", r#"{"command": ["true"], "creates": "/a"}"#, vec![]),
        ("shell", "x", r#"{"command": "true", "creates": "/a"}"#, vec![]),
        ("custom", "x", r#"{"script": "executors/h.sh"}"#, vec![]),
    ];
    for (kind, name, json, claims) in table {
        let mut declared = declared_claims(kind, Some(name), &attributes(json));
        let mut bound = bound(kind, name, json).path_claims();
        declared.sort();
        bound.sort();
        assert_eq!((&declared, &bound), (claims, claims), "{kind} {json}");
    }
    let missing: Vec<&str> =
        TYPES.iter().map(|known| known.name).filter(|name| table.iter().all(|row| row.0 != *name)).collect();
    assert!(missing.is_empty(), "what do these claim? {missing:?}");
}
