//! [`CulpritWatches`]: who changes what is put right again and again, or why nobody can be named.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use converge::{ResourceId, WatchPlan};
use host::{SeenWriter, WriterWatch, WriterWatchError, WritingProcess};
use model::collect::CollectInserting;
use model::{Culprit, CulpritFinding, UnknownCulprit};

use super::WatchShared;
use crate::render::chain;

/// The most directories in which writers are named; the kernel has 128 groups for each user.
const MAX_DIRECTORIES: usize = 16;

/// Directories in which the kernel names who writes, for as long as that is of interest.
pub(super) struct CulpritWatches {
    shared: Arc<WatchShared>,
    plan: Arc<WatchPlan>,
    resources: BTreeSet<ResourceId>,
    directories: BTreeMap<String, WatchedWriters>,
    /// Who was named last for each.
    named: BTreeMap<ResourceId, Culprit>,
    /// Those of which the kernel hides who writes, as was reported.
    hidden: BTreeSet<ResourceId>,
}

struct WatchedWriters {
    /// None while there is no such directory, or the kernel does not tell.
    watch: Option<WriterWatch>,
    /// Whose an entry is.
    entries: BTreeMap<String, BTreeSet<ResourceId>>,
}

/// Why writers of a directory cannot be named: for programs, and for people.
struct UnwatchedWriters {
    why: UnknownCulprit,
    text: String,
}

impl CulpritWatches {
    pub(super) fn new(shared: Arc<WatchShared>) -> CulpritWatches {
        CulpritWatches {
            shared,
            plan: Arc::default(),
            resources: BTreeSet::new(),
            directories: BTreeMap::new(),
            named: BTreeMap::new(),
            hidden: BTreeSet::new(),
        }
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.directories.values().filter_map(|directory| Some(directory.watch.as_ref()?.as_fd())).collect()
    }

    /// Names writers of these from now on, or says why it cannot.
    pub(super) fn follow(&mut self, resources: &BTreeSet<ResourceId>, plan: &Arc<WatchPlan>) {
        if *resources == self.resources && Arc::ptr_eq(plan, &self.plan) {
            return;
        }
        self.plan = plan.clone();
        self.resources.clone_from(resources);
        self.named.retain(|id, _| resources.contains(id));
        self.hidden.retain(|id| resources.contains(id));
        let mut entries: BTreeMap<String, BTreeMap<String, BTreeSet<ResourceId>>> = BTreeMap::new();
        for id in resources {
            for (directory, names) in plan.directories_of(id) {
                let of_directory = entries.entry(directory).or_default();
                for name in names {
                    of_directory.entry(name).or_default().insert(id.clone());
                }
            }
        }
        self.directories.retain(|path, _| entries.contains_key(path));
        let mut found: BTreeMap<ResourceId, UnknownCulprit> = BTreeMap::new();
        let mut problem = None;
        for (path, entries) in entries {
            let of: BTreeSet<ResourceId> = entries.values().flatten().cloned().collect_inserting();
            if let Err(UnwatchedWriters { why, text }) = self.watch(path, entries) {
                found.extend(of.into_iter().map(|id| (id, why)));
                problem = Some(text);
            }
        }
        self.shared.show(|view| view.culprits_problem = problem);
        let unnamed = resources.iter().filter(|id| !self.named.contains_key(*id));
        let unnamed =
            unnamed.map(|id| (id.clone(), found.get(id).copied().unwrap_or(UnknownCulprit::NotSeen)));
        self.shared
            .add_culprits(unnamed.map(|(id, why)| (id, CulpritFinding::Unknown(why))).collect_inserting());
    }

    fn watch(
        &mut self,
        path: String,
        entries: BTreeMap<String, BTreeSet<ResourceId>>,
    ) -> Result<(), UnwatchedWriters> {
        if let Some(known) = self.directories.get_mut(&path) {
            known.entries = entries;
            return Ok(());
        }
        if self.directories.len() >= MAX_DIRECTORIES {
            let text = format!("the agent looks who writes in at most {MAX_DIRECTORIES} directories");
            return Err(UnwatchedWriters { why: UnknownCulprit::Limit, text });
        }
        let opened = self.open(&path);
        let (watch, outcome) = match opened {
            Ok(watch) => (watch, Ok(())),
            Err(unwatched) => (None, Err(unwatched)),
        };
        self.directories.insert(path, WatchedWriters { watch, entries });
        outcome
    }

    /// Another directory is at this path: who writes in that one is of interest.
    pub(super) fn replaced(&mut self, path: &str) {
        if !self.directories.contains_key(path) {
            return;
        }
        let (watch, problem) = match self.open(path) {
            Ok(watch) => (watch, None),
            Err(UnwatchedWriters { text, .. }) => (None, Some(text)),
        };
        self.shared.show(|view| view.culprits_problem = problem);
        if let Some(directory) = self.directories.get_mut(path) {
            directory.watch = watch;
        }
    }

    /// `None` where no such directory is, which has no writers, or where what is in it is not healed by
    /// events anyway: opening a directory that may not answer may never end.
    fn open(&self, path: &str) -> Result<Option<WriterWatch>, UnwatchedWriters> {
        let kinds = &self.shared.kinds;
        if kinds.mount_of_directory(&kinds.mounts_that_may_hang(), path).is_some() {
            return Ok(None);
        }
        let Ok(directory) = self.shared.host.directory_to_watch(path) else { return Ok(None) };
        WriterWatch::open(&directory).map(Some).map_err(|error| {
            let why = match error {
                WriterWatchError::Refused => UnknownCulprit::Refused,
                WriterWatchError::Unsupported(_) => UnknownCulprit::Unsupported,
                WriterWatchError::Limit(_) => UnknownCulprit::Limit,
            };
            let text = format!("who writes in {path} is not known: {}", chain(&error));
            UnwatchedWriters { why, text }
        })
    }

    /// Takes what the kernel said of writers.
    pub(super) fn drain(&mut self) {
        let mut found: BTreeMap<ResourceId, Culprit> = BTreeMap::new();
        let mut hidden: BTreeSet<ResourceId> = BTreeSet::new();
        for directory in self.directories.values() {
            let (Some(watch), entries) = (&directory.watch, &directory.entries) else { continue };
            watch.drain(
                |name| entries.contains_key(name),
                |name, writer| {
                    for id in entries.get(name).into_iter().flatten() {
                        match writer {
                            SeenWriter::Hidden => drop(hidden.insert(id.clone())),
                            // A process that had ended says less than one that was there.
                            SeenWriter::Process(writer) => {
                                if writer.program.is_some() || !found.contains_key(id) {
                                    found.insert(id.clone(), culprit(writer));
                                }
                            }
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
        let why = self.hidden_reason();
        let new =
            hidden.into_iter().filter(|id| !self.named.contains_key(id) && self.hidden.insert(id.clone()));
        let hidden: Vec<_> = new.map(|id| (id, CulpritFinding::Unknown(why))).collect();
        let found = found.into_iter().map(|(id, culprit)| (id, CulpritFinding::Named(culprit)));
        self.shared.add_culprits(hidden.into_iter().chain(found).collect_inserting());
    }

    /// Why the kernel hides a process: from one without privilege it hides all others.
    fn hidden_reason(&self) -> UnknownCulprit {
        match self.shared.host.euid() {
            0 => UnknownCulprit::Hidden,
            _ => UnknownCulprit::Refused,
        }
    }
}

fn culprit(writer: &WritingProcess) -> Culprit {
    Culprit { pid: writer.pid, program: writer.program.clone(), unit: writer.unit.clone() }
}
