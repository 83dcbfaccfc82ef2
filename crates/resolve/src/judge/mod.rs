//! [`FleetJudge`]: what each node gets, bound as the node binds it, before anything is signed (CFG-2, CFG-6).
//!
//! ```text
//! modules + params of a node -> converge::NodeNames -> for each module what it reads
//!   read before? the verdict : NodeNames::bind_alone -> mistakes, what is unobserved, claims
//!   verdicts of a node -> files that two resources write
//! ```
//!
//! What depends on an observed trait is no mistake: it is told apart ([`Unevaluated`]). A verdict is kept by
//! module and by what the module reads, so that a hundred thousand nodes that differ in what nothing reads
//! cost one evaluation.

mod claims;
mod place;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use catalog::module::{Module, Params};
use converge::bind::{Inputs, NameUses, NodeNames};
use lang::{SourceSpan, Value};

use crate::check::modules::Modules;
use crate::parse::Files;
use crate::sink::{Sink, span};
use crate::specialize::SpecializedFor;
use crate::yaml::At;
use place::DeclaredPosition;
use verdict::{JudgementKey, ModuleJudgement};

/// The most verdicts that are kept for other nodes.
const MAX_VERDICTS: usize = 10_000;
/// The most bytes, roughly, that the resources of kept verdicts take.
const MAX_VERDICT_BYTES: usize = 64 * 1024 * 1024;
/// The most places of expressions that could not be evaluated that are told.
const MAX_UNEVALUATED: usize = 10_000;

/// An expression that depends on a trait that only the node observes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unevaluated {
    /// Where it stands.
    pub span: SourceSpan,
    /// What it is part of, as messages begin: `content: `.
    pub part: String,
    /// The first trait that it needs: `traits.os.family`.
    pub observed: String,
}

impl fmt::Display for Unevaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceSpan { file, line, column, .. } = &self.span;
        write!(f, "{file}:{line}:{column}  {}needs {}", self.part, self.observed)
    }
}

/// A node, or all nodes of a pattern, to be judged.
pub(crate) struct JudgedNode<'n> {
    /// Its name; `None` for a pattern.
    pub(crate) hostname: Option<&'n str>,
    /// How messages call it.
    pub(crate) whom: SpecializedFor<'n>,
    /// The entry or the host file that is to blame for its vars.
    pub(crate) blame: (&'n str, At),
    pub(crate) params: &'n Params,
}

/// Where vars are set that many nodes share, by full name: to blame a param's value on its layer.
pub(crate) type VarPlaces<'v> = &'v dyn Fn(&str, &Params) -> Option<(Arc<str>, At)>;

/// What is wrong at one place, for however many nodes.
struct SharedMistake {
    code: &'static str,
    first: String,
    nodes: usize,
}

/// Judges nodes one after the other.
pub(crate) struct FleetJudge<'j> {
    modules: &'j Modules,
    files: &'j Files,
    /// Modules of which not all can be known, as their files have mistakes.
    suspect: BTreeSet<String>,
    traits: Option<&'j BTreeMap<String, Value>>,
    shared: BTreeMap<&'j str, Arc<Module>>,
    uses: BTreeMap<&'j str, Arc<[Vec<String>]>>,
    /// The modules of a list of names.
    lists: BTreeMap<Vec<String>, Arc<BTreeMap<String, Arc<Module>>>>,
    verdicts: BTreeMap<JudgementKey, Arc<ModuleJudgement>>,
    bytes: usize,
    /// Verdicts that stood together already, by their addresses.
    together: BTreeSet<Vec<usize>>,
    found: BTreeMap<(DeclaredPosition, String), SharedMistake>,
    unevaluated: BTreeSet<Unevaluated>,
}

