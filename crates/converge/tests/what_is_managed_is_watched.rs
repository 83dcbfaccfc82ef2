//! CNV-7: what to watch of a host follows from its set: each resource by the paths, units, parameters and
//! databases that its state is in, with every directory above; commands, handlers and what is not wanted
//! here by nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use converge::{DirectoryInterest, HostLayout, ResourceId, WatchPlan};
use serde_json::json;

use crate::common::{Set, set};

fn plan(set: &Set) -> WatchPlan {
    let home = |user: &str| (user == "kay").then(|| "/home/kay".to_owned());
    let link_folders = vec!["/etc/systemd/system/multi-user.target.wants".to_owned()];
    let unpacked = |path: &str| match path {
        "/opt/tool" => vec!["bin".to_owned(), "bin/tool".to_owned()],
        _ => Vec::new(),
    };
    WatchPlan::of(&set.bind(), &HostLayout { home: &home, link_folders, unpacked: &unpacked })
}

/// The names of the resources that a look finds.
fn names(look: impl FnOnce(&mut BTreeSet<ResourceId>)) -> Vec<String> {
    let mut found = BTreeSet::new();
    look(&mut found);
    found.iter().map(|id| id.as_str().trim_start_matches("m/").to_owned()).collect()
}

fn at(plan: &WatchPlan, directory: &str, name: &str) -> Vec<String> {
    names(|found| plan.of_entry(directory, name, found))
}

#[test]
fn what_was_unpacked_is_watched_and_its_neighbours_are_not() {
    let archive = |name: &str| {
        json!({"type": "archive", "name": name,
            "attributes": {"url": "http://a.test/tool.tar.gz", "sha256": "0".repeat(64)}})
    };
    let plan = plan(&set(json!([{"name": "m", "resources": [archive("/opt/tool"), archive("/opt/fresh")]}])));
    assert_eq!(at(&plan, "/opt/tool/bin", "tool"), ["archive:/opt/tool"]);
    assert_eq!(at(&plan, "/opt", "tool"), ["archive:/opt/tool"]);
    assert!(at(&plan, "/opt/tool/bin", "of-others").is_empty());
    assert_eq!(at(&plan, "/opt", "fresh"), ["archive:/opt/fresh"]);
    assert_eq!(plan.interest("/opt/fresh"), None);
}

#[test]
fn each_resource_is_found_by_what_its_state_is_in() {
    let plan = plan(&set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/etc/app/conf", "attributes": {"content": "x"}},
        {"type": "line", "name": "/etc/app/conf", "id": "l", "attributes": {"path": "/etc/hosts.allow", "line": "x"}},
        {"type": "package", "name": "nginx", "attributes": {}},
        {"type": "service", "name": "nginx", "attributes": {"state": "running"}},
        {"type": "user", "name": "kay", "attributes": {"shell": "/bin/bash"}},
        {"type": "sysctl", "name": "vm.swappiness", "attributes": {"value": "10"}},
        {"type": "mount", "name": "/srv", "attributes": {"device": "tmpfs", "fstype": "tmpfs"}},
        {"type": "hostname", "name": "web-1", "attributes": {}},
        {"type": "exec", "name": "true", "attributes": {"command": ["true"], "always": true}},
        {"type": "file", "name": "/etc/not-here", "when": "false", "attributes": {"content": "x"}},
    ], "handlers": [{"type": "service", "name": "nginx", "id": "h", "attributes": {}}]}])));
    assert_eq!(at(&plan, "/etc/app", "conf"), ["file:/etc/app/conf"]);
    assert_eq!(at(&plan, "/etc/app", "other"), [] as [&str; 0]);
    assert_eq!(at(&plan, "/etc", "not-here"), [] as [&str; 0]);
    assert_eq!(at(&plan, "/var/lib/dpkg", "status"), ["package:nginx"]);
    assert_eq!(at(&plan, "/etc", "passwd"), ["user:kay"]);
    assert_eq!(at(&plan, "/etc", "fstab"), ["mount:/srv"]);
    assert_eq!(at(&plan, "/etc", "hostname"), ["hostname:web-1"]);
    assert_eq!(at(&plan, "/etc/systemd/system", "nginx.service"), ["service:nginx"], "a mask lies there");
    assert_eq!(names(|found| plan.of_unit("nginx.service", found)), ["service:nginx"]);
    assert_eq!(names(|found| plan.of_units(found)), ["service:nginx"]);
    assert_eq!(names(|found| plan.of_parameter("/proc/sys/vm/swappiness", found)), ["sysctl:vm.swappiness"]);
    assert_eq!(names(|found| plan.of_mounts(found)), ["mount:/srv"]);
    assert_eq!(names(|found| plan.of_name(found)), ["hostname:web-1"]);
    assert!(plan.resources().all(|id| !id.as_str().contains("exec")), "{plan:?}");
}

