//! [`RunRequests`]: runs that operators request, from the answer that names one to its confirmation.
//!
//! ```text
//! an answer names it -> waits -> a run begins that carries it out -> ended: each check-in confirms it
//!                                  \-> could not be made: waits again, one by tag for the next answer
//! ```
//!
//! Invariants: a request is confirmed only by a run that began after it came and may change the host; a full
//! run carries out what waits of both sorts, a run by tag the one by tag alone.

use model::exchange::{Answer, CheckIn};
use model::tags::{TaggedRun, check_run_tags};

/// The numbers of requests, one of each sort at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestNumbers {
    full: Option<u64>,
    tagged: Option<u64>,
}

/// Requests that wait, and those that were carried out last.
#[derive(Debug, Default)]
pub(super) struct RunRequests {
    full: Option<u64>,
    tagged: Option<TaggedRun>,
    confirmed: RequestNumbers,
}

impl RunRequests {
    /// Takes up what an answer requests; `under_way` are those that a run carries out now.
    pub(super) fn answered(&mut self, answer: &mut Answer, under_way: RequestNumbers) {
        // What is not requested any more was heard to be confirmed.
        self.confirmed.full = self.confirmed.full.filter(|_| answer.run_request.is_some());
        self.confirmed.tagged = self.confirmed.tagged.filter(|_| answer.tagged_run.is_some());
        let known = |number: Option<u64>, of: fn(&RequestNumbers) -> Option<u64>| {
            number.is_none() || number == of(&self.confirmed) || number == of(&under_way)
        };
        if !known(answer.run_request, |numbers| numbers.full) {
            self.full = answer.run_request;
        }
        // What no control plane may ask is carried out by none, and not confirmed.
        let tagged = answer.tagged_run.take().filter(|run| check_run_tags(&run.tags).is_ok());
        if !known(tagged.as_ref().map(|run| run.number), |numbers| numbers.tagged) {
            self.tagged = tagged;
        }
    }

    pub(super) fn wants_full(&self) -> bool {
        self.full.is_some()
    }

    pub(super) fn wants_tagged(&self) -> bool {
        self.tagged.is_some()
    }

    /// A full run begins: what it carries out, and the tags that were requested.
    pub(super) fn begin_full(&mut self) -> (RequestNumbers, Option<TaggedRun>) {
        let (full, tagged) = (self.full.take(), self.tagged.take());
        (RequestNumbers { full, tagged: tagged.as_ref().map(|run| run.number) }, tagged)
    }

    /// A run by tag begins.
    pub(super) fn begin_tagged(&mut self) -> Option<(RequestNumbers, TaggedRun)> {
        let run = self.tagged.take()?;
        Some((RequestNumbers { full: None, tagged: Some(run.number) }, run))
    }

    /// They were carried out; whether there is anything to confirm.
    pub(super) fn carried_out(&mut self, numbers: RequestNumbers) -> bool {
        self.confirmed.full = numbers.full.or(self.confirmed.full);
        self.confirmed.tagged = numbers.tagged.or(self.confirmed.tagged);
        numbers != RequestNumbers::default()
    }

    /// The run could not be made. One by tag begins at once, so it waits for the next answer, which names
    /// it again: else it would be tried again and again.
    pub(super) fn failed(&mut self, numbers: RequestNumbers) {
        self.full = self.full.or(numbers.full);
    }

    /// What a check-in says of them.
    pub(super) fn confirm(&self, check_in: &mut CheckIn) {
        (check_in.run_confirmed, check_in.tagged_run_confirmed) =
            (self.confirmed.full, self.confirmed.tagged);
    }
}
