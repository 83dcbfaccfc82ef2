//! ROL-1, ROL-2: what the fleet repo says of rollouts is what the headers of its channels say, wave by wave; a channel
//! that says nothing has the header of before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use model::health_probe::{HealthProbeKind, HealthProbeMode, MetricBound};
use model::share::Share;
use model::{Channel, Digest, Timestamp};
use resolve::release::{Builder, Stamp, headers};
use resolve::rollouts::ChannelRollout;
use resolve::{Changed, Fleet, Resolver, Tree, check, render};
use trust::Header;
use trust::release::Fallback;
use trust::rollout_terms::{OnFailure, WaveMembers};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const HEAD: &str = "format: 1\nname: acme\nchannels: {stable: {freshness: 24h}, edge: {freshness: 24h}}\n\
                    defaults: {channel: stable}\nwindows: {nights: {from: \"22:00\", to: \"04:00\", zone: UTC}}\n";
const NODES: &str = "nodes:\n  - match: [web-1.example.com, web-2.example.com]\n    labels: {ring: \"0\", tier: web}\n  \
                     - match: [db-1.example.com]\n    labels: {tier: db}\n  - match: [far.example.com]\n    channel: edge\n  \
                     - match: [\"lab-*.example.com\"]\n    labels: {tier: lab}\n";
