//! `muster bench secrets`: secrets opened at a node, and one that rotates for a whole fleet.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cli::credentials;
use cli::folder::RepoFolder;
use cli::publish::{Published, Publisher};
use cli::secret::SecretSettings;
use model::Hostname;
use server::Credentials;
use trust::sealing::{self, SealedSecret, SecretKeys, SecretSealer};
use trust::{SealingKey, SigningKey};

use crate::process::{ANY_PORT, Server};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, During};

/// Secrets of one node.
const OF_A_NODE: usize = 100;
/// The longest that opening them takes, in milliseconds.
const MAX_OPEN_MS: f64 = 10.0;
/// The longest that a publish takes in which one secret rotates, in seconds.
const MAX_ROTATE_SECS: f64 = 30.0;
/// The most that a rotation sends for each recipient, in bytes: its wrap, and the chunks on the way to it.
const MAX_SENT: f64 = 4096.0;
/// Entries in one file.
const SHARD: usize = 1000;

pub(super) async fn run(nodes: usize, time: Duration, figures: &Figures) -> Result<(), BenchError> {
    opened(time, figures)?;
    rotated(nodes, figures).await
}

/// Opening all secrets of a node, beside one agreement of keys for each and nothing else.
fn opened(time: Duration, figures: &Figures) -> Result<(), BenchError> {
    let key = SealingKey::from_secret(&[3; 32]).ok_or("no key")?;
    let node: Hostname = "web-1.example.com".parse()?;
    let sealer = SecretSealer::of(&SigningKey::from_seed(&[7; 32]));
    let (mut secrets, mut wraps): (Vec<SealedSecret>, _) = (Vec::new(), BTreeMap::new());
    for at in 0..OF_A_NODE {
        let name = format!("team/secret-{at}");
        let in_hand =
            sealer.seal(&name, format!("the value of secret {at}, as long as a password").as_bytes())?;
        wraps.insert(name, in_hand.wrap(&node, &key.public())?);
        secrets.push(in_hand.sealed().clone());
    }
    let keys = SecretKeys { node: node.clone(), recipient: key.public(), wraps };
    let (began, mut rounds) = (Instant::now(), 0_u32);
    while began.elapsed() < time || rounds == 0 {
        for secret in &secrets {
            black_box(sealing::open(&key, &node, secret, Some(&keys))?);
        }
        rounds += 1;
    }
    let each = began.elapsed() / rounds.max(1);
    let rows = vec![Row::at_most("all of them opened", each.as_secs_f64() * 1e3, MAX_OPEN_MS, Unit::Millis)];
    figures.table("secrets, opened", &format!("{OF_A_NODE} secrets opened at their node"), rows)
}

/// A publish in which one secret of all nodes has another value.
async fn rotated(nodes: usize, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let (data, repo) = (dir.path().join("data"), dir.path().join("repo"));
    write_repo(&repo, nodes).during(|| format!("cannot write a fleet repo into {}", repo.display()))?;
    let _server = Server::control_plane(&data, ANY_PORT)?;
    let operator = data.join("operator.json");
    let credentials: Credentials = server::posture::read_json(&operator)
        .during(|| format!("cannot read the operator's credentials from {}", operator.display()))?;
    let key = credentials::release_key(None, &operator)?;
    let mut publisher = Publisher::connect(credentials, [key]).await?;
    let identity = data.join("age.key");
    publisher.ask_for_secrets(SecretSettings {
        repo: repo.clone(),
        identity: identity.clone(),
        vault_token: None,
    });
    set(&repo, &identity, "the first value")?;
    let mut folder = RepoFolder::open(&repo)?;
    let (_, first) = publish(&mut publisher, &mut folder).await?;
    let (again, same) = publish(&mut publisher, &mut folder).await?;
    set(&repo, &identity, "the second value")?;
    let (rotated, took) = publish(&mut publisher, &mut folder).await?;
    let each = rotated.bytes as f64 / nodes.max(1) as f64;
    figures.table(
        "secrets, rotated",
        &format!("publish in which one secret of {nodes} recipients rotates"),
        vec![
            Row::at_most("time", took.as_secs_f64(), MAX_ROTATE_SECS, Unit::Secs),
            Row::at_most("sent for each recipient", each, MAX_SENT, Unit::Bytes),
            Row::plain("nodes that change", rotated.changed.nodes as f64, Unit::Count),
            Row::plain("the first publish of all of it", first.as_secs_f64(), Unit::Secs),
            Row::plain("a publish in which nothing changed", same.as_secs_f64(), Unit::Secs),
            Row::plain("sent by that", again.bytes as f64, Unit::Bytes),
        ],
    )
}

async fn publish(
    publisher: &mut Publisher,
    folder: &mut RepoFolder,
) -> Result<(Published, Duration), BenchError> {
    let began = Instant::now();
    let prepared = publisher.take(folder.scan()?).await?;
    let changed = publisher.compare(&prepared).await?;
    Ok((publisher.publish(&prepared, None, changed).await?, began.elapsed()))
}

/// Sets the one secret as an operator does.
fn set(repo: &Path, identity: &Path, value: &str) -> Result<(), BenchError> {
    use std::io::Write as _;
    let program = std::env::current_exe()?;
    let mut child = Command::new(program)
        .args(["secret", "set", "app/key", "--repo"])
        .arg(repo)
        .arg("--identity")
        .arg(identity)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(value.as_bytes())?;
    if child.wait()?.success() { Ok(()) } else { Err("muster secret set failed".into()) }
}

fn write_repo(repo: &Path, count: usize) -> Result<(), BenchError> {
    for folder in ["nodes", "recipients", "modules/app"] {
        std::fs::create_dir_all(repo.join(folder))?;
    }
    let fleet = "format: 1\nname: bench\nchannels:\n  stable: {contact: 5m, freshness: 24h}\n\
                 defaults: {channel: stable}\nsecrets: {sources: {files: {age: secrets/}}}\n";
    std::fs::write(repo.join("fleet.yaml"), fleet)?;
    let module = "resources:\n  - file: /etc/app.key\n    content: secret:app/key\n";
    std::fs::write(repo.join("modules/app/module.yaml"), module)?;
    for shard in 0..count.div_ceil(SHARD) {
        let (mut nodes, mut recipients) = ("nodes:\n".to_owned(), "recipients:\n".to_owned());
        for number in shard * SHARD..((shard + 1) * SHARD).min(count) {
            let mut secret = [1; 32];
            secret[..8].copy_from_slice(&(number as u64).to_be_bytes());
            let key = SealingKey::from_secret(&secret).ok_or("no key")?.public();
            // Writing to a String cannot fail.
            let _ = write!(nodes, "  - match: [host-{number:06}.bench.example]\n    modules: [app]\n");
            let _ = writeln!(recipients, "  host-{number:06}.bench.example: {key}");
        }
        std::fs::write(repo.join(format!("nodes/{shard:04}.yaml")), nodes)?;
        std::fs::write(repo.join(format!("recipients/{shard:04}.yaml")), recipients)?;
    }
    Ok(())
}
