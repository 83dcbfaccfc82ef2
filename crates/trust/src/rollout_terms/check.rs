//! What is wrong with [`RolloutTerms`], all of it at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lang::Selector;
use model::collect::CollectInserting;
use model::id::is_name;
use model::share::Share;
use model::time::when;
use model::window::{ReadWindowError, TimeWindow};
use model::{Channel, Hostname, Timestamp};

use super::cycles::cycles;
use super::{
    CONFIRM_WINDOW_SECS, MAX_AFTER, MAX_BUDGETS, MAX_CONFIRM_TRIES, MAX_EDGES, MAX_FREEZES, MAX_NOT_BEFORE,
    MAX_PINNED, MAX_PINS, MAX_SOAK_SECS, MAX_TERMS_BYTES, MAX_TERMS_TEXT, MAX_WAVES, REST, RolloutTerms,
    WaveMembers,
};

/// The minutes of a week.
const WEEK_MINUTES: i64 = 7 * 24 * 60;
/// A minute, in milliseconds.
const MINUTE_MILLIS: i64 = 60_000;

/// An entry of a list of the terms: which one it is, and its name or its nodes. Two entries may be called alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermsEntry {
    /// Its index.
    pub index: usize,
    /// What it is called.
    pub name: String,
}

impl fmt::Display for TermsEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Something wrong with the terms of a rollout. A release with one is not signed, and refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsMistake {
    /// More of something than there may be.
    #[error("the rollout has {count} {what}, and there are at most {most}")]
    TooMany {
        /// `waves`, `budgets` and so on.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Larger than [`MAX_TERMS_BYTES`].
    #[error(
        "the rollout's terms have {0} bytes, and at most {MAX_TERMS_BYTES}; name groups instead of hosts"
    )]
    TooLarge(usize),
    /// A seed or a reason that is too long.
    #[error("the {what} is longer than {MAX_TERMS_TEXT} bytes")]
    TextTooLong {
        /// `seed` or `reason of a pin`.
        what: &'static str,
    },
    /// A wave's name.
    #[error("{:?} is no name of a wave: a to z, 0 to 9, '-' and '_', a letter or digit first", .0.name)]
    WaveName(TermsEntry),
    /// Two waves of one name.
    #[error("two waves are called `{0}`")]
    WaveTwice(TermsEntry),
    /// `rest` that takes not the rest, or not as the last wave.
    #[error("wave `{0}`: what takes the rest is the last wave, and only it is called `{REST}`")]
    RestNotLast(TermsEntry),
    /// A percentage of 0 or of more than 100.
    #[error("wave `{wave}` takes {percent} %, and a wave takes 1 % to 100 % of the channel")]
    Percent {
        /// The wave.
        wave: TermsEntry,
        /// What it takes.
        percent: u8,
    },
    /// A percentage that does not rise.
    #[error(
        "wave `{wave}` takes {percent} % and a wave before it {before} %, which leaves nobody: percentages are \
         of the whole channel and rise"
    )]
    PercentFalls {
        /// The wave.
        wave: TermsEntry,
        /// What it takes.
        percent: u8,
        /// What was taken before.
        before: u8,
    },
    /// A percent wave and no seed.
    #[error("wave `{0}` draws its nodes, and there is no seed")]
    NoSeed(TermsEntry),
    /// A `notBefore` before that of an earlier wave.
    #[error("wave `{wave}` begins at {at} at the earliest, before an earlier wave ({before})")]
    NotBeforeFalls {
        /// The wave.
        wave: TermsEntry,
        /// Its time.
        at: Timestamp,
        /// The earlier wave's time.
        before: Timestamp,
    },
    /// A `notBefore` more than [`MAX_NOT_BEFORE`] away.
    #[error("wave `{wave}` begins {}, and at the latest a year after the signature", when(*.at, *.created))]
    NotBeforeTooFar {
        /// The wave.
        wave: TermsEntry,
        /// Its time.
        at: Timestamp,
        /// When the terms are signed.
        created: Timestamp,
    },
    /// A soak beyond [`MAX_SOAK_SECS`].
    #[error("wave `{0}` soaks longer than 30 days")]
    Soak(TermsEntry),
    /// A success of 0 or of more than 100.
    #[error("the gate of wave `{wave}` asks for {success} %, and a gate asks for 1 % to 100 %")]
    Success {
        /// The wave.
        wave: TermsEntry,
        /// What it asks for.
        success: u8,
    },
    /// A selector that asks for what a node observes of itself.
    #[error(
        "`{selector}` asks for `{name}`, which is not declared: who is in a rollout is decided by hostname, \
         groups and labels"
    )]
    Observed {
        /// The selector.
        selector: String,
        /// What it asks for.
        name: String,
    },
    /// A budget of nothing.
    #[error("the budget of `{0}` lets no node be in flight, so none of its nodes would ever change")]
    BudgetOfNothing(TermsEntry),
    /// A budget without a limit.
    #[error("the budget of `{0}` has no limit: write inFlight or max")]
    BudgetWithoutLimit(TermsEntry),
    /// Two equal budgets.
    #[error("the budget of `{0}` stands there twice")]
    BudgetTwice(TermsEntry),
    /// Edges that lead back to where they began.
    #[error("the edges close a cycle: {}", path.join(" before "))]
    EdgeCycle {
        /// The index of the edge that closes it.
        edge: usize,
        /// What lies on it, the first one at the end again.
        path: Vec<String>,
    },
    /// A channel that goes after itself.
    #[error("channel `{0}` goes after itself")]
    AfterItself(Channel),
    /// A channel named twice.
    #[error("the rollout goes after channel `{0}` twice")]
    AfterTwice(Channel),
    /// The confirm window.
    #[error("the confirm window is {0} s, and has 60 s to 24 h")]
    ConfirmWindow(u64),
    /// The tries to confirm.
    #[error("there are {0} tries to confirm, and 1 to {MAX_CONFIRM_TRIES}")]
    ConfirmTries(u8),
    /// A pin of nobody.
    #[error("a pin until {0} names no node")]
    PinOfNobody(Timestamp),
    /// A node in two pins.
    #[error("node {0} is pinned twice")]
    PinTwice(Hostname),
    /// A pin that is over.
    #[error("the pin of {node} is over since {until}")]
    PinOver {
        /// Its first node.
        node: Hostname,
        /// When it was over.
        until: Timestamp,
    },
    /// A freeze window that cannot be read.
    #[error("the freeze window `{name}` cannot be read: {source}")]
    Freeze {
        /// Its name.
        name: String,
        /// Why.
        source: ReadWindowError,
    },
    /// Freeze windows that leave no minute of a week.
    #[error("the freeze windows leave no minute of the week, so no node would ever change")]
    AlwaysFrozen,
}

