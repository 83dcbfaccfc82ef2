//! A control plane in this process, and fleet repos in temporary directories.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use cli::credentials;
use cli::folder::FileChanges;
use cli::operator::Operator;
use cli::publish::{Published, Publisher};
use server::{Config, Credentials, RunningServer};
use tempfile::TempDir;

/// A control plane on loopback, founded in a directory of its own.
pub struct Control {
    pub dir: TempDir,
    pub running: RunningServer,
    pub credentials: Credentials,
}

impl Control {
    pub async fn start() -> Control {
        Control::start_with(&[]).await
    }

    /// The same, with these files in its directory as it is founded.
    pub async fn start_with(files: &[(&str, String)]) -> Control {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        write(&dir.path().join("data"), files);
        let loopback = "127.0.0.1:0".parse().unwrap();
        let config = Config {
            dir: dir.path().join("data"),
            fleet: "test".parse().ok(),
            node_address: loopback,
            operator_address: loopback,
            names: vec!["127.0.0.1".to_owned()],
            connections: 100,
            balancers: Default::default(),
            metrics_address: None,
            proxy_address: None,
            log: None,
            links: Default::default(),
            certificates: Default::default(),
        };
        let running = server::start(config).await.unwrap();
        let (_, credentials) = credentials::operator(Some(&dir.path().join("data/operator.json"))).unwrap();
        Control { dir, running, credentials }
    }

    pub fn operator_file(&self) -> PathBuf {
        self.dir.path().join("data/operator.json")
    }

    pub async fn publisher(&self) -> Publisher {
        let key = credentials::release_key(None, &self.operator_file()).unwrap();
        Publisher::connect(self.credentials.clone(), [key]).await.unwrap()
    }

    pub async fn operator(&self) -> Operator {
        Operator::dial(&self.credentials).await.unwrap()
    }
}

/// Files as changes of a folder that held nothing.
pub fn changes(files: &[(&str, String)]) -> FileChanges {
    files.iter().map(|(path, text)| ((*path).to_owned(), Some(text.as_bytes().into()))).collect()
}

/// Takes changes in and publishes what they make.
pub async fn publish(publisher: &mut Publisher, changes: FileChanges) -> Published {
    let prepared = publisher.take(changes).await.unwrap();
    let changed = publisher.compare(&prepared).await.unwrap();
    publisher.publish(&prepared, None, changed).await.unwrap()
}

/// `fleet.yaml` with one channel.
pub fn fleet_yaml() -> String {
    "format: 1\nname: test\nchannels:\n  stable: {contact: 5m, freshness: 24h}\ndefaults: {channel: stable}\n"
        .to_owned()
}

/// A module that writes one file out of one param.
pub fn app_module(greeting: &str) -> String {
    format!(
        "params:\n  id: {{type: string, default: none}}\nresources:\n  - file: /etc/app.conf\n    \
         content: \"{greeting} ${{{{ params.id }}}}\\n\"\n    mode: \"0644\"\n"
    )
}

/// `nodes.yaml` with hosts that each have a var of their own.
pub fn nodes_yaml(ids: &BTreeMap<String, String>) -> String {
    let entry = |(name, id): (&String, &String)| {
        format!("  - match: [{name}]\n    modules: [app]\n    vars: {{app.id: \"{id}\"}}\n")
    };
    format!("nodes:\n{}", ids.iter().map(entry).collect::<String>())
}

/// Writes files below a directory.
pub fn write(dir: &Path, files: &[(&str, String)]) {
    for (path, text) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Runs the program itself, away from any control plane of this machine.
pub async fn muster(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(super::muster());
    command.args(arguments).current_dir(dir).stdin(std::process::Stdio::null());
    command.env_remove("MUSTER_OPERATOR").env_remove("MUSTER_RELEASE_KEY").env_remove("RUST_LOG");
    command.output().await.unwrap()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
