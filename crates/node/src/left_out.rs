//! [`CheckInOmissions`]: what a control plane refuses as too large is left out of check-ins, and the rest goes on (WIR-6).
//!
//! A fact keeps its number and says instead what was left out, so that those after it are not held up. Nothing is
//! sent twice as it was refused: each refusal leaves something more out, or says that nothing more can be.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use model::exchange::CheckIn;
use model::log::{Fact, FactBody, MAX_FACTS};
use model::{Digest, Incarnation, Timestamp};

/// Traits that were left out go again after so long: who refused them may take them by then, or was a proxy that ends
/// TLS, whose word anybody on the way can forge.
const TRAITS_AGAIN: Duration = Duration::from_secs(3600);

/// What of a check-in is larger than the control plane takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// All of it together.
    CheckIn,
    /// A fact: the largest one.
    Fact,
}

/// What a refusal leads to, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// Fewer facts at a time.
    FewerFacts {
        /// At most so many.
        most: usize,
    },
    /// A fact says only that it was left out.
    Fact {
        /// Its number.
        seq: u64,
        /// Its kind.
        kind: &'static str,
    },
    /// No traits, until they change or [`TRAITS_AGAIN`] is over.
    Traits,
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Omission::FewerFacts { most } => write!(f, "at most {most} facts go at a time"),
            Omission::Fact { seq, kind } => write!(f, "fact {seq} ({kind}) is left out"),
            Omission::Traits => f.write_str("this host's traits are left out, for an hour at the most"),
        }
    }
}

/// What is left out of check-ins. It begins empty at each start of the agent: a newer control plane may take more.
#[derive(Debug)]
pub struct CheckInOmissions {
    most_facts: usize,
    /// Facts of this incarnation that are too large.
    incarnation: Option<Incarnation>,
    facts: BTreeSet<u64>,
    /// The traits that are too large, and since when they are left out.
    traits: Option<(Digest, Timestamp)>,
    /// People were told that something is left out, and not yet that nothing is any more.
    told: bool,
}

impl Default for CheckInOmissions {
    fn default() -> CheckInOmissions {
        CheckInOmissions {
            most_facts: MAX_FACTS,
            incarnation: None,
            facts: BTreeSet::new(),
            traits: None,
            told: false,
        }
    }
}

impl CheckInOmissions {
    /// Takes out of a check-in what is too large.
    pub fn take_from(&mut self, message: &mut CheckIn, now: Timestamp) {
        message.facts.truncate(self.most_facts);
        if self.incarnation.as_ref() == Some(&message.incarnation) {
            for fact in message.facts.iter_mut().filter(|fact| self.facts.contains(&fact.seq)) {
                let kind = fact.body.kind();
                let message =
                    format!("a fact ({kind}) was left out: it is larger than the control plane takes");
                fact.body = FactBody::Repaired { message };
            }
        }
        // A clock that was set back leaves nothing out for longer. Traits that are as before by now do not go, so that the
        // time alone ends it.
        let is_recent = |since: Timestamp| now >= since && now.since(since) < TRAITS_AGAIN;
        self.traits = self.traits.filter(|(_, since)| is_recent(*since));
        let Some(traits) = &message.traits else { return };
        self.traits = self.traits.filter(|(digest, _)| *digest == traits.digest);
        if self.traits.is_some() {
            message.traits = None;
        }
    }

    /// The node has no traits to say: the control plane knows them, and none are left out any more.
    pub fn traits_are_said(&mut self) {
        self.traits = None;
    }

    /// The control plane refused a check-in; what is left out because of it. `None`: there is nothing that could be.
    pub fn refused(&mut self, message: &CheckIn, what: TooLarge, now: Timestamp) -> Option<Omission> {
        self.told = true;
        match what {
            TooLarge::Fact => self.leave_out_fact(message),
            TooLarge::CheckIn if message.facts.len() > 1 => {
                self.most_facts = message.facts.len() / 2;
                Some(Omission::FewerFacts { most: self.most_facts })
            }
            TooLarge::CheckIn => self.leave_out_traits(message, now).or_else(|| self.leave_out_fact(message)),
        }
    }

    /// A check-in was taken: the next may carry more facts again. Facts up to here need not be known any more. Says
    /// whether something was left out until now, and nothing is any more.
    pub fn taken(&mut self, acked: u64) -> bool {
        self.most_facts = self.most_facts.saturating_mul(2).min(MAX_FACTS);
        self.facts.retain(|seq| *seq > acked);
        let leaves_out = self.most_facts < MAX_FACTS || !self.facts.is_empty() || self.traits.is_some();
        !leaves_out && std::mem::take(&mut self.told)
    }

    fn leave_out_traits(&mut self, message: &CheckIn, now: Timestamp) -> Option<Omission> {
        self.traits = Some((message.traits.as_ref()?.digest, now));
        Some(Omission::Traits)
    }

    fn leave_out_fact(&mut self, message: &CheckIn) -> Option<Omission> {
        if self.incarnation.as_ref() != Some(&message.incarnation) {
            self.incarnation = Some(message.incarnation.clone());
            self.facts.clear();
        }
        let is_whole = |fact: &&Fact| !self.facts.contains(&fact.seq);
        let largest = message.facts.iter().filter(is_whole).max_by_key(|fact| size(fact))?;
        self.facts.insert(largest.seq);
        Some(Omission::Fact { seq: largest.seq, kind: largest.body.kind() })
    }
}

/// As it travels, in bytes.
fn size(fact: &Fact) -> usize {
    serde_json::to_vec(fact).map_or(usize::MAX, |bytes| bytes.len())
}
