//! [`RolloutPolicy`]: how the releases of a channel reach its nodes, as the fleet repo declares it; and
//! [`ChannelRollout`]: what that comes to for one release (ROL-1).

mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::{Diagnostics, Selector, Value};
use model::health_probe::{HealthProbeMode, MAX_PROBES};
use model::{Channel, Hostname, Timestamp};
use rollout::{Coverage, CoverageMistake, Placement, PossiblePlaces, RolloutRules, takes};
use trust::RolloutTerms;
use trust::rollout_terms::GateTerms;

use crate::check::rollouts::{DeclaredRollout, LocatedProbe, is_of_time, past, report};
pub use crate::decl::rollouts::NotBefore;
use crate::resolver::Fleet;
use crate::sink::Sink;
use crate::specialize::NodeSpec;

/// The most hostnames that are named of the nodes that no wave takes.
const MAX_NAMED: usize = 5;

/// The rollout policy of a channel: terms whose times are still counted from the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPolicy {
    /// The terms, without the times of waves.
    pub(crate) terms: RolloutTerms,
    /// For each wave, when it begins at the earliest.
    pub(crate) not_before: Vec<Option<NotBefore>>,
}

impl RolloutPolicy {
    /// The terms of a release that is signed at a time. Pins that are over by then are left out.
    pub fn terms(&self, created: Timestamp) -> RolloutTerms {
        let mut terms = self.terms.clone();
        for (wave, not_before) in terms.waves.iter_mut().zip(&self.not_before) {
            wave.not_before = not_before.map(|not_before| match not_before {
                NotBefore::At(at) => at,
                NotBefore::AfterSignature(after) => created.plus(after),
            });
        }
        terms.signed_again(created)
    }

    /// When a wave begins at the earliest.
    pub fn not_before(&self, wave: &str) -> Option<NotBefore> {
        let index = self.terms.waves.iter().position(|known| known.name == wave)?;
        self.not_before.get(index).copied().flatten()
    }

    /// Whether terms that were signed at a time are these: a publish of the same would say nothing new.
    pub fn is_of(&self, signed: &RolloutTerms, created: Timestamp) -> bool {
        self.terms(created) == *signed
    }
}

/// What the rollout of a channel comes to for one release.
#[derive(Clone, Debug)]
pub struct ChannelRollout {
    /// The channel.
    pub channel: Channel,
    /// The terms that are signed.
    pub terms: Arc<RolloutTerms>,
    /// Its waves in order, the implied last one among them where some node is in it.
    pub waves: Vec<PlannedWave>,
    /// What is no mistake, and may be a slip of the pen.
    pub warnings: Vec<String>,
}

/// A wave of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWave {
    /// Its name.
    pub name: String,
    /// It begins at this time at the earliest; right away, or after the wave before, where there is none.
    pub not_before: Option<Timestamp>,
    /// What must be true of it before the next one opens.
    pub gate: GateTerms,
    /// How many nodes are in it.
    pub nodes: usize,
    /// How many of them are pinned.
    pub pinned: usize,
    /// How many of them are enrolled.
    pub enrolled: usize,
    /// How many of them are enrolled and not pinned: the wave waits for no other node.
    pub awaited: usize,
    /// No wave that is declared takes them: they are in the implied last one.
    pub is_implied: bool,
    /// The first nodes of an implied wave, by name.
    pub first: Vec<Hostname>,
}

/// What is known of one channel's nodes.
#[derive(Default)]
struct ChannelNodes {
    placements: Vec<Placement>,
    rest: BTreeSet<Hostname>,
    /// By the index of a wave.
    waiting: BTreeMap<usize, WaitCounts>,
    /// Where nodes of patterns may be, however many are enrolled.
    possible: PossiblePlaces,
    /// The first node that has too many probes.
    over: Option<NodeOfManyProbes>,
    /// Waves with a node that an enforcing probe is asked of.
    probed: BTreeSet<u16>,
}

/// For how many nodes of a wave it may wait, and for how many not.
#[derive(Clone, Copy, Default)]
struct WaitCounts {
    pinned: usize,
    enrolled: usize,
    awaited: usize,
}

impl WaitCounts {
    fn add(&mut self, is_pinned: bool, is_enrolled: bool) {
        self.pinned += usize::from(is_pinned);
        self.enrolled += usize::from(is_enrolled);
        self.awaited += usize::from(is_enrolled && !is_pinned);
    }
}

