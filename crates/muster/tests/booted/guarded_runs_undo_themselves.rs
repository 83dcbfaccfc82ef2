//! CNV-11: on a booted host a run that changes the firewall is undone by the host where no contact follows it, with the
//! cable pulled, after a power cut in its middle, or because the new rules drop everything; the host says so, and makes the
//! change once the control plane is back, or another one.

use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};

const RULES: &str = "/etc/nftables.conf";

/// A release that changes the rules, and whose run goes on for a while after that.
fn rules(fleet: &mut BootedFleet, text: &str) {
    fleet.module(
        "net",
        &format!(
            "resources:\n  - file: {RULES}\n    content: \"{text}\\n\"\n  - exec: [sh, -c, \"sleep 12; touch \
             /run/{text}\"]\n    id: slow\n    creates: /run/{text}\n"
        ),
    );
}

/// A fleet whose guarded runs have the shortest window.
fn guarded_fleet(testbed: &Testbed) -> BootedFleet {
    let fleet = BootedFleet::start(testbed);
    std::fs::write(
        fleet.repo.join("fleet.yaml"),
        "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h, guard: \
         {window: 10s}}\ndefaults: {channel: fast}\n",
    )
    .unwrap();
    fleet
}

/// A release with a packet filter, each of whose chains has this rule; the handler that its file notifies loads it.
fn filter(fleet: &mut BootedFleet, rule: &str) {
    let chain =
        |hook: &str| format!("        chain {hook} {{ type filter hook {hook} priority 0; {rule} }}\n");
    fleet.module(
        "net",
        &format!(
            "resources:\n  - file: {RULES}\n    notify: load\n    content: |\n      flush ruleset\n      table inet filter \
             {{\n{}{}      }}\nhandlers:\n  - exec: [nft, -f, {RULES}]\n    id: load\n",
            chain("input"),
            chain("output")
        ),
    );
}

/// What a verb prints, whatever its exit code says of the host.
fn printed(host: &BootedHost, verb: &str) -> String {
    String::from_utf8_lossy(&host.run(["muster-agent", verb]).stdout).into_owned()
}

fn has(host: &BootedHost, text: &str) -> bool {
    host.read(RULES).as_deref() == Some(&format!("{text}\n"))
}

#[test]
fn a_pulled_cable_and_a_power_cut_undo_what_no_contact_followed() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = guarded_fleet(&testbed);
    rules(&mut fleet, "one");
    let host = testbed.boot("edge-1");
    fleet.join(&host);
    fleet.publish_until_converged(&[&host]);
    host.wait_until("a contact followed", MINUTE, || !printed(&host, "status").contains("GUARDED"));

    rules(&mut fleet, "two");
    fleet.publish();
    host.wait_until("the rules changed", MINUTE, || has(&host, "two"));
    let status = printed(&host, "status");
    assert!(status.contains("GUARDED        net/file:/etc/nftables.conf"), "{status}");
    host.unplug();
    host.wait_until("they were put back", MINUTE * 2, || has(&host, "one"));
    host.wait_until("it says what it holds back", MINUTE, || {
        let status = printed(&host, "status");
        status.contains("HELD BACK      net/file:/etc/nftables.conf")
            && status.contains("once the control plane")
    });
    let doctor = printed(&host, "doctor");
    assert!(doctor.contains("warn  guard"), "{doctor}");
    host.plug_in();
    fleet.until_converged(&host);
    assert!(has(&host, "two"), "the control plane was away, and is back");

    rules(&mut fleet, "three");
    fleet.publish();
    host.wait_until("the rules changed", MINUTE, || has(&host, "three"));
    host.kill();
    host.power_on();
    host.wait_until("it undid the change at its boot", MINUTE, || {
        host.journal().contains("the host went down before a contact followed")
    });
    fleet.until_converged(&host);
    assert!(has(&host, "three"), "a host that went down tries once more");
    host.wait_until("nobody looks any more", MINUTE, || {
        host.read("/etc/systemd/system/muster-return.service").is_none()
    });
}

/// The cable is in and the control plane is there: what cuts the host off is the change itself.
#[test]
fn rules_that_drop_everything_are_taken_back() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = guarded_fleet(&testbed);
    let host = testbed.boot("edge-1");
    host.sh("apt-get -q update && apt-get -q install -y nftables");
    filter(&mut fleet, "policy accept;");
    fleet.join(&host);
    fleet.publish_until_converged(&[&host]);
    host.wait_until("a contact followed", MINUTE, || !printed(&host, "status").contains("GUARDED"));
    let loaded = || host.sh("nft list ruleset");
    let open = (loaded(), host.read(RULES));

    filter(&mut fleet, "policy drop;");
    fleet.publish();
    // Once more with the next contact: the control plane might have been away.
    for _ in 0..2 {
        host.wait_until("it is cut off", MINUTE, || loaded().contains("policy drop"));
        host.wait_until("it is undone", MINUTE, || (loaded(), host.read(RULES)) == open);
    }
    host.wait_until("it says what it holds back", MINUTE, || {
        let status = printed(&host, "status");
        status.contains("HELD BACK") && status.contains("2 of 3 tries were made")
    });
    host.wait_until("the control plane hears why", MINUTE, || {
        let runs = fleet.server.json(&["run", "list", "--node", "edge-1"]).to_string();
        runs.contains("no contact with the control plane followed within the window")
    });
    assert_eq!((loaded(), host.read(RULES)), open, "it is not made again");

    filter(&mut fleet, "policy accept; counter;");
    fleet.publish_until_converged(&[&host]);
    assert!(loaded().contains("counter"), "{}", loaded());
    host.wait_until("a contact followed", MINUTE, || !printed(&host, "status").contains("GUARDED"));
}
