//! LIF-4, SCL-7, SYN-4, ROL-4: three hosts go from the release before to the present package and back
//! before the new one was confirmed, each in the middle of something: facts that the control plane has
//! not had, an object of which half has arrived, a release that requires what no agent has. None has to
//! join again, and nothing is lost or done twice.

use std::path::{Path, PathBuf};

use serde_json::Value;
use test_support::booted::{
    BootedFleet, BootedHost, MINUTE, Testbed, agent_package, previous_agent_package, skip,
};
use test_support::programs::write;
use test_support::wait::until_ok;
use trust::Header;

/// The content of the object that arrives in two halves, in characters that do not compress well, and
/// after how many bytes it is cut.
const LARGE: usize = 900_000;
const HALF: u64 = 200_000;
/// Nobody's feature.
const FEATURE: &str = "from-tomorrow";

const FLEET: &str = "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, \
                     freshness: 24h}\n  next: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h}\n\
                     defaults: {channel: fast}\nsync:\n  items: {nodes: [\"**\"], mode: managed, kinds: \
                     [Item], folder: /srv/items}\n";
const NODES: &str = "nodes:\n  - match: [\"requires-1\"]\n    channel: next\n    modules: [hello]\n  \
                     - match: [\"**\"]\n    modules: [hello]\n";

/// What a node may lose in no case: its id and its key.
fn identity(host: &BootedHost) -> String {
    let id = |view: Value| view["nodeId"].as_str().unwrap().to_owned();
    let status = host.run(["muster-agent", "status", "--json"]).stdout;
    id(serde_json::from_slice(&status).unwrap()) + &host.sh("sha256sum /var/lib/muster/membership.json")
}

#[test]
fn none_has_to_join_again() {
    let previous = match previous_agent_package() {
        Ok(previous) => previous,
        Err(why) => return skip(&why),
    };
    let present = agent_package();
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    write(&fleet.repo.join("fleet.yaml"), FLEET);
    write(&fleet.repo.join("nodes.yaml"), NODES);
    let hosts = testbed.boot_all(["facts-1", "half-1", "requires-1"]);
    let [facts, half, requires] = &hosts;
    for host in &hosts {
        host.install(&previous);
        fleet.join(host);
    }
    publish(&fleet, "first");
    hosts.iter().for_each(|host| fleet.until_converged(host));
    let before: Vec<String> = hosts.iter().map(identity).collect();
    facts.write("/etc/default/muster-agent", "MUSTER_LOG=debug\n", 0o644);

    // Each is in the middle of something.
    requires.unplug();
    publish(&fleet, "second");
    [facts, half].into_iter().for_each(|host| fleet.until_converged(host));
    require(&mut fleet, "next");
    requires.plug_in();
    let large = large_object(&fleet, half);
    facts.unplug();
    half.lose_after(HALF);
    fleet.server.ok(&["object", "apply", "-f", large.to_str().unwrap()]);
    let in_the_middle = || {
        half.wait_until("half of the object has arrived", MINUTE, || half.has_lost());
        until_refused(&fleet, requires);
        for (host, content) in hosts.iter().zip(["second\n", "second\n", "first\n"]) {
            host.write("/etc/hello", "by hand\n", 0o644);
            let is_right = || host.read("/etc/hello").as_deref() == Some(content);
            host.wait_until("the edit is put right", MINUTE, is_right);
        }
    };
    in_the_middle();
    change_packages(&hosts, &present);
    half.lose_after(HALF);
    in_the_middle();
    change_packages(&hosts, &previous);
    in_the_middle();

    // Everything comes to its end, at nodes that are the ones they were.
    facts.plug_in();
    half.lose_nothing();
    until_facts_are_whole(&fleet, facts);
    half.wait_until("the object is whole", MINUTE, || {
        half.read("/srv/items/item/half-1/large.yaml").is_some_and(|text| text.len() > LARGE)
    });
    publish(&fleet, "third");
    for host in &hosts {
        fleet.until_converged(host);
        assert_eq!(host.read("/etc/hello").as_deref(), Some("third\n"));
    }
    assert_eq!(hosts.iter().map(identity).collect::<Vec<_>>(), before);
    assert_eq!(fleet.server.json(&["status"])["nodes"], 3);
    assert_eq!(facts.read("/etc/default/muster-agent").as_deref(), Some("MUSTER_LOG=debug\n"));

    // And up for good.
    change_packages(&hosts, &present);
    publish(&fleet, "fourth");
    hosts.iter().for_each(|host| fleet.until_converged(host));
    assert_eq!(hosts.iter().map(identity).collect::<Vec<_>>(), before);
}

