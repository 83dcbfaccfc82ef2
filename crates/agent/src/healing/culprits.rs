//! [`CulpritWatches`]: who changes what is put right again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use converge::{ResourceId, WatchPlan};
use host::{WriterWatch, WritingProcess};
use model::Culprit;

use super::WatchShared;

/// The most directories in which writers are named; the kernel has 128 groups for each user.
const MAX_DIRECTORIES: usize = 16;

/// Directories in which the kernel names who writes, for as long as that is of interest.
pub(super) struct CulpritWatches {
    shared: Arc<WatchShared>,
    plan: Arc<WatchPlan>,
    wanted: BTreeSet<ResourceId>,
    directories: BTreeMap<String, WatchedWriters>,
    /// Who was named last for each.
    named: BTreeMap<ResourceId, Culprit>,
}

struct WatchedWriters {
    /// None while there is no such directory, or the kernel does not tell.
    watch: Option<WriterWatch>,
    /// Whose an entry is.
    entries: BTreeMap<String, BTreeSet<ResourceId>>,
}

impl CulpritWatches {
    pub(super) fn new(shared: Arc<WatchShared>) -> CulpritWatches {
        let (wanted, directories, named) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        CulpritWatches { shared, plan: Arc::default(), wanted, directories, named }
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.directories.values().filter_map(|directory| Some(directory.watch.as_ref()?.as_fd())).collect()
    }

    /// Names writers of these from now on.
    pub(super) fn follow(&mut self, wanted: &BTreeSet<ResourceId>, plan: &Arc<WatchPlan>) {
        if *wanted == self.wanted && Arc::ptr_eq(plan, &self.plan) {
            return;
        }
        self.plan = plan.clone();
        self.wanted.clone_from(wanted);
        self.named.retain(|id, _| wanted.contains(id));
        let mut entries: BTreeMap<String, BTreeMap<String, BTreeSet<ResourceId>>> = BTreeMap::new();
        for id in wanted {
            for (directory, names) in plan.directories_of(id) {
                let of_directory = entries.entry(directory).or_default();
                for name in names {
                    of_directory.entry(name).or_default().insert(id.clone());
                }
            }
        }
        self.directories.retain(|path, _| entries.contains_key(path));
        for (path, entries) in entries {
            if let Some(known) = self.directories.get_mut(&path) {
                known.entries = entries;
            } else if self.directories.len() < MAX_DIRECTORIES {
                let watch = self.open(&path);
                self.directories.insert(path, WatchedWriters { watch, entries });
            }
        }
    }

    /// Another directory is at this path: who writes in that one is of interest.
    pub(super) fn replaced(&mut self, path: &str) {
        if self.directories.contains_key(path) {
            let watch = self.open(path);
            if let Some(directory) = self.directories.get_mut(path) {
                directory.watch = watch;
            }
        }
    }

    fn open(&self, path: &str) -> Option<WriterWatch> {
        // Opening a directory that may not answer may never end; nothing in it is healed by events anyway.
        let kinds = &self.shared.kinds;
        if kinds.mount_of_directory(&kinds.mounts_that_may_hang(), path).is_some() {
            return None;
        }
        // One that is not there has no writers.
        let directory = self.shared.host.directory_to_watch(path).ok()?;
        let watch = WriterWatch::open(&directory);
        let why = |error| format!("the kernel does not say who writes in {path}: {error}");
        let problem = watch.as_ref().err().map(why);
        self.shared.show(|view| view.culprits_problem = problem);
        watch.ok()
    }

    /// Takes what the kernel said of writers.
    pub(super) fn drain(&mut self) {
        let mut found: BTreeMap<ResourceId, Culprit> = BTreeMap::new();
        for directory in self.directories.values() {
            let (Some(watch), entries) = (&directory.watch, &directory.entries) else { continue };
            watch.drain(
                |name| entries.contains_key(name),
                |name, writer| {
                    for id in entries.get(name).into_iter().flatten() {
                        let culprit = culprit(writer);
                        // A process that had ended says less than one that was there.
                        if culprit.program.is_some() || !found.contains_key(id) {
                            found.insert(id.clone(), culprit);
                        }
                    }
                },
            );
        }
        found.retain(|id, culprit| match self.named.get(id) {
            Some(known) => !known.is_like(culprit) && (culprit.program.is_some() || known.program.is_none()),
            None => true,
        });
        self.named.extend(found.clone());
        self.shared.name_culprits(found);
    }
}

fn culprit(writer: &WritingProcess) -> Culprit {
    Culprit { pid: writer.pid, program: writer.program.clone(), unit: writer.unit.clone() }
}
