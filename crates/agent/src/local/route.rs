//! The route table of the socket. Paths of the node API for workloads will stand beside these.

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalAccess {
    /// Whoever may connect: root, the agent's user, members of the socket's group.
    Read,
    /// Root and the agent's own user.
    Act,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalCall {
    /// How the node stands.
    Status,
    /// What a run would change.
    Plan,
    /// Ask for a run.
    Run,
    /// How a run stands that was asked for.
    FollowRun,
    /// Pause the host.
    Pause,
    /// End the pause.
    Resume,
    /// All about one resource.
    Why,
    /// The kept versions of files.
    FileVersions,
    /// How a version of a file differs from what is there.
    FileDiff,
    /// Put a version of a file back.
    FileRestore,
    /// Let what is held back of a release be tried again.
    LiftQuarantine,
    /// What the node was given, signed by it.
    Seen,
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRoute {
    /// The HTTP method.
    pub method: &'static str,
    /// The path; what varies is in query or body.
    pub path: &'static str,
    /// Who may use it.
    pub access: LocalAccess,
    /// What it does.
    pub call: LocalCall,
}

/// How the node stands.
pub const STATUS: &str = "/v1/local/status";
/// What a run would change.
pub const PLAN: &str = "/v1/local/plan";
/// Runs: asked for, and followed with `?run=N&wait=SECONDS`.
pub const RUNS: &str = "/v1/local/runs";
/// Pause the host.
pub const PAUSE: &str = "/v1/local/pause";
/// End the pause.
pub const RESUME: &str = "/v1/local/resume";
/// One resource: `?name=NAME`.
pub const RESOURCES: &str = "/v1/local/resources";
/// The kept versions of files: `?path=PATH`, of one file or of all below a directory.
pub const FILES: &str = "/v1/local/files";
/// How a version of a file differs: `?path=PATH&version=N`, the newest without a number.
pub const FILE_DIFF: &str = "/v1/local/files/diff";
/// Put a version of a file back.
pub const FILE_RESTORE: &str = "/v1/local/files/restore";
/// Let what is held back of a release be tried again.
pub const LIFT_QUARANTINE: &str = "/v1/local/quarantine/lift";
/// What the node was given, signed by it.
pub const SEEN: &str = "/v1/local/seen";

/// Every route of the socket.
pub const LOCAL_ROUTES: &[LocalRoute] = &[
    LocalRoute { method: "GET", path: STATUS, access: LocalAccess::Read, call: LocalCall::Status },
    LocalRoute { method: "POST", path: PLAN, access: LocalAccess::Act, call: LocalCall::Plan },
    LocalRoute { method: "POST", path: RUNS, access: LocalAccess::Act, call: LocalCall::Run },
    LocalRoute { method: "GET", path: RUNS, access: LocalAccess::Act, call: LocalCall::FollowRun },
    LocalRoute { method: "POST", path: PAUSE, access: LocalAccess::Act, call: LocalCall::Pause },
    LocalRoute { method: "POST", path: RESUME, access: LocalAccess::Act, call: LocalCall::Resume },
    LocalRoute { method: "GET", path: RESOURCES, access: LocalAccess::Act, call: LocalCall::Why },
    LocalRoute { method: "GET", path: FILES, access: LocalAccess::Act, call: LocalCall::FileVersions },
    LocalRoute { method: "GET", path: FILE_DIFF, access: LocalAccess::Act, call: LocalCall::FileDiff },
    LocalRoute { method: "POST", path: FILE_RESTORE, access: LocalAccess::Act, call: LocalCall::FileRestore },
    LocalRoute {
        method: "POST",
        path: LIFT_QUARANTINE,
        access: LocalAccess::Act,
        call: LocalCall::LiftQuarantine,
    },
    LocalRoute { method: "GET", path: SEEN, access: LocalAccess::Act, call: LocalCall::Seen },
];

/// The route of a request.
pub fn find(method: &str, path: &str) -> Option<&'static LocalRoute> {
    LOCAL_ROUTES.iter().find(|route| route.method == method && route.path == path)
}