/// The enforcing probes of a fleet: what says that a node is well with a release.
enum Watching {
    /// One is asked of every node.
    All,
    /// They are asked of the nodes of these.
    Some(Vec<Selector>),
}

impl Watching {
    fn of(declared: &[LocatedProbe]) -> Watching {
        let enforcing = declared
            .iter()
            .map(|located| &located.probe)
            .filter(|probe| probe.probe.mode == HealthProbeMode::Enforce);
        let mut selectors = Vec::new();
        for probe in enforcing {
            match probe.of.as_deref().map(Selector::parse) {
                Some(Ok(selector)) => selectors.push(selector),
                Some(Err(_)) => {}
                None => return Watching::All,
            }
        }
        Watching::Some(selectors)
    }

    fn is_of(&self, hostname: &Hostname, facts: &Value) -> bool {
        match self {
            Watching::All => true,
            Watching::Some(selectors) => selectors.iter().any(|nodes| takes(nodes, hostname, facts)),
        }
    }
}

/// A node that has too many probes.
struct NodeOfManyProbes {
    hostname: Hostname,
    probes: usize,
}

impl Fleet {
    /// The rollouts of a release that is signed at a time, channel by channel. Counted are the nodes that are named
    /// exactly, and those of `enrolled` that a pattern takes. Where nobody knows who is enrolled each wave counts none.
    ///
    /// # Errors
    /// What of the declared policies shows only beside the time or the nodes: a `notBefore` that is past or falls, edges
    /// in a circle over their members, too many probes of one node. Each with its position.
    pub fn rollouts<'n>(
        &self,
        created: Timestamp,
        enrolled: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<ChannelRollout>, Diagnostics> {
        let declared = &self.context().rollouts;
        if declared.is_empty() {
            return Ok(Vec::new());
        }
        let mut sink = Sink::default();
        let mut found = Vec::new();
        let rules: BTreeMap<&str, RolloutRules> = declared
            .iter()
            .map(|(name, rollout)| {
                (name.as_str(), RolloutRules::new(Arc::new(rollout.policy.terms(created))))
            })
            .collect();
        let mut nodes = self.placed(&rules, enrolled);
        for (name, rollout) in declared {
            let (Some(rules), Ok(channel)) = (rules.get(name.as_str()), name.parse()) else { continue };
            let own = nodes.remove(name.as_str()).unwrap_or_default();
            if let (Some(over), Some(first)) = (&own.over, self.context().probes.first()) {
                let NodeOfManyProbes { hostname, probes } = over;
                let message = format!(
                    "{hostname} of channel `{channel}` has {probes} probes, and a node has at most {MAX_PROBES}"
                );
                sink.error(&first.file, "E099", first.at, message)
                    .help("narrow the probes by `where` or `nodes`");
            }
            let idle = warnings::after_nothing(rollout, &channel, declared);
            let unprobed = warnings::unprobed(rollout, &channel, rules, &own);
            let mut planned = planned(rollout, channel, rules, own, created, &mut sink);
            planned.warnings.extend(idle);
            planned.warnings.extend(unprobed);
            found.push(planned);
        }
        if sink.is_empty() { Ok(found) } else { Err(sink.finish()) }
    }

    /// The policies of all channels that have one.
    pub fn rollout_policies(&self) -> &Arc<BTreeMap<String, RolloutPolicy>> {
        &self.specialize().rollouts
    }

    /// Probes that are asked of nobody, as no channel has a rollout.
    pub fn idle_probes(&self) -> Vec<String> {
        let context = self.context();
        let idle = context.probes.iter().filter(|_| context.rollouts.is_empty());
        idle.map(|declared| {
            let (file, line, name) = (&declared.file, declared.at.line, &declared.probe.probe.name);
            format!("{file}:{line}: probe `{name}` is asked of no node: no channel has `rollouts`")
        })
        .collect()
    }

