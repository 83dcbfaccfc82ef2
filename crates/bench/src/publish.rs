//! `muster bench publish`: resolving and publishing a large fleet repo to a real control
//! plane, then an edit of one node in the resident publisher.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use server::Credentials;

use crate::process::{ANY_PORT, Server, memory_of};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, During};
use cli::credentials;
use cli::folder::RepoFolder;
use cli::publish::{Published, Publisher};

/// A first publish of everything may take this long, in seconds.
const FULL_SECS: f64 = 10.0;
/// And this much memory, in MiB.
const FULL_MIB: f64 = 600.0;
/// The publish of a one-node edit may take this long, in milliseconds.
const EDIT_MS: f64 = 100.0;
/// Entries in one file.
const SHARD: usize = 1000;

pub(super) async fn run(count: usize, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let (data, repo) = (dir.path().join("data"), dir.path().join("repo"));
    write_repo(&repo, count).during(|| format!("cannot write a fleet repo into {}", repo.display()))?;
    let server = Server::control_plane(&data, ANY_PORT)?;
    let operator = data.join("operator.json");
    let credentials: Credentials = server::posture::read_json(&operator)
        .during(|| format!("cannot read the operator's credentials from {}", operator.display()))?;
    let key = credentials::release_key(None, &operator)?;
    let mut publisher = Publisher::connect(credentials, [key])
        .await
        .during(|| "cannot reach the control plane".to_owned())?;
    let mut folder = RepoFolder::open(&repo)?;
    let (full, full_time) = publish(&mut publisher, &mut folder, None)
        .await
        .during(|| format!("cannot publish {}", repo.display()))?;
    let peak = memory_of("self", "VmHWM:")? as f64 / 1048576.0;
    let edited = PathBuf::from(format!("nodes/{:04}.yaml", count / SHARD / 2));
    edit(&repo.join(&edited)).during(|| format!("cannot edit {}", repo.join(&edited).display()))?;
    let (one, one_time) = publish(&mut publisher, &mut folder, Some(&edited))
        .await
        .during(|| format!("cannot publish an edit of {}", edited.display()))?;
    let again = bytes_of_nothing(&mut publisher, &mut folder, &edited).await?;
    figures.table(
        "publish, whole",
        &format!("publish of {count} host entries with vars of their own, upload included"),
        vec![
            Row::at_most("time", full_time.as_secs_f64(), FULL_SECS, Unit::Secs),
            Row::at_most("peak memory of the publisher", peak, FULL_MIB, Unit::Mib),
            Row::plain("entries", full.nodes as f64, Unit::Count),
            Row::plain("sent", full.bytes as f64, Unit::Bytes),
            Row::plain("chunks", full.chunks as f64, Unit::Count),
            Row::plain("contents", full.contents as f64, Unit::Count),
            Row::plain("control plane's memory afterwards", mib(server.memory()?), Unit::Mib),
        ],
    )?;
    figures.table(
        "publish, edit",
        "publish of an edit of one of them, in the resident publisher",
        vec![
            Row::at_most("time", one_time.as_secs_f64() * 1e3, EDIT_MS, Unit::Millis),
            Row::plain("nodes that change", one.changed.nodes as f64, Unit::Count),
            Row::plain("sent", one.bytes as f64, Unit::Bytes),
            Row::plain("chunks", one.chunks as f64, Unit::Count),
            Row::plain("contents", one.contents as f64, Unit::Count),
            Row::plain("sent for an edit that changes nothing", again as f64, Unit::Bytes),
        ],
    )
}

async fn publish(
    publisher: &mut Publisher,
    folder: &mut RepoFolder,
    edited: Option<&Path>,
) -> Result<(Published, Duration), BenchError> {
    let started = Instant::now();
    let changes = match edited {
        Some(path) => folder.reread(&[path.to_string_lossy().into_owned()].into())?,
        None => folder.scan()?,
    };
    let prepared = publisher.take(changes).await?;
    let changed = publisher.compare(&prepared).await?;
    let published = publisher.publish(&prepared, None, changed).await?;
    Ok((published, started.elapsed()))
}

/// An edit that only adds a comment.
async fn bytes_of_nothing(
    publisher: &mut Publisher,
    folder: &mut RepoFolder,
    path: &Path,
) -> Result<u64, BenchError> {
    let file = folder.root().join(path);
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(&file, format!("{text}# nothing changed\n"))?;
    Ok(publish(publisher, folder, Some(path)).await?.0.bytes)
}

fn write_repo(repo: &Path, count: usize) -> Result<(), BenchError> {
    std::fs::create_dir_all(repo.join("nodes"))?;
    std::fs::create_dir_all(repo.join("modules/app"))?;
    let fleet = "format: 1\nname: bench\nchannels:\n  stable: {contact: 5m, freshness: 24h}\ndefaults: {channel: stable}\n";
    std::fs::write(repo.join("fleet.yaml"), fleet)?;
    let module = "params:\n  port: {type: port, default: 80}\n  id: {type: string, required: true}\nresources:\n  - file: /etc/app.conf\n    content: \"port ${{ params.port }} id ${{ params.id }}\\n\"\n    mode: \"0644\"\n";
    std::fs::write(repo.join("modules/app/module.yaml"), module)?;
    for shard in 0..count.div_ceil(SHARD) {
        let mut text = "nodes:\n".to_owned();
        for number in shard * SHARD..((shard + 1) * SHARD).min(count) {
            let port = 1024 + number % 60_000;
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "  - match: [host-{number:06}.bench.example]\n    modules: [app]\n    labels: {{rack: r{}}}\n    vars: {{app.port: {port}, app.id: \"id-{number}\"}}\n",
                number % 200
            );
        }
        std::fs::write(repo.join(format!("nodes/{shard:04}.yaml")), text)?;
    }
    Ok(())
}

/// Gives one entry another value.
fn edit(path: &Path) -> Result<(), BenchError> {
    let text = std::fs::read_to_string(path)?;
    let (before, after) = text.split_once("app.id: \"id-").ok_or("no entry to edit")?;
    std::fs::write(path, format!("{before}app.id: \"edited-{after}"))?;
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}
