//! [`RolloutRules`]: which wave, budgets and edges a node has (ROL-1).
//!
//! A function of the signed terms and of what the release declares of the node, the same on the control
//! plane and on the node. A label that a node does not have reads as an empty text, as in the conditions of
//! groups.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use lang::selector::{SelectorMatch, Subject};
use lang::{Pattern, Selector, Value};
use model::time::SLACK;
use model::window::TimeWindow;
use model::{Digest, Hostname, Timestamp};
use serde::{Deserialize, Serialize};
use trust::rollout_terms::{GateTerms, REST, RolloutTerms, WaveMembers};

/// What a draw is below.
pub const DRAWS: u16 = 10_000;

/// The terms of a rollout, ready to be evaluated.
#[derive(Clone, Debug)]
pub struct RolloutRules {
    terms: Arc<RolloutTerms>,
    /// The waves, the implied last one included.
    waves: Vec<Wave>,
    freeze: Vec<(String, TimeWindow)>,
}

#[derive(Clone, Debug)]
struct Wave {
    name: String,
    members: WaveMembers,
    not_before: Option<Timestamp>,
    gate: GateTerms,
}

/// Where a node is in a rollout. Frozen when the node comes to the rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The index of its wave.
    pub wave: u16,
    /// A bit for each budget that it is in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub budgets: u32,
    /// A bit for each edge of which it goes first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u32,
    /// A bit for each edge of which it waits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u32,
    /// Until when it is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Timestamp>,
}

/// Why a node does not begin yet, whoever asks it: by the signed terms and its own clock, or by its administrator's word. It
/// is asked again, and says nothing against the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BeginRefusal {
    /// Its wave's time has not come.
    NotBefore,
    /// A freeze window is open.
    Frozen,
    /// It is pinned.
    Pinned,
    /// It is paused.
    Paused,
}

impl BeginRefusal {
    /// All of them.
    pub const ALL: [BeginRefusal; 4] =
        [BeginRefusal::NotBefore, BeginRefusal::Frozen, BeginRefusal::Pinned, BeginRefusal::Paused];

    /// The code by which a node says so.
    pub fn code(self) -> &'static str {
        match self {
            BeginRefusal::NotBefore => "not-before",
            BeginRefusal::Frozen => "frozen",
            BeginRefusal::Pinned => "pinned",
            BeginRefusal::Paused => "paused",
        }
    }

    /// Its wave waits for it: it may begin within the difference of two clocks, and were it not waited for a control plane
    /// whose clock is ahead would find each wave empty, and open all of them at once. Who is pinned or paused stays so
    /// for as long as people want it.
    pub(crate) fn is_waited_for(self) -> bool {
        match self {
            BeginRefusal::NotBefore | BeginRefusal::Frozen => true,
            BeginRefusal::Pinned | BeginRefusal::Paused => false,
        }
    }

    /// What a node says by a code; `None` of one that is another refusal.
    pub fn of_code(code: &str) -> Option<BeginRefusal> {
        BeginRefusal::ALL.into_iter().find(|refusal| refusal.code() == code)
    }
}

fn is_zero(bits: &u32) -> bool {
    *bits == 0
}

/// The bits of a mask, as indexes.
pub(crate) fn bits(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |bit| mask & (1 << bit) != 0)
}

impl RolloutRules {
    /// The rules of some terms. Terms without [mistakes](RolloutTerms::mistakes) lose nothing here; a
    /// freeze window that cannot be read is left out.
    pub fn new(terms: Arc<RolloutTerms>) -> RolloutRules {
        let mut waves: Vec<Wave> = terms
            .waves
            .iter()
            .map(|wave| Wave {
                name: wave.name.clone(),
                members: wave.members.clone(),
                not_before: wave.not_before,
                gate: wave.gate,
            })
            .collect();
        if waves.last().is_none_or(|last| last.members != WaveMembers::Rest) {
            let gate = GateTerms::default();
            waves.push(Wave { name: REST.to_owned(), members: WaveMembers::Rest, not_before: None, gate });
        }
        let readable = |freeze: &trust::rollout_terms::FreezeTerms| {
            Some((freeze.name.clone(), TimeWindow::read(&freeze.window).ok()?))
        };
        let freeze = terms.freeze.iter().filter_map(readable).collect();
        RolloutRules { terms, waves, freeze }
    }

