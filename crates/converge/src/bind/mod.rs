//! [`bind`]: from a node's set and what it observes to what is to converge.
//!
//! Pure, so `muster render` over recorded traits gives what the node would get. It never
//! fails as a whole: a module or resource that cannot be bound carries its error and fails
//! in the run, and the rest converges.

mod claims;
mod foreach;
mod links;
mod memory;
mod names;
mod order;
mod problem;
mod reads;
mod resource;
mod secrets;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use catalog::module::{CommandLine, Module, OnRemove, Params};
use catalog::params::ResolvedParams;
use catalog::schema::{self, Manages};
use catalog::types::{Ensure, Spec, StateSpec, Together};
use lang::{OpenedSecrets, Value};
use model::collect::CollectInserting;
use model::window::TimeWindow;

use foreach::LoopBudget;
use links::DeclaredSlots;

pub use foreach::{MAX_LOOP_BYTES, MAX_LOOP_PAIRS, MAX_NODE_ITEMS};
pub use names::{NodeNames, conditions};
pub(crate) use order::parents;
pub use problem::{BindError, BindMistake, BindPart, TextPlace, UnobservedPart};
pub use reads::{NameUses, TraitUses};
pub use source::BoundSource;
use source::Sources;

use crate::condition::{ModuleScope, SharedScope};
use crate::{ResourceId, ResourceSubject, When};

/// The name of the node's name in expressions; not known where all nodes of a pattern are meant.
pub const HOSTNAME: &str = "node.hostname";

/// What is bound.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The modules of the node's set, by name.
    pub modules: &'a BTreeMap<String, Arc<Module>>,
    /// The node's params.
    pub params: &'a Params,
    /// The node's name; `None` where all nodes of a pattern are meant.
    pub hostname: Option<&'a str>,
    /// What the node observes of itself; a map. `None` before anybody observed it: what depends on a trait
    /// is told as [`BindError::unobserved`] then.
    pub traits: Option<&'a Value>,
    /// Paths of the host that are Muster's own, beside those of an installation with all defaults
    /// ([`catalog::own_paths`]).
    pub own_paths: &'a [String],
    /// The values of its secrets: what the node opened, or [`OpenedSecrets::SEALED`] where nobody may, or
    /// [`OpenedSecrets::HIDDEN`] to show what it gets.
    pub secrets: &'a OpenedSecrets,
}

/// What a node should be, in the order in which it is made so. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// Modules, each after those that it depends on.
    pub modules: Vec<Arc<BoundModule>>,
    /// The whole node only observes; removals too.
    pub observe: bool,
    /// Why what depends on a secret cannot be had here, by the secret as expressions name it. Empty off the node.
    pub blocked: Arc<BTreeMap<String, String>>,
    /// The windows that its conditions may ask for; one that cannot be read carries the reason.
    pub windows: Arc<BTreeMap<String, Result<TimeWindow, String>>>,
    /// Where each resource stands: module and slot (resources, then handlers).
    pub(crate) index: Arc<BTreeMap<ResourceId, (usize, usize)>>,
}

/// A module, bound.
#[derive(Clone, Debug, Default)]
pub struct BoundModule {
    /// Its name.
    pub name: String,
    /// Modules whose failure skips this one.
    pub depends_on: Vec<String>,
    /// Modules that come first for order's sake: notifiers, and whatever manages a parent of a path.
    pub after: Vec<String>,
    /// Whether it is wanted here.
    pub when: When,
    /// It only observes; already said of each of its resources.
    pub observe: bool,
    /// In the order in which they are made so.
    pub resources: Vec<Arc<BoundResource>>,
    /// In the order in which they run when notified.
    pub handlers: Vec<Arc<BoundResource>>,
    /// Run after the writes; failure restores them.
    pub verify: Option<CommandLine>,
    /// Why the module as a whole cannot run.
    pub error: Option<BindError>,
    /// Some resource's name is not known, so the ledger does not show which one left.
    pub(crate) unnamed: bool,
    /// Bytes of the attributes and templates that its resources were bound to.
    held: usize,
}

