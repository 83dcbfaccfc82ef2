//! Traits as they travel (TRT-2).

use lang::Value;
use model::Digest;
use model::exchange::TraitReport;

/// Traits as they travel: all of them, named by the digest of those that stay.
pub fn trait_report(traits: &Value) -> TraitReport {
    let stable = model::canonical::to_bytes(&providers::traits::stable(traits));
    let digest = stable.map_or(Digest::ZERO, |bytes| Digest::of(&bytes));
    let mut report = TraitReport::whole(digest, serde_json::to_value(traits).unwrap_or_default());
    let left_out = report.leave_out_what_is_too_large();
    if !left_out.is_empty() {
        tracing::warn!(groups = ?left_out, "traits are larger than they may travel; groups are left out");
    }
    report
}
