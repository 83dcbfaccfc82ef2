//! EXE-1, CNV-1: what cannot be done on a host as it is is told with its cause and a way out, harms
//! nothing else, and is done by itself once the host is as it has to be.

use serde_json::{Value, json};
use test_support::booted::{BootedHost, MINUTE, TestPackage, Testbed};

use crate::held::{HeldAgent, changed, item};
use model::Action;

/// Asserts that a resource failed, and that its cause has all of these words.
#[track_caller]
fn failed(report: &model::RunReport, label: &str, words: &[&str]) {
    let (action, reason) = item(report, label);
    assert_eq!(action, Action::Failed, "{label}: {:#?}", report.items);
    for word in words {
        assert!(reason.contains(word), "{label} does not say {word:?}: {reason}");
    }
}

fn file(path: &str) -> Value {
    json!({"type": "file", "name": path, "attributes": {"content": "x\n"}})
}

/// Lets the agent see a file system that it can write at these paths alone; systemd keeps files of the
/// real root open, so that cannot be mounted anew.
fn make_read_only(host: &BootedHost, writable: Option<&str>) {
    const ITSELF: &str = "/usr/local/bin/agent-itself";
    const AGENT: &str = "/usr/local/bin/muster-agent";
    host.sh(&format!("[ -e {ITSELF} ] || mv {AGENT} {ITSELF}"));
    let run = match writable {
        Some(paths) => format!(
            "systemd-run --quiet --pipe --wait --collect -p ReadOnlyPaths=/ -p 'ReadWritePaths={paths}' {ITSELF}"
        ),
        None => ITSELF.to_owned(),
    };
    host.write(AGENT, format!("#!/bin/sh\nexec {run} \"$@\"\n"), 0o755);
}

