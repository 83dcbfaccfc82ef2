//! The thread that waits for changes of directories, mounts and the host's name, and reads kernel
//! parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use converge::kinds::mount::KernelMount;
use converge::{DirectoryInterest, ResourceId, WatchPlan};
use host::{DirectoryEvents, PathEvent, PathWatch, PathWatchError, SpawnCompactly, WatchId};
use model::Timestamp;
use model::collect::CollectInserting;
use node::RepeatBackoff;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::culprits::CulpritWatches;
use super::unwatched::UnwatchedDirectories;
use super::{WatchShared, lock};

/// The most directories that are watched.
const MAX_DIRECTORIES: usize = 20_000;
/// How long events of one source are gathered before the next are read: what changes all the time wakes
/// nobody up more often.
const GATHER: Duration = Duration::from_millis(50);
/// The same for who writes, once a second has had [`CULPRITS_AT_ONCE`]: before, each event is heard at once.
/// What writes a file beside and renames it does both in a millisecond, and then ends.
const GATHER_CULPRITS: Duration = Duration::from_millis(50);
/// How often in a second the kernel is heard at once on who writes.
const CULPRITS_AT_ONCE: u32 = 100;
/// The longest wait before all directories are watched anew, when mounts change or events are lost again and
/// again.
const LONGEST_REWATCH: Duration = Duration::from_secs(30);
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
        parameters_due: None,
        rests: BTreeMap::new(),
        culprits_heard: HeardInSecond { began: Instant::now(), times: 0 },
        rewatch: RepeatBackoff::default(),
        unwatched: UnwatchedDirectories::default(),
        began: Instant::now(),
        culprits: CulpritWatches::new(shared.clone()),
        shared,
    };
    std::thread::Builder::new()
        .name("watch paths".to_owned())
        .spawn_compactly(move || watcher.run())
        .map(drop)
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
    /// When they are read next.
    parameters_due: Option<Instant>,
    culprits: CulpritWatches,
    /// Until when what was heard is not listened to.
    rests: BTreeMap<WakeSource, Instant>,
    culprits_heard: HeardInSecond,
    /// When all directories are watched anew.
    rewatch: RepeatBackoff,
    /// Directories that are there and not watched.
    unwatched: UnwatchedDirectories,
    began: Instant,
}

/// What wakes the thread up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WakeSource {
    /// Something else is to be watched.
    PlanChanged,
    Mounts,
    Name,
    Paths,
    Culprits,
}

impl WakeSource {
    /// How long it rests once it was heard.
    fn rest(self, culprits: &mut HeardInSecond, now: Instant) -> Duration {
        match self {
            WakeSource::PlanChanged => Duration::ZERO,
            WakeSource::Mounts | WakeSource::Name | WakeSource::Paths => GATHER,
            WakeSource::Culprits if culprits.once_more(now) <= CULPRITS_AT_ONCE => Duration::ZERO,
            WakeSource::Culprits => GATHER_CULPRITS,
        }
    }
}

/// How often something was heard in the second that began then.
struct HeardInSecond {
    began: Instant,
    times: u32,
}

