//! OPS-6: the packages on a booted host: purged, they leave nothing behind but what the agent keeps on
//! its host; removed alone, they leave what an administrator or a fleet may want back.

use std::collections::BTreeSet;

use test_support::booted::{BootedFleet, BootedHost, Testbed, plane_package};

/// What is not of a package: logs, the package database and what a user's account leaves.
const OTHERS: &[&str] = &["/var/log/", "/var/lib/dpkg/", "/root/", "/tmp/", "/var/tmp/", "/run/"];

/// Every path of the host's own file system that some package could have left.
fn paths(host: &BootedHost) -> BTreeSet<String> {
    let all = host.sh("find / -xdev -mindepth 1");
    all.lines()
        .filter(|path| !OTHERS.iter().any(|prefix| path.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_is_left_is_what_was_declared() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    let before = paths(&web);
    web.install(&plane_package());
    web.write("/etc/default/muster", "MUSTER_SERVER_OPTIONS=\"--name web-1 --fleet local\"\n", 0o644);
    web.ok(["systemctl", "enable", "--now", "muster"]);
    fleet.join(&web);
    fleet.module("hello", "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n");
    fleet.publish_until_converged(&[&web]);
    assert_eq!(web.ok(["systemctl", "is-active", "muster", "muster-agent"]), "active\nactive\n");

    web.ok(["dpkg", "--remove", "muster", "muster-agent"]);
    for kept in
        ["/var/lib/muster/membership.json", "/etc/default/muster-agent", "/var/lib/muster-server/muster.db"]
    {
        assert!(web.read(kept).is_some(), "{kept} goes with a purge alone");
    }
    let units = web.ok(["systemctl", "list-units", "--all", "--plain", "--no-legend", "muster*"]);
    let running: Vec<&str> = units.lines().filter(|unit| unit.contains(" running ")).collect();
    assert!(running.is_empty(), "{running:?}");

    web.ok(["dpkg", "--purge", "muster", "muster-agent"]);
    let after = paths(&web);
    let left: Vec<&String> = after.difference(&before).collect();
    // `passwd-` and its like are the account database's own copies.
    let left: Vec<&String> = left.into_iter().filter(|path| !path.ends_with('-')).collect();
    assert_eq!(left, ["/etc/hello"]);
    let gone: Vec<&String> = before.difference(&after).collect();
    assert!(gone.is_empty(), "{gone:?}");
}