#[test]
fn the_files_of_every_type_are_found() {
    let unit = "[Service]\nExecStart=/bin/true\n";
    let plan = plan(&set(json!([{"name": "m", "files": {
        "files/site/a/b": {"digest": "00".repeat(32), "size": 1},
    }, "resources": [
        {"type": "directory", "name": "/srv/site", "attributes": {"source": "site", "purge": true}},
        {"type": "directory", "name": "/srv/kept", "attributes": {"source": "site"}},
        {"type": "symlink", "name": "/srv/link", "attributes": {"target": "site"}},
        {"type": "host", "name": "db", "attributes": {"address": "192.0.2.7"}},
        {"type": "repository", "name": "deb", "attributes": {
            "uris": "http://deb.test/", "suites": "s", "components": "c", "trusted": true}},
        {"type": "group", "name": "ops", "attributes": {}},
        {"type": "sudo", "name": "ops", "attributes": {"content": "%ops ALL=(ALL) ALL"}},
        {"type": "service", "name": "app", "attributes": {"unit": unit, "drop_in": {"limits": "[Service]\nNice=5\n"}}},
        {"type": "cron", "name": "tidy", "attributes": {"command": "true", "schedule": "@daily"}},
        {"type": "block", "name": "b", "attributes": {"path": "/etc/block", "content": "x"}},
        {"type": "ini", "name": "i", "attributes": {"path": "/etc/ini", "key": "k", "value": "v"}},
        {"type": "json", "name": "j", "attributes": {"path": "/etc/json", "pointer": "/k", "value": 1}},
        {"type": "sysctl", "name": "vm.swappiness", "attributes": {"value": "10", "runtime": false}},
    ]}, {"name": "off", "when": "false", "resources": [
        {"type": "file", "name": "/etc/off", "attributes": {"content": "x"}},
    ]}])));
    for (path, resource) in [
        ("/srv/site", "directory:/srv/site"),
        ("/srv/site/a", "directory:/srv/site"),
        ("/srv/site/a/b", "directory:/srv/site"),
        ("/srv/site/a/stranger", "directory:/srv/site"),
        ("/srv/site/stranger", "directory:/srv/site"),
        ("/srv/kept/a/b", "directory:/srv/kept"),
        ("/srv/kept/a/stranger", ""),
        ("/srv/link", "symlink:/srv/link"),
        ("/etc/hosts", "host:db"),
        ("/etc/apt/sources.list.d/deb.sources", "repository:deb"),
        ("/etc/apt/keyrings/deb.asc", "repository:deb"),
        ("/etc/apt/keyrings/deb.gpg", "repository:deb"),
        ("/etc/apt/preferences.d/deb.pref", "repository:deb"),
        ("/etc/group", "group:ops"),
        ("/etc/sudoers.d/ops", "sudo:ops"),
        ("/etc/systemd/system/app.service", "service:app"),
        ("/etc/systemd/system/app.service.d/by-hand.conf", "service:app"),
        ("/etc/cron.d/tidy", "cron:tidy"),
        ("/etc/block", "block:b"),
        ("/etc/ini", "ini:i"),
        ("/etc/json", "json:j"),
        ("/etc/sysctl.d/60-muster.conf", "sysctl:vm.swappiness"),
        ("/etc/off", ""),
    ] {
        let (directory, name) = path.rsplit_once('/').unwrap();
        let expected: Vec<&str> = [resource].into_iter().filter(|name| !name.is_empty()).collect();
        assert_eq!(at(&plan, directory, name), expected, "{path}");
    }
    assert_eq!(plan.parameters().count(), 0, "it is not set at once");
    assert_eq!(plan.units().collect::<Vec<_>>(), ["app.service"]);
    assert!(!plan.watches_name());
}

