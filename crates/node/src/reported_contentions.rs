//! [`ReportedContentions`]: what was reported of contentions, so that only news is reported (CNV-7).
//!
//! A contention that begins, ends or gets a culprit is reported at once. Several culprits by turns would be
//! reported with each change: another culprit of what is contended anyway waits.

use std::collections::BTreeMap;
use std::time::Duration;

use model::collect::CollectInserting;
use model::{Contention, Timestamp};

/// Another culprit of what is contended anyway is reported at most so often, and not before the resource is put
/// right again.
pub const CULPRIT_REPORTED_EVERY: Duration = Duration::from_secs(600);

/// The contentions as they were reported last.
#[derive(Clone, Debug, Default)]
pub struct ReportedContentions {
    contentions: Vec<Contention>,
    at: Timestamp,
}

impl ReportedContentions {
    /// Those that are to be reported, when anything is: also when some have ended, and none is new.
    pub fn news<'a>(&self, contended: &'a [Contention], now: Timestamp) -> Option<Vec<&'a Contention>> {
        if self.contentions.is_empty() && contended.is_empty() {
            return None;
        }
        let reported: BTreeMap<&str, &Contention> =
            self.contentions.iter().map(|known| (known.resource.as_str(), known)).collect_inserting();
        let known = |new: &&Contention| {
            reported.get(new.resource.as_str()).filter(|known| known.is_same_fight(new)).copied()
        };
        let ended = contended.iter().filter_map(|new| known(&new)).count() < self.contentions.len();
        let is_news = |new: &&Contention| match known(new) {
            None => true,
            Some(known) if known.tells_the_same(new) => false,
            Some(known) => known.culprit.is_none() || now >= self.names_another_at(new),
        };
        let news: Vec<&Contention> = contended.iter().filter(is_news).collect();
        (ended || !news.is_empty()).then_some(news)
    }

    fn names_another_at(&self, contention: &Contention) -> Timestamp {
        self.at.plus(CULPRIT_REPORTED_EVERY.max(Duration::from_secs(contention.wait_secs)))
    }

    /// These were reported.
    pub fn reported(&mut self, contended: &[Contention], now: Timestamp) {
        (self.contentions, self.at) = (contended.to_vec(), now);
    }

    /// The clock was set back by so much.
    pub fn set_back(&mut self, back: Duration) {
        let since = self.contentions.iter_mut().map(|known| &mut known.since);
        since.chain([&mut self.at]).for_each(|at| *at = at.minus(back));
    }
}
