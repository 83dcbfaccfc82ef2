//! Reports: what a run did, resource by resource (CNV-2).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::delta::{Edit, Fields};
use crate::{Digest, Timestamp, canonical};

/// The most resources that a report names; the counts always cover all of them.
pub const MAX_ITEMS: usize = 500;
/// The longest error or output text, in bytes, that a report carries.
pub const MAX_TEXT: usize = 4 * 1024;
/// The most failures of a run that a control plane keeps beside the report.
pub const MAX_NOTED_FAILURES: usize = 4;
/// The longest [`FailureNote::reason`], in bytes.
pub const MAX_NOTED_REASON: usize = 240;
/// The longest resource that a control plane keeps of a failure, in bytes.
pub const MAX_NOTED_RESOURCE: usize = 512;
/// The longest [`FailureCause::detail`], in bytes.
pub const MAX_CAUSE_DETAIL: usize = 160;
/// The most resources that a report names as not switched.
pub const MAX_UNSWITCHED: usize = 16;
/// The longest reason of a [`Pause`], in bytes.
pub const MAX_PAUSE_REASON: usize = 500;

/// What a run, or a plan, came to. Resources that were already right are only counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// When it began.
    pub started: Timestamp,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The release that was bound, by its `seq`.
    pub seq: u64,
    /// The root of the set that was bound.
    pub root: Digest,
    /// The set was adopted since the last run, so changes are intended and no drift.
    pub intended: bool,
    /// The host is paused: the run only observed, and nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// What the run was about, where it was not about all of the set. Such a run says nothing
    /// of the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialRun>,
    /// Tags of an operator's request that the run carried out, which no resource of the node has. At most
    /// [`crate::tags::MAX_RUN_TAGS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_tags: Vec<String>,
    /// Resources by `module/type:name` that are switched as a whole or not at all, and were not: in a rollout the switch to
    /// the release, or the way back, has failed (ROL-10). At most [`MAX_UNSWITCHED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unswitched: Vec<String>,
    /// Totals.
    pub counts: RunCounts,
    /// Every resource that was not simply right, at most [`MAX_ITEMS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ResourceReport>,
}

impl RunReport {
    /// What was not switched, with the reason of the first of it; nothing where all was.
    pub fn not_switched(&self) -> Option<String> {
        let first = self.unswitched.first()?;
        let item = self.items.iter().find(|item| item.resource == *first);
        let reason = item.and_then(|item| item.reason.as_deref()).map(|why| format!(": {why}"));
        let reason = reason.unwrap_or_default();
        match self.unswitched.len() {
            1 => Some(format!("{first} is not switched{reason}")),
            more => Some(format!("{first} and {} more are not switched{reason}", more - 1)),
        }
    }

    /// The digest of what the run came to, times left out: two runs with one digest say the same.
    pub fn outcome(&self) -> Digest {
        let mut timeless = self.clone();
        timeless.started = Timestamp::default();
        timeless.duration_ms = 0;
        timeless.intended = false;
        timeless.seq = 0;
        // They are what was asked, not what the host is like.
        timeless.unknown_tags.clear();
        for item in &mut timeless.items {
            item.duration_ms = 0;
            if item.cause.is_some() {
                // Process ids and output differ from run to run, and the cause is the same.
                item.reason = None;
            }
        }
        // A report always has a canonical form; if one ever had none it would count as changed.
        canonical::to_bytes(&timeless).map_or(Digest::ZERO, |bytes| Digest::of(&bytes))
    }
}

/// Somebody on the host paused it: until the pause ends, runs only observe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// Why, as it was typed: 1 to [`MAX_PAUSE_REASON`] bytes on one line.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Pause {
    /// It has ended by itself.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The longest [`UnmadeRun::reason`], in bytes.
pub const MAX_UNMADE_REASON: usize = 500;

/// Why no run can be made on a node, while that is so (CNV-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmadeRun {
    /// When the first that could not be made was due.
    pub since: Timestamp,
    /// The sort of cause.
    pub cause: UnmadeRunCause,
    /// Why, in words, with what to do about it where the node knows: at most [`MAX_UNMADE_REASON`] bytes.
    pub reason: String,
}

/// The sort of cause for which a run could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnmadeRunCause {
    /// A content of the release that is held is damaged or gone. It is fetched again.
    MissingContent,
    /// The record of the release that is held is damaged or gone. It is written again.
    ReleaseLost,
    /// The state directory cannot be used.
    State,
    /// Something else, or a cause that a newer agent knows.
    #[serde(other)]
    Other,
}

impl UnmadeRun {
    /// With a reason within its bound.
    pub fn new(since: Timestamp, cause: UnmadeRunCause, reason: &str) -> UnmadeRun {
        let reason = reason[..reason.floor_char_boundary(MAX_UNMADE_REASON)].to_owned();
        UnmadeRun { since, cause, reason }
    }
}

/// Which resources a partial run was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PartialRun {
    /// Those with one of these tags.
    Tags(Vec<String>),
    /// So many single ones.
    Resources(u32),
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// Modules in the set.
    pub modules: u32,
    /// Resources already as declared.
    pub ok: u32,
    /// Resources that were changed.
    pub changed: u32,
    /// Resources that failed, those whose failure is ignored excepted.
    pub failed: u32,
    /// Resources skipped: `when` false, a failed dependency, rooted.
    pub skipped: u32,
    /// Resources that only observe and would change.
    pub would_change: u32,
}

