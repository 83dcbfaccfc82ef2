//! What is gone of the release that is held comes again (LIF-10).
//!
//! What is held is converged on for ever, so neither a retired key nor a clock nor the end of its freshness keeps it
//! from being mended. Mending makes nothing newer: floor, freshness and the time of adoption stay.

use model::Timestamp;
use model::collect::CollectInserting;
use model::exchange::Offer;
use trust::adopt::Refusal;

use super::{Node, ReleaseChange};
use crate::io::{HeldSettings, NodeEffect};
use crate::state::Adoption;

impl Node {
    /// Asks for the whole set: what is damaged or gone of its contents is fetched then, and the rest stays.
    pub(super) fn on_content_missing(&mut self, now: Timestamp) {
        self.want_full = true;
        self.repairing = true;
        self.say_soon(now);
    }

    /// Whether an offer that is refused gives what is missing here: the set that is held, whose contents are known by
    /// their digests.
    pub(super) fn repairs(&self, offer: &Offer) -> bool {
        self.repairing && self.adoption.as_ref().is_some_and(|held| held.root == offer.entry.root)
    }

    /// Takes the contents of what is held from an offer, and nothing else.
    pub(super) fn fetch_held(
        &mut self,
        offer: &Offer,
        refusal: &Refusal,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let Some(held) = &self.adoption else { return };
        let set = match self.put_together(offer, held.root) {
            Ok(set) => set,
            Err(refusal) => return self.refuse(offer, &refusal, now, effects),
        };
        let objects = set.objects().map(|(key, stub)| (key, stub.clone())).collect_inserting();
        let held = Adoption { objects, ..held.clone() };
        // Of what is held nothing is refused.
        if trust::signed::digest(&offer.header) != held.digest {
            self.tell_refusal(offer, refusal, now, effects);
        }
        let contents = held.objects.values().map(|stub| stub.digest).collect_inserting();
        let inline = offer.set.as_ref().map(|set| set.contents.clone()).unwrap_or_default();
        self.change = ReleaseChange::FetchingHeld(Box::new(held));
        effects.push(NodeEffect::Fetch { contents, inline });
    }

    /// What is held is known here, and its record is gone.
    pub(super) fn record_release_again(&mut self, effects: &mut Vec<NodeEffect>) {
        // One that does not stay is not written over and over: the next run that is due tries again.
        if std::mem::replace(&mut self.recorded_again, true) {
            self.recorded_again = false;
            return;
        }
        if let (ReleaseChange::None, Some(held)) = (&self.change, &self.adoption) {
            let held = held.clone();
            self.repairing = true;
            self.write_held(held, effects);
        }
    }

    pub(super) fn write_held(&mut self, held: Adoption, effects: &mut Vec<NodeEffect>) {
        self.change = ReleaseChange::WritingHeld(Box::new(held.clone()));
        effects.push(NodeEffect::Adopt(Box::new(held)));
    }

    /// It is whole again: a run follows.
    pub(super) fn on_held_written(&mut self, held: Adoption, settings: HeldSettings) {
        self.settings = settings;
        (self.stuck, self.want_full, self.repairing) = (0, false, false);
        self.adoption = Some(held);
        self.run_due = true;
    }
}
