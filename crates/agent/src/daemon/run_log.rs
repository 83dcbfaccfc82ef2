//! [`RunLog`]: what the journal says of runs. Each failed resource is named with its cause, once for as
//! long as the cause is the same.

use std::collections::BTreeMap;

use model::collect::CollectInserting;
use model::{Action, Digest, ResourceReport, RunReport};

/// The most failures that one run names; the rest is counted.
const MAX_NAMED: usize = 20;
/// The most failures that are remembered as named.
const MAX_REMEMBERED: usize = 1000;

/// Which failures were named already.
#[derive(Debug, Default)]
pub(super) struct RunLog(BTreeMap<String, Digest>);

impl RunLog {
    /// A run ended.
    pub(super) fn ended(&mut self, report: &RunReport) {
        let counts = &report.counts;
        if counts.changed + counts.failed > 0 {
            tracing::info!(
                changed = counts.changed,
                failed = counts.failed,
                ok = counts.ok,
                skipped = counts.skipped,
                ms = report.duration_ms,
                "a run ended"
            );
        } else {
            tracing::debug!(ok = counts.ok, ms = report.duration_ms, "a run ended");
        }
        let new = self.new_failures(report);
        for (resource, cause) in new.iter().take(MAX_NAMED) {
            tracing::warn!(resource, cause, "a resource failed");
        }
        if new.len() > MAX_NAMED {
            let more = new.len() - MAX_NAMED;
            tracing::warn!(more, "more resources failed: {}", crate::invocation::command("status"));
        }
    }

    /// The failures that the journal has not named yet, with their causes; forgets what is over.
    fn new_failures<'a>(&mut self, report: &'a RunReport) -> Vec<(&'a str, &'a str)> {
        let failed = report.items.iter().filter(|item| item.action == Action::Failed);
        let failed: BTreeMap<&str, &ResourceReport> =
            failed.map(|item| (item.resource.as_str(), item)).collect_inserting();
        self.0.retain(|resource, _| {
            // A partial run says nothing of what it did not look at.
            let still = failed.contains_key(resource.as_str()) || report.partial.is_some();
            if !still {
                tracing::info!(resource, "a resource that had failed is right again, or gone");
            }
            still
        });
        let mut new = Vec::new();
        for (resource, item) in failed {
            let cause = item.reason.as_deref().unwrap_or("no cause is known");
            // Process ids and output differ from run to run.
            let digest = match &item.cause {
                Some(known) => Digest::of(format!("{:?} {}", known.code, known.detail).as_bytes()),
                None => Digest::of(cause.as_bytes()),
            };
            if self.0.get(resource) == Some(&digest) {
                continue;
            }
            if self.0.len() < MAX_REMEMBERED || self.0.contains_key(resource) {
                self.0.insert(resource.to_owned(), digest);
            }
            new.push((resource, cause));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{RunCounts, Timestamp};

    fn failing(causes: &[(&str, &str)]) -> RunReport {
        let item = |(resource, cause): &(&str, &str)| ResourceReport {
            resource: (*resource).to_owned(),
            action: Action::Failed,
            edit: None,
            reason: Some((*cause).to_owned()),
            cause: None,
            duration_ms: 0,
        };
        RunReport {
            started: Timestamp(0),
            duration_ms: 0,
            seq: 1,
            root: Digest::ZERO,
            intended: false,
            paused: None,
            partial: None,
            unknown_tags: vec![],
            unswitched: Vec::new(),
            counts: RunCounts::default(),
            items: causes.iter().map(item).collect(),
        }
    }

    #[test]
    fn an_unchanged_failure_is_named_once() {
        let mut log = RunLog::default();
        let mut named = |causes: &[(&str, &str)]| log.new_failures(&failing(causes)).len();
        assert_eq!(named(&[("a", "full"), ("b", "gone")]), 2);
        assert_eq!(named(&[("a", "full"), ("b", "gone")]), 0, "named again");
        assert_eq!(named(&[("a", "full"), ("b", "denied")]), 1, "another cause is news");
        assert_eq!(named(&[("b", "denied")]), 0);
        assert_eq!(named(&[("a", "full"), ("b", "denied")]), 1, "it failed anew");
    }
}
