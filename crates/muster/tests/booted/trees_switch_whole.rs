//! ROL-7, ROL-10, ROL-12: on a booted Debian host the releases of a rollout switch the tree of an image and a pair of
//! commands. One whose command fails after its tree was switched takes both back; one that replaces its agent in the middle
//! of the switch is taken back by the watchdog, with the network down, and takes what mends it.

use activation::{ActivationRecord, ActivationStage, BootTime};
use spool::{Disk, PeekedFile, StateFile};
use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};
use test_support::tar::{member, tar};

const APP: &str = "/opt/app/bin/app";
const SLOT: &str = "/srv/slot";
const RECORD: &str = "/var/lib/muster/activation.json";
/// What the watchdog saw so far.
const WATCHED: &str = "/var/lib/muster/watched-agent.json";

/// An archive with one file.
fn archive(version: &str) -> Vec<u8> {
    tar(&[member("bin/app", b'0', "", 0o755, version.as_bytes())])
}

/// Publishes a version: its tree first, then its pair of commands, of which `run` does something more.
fn publish(fleet: &mut BootedFleet, version: &str, before: &str, more: &str) {
    let path = fleet.repo.join("modules/app/files/app.tar");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, archive(version)).unwrap();
    let module = format!(
        "resources:\n  - image: /opt/app\n    source: app.tar\n  - switch: slot\n    to: \"{version}\"\n    \
         run: 'echo {version} > {SLOT}; {more}'\n    back: 'echo {before} > {SLOT}; echo from {version} >> {SLOT}.backs'\n"
    );
    fleet.module("app", &module);
    fleet.publish();
}

fn is_on(host: &BootedHost, version: &str) -> bool {
    host.read(APP).as_deref() == Some(version) && host.read(SLOT).as_deref() == Some(&format!("{version}\n"))
}

fn record(host: &BootedHost) -> (StateFile<ActivationRecord>, Option<ActivationRecord>) {
    let file: StateFile<ActivationRecord> = StateFile::new(&Disk::new(), host.path(RECORD), 0o600);
    let record = match file.peek().unwrap() {
        PeekedFile::Value(record) => Some(record),
        PeekedFile::Absent | PeekedFile::Damaged => None,
    };
    (file, record)
}

fn is_settled(host: &BootedHost) -> bool {
    record(host).1.is_none_or(|record| record.under_way == ActivationStage::Settled)
}

/// As if nobody had gone on with the switch since this boot: five minutes are long in a test.
fn nobody_went_on(host: &BootedHost) {
    let (file, record) = record(host);
    let mut record = record.unwrap();
    let ActivationStage::Armed(trial) = &mut record.under_way else { panic!("{record:?}") };
    trial.switched = BootTime::BOOT;
    file.store(&record).unwrap();
}

/// What the watchdog remembers of its looks then.
fn nobody_was_seen(host: &BootedHost) {
    let boot = host.sh("cat /proc/sys/kernel/random/boot_id").trim().to_owned();
    let seen = serde_json::json!({"boot": boot, "livedMillis": 0, "missed": 100});
    host.write(WATCHED, seen.to_string(), 0o600);
}

/// The control plane heard of the return. What is published before that waits for an approval: whoever published it may
/// not have known of the halt.
fn until_told(fleet: &BootedFleet, host: &BootedHost) {
    host.wait_until("the control plane knows that it is back", MINUTE, || {
        fleet.server.json(&["rollout", "show", "fast"])["state"] == "Reverted"
    });
}

#[test]
fn forwards_back_and_back_offline() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    std::fs::write(
        fleet.repo.join("rollouts.yaml"),
        "rollouts:\n  fast:\n    waves:\n      - {name: all, nodes: \"*\", gate: {soak: 1s, success: 100%}}\n    \
         onFailure: rollback\n    confirm: {window: 2m}\n",
    )
    .unwrap();
    let host = testbed.boot("web-1");
    fleet.join(&host);
    publish(&mut fleet, "one", "none", "true");
    fleet.until_converged(&host);
    assert!(is_on(&host, "one"));
    host.wait_until("the first release is through", MINUTE, || is_settled(&host));

    publish(&mut fleet, "two", "one", "true");
    host.wait_until("it is on two", MINUTE, || is_on(&host, "two"));
    host.wait_until("two is through", MINUTE, || is_settled(&host));
    let trees = || host.sh("ls /opt/.app.generations | wc -l").trim().to_owned();
    assert_eq!(trees(), "2");

    // The tree is switched, and the command fails: the switch as a whole has failed.
    publish(&mut fleet, "three", "two", "false");
    host.wait_until("it is back on two", 2 * MINUTE, || {
        host.read("/srv/slot.backs").is_some_and(|backs| backs.contains("from three\n"))
            && is_on(&host, "two")
            && is_settled(&host)
    });
    let returned = record(&host).1.unwrap();
    assert!(format!("{:?}", returned.quarantine.all()).contains("SwitchFailed"), "{returned:?}");
    until_told(&fleet, &host);

    // The agent is replaced in the middle of the switch, and is gone.
    let ends =
        "cp --remove-destination /bin/false /usr/bin/muster-agent; systemctl kill -s KILL muster-agent";
    publish(&mut fleet, "four", "two", ends);
    host.wait_until("it is in the middle of four", 2 * MINUTE, || is_on(&host, "four"));
    host.unplug();
    host.wait_until("no agent lives", MINUTE, || {
        host.run(["cmp", "/bin/false", "/usr/bin/muster-agent"]).status.success()
            && host.sh("pgrep -x muster-agent || true").is_empty()
    });
    nobody_went_on(&host);
    nobody_was_seen(&host);
    host.wait_until("the watchdog brings it back, offline", 2 * MINUTE, || {
        is_on(&host, "two") && is_settled(&host)
    });
    assert!(!host.run(["cmp", "/bin/false", "/usr/bin/muster-agent"]).status.success(), "its agent is back");
    let returned = record(&host).1.unwrap();
    assert!(format!("{:?}", returned.quarantine.all()).contains("AgentDied { how: Gone }"), "{returned:?}");
    assert!(host.read("/srv/slot.backs").unwrap().ends_with("from four\n"));
    assert_eq!(host.sh("ls /etc/systemd/system | grep -c muster-return || true").trim(), "0");

    host.plug_in();
    host.wait_until("its agent runs", MINUTE, || {
        host.run(["systemctl", "is-active", "--quiet", "muster-agent"]).status.success()
    });
    // What mends it is taken, as the host is whole.
    until_told(&fleet, &host);
    publish(&mut fleet, "five", "two", "true");
    host.wait_until("it is on five", 2 * MINUTE, || is_on(&host, "five"));
    host.wait_until("five is through", MINUTE, || is_settled(&host));
}