/// Publishes a release of which every host has a file with this content.
fn publish(fleet: &BootedFleet, content: &str) {
    let module = format!("resources:\n  - file: /etc/hello\n    content: \"{content}\\n\"\n");
    write(&fleet.repo.join("modules/hello/module.yaml"), &module);
    fleet.publish();
}

/// Installs another version on each; the agents are those of that version afterwards.
fn change_packages(hosts: &[BootedHost], package: &Path) {
    let change = |host: &BootedHost| {
        let pid = || host.ok(["systemctl", "show", "-P", "MainPID", "muster-agent"]);
        let before = pid();
        host.install(package);
        host.wait_until("the other agent runs", MINUTE, || {
            let is_active = host.run(["systemctl", "is-active", "muster-agent"]).status.success();
            is_active && pid() != before
        });
    };
    std::thread::scope(|scope| hosts.iter().for_each(|host| drop(scope.spawn(|| change(host)))));
}

/// A manifest of one object that does not fit into what the cable lets through.
fn large_object(fleet: &BootedFleet, host: &BootedHost) -> PathBuf {
    let path = fleet.repo.with_file_name("large.yaml");
    let name = host.name();
    let hash = |at: usize| {
        (at as u64 + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let text: String = (0..LARGE / 16).map(|at| format!("{:016x}", hash(at))).collect();
    let manifest =
        format!("kind: Item\nmetadata:\n  namespace: {name}\n  name: large\nspec:\n  text: {text}\n");
    std::fs::write(&path, manifest).unwrap();
    path
}

/// Points a channel to the newest release as one that requires what nobody has. A control plane
/// refuses to take such a release in, so it is written into its database while it is away: as one from
/// after tomorrow would have left it.
fn require(fleet: &mut BootedFleet, channel: &str) {
    fleet.kill();
    let dir = fleet.server.dir.clone();
    let key = cli::credentials::release_key(None, &dir.join("operator.json")).unwrap().key;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = store::Store::open(dir.join("muster.db")).unwrap();
        let closed = store.closed();
        let newest = store.releases(1, None).await.unwrap().remove(0);
        let channel = channel.parse().unwrap();
        let header: Header = serde_json::from_str(&newest.headers[&channel].payload).unwrap();
        let (seq, built_on) = (newest.seq + 1, Some(newest.seq));
        let header =
            cli::signer::sign(&Header { seq, requires: vec![FEATURE.to_owned()], ..header }, &[&key])
                .unwrap();
        let release = store::Release { seq, headers: [(channel, header)].into(), ..newest };
        store.commit_release(release, built_on).await.unwrap();
        drop(store);
        closed.await;
    });
    fleet.power_on();
}

/// Waits until the control plane knows why a node does not take the release, which holds the one before.
fn until_refused(fleet: &BootedFleet, host: &BootedHost) {
    let node = until_ok("the refusal is known", || {
        let node = fleet.server.node(host.name());
        let cause = node["cause"].as_str().unwrap_or_default();
        if cause.contains(&format!("requires {FEATURE}")) { Ok(node) } else { Err(format!("{node:#}")) }
    });
    assert_eq!(node["held"]["seq"], 1);
}

/// Waits until the corrections of all three agents are known; their facts are numbered without a gap.
fn until_facts_are_whole(fleet: &BootedFleet, host: &BootedHost) {
    let corrections = || -> Vec<(String, u64)> {
        let runs = fleet.server.json(&["run", "list", "--node", host.name()]);
        let is_correction =
            |run: &&Value| run["report"]["intended"] == false && run["report"]["counts"]["changed"] == 1;
        let name =
            |run: &Value| (run["incarnation"].as_str().unwrap().to_owned(), run["seq"].as_u64().unwrap());
        runs.as_array().unwrap().iter().filter(is_correction).map(name).collect()
    };
    host.wait_until("three corrections are known", MINUTE, || corrections().len() >= 3);
    let found = corrections();
    let incarnations: std::collections::BTreeSet<&String> =
        found.iter().map(|(incarnation, _)| incarnation).collect();
    let numbers: std::collections::BTreeSet<u64> = found.iter().map(|(_, seq)| *seq).collect();
    assert_eq!(
        (incarnations.len(), numbers.len()),
        (1, found.len()),
        "one log, and nothing twice: {found:?}"
    );
}
