//! [`declared_path`]: what modules declare of a path's bytes, for who proves it.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{Module, Params};
use catalog::types::{Ensure, FileClaim, FileContent, PathRole, Spec};
use lang::{OpenedSecrets, Value};
use model::Digest;

use crate::bind::{Inputs, NameUses, bind_with_sources};
use crate::{BoundModule, BoundResource, ResourceId, When};

/// What a resource declares of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredPath {
    /// The module.
    pub module: String,
    /// The resource.
    pub resource: ResourceId,
    /// Its content is shown nowhere.
    pub sensitive: bool,
    /// Whether it is wanted is asked on the node, in each run.
    pub asked: bool,
    /// The bytes.
    pub bytes: DeclaredBytes,
}

/// What is declared of the bytes at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredBytes {
    /// The file has these.
    Digest(Digest),
    /// Nothing is there.
    Absent,
    /// Of the file as a whole nothing is declared: a part of it is, or its owner, or that it is a directory.
    NotWhole,
}

/// From what a node's modules are bound.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredBy<'a> {
    /// The node's name.
    pub hostname: &'a str,
    /// Modules of its set, by name: all of them where there are params.
    pub modules: &'a BTreeMap<String, Arc<Module>>,
    /// The node's params; `None` where what is meant depends on nothing of the node.
    pub params: Option<&'a Params>,
    /// What the node observes of itself.
    pub traits: Option<&'a Value>,
}

/// Why it is not known what is declared of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredPathError {
    /// A module of the node is not among those given.
    #[error("module {0} of the node is not given")]
    ModuleMissing(String),
    /// Nothing declares it.
    #[error("nothing that the node gets declares {0}")]
    NotDeclared(String),
    /// What declares it depends on the node's params, which are not given.
    #[error("{0} depends on the node's params, which are not given")]
    DependsOnNode(ResourceId),
    /// What declares it cannot be bound.
    #[error("{0} cannot be bound")]
    Unbound(ResourceId),
}

/// Finds what declares a path: the resource that declares all of the file, if there is one.
///
/// # Errors
/// When nothing does, or it cannot be known from what is given.
pub fn declared_path(by: DeclaredBy<'_>, path: &str) -> Result<DeclaredPath, DeclaredPathError> {
    let alone = Params { modules: by.modules.keys().cloned().collect(), ..Params::default() };
    if let Some(missing) = by.params.and_then(|all| all.modules.iter().find(|m| !by.modules.contains_key(*m)))
    {
        return Err(DeclaredPathError::ModuleMissing(missing.clone()));
    }
    let desired = bind_with_sources(&Inputs {
        modules: by.modules,
        params: by.params.unwrap_or(&alone),
        hostname: Some(by.hostname),
        traits: by.traits,
        own_paths: &[],
        secrets: OpenedSecrets::HIDDEN,
    });
    let resources = desired.modules.iter().flat_map(|module| {
        module.resources.iter().chain(&module.handlers).map(move |resource| (&**module, &**resource))
    });
    let wanted = resources.filter(|(module, resource)| !is_never(&module.when) && !is_never(&resource.when));
    let mut found: Option<(&BoundModule, &BoundResource, DeclaredBytes)> = None;
    for (module, resource) in wanted {
        let Some(bytes) = bytes_at(resource, path) else { continue };
        let is_whole = |bytes| bytes != DeclaredBytes::NotWhole;
        if found.is_none_or(|(_, _, known)| is_whole(bytes) && !is_whole(known)) {
            found = Some((module, resource, bytes));
        }
    }
    let (module, resource, bytes) = found.ok_or_else(|| DeclaredPathError::NotDeclared(path.to_owned()))?;
    if resource.spec.is_err() {
        return Err(DeclaredPathError::Unbound(resource.id.clone()));
    }
    if by.params.is_none() && depends_on_node(by.modules.get(&module.name), resource) {
        return Err(DeclaredPathError::DependsOnNode(resource.id.clone()));
    }
    let asked = |when: &When| matches!(when, When::Ask(_));
    Ok(DeclaredPath {
        module: module.name.clone(),
        resource: resource.id.clone(),
        sensitive: resource.sensitive || resource.holds_secret,
        asked: asked(&module.when) || asked(&resource.when) || !resource.guards.is_empty(),
        bytes,
    })
}

fn is_never(when: &When) -> bool {
    matches!(when, When::Never(_) | When::Failed(_))
}

/// Whether it may mean something else on a node whose params are others.
fn depends_on_node(module: Option<&Arc<Module>>, resource: &BoundResource) -> bool {
    let (Some(module), Some(source)) = (module, &resource.source) else { return true };
    let declared = &source.declared;
    module.when.is_some()
        || declared.foreach.is_some()
        || NameUses::of_resource(module, declared).paths().next().is_some()
}

/// What a resource declares of the bytes at a path; `None` where it has nothing to do with it.
fn bytes_at(resource: &BoundResource, path: &str) -> Option<DeclaredBytes> {
    let Ok(spec) = &resource.spec else {
        return (resource.name == path).then_some(DeclaredBytes::NotWhole);
    };
    let mut roles = spec.paths(&|_| None).filter(|one| one.path == path).map(|one| one.role);
    let of = |ensure, digest: Option<Digest>| match (ensure, digest) {
        (Ensure::Absent, _) => DeclaredBytes::Absent,
        (Ensure::Present, digest) => digest.map_or(DeclaredBytes::NotWhole, DeclaredBytes::Digest),
    };
    match spec {
        Spec::File(file) if file.path == path => {
            Some(of(file.ensure, file.content.as_ref().map(FileContent::digest)))
        }
        Spec::Download(file) if file.path == path => Some(of(file.ensure, Some(file.digest))),
        Spec::Tree(tree) => {
            let below = path.strip_prefix(tree.path.trim_end_matches('/'));
            let file = below.and_then(|below| tree.files.get(below.strip_prefix('/')?));
            let top = || (tree.path == path).then_some(DeclaredBytes::NotWhole);
            file.map(|file| of(tree.ensure, Some(file.digest))).or_else(top)
        }
        _ => roles.any(counts).then_some(DeclaredBytes::NotWhole),
    }
}

/// A path is declared where it is written, or a directory.
fn counts(role: PathRole) -> bool {
    match role {
        PathRole::Written { claim: Some(FileClaim::Whole | FileClaim::Part(_)) | None, .. } => true,
        PathRole::Directory(_) | PathRole::Switched => true,
        PathRole::Contents | PathRole::Watched | PathRole::Probed => false,
    }
}
