//! Why a node has a module, and where the resources of it are declared.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::Explainer;
use super::locate::RepoSource;
use crate::check::modules::module_file;
use crate::parse::FileDecl;
use crate::yaml::Spanned;

/// A module of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedModule {
    /// Its name.
    pub name: String,
    /// Everything that brings it, each enough by itself.
    pub because: Vec<ModuleBecause>,
}

/// What brings a module, and where that is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleBecause {
    /// What brings it.
    pub reason: ModuleReason,
    /// Where that stands.
    pub source: RepoSource,
}

/// What brings a module to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleReason {
    /// A role has it.
    Role(String),
    /// The entry names it.
    Entry,
    /// `environment_overrides` names it.
    EnvironmentOverride(String),
    /// The host file names it.
    Host,
    /// Another module of the node depends on it.
    NeededBy(String),
}

impl fmt::Display for ModuleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModuleReason::Role(name) => write!(f, "role {name}"),
            ModuleReason::Entry => f.write_str("node entry"),
            ModuleReason::EnvironmentOverride(name) => write!(f, "environment_overrides {name}"),
            ModuleReason::Host => f.write_str("host file"),
            ModuleReason::NeededBy(name) => write!(f, "module {name} depends on it"),
        }
    }
}

impl Serialize for ModuleReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A module that is taken away from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExcludedModule {
    /// Its name.
    pub name: String,
    /// Where that is said.
    pub source: RepoSource,
}

/// Where a declared resource stands, with its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceSource {
    /// The item of `resources` or `handlers`.
    pub source: RepoSource,
    /// Each key as written; that of the short form is the type's name.
    pub keys: BTreeMap<String, RepoSource>,
}

impl Explainer<'_> {
    pub(super) fn explained_modules(&self) -> Vec<ExplainedModule> {
        let modules = self.params.modules.iter();
        modules.map(|name| ExplainedModule { name: name.clone(), because: self.module(name) }).collect()
    }

    /// Everything that brings a module to the node; nothing when it does not have it.
    pub fn module(&self, name: &str) -> Vec<ModuleBecause> {
        let mut because = Vec::new();
        if !self.params.modules.iter().any(|own| own == name) {
            return because;
        }
        let mut add = |reason, file: &str, list: &[Spanned<String>]| {
            if let Some(item) = list.iter().find(|item| item.value == name) {
                because.push(ModuleBecause { reason, source: RepoSource::at(file, item.at) });
            }
        };
        for role in &self.params.node.roles {
            let file = self.context.roles.get(role).and_then(|info| self.files.get_key_value(&*info.file));
            if let Some((path, FileDecl::Role(decl))) = file.map(|(path, file)| (path, &file.content)) {
                add(ModuleReason::Role(role.clone()), path, &decl.modules);
            }
        }
        add(ModuleReason::Entry, &self.loc.file, &self.entry.facts.modules);
        if let Some(chosen) = self.override_decl() {
            let reason = ModuleReason::EnvironmentOverride(chosen.environment.value.clone());
            add(reason, &self.loc.file, &chosen.modules);
        }
        if let Some((file, host)) = &self.host {
            add(ModuleReason::Host, file, &host.facts.modules);
        }
        for other in self.params.modules.iter().filter(|other| *other != name) {
            if let Some(decl) = self.modules.decls.get(other) {
                add(ModuleReason::NeededBy(other.clone()), &module_file(other), &decl.depends_on);
            }
        }
        because
    }

    pub(super) fn excluded(&self) -> Vec<ExcludedModule> {
        let of_entry = self.override_decl().map(|chosen| (self.loc.file.to_string(), &chosen.exclude));
        let of_host = self.host.as_ref().map(|(file, host)| (file.clone(), &host.exclude));
        let all = of_entry.into_iter().chain(of_host);
        let one = |file: &str, item: &Spanned<String>| ExcludedModule {
            name: item.value.clone(),
            source: RepoSource::at(file, item.at),
        };
        let gone = |name: &str| !self.params.modules.iter().any(|own| own == name);
        let all = all.flat_map(|(file, items)| items.iter().map(move |item| one(&file, item)));
        all.filter(|excluded| gone(&excluded.name)).collect()
    }

    fn override_decl(&self) -> Option<&crate::decl::nodes::Override> {
        let environment = self.params.node.environment.as_ref()?;
        self.entry.overrides.iter().find(|one| one.environment.value == *environment)
    }

    /// Where a resource of a module is declared: by its position, resources first, then handlers.
    pub fn resource(&mut self, module: &str, slot: usize) -> Option<ResourceSource> {
        let decl = self.modules.decls.get(module)?;
        let (list, number, placed) = match decl.resources.get(slot) {
            Some(placed) => ("resources", slot, placed),
            None => {
                let number = slot.checked_sub(decl.resources.len())?;
                ("handlers", number, decl.handlers.get(number)?)
            }
        };
        let file = module_file(module);
        let keys = self.locator.keys(&file, &[list.into(), number.into()]);
        Some(ResourceSource { source: RepoSource::at(&file, placed.at), keys })
    }

    /// Where the `when` of a module stands.
    pub fn module_when(&mut self, module: &str) -> RepoSource {
        self.locator.find(&module_file(module), &["when".into()])
    }
}