    /// The terms.
    pub fn terms(&self) -> &RolloutTerms {
        &self.terms
    }

    /// How many waves there are, the implied last one included.
    pub fn waves(&self) -> usize {
        self.waves.len()
    }

    /// The name of a wave.
    pub fn wave_name(&self, wave: usize) -> &str {
        self.waves.get(wave).map_or(REST, |wave| &wave.name)
    }

    /// The gate of a wave.
    pub fn gate(&self, wave: usize) -> GateTerms {
        self.waves.get(wave).map_or_else(GateTerms::default, |wave| wave.gate)
    }

    /// From when on a wave may begin: its `notBefore`, or that of an earlier wave.
    pub fn not_before(&self, wave: usize) -> Option<Timestamp> {
        self.waves.iter().take(wave + 1).filter_map(|wave| wave.not_before).max()
    }

    /// Whether a node may begin by its own clock: what it checks for itself, so that a control plane that
    /// was broken into cannot begin a wave early.
    pub fn may_begin(&self, wave: usize, now: Timestamp) -> bool {
        self.not_before(wave).is_none_or(|at| now.plus(SLACK) >= at)
    }

    /// Why a node that has this place and holds a release does not begin by its own clock, whoever asks it: what it
    /// checks for itself. Clocks may differ by [`SLACK`].
    pub fn refusal(&self, placement: &Placement, now: Timestamp) -> Option<BeginRefusal> {
        if !self.may_begin(usize::from(placement.wave), now) {
            return Some(BeginRefusal::NotBefore);
        }
        let around = [now.minus(SLACK), now, now.plus(SLACK)];
        if around.into_iter().all(|at| self.frozen(at).is_some()) {
            return Some(BeginRefusal::Frozen);
        }
        placement.pinned.filter(|until| *until > now.plus(SLACK)).map(|_| BeginRefusal::Pinned)
    }

    /// The freeze window that is open.
    pub fn frozen(&self, now: Timestamp) -> Option<(&str, &TimeWindow)> {
        let open = self.freeze.iter().find(|(_, window)| window.contains(now));
        open.map(|(name, window)| (name.as_str(), window))
    }

    /// Where a node is, by its hostname and by what the release declares of it: a map with `groups`, a list
    /// of names, and `labels`, a map of texts.
    pub fn place(&self, hostname: &Hostname, declared: &Value) -> Placement {
        let takes = |selector: &Selector| takes(selector, hostname, declared);
        let draw = (!self.terms.seed.is_empty()).then(|| draw(&self.terms.seed, hostname));
        let is_in = |wave: &Wave| match &wave.members {
            WaveMembers::Where(selector) => takes(selector),
            WaveMembers::Percent(percent) => draw.is_some_and(|draw| draw < u16::from(*percent) * 100),
            WaveMembers::Rest => true,
        };
        let last = self.waves.len() - 1;
        let wave = self.waves.iter().position(is_in).unwrap_or(last);
        let mask = |taken: &mut dyn Iterator<Item = bool>| {
            taken.take(32).zip(0..).fold(0, |mask, (taken, bit)| mask | (u32::from(taken) << bit))
        };
        let terms = &self.terms;
        let pin = terms.pins.iter().find(|pin| pin.nodes.contains(hostname));
        Placement {
            wave: u16::try_from(wave).unwrap_or(u16::MAX),
            budgets: mask(&mut terms.budgets.iter().map(|budget| takes(&budget.of))),
            before: mask(&mut terms.edges.iter().map(|edge| takes(&edge.before))),
            after: mask(&mut terms.edges.iter().map(|edge| takes(&edge.after))),
            pinned: pin.map(|pin| pin.until),
        }
    }

