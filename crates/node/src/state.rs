//! What a node remembers between starts.

use std::collections::BTreeMap;

use model::exchange::{HeldRelease, Signed};
use model::{
    Action, Channel, Digest, Incarnation, ObjectKey, ObjectSet, RunCounts, RunReport, Stub, Timestamp,
};
use serde::{Deserialize, Serialize};
use trust::{Floor, Freshness};

use crate::freshness::FreshnessRecord;

/// A release as adopted: written whole, before anything of it takes effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// The signed header, for `muster-agent status` and proofs.
    pub header: Signed,
    /// Its digest.
    pub digest: Digest,
    /// Its channel.
    pub channel: Channel,
    /// Its number.
    pub seq: u64,
    /// The root of the node's set.
    pub root: Digest,
    /// The set, object by object; contents lie in the blob store.
    pub objects: BTreeMap<ObjectKey, Stub>,
    /// What the node must never go back behind.
    pub floor: Floor,
    /// How fresh it was then; an earlier agent did not keep that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,
    /// When it was adopted.
    pub adopted_at: Timestamp,
    /// The release that the host began it on, where that gave the node the same set: to leave this one changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<u64>,
}

impl Adoption {
    /// The set.
    pub fn set(&self) -> ObjectSet {
        ObjectSet::of(self.objects.iter().map(|(key, stub)| (key.clone(), stub.clone())))
    }

    /// Whether the host is as it was found: what it held failed, and it had nothing before. Of that release the header
    /// stays, for its floor, with a set of no object.
    pub fn is_as_found(&self) -> bool {
        self.root == Digest::ZERO
    }

    /// Whether this is all that leaving a release comes to: it gives the set that the host had before.
    pub(crate) fn leads_nowhere(&self, seq: u64) -> bool {
        self.seq != seq || self.same_as.is_some()
    }

    /// What a check-in says of it.
    pub fn held(&self) -> HeldRelease {
        HeldRelease { channel: self.channel.clone(), seq: self.seq, header: self.digest, root: self.root }
    }

    /// The same, as a host begins it that holds this.
    pub fn begun_on(self, held: Option<&Adoption>, now: Timestamp) -> Adoption {
        let same = held.filter(|held| held.root == self.root);
        let same_as = same.and_then(|held| match held.seq == self.seq {
            true => held.same_as,
            false => Some(held.seq),
        });
        Adoption { adopted_at: now, same_as, ..self }
    }

    /// The same with the freshness that its record says: with the beacons that came since it was adopted.
    pub fn fresh_as(self, record: &FreshnessRecord) -> Adoption {
        Adoption { freshness: Some(record.freshness), ..self }
    }

    /// This kept adoption, as a host adopts it that goes back to it from what it holds, offline. The floor of releases
    /// stays that of the release held; where that one's header names this one as a fallback, it is as fresh as that
    /// header and its beacons (ROL-4), which are in the `record` of the release held.
    pub fn returned_to(self, held: &Adoption, record: &FreshnessRecord) -> Adoption {
        let newest_signature = held.floor.newest_signature.max(record.newest_signature);
        let floor = Floor { newest_signature, ..held.floor.clone() };
        let is_fallback = floor.names(self.seq, &self.digest);
        let inherited = is_fallback.then(|| FreshnessRecord::of(&self).freshness.of_fallback(&floor));
        Adoption { freshness: inherited.or(self.freshness), floor, ..self }
    }
}

/// The newest trust document that a node took up, by the link to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustRecord {
    /// The digest of the document that the token named. A record of another one counts no more: the host was
    /// joined anew since.
    pub pinned: Digest,
    /// The signed document.
    pub link: Signed,
}

/// The last run, so that a start in between does not turn intended change into drift.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// The digest of what was bound: set root and traits.
    pub inputs: Digest,
    /// The digest of what it came to, times left out.
    pub outcome: Digest,
    /// When it ended.
    pub at: Timestamp,
    /// Its totals.
    #[serde(default)]
    pub counts: RunCounts,
    /// Resources that it left otherwise than declared because something failed: to put them right later is no
    /// correction of drift. As many as a report names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// The incarnation of the log that holds its report, or that of a run alike: in another incarnation
    /// nothing was reported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

/// What to write down of a run that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// The run, remembered.
    pub last: LastRun,
    /// Its report is a fact: it says something new, or something was changed (CNV-2).
    pub fact: bool,
    /// What is remembered on disk differs; written after the fact, so that a crash in between
    /// repeats a fact and loses none.
    pub save: bool,
}

impl LastRun {
    /// What to write down of a run, after the one before it.
    pub fn after(
        before: Option<&LastRun>,
        inputs: Digest,
        report: &RunReport,
        incarnation: &Incarnation,
        now: Timestamp,
    ) -> EndedRun {
        let outcome = report.outcome();
        let reported = before
            .is_some_and(|last| last.outcome == outcome && last.incarnation.as_ref() == Some(incarnation));
        // A run that only observed for a pause makes nothing so: what it bound is still to be intended.
        let bound = before.map_or(Digest::ZERO, |last| last.inputs);
        let inputs = if report.paused.is_some() { bound } else { inputs };
        let same_inputs = before.is_some_and(|last| last.inputs == inputs);
        let (counts, incarnation) = (report.counts, Some(incarnation.clone()));
        let last = LastRun { inputs, outcome, at: now, counts, unfinished: unfinished(report), incarnation };
        let says_more = report.counts.changed > 0 || !report.unknown_tags.is_empty();
        EndedRun { last, fact: !reported || says_more, save: !reported || !same_inputs }
    }

    /// The same, so that the next full run is reported whatever it comes to.
    pub fn unreported(self) -> LastRun {
        LastRun { incarnation: None, ..self }
    }

    /// Whether a partial run is reported: it changed something, failed at it, or was requested for a tag
    /// that no resource has. It is not remembered as the last run, because it is not the run that was due (CNV-3).
    pub fn partial_is_fact(report: &RunReport) -> bool {
        report.counts.changed > 0 || report.counts.failed > 0 || !report.unknown_tags.is_empty()
    }
}

fn unfinished(report: &RunReport) -> Vec<String> {
    if report.counts.failed == 0 {
        return Vec::new();
    }
    let unfinished =
        |action| matches!(action, Action::Failed | Action::Ignored | Action::Skipped | Action::Restored);
    let items = report.items.iter().filter(|item| unfinished(item.action));
    items.map(|item| item.resource.clone()).collect()
}
