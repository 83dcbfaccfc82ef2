//! Messages about closures of NixOS, which nodes get here when they reach no cache (ROL-9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::Operation;

/// Uploads a piece of a path of the Nix store; what the path needs comes before it. Nodes get it once their release
/// names a closure with it, and it goes two weeks after none does any more.
pub static PUT_CLOSURE: Operation<ClosurePiece, ClosureProgress> =
    Operation::transfer("/v1/closures").stages();

/// The most bytes of one piece.
pub const MAX_CLOSURE_PIECE: usize = 8 * 1024 * 1024;

/// A piece of the archive of one path.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClosurePiece {
    /// What the cache says of the path; its archive is not packed (`Compression: none`).
    pub narinfo: String,
    /// Where in the archive the piece begins.
    pub from: u64,
    /// Its bytes in base64, at most [`MAX_CLOSURE_PIECE`]; none to ask how far the path is.
    #[serde(default)]
    pub bytes: String,
}

/// How far a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClosureProgress {
    /// So many bytes of its archive are here; the next piece begins there.
    pub held: u64,
    /// All of it is here, and verified.
    pub whole: bool,
}
