//! ROL-1, ROL-7, ROL-10, ROL-12: real releases on booted hosts, three for each line. A release that breaks the network, the
//! agent's unit or its program, that kills the agent again and again, that stops a unit, or whose service hangs after 20 s,
//! is undone by the host that got it first, by itself, and stops there: it goes on to nobody, and the host says why once it
//! can.
//!
//! The lines run side by side: a host that is cut off waits for the end of its window, a minute at least.

use std::path::Path;

use crate::waves::{BootedWaves, WaveLine, hello, play};

const NOT_CONFIRMED: &str = "nothing confirmed it within its window";
const DROP_INS: &str = "/etc/systemd/system/muster-agent.service.d";

/// Nothing is dropped, and connections are known.
const OPEN: &str = "policy accept; ct state established,related accept;";
/// All but the host itself is dropped.
const CLOSED: &str = "policy drop; iif lo accept; oif lo accept;";
/// What is open goes on, and nobody comes in or out anew: a contact over a connection of before the switch does not notice.
const NOTHING_NEW: &str = "policy drop; ct state established,related accept; meta l4proto icmpv6 accept; iif lo accept; \
                           oif lo accept;";

/// A release with a packet filter, each of whose chains has these rules.
fn firewall(text: &str, rules: &str) -> String {
    let chain =
        |hook: &str| format!("        chain {hook} {{ type filter hook {hook} priority 0; {rules} }}\n");
    let table = format!("      table inet filter {{\n{}{}      }}\n", chain("input"), chain("output"));
    hello(text)
        + "  - file: /etc/nftables.conf\n    notify: load\n    content: |\n      #!/usr/sbin/nft -f\n      flush ruleset\n"
        + &table
        + "  - service: nftables\n    state: running\nhandlers:\n  - service: nftables\n    id: load\n    reload: true\n"
}

/// The network is broken by the packet filter, as by a rule too much.
fn network(waves: &mut BootedWaves) {
    std::thread::scope(|scope| {
        for host in &waves.hosts {
            scope.spawn(|| host.sh("apt-get -q update && apt-get -q install -y nftables"));
        }
    });
    let _ = waves.publish(&firewall("open", OPEN));
    waves.assert_confirmed("a packet filter", "open\n");
    let open = rules(waves);

    let rollout = waves.publish(&firewall("no network", CLOSED));
    waves.assert_undone("without a network", &rollout, NOT_CONFIRMED);
    assert_eq!(rules(waves), open);

    let rollout = waves.publish(&firewall("nothing new", NOTHING_NEW));
    waves.assert_undone("with the connections of before alone", &rollout, NOT_CONFIRMED);
    assert_eq!(rules(waves), open);
}

fn rules(waves: &BootedWaves) -> String {
    waves.canary().sh("nft list ruleset")
}

/// A drop-in of the agent's unit. Nothing in the release starts the agent anew.
fn with_drop_in(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("      {line}\n")).collect();
    hello("bad agent")
        + &format!(
            "  - directory: {DROP_INS}\n  - file: {DROP_INS}/bad.conf\n    content: |\n      [Service]\n{lines}"
        )
}

/// It runs for a second each time, as an agent that panics over what the release brings along; a panic that the agent
/// outlives is none.
const DIES: &str = "ExecStartPost=/bin/sh -c 'sleep 1; kill -ABRT $MAINPID'";

/// Says that the agent is up, as systemd sees it.
const AGENT_IS_UP: &str = "probes:
  agent: {unit: muster-agent.service, every: 1s, timeout: 1s, grace: 10m}
";

