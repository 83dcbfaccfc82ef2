//! What time and beacons make of the freshness of what is held.

use std::time::Duration;

use model::exchange::{HeldFreshness, Signed};
use model::{Digest, Timestamp};
use trust::beacon::{self, BeaconRefusal, BeaconSubject};
use trust::clock::TrustTime;

use super::Node;
use crate::freshness::FreshnessRecord;
use crate::io::{NodeEffect, Restored};

/// The least step of time.
const MILLI: Duration = Duration::from_millis(1);

/// A beacon that is no newer than what is known is no refusal worth a fact, and confirms nothing.
type BeaconNews = Result<Option<Timestamp>, BeaconRefusal>;

impl Node {
    /// How fresh what is held is; `None` while nothing is.
    pub fn freshness(&self) -> Option<HeldFreshness> {
        self.freshness.as_ref().map(FreshnessRecord::view)
    }

    /// What is kept of how fresh what is held is; `None` while nothing is.
    pub fn freshness_record(&self) -> Option<&FreshnessRecord> {
        self.freshness.as_ref()
    }

    /// The set held is past the channel's `bundle_max_age` without a full answer or a newer beacon. It is converged
    /// on all the same.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.stale_at().is_some_and(|at| now > at)
    }

    /// The last moment at which it is not stale.
    fn stale_at(&self) -> Option<Timestamp> {
        self.freshness.as_ref().map(|held| held.confirmed_at.plus(self.max_age()))
    }

    fn max_age(&self) -> Duration {
        Duration::from_secs(self.settings.policy.bundle_max_age_secs)
    }

    /// Whether a full answer is asked for now, so that what is held is confirmed before it is stale; spread, as a
    /// publish confirms all nodes at once.
    pub(super) fn asks_for_confirmation(&mut self, now: Timestamp) -> bool {
        let asks_after = self.max_age() / 4 * 3 + self.confirmation.spread.min(self.max_age() / 8);
        let is_due = |held: &FreshnessRecord| now.since(held.confirmed_at) > asks_after;
        // An answer that did not confirm it will not soon do so: a whole set in each answer would be for nothing.
        let asked = self.confirmation.asked.is_some_and(|at| now.since(at) < self.max_age() / 16);
        let asks = self.freshness.as_ref().is_some_and(is_due) && !asked;
        self.confirmation.asked = if asks { Some(now) } else { self.confirmation.asked };
        asks
    }

    /// The host's clock was set back.
    pub(super) fn set_freshness_back(&mut self, back: Duration) {
        self.confirmation.asked = self.confirmation.asked.map(|at| at.minus(back));
        if let Some(held) = &mut self.freshness {
            held.confirmed_at = held.confirmed_at.minus(back);
        }
    }

    /// The time that trust goes by now.
    pub(super) fn trust_time(&self, now: Timestamp) -> TrustTime {
        TrustTime {
            clock: now,
            control_plane: now.plus(self.clock_difference.unwrap_or_default().ahead),
            built: self.identity.built,
            newest_signature: self
                .freshness
                .as_ref()
                .map_or(Timestamp::default(), |held| held.newest_signature),
        }
    }

    /// When time alone changes something of it, by the host's clock.
    pub(super) fn freshness_deadline(&self) -> Option<(Timestamp, &'static str)> {
        let held = self.freshness.as_ref()?;
        let ahead = self.clock_difference.unwrap_or_default().ahead;
        let ends = held.freshness.ends_at().plus(MILLI).minus(ahead);
        let not_fresh =
            held.not_fresh_since.is_none().then_some((ends, "the end of the release's freshness"));
        let stale = self.stale_at().filter(|_| held.stale_since.is_none());
        let stale = stale.map(|at| (at.plus(MILLI), "the age at which what is held is stale"));
        not_fresh.into_iter().chain(stale).min()
    }

    /// Notices that what is held is not fresh or stale by now: once.
    pub(super) fn judge_freshness(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let (trusted, stale) = (self.trust_time(now).now(), self.is_stale(now));
        let stale_at = self.stale_at();
        let Some(held) = &mut self.freshness else { return };
        let ends = held.judge(trusted);
        let becomes_stale = stale && held.stale_since.is_none();
        if becomes_stale {
            held.stale_since = stale_at;
        }
        let signed = held.freshness.signed_at;
        if ends {
            effects.push(NodeEffect::Warn(format!(
                "not fresh: no release and no beacon was signed since {signed}; neither actions nor objects are taken \
                 from the control plane, and what is held is converged on"
            )));
        }
        if becomes_stale {
            effects.push(NodeEffect::Warn(
                "stale: no full answer and no newer beacon came within bundle_max_age; converging on what is held"
                    .to_owned(),
            ));
        }
        if ends || becomes_stale {
            self.freshness_changed(now, effects);
        }
    }

    /// Makes the freshness durable and effective, and a fact.
    fn freshness_changed(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.save_freshness(effects);
        let seq = self.adoption.as_ref().map_or(0, |held| held.seq);
        if let Some(fact) = self.freshness.as_ref().map(|held| held.fact(seq)) {
            self.append(fact, now, effects);
        }
    }

    fn save_freshness(&self, effects: &mut Vec<NodeEffect>) {
        effects.extend(self.freshness.clone().map(NodeEffect::SaveFreshness));
    }

    /// A release was adopted, perhaps the one that was held already.
    pub(super) fn freshness_follows(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let Some(adoption) = &self.adoption else { return };
        let before = self.freshness.take();
        let held = match &before {
            Some(before) => before.adopts(adoption),
            None => FreshnessRecord::of(adoption),
        };
        // Else a start finds it in the adoption.
        let says_more = held != FreshnessRecord::of(adoption);
        let was_news = before.is_some_and(|before| before.view().is_notable());
        let is_over = was_news && !held.view().is_notable();
        self.freshness = Some(held);
        self.confirmed();
        if is_over {
            self.freshness_changed(now, effects);
        } else if says_more {
            self.save_freshness(effects);
        }
    }

    /// Something confirmed what is held: a full answer is due later.
    fn confirmed(&mut self) {
        self.confirmation.spread = self.spread.up_to(self.max_age() / 8);
    }

    /// A beacon came for the release that is held. One that is refused changes nothing, and is a fact once.
    pub(super) fn on_beacon(&mut self, document: &Signed, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        match self.verify_beacon(document, now) {
            Ok(None) => {}
            Ok(Some(at)) => {
                self.confirmation.refused = None;
                self.confirmed();
                let newest_signature = self.trust_time(now).remembered(at);
                let Some(held) = &mut self.freshness else { return };
                let was_news = held.view().is_notable();
                held.signed(at, newest_signature, now);
                match was_news {
                    true => self.freshness_changed(now, effects),
                    false => self.save_freshness(effects),
                }
            }
            Err(refusal) => {
                let what = (trust::signed::digest(document), refusal.code());
                if self.confirmation.refused.replace(what) != Some(what) {
                    self.append_refusal(
                        refusal.code(),
                        format!("the beacon is refused: {refusal}"),
                        now,
                        effects,
                    );
                }
            }
        }
    }

    fn verify_beacon(&self, document: &Signed, now: Timestamp) -> BeaconNews {
        let (Some(held), Some(record)) = (&self.adoption, &self.freshness) else { return Ok(None) };
        let beacon = beacon::open(document, self.chain.document())?;
        let subject = BeaconSubject { channel: &held.channel, seq: held.seq, header: &held.digest };
        beacon::check(&beacon, subject, self.trust_time(now).for_beacons())?;
        let newer = beacon::is_newer(&beacon, record.freshness.signed_at)?;
        Ok(newer.then_some(beacon.at))
    }

    fn append_refusal(&mut self, code: &str, message: String, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        effects.push(NodeEffect::Warn(format!("refused what the control plane sends: {message}")));
        self.append(model::log::FactBody::Refused { code: code.to_owned(), message }, now, effects);
    }
}

/// What is known of the confirmation of what is held.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    /// How much later than it may a full answer is asked for.
    spread: Duration,
    /// When one was asked for that did not come yet, or confirmed nothing.
    pub(super) asked: Option<Timestamp>,
    /// The beacon that was refused last: its digest, and why.
    refused: Option<(Digest, &'static str)>,
}

/// The freshness of what is held, at the start.
pub(super) fn restored(restored: &Restored, now: Timestamp) -> Option<FreshnessRecord> {
    let held = FreshnessRecord::restored(restored.adoption.as_ref()?, restored.freshness.as_ref());
    // The clock may have been set back since.
    Some(FreshnessRecord { confirmed_at: held.confirmed_at.min(now), ..held })
}
