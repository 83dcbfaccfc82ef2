//! Which file systems that may not answer a job looks at (CNV-12).

use std::path::{Path, PathBuf};

use catalog::schema;
use catalog::types::{BelowDirectory, PathRole, ResourcePath, Spec};
use converge::JobWork;
use converge::hanging::that_may_hang;
use converge::kinds::mount::{KernelMount, kernel_mounts};
use lang::Probe;

use crate::{Kinds, ssh_key};

impl Kinds {
    /// The mounts of the host that may not answer. Without the kernel's table none is known.
    pub fn mounts_that_may_hang(&self) -> Vec<KernelMount> {
        let table = self.host.mount_table().unwrap_or_else(|error| {
            tracing::debug!(%error, "the table of mounts cannot be read");
            String::new()
        });
        that_may_hang(kernel_mounts(&table), &self.host.root().to_string_lossy())
    }

    /// The one of these mounts that a job looks at, if any.
    pub fn mount_of_job<'a>(&self, mounts: &'a [KernelMount], work: &JobWork) -> Option<&'a KernelMount> {
        if mounts.is_empty() {
            return None;
        }
        self.looked_at(work).iter().find_map(|look| self.mount_of(mounts, look))
    }

    /// The one of these mounts that a path leads to.
    pub(crate) fn mount_of_path<'a>(&self, mounts: &'a [KernelMount], path: &str) -> Option<&'a KernelMount> {
        self.mount_of(mounts, &LookedAt { path: path.to_owned(), below: false })
    }

    /// The one of these mounts that a directory is on, links followed, its own name too.
    pub fn mount_of_directory<'a>(
        &self,
        mounts: &'a [KernelMount],
        directory: &str,
    ) -> Option<&'a KernelMount> {
        // The last name of a path is not followed, so some entry is asked for.
        self.mount_of_path(mounts, &format!("{directory}/entry"))
    }

    fn mount_of<'a>(&self, mounts: &'a [KernelMount], look: &LookedAt) -> Option<&'a KernelMount> {
        if mounts.is_empty() {
            return None;
        }
        let at = |point: &Path| mounts.iter().rev().find(|mount| Path::new(&mount.path) == point);
        let found = self.host.first_mount_on_way(&look.path, &|point| at(point).is_some());
        let below = |mount: &&KernelMount| look.below && Path::new(&mount.path).starts_with(&look.path);
        found.and_then(|point: PathBuf| at(&point)).or_else(|| mounts.iter().find(below))
    }

    /// The paths that a job looks at before, or without, starting a command.
    fn looked_at(&self, work: &JobWork) -> Vec<LookedAt> {
        match work {
            JobWork::Check { resource, .. } | JobWork::Apply { resource, .. } => match &resource.spec {
                Ok(spec) => self.looked_at_by(spec),
                Err(_) => Vec::new(),
            },
            JobWork::Probe(Probe::FileExists(path) | Probe::DirExists(path)) => vec![LookedAt::one(path)],
            JobWork::Undo { undo, .. } => undo
                .iter()
                .flat_map(|undo| self.looked_at_of(&undo.kind, &undo.path, &undo.attributes))
                .collect(),
            JobWork::Remove { entry, .. } => self.looked_at_of(&entry.kind, &entry.path, &entry.attributes),
            JobWork::Probe(_)
            | JobWork::Guard { .. }
            | JobWork::Wait { .. }
            | JobWork::ApplyTogether { .. }
            | JobWork::Verify { .. }
            | JobWork::Persist { .. } => Vec::new(),
        }
    }

    fn looked_at_of(
        &self,
        kind: &str,
        path: &str,
        attributes: &std::collections::BTreeMap<String, lang::Value>,
    ) -> Vec<LookedAt> {
        if path.starts_with('/') {
            return vec![LookedAt { path: path.to_owned(), below: true }];
        }
        let spec = schema::bind_removal(kind, path, attributes);
        spec.map(|spec| self.looked_at_by(&spec)).unwrap_or_default()
    }

    fn looked_at_by(&self, spec: &Spec) -> Vec<LookedAt> {
        let looked_at = |path: ResourcePath<'_>| {
            let below = match path.role {
                PathRole::Directory(BelowDirectory::Managed) | PathRole::Switched => true,
                PathRole::Directory(BelowDirectory::LeftAlone)
                | PathRole::Written { .. }
                | PathRole::Probed => false,
                PathRole::Contents | PathRole::Watched => return None,
            };
            Some(LookedAt { path: path.path.into_owned(), below })
        };
        let mut paths = spec.paths(&|user| ssh_key::home(user, self)).filter_map(looked_at);
        match spec {
            // Its table is local, and of its point only the kernel's list is asked.
            Spec::Mount(_) => Vec::new(),
            // The files are below the directory, which comes first.
            Spec::Tree(_) => paths.next().into_iter().collect(),
            _ => paths.collect(),
        }
    }
}

/// A path that a job looks at.
struct LookedAt {
    path: String,
    /// And at what is below it.
    below: bool,
}

impl LookedAt {
    fn one(path: &str) -> LookedAt {
        LookedAt { path: path.to_owned(), below: false }
    }
}