#[test]
fn a_root_that_cannot_be_written() {
    let Some(testbed) = Testbed::open() else { return };
    testbed.publish_packages(&[TestPackage::new("shop", "1.0").file("/usr/share/shop", "x")]);
    let host = testbed.boot("web-1");
    host.ok(["apt-get", "update"]);
    let mut agent = HeldAgent::install(&host);
    agent.holds(json!({"name": "app", "resources": [
        file("/etc/app.conf"),
        {"type": "directory", "name": "/srv/app", "attributes": {}},
        {"type": "symlink", "name": "/etc/app.link", "attributes": {"target": "/srv/app"}},
        {"type": "line", "name": "a", "attributes": {"path": "/etc/hosts", "line": "192.0.2.1 a"}},
        {"type": "ini", "name": "b", "attributes": {"path": "/etc/app.ini", "key": "b", "value": "1", "create": true}},
        {"type": "host", "name": "db", "attributes": {"address": "192.0.2.2"}},
        {"type": "user", "name": "deploy", "attributes": {}},
        {"type": "group", "name": "ops", "attributes": {}},
        {"type": "package", "name": "shop", "attributes": {}},
        {"type": "cron", "name": "tidy", "attributes": {"minute": "1", "command": "true"}},
        file("/var/lib/app.state"),
    ]}));
    let passwd = host.read("/etc/passwd").unwrap();
    // As on a machine whose /var is a file system of its own.
    make_read_only(&host, Some("/var /run /tmp"));
    let report = agent.apply();
    for label in [
        "file:/etc/app.conf",
        "directory:/srv/app",
        "symlink:/etc/app.link",
        "line:a",
        "ini:b",
        "host:db",
        "cron:tidy",
    ] {
        failed(&report, label, &["the file system is read-only; remount it writable"]);
    }
    for label in ["user:deploy", "group:ops"] {
        failed(&report, label, &["the file system is read-only; remount it writable"]);
    }
    failed(&report, "package:shop", &["Read-only file system"]);
    assert_eq!(item(&report, "file:/var/lib/app.state").0, Action::Changed, "what can be done is done");
    assert_eq!(host.read("/etc/passwd").unwrap(), passwd);
    assert_eq!(host.ok(["dpkg", "--audit"]), "");

    make_read_only(&host, None);
    let report = agent.apply();
    assert_eq!((report.counts.failed, report.counts.changed), (0, 10), "{:#?}", report.items);
    changed(&agent.apply(), &[]);

    // Where the agent's own state cannot be written either, it says so and touches nothing.
    host.write("/etc/app.conf", "by hand\n", 0o644);
    make_read_only(&host, Some("/run /tmp"));
    let output = host.run(["/usr/local/bin/muster-agent", "--state", "/var/lib/held", "apply", "--once"]);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && said.to_lowercase().contains("read-only file system"), "{said}");
    make_read_only(&host, None);
    changed(&agent.apply(), &["file:/etc/app.conf"]);
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_package() {
    let Some(testbed) = Testbed::open() else { return };
    let big = "x".repeat(2 << 20);
    testbed.publish_packages(&[
        TestPackage::new("big", "1.0").file("/srv/full/data", &big).conffile("/etc/big.conf", "a\n"),
        TestPackage::new("small", "1.0").file("/usr/share/small", "x"),
        TestPackage::new("kept", "1.0"),
        TestPackage::new("kept", "2.0"),
    ]);
    let host = testbed.boot("web-1");
    host.sh("mkdir /srv/full && mount -t tmpfs -o size=1m tmpfs /srv/full");
    host.sh("apt-get update && apt-get install -y kept=1.0 && apt-mark hold kept");
    let mut agent = HeldAgent::install(&host);
    let package =
        |name: &str, attributes: Value| json!({"type": "package", "name": name, "attributes": attributes});
    agent.holds(json!({"name": "app", "resources": [
        package("small", json!({})),
        package("big", json!({})),
        package("kept", json!({"version": "2.*"})),
        package("nosuch", json!({})),
        file("/etc/after.conf"),
    ]}));
    let report = agent.apply();
    failed(&report, "package:big", &["No space left on device", "it still differs"]);
    failed(&report, "package:nosuch", &["Unable to locate package nosuch"]);
    assert_eq!(item(&report, "file:/etc/after.conf").0, Action::Changed);
    assert_eq!(item(&report, "package:small").0, Action::Changed, "{:#?}", report.items);
    let code = |label: &str| {
        let id = format!("app/{label}");
        report
            .items
            .iter()
            .find(|item| item.resource == id)
            .and_then(|item| item.cause.as_ref())
            .unwrap()
            .code
    };
    assert_eq!(code("package:big"), model::FailureCode::DiskFull);
    assert_eq!(code("package:nosuch"), model::FailureCode::PackageUnknown);
    // With room the next run brings it, and leaves nothing half done.
    host.sh("umount /srv/full");
    let report = agent.apply();
    assert_eq!(item(&report, "package:big").0, Action::Changed, "{:#?}", report.items);
    assert_eq!(host.ok(["dpkg", "--audit"]), "");
    assert_eq!(host.read("/srv/full/data").map(|data| data.len()), Some(big.len()));
}

/// A name service that takes its time, and notes who asked.
const SLOW: &str = r#"
#include <nss.h>
#include <pwd.h>
#include <grp.h>
#include <stdio.h>
#include <unistd.h>
static enum nss_status slow(const char *what) {
  FILE *log = fopen("/run/asked", "a");
  if (log) { fprintf(log, "%s\n", what); fclose(log); }
  sleep(5);
  return NSS_STATUS_NOTFOUND;
}
enum nss_status _nss_slow_getpwnam_r(const char *n, struct passwd *p, char *b, size_t l, int *e) { return slow(n); }
enum nss_status _nss_slow_getpwuid_r(uid_t u, struct passwd *p, char *b, size_t l, int *e) { return slow("uid"); }
enum nss_status _nss_slow_getgrnam_r(const char *n, struct group *g, char *b, size_t l, int *e) { return slow(n); }
enum nss_status _nss_slow_getgrgid_r(gid_t u, struct group *g, char *b, size_t l, int *e) { return slow("gid"); }
"#;

/// Puts the slow name service behind the host's own files.
fn install_slow_names(testbed: &Testbed, host: &BootedHost) {
    let folder = testbed.folder();
    let (source, library) = (folder.join("slow.c"), folder.join("libnss_slow.so.2"));
    std::fs::write(&source, SLOW).unwrap();
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success());
    host.copy_in(&library, "/usr/lib/x86_64-linux-gnu/libnss_slow.so.2", 0o644);
    host.write(
        "/etc/nsswitch.conf",
        "passwd: files slow\ngroup: files slow\nshadow: files\nhosts: files\n",
        0o644,
    );
}

