//! All modules together: their files, their templates, and the form in which they travel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::{FileRef, Module};
use catalog::params::is_dynamic;
use lang::NameUse;
use lang::template::TemplateName;
use model::{Digest, canonical};

use super::identity::{self, Clash};
use super::references::{self, CheckedReferences, CrossReference};
use crate::decl::module::ModuleDecl;
use crate::decl::resource::Placed;
use crate::exprs::{self, ExprSite, LOOP_NAMES, Uses};
use crate::parse::{FileDecl, Parsed};
use crate::shape::{Reading, near_or_all};
use crate::sink::Sink;
use crate::tree::{self, FileKind};
use crate::yaml::At;

/// A module as a release carries it: one copy, however many nodes use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedModule {
    /// The module.
    pub module: Module,
    /// Its canonical bytes.
    pub bytes: Arc<[u8]>,
    /// SHA-256 of the bytes.
    pub digest: Digest,
}

/// The files of each module, by path relative to it.
pub(crate) type ModuleFiles = BTreeMap<String, BTreeMap<String, Arc<Parsed>>>;

/// Every module of the fleet.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) decls: BTreeMap<String, ModuleDecl>,
    pub(crate) shared: Arc<BTreeMap<String, Arc<SharedModule>>>,
    pub(crate) blobs: Arc<BTreeMap<Digest, Arc<[u8]>>>,
    pub(crate) clashes: Vec<Clash>,
    pub(crate) reaches: Vec<CrossReference>,
    /// What templates refer to beyond their module, by the template's path.
    pub(crate) uses: BTreeMap<String, Uses>,
}

/// The path of a module's declaration.
pub(crate) fn module_file(name: &str) -> String {
    format!("modules/{name}/module.yaml")
}

/// The module that a path lies in.
pub(crate) fn module_path(path: &str) -> Option<&str> {
    path.strip_prefix("modules/")?.split('/').next()
}

impl Modules {
    /// Builds and checks all modules.
    pub(crate) fn build(files: &BTreeMap<String, Arc<Parsed>>, sink: &mut Sink) -> Modules {
        let mut modules = Modules::default();
        let (mut of_modules, mut blobs) = (ModuleFiles::new(), BTreeMap::new());
        for (path, file) in files.range("modules/".to_owned()..) {
            let Some(module) = module_path(path) else { break };
            let below = path.get("modules/".len() + module.len() + 1..).unwrap_or_default();
            of_modules.entry(module.to_owned()).or_default().insert(below.to_owned(), file.clone());
            match &file.content {
                FileDecl::Module(decl) => {
                    modules.decls.insert(module.to_owned(), (**decl).clone());
                }
                FileDecl::Shipped(digest) => {
                    blobs.insert(*digest, file.file.bytes.clone());
                }
                _ => {}
            }
        }
        modules.blobs = Arc::new(blobs);
        orphans(files, &modules.decls, sink);
        for (name, decl) in &mut modules.decls {
            let files = of_modules.entry(name.clone()).or_default();
            files_exist(name, decl, files, sink);
            modules.uses.extend(templates(name, decl, files, sink));
            identity::within(name, decl, sink);
        }
        let CheckedReferences { reaches, meant } = references::check(&modules.decls, sink);
        modules.reaches = reaches;
        meant.iter().for_each(|target| target.write(&mut modules.decls));
        modules.clashes = identity::clashes(&modules.decls);
        modules.shared = Arc::new(share(&modules.decls, &of_modules, sink));
        modules
    }
}

/// Files of a module that has no declaration.
fn orphans(files: &BTreeMap<String, Arc<Parsed>>, decls: &BTreeMap<String, ModuleDecl>, sink: &mut Sink) {
    let mut reported = BTreeSet::new();
    for (path, _) in files.range("modules/".to_owned()..) {
        let Some(module) = module_path(path) else { break };
        let ours = matches!(tree::kind(path), FileKind::Template { .. } | FileKind::Shipped { .. });
        if ours && !decls.contains_key(module) && reported.insert(module) {
            let at = At { line: 1, column: 1, len: 1 };
            sink.error(path, "E021", at, format!("module `{module}` has files and no module.yaml"))
                .help(format!("add {}", module_file(module)));
        }
    }
}

fn files_exist(name: &str, decl: &ModuleDecl, files: &BTreeMap<String, Arc<Parsed>>, sink: &mut Sink) {
    for placed in decl.resources.iter().chain(&decl.handlers) {
        for (key, folder) in [("template", "templates/"), ("source", "files/"), ("script", "")] {
            let Some(value) = placed.resource.attributes.get(key) else { continue };
            let Some(text) = value.as_str().filter(|text| !is_dynamic(value) && !text.starts_with('/'))
            else {
                continue;
            };
            let path = format!("{folder}{text}");
            let wanted = if key == "script" { "executors/" } else { folder };
            let folder = format!("{path}/");
            let is_folder = || {
                let below = files.range(folder.clone()..).next();
                below.is_some_and(|(other, _)| other.starts_with(&folder))
            };
            let there = match placed.resource.kind.as_str() {
                "directory" => is_folder(),
                _ => files.contains_key(&path),
            };
            if there || !path.starts_with(wanted) {
                continue;
            }
            let at = placed.attributes.get(key).copied().unwrap_or(placed.at);
            let code = if key == "template" { "E090" } else { "E092" };
            let there = files.keys().filter_map(|other| other.strip_prefix(wanted));
            let help =
                near_or_all(path.strip_prefix(wanted).unwrap_or(text), there.collect::<Vec<_>>().into_iter());
            let message = format!("modules/{name}/{path} does not exist");
            sink.error(&module_file(name), code, at, message).help(help);
        }
    }
}

