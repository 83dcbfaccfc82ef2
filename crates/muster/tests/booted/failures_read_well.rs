//! CNV-2, CNV-3: a failed run is told well: its cause, its command and directory, the end of its output,
//! what it was about to change. One cause on three hosts is one line that names them, whatever process
//! ids differ between them; each host hears that others share it.

use test_support::booted::{BootedFleet, BootedHost, MINUTE, TestPackage, Testbed};

const MODULE: &str = r#"
resources:
  - package: shop
    lock_timeout: 1s
  - service: app
    state: running
    unit: |
      [Service]
      ExecStart=/bin/sh -c 'echo the port is taken by pid $$$$; exit 3'
  - shell: "echo this is process $$; exit 7"
    name: greet
    cwd: /srv
    creates: /srv/greeted
  - file: /etc/app.conf
    content: "port 8080\n"
    validate: "grep -q ssl %s || { echo no ssl in $$ >&2; exit 4; }"
"#;

/// The packages' lock is held by a process that has another number on each host.
fn hold_the_lock(host: &BootedHost) {
    host.ok(["apt-get", "update"]);
    host.ok(["systemd-run", "--unit=by-hand", "apt-get", "-y", "install", "slow"]);
    let begun = || host.run(["pgrep", "-f", "slow.postinst"]).status.success();
    host.wait_until("slow is being configured", MINUTE, begun);
}

#[test]
fn one_cause_on_three_hosts_is_one_line() {
    let Some(testbed) = Testbed::open() else { return };
    testbed.publish_packages(&[
        TestPackage::new("slow", "1.0").script("postinst", "#!/bin/sh\n[ -e /run/fast ] || sleep 600\n"),
        TestPackage::new("shop", "1.0"),
    ]);
    let mut fleet = BootedFleet::start(&testbed);
    let hosts = testbed.boot_all(["edge-1", "edge-2", "edge-3"]);
    fleet.module("web", MODULE);
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| {
                fleet.join(host);
                hold_the_lock(host);
            });
        }
    });
    fleet.publish();
    let lines_of = |text: &str, what: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    };
    let mut status = String::new();
    hosts[0].wait_until("all three have failed", MINUTE, || {
        let output = fleet.server.muster(&["status"]);
        status = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.code() == Some(3) && lines_of(&status, "3x").len() == 4
    });
    for (resource, says) in [
        ("web/package:shop", "dpkg lock held by apt-get (pid "),
        ("web/service:app", "app.service is not up: "),
        ("web/shell:greet", "exited with 7"),
        ("web/file:/etc/app.conf", "no ssl in"),
    ] {
        let lines = lines_of(&status, resource);
        assert_eq!(lines.len(), 1, "{status}");
        for part in ["3x", "edge-1 +2", says, "muster run show edge-1"] {
            assert!(lines[0].contains(part), "{part}: {status}");
        }
    }

    // A restart of the control plane forgets none of it.
    fleet.kill();
    fleet.power_on();
    let output = fleet.server.muster(&["status"]);
    let again = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(lines_of(&again, "web/package:shop").len(), 1, "{again}");
    let node = fleet.server.ok(&["node", "show", "edge-2"]);
    assert!(node.contains("same cause on 2 other nodes"), "{node}");

    // One run in full, not one over single resources: what each said, as what it is.
    let runs = fleet.server.json(&["run", "list", "--node", "edge-3"]);
    let full = runs.as_array().unwrap().iter().find(|run| run["report"]["partial"].is_null());
    let fact = full.unwrap()["seq"].to_string();
    let run = fleet.server.ok(&["run", "show", "edge-3", "--fact", &fact]);
    for part in [
        "in /srv exited with 7: this is process ",
        "`echo this is process $$; exit 7`",
        "app.service is not up: it failed (result exit-code, exit status 3)",
        "its own last lines in the journal:\n      the port is taken by pid ",
        "systemd's last lines about it:\n      ",
        "      app.service: Main process exited, code=exited, status=3",
        "+port 8080",
        "no ssl in ",
        "traits  Debian",
    ] {
        assert!(run.contains(part), "{part}: {run}");
    }

    // What is mended on one host is two hosts' cause.
    hosts[0].write("/run/fast", "", 0o644);
    hosts[0].ok(["systemctl", "kill", "--signal=KILL", "by-hand"]);
    hosts[0]
        .wait_until("shop is there", MINUTE, || hosts[0].run(["dpkg-query", "-s", "shop"]).status.success());
    hosts[0].wait_until("status says so", MINUTE, || {
        let text = String::from_utf8_lossy(&fleet.server.muster(&["status"]).stdout).into_owned();
        let lines = lines_of(&text, "web/package:shop");
        lines.len() == 1 && lines[0].contains("2x") && lines[0].contains("edge-2 +1")
    });
}
