//! [`WaveFleet`]: a control plane, several agents on directories, and a fleet repo whose releases go wave by wave.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::{Host, Prefix, Running, Server, text, write};
use crate::wait::until_blocking as until;

/// Hosts that each have a channel and labels, and what is published for them. Its parts end in this order.
pub struct WaveFleet {
    pub agents: Vec<Running>,
    pub control: Running,
    pub hosts: Vec<Host>,
    pub server: Server,
    pub repo: PathBuf,
    pub temp: TempDir,
}

/// A host of a [`WaveFleet`].
#[derive(Clone, Copy)]
pub struct WaveHost {
    pub name: &'static str,
    pub channel: &'static str,
    /// Its label `tier`.
    pub tier: &'static str,
}

/// A host in the channel `fast`.
pub const fn fast(name: &'static str, tier: &'static str) -> WaveHost {
    WaveHost { name, channel: "fast", tier }
}

impl WaveFleet {
    /// The hosts have joined, their agents may run commands, and each holds a first release that says "first", which went
    /// to all of them at once.
    pub fn start(hosts: &[WaveHost]) -> WaveFleet {
        let fleet = WaveFleet::joined(hosts);
        fleet.publish("first");
        fleet.hosts.iter().for_each(|host| host.until_read("/etc/hello", "first\n"));
        fleet
    }

    /// The hosts have joined, their agents may run commands, and nothing was published yet.
    pub fn joined(hosts: &[WaveHost]) -> WaveFleet {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let control = server.start();
        let repo = temp.path().join("repo");
        let mut channels: Vec<&str> = hosts.iter().map(|host| host.channel).collect();
        channels.sort_unstable();
        channels.dedup();
        let channel =
            |name: &&str| format!("  {name}: {{contact: 1s, converge: 1h, jitter: 10%, freshness: 24h}}\n");
        let channels: String = channels.iter().map(channel).collect();
        write(
            &repo.join("fleet.yaml"),
            &format!("format: 1\nname: e2e\nchannels:\n{channels}defaults: {{channel: fast}}\n"),
        );
        let node = |host: &WaveHost| {
            let WaveHost { name, channel, tier } = host;
            format!(
                "  - match: [{name}]\n    modules: [hello]\n    channel: {channel}\n    labels: {{tier: {tier}}}\n"
            )
        };
        let nodes: String = hosts.iter().map(node).collect();
        write(&repo.join("nodes.yaml"), &format!("nodes:\n{nodes}"));
        let joined = hosts.iter().map(|host| {
            let joined = Host::new(temp.path(), host.name, &Prefix::new()).with_commands();
            server.token(host.name, &joined.token_file());
            joined.join();
            joined
        });
        let hosts: Vec<Host> = joined.collect();
        let agents = hosts.iter().map(Host::start).collect();
        WaveFleet { agents, control, hosts, server, repo, temp }
    }

    /// What the next release makes of each host.
    pub fn says(&self, text: &str) {
        let module = format!("resources:\n  - file: /etc/hello\n    content: \"{text}\\n\"\n");
        write(&self.repo.join("modules/hello/module.yaml"), &module);
    }

    /// How the next releases reach the hosts: `rollouts.yaml`.
    pub fn rollouts(&self, yaml: &str) {
        write(&self.repo.join("rollouts.yaml"), yaml);
    }

    /// Publishes a release that says this.
    #[track_caller]
    pub fn publish(&self, text: &str) {
        self.says(text);
        self.server.publish(&self.repo);
    }

    /// A host by its name.
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// Waits until a host has what a release says.
    pub fn until_says(&self, name: &str, text: &str) {
        self.host(name).until_read("/etc/hello", &format!("{text}\n"));
    }

    /// What a host's file says now.
    pub fn said(&self, name: &str) -> String {
        self.host(name).read("/etc/hello").trim().to_owned()
    }

    /// Makes a file that probes of a host look for, or takes it away.
    pub fn mark(&self, name: &str, file: &str, is_there: bool) {
        let path = self.host(name).path(file);
        match is_there {
            true => write(&path, ""),
            false => std::fs::remove_file(path).unwrap(),
        }
    }

    /// A rollout, by its id or channel.
    pub fn rollout(&self, name: &str) -> Value {
        self.server.json(&["rollout", "show", name])
    }

    /// Waits until a rollout is in a state; gives it.
    #[track_caller]
    pub fn until_state(&self, name: &str, state: &str) -> Value {
        until(&format!("rollout {name} is {state}"), || {
            Some(self.rollout(name)).filter(|view| view["state"] == state)
        })
    }

    /// Waits until a channel's rollout is through, and every host has heard so. Until then a host is watched: one whose probe
    /// fails goes back by itself.
    #[track_caller]
    pub fn until_through(&self, channel: &str) {
        self.until_state(channel, "Terminal");
        for host in &self.hosts {
            until(&format!("{} has heard that the rollout of {channel} is through", host.name), || {
                let status = text(&host.run(&["status"]).stdout);
                (!status.contains("is kept until its rollout is through")).then_some(())
            });
        }
    }

    /// Waits until `rollout explain` says something of a host; gives all that it says.
    #[track_caller]
    pub fn until_explained(&self, name: &str, what: &str) -> String {
        let mut last = String::new();
        let began = std::time::Instant::now();
        while began.elapsed() < crate::wait::DEADLINE {
            last = self.server.ok(&["rollout", "explain", name]);
            if last.contains(what) {
                return last;
            }
            std::thread::sleep(crate::wait::PAUSE);
        }
        panic!("{name}: never explained by {what:?}, but by: {last}");
    }

    /// Waits until the list of nodes gives this as the cause of one.
    #[track_caller]
    pub fn until_listed(&self, name: &str, cause: &str) {
        until(&format!("{name} is listed with: {cause}"), || {
            let listed = self.server.ok(&["node", "list"]);
            listed.lines().find(|line| line.contains(name)).filter(|line| line.contains(cause)).map(drop)
        });
    }

    /// How many nodes of a rollout are in a state.
    pub fn count(&self, rollout: &Value, state: &str) -> u64 {
        rollout["nodes"][state].as_u64().unwrap_or_default()
    }
}
