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
    /// There are more directories than [`MAX_DIRECTORIES`].
    over_limit: bool,
    /// Who was named last for each.
    named: BTreeMap<ResourceId, Culprit>,
    /// Those of which the kernel hides who writes, as was reported.
    hidden: BTreeSet<ResourceId>,
}

struct WatchedWriters {
    /// None while there is no such directory. What was refused is asked for again at each change.
    watch: Result<Option<WriterWatch>, UnwatchedWriters>,
    /// Whose an entry is.
    entries: BTreeMap<String, BTreeSet<ResourceId>>,
}

impl WatchedWriters {
    fn kernel(&self) -> Option<&WriterWatch> {
        self.watch.as_ref().ok()?.as_ref()
    }
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
            over_limit: false,
            named: BTreeMap::new(),
            hidden: BTreeSet::new(),
        }
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.directories.values().filter_map(|directory| Some(directory.kernel()?.as_fd())).collect()
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
        self.over_limit = false;
        for (path, entries) in entries {
            let of: BTreeSet<ResourceId> = entries.values().flatten().cloned().collect_inserting();
            if let Err(why) = self.watch(path, entries) {
                found.extend(of.into_iter().map(|id| (id, why)));
            }
        }
        self.show_problem();
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
    ) -> Result<(), UnknownCulprit> {
        let is_full = self.directories.len() >= MAX_DIRECTORIES;
        match self.directories.get_mut(&path) {
            Some(known) if known.watch.is_ok() => {
                known.entries = entries;
                return Ok(());
            }
            None if is_full => {
                self.over_limit = true;
                return Err(UnknownCulprit::Limit);
            }
            Some(_) | None => {}
        }
        let watch = self.open(&path);
        let outcome = watch.as_ref().map(drop).map_err(|unwatched| unwatched.why);
        self.directories.insert(path, WatchedWriters { watch, entries });
        outcome
    }

    /// Shows why writers cannot be named of one of the directories that are followed.
    fn show_problem(&self) {
        let mut unwatched = self.directories.values().filter_map(|directory| directory.watch.as_ref().err());
        let over_limit = || format!("the agent looks who writes in at most {MAX_DIRECTORIES} directories");
        let problem = unwatched.next().map(|unwatched| unwatched.text.clone());
        let problem = problem.or_else(|| self.over_limit.then(over_limit));
        self.shared.show(|view| view.culprits_problem = problem);
    }

    /// Another directory is at this path: who writes in that one is of interest.
    pub(super) fn replaced(&mut self, path: &str) {
        if !self.directories.contains_key(path) {
            return;
        }
        let watch = self.open(path);
        if let Some(directory) = self.directories.get_mut(path) {
            directory.watch = watch;
        }
        self.show_problem();
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
            let (Some(watch), entries) = (directory.kernel(), &directory.entries) else { continue };
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

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use catalog::module::{Module, Params};
    use converge::bind::Inputs;
    use converge::{HostLayout, bind};
    use host::{Host, HostOptions};
    use lang::Value;
    use providers::Kinds;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::state::StateDir;

    fn plan(paths: &[&str]) -> WatchPlan {
        let resources = paths.iter().map(
            |path| serde_json::json!({ "type": "file", "name": path, "attributes": { "content": "x" } }),
        );
        let module = serde_json::json!({ "name": "m", "resources": resources.collect::<Vec<_>>() });
        let module: Module = serde_json::from_value(module).unwrap();
        let modules = BTreeMap::from([("m".to_owned(), Arc::new(module))]);
        let params = Params { modules: modules.keys().cloned().collect(), ..Params::default() };
        let traits = Value::Map(Default::default());
        let desired = bind(&Inputs {
            modules: &modules,
            params: &params,
            hostname: Some("web-1"),
            traits: Some(&traits),
            own_paths: &[],
            secrets: lang::OpenedSecrets::SEALED,
        });
        let layout = HostLayout { home: &|_| None, link_folders: Vec::new(), unpacked: &|_| Vec::new() };
        WatchPlan::of(&desired, &layout)
    }

    fn culprits(state: &std::path::Path) -> CulpritWatches {
        let durable = StateDir::at(state, spool::Disk::new()).open().unwrap();
        let host = Arc::new(Host::open("/".as_ref(), HostOptions::default()).unwrap());
        CulpritWatches::new(Arc::new(WatchShared {
            kinds: Arc::new(Kinds::new(host.clone(), Arc::new(durable))),
            host,
            daemon: crate::events::channel().0,
            desired: Mutex::default(),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            suspected: Mutex::default(),
            view: Mutex::default(),
        }))
    }

    #[test]
    fn what_is_refused_of_one_directory_is_shown_until_that_is_of_interest_no_more() {
        let (state, temp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directory = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
        let (one, other) = (directory("one"), directory("other"));
        let files = [format!("{one}/file"), format!("{other}/file")];
        for path in [&one, &other] {
            std::fs::create_dir(path).unwrap();
        }
        let mut watches = culprits(state.path());
        let plan = Arc::new(plan(&files.each_ref().map(String::as_str)));
        let ids = |paths: &[String]| paths.iter().map(|path| ResourceId::new("m", "file", path)).collect();
        let shows = |watches: &CulpritWatches, path: &str| {
            let view = super::super::lock(&watches.shared.view);
            view.culprits_problem.as_ref().is_some_and(|text| text.contains(path))
        };
        watches.follow(&ids(&files), &plan);
        let refused = UnwatchedWriters { why: UnknownCulprit::Refused, text: format!("not in {one}") };
        watches.directories.get_mut(&one).unwrap().watch = Err(refused);
        watches.replaced(&other);
        assert!(shows(&watches, &one), "another directory was replaced");
        watches.follow(&ids(&files[1..]), &plan);
        assert!(!shows(&watches, &one), "it is of interest no more");
    }
}
