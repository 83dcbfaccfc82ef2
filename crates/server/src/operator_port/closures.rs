//! Uploads of closures (ROL-9).

use data_encoding::BASE64;
use spool::SpoolError;
use trust::nix::NarInfo;
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::chain;
use crate::api::closures::{ClosurePiece, ClosureProgress, MAX_CLOSURE_PIECE};
use crate::closures::{PathProgress, PutPathError};

/// Takes a piece of a path.
pub(super) async fn put(call: OperatorCall, piece: ClosurePiece) -> Result<ClosureProgress, Problem> {
    let bad = |why: String| Problem::new(Code::BadBody, why);
    let info: NarInfo = piece.narinfo.parse().map_err(|error| bad(chain(&error)))?;
    let bytes = BASE64.decode(piece.bytes.as_bytes()).map_err(|_| bad("`bytes` is no base64".to_owned()))?;
    if bytes.len() > MAX_CLOSURE_PIECE {
        return Err(Problem::new(
            Code::BodyTooLarge,
            format!("a piece has at most {MAX_CLOSURE_PIECE} bytes"),
        ));
    }
    let (shelf, size) = (call.plane.closures.clone(), info.nar_size);
    let taken = tokio::task::spawn_blocking(move || shelf.put(&info, piece.from, &bytes)).await;
    match taken.map_err(|_| Code::Internal)? {
        Ok(PathProgress::Whole) => Ok(ClosureProgress { held: size, whole: true }),
        Ok(PathProgress::Partial(held)) => Ok(ClosureProgress { held, whole: false }),
        Err(error @ PutPathError::Lacking { .. }) => Err(Problem::new(Code::Incomplete, error.to_string())),
        Err(PutPathError::Spool(error)) => Err(spool_problem(&error)),
        Err(error) => Err(bad(error.to_string())),
    }
}

fn spool_problem(error: &SpoolError) -> Problem {
    match error {
        SpoolError::WrongDigest { .. } => {
            let detail = format!("the archive is not what its narinfo says, and begins anew: {error}");
            Problem::new(Code::BadBody, detail)
        }
        SpoolError::TooLarge { .. } => Problem::new(Code::BodyTooLarge, chain(error)),
        _ => Problem::new(Code::StoreUnavailable, chain(error)),
    }
}