impl HeardInSecond {
    /// It is heard now; how often that was in this second.
    fn once_more(&mut self, now: Instant) -> u32 {
        if now.duration_since(self.began) >= Duration::from_secs(1) {
            *self = HeardInSecond { began: now, times: 0 };
        }
        self.times += 1;
        self.times
    }
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
            self.take_desired();
            let mut suspects = BTreeSet::new();
            // Who wrote is asked first: the process may end at any moment.
            if woken.contains(&WakeSource::Culprits) {
                self.culprits.drain();
            }
            if woken.contains(&WakeSource::Paths) {
                self.take_events(&mut suspects);
            }
            if woken.contains(&WakeSource::Mounts) {
                self.plan.of_mounts(&mut suspects);
                self.rewatch.request(self.now(), LONGEST_REWATCH);
            }
            if woken.contains(&WakeSource::Name) {
                self.plan.of_name(&mut suspects);
            }
            if self.rewatch.due().is_some_and(|due| due <= self.now()) {
                self.rewatch.done();
                self.watch_all(&mut suspects);
            }
            if self.parameters_due.is_some_and(|due| due <= Instant::now()) {
                self.read_parameters(&mut suspects);
            }
            self.shared.suspect(suspects);
        }
    }

    /// The time since the thread began, which no clock sets back.
    fn now(&self) -> Timestamp {
        Timestamp::default().plus(self.began.elapsed())
    }

    /// Waits for something to be heard of that does not rest, or the time to do what is due.
    fn wait(&mut self) -> io::Result<BTreeSet<WakeSource>> {
        let now = Instant::now();
        self.rests.retain(|_, until| *until > now);
        let rewatch = self.rewatch.due().map(|due| due.since(self.now()));
        let waits = self.rests.values().chain(&self.parameters_due).map(|at| at.duration_since(now));
        let limit = waits.chain(rewatch).min().map(timespec);
        let mut fds = vec![(WakeSource::PlanChanged, PollFd::new(&self.shared.wake, PollFlags::IN))];
        // Readable they are always; what they tell is an exception.
        fds.extend(self.mounts.iter().map(|file| (WakeSource::Mounts, PollFd::new(file, PollFlags::PRI))));
        fds.extend(self.name.iter().map(|file| (WakeSource::Name, PollFd::new(file, PollFlags::PRI))));
        fds.extend(self.watch.iter().map(|watch| (WakeSource::Paths, PollFd::new(watch, PollFlags::IN))));
        let writers = self.culprits.descriptors();
        let writers = writers.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        fds.extend(writers.map(|fd| (WakeSource::Culprits, fd)));
        fds.retain(|(source, _)| !self.rests.contains_key(source));
        let (sources, mut fds): (Vec<WakeSource>, Vec<PollFd<'_>>) = fds.into_iter().unzip();
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(BTreeSet::new()),
            Err(errno) => return Err(errno.into()),
        }
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        let woken: BTreeSet<WakeSource> = ready.map(|(source, _)| *source).collect_inserting();
        let now = Instant::now();
        let heard = &mut self.culprits_heard;
        self.rests.extend(woken.iter().map(|source| (*source, now + source.rest(heard, now))));
        Ok(woken)
    }

    /// Takes over what is to be watched now.
    fn take_desired(&mut self) {
        let mut counter = [0; 8];
        if rustix::io::read(&self.shared.wake, &mut counter).is_err() {
            return;
        }
        let (plan, established, culprits) = {
            let mut next = lock(&self.shared.desired);
            (next.plan.clone(), next.established.take(), next.culprits.clone())
        };
        if !Arc::ptr_eq(&plan, &self.plan) {
            self.establish(plan, established);
        } else if let Some(established) = established {
            let mut suspects = BTreeSet::new();
            self.watch_all(&mut suspects);
            // Who waits looks at everything next.
            if established.send(()).is_err() {
                self.shared.suspect(suspects);
            }
        }
        self.culprits.follow(&culprits, &self.plan);
    }

    fn establish(&mut self, plan: Arc<WatchPlan>, established: Option<Sender<()>>) {
        let before = std::mem::replace(&mut self.plan, plan);
        let keep = self.shared.host.rooted();
        self.mounts = self.polled(MOUNTS, !keep && !self.plan.is_empty());
        self.name = self.polled(NAME, !keep && self.plan.watches_name());
        self.parameters.retain(|path, _| self.plan.parameters().any(|known| known == path));
        let mut suspects = BTreeSet::new();
        if !keep {
            let new: Vec<String> = self.plan.parameters().map(str::to_owned).collect();
            for path in new {
                self.parameters.entry(path).or_insert(None);
            }
            self.read_parameters(&mut suspects);
        }
        // A watch is only widened: one that is of less interest than it was is made anew.
        let lost_interest = |path: &str| match (before.interest(path), self.plan.interest(path)) {
            (_, None) => true,
            (Some(DirectoryInterest::Contents), Some(DirectoryInterest::Entries)) => true,
            (_, Some(_)) => false,
        };
        let gone: Vec<String> = self.by_path.keys().filter(|path| lost_interest(path)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
        self.watch_all(&mut suspects);
        // Who waits looks at everything next; else it is looked at once more.
        if established.is_none_or(|established| established.send(()).is_err()) {
            self.shared.suspect(self.plan.resources().collect_inserting());
        }
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (plan, parameters) = (&self.plan, self.parameters.len());
        self.shared.show(|view| {
            view.resources = count(plan.len());
            view.units = count(plan.units().count());
            view.parameters = count(parameters);
        });
    }

    fn polled(&self, path: &str, wanted: bool) -> Option<File> {
        wanted.then(|| File::open(path).ok()).flatten()
    }

    /// Watches every directory of the plan that is there, as far as it is not watched.
    fn watch_all(&mut self, suspects: &mut BTreeSet<ResourceId>) {
        let plan = self.plan.clone();
        self.unwatched = UnwatchedDirectories::default();
        if self.watch.is_none() && !plan.is_empty() {
            match PathWatch::open() {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => self.unwatched.explain(&error),
            }
        }
        let mounts = self.shared.kinds.mounts_that_may_hang();
        for (path, interest) in plan.directories() {
            self.watch_directory(path, interest, &mounts, suspects);
        }
        self.show_directories();
    }

    /// Watches a directory and those of the plan below it anew: another one may be at its path.
    fn watch_tree(&mut self, path: &str, suspects: &mut BTreeSet<ResourceId>) {
        let plan = self.plan.clone();
        plan.of_tree(path, suspects);
        let mounts = self.shared.kinds.mounts_that_may_hang();
        for path in plan.tree(path) {
            if let Some(interest) = plan.interest(path) {
                self.watch_directory(path, interest, &mounts, suspects);
            }
        }
        self.show_directories();
    }

    fn show_directories(&self) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (watched, unwatched) = (count(self.watches.len()), &self.unwatched);
        self.shared.show(|view| {
            (view.directories, view.unwatched) = (watched, count(unwatched.paths.len()));
            (view.limit, view.problem) = (unwatched.limit.clone(), unwatched.problem.clone());
        });
    }

    fn watch_directory(
        &mut self,
        path: &str,
        interest: DirectoryInterest,
        mounts: &[KernelMount],
        suspects: &mut BTreeSet<ResourceId>,
    ) {
        let Some(watch) = &self.watch else { return self.unwatched.add(path) };
        // Opening a directory there may never end, and every other one would be watched no more.
        if self.shared.kinds.mount_of_directory(mounts, path).is_some() {
            let why = format!("{path} is on a file system of another machine, or of a program");
            self.unwatched.add_for(path, why);
            return self.forget(path);
        }
        if self.watches.len() >= MAX_DIRECTORIES && !self.by_path.contains_key(path) {
            let why = format!("the agent watches at most {MAX_DIRECTORIES} directories");
            return self.unwatched.add_for(path, why);
        }
        let events = match interest {
            DirectoryInterest::Contents => DirectoryEvents::Written,
            DirectoryInterest::Entries => DirectoryEvents::Entries,
        };
        let opened = self.shared.host.directory_to_watch(path);
        match opened.and_then(|directory| watch.add(&directory, events)) {
            Ok(id) => {
                self.unwatched.remove(path);
                if self.by_path.get(path) == Some(&id) {
                    return;
                }
                // Another directory than before, or a new one: what is in it was not seen to come.
                self.forget(path);
                self.watches.entry(id).or_default().insert(path.to_owned());
                self.by_path.insert(path.to_owned(), id);
                self.culprits.replaced(path);
                self.plan.of_tree(path, suspects);
            }
            // When it comes, the directory above tells.
            Err(PathWatchError::NoDirectory) => {
                self.unwatched.remove(path);
                self.forget(path);
            }
            Err(error) => {
                self.unwatched.explain(&error);
                self.unwatched.add(path);
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

    fn take_events(&mut self, suspects: &mut BTreeSet<ResourceId>) {
        let mut events = BTreeSet::new();
        let mut overflow = false;
        let Some(watch) = &self.watch else { return };
        let drained = watch.drain(|event| match event {
            PathEvent::Overflow => overflow = true,
            PathEvent::Changed(id, name) => drop(events.insert((id, Some(name), false))),
            PathEvent::Created(id, name) | PathEvent::Replaced(id, name) => {
                events.insert((id, Some(name), true));
            }
            PathEvent::DirectoryRemoved(id) => drop(events.insert((id, None, true))),
        });
        if overflow || drained.is_err() {
            // Directories that were replaced without an event are watched anew.
            self.rewatch.request(self.now(), LONGEST_REWATCH);
            self.shared.suspect_after_loss(self.plan.resources().collect_inserting());
        }
        let plan = self.plan.clone();
        for (id, name, replaced) in events {
            let paths: Vec<String> = self.watches.get(&id).into_iter().flatten().cloned().collect();
            for path in paths {
                let Some(name) = &name else {
                    self.forget(&path);
                    self.watch_tree(&path, suspects);
                    continue;
                };
                plan.of_entry(&path, name, suspects);
                let entry = format!("{path}/{name}");
                if replaced && plan.interest(&entry).is_some() {
                    self.watch_tree(&entry, suspects);
                }
            }
        }
    }

    /// Looks at the kernel's parameters; what is another value than before may have been changed.
    fn read_parameters(&mut self, suspects: &mut BTreeSet<ResourceId>) {
        self.parameters_due = (!self.parameters.is_empty()).then(|| Instant::now() + READ_PARAMETERS);
        for (path, before) in &mut self.parameters {
            let now = std::fs::read(path).ok();
            if *before != now {
                *before = now;
                self.plan.of_parameter(path, suspects);
            }
        }
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}
