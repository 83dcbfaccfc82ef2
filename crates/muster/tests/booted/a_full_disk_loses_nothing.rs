//! LIF-10, CNV-1: the disk of the agent's state is full: the agent stays, keeps what it holds, tears no
//! file, and takes the next release by itself once there is room.

use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};

/// A state directory of this size, in KiB.
const SIZE: u32 = 4096;

fn fill(host: &BootedHost) {
    host.sh("dd if=/dev/zero of=/var/lib/muster/fill bs=4k status=none || true");
    let free = host.sh("df --output=avail /var/lib/muster | tail -1");
    assert_eq!(free.trim(), "0");
}

#[test]
fn the_next_release_comes_once_there_is_room() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    web.sh(&format!(
        "mkdir /var/lib/muster && mount -t tmpfs -o size={SIZE}k,mode=700 tmpfs /var/lib/muster"
    ));
    fleet.join(&web);
    fleet.module("hello", "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n");
    fleet.publish_until_converged(&[&web]);

    fill(&web);
    fleet.module("hello", "resources:\n  - file: /etc/hello\n    content: \"good day\\n\"\n");
    fleet.publish();
    web.wait_until("the agent says that it cannot write", MINUTE, || web.journal().contains("No space left"));
    assert!(
        fleet.server.node("web-1")["held"]["seq"] == 1,
        "it acknowledges nothing that it could not write"
    );
    assert_eq!(web.read("/etc/hello").as_deref(), Some("hello\n"));

    // Killed in that state, it comes back with all that it had.
    web.ok(["systemctl", "kill", "--signal=KILL", "muster-agent"]);
    web.wait_until("it is back", MINUTE, || {
        web.run(["systemctl", "is-active", "muster-agent"]).status.success()
    });
    assert_eq!(fleet.server.node("web-1")["held"]["seq"], 1);

    web.ok(["rm", "/var/lib/muster/fill"]);
    fleet.until_converged(&web);
    assert_eq!(web.read("/etc/hello").as_deref(), Some("good day\n"));
    assert_eq!(fleet.server.json(&["status"])["nodes"], 1, "it did not join again");
}