impl<'j> FleetJudge<'j> {
    /// A judge of modules, by their files. With `traits` by hostname, a node is judged by those.
    pub(crate) fn new(
        modules: &'j Modules,
        files: &'j Files,
        suspect: BTreeSet<String>,
        traits: Option<&'j BTreeMap<String, Value>>,
    ) -> FleetJudge<'j> {
        FleetJudge {
            modules,
            files,
            suspect,
            traits,
            shared: BTreeMap::new(),
            uses: BTreeMap::new(),
            lists: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            bytes: 0,
            together: BTreeSet::new(),
            found: BTreeMap::new(),
            unevaluated: BTreeSet::new(),
        }
    }

    /// Judges a node; gives the modules that it does not want, as their `when:` is false whatever it observes.
    pub(crate) fn node(&mut self, node: &JudgedNode<'_>, places: VarPlaces<'_>) -> BTreeSet<String> {
        let modules = self.list(&node.params.modules);
        let traits = node.hostname.zip(self.traits).and_then(|(name, traits)| traits.get(name));
        let inputs = Inputs {
            modules: &modules,
            params: node.params,
            hostname: node.hostname,
            traits,
            own_paths: &[],
            secrets: lang::OpenedSecrets::SEALED,
        };
        let names = NodeNames::of(&inputs);
        let mut unwanted = BTreeSet::new();
        let mut verdicts = Vec::with_capacity(modules.len());
        for name in &node.params.modules {
            let Some((known, module)) = modules.get_key_value(name) else { continue };
            if self.is_suspect(known) {
                continue;
            }
            let verdict = self.verdict(module, &names);
            if !verdict.wanted {
                unwanted.insert(name.clone());
            }
            for told in &verdict.told {
                self.tell(told.place.clone(), told.code, told.message.clone(), node.whom);
            }
            for message in &verdict.of_node {
                self.tell(
                    DeclaredPosition::new(node.blame.0, node.blame.1),
                    "E066",
                    message.clone(),
                    node.whom,
                );
            }
            for (param, why) in &verdict.params {
                let place = places(param, node.params).unwrap_or((node.blame.0.into(), node.blame.1));
                self.tell(
                    DeclaredPosition::new(&place.0, place.1),
                    "E066",
                    format!("{param}: {why}"),
                    node.whom,
                );
            }
            if self.unevaluated.len() < MAX_UNEVALUATED {
                self.unevaluated.extend(verdict.unevaluated.iter().cloned());
            }
            verdicts.push(verdict);
        }
        self.claims(&verdicts, node.whom);
        unwanted
    }

    /// Reports what was found, and gives what could not be evaluated.
    pub(crate) fn finish(self, sink: &mut Sink) -> BTreeSet<Unevaluated> {
        for ((place, message), SharedMistake { code, first, nodes }) in self.found {
            let whom = match nodes {
                1 => format!("for {first}"),
                2 => format!("for {first} and one more node"),
                more => format!("for {first} and {} more nodes", more - 1),
            };
            sink.error(&place.file, code, place.at(), message).help(whom);
        }
        self.unevaluated
    }

    fn tell(
        &mut self,
        place: DeclaredPosition,
        code: &'static str,
        message: String,
        whom: SpecializedFor<'_>,
    ) {
        let found = self.found.entry((place, message));
        let found = found.or_insert_with(|| SharedMistake { code, first: whom.to_string(), nodes: 0 });
        found.nodes += 1;
    }

    /// Files that two resources of a node write.
    fn claims(&mut self, verdicts: &[Arc<ModuleJudgement>], whom: SpecializedFor<'_>) {
        let together: Vec<usize> = verdicts.iter().map(|verdict| Arc::as_ptr(verdict) as usize).collect();
        let all_kept = verdicts.iter().all(|verdict| verdict.kept);
        if all_kept && self.together.contains(&together) {
            return;
        }
        let clashes = claims::clashes(verdicts);
        if all_kept && clashes.is_empty() && self.together.len() < MAX_VERDICTS {
            self.together.insert(together);
        }
        for (place, message) in clashes {
            self.tell(place, "E084", message, whom);
        }
    }

    /// Nothing sure can be said of a module whose files have mistakes, nor of one that reads its vars.
    fn is_suspect(&mut self, name: &str) -> bool {
        if self.suspect.is_empty() {
            return false;
        }
        let others = |path: &Vec<String>| {
            path.first().is_some_and(|root| root == "vars")
                && path.get(1).is_none_or(|module| self.suspect.contains(module.as_str()))
        };
        self.suspect.contains(name) || self.uses.get(name).is_some_and(|uses| uses.iter().any(others))
    }

    fn list(&mut self, names: &[String]) -> Arc<BTreeMap<String, Arc<Module>>> {
        if let Some(known) = self.lists.get(names) {
            return Arc::clone(known);
        }
        let mut list = BTreeMap::new();
        for name in names {
            let Some((known, shared)) = self.modules.shared.get_key_value(name) else { continue };
            let module = self.shared.entry(known).or_insert_with(|| Arc::new(shared.module.clone()));
            self.uses.entry(known).or_insert_with(|| {
                let uses = NameUses::of_module(module);
                // All params of its own count.
                uses.paths()
                    .filter(|path| path.first().is_some_and(|root| root != "params"))
                    .map(<[_]>::to_vec)
                    .collect()
            });
            list.insert(name.clone(), Arc::clone(module));
        }
        let list = Arc::new(list);
        self.lists.insert(names.to_vec(), Arc::clone(&list));
        list
    }

    fn verdict(&mut self, module: &Arc<Module>, names: &NodeNames) -> Arc<ModuleJudgement> {
        let uses = self.uses.get(module.name.as_str()).cloned().unwrap_or_default();
        let reads_its_name = uses.iter().any(|path| path.iter().map(String::as_str).eq(["node", "hostname"]));
        let key = JudgementKey::of(module, names, &uses);
        if let Some(known) = self.verdicts.get(&key) {
            return Arc::clone(known);
        }
        let verdict = ModuleJudgement::of(module, names, self.modules, self.files);
        // One of a kind is not kept: no other node reads the same.
        let kept = !reads_its_name
            && self.verdicts.len() < MAX_VERDICTS
            && self.bytes + verdict.bytes < MAX_VERDICT_BYTES;
        let verdict = Arc::new(ModuleJudgement { kept, ..verdict });
        if kept {
            self.bytes += verdict.bytes;
            self.verdicts.insert(key, Arc::clone(&verdict));
        }
        verdict
    }
}

/// The span of a place.
fn span_of(place: &DeclaredPosition) -> SourceSpan {
    span(&place.file, place.at())
}