/// Checks the names that templates use; returns what they refer to beyond the module.
fn templates(
    module: &str,
    decl: &ModuleDecl,
    files: &BTreeMap<String, Arc<Parsed>>,
    sink: &mut Sink,
) -> BTreeMap<String, Uses> {
    let mut all = BTreeMap::new();
    for (below, file) in files {
        let FileDecl::Template(Some(body)) = &file.content else { continue };
        let path = format!("modules/{module}/{below}");
        let params = (!decl.broken).then_some(&decl.interface.params);
        let user = TemplateUser::of(below.strip_prefix("templates/").unwrap_or(below), decl);
        let mut reading = Reading::new(&body.text, sink.file(&path));
        for used in &body.names {
            let TemplateName { path, line, column, len, guarded } = used.clone();
            let at = At { line, column, len };
            let of_loop = path.first().is_some_and(|root| LOOP_NAMES.contains(&root.as_str()));
            if let (TemplateUser::Both { plain }, true, false) = (&user, of_loop, guarded) {
                let message = format!("`{}` is known only in a resource with `foreach`", path.join("."));
                reading
                    .error("E061", at, message)
                    .help(format!("`{plain}` uses this template without; give it one of its own"));
                continue;
            }
            let site = match user {
                TemplateUser::Plain => ExprSite::Attribute,
                TemplateUser::Looped | TemplateUser::Both { .. } => ExprSite::LoopedAttribute,
            };
            let name = NameUse { path, offset: 0, len: 0, guarded };
            exprs::name(&mut reading, &name, at, site, params);
        }
        let uses = std::mem::take(&mut reading.uses);
        all.insert(path, uses);
    }
    all
}

/// Which resources of a module use a template.
enum TemplateUser {
    /// None with `foreach`.
    Plain,
    /// Only such.
    Looped,
    /// Such and others.
    Both {
        /// One of the others.
        plain: String,
    },
}

impl TemplateUser {
    fn of(template: &str, decl: &ModuleDecl) -> TemplateUser {
        let uses = |placed: &&Placed| {
            let named = placed.resource.attributes.get("template");
            named.is_some_and(|value| value.as_str() == Some(template) || is_dynamic(value))
        };
        let users = || decl.resources.iter().chain(&decl.handlers).filter(uses);
        let plain = users().find(|placed| placed.resource.foreach.is_none());
        match (users().any(|placed| placed.resource.foreach.is_some()), plain) {
            (false, _) => TemplateUser::Plain,
            (true, None) => TemplateUser::Looped,
            (true, Some(placed)) => TemplateUser::Both { plain: placed.resource.label() },
        }
    }
}

/// Whether a resource copies this file of its module with its executable bit. All other files say nothing
/// of it, so that a script that became executable changes no set.
fn copies(placed: &Placed, path: &str) -> bool {
    let source = placed.resource.attributes.get("source").filter(|_| placed.resource.kind == "directory");
    let (Some(source), Some(below)) = (source, path.strip_prefix("files/")) else { return false };
    let folder = |source: &str| {
        let rest = below.strip_prefix(source.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    is_dynamic(source) || source.as_str().is_some_and(folder)
}

fn share(
    decls: &BTreeMap<String, ModuleDecl>,
    files: &ModuleFiles,
    sink: &mut Sink,
) -> BTreeMap<String, Arc<SharedModule>> {
    let mut shared = BTreeMap::new();
    for (name, decl) in decls {
        let mut module = decl.to_module(name);
        let copied = |path: &str| decl.resources.iter().any(|placed| copies(placed, path));
        for (path, file) in files.get(name).into_iter().flatten() {
            match &file.content {
                FileDecl::Template(Some(body)) => {
                    let template = path.strip_prefix("templates/").unwrap_or(path);
                    module.templates.insert(template.to_owned(), body.text.clone());
                }
                FileDecl::Shipped(digest) => {
                    let size = u64::try_from(file.file.len()).unwrap_or(u64::MAX);
                    let executable = file.file.executable && copied(path);
                    module.files.insert(path.clone(), FileRef { digest: *digest, size, executable });
                    module.blobs.insert(*digest);
                }
                _ => {}
            }
        }
        match canonical::to_bytes(&module) {
            Ok(bytes) => {
                let digest = Digest::of(&bytes);
                shared.insert(name.clone(), Arc::new(SharedModule { module, bytes: bytes.into(), digest }));
            }
            Err(error) => {
                let at = At { line: 1, column: 1, len: 1 };
                sink.error(&module_file(name), "E072", at, error.to_string());
            }
        }
    }
    shared
}
