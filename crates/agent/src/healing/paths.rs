//! The thread that waits for changes of directories, mounts and the host's name, and reads kernel
//! parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use converge::kinds::mount::{self, KernelMount};
use converge::{DirectoryInterest, ResourceId, WatchPlan};
use host::{DirectoryEvents, PathEvent, PathWatch, PathWatchError, WatchId};
use model::collect::CollectInserting;
use node::ScanCause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::culprits::CulpritWatches;
use super::{WatchShared, lock};
use crate::render::chain;

/// The most directories that are watched.
const MAX_DIRECTORIES: usize = 20_000;
/// How long events are gathered before the next are read: a file that is written all the time wakes nobody
/// up more often.
const GATHER: Duration = Duration::from_millis(50);
/// How often kernel parameters are read, where some are declared: the kernel tells nothing of them.
const READ_PARAMETERS: Duration = Duration::from_millis(1500);
/// What tells of mounts and of the host's name when it is polled.
const MOUNTS: &str = "/proc/self/mountinfo";
const NAME: &str = "/proc/sys/kernel/hostname";

pub(super) fn start(shared: Arc<WatchShared>) -> io::Result<()> {
    let watcher = PathWatcher {
        plan: Arc::default(),
        watch: None,
        watches: BTreeMap::new(),
        by_path: BTreeMap::new(),
        mounts: None,
        name: None,
        parameters: BTreeMap::new(),
        culprits: CulpritWatches::new(shared.clone()),
        shared,
    };
    std::thread::Builder::new().name("watch paths".to_owned()).spawn(move || watcher.run()).map(drop)
}

struct PathWatcher {
    shared: Arc<WatchShared>,
    plan: Arc<WatchPlan>,
    watch: Option<PathWatch>,
    /// A directory may be watched for several paths: links lead to it.
    watches: BTreeMap<WatchId, BTreeSet<String>>,
    by_path: BTreeMap<String, WatchId>,
    mounts: Option<File>,
    name: Option<File>,
    /// Kernel parameters, as they were read last.
    parameters: BTreeMap<String, Option<Vec<u8>>>,
    culprits: CulpritWatches,
}

/// What woke the thread up.
#[derive(Default)]
struct Woken {
    paths: bool,
    mounts: bool,
    name: bool,
    culprits: bool,
}

impl PathWatcher {
    fn run(mut self) {
        loop {
            let woken = match self.wait() {
                Ok(woken) => woken,
                Err(error) => {
                    let why = format!("the agent cannot wait for events: {error}");
                    self.shared.show(|view| view.problem = Some(why));
                    // The interval is what is left.
                    return;
                }
            };
            self.take_wanted();
            let mut touched = BTreeSet::new();
            let mut scan = None;
            // Who wrote is asked first: the process may end at any moment.
            if woken.culprits {
                self.culprits.drain();
            }
            if woken.paths {
                scan = self.take_events(&mut touched);
            }
            if woken.mounts {
                self.plan.of_mounts(&mut touched);
                self.watch_all(&mut touched);
            }
            if woken.name {
                self.plan.of_name(&mut touched);
            }
            self.read_parameters(&mut touched);
            self.shared.touch(touched, scan);
            if woken.paths {
                self.rest();
            }
        }
    }

    /// Waits for a descriptor or the time to read parameters.
    fn wait(&self) -> io::Result<Woken> {
        let limit = (!self.parameters.is_empty()).then_some(READ_PARAMETERS);
        let limit = limit.map(timespec);
        let culprits = self.culprits.descriptors();
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        // Readable they are always; what they tell is an exception.
        let files = [&self.mounts, &self.name].map(Option::as_ref);
        let told: Vec<_> = files.iter().flatten().map(|file| PollFd::new(*file, PollFlags::PRI)).collect();
        let watches: Vec<_> = self.watch.iter().map(|watch| PollFd::new(watch, PollFlags::IN)).collect();
        let (files_at, watches_at) = (fds.len(), fds.len() + told.len());
        let culprits_at = watches_at + watches.len();
        fds.extend(told);
        fds.extend(watches);
        fds.extend(culprits.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::default()),
            Err(errno) => return Err(errno.into()),
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let mounts_at = self.mounts.is_some().then_some(files_at);
        let name_at = self.name.is_some().then(|| files_at + usize::from(self.mounts.is_some()));
        Ok(Woken {
            mounts: mounts_at.is_some_and(ready),
            name: name_at.is_some_and(ready),
            paths: self.watch.is_some() && ready(watches_at),
            culprits: (culprits_at..fds.len()).any(ready),
        })
    }

