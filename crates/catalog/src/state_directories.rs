//! Where Muster keeps its own state on a host, unless an option names another directory.

/// Where the agent keeps its identity, what it adopted and what it changed.
pub const AGENT_STATE: &str = "/var/lib/muster";
/// Where the control plane of the package's service keeps everything.
pub const SERVER_STATE: &str = "/var/lib/muster-server";
