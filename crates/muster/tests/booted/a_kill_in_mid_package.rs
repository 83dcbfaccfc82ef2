//! EXE-1, CNV-1: dpkg is killed in the middle of a package together with the agent that runs it. The next
//! run finishes what was begun, or says what is needed; services that were kept from starting may start.

use test_support::booted::{BootedFleet, MINUTE, TestPackage, Testbed};

/// Its script waits until it may go on, and fails as long as it is told to.
const SLOW: &str = "#!/bin/sh\n[ -e /run/fast ] || sleep 600\n\
                    [ ! -e /run/broken ] || { echo the database is away; exit 9; }\n";

#[test]
fn is_repaired_or_told_by_the_next_run() {
    let Some(testbed) = Testbed::open() else { return };
    testbed.publish_packages(&[
        TestPackage::new("slow", "1.0").script("postinst", SLOW).conffile("/etc/slow.conf", "a\n"),
        TestPackage::new("other", "1.0").file("/usr/share/other", "x"),
    ]);
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    fleet.join(&web);
    let packages = "resources:\n  - package: slow\n    start_services: false\n  - file: /etc/hello\n    content: \"hello\\n\"\n";
    fleet.module("packages", packages);
    fleet.publish();
    let in_script = || web.run(["pgrep", "-f", "slow.postinst"]).status.success();
    web.wait_until("slow is being configured", MINUTE, in_script);
    assert!(web.path("/usr/sbin/policy-rc.d").exists(), "no service starts meanwhile");

    // All of it at once: the agent, apt-get, dpkg and the script.
    web.write("/run/fast", "", 0o644);
    web.write("/run/broken", "", 0o644);
    web.ok(["systemctl", "kill", "--signal=KILL", "muster-agent"]);
    web.wait_until("all of it ended", MINUTE, || !in_script());
    let cause = || fleet.server.node("web-1")["cause"].as_str().unwrap_or_default().to_owned();
    web.wait_until("what is needed is told", MINUTE, || cause().contains("packages/package:slow"));
    let run = fleet.server.ok(&["run", "show", "web-1"]);
    assert!(run.contains("the database is away") && run.contains("slow"), "{run}");
    assert_eq!(web.read("/etc/hello").as_deref(), Some("hello\n"), "the rest is right");
    let may_start = || !web.path("/usr/sbin/policy-rc.d").exists();
    web.wait_until("services may start again, between two tries", MINUTE, may_start);

    // A package that has nothing to do with it waits for it too, and says for what.
    fleet.module("others", "resources:\n  - package: other\n");
    fleet.publish();
    web.wait_until("both are told, or the other is there", MINUTE, || {
        let runs = fleet.server.json(&["run", "list", "--node", "web-1"]);
        let items = runs[0]["report"]["items"].to_string();
        items.contains("others/package:other")
    });

    web.ok(["rm", "/run/broken"]);
    fleet.until_converged(&web);
    assert_eq!(web.ok(["dpkg", "--audit"]), "");
    assert_eq!(web.ok(["dpkg-query", "-W", "-f=${db:Status-Status}", "slow", "other"]), "installedinstalled");
    web.wait_until("services may start", MINUTE, may_start);
}
