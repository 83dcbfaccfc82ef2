//! [`Resolver`]: checks a fleet repo and keeps what it learned, so that a change costs what
//! it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::{Diagnostics, Value};
use model::Timestamp;
use trust::RecipientKey;

use crate::check::context::Context;
use crate::check::modules::{Modules, module_path};
use crate::check::rollouts;
use crate::classify;
use crate::decl::admission::{DeclaredAdmission, REVOCATIONS_FILE, TOKENS_FILE};
use crate::decl::secrets::SecretSource;
use crate::judge::{FleetJudge, JudgedNode, Unevaluated};
use crate::parse::{self, FileDecl, Files, Parsed};
use crate::pass::{Dirty, Good, Next, NodePass};
use crate::sink::Sink;
use crate::specialize::{Specialized, SpecializedFor};
use crate::tree::{self, FileKind, MAX_FILES, RepoFile, Tree};
use crate::yaml::At;

/// A fleet repo that is right in every part.
#[derive(Clone, Debug)]
pub struct Fleet {
    name: String,
    specialized: Specialized,
    context: Arc<Context>,
    unevaluated: BTreeSet<Unevaluated>,
    admission: DeclaredAdmission,
    recipients: Arc<BTreeMap<Arc<str>, RecipientKey>>,
}

impl Fleet {
    /// The fleet's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What each node gets.
    pub fn specialize(&self) -> &Specialized {
        &self.specialized
    }

    /// Who may join and who is revoked.
    pub fn admission(&self) -> &DeclaredAdmission {
        &self.admission
    }

    /// Where its secrets come from: the first source that has one gives it (SEC-2).
    pub fn secret_sources(&self) -> &[SecretSource] {
        &self.context.fleet.secret_sources
    }

    /// The keys that secrets are sealed for, by hostname (SEC-1).
    pub fn recipients(&self) -> &BTreeMap<Arc<str>, RecipientKey> {
        &self.recipients
    }

    /// The expressions that could not be evaluated, as they depend on traits that only nodes observe. Sorted,
    /// each once, however many nodes it is for.
    pub fn unevaluated(&self) -> &BTreeSet<Unevaluated> {
        &self.unevaluated
    }

    /// What entries refer to.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

/// What an update changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Exact hostnames that came, went, or get something else, sorted.
    pub hostnames: Vec<Arc<str>>,
    /// Patterns, or what their nodes get.
    pub patterns: bool,
    /// Modules or their files.
    pub modules: bool,
    /// Channels' settings, or how their releases reach their nodes.
    pub channels: bool,
}

impl Changed {
    /// Nothing that a release would carry.
    pub fn is_empty(&self) -> bool {
        self.hostnames.is_empty() && !self.patterns && !self.modules && !self.channels
    }
}

/// Checks a fleet repo, whole at first and then change by change.
///
/// A file is read again only when it changes; a node is specialized again only when
/// its entry, its host file or something that entries refer to changed. Broken changes are
/// kept: the next update is relative to them, while [`Resolver::fleet`] stays the last
/// state that was right.
#[derive(Default)]
pub struct Resolver {
    pub(crate) files: Files,
    pub(crate) modules: Arc<Modules>,
    labels: BTreeMap<String, usize>,
    dirty: Dirty,
    pub(crate) good: Option<Good>,
}

/// Checks a whole tree (CFG-1).
///
/// # Errors
/// Every mistake in it.
pub fn check(tree: &Tree) -> Result<Fleet, Diagnostics> {
    let changes = tree.files.iter().map(|(path, file)| (path.clone(), Some(file.clone()))).collect();
    let (fleet, _) = Resolver::default().update(changes)?;
    Ok(Arc::unwrap_or_clone(fleet))
}

impl Resolver {
    /// A resolver that has seen nothing.
    pub fn new() -> Resolver {
        Resolver::default()
    }