impl RolloutTerms {
    /// Everything that is wrong with these terms of a channel, when they are signed at `created`.
    pub fn mistakes(&self, channel: &Channel, created: Timestamp) -> Vec<TermsMistake> {
        let mut found = Vec::new();
        self.sizes(&mut found);
        self.waves_of(created, &mut found);
        self.gates(&mut found);
        self.selectors(&mut found);
        self.budgets_of(&mut found);
        self.order(channel, &mut found);
        self.pins_of(created, &mut found);
        self.freezes(created, &mut found);
        found
    }

    fn sizes(&self, found: &mut Vec<TermsMistake>) {
        let counts = [
            ("waves", self.waves.len(), MAX_WAVES),
            ("budgets", self.budgets.len(), MAX_BUDGETS),
            ("edges", self.edges.len(), MAX_EDGES),
            ("channels before it", self.after.len(), MAX_AFTER),
            ("pins", self.pins.len(), MAX_PINS),
            ("nodes in one pin", self.pins.iter().map(|pin| pin.nodes.len()).max().unwrap_or(0), MAX_PINNED),
            ("freeze windows", self.freeze.len(), MAX_FREEZES),
        ];
        let over = counts.into_iter().filter(|(_, count, most)| count > most);
        found.extend(over.map(|(what, count, most)| TermsMistake::TooMany { what, count, most }));
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |bytes| bytes.len());
        if bytes > MAX_TERMS_BYTES {
            found.push(TermsMistake::TooLarge(bytes));
        }
        if self.seed.len() > MAX_TERMS_TEXT {
            found.push(TermsMistake::TextTooLong { what: "seed" });
        }
        if self.pins.iter().any(|pin| pin.reason.len() > MAX_TERMS_TEXT) {
            found.push(TermsMistake::TextTooLong { what: "reason of a pin" });
        }
        if !CONFIRM_WINDOW_SECS.contains(&self.confirm.window_secs) {
            found.push(TermsMistake::ConfirmWindow(self.confirm.window_secs));
        }
        if !(1..=MAX_CONFIRM_TRIES).contains(&self.confirm.tries) {
            found.push(TermsMistake::ConfirmTries(self.confirm.tries));
        }
    }

    fn waves_of(&self, created: Timestamp, found: &mut Vec<TermsMistake>) {
        let (mut names, mut percent_before, mut latest) = (BTreeSet::new(), 0, None);
        for (index, wave) in self.waves.iter().enumerate() {
            let entry = || TermsEntry { index, name: wave.name.clone() };
            if !is_name(&wave.name) {
                found.push(TermsMistake::WaveName(entry()));
            }
            if !names.insert(&wave.name) {
                found.push(TermsMistake::WaveTwice(entry()));
            }
            let (is_rest, is_last) = (wave.members == WaveMembers::Rest, index + 1 == self.waves.len());
            if (is_rest && !is_last) || (wave.name == REST && !is_rest) {
                found.push(TermsMistake::RestNotLast(entry()));
            }
            if let WaveMembers::Percent(percent) = wave.members {
                let before = percent_before;
                if percent == 0 || percent > 100 {
                    found.push(TermsMistake::Percent { wave: entry(), percent });
                } else if percent <= before {
                    found.push(TermsMistake::PercentFalls { wave: entry(), percent, before });
                }
                if self.seed.is_empty() {
                    found.push(TermsMistake::NoSeed(entry()));
                }
                percent_before = percent_before.max(percent);
            }
            let Some(at) = wave.not_before else { continue };
            if let Some(before) = latest.filter(|before| at < *before) {
                found.push(TermsMistake::NotBeforeFalls { wave: entry(), at, before });
            }
            if at > created.plus(MAX_NOT_BEFORE) {
                found.push(TermsMistake::NotBeforeTooFar { wave: entry(), at, created });
            }
            latest = latest.max(Some(at));
        }
    }

    fn gates(&self, found: &mut Vec<TermsMistake>) {
        for (index, wave) in self.waves.iter().enumerate() {
            let entry = || TermsEntry { index, name: wave.name.clone() };
            if wave.gate.soak_secs > MAX_SOAK_SECS {
                found.push(TermsMistake::Soak(entry()));
            }
            let success = wave.gate.success;
            if success == 0 || success > 100 {
                found.push(TermsMistake::Success { wave: entry(), success });
            }
        }
    }

    fn selectors(&self, found: &mut Vec<TermsMistake>) {
        let waves = self.waves.iter().filter_map(|wave| match &wave.members {
            WaveMembers::Where(selector) => Some(selector),
            WaveMembers::Percent(_) | WaveMembers::Rest => None,
        });
        let edges = self.edges.iter().flat_map(|edge| [&edge.before, &edge.after]);
        let all: BTreeMap<&str, &Selector> = waves
            .chain(self.budgets.iter().map(|budget| &budget.of))
            .chain(edges)
            .map(|selector| (selector.as_str(), selector))
            .collect_inserting();
        for (selector, parsed) in all {
            if let Some(name) = observed(parsed) {
                found.push(TermsMistake::Observed { selector: selector.to_owned(), name });
            }
        }
    }

    fn budgets_of(&self, found: &mut Vec<TermsMistake>) {
        for (index, budget) in self.budgets.iter().enumerate() {
            let entry = || TermsEntry { index, name: budget.of.as_str().to_owned() };
            let share_of_nothing = matches!(budget.in_flight, Some(Share::Count(0) | Share::Percent(0)));
            if share_of_nothing || budget.max == Some(0) {
                found.push(TermsMistake::BudgetOfNothing(entry()));
            }
            if budget.in_flight.is_none() && budget.max.is_none() {
                found.push(TermsMistake::BudgetWithoutLimit(entry()));
            }
            if self.budgets.iter().take(index).any(|other| other == budget) {
                found.push(TermsMistake::BudgetTwice(entry()));
            }
        }
    }

    fn order(&self, channel: &Channel, found: &mut Vec<TermsMistake>) {
        let edges: Vec<_> =
            self.edges.iter().map(|edge| (edge.before.as_str(), edge.after.as_str())).collect();
        found.extend(cycles(&edges).into_iter().map(|(edge, path)| TermsMistake::EdgeCycle {
            edge,
            path: path.into_iter().map(str::to_owned).collect(),
        }));
        let mut seen = BTreeSet::new();
        for after in &self.after {
            if after == channel {
                found.push(TermsMistake::AfterItself(channel.clone()));
            }
            if !seen.insert(after) {
                found.push(TermsMistake::AfterTwice(after.clone()));
            }
        }
    }

    fn pins_of(&self, created: Timestamp, found: &mut Vec<TermsMistake>) {
        let mut pinned = BTreeSet::new();
        for pin in &self.pins {
            let Some(first) = pin.nodes.first() else {
                found.push(TermsMistake::PinOfNobody(pin.until));
                continue;
            };
            if pin.until <= created {
                found.push(TermsMistake::PinOver { node: first.clone(), until: pin.until });
            }
            let twice = pin.nodes.iter().filter(|node| !pinned.insert(*node));
            found.extend(twice.map(|node| TermsMistake::PinTwice(node.clone())));
        }
    }

    fn freezes(&self, created: Timestamp, found: &mut Vec<TermsMistake>) {
        let mut windows = Vec::new();
        for freeze in self.freeze.iter().take(MAX_FREEZES) {
            match TimeWindow::read(&freeze.window) {
                Ok(window) => windows.push(window),
                Err(source) => found.push(TermsMistake::Freeze { name: freeze.name.clone(), source }),
            }
        }
        let frozen = |minute: i64| {
            let at = Timestamp(created.0.saturating_add(minute * MINUTE_MILLIS));
            windows.iter().any(|window| window.contains(at))
        };
        if !windows.is_empty() && (0..WEEK_MINUTES).all(frozen) {
            found.push(TermsMistake::AlwaysFrozen);
        }
    }
}

/// The first thing that a selector asks for and that is not declared of a node.
fn observed(selector: &Selector) -> Option<String> {
    selector.expressions().find_map(|expression| {
        let declared = |root: &String| root == "labels" || root == "hostname";
        let names = expression.names();
        let observed = names.iter().find(|name| !name.path.first().is_some_and(declared));
        let probes = ["file_exists", "dir_exists", "command_succeeds", "process_running", "port_listening"];
        let clocks = ["hour_range", "day_of_week", "in_window", "changed", "secret"];
        let asks = |call: &&str| probes.contains(call) || clocks.contains(call);
        observed
            .map(|name| name.path.join("."))
            .or_else(|| expression.calls().into_iter().find(asks).map(str::to_owned))
    })
}
