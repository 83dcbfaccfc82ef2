//! Traits: what a node observes of itself (TRT-1).
//!
//! Collectors run side by side, each with a time limit; what was seen counts until its
//! time to live is over. A collector that fails or hangs costs its own group at most:
//! the last good observation goes on counting, and the failure is reported.

mod external;
mod machine;
mod network;
mod observe;
mod software;
mod storage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use host::{Host, SpawnCompactly};
use lang::Value;
use model::Timestamp;
use model::collect::CollectInserting;

/// Traits that change by themselves, by group and name. They are not compared and not sent on their own
/// account: only other changes make traits travel.
pub const VOLATILE: &[[&str; 2]] =
    &[["uptime", "seconds"], ["load", "one"], ["load", "five"], ["load", "fifteen"]];
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long all programs of external facts may take together.
const EXTERNAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The stack of a collector's thread, in bytes.
const STACK: usize = 256 * 1024;

pub use external::{EXTERNAL, MAX_EXTERNAL};

/// What one collector observes, by name below its group.
pub type TraitGroup = BTreeMap<String, Value>;

/// Looks at a host, or says why it cannot.
pub type Observe = Arc<dyn Fn(&Host) -> Result<TraitGroup, ObserveFailure> + Send + Sync>;

/// Why a collector could not observe all of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserveFailure {
    /// For people.
    pub why: String,
    /// What it could observe; `None` leaves what was observed before.
    pub rest: Option<TraitGroup>,
}

impl<T: Into<String>> From<T> for ObserveFailure {
    fn from(why: T) -> ObserveFailure {
        ObserveFailure { why: why.into(), rest: None }
    }
}

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// A map of groups, each a map.
    pub traits: Value,
    /// Collectors that failed, and why.
    pub failures: BTreeMap<&'static str, String>,
}

/// Observes everything once, as an agent of this version.
pub fn collect(host: &Arc<Host>, version: &str, now: Timestamp) -> Collected {
    Collectors::new(version).collect(host, now)
}

/// The traits without the [`VOLATILE`] ones: what is compared and hashed.
pub fn stable(traits: &Value) -> Value {
    let mut traits = traits.clone();
    for [group, name] in VOLATILE {
        if let Value::Map(groups) = &mut traits
            && let Some(Value::Map(group)) = groups.get_mut(*group)
        {
            group.remove(*name);
        }
    }
    traits
}

/// One source of traits.
#[derive(Clone)]
pub struct Collector {
    /// The group that it fills.
    pub name: &'static str,
    /// How long an observation counts.
    pub ttl: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// Looks.
    pub observe: Observe,
}

/// All collectors, and what they last saw.
pub struct Collectors {
    collectors: Vec<CachedCollector>,
}

/// A collector and its last good observation.
struct CachedCollector {
    collector: Collector,
    /// How long `seen` counts.
    ttl: Duration,
    seen: Option<(Timestamp, TraitGroup)>,
    /// Its thread is still running, perhaps from an earlier call: no second one is started.
    busy: Arc<AtomicBool>,
}

impl Collectors {
    /// The collectors of this version, and the agent's, which is of this version.
    pub fn new(version: &str) -> Collectors {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        fn collector(
            name: &'static str,
            ttl: Duration,
            observe: impl Fn(&Host) -> Result<TraitGroup, String> + Send + Sync + 'static,
        ) -> Collector {
            let observe = Arc::new(move |host: &Host| observe(host).map_err(ObserveFailure::from));
            Collector { name, ttl, timeout: TIMEOUT, observe }
        }
        let version = version.to_owned();
        Collectors::with(vec![
            collector("os", minutes(5), observe::os),
            collector("hardware", minutes(60), observe::hardware),
            collector("cpu", minutes(60), observe::cpu),
            collector("memory", minutes(5), observe::memory),
            collector("kernel", minutes(1), machine::kernel),
            collector("virtualization", minutes(60), machine::virtualization),
            collector("cloud", minutes(60), machine::cloud),
            collector("disks", minutes(5), storage::disks),
            collector("mounts", minutes(1), storage::mounts),
            collector("network", minutes(1), network::observe),
            collector("listeners", minutes(1), software::listeners),
            collector("packages", minutes(5), software::packages),
            collector("services", minutes(5), software::services),
            collector("users", minutes(5), software::users),
            collector("certificates", minutes(60), software::certificates),
            collector("load", Duration::ZERO, machine::load),
            collector("uptime", Duration::ZERO, observe::uptime),
            collector("time", minutes(5), observe::time),
            Collector {
                name: catalog::traits::EXTERNAL,
                ttl: minutes(5),
                timeout: EXTERNAL_TIMEOUT,
                observe: Arc::new(external::observe),
            },
            collector("agent", minutes(60), move |host: &Host| Ok(observe::agent(host, &version))),
        ])
    }

