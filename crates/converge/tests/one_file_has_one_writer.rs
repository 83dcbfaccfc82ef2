//! CFG-1, CFG-2: two resources whose paths are known on the node alone and that write one file are refused
//! there, naming both; two that are alike, and one that is not wanted, are not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use crate::common::set;

fn errors(resources: Value) -> Vec<String> {
    let set = set(json!([{"name": "m", "resources": resources}]));
    let desired = set.bind();
    let errors =
        desired.resources().filter_map(|resource| resource.spec.as_ref().err().map(ToString::to_string));
    errors.filter(|error| error.contains("declares")).collect()
}

fn file(name: &str, content: &str) -> Value {
    json!({"type": "file", "name": name, "attributes": {"content": content}})
}

fn line(path: &str) -> Value {
    json!({"type": "line", "name": "a line", "attributes": {"path": path, "line": "x"}})
}

/// A path that only the node knows.
const OPEN: &str = "/srv/${{ traits.os.family }}";

#[test]
fn two_writers_of_one_file_are_refused_where_they_meet() {
    let directory = json!({"type": "directory", "name": "/srv/debian", "attributes": {}});
    assert_eq!(
        errors(json!([file(OPEN, "a"), directory.clone()])),
        ["m/directory:/srv/debian writes /srv/debian, which m/file:/srv/debian declares already"]
    );
    assert_eq!(
        errors(json!([line(OPEN), file("/srv/debian", "a")])),
        ["a line in /srv/debian, which m/file:/srv/debian declares whole"]
    );
    assert!(errors(json!([line(OPEN), file("/srv/other", "a")])).is_empty());
    let owned = json!({"type": "file", "name": "/srv/debian", "attributes": {"mode": "0600"}});
    assert!(errors(json!([line(OPEN), owned])).is_empty(), "its owner alone is declared");
}

#[test]
fn a_repository_and_the_host_s_name_have_their_files_to_themselves() {
    let repository = json!({"type": "repository", "name": "${{ traits.os.family }}", "attributes": {
        "uris": "http://deb.test/", "suites": "s", "components": "c", "trusted": true, "priority": 5}});
    let hostname = json!({"type": "hostname", "name": "web-${{ traits.os.family }}"});
    let folder = "/etc/apt/sources.list.d";
    assert_eq!(
        errors(json!([
            file(&format!("{folder}/${{{{ traits.os.family }}}}.sources"), "a"),
            repository.clone()
        ])),
        [format!(
            "m/repository:debian writes {folder}/debian.sources, which m/file:{folder}/debian.sources declares \
             already"
        )]
    );
    assert_eq!(
        errors(json!([repository, line("/etc/apt/preferences.d/debian.pref")])),
        ["a line in /etc/apt/preferences.d/debian.pref, which m/repository:debian declares whole"]
    );
    assert_eq!(
        errors(json!([hostname, file("/etc/hostname", "a")])),
        ["m/file:/etc/hostname writes /etc/hostname, which m/hostname:web-debian declares already"]
    );
}

#[test]
fn an_entry_and_a_key_are_parts_of_the_file_that_they_name() {
    let host = json!({"type": "host", "name": "db", "attributes": {"address": "192.0.2.1", "path": OPEN}});
    assert_eq!(
        errors(json!([host.clone(), file("/srv/debian", "a")])),
        ["an entry in /srv/debian, which m/file:/srv/debian declares whole"]
    );
    assert!(errors(json!([host, file("/etc/hosts", "a")])).is_empty(), "it is in another file");
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    let key =
        json!({"type": "ssh_key", "name": "k", "attributes": {"key": key, "user": "kay", "path": OPEN}});
    assert_eq!(
        errors(json!([key, file("/srv/debian", "a")])),
        ["a key in /srv/debian, which m/file:/srv/debian declares whole"]
    );
}

#[test]
fn what_is_not_wanted_clashes_with_nothing() {
    let mut other = json!({"type": "directory", "name": OPEN, "attributes": {}});
    other["when"] = json!("traits.os.family == \"suse\"");
    assert!(errors(json!([file("/srv/debian", "a"), other])).is_empty());
}