/// The agent's unit is broken.
fn unit(waves: &mut BootedWaves) {
    let has_drop_ins = |waves: &BootedWaves| waves.canary().path(DROP_INS).exists();

    let rollout = waves.publish(&with_drop_in("ExecStart=/bin/false"));
    waves.assert_undone("a unit that systemd refuses", &rollout, "systemd does not start the agent");
    assert!(!has_drop_ins(waves));

    let rollout = waves.publish(&with_drop_in("ExecStart=\nExecStart=/bin/false"));
    waves.assert_undone("a unit that starts something else", &rollout, NOT_CONFIRMED);
    assert!(!has_drop_ins(waves));

    let rollout = waves.publish(&with_drop_in(DIES));
    waves.assert_undone("an agent that dies of it", &rollout, "the agent died in it 3 times");
    assert!(!has_drop_ins(waves));

    // A unit that works is confirmed, by the agent that it starts.
    let works = hello("good unit")
        + &format!(
            "  - directory: {DROP_INS}\n  - file: {DROP_INS}/own.conf\n    content: |\n      [Service]\n      \
             IOWeight=50\n"
        );
    let before = main_pid(waves);
    let _ = waves.publish(&works);
    waves.assert_confirmed("a unit that works", "good unit\n");
    assert_ne!(main_pid(waves), before, "it was started anew");

    // ROL-12: what the agent died of is in quarantine, for the same content published again too.
    let rollout = waves.publish(&with_drop_in(DIES));
    let agent = main_pid(waves);
    waves.assert_undone("the same content again", &rollout, "this host returned from it: the agent died");
    assert_eq!(main_pid(waves), agent, "it was not tried");
}

fn main_pid(waves: &BootedWaves) -> String {
    waves.canary().sh("systemctl show --property=MainPID --value muster-agent")
}

/// A service that answers for 20 s, and hangs then: one that ended the agent would start again at once.
const SHORT_LIVED: &str = "  - service: shop
    state: running
    unit: |
      [Service]
      ExecStart=/bin/sh -c 'touch /run/shop.answers; sleep 20; rm /run/shop.answers; sleep infinity'
";

/// Fails once that service hangs; a release without it has nothing to fail.
const SHOP_ANSWERS: &str = "probes:
  shop: {command: [/bin/sh, -c, 'test ! -e /etc/systemd/system/shop.service || test -e /run/shop.answers'], \
                            every: 1s, timeout: 1s, grace: 1s, sustained: 3s}
";

/// Says that two units are up, one of which is nowhere.
const UNITS_ARE_UP: &str = "probes:
  cron: {unit: cron, every: 1s, timeout: 1s, grace: 0s, sustained: 2s}
  nowhere: {unit: nowhere.timer, every: 1s, timeout: 1s, grace: 0s, sustained: 2s}
";

/// The service that a release is about hangs, the agent's program is another one, and units are not up.
fn service_and_program(waves: &mut BootedWaves) {
    let rollout = waves.publish(&(hello("short-lived") + SHORT_LIVED));
    let why = "the probe shop failed: it exits with 1";
    waves.assert_undone("a service that hangs after 20 s", &rollout, why);
    assert_eq!(waves.canary().read("/etc/systemd/system/shop.service"), None);

    waves.add_file("no-agent", Path::new("/bin/false"));
    let replaced =
        hello("no agent") + "  - file: /usr/bin/muster-agent\n    source: no-agent\n    mode: \"0755\"\n";
    let rollout = waves.publish(&replaced);
    waves.until("the program is replaced", |host| {
        host.path("/usr/bin/muster-agent").metadata().is_ok_and(|file| file.len() < 1024 * 1024)
    });
    waves.assert_undone("the agent's program replaced by /bin/false", &rollout, NOT_CONFIRMED);

    waves.declare("2s", UNITS_ARE_UP);
    let rollout = waves.publish(&(hello("no cron") + "  - service: cron\n    state: stopped\n"));
    waves.assert_undone("a unit stopped, and one that is nowhere", &rollout, " failed: ");
    assert_eq!(waves.canary().sh("systemctl is-active cron"), "active\n");
    let journal = waves.canary().sh("journalctl --no-pager --unit muster-agent");
    for said in ["a probe: cron.service is inactive (dead)", "a probe: there is no unit nowhere.timer"] {
        assert!(journal.contains(said), "{said:?} is not in {journal}");
    }
}

#[test]
fn of_the_network_the_agent_and_its_services() {
    play([
        WaveLine { soak: "2s", probes: "", play: network },
        WaveLine { soak: "2s", probes: AGENT_IS_UP, play: unit },
        // Confirmed long before it fails: the soak of its wave holds the others back.
        WaveLine { soak: "30s", probes: SHOP_ANSWERS, play: service_and_program },
    ]);
}
