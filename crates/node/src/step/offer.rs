//! What becomes of a release that is offered: judged, put together, fetched (ROL-4, DLT-4).

use model::collect::CollectInserting;
use model::exchange::Offer;
use model::log::FactBody;
use model::{Digest, ObjectKey, ObjectSet, Timestamp};
use trust::Floor;
use trust::adopt::{self, Judge, Refusal};
use trust::feature::FEATURES;

use super::{FetchingRelease, Node, ReleaseChange};
use crate::io::NodeEffect;
use crate::state::Adoption;

impl Node {
    pub(super) fn on_offer(
        &mut self,
        offer: Offer,
        rollout_seq: Option<u64>,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        // One that waits to be begun is no change under way, and another one takes its place.
        if self.waits_for(&offer) || !matches!(self.change, ReleaseChange::None) {
            // One release at a time; its end leads to the next check-in.
            return self.run_after_answer(now);
        }
        if self.adoption.as_ref().map(|adoption| adoption.digest) != self.asked_from {
            // Another release was adopted since the node asked: this is no difference from it.
            return self.deliver_soon(now);
        }
        let is_held = self.asked_from == Some(trust::signed::digest(&offer.header));
        if self.rollout.keeps_others_out() && !(is_held && self.repairing) {
            // Its end leads to the next check-in.
            return self.run_after_answer(now);
        }
        let mut floor = self.adoption.as_ref().map_or_else(Floor::default, |held| held.floor.clone());
        let time = self.trust_time(now);
        // A beacon that came later raised it.
        floor.newest_signature = floor.newest_signature.max(time.newest_signature);
        let judge = Judge {
            trust: self.chain.document(),
            hostname: &self.identity.hostname,
            floor: &floor,
            time,
            matches: &adopt::takes,
            features: FEATURES,
        };
        let judged = adopt::judge(&offer, judge)
            .and_then(|adopted| Ok((self.put_together(&offer, adopted.root)?, adopted)));
        match judged {
            Ok((set, adopted)) => self.fetch(FetchingRelease { offer, adopted, set, rollout_seq }, effects),
            Err(refusal) if self.repairs(&offer) => self.fetch_held(&offer, &refusal, now, effects),
            Err(refusal) => self.refuse(&offer, &refusal, now, effects),
        }
    }

    /// The set offered, from the set held and the difference; its root must be the one that
    /// the release gives to this node.
    pub(super) fn put_together(&self, offer: &Offer, root: Digest) -> Result<ObjectSet, Refusal> {
        let held = self.adoption.as_ref().map(Adoption::set).unwrap_or_default();
        let set = match &offer.set {
            None => held,
            Some(difference) => {
                let base = match difference.base {
                    None => ObjectSet::new(),
                    Some(base) if base == held.root() => held,
                    Some(_) => return Err(Refusal::Malformed("it starts from a set not held here".into())),
                };
                base.apply(&difference.delta).map_err(|error| Refusal::Malformed(error.to_string()))?
            }
        };
        if set.root() != root {
            return Err(Refusal::OtherRoot { got: set.root(), want: root });
        }
        Ok(set)
    }

    pub(super) fn refuse(
        &mut self,
        offer: &Offer,
        refusal: &Refusal,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        self.not_stuck();
        // What does not fit what is held is asked for whole: it may be the held that is odd.
        self.want_full = matches!(refusal, Refusal::Malformed(_) | Refusal::OtherRoot { .. });
        self.tell_refusal(offer, refusal, now, effects);
        self.run_after_answer(now);
    }

    pub(super) fn tell_refusal(
        &mut self,
        offer: &Offer,
        refusal: &Refusal,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let what = (trust::signed::digest(&offer.header), refusal.code());
        // The same refusal at every contact is one fact, not a growing log.
        if self.refused == Some(what) {
            return;
        }
        self.refused = Some(what);
        let difference = self.clock_difference.filter(|_| refusal.is_of_time());
        let clocks = difference.map(|difference| difference.text()).unwrap_or_default();
        let (code, message) = (refusal.code().to_owned(), format!("{refusal}{clocks}"));
        effects.push(NodeEffect::Warn(format!("refused what the control plane points to: {message}")));
        self.append(FactBody::Refused { code, message }, now, effects);
    }

    fn fetch(&mut self, pending: FetchingRelease, effects: &mut Vec<NodeEffect>) {
        let contents = pending.set.objects().map(|(_, stub)| stub.digest).collect_inserting();
        let inline = pending.offer.set.as_ref().map(|set| set.contents.clone()).unwrap_or_default();
        self.change = ReleaseChange::Fetching(Box::new(pending));
        effects.push(NodeEffect::Fetch { contents, inline });
    }

    pub(super) fn on_fetched(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let pending = match std::mem::take(&mut self.change) {
            ReleaseChange::Fetching(pending) => pending,
            ReleaseChange::FetchingHeld(held) => return self.write_held(*held, effects),
            other => return self.change = other,
        };
        let objects = pending.set.objects().map(|(key, stub)| (key, stub.clone()));
        let mut adoption = Adoption {
            header: pending.offer.header,
            digest: pending.adopted.digest,
            channel: pending.adopted.header.channel.clone(),
            seq: pending.adopted.header.seq,
            root: pending.adopted.root,
            objects: objects.collect_inserting::<std::collections::BTreeMap<ObjectKey, _>>(),
            floor: pending.adopted.floor,
            freshness: Some(pending.adopted.freshness),
            adopted_at: now,
            same_as: None,
        };
        // A host that is back as it was found has that header still, and nothing of its set.
        let is_same = |held: &&Adoption| (held.digest, held.root) == (adoption.digest, adoption.root);
        let held = self.adoption.as_ref().filter(is_same);
        if pending.adopted.header.rollout.is_some() && held.is_none() {
            let is_before = pending.rollout_seq.is_some_and(|seq| seq > adoption.seq);
            return self.prepare(adoption, &pending.adopted.header, is_before, effects);
        }
        adoption.same_as = held.and_then(|held| held.same_as);
        self.adopt(adoption, effects);
    }

    pub(super) fn adopt(&mut self, adoption: Adoption, effects: &mut Vec<NodeEffect>) {
        if self.supersedes(&adoption, effects) {
            return;
        }
        self.change = ReleaseChange::Adopting(Box::new(adoption.clone()));
        effects.push(NodeEffect::Adopt(Box::new(adoption)));
    }
}