const GROUPS: &str = "groups:\n  - {name: databases, where: 'labels.tier == \"db\"'}\n";
const STABLE: &str = "rollouts:
  stable:
    waves:
      - {name: canary, where: 'labels.ring == \"0\"', gate: {soak: 30m, success: 100%}}
      - {name: tenth, percent: 10, notBefore: +24h, gate: {success: 95}}
      - {name: data, nodes: \"@databases\"}
    budgets: [{where: 'labels.tier == \"db\"', inFlight: 5%, max: 50}]
    edges: [{before: 'labels.tier == \"db\"', after: {nodes: \"web-*.example.com\"}}]
    after: edge
    onFailure: rollback
    confirm: {window: 5m, tries: 3, offline: confirm}
    freeze: nights
    pins: [{nodes: [db-1.example.com], until: 2027-02-01, reason: \"ticket 812\"}]
probes:
  web: {http: \"http://localhost/health\", where: 'labels.tier == \"web\"', every: 10s, mode: observe}
  load: {metric: node_load1, url: \"http://localhost:9100/metrics\", atMost: 4.5}
";

fn fleet(staged: &str) -> Fleet {
    let files =
        [("fleet.yaml", HEAD), ("rollouts.yaml", staged), ("nodes.yaml", NODES), ("groups.yaml", GROUPS)];
    let tree = Tree::of(files);
    check(&tree).unwrap_or_else(|found| panic!("{}", render(&found, &tree)))
}

fn planned(staged: &str) -> Vec<ChannelRollout> {
    fleet(staged).rollouts(NOW, ["lab-1.example.com", "stranger.example.com", "web-1.example.com"]).unwrap()
}

/// What is wrong, with where.
fn wrong(staged: &str) -> Vec<String> {
    let found = fleet(staged).rollouts(NOW, []).unwrap_err();
    let place = |d: &lang::Diagnostic| d.span.as_ref().map(|span| format!("{}:{}", span.line, span.column));
    found.iter().map(|d| format!("{} {} {}", place(d).unwrap(), d.code, d.message)).collect()
}

fn signed(fleet: &Fleet, before: &[(&str, Fallback)]) -> BTreeMap<Channel, Header> {
    let everything = Changed { patterns: true, modules: true, channels: true, hostnames: Vec::new() };
    let built = Builder::new().build(fleet.specialize(), &everything).unwrap();
    let before =
        before.iter().map(|(channel, fallback)| (channel.parse().unwrap(), vec![fallback.clone()])).collect();
    let stamp = Stamp { fleet: "acme-1".parse().unwrap(), seq: 7, label: None, created: NOW, before };
    headers(&built, &stamp).unwrap()
}

#[test]
fn the_header_holds_the_terms_and_the_policy_the_probes() {
    let fleet = fleet(STABLE);
    let before = Fallback { seq: 6, header: Digest::of(b"six") };
    let headers = signed(&fleet, &[("stable", before.clone()), ("edge", before.clone())]);
    let [edge, stable] = ["edge", "stable"].map(|channel| &headers[&channel.parse().unwrap()]);
    assert_eq!(
        (&edge.rollout, edge.requires.as_slice(), edge.fallbacks.as_slice()),
        (&None, &[][..], &[][..])
    );
    assert_eq!(stable.requires, ["rollout"]);
    assert_eq!(stable.fallbacks, [before], "onFailure: rollback names what the nodes go back to");
    stable.check_rollout().unwrap();
    let terms = stable.rollout.as_ref().unwrap();
    let names: Vec<_> = terms.waves.iter().map(|wave| wave.name.as_str()).collect();
    assert_eq!(names, ["canary", "tenth", "data"]);
    let [canary, tenth, data] = terms.waves.as_slice() else { panic!("{terms:?}") };
    assert!(matches!(&canary.members, WaveMembers::Where(s) if s.as_str() == "where:labels.ring == \"0\""));
    assert!(matches!(&data.members, WaveMembers::Where(s) if s.as_str() == "@databases"));
    assert_eq!(tenth.members, WaveMembers::Percent(10));
    assert_eq!((canary.not_before, tenth.not_before), (None, Some(NOW.plus(Duration::from_secs(86_400)))));
    assert_eq!((canary.gate.soak_secs, canary.gate.success, tenth.gate.success), (1800, 100, 95));
    let budget = &terms.budgets[0];
    assert_eq!((budget.in_flight, budget.max), (Some(Share::Percent(5)), Some(50)));
    assert_eq!(terms.edges[0].after.as_str(), "web-*.example.com");
    assert_eq!(terms.after, ["edge".parse().unwrap()]);
    assert_eq!((terms.on_failure, terms.seed.as_str()), (OnFailure::Rollback, "stable"));
    assert_eq!((terms.confirm.window_secs, terms.confirm.tries), (300, 3));
    assert_eq!(terms.freeze[0].window.from, "22:00");
    assert_eq!(
        (terms.pins[0].until, terms.pins[0].reason.as_str()),
        ("2027-02-01T00:00:00Z".parse().unwrap(), "ticket 812")
    );

    let probes = &fleet.specialize().channels["stable"].probes;
    assert_eq!(probes[0].of.as_deref(), Some("where:labels.tier == \"web\""));
    assert_eq!((probes[0].probe.name.as_str(), probes[0].probe.mode), ("web", HealthProbeMode::Observe));
    let HealthProbeKind::Metric { bound, threshold_milli, .. } = probes[1].probe.kind else {
        panic!("{probes:?}")
    };
    assert_eq!((bound, threshold_milli), (MetricBound::AtMost, 4500));
    assert!(
        fleet.specialize().channels["edge"].probes.is_empty(),
        "a channel without a rollout asks no probe"
    );
}

/// Agents of before take what they took before.
#[test]
fn a_fleet_without_rollouts_has_the_headers_and_sets_of_before() {
    let before = Fallback { seq: 6, header: Digest::of(b"six") };
    let probes = "probes: {web: {unit: nginx.service}}\n";
    let fleet = fleet(probes);
    for header in signed(&fleet, &[("stable", before)]).values() {
        let form = String::from_utf8(model::canonical::to_bytes(header).unwrap()).unwrap();
        for key in ["\"rollout\"", "\"requires\"", "\"fallbacks\""] {
            assert!(!form.contains(key), "{form}");
        }
    }
    assert!(fleet.specialize().channels.values().all(|channel| channel.probes.is_empty()));
    assert_eq!(
        fleet.idle_probes(),
        ["rollouts.yaml:1: probe `web` is asked of no node: no channel has `rollouts`"]
    );
}

#[test]
fn each_wave_says_when_and_how_many() {
    let planned = planned(STABLE);
    let [stable] = planned.as_slice() else { panic!("{planned:?}") };
    let waves: Vec<_> = stable.waves.iter().map(|wave| (wave.name.as_str(), wave.nodes)).collect();
    let drawn = waves.iter().find(|(name, _)| *name == "tenth").unwrap().1;
    assert_eq!(waves[0], ("canary", 2), "the nodes of patterns are those that are enrolled");
    assert_eq!(waves.iter().map(|(_, nodes)| nodes).sum::<usize>(), 4);
    if drawn == 0 {
        assert_eq!(waves[2..], [("data", 1), ("rest", 1)]);
        assert_eq!(stable.waves[3].first, ["lab-1.example.com".parse().unwrap()]);
        assert!(stable.waves[3].is_implied);
        assert_eq!(
            stable.waves[3].not_before,
            Some(NOW.plus(Duration::from_secs(86_400))),
            "no wave is before one before"
        );
    }
}

#[test]
fn what_shows_only_beside_time_and_nodes_is_named_where_it_stands() {
    let waves = |waves: &str| format!("rollouts:\n  stable:\n    waves:\n{waves}");
    let past = waves("      - {name: a, nodes: \"*\", notBefore: 2020-01-01}\n");
    let found = wrong(&past);
    assert!(found[0].starts_with("4:42 E112 wave `a` begins at 2020-01-01T00:00:00Z ("), "{found:?}");
    let falls = waves(
        "      - {name: a, nodes: \"db-*\", notBefore: +48h}\n      - {name: b, nodes: \"*\", notBefore: 2027-01-16}\n",
    );
    let found = wrong(&falls);
    assert!(
        found[0].starts_with("5:42 E112 wave `b` begins at 2027-01-16T00:00:00Z at the earliest, before an"),
        "{found:?}"
    );
    let far = waves("      - {name: a, nodes: \"*\", notBefore: 2029-01-01}\n");
    assert!(wrong(&far)[0].starts_with("4:42 E112 wave `a` begins 2029"), "{:?}", wrong(&far));
    for (staged, hint) in [
        (&past, "drop `notBefore`, give it a later time, or count from the signature, as in `+24h`"),
        (&falls, "give it a later time, or none: it begins after the waves before it in any case"),
        (&far, "give it a time within a year of the signature, such as `+30d`"),
    ] {
        assert_eq!(fleet(staged).rollouts(NOW, []).unwrap_err()[0].help.as_deref(), Some(hint));
    }
    // Each edge is right alone; a node that is in both ends would wait for itself.
    let circle = "rollouts:\n  stable:\n    edges:\n      - {before: 'labels.tier == \"web\"', after: {nodes: \"web-*.example.com\"}}\n";
    let found = wrong(circle);
    assert!(found[0].starts_with("4:9 E114 the edges "), "{found:?}");
    // An edge beside it is not to blame.
    let beside = circle.replace(
        "edges:\n",
        "edges:\n      - {before: 'labels.tier == \"db\"', after: {nodes: \"lab-*.example.com\"}}\n",
    );
    let found = wrong(&beside);
    assert!(found[0].starts_with("5:9 E114 the edges "), "{found:?}");
}

/// A wave waits neither for who is pinned nor for who is not enrolled.
#[test]
fn each_wave_says_how_many_it_waits_for() {
    let staged = "rollouts:\n  stable:\n    waves:\n      - {name: canary, nodes: web-1.example.com}\n      \
                  - {name: data, nodes: [\"db-*.example.com\", \"lab-*.example.com\"]}\n    \
                  pins: [{nodes: [web-1.example.com, db-1.example.com], until: 2099-01-31}]\n";
    let planned = planned(staged);
    let waves: Vec<_> = planned[0]
        .waves
        .iter()
        .map(|wave| (wave.name.as_str(), wave.nodes, wave.pinned, wave.enrolled, wave.awaited))
        .collect();
    assert_eq!(waves, [("canary", 1, 1, 1, 0), ("data", 2, 1, 1, 1), ("rest", 1, 0, 0, 0)]);
    let over = fleet(&staged.replace("2099", "2020")).rollouts(NOW, ["web-1.example.com"]).unwrap();
    let canary = &over[0].waves[0];
    assert_eq!((canary.pinned, canary.awaited), (0, 1), "a pin that is over keeps nobody");
}

#[test]
fn what_may_be_a_slip_of_the_pen_is_a_warning() {
    let staged = "rollouts:\n  stable:\n    waves:\n      - {name: a, nodes: \"dB-*\"}\n    budgets:\n      - {nodes: nobody, max: 1}\n    \
                  pins:\n      - {nodes: [db-1.example.com], until: 2020-01-01}\n";
    let planned = planned(staged);
    let found = &planned[0].warnings;
    assert!(
        found[0].starts_with("rollouts.yaml:8: the pin of db-1.example.com is over since 2020-01-01"),
        "{found:?}"
    );
    assert_eq!(
        found[1],
        "rollouts.yaml:4: channel stable: nobody is in wave `a`: its rule takes no node that no earlier wave took"
    );
    assert_eq!(found[2], "rollouts.yaml:6: channel stable: the budget of `nobody` takes no node");
    assert!(planned[0].terms.pins.is_empty(), "a pin that is over is not signed");
}

/// Who is not enrolled yet is no reason for a warning.
#[test]
fn a_wave_that_only_nodes_of_patterns_will_be_in_is_not_empty() {
    let staged = "rollouts:\n  stable:\n    waves:\n      - {name: canary, nodes: web-1.example.com}\n      \
                  - {name: lab, where: 'labels.tier == \"lab\"'}\n      - {name: spare, nodes: \"spare-*\"}\n";
    let planned = fleet(staged).rollouts(NOW, []).unwrap();
    assert_eq!(
        planned[0].warnings,
        [
            "rollouts.yaml:6: channel stable: nobody is in wave `spare`: its rule takes no node that no earlier wave took",
            "rollouts.yaml:2: channel stable: no enforcing probe is asked of any node of canary, rest: whatever the \
             release does to it, it is confirmed"
        ]
    );
}

/// What does nothing is named: a wait for a channel without a rollout, a second budget of the same nodes, a wave that no probe
/// looks at.
#[test]
fn what_does_nothing_is_a_warning() {
    let staged = "rollouts:\n  stable:\n    waves: [{name: web, nodes: \"web-*.example.com\"}, {name: data, nodes: \"db-*.example.com\"}]\n    \
                  budgets:\n      - {nodes: \"web-*.example.com\", max: 2}\n      - {nodes: \"web-*.example.com\", max: 1}\n    after: [edge]\n\
                  probes:\n  web: {unit: nginx.service, nodes: \"web-*.example.com\"}\n  seen: {unit: db.service, mode: observe}\n";
    let warnings = fleet(staged).rollouts(NOW, []).unwrap()[0].warnings.clone();
    assert_eq!(
        warnings,
        [
            "rollouts.yaml:6: another budget is of the same nodes (`web-*.example.com`): both count, so write both limits into one",
            "rollouts.yaml:7: channel stable goes after edge, which has no rollout: it waits for nothing",
            "rollouts.yaml:2: channel stable: no enforcing probe is asked of any node of data: whatever the release does \
             to it, it is confirmed",
        ]
    );
    let all = staged.replace(", mode: observe", "").replace("after: [edge]", "").replace("max: 2", "max: 3");
    let warnings = fleet(&all).rollouts(NOW, []).unwrap()[0].warnings.clone();
    assert_eq!(warnings.len(), 1, "one probe of all nodes looks at each wave: {warnings:?}");
}

/// CFG-1: what is wrong with times shows beside whatever else is wrong.
#[test]
fn times_are_judged_in_a_fleet_that_is_broken() {
    let staged = "rollouts:\n  stable:\n    onFailure: undo\n    waves:\n      - {name: a, percent: 20, notBefore: 2020-01-01}\n      \
                  - {name: b, percent: 30, notBefore: +48h}\n      - {name: c, percent: 40, notBefore: +24h}\n";
    let mut resolver = Resolver::new();
    let files =
        [("fleet.yaml", HEAD), ("rollouts.yaml", staged), ("nodes.yaml", NODES), ("groups.yaml", GROUPS)];
    let changes = Tree::of(files).files.into_iter().map(|(path, file)| (path, Some(file)));
    let found = resolver.update(changes.collect()).unwrap_err();
    assert_eq!(found.len(), 1, "{found:?}");
    let times = resolver.mistaken_times(NOW);
    let said: Vec<_> =
        times.iter().map(|mistake| (mistake.span.as_ref().unwrap().line, mistake.code)).collect();
    assert_eq!(said, [(5, "E112"), (7, "E112")], "{times:?}");
}

/// A node has at most 32 probes, however many its channel has.
#[test]
fn too_many_probes_of_one_node_are_named() {
    let probes = |of: &str| -> String {
        let probe = |number: u32| format!("  p{number}: {{unit: nginx.service{of}}}\n");
        format!("rollouts: {{stable: {{}}}}\nprobes:\n{}", (0..33).map(probe).collect::<String>())
    };
    let found = wrong(&probes(""));
    assert!(
        found[0].contains("E099") && found[0].contains("db-1.example.com of channel `stable` has 33 probes"),
        "{found:?}"
    );
    fleet(&probes(", nodes: \"lab-*\"")).rollouts(NOW, []).unwrap();
}

/// A publish of the same says nothing new, however much later: times that are counted from the signature are not
/// another policy.
#[test]
fn the_same_policy_is_known_again() {
    let fleet = fleet(STABLE);
    let policy = &fleet.rollout_policies()["stable"];
    let header = &signed(&fleet, &[])[&"stable".parse().unwrap()];
    assert!(policy.is_of(header.rollout.as_ref().unwrap(), NOW));
    let other = self::fleet(&STABLE.replace("10, notBefore", "20, notBefore"));
    assert!(!other.rollout_policies()["stable"].is_of(header.rollout.as_ref().unwrap(), NOW));
}
