//! Where the socket is, as both of its ends find it.

use std::path::{Path, PathBuf};

use crate::machine::{DEFAULT_STATE, MachineOptions};

/// The socket of an agent that runs as root with the default state directory.
pub const DEFAULT_SOCKET: &str = "/run/muster/agent.sock";
/// The socket's name in any other state directory.
pub const SOCKET_NAME: &str = "agent.sock";

/// Where a daemon listens. `root`: it runs as root.
pub fn listen_at(state: &Path, root: bool) -> PathBuf {
    match state == Path::new(DEFAULT_STATE) && root {
        true => PathBuf::from(DEFAULT_SOCKET),
        false => state.join(SOCKET_NAME),
    }
}

/// Where a verb looks for the daemon, in this order.
pub fn look_at(options: &MachineOptions) -> Vec<PathBuf> {
    let state = options.state_dir();
    let mut paths = vec![listen_at(&state, true)];
    let beside = state.join(SOCKET_NAME);
    if !paths.contains(&beside) {
        paths.push(beside);
    }
    paths
}