    fn placed<'r, 'n>(
        &self,
        rules: &BTreeMap<&'r str, RolloutRules>,
        enrolled: impl IntoIterator<Item = &'n str>,
    ) -> BTreeMap<&'r str, ChannelNodes> {
        let specialized = self.specialize();
        // No node has too many of few.
        let declared = Some(&self.context().probes).filter(|probes| probes.len() > MAX_PROBES);
        let nodes_of = |declared: &LocatedProbe| {
            declared.probe.of.as_deref().and_then(|nodes| Selector::parse(nodes).ok())
        };
        let probes: Vec<Option<Selector>> = declared.into_iter().flatten().map(nodes_of).collect();
        let watching = Watching::of(&self.context().probes);
        let enrolled: BTreeSet<&str> = enrolled.into_iter().collect();
        let exact = specialized.exact.iter().map(|(name, spec)| (&**name, spec));
        let by_pattern = enrolled
            .iter()
            .copied()
            .filter(|name| specialized.exact.get(*name).is_none())
            .filter_map(|name| Some((name, specialized.node(name)?)));
        let mut nodes: BTreeMap<&'r str, ChannelNodes> = BTreeMap::new();
        // Many nodes are declared alike.
        let mut last: Option<(Arc<[u8]>, Value)> = None;
        for (name, spec) in exact.chain(by_pattern) {
            let Some((channel, rules)) = rules.get_key_value(&*spec.channel) else { continue };
            let Ok(hostname) = name.parse::<Hostname>() else { continue };
            let facts = match last.take() {
                Some((params, facts)) if params == spec.params => facts,
                _ => declared_facts(spec),
            };
            let placement = rules.place(&hostname, &facts);
            let own = nodes.entry(*channel).or_default();
            let is_asked = |nodes: &&Option<Selector>| {
                nodes.as_ref().is_none_or(|nodes| takes(nodes, &hostname, &facts))
            };
            let count = probes.iter().filter(is_asked).count();
            if count > MAX_PROBES && own.over.is_none() {
                own.over = Some(NodeOfManyProbes { hostname: hostname.clone(), probes: count });
            }
            own.placements.push(placement);
            let waiting = own.waiting.entry(placement.wave.into()).or_default();
            waiting.add(placement.pinned.is_some(), enrolled.contains(name));
            if watching.is_of(&hostname, &facts) {
                own.probed.insert(placement.wave);
            }
            if usize::from(placement.wave) >= rules.terms().waves.len() {
                own.rest.insert(hostname);
            }
            last = Some((spec.params.clone(), facts));
        }
        for pattern in specialized.patterns.iter() {
            let Some((channel, rules)) = rules.get_key_value(&*pattern.spec.channel) else { continue };
            let possible = rules.may_place(&pattern.pattern, &declared_facts(&pattern.spec));
            nodes.entry(*channel).or_default().possible.add(&possible);
        }
        nodes
    }
}

/// What the fleet repo declares of a node.
fn declared_facts(spec: &NodeSpec) -> Value {
    let params = spec.read_params();
    params.map(|params| params.node.facts()).unwrap_or_else(|_| Value::Map(BTreeMap::new()))
}

fn planned(
    declared: &DeclaredRollout,
    channel: Channel,
    rules: &RolloutRules,
    nodes: ChannelNodes,
    created: Timestamp,
    sink: &mut Sink,
) -> ChannelRollout {
    let terms = rules.terms();
    let mut found = terms.mistakes(&channel, created);
    found.retain(is_of_time);
    report(&declared.file, &declared.decl, &found, sink);
    past(&declared.file, &declared.decl, created, sink);
    let coverage = Coverage::of(rules, nodes.placements).expecting(&nodes.possible);
    let mut warned = warnings::over(declared, created);
    warned.extend(warnings::same_budgets(declared));
    for mistake in coverage.mistakes(rules) {
        let at = warnings::place_of(declared, &mistake);
        if let CoverageMistake::EdgeCycle(_) = mistake {
            sink.error(&declared.file, "E114", at, mistake.to_string()).help("drop one of these edges");
        } else if !matches!(mistake, CoverageMistake::EdgeAgainstWaves { .. }) {
            // Canaries of every tier are no slip of the pen: an edge holds among the nodes of open waves.
            warned.push(format!("{}:{}: channel {channel}: {mistake}", declared.file, at.line));
        }
    }
    let wave = |index: usize| {
        let WaitCounts { pinned, enrolled, awaited } = nodes.waiting.get(&index).copied().unwrap_or_default();
        PlannedWave {
            name: rules.wave_name(index).to_owned(),
            not_before: rules.not_before(index),
            gate: rules.gate(index),
            nodes: coverage.in_wave(index),
            pinned,
            enrolled,
            awaited,
            is_implied: index >= terms.waves.len(),
            first: if index < terms.waves.len() {
                Vec::new()
            } else {
                nodes.rest.iter().take(MAX_NAMED).cloned().collect()
            },
        }
    };
    let waves = (0..rules.waves()).map(wave).filter(|wave| !wave.is_implied || wave.nodes > 0).collect();
    ChannelRollout { channel, terms: Arc::new(terms.clone()), waves, warnings: warned }
}
