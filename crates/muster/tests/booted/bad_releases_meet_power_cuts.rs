//! ROL-7, ROL-10: a real rollout on three booted hosts, whose canary reboots in mid-activation, or loses its power at each
//! point where something of the activation became durable. Where the release was not confirmed the host is back on
//! what it had, says so, and the rollout stops; where it was, or was not begun, the rollout goes on. So it does after the
//! reboot that a release needs.
//!
//! Points that last for less than a look at them (1 ms) are those of `crates/agent/tests/hosts_return_offline.rs`, which
//! kills the process at each operation of the disk.

use activation::{ActivationStage, GenerationLimits};
use test_support::booted::{BootedHost, MINUTE};

use crate::waves::{BACK_WITHIN, BootedWaves, WaveLine, hello, play, record, state_file};

const TIMER: &str = "/etc/systemd/system/muster-return.timer";
const WENT_DOWN: &str = "the host went down before it was confirmed";

/// Passes once somebody says so: until then nothing is confirmed.
const READY: &str = "probes:
  ready: {command: [/usr/bin/test, -e, /root/ready], every: 1s, timeout: 1s, grace: 10m}
";

/// A release whose run takes some seconds.
fn slow(text: &str) -> String {
    hello(text) + "  - exec: [/bin/sleep, \"2\"]\n    id: slow\n    unless: test -e /root/fast\n"
}

/// A release that takes effect at a boot, where the host has what asks for one.
fn with_kernel(text: &str) -> String {
    hello(text)
        + "  - exec: [mv, /root/old-kernel, /run/reboot-required]\n    id: kernel\n    \
           onlyif: test -e /root/old-kernel\n"
}

fn stage(host: &BootedHost) -> ActivationStage {
    record(host).map(|record| record.under_way).unwrap_or_default()
}

fn is_armed(host: &BootedHost) -> bool {
    matches!(stage(host), ActivationStage::Armed(_))
}

fn is_guarded(host: &BootedHost) -> bool {
    host.path(TIMER).exists()
}

/// What is reached, and how to see it.
type Moment = (&'static str, fn(&BootedHost) -> bool);

const NOT_CONFIRMED: [Moment; 4] = [
    ("armed", is_armed),
    ("the mark taken away", |host| is_armed(host) && state_file(host, "running.json").is_none()),
    ("in the middle of the switch", |host| {
        host.read("/etc/hello").is_some_and(|text| text.starts_with("cut")) && is_armed(host)
    }),
    ("to be confirmed", |host| matches!(stage(host), ActivationStage::Confirming(_))),
];

const RETURNING: [Moment; 2] = [
    ("it returns", |host| matches!(stage(host), ActivationStage::Returning(_))),
    ("it is back, and still guarded", |host| stage(host) == ActivationStage::Settled && is_guarded(host)),
];

/// Nothing was begun, or all was done.
const GOES_ON: [Moment; 4] = [
    ("its part is recorded", |host| {
        state_file(host, "rollout.json").is_some_and(|text| text.contains("fast@"))
    }),
    ("guarded, and not begun", |host| stage(host) == ActivationStage::Settled && is_guarded(host)),
    ("confirmed, and still guarded", |host| {
        matches!(stage(host), ActivationStage::Probation(_)) && is_guarded(host)
    }),
    ("it soaks", |host| matches!(stage(host), ActivationStage::Probation(_)) && !is_guarded(host)),
];

fn power(waves: &mut BootedWaves) {
    let rollout = waves.publish(&slow("reboot"));
    waves.until("it is in the middle of the switch", |host| {
        host.read("/etc/hello").as_deref() == Some("reboot\n")
    });
    waves.canary().reboot();
    waves.assert_undone("a reboot in mid-activation", &rollout, WENT_DOWN);

    for (at, (moment, is_reached)) in NOT_CONFIRMED.into_iter().enumerate() {
        let rollout = waves.publish(&slow(&format!("cut {at}")));
        waves.cut_power_when(moment, is_reached);
        waves.assert_undone(moment, &rollout, WENT_DOWN);
    }

    // A try that was made and failed; and back without a network, which is told later.
    let rollout = waves.publish(&slow("cut off"));
    let is_tried =
        |host: &BootedHost| matches!(stage(host), ActivationStage::Confirming(trial) if trial.next_try > 0);
    waves.until("it is to be confirmed", |host| matches!(stage(host), ActivationStage::Confirming(_)));
    waves.canary().unplug();
    waves.canary().write("/root/ready", "", 0o600);
    waves.cut_power_when("a try is recorded", is_tried);
    waves.canary().wait_until("back, offline", BACK_WITHIN, || {
        waves.canary().read("/etc/hello").as_deref() == Some("first\n") && !is_guarded(waves.canary())
    });
    waves.canary().ok(["rm", "/root/ready"]);
    waves.canary().plug_in();
    waves.assert_undone("a try is recorded", &rollout, WENT_DOWN);

    for (at, (moment, is_reached)) in RETURNING.into_iter().enumerate() {
        let rollout = waves.publish(&slow(&format!("return {at}")));
        waves.until("it is to be confirmed", |host| matches!(stage(host), ActivationStage::Confirming(_)));
        waves.fleet.server.ok(&["rollout", "rollback", "fast"]);
        waves.cut_power_when(moment, is_reached);
        waves.assert_reverted(moment, &rollout);
    }

    for host in &waves.hosts {
        host.write("/root/ready", "", 0o600);
        host.write("/root/fast", "", 0o600);
    }
    for (at, (moment, is_reached)) in GOES_ON.into_iter().enumerate() {
        let _ = waves.publish(&slow(&format!("goes on {at}")));
        waves.cut_power_when(moment, is_reached);
        waves.assert_confirmed(moment, &format!("goes on {at}\n"));
    }

    // It is confirmed after its boot, and no other host gets it before.
    waves.canary().write("/root/old-kernel", "", 0o600);
    let _ = waves.publish(&with_kernel("needs a boot"));
    waves.until("it waits for its boot", |host| matches!(stage(host), ActivationStage::Deferred(_)));
    waves.canary().wait_until("it is told so", MINUTE, || {
        let why = waves.fleet.server.ok(&["rollout", "explain", "web-1"]);
        why.contains("the release takes effect at its next boot")
    });
    for host in &waves.hosts[1..] {
        assert_eq!(host.read("/etc/hello").as_deref(), Some("goes on 3\n"), "{}", host.name());
    }
    waves.canary().reboot();
    waves.assert_confirmed("a release that needs a boot", "needs a boot\n");

    // The host has had more of them by now than it keeps.
    let kept = record(waves.canary()).unwrap().kept;
    assert_eq!(kept.len(), GenerationLimits::default().count, "{kept:#?}");
    waves.canary().wait_until("each is on the disk, and no other", MINUTE, || {
        let mut names: Vec<String> = kept.iter().map(|kept| kept.id.0.to_string()).collect();
        names.sort();
        names == waves.generations()
    });
}

#[test]
fn whenever_the_canary_goes_down() {
    play([WaveLine { soak: "2s", probes: READY, play: power }]);
}
