//! CNV-12: on booted hosts a reboot that a package asked for is made once, in the channel's window, and the
//! host comes back converged; a host whose window is closed says when it is due, and stays up.

use serde_json::Value;
use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};

fn boot_id(host: &BootedHost) -> String {
    host.ok(["cat", "/proc/sys/kernel/random/boot_id"])
}

#[test]
fn an_open_window_reboots_once_and_a_closed_one_waits() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    // A minute in three days, and a window that opened half a day ago and is open for as long again.
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let closed = days[usize::try_from((now / 86_400 + 3 + 3) % 7).unwrap()];
    let opened = format!("{:02}:00", (now / 3600 + 12) % 24);
    let channel = "contact: 1s, converge: 1s, jitter: 10%, freshness: 24h, traits: {kernel: 10s}";
    std::fs::write(
        fleet.repo.join("fleet.yaml"),
        format!(
            "format: 1\nname: e2e\nchannels:\n  fast: {{{channel}, reboot: {{window: always}}}}\n  \
             slow: {{{channel}, reboot: {{window: later}}}}\n  none: {{{channel}}}\ndefaults: {{channel: fast}}\n\
             windows:\n  always: {{from: \"{opened}\", to: \"{opened}\", zone: UTC}}\n  \
             later: {{days: [{closed}], from: \"10:00\", to: \"10:01\", zone: UTC}}\n"
        ),
    )
    .unwrap();
    fleet.module("hello", "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n");
    std::fs::write(
        fleet.repo.join("nodes.yaml"),
        "nodes:\n  - {match: [open-1], modules: [hello]}\n  - {match: [shut-1], modules: [hello], channel: slow}\n",
    )
    .unwrap();
    let hosts = testbed.boot_all(["open-1", "shut-1"]);
    let [open, shut] = &hosts;
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| fleet.join(host));
        }
    });
    fleet.publish_until_converged(&[open, shut]);
    let before = [open, shut].map(boot_id);

    let ask = |host: &BootedHost| {
        host.write("/run/reboot-required.pkgs", "libc6\nlibc6\n", 0o644);
        host.write("/run/reboot-required", "*** System restart required ***\n", 0o644);
    };
    ask(shut);
    open.until_rebooted(|| ask(open));
    assert_ne!(boot_id(open), before[0]);
    let status = |host: &BootedHost| -> Value {
        let shown = host.run(["muster-agent", "status", "--json"]);
        serde_json::from_slice(&shown.stdout).unwrap_or_default()
    };
    shut.wait_until("it says that it waits", MINUTE, || {
        status(shut)["daemon"]["reboot"]["plan"]["window"] == "later"
    });
    let text = shut.ok(["muster-agent", "status"]);
    assert!(text.contains("REBOOT") && text.contains("required by libc6,"), "{text}");

    open.wait_until("the agent is back", MINUTE, || {
        status(open)["daemon"]["contact"]["answered"].is_string()
    });
    fleet.until_converged(open);

    // Asked for again while the window is still open: told, and not made.
    let after = boot_id(open);
    open.write("/run/reboot-required", "", 0o644);
    open.wait_until("it says that it waits for the next one", MINUTE, || {
        let reboot = status(open)["daemon"]["reboot"].clone();
        reboot["plan"]["state"] == "due" && reboot["last"]["reason"] == "libc6"
    });
    assert_eq!((boot_id(open), boot_id(shut)), (after, before[1].clone()));
}
