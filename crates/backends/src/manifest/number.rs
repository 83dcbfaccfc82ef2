//! Which numbers a manifest may hold: those that every reader of JSON has exactly.

use serde_json::Number;

use super::error::ManifestProblem;

/// Numbers beyond this are not exact in every JSON reader, and a float that large would be
/// written as an integer that is not.
const MAX: f64 = 9_007_199_254_740_991.0;
/// What is said of larger ones.
pub(super) const TOO_LARGE: &str = "a number beyond 2^53 - 1 is not exact for every reader; quote it";

/// Whether a number means the same to every reader.
pub(super) fn check(number: &Number) -> Result<(), ManifestProblem> {
    // Rounding an integer to a double never brings it back below the bound.
    match number.as_f64() {
        Some(size) if size.abs() <= MAX => Ok(()),
        _ => Err(ManifestProblem::NotPlain(TOO_LARGE.into())),
    }
}