    /// Where the nodes may come to be whose hostnames have this form and of which all this is declared.
    pub fn may_place(&self, names: &Pattern, declared: &Value) -> PossiblePlaces {
        let mut waves = vec![false; self.waves.len()];
        for (wave, may) in self.waves.iter().zip(&mut waves) {
            let takes = match &wave.members {
                WaveMembers::Where(selector) => takes_unnamed(selector, names, declared),
                WaveMembers::Percent(0) => SelectorMatch::No,
                WaveMembers::Percent(100) | WaveMembers::Rest => SelectorMatch::Yes,
                WaveMembers::Percent(_) => SelectorMatch::Unknown("it is drawn by its hostname".to_owned()),
            };
            *may = takes != SelectorMatch::No;
            if takes == SelectorMatch::Yes {
                break;
            }
        }
        let mask = |selectors: &mut dyn Iterator<Item = &Selector>| {
            let may = selectors.map(|selector| takes_unnamed(selector, names, declared) != SelectorMatch::No);
            may.take(32).zip(0..).fold(0, |mask, (may, bit)| mask | (u32::from(may) << bit))
        };
        let terms = &self.terms;
        PossiblePlaces {
            waves,
            budgets: mask(&mut terms.budgets.iter().map(|budget| &budget.of)),
            before: mask(&mut terms.edges.iter().map(|edge| &edge.before)),
            after: mask(&mut terms.edges.iter().map(|edge| &edge.after)),
        }
    }
}

/// Where nodes may come to be that are not named yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PossiblePlaces {
    /// A wave by its index, whether it may get some of them.
    pub(crate) waves: Vec<bool>,
    /// A bit for each budget, and for each end of an edge, that may.
    pub(crate) budgets: u32,
    pub(crate) before: u32,
    pub(crate) after: u32,
}

impl PossiblePlaces {
    /// Those of others beside them.
    pub fn add(&mut self, others: &PossiblePlaces) {
        self.waves.resize(self.waves.len().max(others.waves.len()), false);
        for (may, other) in self.waves.iter_mut().zip(&others.waves) {
            *may |= other;
        }
        self.budgets |= others.budgets;
        self.before |= others.before;
        self.after |= others.after;
    }
}

/// A number below [`DRAWS`] that seed and hostname give.
pub fn draw(seed: &str, hostname: &Hostname) -> u16 {
    let seed_length = (seed.len() as u64).to_be_bytes();
    let number = hashed([b"muster rollout draw\0".as_slice(), &seed_length, seed.as_bytes()], hostname);
    u16::try_from(number % u64::from(DRAWS)).unwrap_or(0)
}

/// The first eight bytes of a hash that ends with the hostname.
pub(crate) fn hashed<const N: usize>(parts: [&[u8]; N], hostname: &Hostname) -> u64 {
    let digest = Digest::of_parts(parts.into_iter().chain([hostname.as_str().as_bytes()]));
    digest.as_bytes().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Whether a selector takes the nodes whose hostnames nobody knows yet.
fn takes_unnamed(selector: &Selector, names: &Pattern, declared: &Value) -> SelectorMatch {
    selector.judge_unnamed(names, with_empty_labels(selector, declared).as_ref())
}

/// Whether a selector takes a node, by its hostname and by what the release declares of it.
pub fn takes(selector: &Selector, hostname: &Hostname, declared: &Value) -> bool {
    let declared = with_empty_labels(selector, declared);
    let subject =
        Subject { hostname: hostname.as_str(), id: "", traits: None, declared: Some(declared.as_ref()) };
    selector.judge(&subject) == SelectorMatch::Yes
}

/// The labels that the selector's expressions ask for and that the node lacks read as an empty text.
fn with_empty_labels<'a>(selector: &Selector, declared: &'a Value) -> Cow<'a, Value> {
    let mut lacking = Vec::new();
    for name in selector.expressions().flat_map(lang::Expr::names).filter(|name| !name.guarded) {
        if let [root, label, ..] = name.path.as_slice()
            && root == "labels"
            && declared.path("labels").and_then(|labels| labels.path(label)).is_none()
        {
            lacking.push(label.clone());
        }
    }
    let uses_labels = selector.evaluates_labels() && declared.path("labels").is_none();
    if lacking.is_empty() && !uses_labels {
        return Cow::Borrowed(declared);
    }
    let mut root = match declared {
        Value::Map(map) => map.clone(),
        Value::Bool(_) | Value::Int(_) | Value::Str(_) | Value::List(_) => BTreeMap::new(),
    };
    let labels = root.entry("labels".to_owned()).or_insert_with(|| Value::Map(BTreeMap::new()));
    if let Value::Map(labels) = labels {
        labels.extend(lacking.into_iter().map(|label| (label, Value::from(""))));
    }
    Cow::Owned(Value::Map(root))
}
