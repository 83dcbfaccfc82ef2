//! CNV-1, CNV-5, LIF-4: the agent's package on booted hosts: the example fleet converges and stays
//! so; a reboot in mid-run, `kill -9`, a pulled cable and a dead control plane change nothing of that.

use std::path::Path;

use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};

const HELLO: &str = "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n";

/// A run by hand while the daemon is away: what it changed.
fn changes(host: &BootedHost) -> u64 {
    host.ok(["systemctl", "stop", "muster-agent"]);
    let report: serde_json::Value =
        serde_json::from_str(&host.ok(["muster-agent", "apply", "--once", "--json"])).unwrap();
    host.ok(["systemctl", "start", "muster-agent"]);
    report["counts"]["changed"].as_u64().unwrap_or_else(|| panic!("{report:#}"))
}

/// Copies the example fleet, without what a host that shares its kernel may not do: it sets sysctls of
/// its network alone, and none of Debian's own files.
fn copy_example(to: &Path) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet");
    std::fs::remove_dir_all(to).unwrap();
    let copied = std::process::Command::new("cp").arg("-r").arg(example).arg(to).status().unwrap();
    assert!(copied.success());
    let module = to.join("modules/base/module.yaml");
    let text = std::fs::read_to_string(&module).unwrap();
    let [sysctl, all] = ["kernel.dmesg_restrict", "sysctl --system"].map(|part| text.contains(part));
    assert!(sysctl && all, "the example is another one now");
    let text = text.replace("kernel.dmesg_restrict", "net.ipv4.tcp_syncookies");
    let text = text.replace("sysctl --system", "sysctl --load /etc/sysctl.d/60-muster.conf");
    std::fs::write(module, text).unwrap();
}

#[test]
fn the_example_fleet_converges_and_stays_so() {
    let Some(testbed) = Testbed::open() else { return };
    let fleet = BootedFleet::start(&testbed);
    copy_example(&fleet.repo);
    let hosts = testbed.boot_all(["web-1.demo", "web-2.demo", "lab-1.demo"]);
    let [web, _, lab] = &hosts;
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| {
                host.ok(["apt-get", "update"]);
                host.ok(["apt-get", "install", "-y", "nginx-light", "openssh-server"]);
                fleet.join(host);
            });
        }
    });
    fleet.publish();
    for host in &hosts[..2] {
        fleet.until_converged(host);
        assert_eq!(changes(host), 0, "a second run changes nothing");
        let site = host.read("/etc/nginx/conf.d/demo.conf").unwrap();
        assert!(site.contains(host.name()), "{site}");
        assert_eq!(host.ok(["systemctl", "is-active", "nginx", "ssh"]), "active\nactive\n");
    }
    fleet.server.until_state("lab-1.demo", "would-change");
    assert_eq!(lab.read("/etc/ssh/sshd_config.d/50-muster.conf"), None, "it only observes");

    let motd = web.read("/etc/motd").unwrap();
    web.write("/etc/motd", "somebody was here\n", 0o644);
    web.wait_until("the edit is put right", MINUTE, || web.read("/etc/motd").as_ref() == Some(&motd));
}

#[test]
fn through_reboots_kills_and_pulled_cables() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    fleet.join(&web);
    fleet.module("hello", HELLO);
    fleet.publish_until_converged(&[&web]);

    // A reboot in mid-run: the run has begun its long command, and goes on after the boot.
    let long = "resources:\n  - shell: |\n      echo began >> /var/log/long\n      [ -e /root/released ] || sleep 600\n      \
                touch /var/lib/long-done\n    name: long\n    creates: /var/lib/long-done\n";
    fleet.module("long", long);
    fleet.publish();
    web.wait_until("the run is in its command", MINUTE, || web.read("/var/log/long").is_some());
    web.write("/root/released", "", 0o600);
    web.reboot();
    web.wait_until("the run came to its end", MINUTE, || web.read("/var/lib/long-done").is_some());
    fleet.until_converged(&web);
    assert_eq!(web.read("/var/log/long").as_deref(), Some("began\nbegan\n"), "once before, once after");

    // Killed: systemd starts it again, and it goes on from its disk.
    web.ok(["systemctl", "kill", "--signal=KILL", "muster-agent"]);
    web.write("/etc/hello", "by hand\n", 0o644);
    let is_right = || web.read("/etc/hello").as_deref() == Some("hello\n");
    web.wait_until("the edit is put right after a kill", MINUTE, is_right);
    assert_eq!(web.ok(["systemctl", "show", "-P", "NRestarts", "muster-agent"]), "1\n");

    // Without the network it keeps what it holds, over a power cut as well.
    web.unplug();
    web.kill();
    web.power_on();
    web.write("/etc/hello", "by hand\n", 0o644);
    web.wait_until("the edit is put right without a control plane", MINUTE, is_right);
    fleet.module("hello", &HELLO.replace("hello\\n", "plugged in\\n"));
    fleet.publish();
    web.plug_in();
    web.wait_until("the release of the meantime arrives", MINUTE, || {
        web.read("/etc/hello").as_deref() == Some("plugged in\n")
    });

    // The control plane away, and back: its nodes are those that it had.
    fleet.kill();
    web.write("/etc/hello", "by hand\n", 0o644);
    web.wait_until("the edit is put right meanwhile", MINUTE, || {
        web.read("/etc/hello").as_deref() == Some("plugged in\n")
    });
    fleet.power_on();
    fleet.until_converged(&web);
    assert_eq!(fleet.server.json(&["status"])["nodes"], 1);
}
