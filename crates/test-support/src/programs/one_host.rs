//! [`OneHostFleet`]: a control plane, an agent that joined it, and a fleet repo that greets.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Host, Prefix, Running, Server, write_repo};

/// A control plane with the one host web-1, whose `/etc/hello` has the greeting of the fleet repo. Its parts end in
/// this order.
pub struct OneHostFleet {
    pub agent: Running,
    pub control: Running,
    pub host: Host,
    pub server: Server,
    pub repo: PathBuf,
    pub temp: TempDir,
}

impl OneHostFleet {
    /// The host has joined, its agent runs, and nothing is published.
    pub fn start() -> OneHostFleet {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let control = server.start();
        let host = Host::new(temp.path(), "web-1", &Prefix::new());
        server.token("web-1", &host.token_file());
        host.join();
        let agent = host.start();
        OneHostFleet { agent, control, host, server, repo: temp.path().join("repo"), temp }
    }

    /// Publishes a greeting, and waits until the host has it.
    pub fn greets(&self, greeting: &str) {
        publish(&self.server, &self.repo, greeting);
        self.host.until_read("/etc/hello", &format!("{greeting} web-1\n"));
    }
}

/// Publishes a fleet repo with a greeting.
pub fn publish(server: &Server, repo: &Path, greeting: &str) {
    write_repo(repo, greeting);
    server.publish(repo);
}
