//! IDN-11: a host whose clock stands at 1970 joins and converges as any other; one whose clock runs
//! ahead, in 2040, adopts nothing, says so, and goes on keeping what it holds. A clock that jumps under a
//! running agent, forth and back, does no more than that: what was refused is adopted once it is right. One a month
//! ahead, past the end of the node's certificate, is named on both sides and costs the host nothing (IDN-2).
//!
//! Hosts share the kernel's clock with the outer machine, so the agent alone is given another one, by
//! libfaketime: Debian builds of the agent are linked to the C library, which it replaces there.

use test_support::booted::{BootedFleet, BootedHost, JOIN, MINUTE, Testbed};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
const HELLO: &str = "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n";

/// Gives the agent's unit a clock that begins at this time; none for the right one.
fn set_clock(host: &BootedHost, time: Option<&str>) {
    let unit = time.map_or(String::new(), |time| {
        format!(
            "[Service]\nEnvironment=LD_PRELOAD={LIBRARY}\nEnvironment=FAKETIME_DONT_FAKE_MONOTONIC=1\n\
             Environment=\"FAKETIME=@{time}\"\n"
        )
    });
    host.write("/etc/systemd/system/muster-agent.service.d/clock.conf", unit, 0o644);
    host.ok(["systemctl", "daemon-reload"]);
    host.run(["systemctl", "restart", "muster-agent"]);
}

/// Gives the agent's unit a clock that [`jump`] moves while the agent runs.
fn install_jumping_clock(host: &BootedHost) {
    jump(host, "+0");
    let unit = format!(
        "[Service]\nEnvironment=LD_PRELOAD={LIBRARY}\nEnvironment=FAKETIME_DONT_FAKE_MONOTONIC=1\n\
         Environment=FAKETIME_NO_CACHE=1\nEnvironment=FAKETIME_TIMESTAMP_FILE=/etc/clock\n"
    );
    host.write("/etc/systemd/system/muster-agent.service.d/clock.conf", unit, 0o644);
    host.ok(["systemctl", "daemon-reload"]);
}

/// Moves the clock to so far from the right time.
fn jump(host: &BootedHost, offset: &str) {
    host.sh(&format!("echo '{offset}' > /etc/.clock && mv /etc/.clock /etc/clock"));
}

fn install_clock(host: &BootedHost) {
    host.ok(["apt-get", "update"]);
    host.ok(["apt-get", "install", "-y", "faketime"]);
    let year = host.sh(&format!("LD_PRELOAD={LIBRARY} FAKETIME='@1970-01-01 00:10:00' date +%Y"));
    assert_eq!(year, "1970\n");
}

#[test]
fn a_slow_one_locks_nobody_out_and_a_fast_one_adopts_nothing() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let [slow, fast] = testbed.boot_all(["slow-1", "fast-1"]);
    fleet.module("hello", HELLO);
    fleet.publish();

    install_clock(&slow);
    fleet.prepare_join(&slow);
    set_clock(&slow, Some("1970-01-01 00:10:00"));
    let slowly = [&format!("LD_PRELOAD={LIBRARY}"), "FAKETIME=@1970-01-01 00:10:00"];
    slow.ok(["env"].iter().chain(&slowly).chain(&JOIN));
    fleet.until_converged(&slow);
    let first = slow.ok(["journalctl", "-u", "muster-agent", "-o", "cat", "-g", "adopted a release"]);
    assert!(first.starts_with("1970-01-01T"), "the agent's own clock is the wrong one: {first}");

    install_clock(&fast);
    fleet.join(&fast);
    fleet.until_converged(&fast);
    set_clock(&fast, Some("2040-06-01 12:00:00"));
    fleet.module("hello", &HELLO.replace("hello\\n", "good day\\n"));
    fleet.publish();
    fleet.until_converged(&slow);
    assert_eq!(slow.read("/etc/hello").as_deref(), Some("good day\n"));
    fast.wait_until("it says so", MINUTE, || fast.journal().contains("clock says 2040-06-01"));
    fast.write("/etc/hello", "by hand\n", 0o644);
    fast.wait_until("it keeps what it holds", MINUTE, || {
        fast.read("/etc/hello").as_deref() == Some("hello\n")
    });
    assert_eq!(fleet.server.node("fast-1")["held"]["seq"], 1);

    // With the right time it goes on, as the node that it was: what it saw in 2040 binds it to nothing.
    set_clock(&fast, None);
    fleet.until_converged(&fast);
    assert_eq!(fast.read("/etc/hello").as_deref(), Some("good day\n"));
    assert_eq!(fleet.server.json(&["status"])["nodes"], 2);
}