    /// Lets events gather, unless there is something else to watch or somebody to name.
    fn rest(&self) {
        let culprits = self.culprits.descriptors();
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        fds.extend(culprits.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        // Whatever it came to, the next wait looks again.
        let _ = poll(&mut fds, Some(&timespec(GATHER)));
    }

    /// Takes over what is to be watched now.
    fn take_wanted(&mut self) {
        let mut counter = [0; 8];
        if rustix::io::read(&self.shared.wake, &mut counter).is_err() {
            return;
        }
        let (plan, established, culprits) = {
            let mut wanted = lock(&self.shared.wanted);
            (wanted.plan.clone(), wanted.established.take(), wanted.culprits.clone())
        };
        if !Arc::ptr_eq(&plan, &self.plan) {
            self.establish(plan, established);
        }
        self.culprits.follow(&culprits, &self.plan);
    }

    fn establish(&mut self, plan: Arc<WatchPlan>, established: Option<Sender<()>>) {
        let before = std::mem::replace(&mut self.plan, plan);
        let keep = self.shared.host.rooted();
        self.mounts = self.polled(MOUNTS, !keep && !self.plan.resources().is_empty());
        self.name = self.polled(NAME, !keep && self.plan.watches_name());
        self.parameters.retain(|path, _| self.plan.parameters().any(|wanted| wanted == path));
        let mut touched = BTreeSet::new();
        if !keep {
            let new: Vec<String> = self.plan.parameters().map(str::to_owned).collect();
            for path in new {
                self.parameters.entry(path).or_insert(None);
            }
            self.read_parameters(&mut touched);
        }
        // A watch is only widened: one that is of less interest than it was is made anew.
        let lost_interest = |path: &str| match (before.interest(path), self.plan.interest(path)) {
            (_, None) => true,
            (Some(DirectoryInterest::Contents), Some(DirectoryInterest::Entries)) => true,
            (_, Some(_)) => false,
        };
        let gone: Vec<String> = self.by_path.keys().filter(|path| lost_interest(path)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
        self.watch_all(&mut touched);
        // Who waits looks at everything next; else it is looked at once more.
        if established.is_none_or(|established| established.send(()).is_err()) {
            self.shared.touch(self.plan.resources().iter().cloned().collect_inserting(), None);
        }
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (plan, parameters) = (&self.plan, self.parameters.len());
        self.shared.show(|view| {
            view.resources = count(plan.resources().len());
            view.units = count(plan.units().count());
            view.parameters = count(parameters);
        });
    }

    fn polled(&self, path: &str, wanted: bool) -> Option<File> {
        wanted.then(|| File::open(path).ok()).flatten()
    }

    /// Watches every directory of the plan that is there, as far as it is not watched.
    fn watch_all(&mut self, touched: &mut BTreeSet<ResourceId>) {
        let plan = self.plan.clone();
        let mut failed = FailedWatches::default();
        if self.watch.is_none() && !plan.resources().is_empty() {
            match PathWatch::open() {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => failed.note(&error),
            }
        }
        let mounts = self.remote_mounts();
        for (path, interest) in plan.directories() {
            self.watch_directory(path, interest, &mounts, touched, &mut failed);
        }
        let watched = self.watches.len();
        self.shared.show(|view| {
            view.directories = u32::try_from(watched).unwrap_or(u32::MAX);
            (view.unwatched, view.limit, view.problem) = (failed.count, failed.limit, failed.problem);
        });
    }

    /// Watches a directory and those of the plan below it anew: another one may be at its path.
    fn watch_tree(&mut self, path: &str, touched: &mut BTreeSet<ResourceId>) {
        let plan = self.plan.clone();
        plan.of_tree(path, touched);
        let mounts = self.remote_mounts();
        let mut failed = FailedWatches::default();
        for path in plan.tree(path) {
            if let Some(interest) = plan.interest(path) {
                self.watch_directory(path, interest, &mounts, touched, &mut failed);
            }
        }
        let watched = self.watches.len();
        self.shared.show(|view| {
            view.directories = u32::try_from(watched).unwrap_or(u32::MAX);
            view.unwatched += failed.count;
            view.limit = failed.limit.or(view.limit.take());
            view.problem = failed.problem.or(view.problem.take());
        });
    }

    fn watch_directory(
        &mut self,
        path: &str,
        interest: DirectoryInterest,
        mounts: &[KernelMount],
        touched: &mut BTreeSet<ResourceId>,
        failed: &mut FailedWatches,
    ) {
        let Some(watch) = &self.watch else { return failed.count += 1 };
        if mount::is_remote(mounts, path) {
            failed.count += 1;
            failed.problem = Some(format!("{path} is on a file system of another machine, or of a program"));
            return self.forget(path);
        }
        if self.watches.len() >= MAX_DIRECTORIES && !self.by_path.contains_key(path) {
            failed.count += 1;
            failed.problem = Some(format!("the agent watches at most {MAX_DIRECTORIES} directories"));
            return;
        }
        let told = match interest {
            DirectoryInterest::Contents => DirectoryEvents::Written,
            DirectoryInterest::Entries => DirectoryEvents::Entries,
        };
        let opened = self.shared.host.directory_to_watch(path);
        match opened.and_then(|directory| watch.add(&directory, told)) {
            Ok(id) if self.by_path.get(path) == Some(&id) => {}
            Ok(id) => {
                // Another directory than before, or a new one: what is in it was not seen to come.
                self.forget(path);
                self.watches.entry(id).or_default().insert(path.to_owned());
                self.by_path.insert(path.to_owned(), id);
                self.plan.of_tree(path, touched);
            }
            // When it comes, the directory above tells.
            Err(PathWatchError::Gone) => self.forget(path),
            Err(error) => {
                failed.note(&error);
                self.forget(path);
            }
        }
    }

    fn forget(&mut self, path: &str) {
        let Some(id) = self.by_path.remove(path) else { return };
        let Some(paths) = self.watches.get_mut(&id) else { return };
        paths.remove(path);
        if paths.is_empty() {
            self.watches.remove(&id);
            if let Some(watch) = &self.watch {
                watch.remove(id);
            }
        }
    }

    /// File systems that may not answer: they are not looked at, and tell nothing of other machines.
    fn remote_mounts(&self) -> Vec<KernelMount> {
        if self.shared.host.rooted() {
            return Vec::new();
        }
        std::fs::read_to_string(MOUNTS).map(|text| mount::kernel_mounts(&text)).unwrap_or_default()
    }

    fn take_events(&mut self, touched: &mut BTreeSet<ResourceId>) -> Option<ScanCause> {
        let mut events = BTreeSet::new();
        let mut overflow = false;
        let Some(watch) = &self.watch else { return None };
        let drained = watch.drain(|event| match event {
            PathEvent::Overflow => overflow = true,
            PathEvent::Changed(id, name) => drop(events.insert((id, Some(name), false))),
            PathEvent::Replaced(id, name) => drop(events.insert((id, Some(name), true))),
            PathEvent::Gone(id) => drop(events.insert((id, None, true))),
        });
        if overflow || drained.is_err() {
            self.watch_all(touched);
            touched.extend(self.plan.resources().iter().cloned());
            return Some(ScanCause::Overflow);
        }
        let plan = self.plan.clone();
        for (id, name, replaced) in events {
            let paths: Vec<String> = self.watches.get(&id).into_iter().flatten().cloned().collect();
            for path in paths {
                let Some(name) = &name else {
                    self.forget(&path);
                    self.watch_tree(&path, touched);
                    continue;
                };
                plan.of_entry(&path, name, touched);
                let entry = format!("{path}/{name}");
                if replaced && plan.interest(&entry).is_some() {
                    self.watch_tree(&entry, touched);
                }
            }
        }
        None
    }

    /// Looks at the kernel's parameters; what is another value than before may have been changed.
    fn read_parameters(&mut self, touched: &mut BTreeSet<ResourceId>) {
        for (path, before) in &mut self.parameters {
            let now = std::fs::read(path).ok();
            if *before != now {
                *before = now;
                self.plan.of_parameter(path, touched);
            }
        }
    }
}

/// Directories that could not be watched.
#[derive(Default)]
struct FailedWatches {
    count: u32,
    limit: Option<String>,
    problem: Option<String>,
}

impl FailedWatches {
    fn note(&mut self, error: &PathWatchError) {
        self.count += 1;
        match error {
            PathWatchError::Limit(limit) => self.limit = Some(limit.parameter().to_owned()),
            other => self.problem = Some(chain(other)),
        }
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}