/// What became of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReport {
    /// `module/type:name`.
    pub resource: String,
    /// What was done.
    pub action: Action,
    /// From what to what; absent where hidden (`sensitive`) or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit<Fields>>,
    /// Why it failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it failed, where that can be told apart from other failures; absent where it did not, or
    /// where `reason` is all that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCause>,
    /// How long check and apply took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// Why a resource failed, as programs compare it: equal on two hosts where the same is wrong, whatever
/// process ids, times and output differ between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureCause {
    /// The sort of failure.
    pub code: FailureCode,
    /// What of it is the same on every host: an exit status, the program that holds a lock. At most
    /// [`MAX_CAUSE_DETAIL`] bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The sort of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCode {
    /// Another program holds a lock.
    LockHeld,
    /// A command exited with a status that is no success, or a signal ended it.
    CommandFailed,
    /// A command did not end in time, and was killed.
    CommandTimedOut,
    /// A unit did not come up, or did not stay up.
    UnitDown,
    /// No repository knows the package or the version.
    PackageUnknown,
    /// The package manager refuses the change, or it would touch what nobody declared.
    PackageRefused,
    /// The package manager began, and the package is not as declared after it.
    PackageFailed,
    /// The package manager was interrupted, and cannot finish what it was at.
    PackagesInterrupted,
    /// Something uses what is to be changed or removed.
    InUse,
    /// The disk is full.
    DiskFull,
    /// The file system cannot be written.
    ReadOnly,
    /// It needs a secret that this node cannot open; all else is converged (SEC-1).
    Blocked,
    /// One that a newer agent knows.
    #[serde(other)]
    Other,
}

/// A failure of a run in short, as a control plane keeps it of each node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureNote {
    /// `module/type:name`; a module where its `verify` failed. At most [`MAX_NOTED_RESOURCE`] bytes.
    pub resource: String,
    /// Why, as programs compare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCause>,
    /// Why, in words: at most [`MAX_NOTED_REASON`] bytes.
    #[serde(default)]
    pub reason: String,
}

/// What two failures have in common when they are one cause on two nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureKey {
    resource: String,
    cause: SharedCause,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SharedCause {
    Known(FailureCause),
    /// Nothing but the words is known.
    Words(String),
}

impl FailureNote {
    /// What a report says of a resource, in short.
    pub(crate) fn of(item: &ResourceReport) -> FailureNote {
        // What a node sends is as long as its report may be.
        let clip = |text: &str, most: usize| text[..text.floor_char_boundary(most)].to_owned();
        let clip_cause = |cause: &FailureCause| FailureCause {
            code: cause.code,
            detail: clip(&cause.detail, MAX_CAUSE_DETAIL),
        };
        FailureNote {
            resource: clip(&item.resource, MAX_NOTED_RESOURCE),
            cause: item.cause.as_ref().map(clip_cause),
            reason: clip(item.reason.as_deref().unwrap_or_default(), MAX_NOTED_REASON),
        }
    }

    /// What it has in common with failures of the same cause. One that is known by words alone, or by a
    /// code that is not known here, is like another with the same words.
    pub fn key(&self) -> FailureKey {
        let known = self.cause.clone().filter(|cause| cause.code != FailureCode::Other);
        let cause = known.map_or_else(|| SharedCause::Words(self.reason.clone()), SharedCause::Known);
        FailureKey { resource: self.resource.clone(), cause }
    }

    /// The failure for people, on one line.
    pub fn line(&self) -> String {
        let reason = self.reason.lines().next().unwrap_or_default();
        if reason.is_empty() { self.resource.clone() } else { format!("{}: {reason}", self.resource) }
    }
}

impl RunCounts {
    /// Counts a resource by what was done now instead of what was done before.
    pub fn recount(&mut self, before: Option<Action>, now: Option<Action>) {
        if let Some(count) = self.of(before) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = self.of(now) {
            *count = count.saturating_add(1);
        }
    }

    /// The count that an action belongs to.
    fn of(&mut self, action: Option<Action>) -> Option<&mut u32> {
        match action? {
            Action::Ok => Some(&mut self.ok),
            Action::Changed | Action::Deleted => Some(&mut self.changed),
            Action::Failed => Some(&mut self.failed),
            Action::Skipped => Some(&mut self.skipped),
            Action::WouldChange | Action::Unknown => Some(&mut self.would_change),
            Action::Restored | Action::Ignored => None,
        }
    }
}

/// What was done about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It was as declared.
    Ok,
    /// It was changed.
    Changed,
    /// It could not be checked or changed.
    Failed,
    /// It failed, and its failure is ignored.
    Ignored,
    /// It was not looked at.
    Skipped,
    /// It would have been changed; it only observes, or this is a plan.
    WouldChange,
    /// It may change; nothing can say before it runs.
    Unknown,
    /// It was put back after its module's verify failed, or on removal.
    Restored,
    /// It left the set and was deleted.
    Deleted,
}