/// A resource, bound.
#[derive(Clone, Debug)]
pub struct BoundResource {
    /// What reports and the ledger call it.
    pub id: ResourceId,
    /// Its type.
    pub kind: String,
    /// Its name: the path of a file.
    pub name: String,
    /// What it means, or why it cannot be bound.
    pub spec: Result<Spec, BindError>,
    /// Whether it is wanted here.
    pub when: When,
    /// Their failure skips this one.
    pub depends_on: Vec<ResourceId>,
    /// They come first for order's sake: whatever manages a parent of its path.
    pub after: Vec<ResourceId>,
    /// They are notified when this one changed; subscribers are among them.
    pub notify: Vec<ResourceId>,
    /// The short names by which `changed("id")` knows its notifiers; more than one under the
    /// name of a resource with `foreach`, none where it goes over nothing.
    pub(crate) notifiers: BTreeMap<String, Vec<ResourceId>>,
    /// Only report what would change.
    pub observe: bool,
    /// What happens when it leaves the set.
    pub on_remove: OnRemove,
    /// Show neither content nor output: it is declared so, or holds a secret that was opened.
    pub sensitive: bool,
    /// It is made of a secret of the fleet.
    pub holds_secret: bool,
    /// A failure neither skips dependents nor fails the run.
    pub ignore_failure: bool,
    /// Its commands are killed after this long.
    pub timeout: Duration,
    /// Asked of the host before the check, in this order.
    pub guards: Vec<ResourceGuard>,
    /// What is done when it fails.
    pub retry: RetryPolicy,
    /// Names by which a run can be limited to some resources; sorted.
    pub tags: Vec<String>,
    /// The key of the item of its `foreach`.
    pub(crate) item: Option<String>,
    /// What the ledger keeps of its attributes, so that it can be removed without its declaration.
    pub(crate) kept: BTreeMap<String, Value>,
    /// The declaration that it comes from; [`bind_with_sources`] keeps it, [`bind`] does not.
    pub source: Option<Box<BoundSource>>,
}

/// A command that says whether a resource is wanted on this host now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGuard {
    /// Which answer holds the resource back.
    pub kind: GuardKind,
    /// The command; it runs as root in `/`, for as long as the resource's timeout.
    pub command: CommandLine,
}

/// Which answer of a guard holds its resource back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuardKind {
    /// `only_if`: failure does.
    OnlyIf,
    /// `not_if`: success does.
    NotIf,
}

impl GuardKind {
    /// The key in the fleet repo.
    pub fn key(self) -> &'static str {
        match self {
            GuardKind::OnlyIf => "only_if",
            GuardKind::NotIf => "not_if",
        }
    }

    /// Whether a command that succeeded, or did not, lets the resource go on.
    pub fn lets_on(self, succeeded: bool) -> bool {
        match self {
            GuardKind::OnlyIf => succeeded,
            GuardKind::NotIf => !succeeded,
        }
    }
}

/// How often a resource that failed is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries after the first one.
    pub retries: u8,
    /// The time between two tries.
    pub delay: Duration,
}

impl BoundResource {
    /// The path that it manages, if its type manages one.
    pub fn path(&self) -> Option<&str> {
        self.spec.as_ref().ok()?.managed().map(|(path, _)| path)
    }

