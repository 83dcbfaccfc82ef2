//! The route table of the node port (WIR-3). Through a proxy that ends TLS only [`Access::Open`] and
//! what is signed can be used (IDN-4).

use model::Digest;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone; the body carries the proof (a token), or the path does (a digest that only members know).
    Open,
    /// A node with its certificate; the request need not be signed, as it says and learns
    /// nothing about the node.
    Certificate,
    /// A node with its certificate; a standard service of gRPC, whose clients know nothing of the
    /// protocol's headers.
    Standard,
    /// A node with its certificate and a signed request.
    Node,
    /// A node by a signed request alone, whose certificate has ended.
    Key,
    /// A node with its certificate, whose TLS session binds all that flows on the stream
    /// (IDN-4). Server-sent events, which are the answer to one request, want it signed.
    Stream,
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The HTTP method.
    pub method: &'static str,
    /// The path; `{name}` stands for one segment.
    pub path: &'static str,
    /// The same handler under the node's id (IDN-5), if there is one.
    pub by_node: Option<&'static str>,
    /// Who may use it.
    pub access: Access,
    /// What moves: part of a set, part of a log, or neither.
    pub moves: &'static str,
}

/// Check-in: the one exchange.
pub const CHECKIN: &str = "/v1/agent/checkin";
/// Facts alone.
pub const REPORT: &str = "/v1/agent/report";
/// A content by digest.
pub const BLOB: &str = "/v1/blobs/{digest}";
/// What is known of a path of the Nix store, by its hash; or the archive of one, by SHA-256 (ROL-9).
pub const CLOSURE: &str = "/v1/agent/closure/{hash}";
/// Enrollment.
pub const ENROLL: &str = "/v1/enroll";
/// Why a host could not join.
pub const BOOTSTRAP_REPORT: &str = "/v1/agent/bootstrap-report";
/// The next certificate, by the one that counts.
pub const RENEW: &str = "/v1/agent/renew";
/// The next certificate, by the node's key alone.
pub const RECOVER: &str = "/v1/agent/recover";
/// The trust documents after the one with a digest, for who knows that (IDN-8). On both ports.
pub const TRUST_LINKS: &str = "/v1/trust-links/{digest}";
/// What the node is pointed to, named in full.
pub const STATE: &str = "/v1/agent/state";
/// Frames both ways in one request and its answer: a poll. A body without frames is one event of a rollout.
pub const EVENTS: &str = "/v1/agent/events";
/// What a rollout asks the node for.
pub const DISPATCH: &str = "/v1/agent/dispatch";
/// That the node is there, and how far its events of rollouts came.
pub const HEARTBEAT: &str = "/v1/agent/heartbeat";
/// The signed header of a rollout, by what the wire calls the rollout; or the signatures of it.
pub const ROLLOUT: &str = "/v1/rollouts/{id}";
/// Frames both ways over a WebSocket (HTTP/1.1 with an upgrade), or down as server-sent
/// events.
pub const STREAM: &str = "/v1/agent/stream";
/// gRPC: frames both ways.
pub const SUBSCRIBE: &str = "/muster.v1.EventStream/Subscribe";
/// gRPC: frames up.
pub const PUSH: &str = "/muster.v1.EventStream/Push";
/// gRPC: a sign of life.
pub const PING: &str = "/muster.v1.EventStream/Ping";
/// gRPC: what the control plane speaks.
pub const VERSION: &str = "/muster.v1.Version/Version";

/// gRPC's own service: whether a service can be used.
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// The same, and each change.
pub const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// gRPC's own service: which services there are.
pub const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// The same under its older name.
pub const REFLECTION_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// The path of [`TRUST_LINKS`] after a document.
pub fn trust_links_after(digest: &Digest) -> String {
    TRUST_LINKS.replace("{digest}", &digest.to_string())
}

/// Every route of the node port.
pub const ROUTES: &[Route] = &[
    Route {
        method: "POST",
        path: CHECKIN,
        by_node: Some("/v1/nodes/{node_id}/checkin"),
        access: Access::Node,
        moves: "set down, log up",
    },
    Route {
        method: "POST",
        path: REPORT,
        by_node: Some("/v1/nodes/{node_id}/report"),
        access: Access::Node,
        moves: "log up",
    },
    Route {
        method: "GET",
        path: STATE,
        by_node: Some("/v1/nodes/{node_id}/state"),
        access: Access::Node,
        moves: "set down",
    },
    Route { method: "GET", path: BLOB, by_node: None, access: Access::Node, moves: "content down" },
    Route { method: "GET", path: CLOSURE, by_node: None, access: Access::Node, moves: "content down" },
    Route { method: "POST", path: ENROLL, by_node: None, access: Access::Open, moves: "identity" },
    Route { method: "POST", path: BOOTSTRAP_REPORT, by_node: None, access: Access::Open, moves: "log up" },
    Route { method: "GET", path: TRUST_LINKS, by_node: None, access: Access::Open, moves: "trust down" },
    Route {
        method: "POST",
        path: RENEW,
        by_node: Some("/v1/nodes/{node_id}/renew"),
        access: Access::Node,
        moves: "identity",
    },
    Route { method: "POST", path: RECOVER, by_node: None, access: Access::Key, moves: "identity" },
    Route {
        method: "POST",
        path: EVENTS,
        by_node: Some("/v1/nodes/{node_id}/events"),
        access: Access::Node,
        moves: "sets both ways, log up",
    },
    Route {
        method: "GET",
        path: DISPATCH,
        by_node: Some("/v1/nodes/{node_id}/dispatch"),
        access: Access::Node,
        moves: "set down",
    },
    Route {
        method: "POST",
        path: HEARTBEAT,
        by_node: Some("/v1/nodes/{node_id}/heartbeat"),
        access: Access::Node,
        moves: "nothing",
    },
    Route { method: "GET", path: ROLLOUT, by_node: None, access: Access::Node, moves: "set down" },
    Route {
        method: "GET",
        path: STREAM,
        by_node: Some("/v1/nodes/{node_id}/stream"),
        access: Access::Stream,
        moves: "sets both ways, log up",
    },
    Route {
        method: "POST",
        path: SUBSCRIBE,
        by_node: None,
        access: Access::Stream,
        moves: "sets both ways, log up",
    },
    Route { method: "POST", path: PUSH, by_node: None, access: Access::Stream, moves: "sets up, log up" },
    Route { method: "POST", path: PING, by_node: None, access: Access::Certificate, moves: "nothing" },
    Route { method: "POST", path: VERSION, by_node: None, access: Access::Certificate, moves: "nothing" },
    Route { method: "POST", path: HEALTH_CHECK, by_node: None, access: Access::Standard, moves: "nothing" },
    Route { method: "POST", path: HEALTH_WATCH, by_node: None, access: Access::Standard, moves: "nothing" },
    Route { method: "POST", path: REFLECTION, by_node: None, access: Access::Standard, moves: "nothing" },
    Route {
        method: "POST",
        path: REFLECTION_ALPHA,
        by_node: None,
        access: Access::Standard,
        moves: "nothing",
    },
];
