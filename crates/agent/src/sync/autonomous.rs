//! Autonomous mode: what is found in the backend is the truth, and goes up (SYN-5).
//!
//! ```text
//! listing, own set --> to put --------------------------> own set
//!                  +-> vanished --Vanishing, Guard--> removed, or held until an operator approves
//! ```
//!
//! Invariants: what vanished is judged as one when no more of it vanishes; a mass of it goes only on
//! an operator's word; nothing goes that could not be looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::Listing;
use backends::reconcile::{self, Guard, HeldDeletion, HoldReason};
use bytes::Bytes;
use model::collect::CollectInserting;
use model::condition::NodeProblem;
use model::{ObjectKey, Stub};
use sync::Side;
use sync::object::{self, MAX_CONTENT};

use super::reconciler::Reconciler;
use super::sets::OwnChange;

/// Nothing more has vanished for so long when what vanished is judged, as one.
const VANISHING: Duration = Duration::from_secs(3);
/// What goes on vanishing is judged after this all the same.
const VANISHING_LONGEST: Duration = Duration::from_secs(60);

/// What is vanishing from the backend.
#[derive(Debug, Default)]
pub(super) struct Vanishing {
    gone: BTreeSet<ObjectKey>,
    /// Since when something is, and when the last of it went.
    times: Option<(Instant, Instant)>,
}

impl Vanishing {
    /// Whether all that is going to vanish has, as far as is known.
    fn is_over(&mut self, gone: BTreeSet<ObjectKey>, now: Instant) -> bool {
        let grew = gone.iter().any(|key| !self.gone.contains(key));
        self.gone = gone;
        let (begun, last) = self.times.get_or_insert((now, now));
        if grew {
            *last = now;
        }
        let over = now.duration_since(*last) >= VANISHING || now.duration_since(*begun) >= VANISHING_LONGEST;
        if over {
            *self = Vanishing::default();
        }
        over
    }
}

impl Reconciler {
    /// What is found goes into the own set; what vanished goes out of it, unless that is a
    /// mass that nobody confirmed. True when all went well.
    pub(super) fn reconcile_autonomous(&mut self, listing: &Listing) -> bool {
        let kinds = &self.kinds;
        let fed = self.context.sets.stubs(Side::Feed, |key| kinds.contains(&key.section.kind));
        let fed: BTreeMap<ObjectKey, Stub> = fed.into_iter().collect_inserting();
        let confirmed = self.is_approved();
        self.opened.seen |= !listing.objects.is_empty();
        let max_delete_percent = self.policy.max_delete_percent;
        let guard = Guard { max_delete_percent, confirmed, unseen: !self.opened.seen };
        let mut changes = reconcile::autonomous(&fed, listing, guard);
        let gone: BTreeSet<ObjectKey> = changes.remove.iter().cloned().collect_inserting();
        if !confirmed && !changes.remove.is_empty() && !self.opened.vanishing.is_over(gone, Instant::now()) {
            // More may vanish: together they are judged, not one after the other.
            changes.remove.clear();
            self.reconcile_within(VANISHING);
        }
        self.hold_back(changes.held.as_ref());
        let uids = self.uids(listing, &fed);
        // What the release names the kind of no longer.
        let mut own = self.gone(|key| {
            let kind = object::kind_of_status(&key.section.kind);
            !self.kinds.contains(kind.as_ref().unwrap_or(&key.section.kind))
        });
        own.extend(changes.remove.into_iter().map(OwnChange::Remove));
        let put = listing.objects.iter().filter(|found| changes.put.contains(&found.key));
        own.extend(put.filter_map(|found| self.up(&found.key, uids.get(&found.key)?, &found.spec)));
        own.extend(self.statuses(listing, |found| uids.get(&found.key).cloned()));
        let well = self.own(own) && uids.len() == listing.objects.len();
        if well && confirmed && self.opened.held.is_none() {
            self.approval_used();
        }
        well
    }

    /// Shows what vanished and is not taken for deleted.
    fn hold_back(&mut self, held: Option<&HeldDeletion>) {
        let count = held.map_or(0, |held| held.keys.len());
        let (text, too_many) = match held.map(|held| held.why) {
            None => (None, None),
            Some(HoldReason::Incomplete) => {
                (Some(format!("{count} objects are not seen, and not all could be looked at")), None)
            }
            Some(HoldReason::TooMany { of }) => (
                Some(format!(
                    "{count} of {of} objects vanished at once (if that is meant: `{}` here, or `muster object \
                     resync NODE --approve-deletions`)",
                    crate::invocation::command("approve-deletes")
                )),
                Some(NodeProblem::DeletionsHeldBack { kept: count as u64, of: of as u64 }),
            ),
        };
        if text.is_some() && self.opened.held.is_none() {
            tracing::warn!(held = text, "vanished objects are held back");
        }
        self.opened.held = too_many;
        self.context.view.set(|view| view.held = text);
    }

    /// The uid of each object found: its own, else the one that it has in the own set, else a new one,
    /// if the system has randomness for it.
    fn uids(&mut self, listing: &Listing, fed: &BTreeMap<ObjectKey, Stub>) -> BTreeMap<ObjectKey, Arc<str>> {
        let mut uids = BTreeMap::new();
        for found in &listing.objects {
            let known = found.uid.as_deref().map(Arc::from);
            let known = known.or_else(|| fed.get(&found.key).map(|fed| fed.uid.clone()));
            let Some(uid) = known.or_else(|| self.fresh_uid()) else { continue };
            if let (None, Some(backend)) = (&found.uid, &mut self.opened.backend) {
                backend.assign_uid(&found.key, &uid);
            }
            uids.insert(found.key.clone(), uid);
        }
        uids
    }

    /// A uid that no object has.
    fn fresh_uid(&self) -> Option<Arc<str>> {
        let mut bytes = [0; 16];
        let filled = getrandom::fill(&mut bytes).map_err(|error| format!("no randomness for a uid: {error}"));
        filled.map_err(|problem| self.problem("objects", Some(problem))).ok()?;
        Some(sync::identity::uid(bytes))
    }

    /// The change that puts an object into the own set, unless it is too large.
    pub(super) fn up(&self, key: &ObjectKey, uid: &Arc<str>, content: &Bytes) -> Option<OwnChange> {
        let large = content.len() > MAX_CONTENT;
        let why = || format!("it is larger than {MAX_CONTENT} bytes, and is not synchronized");
        self.problem(&format!("object {key}"), large.then(why));
        (!large).then(|| OwnChange::Put { key: key.clone(), uid: uid.clone(), content: content.clone() })
    }
}
