//! `muster bench rehearse`: the rollout of a large fleet, played beforehand (ROL-11).

use std::path::Path;
use std::time::Instant;

use cli::check;
use cli::folder::RepoFolder;
use cli::rehearse::{RehearsalRequest, prepare};
use model::Timestamp;
use rehearsal::{FaultShare, FaultShares};

use crate::process::memory_of;
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, During};

/// A rehearsal of 10,000 nodes may take this long, in seconds; of fewer, and of debug builds, as long.
const FULL_SECS: f64 = 60.0;
/// When it begins: always then, so that each run plays the same.
const BEGINS: Timestamp = Timestamp::from_secs(1_800_000_000);

pub(super) fn run(count: usize, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    write_repo(dir.path()).during(|| format!("cannot write a fleet repo into {}", dir.path().display()))?;
    let checked = check::read(&mut RepoFolder::open(dir.path())?)?;
    let faults = FaultShares {
        fail: "0.5%".parse()?,
        offline: "10%".parse()?,
        slow: "5%".parse()?,
        seldom: FaultShare::default(),
        cut_off: "0.2%".parse()?,
    };
    let request = RehearsalRequest { channel: None, nodes: Some(count), faults, seed: 1, begins: BEGINS };
    let began = Instant::now();
    let rehearsal = prepare(&checked, request).map_err(|failure| failure.text())?;
    let report = rehearsal::rehearse(&rehearsal)?;
    let time = began.elapsed().as_secs_f64();
    let changed = report.nodes.iter().filter(|node| node.began_secs.is_some()).count();
    let peak = memory_of("self", "VmHWM:")? as f64 / 1048576.0;
    figures.table(
        "rehearse",
        &format!(
            "rehearsal of a rollout over {count} nodes in three waves, with two budgets, an edge and a probe"
        ),
        vec![
            Row::at_most("time", time, FULL_SECS, Unit::Secs),
            Row::plain("a node", time * 1e6 / count.max(1) as f64, Unit::Micros),
            Row::plain("nodes that began", changed as f64, Unit::Count),
            Row::plain("peak memory", peak, Unit::Mib),
        ],
    )
}

fn write_repo(repo: &Path) -> Result<(), BenchError> {
    let write = |path: &str, text: &str| std::fs::write(repo.join(path), text);
    write(
        "fleet.yaml",
        "format: 1\nname: bench\nchannels:\n  stable: {contact: 5m, freshness: 24h}\ndefaults: {channel: stable}\n",
    )?;
    std::fs::create_dir(repo.join("modules"))?;
    std::fs::create_dir(repo.join("modules/web"))?;
    write("modules/web/module.yaml", "resources:\n  - file: /etc/web.conf\n    content: \"web\\n\"\n")?;
    std::fs::create_dir(repo.join("roles"))?;
    write("roles/web.yaml", "modules: [web]\n")?;
    write(
        "nodes.yaml",
        "nodes:\n  - {match: [\"canary-*.bench.example\"], roles: [web], labels: {ring: \"0\", tier: web}}\n  - {match: [\"web-*.bench.example\"], roles: [web], labels: {tier: web}}\n  - {match: [\"db-*.bench.example\"], roles: [web], labels: {tier: db}}\n",
    )?;
    Ok(write(
        "rollouts.yaml",
        "rollouts:\n  stable:\n    waves:\n      - {name: canary, percent: 1, gate: {soak: 30m, success: 90%}}\n      - {name: tenth, percent: 10, notBefore: +24h, gate: {soak: 30m, success: 90%}}\n      - {name: rest, gate: {success: 90%}}\n    budgets:\n      - {where: 'labels.tier == \"db\"', max: 300}\n      - {inFlight: 20%}\n    edges:\n      - {before: 'labels.tier == \"db\"', after: 'labels.tier == \"web\"'}\nprobes:\n  web: {http: \"http://localhost/health\", every: 10s, grace: 30s, sustained: 1m}\n",
    )?)
}
