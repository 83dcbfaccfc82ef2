//! A fleet of booted hosts: a control plane on the testbed's network, a fleet repo, and hosts on
//! which the agent is installed from its package and has joined.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::host::BootedHost;
use super::testbed::Testbed;
use super::{MINUTE, NAME, V4, V6};
use crate::programs::{Running, Server, muster, write};

/// The command by which a prepared host joins.
pub const JOIN: [&str; 4] = ["muster-agent", "join", "--token-file", "/root/token"];

/// A control plane and the fleet repo that it publishes.
///
/// ```ignore
/// let mut fleet = BootedFleet::start(&testbed);
/// fleet.module("hello", "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n");
/// let web = testbed.boot("web-1");
/// fleet.join(&web);                 // installs the agent's package, which its unit runs
/// fleet.publish_until_converged(&[&web]);
/// ```
pub struct BootedFleet {
    pub server: Server,
    /// The fleet repo: `web-*` hosts have every module of [`BootedFleet::module`].
    pub repo: PathBuf,
    running: Option<Running>,
    modules: Vec<String>,
}

impl BootedFleet {
    /// Starts a control plane, with an empty fleet of intervals of one second.
    pub fn start(testbed: &Testbed) -> BootedFleet {
        let server = Server::new(&testbed.folder(), &[NAME, V4, V6], "[::]", &testbed.at_control());
        let repo = testbed.folder().join("repo");
        write(
            &repo.join("fleet.yaml"),
            "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h}\n\
             defaults: {channel: fast}\n",
        );
        let mut fleet = BootedFleet { server, repo, running: None, modules: Vec::new() };
        fleet.power_on();
        fleet
    }

    /// Writes the `module.yaml` of a module, which every host gets from the next publication on.
    pub fn module(&mut self, name: &str, yaml: &str) {
        write(&self.repo.join(format!("modules/{name}/module.yaml")), yaml);
        if !self.modules.iter().any(|known| known == name) {
            self.modules.push(name.to_owned());
        }
        let modules = self.modules.join(", ");
        write(
            &self.repo.join("nodes.yaml"),
            &format!("nodes:\n  - match: [\"**\"]\n    modules: [{modules}]\n"),
        );
    }

    /// Publishes the repo.
    #[track_caller]
    pub fn publish(&self) {
        self.server.publish(&self.repo);
    }

    /// Publishes the repo, and waits until these hosts have converged to that release.
    #[track_caller]
    pub fn publish_until_converged(&self, hosts: &[&BootedHost]) {
        self.publish();
        hosts.iter().for_each(|host| self.until_converged(host));
    }

    /// Waits until the newest run of a host that the control plane knows is of the set to which its
    /// release points, and that host is converged.
    #[track_caller]
    pub fn until_converged(&self, host: &BootedHost) {
        self.until_converged_within(MINUTE, host);
    }

    /// The same for a host whose first run takes longer.
    #[track_caller]
    pub fn until_converged_within(&self, deadline: Duration, host: &BootedHost) {
        let last = RefCell::new(Value::Null);
        let seen = host.seen_within(deadline, || {
            let node = self.server.node(host.name());
            let runs = self.server.json(&["run", "list", "--node", host.name()]);
            let is_newest = runs[0]["report"]["root"] == node["pointedRoot"];
            let is_converged = node["state"] == "converged" && is_newest;
            last.replace(node);
            is_converged
        });
        assert!(seen, "{} has not converged: {:#}", host.name(), last.borrow());
    }

    /// Installs the agent's package, unless it is there, and joins with a token of its own.
    #[track_caller]
    pub fn join(&self, host: &BootedHost) {
        self.prepare_join(host);
        host.ok(JOIN);
    }

    /// The same but for the last command, [`JOIN`].
    #[track_caller]
    pub fn prepare_join(&self, host: &BootedHost) {
        if !host.run(["dpkg-query", "-s", "muster-agent"]).status.success() {
            host.install(&agent_package());
        }
        let token = self.server.dir.with_file_name(format!("{}.token", host.name()));
        self.server.token(host.name(), &token);
        host.copy_in(&token, "/root/token", 0o600);
    }

    /// Starts the control plane, at the ports that it had.
    pub fn power_on(&mut self) {
        self.running = Some(self.server.start());
    }

    /// Kills the control plane.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
    }
}

impl BootedHost {
    /// Installs a package file by dpkg.
    #[track_caller]
    pub fn install(&self, package: &Path) {
        let name = package.file_name().unwrap().to_string_lossy();
        let inside = format!("/root/{name}");
        self.copy_in(package, &inside, 0o644);
        self.ok(["dpkg", "--install", &inside]);
        self.ok(["rm", &inside]);
    }
}

/// The agent's package of this working copy, built by `cargo xtask booted` from debug builds.
pub fn agent_package() -> PathBuf {
    package_below("debug", "muster-agent_")
        .unwrap_or_else(|why| panic!("{why}: cargo xtask booted builds it"))
}

/// The package of the control plane and the operators' tool, built beside it.
pub fn plane_package() -> PathBuf {
    package_below("debug", "muster_").unwrap_or_else(|why| panic!("{why}: cargo xtask booted builds it"))
}

/// The agent's package of the release before (`packaging/previous-release`), or why there is none.
///
/// # Errors
/// What `cargo xtask booted` wrote when it could not build it.
pub fn previous_agent_package() -> Result<PathBuf, String> {
    let why = dist().join("previous/why-not");
    package_below("previous", "muster-agent_")
        .map_err(|missing| std::fs::read_to_string(why).unwrap_or(missing))
}

fn dist() -> PathBuf {
    muster().parent().and_then(Path::parent).unwrap().join("dist")
}

fn package_below(folder: &str, name: &str) -> Result<PathBuf, String> {
    let folder = dist().join(folder);
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let packages = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(name) && file.ends_with(".deb")
    });
    let newest = packages.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    newest.ok_or(format!("{} has no package {name}", folder.display()))
}