#[test]
fn a_directory_that_is_managed_is_of_its_tree() {
    let plan = plan(&set(json!([{"name": "m", "resources": [
        {"type": "directory", "name": "/srv/a"},
        {"type": "file", "name": "/srv/a/b", "attributes": {"content": "x"}},
        {"type": "mount", "name": "/mnt/a", "attributes": {"device": "tmpfs", "fstype": "tmpfs"}},
        {"type": "hostname", "name": "web-1"},
        {"type": "sysctl", "name": "vm.swappiness", "attributes": {"value": "10"}},
    ]}])));
    assert_eq!(names(|found| plan.of_tree("/srv/a", found)), ["directory:/srv/a", "file:/srv/a/b"]);
    let interest = |path: &str| plan.interest(path);
    let (contents, entries) = (Some(DirectoryInterest::Contents), Some(DirectoryInterest::Entries));
    assert_eq!([interest("/srv/a"), interest("/srv"), interest("")], [contents, contents, entries]);
    assert_eq!(interest("/srv/b"), None);
    assert!(plan.watches_name());
    assert_eq!(plan.parameters().collect::<Vec<_>>(), ["/proc/sys/vm/swappiness"]);
}

#[test]
fn links_that_start_a_unit_are_watched_where_that_is_declared() {
    let plan = plan(&set(json!([{"name": "m", "resources": [
        {"type": "service", "name": "nginx", "attributes": {"enabled": true}},
        {"type": "service", "name": "cron", "attributes": {"state": "running"}},
    ]}])));
    let links = "/etc/systemd/system/multi-user.target.wants";
    assert_eq!(at(&plan, links, "nginx.service"), ["service:nginx"]);
    assert_eq!(at(&plan, links, "cron.service"), [] as [&str; 0], "whether it is enabled is not declared");
}

#[test]
fn every_directory_above_is_watched_for_its_entries() {
    let plan = plan(&set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/srv/a/b/c", "attributes": {"content": "x"}},
        {"type": "file", "name": "/srv/a/d", "attributes": {"content": "x"}},
        {"type": "file", "name": "/srv/ab", "attributes": {"content": "x"}},
    ]}])));
    let watched: Vec<_> = plan.directories().collect();
    let (all, entries) = (DirectoryInterest::Contents, DirectoryInterest::Entries);
    assert_eq!(watched, [("", entries), ("/srv", all), ("/srv/a", all), ("/srv/a/b", all)]);
    let tree = |path: &str| names(|found| plan.of_tree(path, found));
    assert_eq!(tree("/srv/a"), ["file:/srv/a/b/c", "file:/srv/a/d"], "and not what only begins alike");
    assert_eq!(tree("/srv/a/b"), ["file:/srv/a/b/c"]);
    assert_eq!(plan.tree("/srv/a").collect::<Vec<_>>(), ["/srv/a", "/srv/a/b"]);
    let of = plan.directories_of(&ResourceId::new("m", "file", "/srv/a/d"));
    assert_eq!(of, [("/srv/a".to_owned(), vec!["d".to_owned()])]);
}

#[test]
fn keys_are_found_in_the_home_of_their_user() {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl amy@laptop";
    let plan = plan(&set(json!([{"name": "m", "resources": [
        {"type": "ssh_key", "name": key, "attributes": {"key": key, "user": "kay"}},
    ]}])));
    let found = at(&plan, "/home/kay/.ssh", "authorized_keys");
    assert_eq!(found.len(), 1, "{plan:?}");
    assert_eq!(at(&plan, "/home/kay", ".ssh"), found, "who owns the directory counts too");
    assert_eq!(at(&plan, "/etc", "passwd"), found, "another home is another file");
}
