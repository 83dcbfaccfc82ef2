//! An agent process on a joined host without a control plane, and the verbs typed there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use agent::identity;
use agent::state::StateDir;
use catalog::module::Module;
use model::Timestamp;
use net::issue::{Ca, CertificateRequest, node_request};
use serde_json::Value;
use trust::token::KeySource;

use crate::agent_state::{adopt, join};
use crate::children::{program, without_proxies};
use crate::wait::until_blocking;

/// The host. Its daemon is killed when it goes.
pub struct LocalHost {
    pub dir: PathBuf,
    daemon: Option<Child>,
    _temp: tempfile::TempDir,
}

impl LocalHost {
    /// A host that holds a release of these modules. No daemon runs yet.
    pub fn new(modules: Vec<Module>) -> LocalHost {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let host = LocalHost { dir, daemon: None, _temp: temp };
        join(&host.state(), &host.root(), true);
        std::fs::create_dir_all(host.root().join("etc")).unwrap();
        certify(&host.state(), &host.root());
        adopt(&host.state(), 1, modules);
        host
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub fn socket(&self) -> PathBuf {
        self.state().join("agent.sock")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("muster-agent"));
        command.arg("--state").arg(self.state()).arg("--root").arg(self.root());
        command.args(arguments).stdin(Stdio::null()).env_remove("MUSTER_TOKEN");
        without_proxies(&mut command);
        command
    }

    /// Starts the daemon, and waits until it answers and made its first run.
    pub fn start(&mut self) {
        self.start_as(self.command(&["daemon"]));
    }

    /// As [`LocalHost::start`], by another command that becomes the daemon.
    pub fn start_as(&mut self, mut command: Command) {
        let log = std::fs::File::options().create(true).append(true).open(self.log_file()).unwrap();
        command.env("NO_COLOR", "1").stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        until_blocking("the daemon answers", || {
            let status = self.json(&["status"]);
            let time = |value: &Value| serde_json::from_value::<Timestamp>(value.clone()).ok();
            let (since, ran) = (time(&status["daemon"]["since"])?, time(&status["lastRun"]["started"])?);
            (ran >= since).then_some(())
        });
    }

    /// Kills the daemon.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// What a verb prints and ends with.
    pub fn agent(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a verb prints as JSON; null when it prints none.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("daemon.log")
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The content of a managed file.
    pub fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root().join(path)).ok()
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.root().join(path), text).unwrap();
    }
}

impl Drop for LocalHost {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}", self.log());
        }
    }
}

/// What a verb printed, and its exit code.
pub fn printed(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Gives the membership a certificate of the machine's own key.
pub fn certify(state: &Path, root: &Path) {
    let dir = StateDir::create(state).unwrap();
    let mut membership = dir.membership().unwrap().unwrap();
    let key = identity::key(KeySource::Own, state, root).unwrap();
    let now = crate::fleet::now();
    let (ca, _) = Ca::generate("test", now).unwrap();
    let request = CertificateRequest::read(&node_request(&key, &membership.hostname).unwrap()).unwrap();
    let id = key.public().node_id();
    membership.cert_pem =
        ca.issue_node(&request, &id, &membership.hostname, [1; 16], net::issue::node_validity(now)).unwrap();
    membership.ca_pem = ca.cert_pem().to_owned();
    membership.node_id = id;
    dir.save_membership(&membership).unwrap();
}
