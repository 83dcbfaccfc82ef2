//! What this agent is and can do, read once at its start, off the daemon's thread (ENR-5).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use model::capabilities::MAX_HOOKS;
use model::digest::Hasher;
use model::exchange::NODE_FEATURES;
use model::sort::SortCompactly;
use model::work::Delegation;
use model::{AgentCapabilities, Digest};
use net::tasks;
use tokio::sync::watch;

/// How long a check-in waits for them.
pub const WITHIN: Duration = Duration::from_secs(2);
/// The largest program that is read for its checksum, in bytes.
const MAX_PROGRAM: u64 = 256 * 1024 * 1024;
const PIECE: usize = 64 * 1024;
/// What an agent can be asked for without a program of the host's, beside its [`NODE_FEATURES`].
const QUERIES: [&str; 5] = ["disks", "file", "listeners", "processes", "traits"];

/// Reads them on a thread that may wait for the disk; `None` until it is done.
pub fn read(root: &Path, delegations: &[Delegation]) -> watch::Receiver<Option<AgentCapabilities>> {
    let (sender, receiver) = watch::channel(None);
    let paths = delegated_programs(delegations);
    let root = root.to_owned();
    tasks::spawn(async move {
        let capabilities = tasks::spawn_blocking(move || collect(&root, &paths)).await;
        // Nobody is left to hear it when the daemon stops.
        let _ = sender.send(capabilities.ok());
    });
    receiver
}

fn collect(root: &Path, paths: &[String]) -> AgentCapabilities {
    let hook = |path: &String| Some((path.clone(), checksum(&root.join(path.trim_start_matches('/'))).ok()?));
    let builtins = QUERIES.into_iter().chain(NODE_FEATURES.iter().copied());
    AgentCapabilities {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        checksum: checksum(Path::new("/proc/self/exe")).ok(),
        builtins: builtins.map(str::to_owned).collect(),
        hooks: paths.iter().filter_map(hook).collect::<BTreeMap<_, _>>(),
        // Whoever speaks for the node signs it.
        sealing_key: None,
    }
}

/// The programs that delegations name by their exact paths; a pattern names none.
fn delegated_programs(delegations: &[Delegation]) -> Vec<String> {
    let commands = delegations.iter().flat_map(|delegation| {
        delegation.commands.iter().chain(delegation.actions.values().map(|action| &action.command))
    });
    let exact = |path: &&String| path.starts_with('/') && !path.contains(['*', '?', '[', '{']);
    let mut paths: Vec<String> = commands.filter_map(|argv| argv.first()).filter(exact).cloned().collect();
    paths.sort_compactly();
    paths.dedup();
    paths.truncate(MAX_HOOKS);
    paths
}

/// SHA-256 of a program, read in pieces.
fn checksum(path: &Path) -> io::Result<Digest> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (mut hasher, mut file, mut piece) = (Hasher::new(), file.take(MAX_PROGRAM), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&piece[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// ENR-5: what is said of the host's programs is what lies there now.
    #[test]
    fn programs_that_are_delegated_by_path_are_hooks() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        std::fs::write(root.path().join("usr/bin/look"), b"#!/bin/sh").unwrap();
        let command = |path: &str| vec![path.to_owned(), "**".to_owned()];
        let delegation = Delegation {
            commands: vec![command("/usr/bin/look"), command("/usr/bin/absent"), command("/usr/bin/*")],
            ..Delegation::default()
        };
        let said = collect(root.path(), &delegated_programs(&[delegation]));
        assert_eq!(said.hooks, [("/usr/bin/look".to_owned(), Digest::of(b"#!/bin/sh"))].into());
        assert!(said.checksum.is_some() && said.builtins.contains(&"traits".to_owned()), "{said:?}");
        assert_eq!(said.version, env!("CARGO_PKG_VERSION"));
    }
}
