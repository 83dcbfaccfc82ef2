//! CFG-1: `examples/fleet`, which the first five minutes publish, is right, and means what
//! its README says it means; so do `examples/company`, the fleet of a small company, and `examples/rollouts`,
//! whose releases arrive in waves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::Path;

use model::Timestamp;
use model::replication::Mode;
use resolve::{Fleet, Tree, check, render};
use trust::rollout_terms::OnFailure;

fn read_into(tree: &mut Tree, top: &Path, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_into(tree, top, &path);
        } else {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            tree.files.insert(name, std::fs::read(&path).unwrap().into());
        }
    }
}

fn example(name: &str) -> Fleet {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut tree = Tree::default();
    read_into(&mut tree, &top, &top);
    match check(&tree) {
        Ok(fleet) => fleet,
        Err(found) => panic!("{}", render(&found, &tree)),
    }
}

#[test]
fn the_example_is_right() {
    let fleet = example("fleet");
    let nodes = fleet.specialize();
    let web = nodes.node("web-1.demo").unwrap().read_params().unwrap();
    assert_eq!(web.modules, ["base", "web"]);
    assert_eq!(web.node.environment.as_deref(), Some("production"));
    assert!(!web.observe);

    let staging = nodes.node("web-2.demo").unwrap().read_params().unwrap();
    assert_eq!(staging.vars["web.port"], 8081.into());
    assert_eq!(staging.host_vars["web.workers"], 3.into());

    let lab = nodes.node("lab-1.demo").unwrap().read_params().unwrap();
    assert!(lab.observe);
    assert_eq!(lab.modules, ["base"]);
    let granted = |name| nodes.node(name).unwrap().grants.clone();
    let delegations = granted("lab-1.demo").read_delegations().unwrap();
    assert_eq!(delegations["look"].commands, [["/usr/bin/uptime"]]);
    assert!(delegations["look"].actions.is_empty());
    assert!(granted("web-1.demo").read_delegations().unwrap()["web"].actions.contains_key("reload"));
    let sync = |name| granted(name).read_sync().unwrap().unwrap();
    let (web, lab) = (sync("web-1.demo"), sync("lab-1.demo"));
    assert_eq!((web.mode, web.folder.as_deref()), (Mode::Managed, Some("/srv/sites")));
    assert_eq!(
        (web.kinds, lab.kinds, lab.mode),
        (vec!["Site".to_owned()], vec!["Site".to_owned()], Mode::Autonomous)
    );
    assert!(nodes.node("db-1.demo").is_none());
    assert_eq!(nodes.blobs.len(), 2);
}

#[test]
fn the_company_is_right() {
    let fleet = example("company");
    let nodes = fleet.specialize();
    let of = |name| nodes.node(name).unwrap().read_params().unwrap();
    let base = ["base", "people", "hardening", "updates", "time"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    assert_eq!(of("web-7.example.com").modules, with(&["site"]));
    assert_eq!(of("db-1.example.com").modules, with(&["postgresql", "backup"]));
    assert_eq!(of("db-1.example.com").host_vars["backup.keep_days"], 30.into());
    let staging = of("staging-1.example.com");
    assert_eq!(staging.modules, with(&["site", "postgresql", "backup"]));
    assert_eq!(staging.node.channel, "early");
    let people = |params: &catalog::module::Params| match &params.vars["people.accounts"] {
        lang::Value::Map(people) => people.keys().cloned().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(people(&staging), ["amy", "bo", "dan"], "an environment adds to the fleet's people");
    assert_eq!(people(&of("web-1.example.com")), ["amy", "bo"]);
    assert!(of("legacy-3.example.com").observe, "a machine that is taken over is only observed");
    assert!(nodes.node("laptop.example.com").is_none());
}

/// ROL-1: the waves, budgets, probes and windows of `examples/rollouts` take the nodes that its comments say.
#[test]
fn the_rollouts_are_right() {
    let fleet = example("rollouts");
    let enrolled = ["web-2.example.com", "web-3.example.com", "db-2.example.com", "branch-1.example.com"];
    let planned = fleet.rollouts(Timestamp::from_secs(1_800_000_000), enrolled).unwrap();
    let [branches, stable] = planned.as_slice() else { panic!("{planned:?}") };
    let warnings: Vec<&String> = planned.iter().flat_map(|rollout| &rollout.warnings).collect();
    assert!(warnings.iter().all(|warning| warning.contains("wave `tenth`")), "{warnings:?}");
    let waves: Vec<(&str, usize)> =
        stable.waves.iter().map(|wave| (wave.name.as_str(), wave.nodes)).collect();
    assert_eq!(waves.iter().map(|(_, nodes)| nodes).sum::<usize>(), 5);
    assert_eq!(waves[0], ("canary", 2));
    assert_eq!(stable.terms.budgets[0].max, Some(1));
    assert_eq!(stable.terms.on_failure, OnFailure::Rollback);
    assert_eq!(branches.terms.after, ["stable".parse().unwrap()]);
    assert_eq!(branches.waves.iter().map(|wave| wave.nodes).collect::<Vec<_>>(), [1]);
    assert!(fleet.idle_probes().is_empty() && fleet.idle_groups().is_empty());
    assert_eq!(fleet.specialize().channels["stable"].probes.len(), 3);
}
