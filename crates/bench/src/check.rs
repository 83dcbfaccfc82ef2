//! `muster bench check`: judging a large fleet before it is signed, each node bound as far as it needs no
//! observed trait (CFG-6), and again by traits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use cli::check;
use cli::folder::RepoFolder;
use cli::observed;

use crate::process::memory_of;
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, During};

/// A check of 100,000 named nodes may take this long, in seconds; of fewer, and of debug builds, as long.
const FULL_SECS: f64 = 30.0;
/// Nodes that are judged by traits too.
const OBSERVED: usize = 1_000;
/// Entries in one file.
const SHARD: usize = 1000;

pub(super) fn run(count: usize, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    write_repo(dir.path(), count)
        .during(|| format!("cannot write a fleet repo into {}", dir.path().display()))?;
    let mut folder = RepoFolder::open(dir.path())?;
    let began = Instant::now();
    let checked = check::read(&mut folder)?;
    let whole = began.elapsed().as_secs_f64();
    let fleet = checked.fleet.as_ref().map_err(|_| "the fleet of this benchmark has mistakes")?;
    let nodes: Vec<String> =
        fleet.specialize().exact.keys().take(OBSERVED).map(ToString::to_string).collect();
    let traits: BTreeMap<_, _> =
        nodes.iter().map(|name| (name.clone(), observed::sample(name).traits)).collect();
    let began = Instant::now();
    checked.observed(&traits).map_err(|_| "the fleet of this benchmark has mistakes")?;
    let by_traits = began.elapsed().as_secs_f64();
    let peak = memory_of("self", "VmHWM:")? as f64 / 1048576.0;
    figures.table(
        "check",
        &format!("check of {count} named nodes with vars of their own and five modules each"),
        vec![
            Row::at_most("time", whole, FULL_SECS, Unit::Secs),
            Row::plain("a node", whole * 1e6 / count.max(1) as f64, Unit::Micros),
            Row::plain("a node by traits", by_traits * 1e6 / traits.len().max(1) as f64, Unit::Micros),
            Row::plain("expressions that need a trait", fleet.unevaluated().len() as f64, Unit::Count),
            Row::plain("peak memory", peak, Unit::Mib),
        ],
    )
}

fn write_repo(repo: &Path, count: usize) -> Result<(), BenchError> {
    let write = |path: &str, text: &str| -> Result<(), BenchError> {
        let path = repo.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(path, text)?)
    };
    write(
        "fleet.yaml",
        "format: 1\nname: bench\nchannels:\n  stable: {contact: 5m, freshness: 24h}\ndefaults: {channel: stable}\n",
    )?;
    write("roles/web.yaml", "modules: [base, users, web, own, tuned]\nvars: {web.workers: 4}\n")?;
    let shared: String = (0..20)
        .map(|i| format!("  - file: /etc/base/{i}.conf\n    content: \"{i} ${{{{ params.level }}}}\\n\"\n    mode: \"0644\"\n"))
        .collect();
    write("modules/base/module.yaml", &format!("params: {{level: info}}\nresources:\n{shared}"))?;
    write(
        "modules/users/module.yaml",
        "params:\n  users: [{name: jo, id: 2001}, {name: al, id: 2002}, {name: bo, id: 2003}]\nresources:\n  - foreach: ${{ params.users }}\n    user: ${{ item.name }}\n    uid: ${{ item.id }}\n",
    )?;
    write(
        "modules/web/module.yaml",
        "depends_on: [base]\nparams:\n  port: {type: port, default: 80}\n  workers: {type: int, default: 2}\nresources:\n  - file: /etc/web.conf\n    template: web.conf.j2\n  - file: /etc/web.region\n    content: ${{ node.labels.region }}\n",
    )?;
    write(
        "modules/web/templates/web.conf.j2",
        "listen {{ params.port }};\n{% for i in [1, 2, 3] %}\nworker {{ i * params.workers }};\n{% endfor %}\n",
    )?;
    // Each node's own: nothing of it is shared.
    write(
        "modules/own/module.yaml",
        "params: {id: {type: string, required: true}}\nresources:\n  - file: /etc/motd\n    content: \"${{ node.hostname }} ${{ params.id }}\\n\"\n",
    )?;
    write(
        "modules/tuned/module.yaml",
        "when: traits.os.family == \"debian\"\nparams: {half: \"${{ traits.cpu.count // 2 }}\"}\nresources:\n  - file: /etc/tuned\n    content: ${{ params.half }}\n",
    )?;
    for shard in 0..count.div_ceil(SHARD) {
        let mut text = "nodes:\n".to_owned();
        for number in shard * SHARD..((shard + 1) * SHARD).min(count) {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "  - match: [host-{number:06}.bench.example]\n    roles: [web]\n    labels: {{region: r{}}}\n    vars: {{web.port: {}, own.id: \"id-{number}\"}}\n",
                number % 8,
                8000 + number % 50,
            );
        }
        write(&format!("nodes/{shard:04}.yaml"), &text)?;
    }
    Ok(())
}