    /// Other collectors, for tests and tools.
    pub fn with(collectors: Vec<Collector>) -> Collectors {
        let kept = |collector: Collector| CachedCollector {
            ttl: collector.ttl,
            collector,
            seen: None,
            busy: Arc::default(),
        };
        Collectors { collectors: collectors.into_iter().map(kept).collect() }
    }

    /// Sets how long what a collector observed counts, in seconds by group; a group that is not named
    /// has its own time again.
    pub fn set_ttls(&mut self, secs: &BTreeMap<String, u64>) {
        for kept in &mut self.collectors {
            let set = secs.get(kept.collector.name).copied().map(Duration::from_secs);
            kept.ttl = set.unwrap_or(kept.collector.ttl);
        }
    }

    /// What the host is at `now`: what is too old is observed anew, all at once.
    pub fn collect(&mut self, host: &Arc<Host>, now: Timestamp) -> Collected {
        let names: Vec<&'static str> = self.collectors.iter().map(|kept| kept.collector.name).collect();
        let (mut failures, mut waiting) = (BTreeMap::new(), BTreeMap::new());
        let (results, incoming) = mpsc::channel();
        for (index, kept) in self.collectors.iter().enumerate().filter(|(_, kept)| !kept.is_fresh(now)) {
            match kept.start(index, host, results.clone()) {
                Ok(deadline) => drop(waiting.insert(index, deadline)),
                Err(why) => drop(failures.insert(names[index], why)),
            }
        }
        drop(results);
        while let Some(deadline) = waiting.values().min().copied() {
            match incoming.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((index, result)) => {
                    waiting.remove(&index);
                    match result {
                        Ok(group) => self.collectors[index].seen = Some((now, group)),
                        Err(ObserveFailure { why, rest }) => {
                            failures.insert(names[index], why);
                            if let Some(rest) = rest {
                                self.collectors[index].seen = Some((now, rest));
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let late = waiting.extract_if(.., |_, deadline| *deadline <= Instant::now());
                    failures.extend(late.map(|(index, _)| (names[index], "took too long".to_owned())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let died = std::mem::take(&mut waiting).into_keys();
                    failures.extend(died.map(|index| (names[index], "ended without an answer".to_owned())));
                }
            }
        }
        let groups = self.collectors.iter().filter_map(|kept| {
            let (_, group) = kept.seen.as_ref()?;
            Some((kept.collector.name.to_owned(), Value::Map(group.clone())))
        });
        Collected { traits: Value::Map(groups.collect_inserting()), failures }
    }
}

impl CachedCollector {
    fn is_fresh(&self, now: Timestamp) -> bool {
        // A clock that was set back must not keep an observation for ever.
        self.seen.as_ref().is_some_and(|(at, _)| now >= *at && now.since(*at) < self.ttl)
    }

    /// Starts the collector; gives the instant until which to wait for it.
    fn start(
        &self,
        index: usize,
        host: &Arc<Host>,
        results: Sender<(usize, Result<TraitGroup, ObserveFailure>)>,
    ) -> Result<Instant, String> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err("is still busy from before".to_owned());
        }
        let (host, observe) = (Arc::clone(host), Arc::clone(&self.collector.observe));
        let idle = Idle(Arc::clone(&self.busy));
        std::thread::Builder::new()
            .name(format!("traits-{}", self.collector.name))
            .stack_size(STACK)
            .spawn_compactly(move || {
                let result = observe(&host);
                drop(idle);
                // Nobody listens any more once the time is over.
                let _ = results.send((index, result));
            })
            .map_err(|error| format!("cannot be started: {error}"))?;
        Ok(Instant::now() + self.collector.timeout)
    }
}

/// Marks a collector idle, also when its thread dies.
struct Idle(Arc<AtomicBool>);

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
