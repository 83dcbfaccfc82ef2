//! [`ToldContentions`]: what was told of contentions, so that only news is told (CNV-7).
//!
//! A fight that begins, ends or gets a name is told at once. Several that fight by turns would be told with
//! each change: another name for what is contended anyway waits.

use std::collections::BTreeMap;
use std::time::Duration;

use model::collect::CollectInserting;
use model::{Contention, Timestamp};

/// Another culprit of what is contended anyway is told at most so often, and not before the resource is put
/// right again.
pub const CULPRIT_TOLD_EVERY: Duration = Duration::from_secs(600);

/// The contentions as they were told last.
#[derive(Clone, Debug, Default)]
pub struct ToldContentions {
    contentions: Vec<Contention>,
    at: Timestamp,
}

impl ToldContentions {
    /// Those that are to be told, when anything is: also when some have ended, and none is new.
    pub fn news<'a>(&self, contended: &'a [Contention], now: Timestamp) -> Option<Vec<&'a Contention>> {
        if self.contentions.is_empty() && contended.is_empty() {
            return None;
        }
        let told: BTreeMap<&str, &Contention> =
            self.contentions.iter().map(|told| (told.resource.as_str(), told)).collect_inserting();
        let known = |new: &&Contention| {
            told.get(new.resource.as_str()).filter(|told| told.is_same_fight(new)).copied()
        };
        let ended = contended.iter().filter_map(|new| known(&new)).count() < self.contentions.len();
        let is_news = |new: &&Contention| match known(new) {
            None => true,
            Some(told) if told.tells_the_same(new) => false,
            Some(told) => told.culprit.is_none() || now >= self.names_another_at(new),
        };
        let news: Vec<&Contention> = contended.iter().filter(is_news).collect();
        (ended || !news.is_empty()).then_some(news)
    }

    fn names_another_at(&self, contention: &Contention) -> Timestamp {
        self.at.plus(CULPRIT_TOLD_EVERY.max(Duration::from_secs(contention.wait_secs)))
    }

    /// These were told.
    pub fn told(&mut self, contended: &[Contention], now: Timestamp) {
        (self.contentions, self.at) = (contended.to_vec(), now);
    }

    /// The clock was set back by so much.
    pub fn set_back(&mut self, back: Duration) {
        let since = self.contentions.iter_mut().map(|told| &mut told.since);
        since.chain([&mut self.at]).for_each(|at| *at = at.minus(back));
    }
}