    /// What of the host it is about; `None` where that is not known. Where it is not wanted there is
    /// no spec, and the name says it.
    pub fn subject(&self) -> Option<ResourceSubject<'_>> {
        match self.manages()? {
            Manages::Path => Some(ResourceSubject::Path(self.path().unwrap_or(&self.name))),
            Manages::Part => self.path().map(ResourceSubject::Path),
            Manages::State | Manages::Effect => {
                Some(ResourceSubject::Named { kind: &self.kind, name: &self.name })
            }
        }
    }

    /// What of the host its type manages.
    pub(crate) fn manages(&self) -> Option<Manages> {
        Some(schema::find(&self.kind)?.manages)
    }

    /// Whether it is declared that it is not there.
    pub(crate) fn is_absent(&self) -> bool {
        let Ok(spec) = &self.spec else { return false };
        let managed = spec.managed().map(|(_, ensure)| ensure);
        managed.or_else(|| spec.state().map(StateSpec::ensure)) == Some(Ensure::Absent)
    }

    /// Paths other than its own parents that must be right before it: the file that a line
    /// is in; the program and the directory of a command.
    pub(crate) fn needs(&self) -> Vec<&str> {
        match &self.spec {
            Ok(Spec::Line(spec)) => vec![&spec.path],
            Ok(Spec::Exec(spec)) => {
                let program = match &spec.command {
                    CommandLine::Argv(argv) => argv.first().map(String::as_str),
                    CommandLine::Shell(_) => None,
                };
                program.into_iter().chain(spec.cwd.as_deref()).collect()
            }
            Ok(spec) => spec.state().map(StateSpec::needs).unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Things other than paths that must be right before it, where they are declared: the user and the
    /// group that own a file, or as which a command runs.
    pub(crate) fn after_things(&self) -> Vec<ResourceSubject<'_>> {
        match &self.spec {
            Ok(Spec::File(spec)) => spec.ownership.accounts(),
            Ok(Spec::Directory(spec)) => spec.ownership.accounts(),
            Ok(Spec::Download(spec)) => spec.ownership.accounts(),
            Ok(Spec::Exec(spec)) => {
                spec.user.iter().map(|name| ResourceSubject::Named { kind: "user", name }).collect()
            }
            Ok(spec) => spec.state().map(StateSpec::after).unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// With which others it is applied in one go.
    pub(crate) fn together(&self) -> Option<Together> {
        self.spec.as_ref().ok()?.state()?.together()
    }

    /// Types of which every resource comes before it.
    pub(crate) fn after_types(&self) -> &'static [&'static str] {
        let state = self.spec.as_ref().ok().and_then(Spec::state);
        state.map(StateSpec::after_types).unwrap_or_default()
    }
}

impl Desired {
    /// All resources and handlers, module by module.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<BoundResource>> {
        self.modules.iter().flat_map(|module| module.resources.iter().chain(&module.handlers))
    }

    /// Every tag that some resource has.
    pub fn tags(&self) -> BTreeSet<&str> {
        self.resources().flat_map(|resource| resource.tags.iter().map(String::as_str)).collect_inserting()
    }
}

/// Binds a node's set: conditional layers, vars, `foreach:`, `when:`, names, attributes,
/// templates, references, order (CFG-2, CFG-7).
pub fn bind(inputs: &Inputs<'_>) -> Desired {
    bind_keeping(inputs, Sources::Drop)
}

/// As [`bind`]; each resource also has the declaration that it comes from.
pub fn bind_with_sources(inputs: &Inputs<'_>) -> Desired {
    bind_keeping(inputs, Sources::Keep)
}

fn bind_keeping(inputs: &Inputs<'_>, sources: Sources) -> Desired {
    let names = NodeNames::of(inputs);
    let mut modules: Vec<BoundModule> = Vec::new();
    let mut declared: Vec<DeclaredSlots<'_>> = Vec::new();
    let mut budget = LoopBudget::default();
    let mut seen = BTreeSet::new();
    for name in inputs.params.modules.iter().filter(|name| seen.insert(*name)) {
        let Some(module) = inputs.modules.get(name) else {
            let error = Some(BindError::whole("the set names this module and does not hold it"));
            modules.push(BoundModule { name: name.clone(), error, unnamed: true, ..Default::default() });
            declared.push(DeclaredSlots::default());
            continue;
        };
        let (bound, slots) = names.bind(module, inputs.params.observe, &mut budget, sources);
        modules.push(bound);
        declared.push(slots);
    }
    links::resolve(&mut modules, &declared);
    let modules = order::order(modules);
    let index = index(&modules);
    let windows = inputs.params.windows.iter();
    let windows = windows.map(|(name, declared)| {
        (name.clone(), TimeWindow::read(declared).map_err(|error| error.to_string()))
    });
    Desired {
        blocked: Arc::new(secrets::blocked(&modules, inputs.secrets)),
        modules: modules.into_iter().map(Arc::new).collect(),
        observe: inputs.params.observe,
        windows: Arc::new(windows.collect_inserting()),
        index,
    }
}