#[test]
fn one_that_jumps_leaves_a_running_agent_as_it_was() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    let greets = |fleet: &mut BootedFleet, greeting: &str| {
        fleet.module("hello", &HELLO.replace("hello\\n", &format!("{greeting}\\n")));
        fleet.publish();
    };
    let holds = |greeting: &str| web.read("/etc/hello").as_deref() == Some(&format!("{greeting}\n"));
    let heals = |greeting: &str| {
        web.write("/etc/hello", "by hand\n", 0o644);
        web.wait_until("it keeps what it holds", MINUTE, || holds(greeting));
    };
    greets(&mut fleet, "right");
    install_clock(&web);
    install_jumping_clock(&web);
    fleet.join(&web);
    fleet.until_converged(&web);
    let pid = || web.ok(["systemctl", "show", "-P", "MainPID", "muster-agent"]);
    let began = pid();

    // Years ahead: beyond the release's freshness and its own certificate's end. It adopts nothing new, and
    // keeps what it holds.
    jump(&web, "+14y");
    greets(&mut fleet, "ahead");
    web.wait_until("it says why", MINUTE, || {
        let journal = web.journal();
        // Over the connection that is open: a new one is not opened.
        journal.contains("release 2 was last signed for")
            && journal.contains("ahead of the control plane's; requests are signed with the offset")
            && journal.contains("s time; this host's clock is ")
    });
    let journal = web.journal();
    for not in ["the certificate was renewed", "the certificate has ended", "is the clock right?"] {
        assert!(!journal.contains(not), "{not}: {journal}");
    }
    heals("right");
    assert_eq!(fleet.server.node("web-1")["held"]["seq"], 1);

    // Back: what was refused is adopted, by itself.
    jump(&web, "+0");
    web.wait_until("what was refused is adopted", MINUTE, || holds("ahead"));
    fleet.until_converged(&web);

    // Decades behind: nothing keeps it from what is newer than all that it knows.
    jump(&web, "-56y");
    heals("ahead");
    greets(&mut fleet, "behind");
    web.wait_until("a slow clock locks it out of nothing", MINUTE, || holds("behind"));

    // A day in jumps of some hours, with the control plane away for a part of it.
    for offset in ["-6h", "+6h", "-12h", "+12h", "+23h"] {
        jump(&web, offset);
        heals("behind");
    }
    fleet.kill();
    jump(&web, "+14y");
    heals("behind");
    jump(&web, "-56y");
    heals("behind");
    fleet.power_on();
    jump(&web, "+0");
    greets(&mut fleet, "right again");
    web.wait_until("it goes on", MINUTE, || holds("right again"));
    fleet.until_converged(&web);
    assert_eq!(pid(), began, "it is the same process all the time");
    assert_eq!(fleet.server.json(&["status"])["nodes"], 1);
}

#[test]
fn one_31_days_ahead_is_told_on_both_sides() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    fleet.module("hello", HELLO);
    fleet.publish();
    install_clock(&web);
    install_jumping_clock(&web);
    fleet.join(&web);
    fleet.until_converged(&web);

    jump(&web, "+750h");
    fleet.module("hello", &HELLO.replace("hello\\n", "good day\\n"));
    fleet.publish();
    web.wait_until("the host says so", MINUTE, || {
        let shown = web.run(["muster-agent", "status"]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        // The control plane takes the certificate: it has not ended there.
        shown.contains("CLOCK          31 days ahead of") && !shown.contains("EXPIRED")
    });
    web.wait_until("the journal says so", MINUTE, || {
        let journal = web.journal();
        journal.contains("31 days ahead of the control plane's; requests are signed with the offset")
            && journal.contains("release 2 was last signed for")
    });
    web.wait_until("the control plane says so", MINUTE, || {
        let node = fleet.server.node("web-1").to_string();
        node.contains("release 2 was last signed for") && node.contains("31 days ahead of")
    });
    web.write("/etc/hello", "by hand\n", 0o644);
    web.wait_until("it keeps what it holds", MINUTE, || web.read("/etc/hello").as_deref() == Some("hello\n"));
    assert_eq!(fleet.server.node("web-1")["held"]["seq"], 1, "it adopts nothing");

    jump(&web, "+0");
    fleet.until_converged(&web);
    assert_eq!(web.read("/etc/hello").as_deref(), Some("good day\n"));
    web.wait_until("nothing is left of it", MINUTE, || {
        let shown = web.run(["muster-agent", "status"]);
        shown.status.success() && !String::from_utf8_lossy(&shown.stdout).contains("CLOCK")
    });
    assert_eq!(fleet.server.json(&["status"])["nodes"], 1, "it did not join again");
}