    /// The last fleet that was right in every part.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.good.as_ref().map(|good| &good.fleet)
    }

    /// The files as last seen, right or wrong; for rendering diagnostics.
    pub fn tree(&self) -> Tree {
        Tree { files: self.files.iter().map(|(path, file)| (path.clone(), file.file.clone())).collect() }
    }

    /// Takes changed files in (`None` for one that is gone) and checks.
    ///
    /// # Errors
    /// Every mistake; the last good fleet stays what it was.
    pub fn update(
        &mut self,
        changes: BTreeMap<String, Option<RepoFile>>,
    ) -> Result<(Arc<Fleet>, Changed), Diagnostics> {
        let modules_touched = self.take_in(changes);
        let mut sink = Sink::default();
        if self.files.len() > MAX_FILES {
            sink.general("E099", format!("more than {MAX_FILES} files"), "join host files into nodes files");
            return Err(sink.finish());
        }
        let known = self.good.is_some();
        for file in self.dirty.keys().filter_map(|path| self.files.get(path)) {
            sink.take(&file.found);
        }
        if modules_touched || !known {
            self.modules = Arc::new(Modules::build(&self.files, &mut sink));
        }
        let context = self.context(&mut sink);
        let recipients = self.recipients(&mut sink);
        let judge = self.judge(&sink, None);
        // A module is in the set of a node or not by what it holds now.
        let same = |good: &&Good| {
            let modules = &good.fleet.specialized.modules;
            Arc::ptr_eq(modules, &self.modules.shared) || *modules == self.modules.shared
        };
        let good = self.good.as_ref().filter(same);
        let next = NodePass::new(&self.files, &context, judge, &mut sink).run(good, &self.dirty);
        // What is wrong in this file leaves the nodes as they are.
        let are_nodes_known =
            sink.mistaken().is_some_and(|mistaken| mistaken.iter().all(|path| &**path == "rollouts.yaml"));
        if are_nodes_known {
            rollouts::pins(&context, &next.exact, &next.patterns, &mut sink);
        }
        if !sink.is_empty() {
            return Err(sink.finish());
        }
        Ok(self.commit(context, next, recipients))
    }

    /// The recipients of all files; a node that two of them name differently is reported.
    fn recipients(&self, sink: &mut Sink) -> Arc<BTreeMap<Arc<str>, RecipientKey>> {
        let mut all: BTreeMap<Arc<str>, RecipientKey> = BTreeMap::new();
        for (path, file) in self.files.iter() {
            let FileDecl::Recipients(decls) = &file.content else { continue };
            for (name, (key, at)) in decls {
                if all.insert(name.clone(), *key).is_some_and(|known| known != *key) {
                    let message = format!("`{name}` has another key in another file of recipients");
                    sink.error(path, "E084", *at, message)
                        .help("keep the one that the host prints: muster-agent identity");
                }
            }
        }
        match &self.good {
            Some(good) if *good.fleet.recipients == all => good.fleet.recipients.clone(),
            _ => Arc::new(all),
        }
    }

    /// What is wrong with the times of rollouts that are signed at a time, by the files as last seen, right or wrong.
    pub fn mistaken_times(&self, created: Timestamp) -> Diagnostics {
        let mut sink = Sink::default();
        rollouts::times(&self.files, created, &mut sink);
        sink.finish()
    }

    /// Judges nodes of the last good fleet with what they observe, by hostname; gives what could not be
    /// evaluated all the same. Nodes that no entry matches have nothing to judge.
    ///
    /// # Errors
    /// Every mistake that shows.
    pub fn observed(&self, traits: &BTreeMap<String, Value>) -> Result<BTreeSet<Unevaluated>, Diagnostics> {
        let mut sink = Sink::default();
        let (Some(good), Some(mut judge)) = (&self.good, self.judge(&sink, Some(traits))) else {
            return Ok(BTreeSet::new());
        };
        for hostname in traits.keys() {
            let spec = good.fleet.specialized.node(hostname);
            // Whoever wrote the bytes, they are this resolver's.
            let Some(params) = spec.and_then(|spec| spec.read_params().ok()) else { continue };
            let loc = good.index.find(hostname);
            let item = loc.and_then(|loc| {
                let entry = classify::entries(self.files.get(&*loc.file)).get(loc.entry)?;
                Some((&*loc.file, entry.matches.get(loc.item)?.at))
            });
            let node = JudgedNode {
                hostname: Some(hostname),
                whom: SpecializedFor::Node(hostname),
                blame: item.unwrap_or(("nodes.yaml", At { line: 1, column: 1, len: 1 })),
                params: &params,
            };
            judge.node(&node, &|_, _| None);
        }
        let unevaluated = judge.finish(&mut sink);
        if sink.is_empty() { Ok(unevaluated) } else { Err(sink.finish()) }
    }

    /// A judge of what nodes get, where what they get is known: mistakes in modules leave those out, and
    /// mistakes elsewhere everything.
    fn judge<'j>(
        &'j self,
        sink: &Sink,
        traits: Option<&'j BTreeMap<String, Value>>,
    ) -> Option<FleetJudge<'j>> {
        let mistaken = sink.mistaken()?;
        let modules: Option<BTreeSet<String>> =
            mistaken.iter().map(|path| module_path(path).map(str::to_owned)).collect();
        Some(FleetJudge::new(&self.modules, &self.files, modules?, traits))
    }

    /// Reads what changed; says whether a module did, now or since the last good state.
    fn take_in(&mut self, changes: BTreeMap<String, Option<RepoFile>>) -> bool {
        for (path, file) in changes {
            let old = self.files.get(&path).cloned();
            let same = match (&old, &file) {
                (Some(old), Some(new)) => {
                    old.file.executable == new.executable
                        && (Arc::ptr_eq(&old.file.bytes, &new.bytes) || old.file.bytes == new.bytes)
                }
                (None, None) => true,
                _ => false,
            };
            if same {
                continue;
            }
            if let Some(old) = &old {
                self.count_labels(old, false);
                self.files.remove(&path);
            }
            if let Some(file) = file {
                let parsed = Arc::new(parse::parse(&path, file));
                self.count_labels(&parsed, true);
                self.files.insert(path.clone(), parsed);
            }
            self.dirty.entry(path).or_insert(old);
        }
        self.dirty.keys().any(|path| path.starts_with("modules/"))
    }

    fn count_labels(&mut self, file: &Parsed, added: bool) {
        for label in file.labels() {
            let count = self.labels.entry(label.to_owned()).or_default();
            *count = if added { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.labels.remove(label);
            }
        }
    }

    /// The context of the last good state if nothing in it changed.
    fn context(&self, sink: &mut Sink) -> Arc<Context> {
        let refers = |path: &String| {
            !matches!(
                tree::kind(path),
                FileKind::Nodes | FileKind::Host(_) | FileKind::Tokens | FileKind::Revocations
            )
        };
        if let Some(good) = &self.good {
            let same_labels = good.context.labels.iter().eq(self.labels.keys());
            let uses = |path: &String| self.files.get(path).is_some_and(|file| !file.uses.is_empty());
            if same_labels && !self.dirty.keys().any(|path| refers(path) || uses(path)) {
                return good.context.clone();
            }
        }
        let labels = self.labels.keys().cloned().collect();
        let context = Context::build(&self.files, &self.modules, labels, sink);
        match &self.good {
            Some(good) if *good.context == context => good.context.clone(),
            _ => Arc::new(context),
        }
    }

    fn admission(&self) -> DeclaredAdmission {
        let declared = |path| self.files.get(path).map(|file| &file.content);
        DeclaredAdmission {
            tokens: match declared(TOKENS_FILE) {
                Some(FileDecl::Tokens(tokens)) => Some(tokens.clone()),
                _ => None,
            },
            revocations: match declared(REVOCATIONS_FILE) {
                Some(FileDecl::Revocations(revocations)) => Some(revocations.clone()),
                _ => None,
            },
        }
    }

    fn commit(
        &mut self,
        context: Arc<Context>,
        next: Next,
        recipients: Arc<BTreeMap<Arc<str>, RecipientKey>>,
    ) -> (Arc<Fleet>, Changed) {
        let policies =
            context.rollouts.iter().map(|(name, declared)| (name.clone(), declared.policy.clone()));
        let specialized = Specialized {
            minimum_agent: context.fleet.minimum_agent.clone(),
            channels: Arc::new(context.fleet.channels.clone()),
            rollouts: Arc::new(policies.collect()),
            exact: next.exact,
            patterns: next.patterns,
            modules: self.modules.shared.clone(),
            blobs: self.modules.blobs.clone(),
        };
        let partial = next.touched.is_some();
        let changed = match &self.good {
            Some(good) => changed(&good.fleet.specialized, &specialized, next.touched),
            None => Changed {
                hostnames: specialized.exact.keys().cloned().collect(),
                patterns: true,
                modules: true,
                channels: true,
            },
        };
        let mut unevaluated = next.unevaluated;
        if let (Some(good), true) = (&self.good, partial) {
            unevaluated.extend(good.fleet.unevaluated.iter().cloned());
        }
        let name = context.fleet.name.clone();
        let admission = self.admission();
        let fleet = Arc::new(Fleet {
            name,
            specialized,
            context: context.clone(),
            unevaluated,
            admission,
            recipients,
        });
        let Next { index, parts, hosts, .. } = next;
        self.good = Some(Good { fleet: fleet.clone(), context, index, parts, hosts });
        self.dirty.clear();
        (fleet, changed)
    }
}

fn changed(old: &Specialized, new: &Specialized, touched: Option<BTreeSet<Arc<str>>>) -> Changed {
    let differs = |name: &Arc<str>| old.exact.get(name) != new.exact.get(name);
    let hostnames = match touched {
        Some(touched) => touched.into_iter().filter(differs).collect(),
        None => {
            let all: BTreeSet<&Arc<str>> = old.exact.keys().chain(new.exact.keys()).collect();
            all.into_iter().filter(|name| differs(name)).cloned().collect()
        }
    };
    Changed {
        hostnames,
        patterns: !Arc::ptr_eq(&old.patterns, &new.patterns) && old.patterns != new.patterns,
        modules: old.modules != new.modules,
        channels: old.channels != new.channels || old.rollouts != new.rollouts,
    }
}