/// A module, bound without the others of its node.
#[derive(Clone, Debug)]
pub struct BoundAlone {
    /// The module.
    pub module: BoundModule,
    /// For each of its resources, then of its handlers, the number of the declaration that it comes of:
    /// resources are counted first, then handlers.
    pub declared: Vec<usize>,
}

fn bind_module<'m>(
    module: &'m Module,
    params: Result<ResolvedParams, BindError>,
    shared: &Arc<SharedScope>,
    observe: bool,
    budget: &mut LoopBudget,
    sources: Sources,
) -> (BoundModule, DeclaredSlots<'m>) {
    let mut bound = BoundModule {
        name: module.name.clone(),
        depends_on: module.depends_on.iter().cloned().collect(),
        observe: observe || module.observe,
        ..BoundModule::default()
    };
    let params = match params {
        Ok(params) => params,
        Err(error) => {
            (bound.error, bound.unnamed) = (Some(error), true);
            return (bound, DeclaredSlots::default());
        }
    };
    let scope = Arc::new(ModuleScope {
        params: Arc::new(Value::Map(params.values)),
        unobserved: Arc::new(
            params
                .unobserved
                .into_iter()
                .map(|(param, observed)| (format!("params.{param}"), observed))
                .collect_inserting(),
        ),
        secret: Arc::new(params.secret.below("params")),
        whole_secrets: Arc::new(params.whole_secrets),
        shared: Arc::clone(shared),
        item: None,
    });
    bound.when = When::decide(module.when.as_deref(), &scope);
    let mut binder = resource::Binder::new(module, &scope, bound.observe, budget, sources);
    let mut slots = DeclaredSlots::default();
    for resource in &module.resources {
        slots.push(resource, &mut bound.resources, binder.expand(resource));
        binder.slot += 1;
    }
    slots.begin_handlers();
    for handler in &module.handlers {
        let expanded = binder.expand(handler);
        let handlers = expanded.into_iter().map(|handler| apart_from(&bound.resources, handler)).collect();
        slots.push(handler, &mut bound.handlers, handlers);
        binder.slot += 1;
    }
    (bound.unnamed, bound.held) = (binder.unnamed, binder.made);
    // Where the module is not wanted its verify is not either, and may not even evaluate.
    if !matches!(bound.when, When::Never(_)) {
        match module.verify.as_ref().map(|command| resource::command(command, &scope)).transpose() {
            Ok(verify) => bound.verify = verify,
            Err(error) => bound.error = Some(BindError::of(BindPart::Verify, error)),
        }
    }
    (bound, slots)
}

/// A handler may be about the same thing as a resource of its module: the service that it reloads. It
/// has an id of its own then.
fn apart_from(resources: &[Arc<BoundResource>], handler: Arc<BoundResource>) -> Arc<BoundResource> {
    if resources.iter().all(|resource| resource.id != handler.id) {
        return handler;
    }
    let mut handler = Arc::unwrap_or_clone(handler);
    let name = format!("{} (handler)", handler.name);
    handler.id = ResourceId::new(handler.id.module(), &handler.kind, &name);
    Arc::new(handler)
}

fn index(modules: &[BoundModule]) -> Arc<BTreeMap<ResourceId, (usize, usize)>> {
    let slots = modules.iter().enumerate().flat_map(|(m, module)| {
        let all = module.resources.iter().chain(&module.handlers);
        all.enumerate().map(move |(slot, resource)| (resource.id.clone(), (m, slot)))
    });
    Arc::new(slots.collect_inserting())
}