fn asked(host: &BootedHost) -> String {
    host.read("/run/asked").unwrap_or_default()
}

#[test]
fn a_user_database_that_answers_slowly() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("web-1");
    host.sh("useradd known");
    install_slow_names(&testbed, &host);
    let mut agent = HeldAgent::install(&host);
    let user = |timeout: u32| json!({"type": "user", "name": "fresh", "attributes": {}, "timeout": timeout});
    let set = |timeout: u32| {
        json!({"name": "app", "resources": [
            {"type": "file", "name": "/etc/app.conf", "attributes": {"content": "x\n", "owner": "known", "group": "known"}},
            {"type": "exec", "name": "mark", "attributes": {
                "command": ["touch", "/tmp/mark"], "creates": "/tmp/mark", "user": "known"}},
            {"type": "user", "name": "known", "attributes": {"shell": "/bin/sh"}},
            user(timeout),
        ]})
    };
    // What is in the host's own files is never asked for elsewhere.
    agent.holds(set(2));
    let report = agent.apply();
    assert_eq!(item(&report, "file:/etc/app.conf").0, Action::Changed, "{:#?}", report.items);
    assert_eq!(item(&report, "exec:mark").0, Action::Changed, "{:#?}", report.items);
    failed(&report, "user:fresh", &["useradd did not end within 2 s and was killed"]);
    assert!(!host.run(["grep", "^fresh:", "/etc/passwd"]).status.success(), "nothing is half made");
    // With more time it is made; what is right is not asked about again.
    agent.holds(set(60));
    assert_eq!(item(&agent.apply(), "user:fresh").0, Action::Changed);
    let before = asked(&host);
    changed(&agent.apply(), &[]);
    assert_eq!(asked(&host), before, "a run that changes nothing asks no name service");
}

#[test]
fn a_home_elsewhere_and_a_user_that_is_logged_in() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("web-1");
    host.sh("useradd owner && mkdir -p /srv/taken && chown owner /srv/taken && touch /srv/notdir");
    let mut agent = HeldAgent::install(&host);
    let user =
        |name: &str, attributes: Value| json!({"type": "user", "name": name, "attributes": attributes});
    agent.holds(json!({"name": "app", "resources": [
        user("amy", json!({"home": "/srv/homes/deep/amy", "shell": "/bin/bash"})),
        user("bob", json!({"home": "/srv/taken"})),
        user("cid", json!({"home": "/srv/notdir"})),
        file("/etc/after.conf"),
    ]}));
    let report = agent.apply();
    assert_eq!(item(&report, "user:amy").0, Action::Changed, "{:#?}", report.items);
    assert_eq!(host.ok(["stat", "-c", "%U %F", "/srv/homes/deep/amy"]), "amy directory\n");
    failed(&report, "user:bob", &["/srv/taken is there and belongs to owner", "declare another `home`"]);
    failed(&report, "user:cid", &["/srv/notdir is not a directory; move that away"]);
    assert_eq!(item(&report, "file:/etc/after.conf").0, Action::Changed);

    // Somebody is logged in: neither removed nor renumbered, and named with what runs.
    host.ok(["systemd-run", "--unit=login", "su", "-l", "amy", "-c", "exec sleep 600"]);
    let runs = || host.run(["pgrep", "-u", "amy", "-x", "sleep"]).status.success();
    host.wait_until("amy is logged in", MINUTE, runs);
    agent.holds(
        json!({"name": "app", "resources": [user("amy", json!({"state": "absent", "remove_home": true}))]}),
    );
    let report = agent.apply();
    failed(&report, "user:amy", &["sleep (", "end them, the next run tries again"]);
    assert!(runs() && host.path("/srv/homes/deep/amy").exists(), "nothing of it was touched");
    let cause = report.items[0].cause.as_ref().unwrap();
    assert_eq!((cause.code, cause.detail.as_str()), (model::FailureCode::InUse, ""));
    host.sh("systemctl stop login; systemctl stop user@$(id -u amy) || true");
    host.wait_until("nothing runs as amy", MINUTE, || !host.run(["pgrep", "-u", "amy"]).status.success());
    assert_eq!(item(&agent.apply(), "user:amy").0, Action::Changed);
    assert!(!host.path("/srv/homes/deep/amy").exists());
}
