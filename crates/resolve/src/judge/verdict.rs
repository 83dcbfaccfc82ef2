//! [`ModuleJudgement`]: what binding one module came to, where the names that it reads have these values.

use std::sync::Arc;

use catalog::module::Module;
use catalog::params::{ResolvedParams, is_dynamic};
use catalog::types::{FileContent, FileSpec, Spec};
use converge::When;
use converge::bind::{BindError, BindMistake, BindPart, BoundAlone, HOSTNAME, NodeNames, UnobservedPart};
use converge::{BoundModule, BoundResource};
use lang::Value;
use lang::secret::is_secret_reference;

use super::place::{DeclaredPosition, ModuleSource};
use super::{Unevaluated, span_of};
use crate::check::modules::{Modules, module_file};
use crate::decl::resource::Placed;
use crate::parse::Files;

/// Roughly the bytes that a bound resource takes, without what it writes.
const RESOURCE_BYTES: usize = 2048;

/// Everything that binding a module depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JudgementKey {
    module: String,
    params: Option<ResolvedParams>,
    broken: Option<String>,
    read: Vec<Option<Result<Value, String>>>,
}

impl JudgementKey {
    pub(super) fn of(module: &Module, names: &NodeNames, uses: &[Vec<String>]) -> JudgementKey {
        JudgementKey {
            module: module.name.clone(),
            params: names.params(&module.name).cloned(),
            broken: names.broken(&module.name).map(ToString::to_string),
            read: uses.iter().map(|path| names.value(path)).collect(),
        }
    }
}

/// A mistake, where it stands.
#[derive(Clone, Debug)]
pub(super) struct JudgedMistake {
    pub(super) place: DeclaredPosition,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// A resource that is bound, where it is declared.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) resource: Arc<BoundResource>,
    pub(super) place: DeclaredPosition,
    /// Its name or one of its attributes is evaluated, so that what it claims is known here first.
    pub(super) evaluated: bool,
}

/// What binding one module came to.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleJudgement {
    /// Its `when:` is not false.
    pub(super) wanted: bool,
    pub(super) told: Vec<JudgedMistake>,
    /// Its params that have no value, and why.
    pub(super) params: Vec<(String, String)>,
    /// What is wrong with the node's conditional vars.
    pub(super) of_node: Vec<String>,
    pub(super) unevaluated: Vec<Unevaluated>,
    pub(super) resources: Vec<Judged>,
    /// Roughly what it takes in memory.
    pub(super) bytes: usize,
    /// It is kept for other nodes.
    pub(super) kept: bool,
}

impl ModuleJudgement {
    pub(super) fn of(
        module: &Module,
        names: &NodeNames,
        modules: &Modules,
        files: &Files,
    ) -> ModuleJudgement {
        let Some((name, decl)) = modules.decls.get_key_value(&module.name) else {
            return ModuleJudgement::default();
        };
        let source = files.get(&module_file(name)).map(|file| &*file.file.bytes).unwrap_or_default();
        let source = std::str::from_utf8(source).unwrap_or_default();
        let written = ModuleSource { name, decl, source: source.strip_prefix('\u{feff}').unwrap_or(source) };
        let BoundAlone { module: bound, declared } = names.bind_alone(module);
        let mut verdict = ModuleJudgement { wanted: true, ..ModuleJudgement::default() };
        verdict.module(&written, &bound, names);
        if matches!(bound.when, When::Never(_)) {
            return ModuleJudgement { wanted: false, ..ModuleJudgement::default() };
        }
        let placed: Vec<&Placed> = decl.resources.iter().chain(&decl.handlers).collect();
        let resources = bound.resources.iter().chain(&bound.handlers).zip(declared);
        for (resource, index) in resources {
            if let Some(placed) = placed.get(index) {
                verdict.resource(&written, placed, resource);
            }
        }
        verdict
    }

    /// The module's own parts.
    fn module(&mut self, written: &ModuleSource<'_>, bound: &BoundModule, names: &NodeNames) {
        self.when(written, None, &bound.when);
        let Some(error) = &bound.error else { return };
        if let Some(broken) = names.broken(&bound.name) {
            self.of_node.push(broken.to_string());
            return;
        }
        for mistake in &error.mistakes {
            match &mistake.part {
                BindPart::Param(name) => self.params.push((name.clone(), mistake.message.clone())),
                _ => self.mistake(written.place(None, mistake), mistake.to_string()),
            }
        }
        self.unobserved(written, None, error);
    }

    fn resource(&mut self, written: &ModuleSource<'_>, placed: &Placed, resource: &Arc<BoundResource>) {
        if matches!(resource.when, When::Never(_)) {
            return;
        }
        self.when(written, Some(placed), &resource.when);
        match &resource.spec {
            Err(error) => {
                for mistake in &error.mistakes {
                    self.mistake(written.place(Some(placed), mistake), told(mistake));
                }
                self.unobserved(written, Some(placed), error);
            }
            Ok(spec) => {
                let declared = &placed.resource;
                let name = Value::from(declared.name.as_str());
                let evaluated =
                    declared.foreach.is_some() || declared.attributes.values().chain([&name]).any(is_dynamic);
                let size = written_bytes(spec);
                self.bytes += RESOURCE_BYTES + size;
                let place = DeclaredPosition::new(&module_file(written.name), placed.at);
                self.resources.push(Judged { resource: Arc::clone(resource), place, evaluated });
            }
        }
    }

    fn when(&mut self, written: &ModuleSource<'_>, placed: Option<&Placed>, when: &When) {
        if let When::Failed(error) = when {
            let error = BindError::of(BindPart::When, error.clone());
            for mistake in &error.mistakes {
                self.mistake(written.place(placed, mistake), told(mistake));
            }
            self.unobserved(written, placed, &error);
        }
    }

    fn mistake(&mut self, place: DeclaredPosition, message: String) {
        self.told.push(JudgedMistake { place, code: "E066", message });
    }

    fn unobserved(&mut self, written: &ModuleSource<'_>, placed: Option<&Placed>, error: &BindError) {
        // What only wants the node's name is judged for every named node, and secrets nobody opens here.
        let is_trait = |unobserved: &&UnobservedPart| {
            unobserved.observed != HOSTNAME && !is_secret_reference(&unobserved.observed)
        };
        let traits = error.unobserved.iter().filter(is_trait);
        self.unevaluated.extend(traits.map(|unobserved| Unevaluated {
            span: span_of(&written.part(placed, &unobserved.part)),
            part: unobserved.part.to_string(),
            observed: unobserved.observed.clone(),
        }));
    }
}

/// The bytes that a resource holds to write them.
fn written_bytes(spec: &Spec) -> usize {
    match spec {
        Spec::File(FileSpec { content: Some(FileContent::Text { text, .. }), .. }) => text.len(),
        _ => 0,
    }
}

/// A mistake of a template stands in it, and its place says so.
fn told(mistake: &BindMistake) -> String {
    match mistake.part {
        BindPart::Template(_) => mistake.message.clone(),
        _ => mistake.to_string(),
    }
}
