//! Traits: what a node observes of itself (TRT-1).
//!
//! Collectors run side by side, each with a time limit; what was seen counts until its
//! time to live is over. A collector that fails or hangs costs its own group at most:
//! the last good observation goes on counting, and the failure is reported.

mod network;
mod observe;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use host::Host;
use lang::Value;
use model::Timestamp;

/// Traits that change by themselves, by group and name. They are not compared and not sent on their own
/// account: only other changes make traits travel.
pub const VOLATILE: &[[&str; 2]] = &[["uptime", "seconds"]];
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The stack of a collector's thread, in bytes.
const STACK: usize = 256 * 1024;

/// What one collector observes, by name below its group.
pub type TraitGroup = BTreeMap<String, Value>;

/// Looks at a host, or says why it cannot.
pub type Observe = Arc<dyn Fn(&Host) -> Result<TraitGroup, String> + Send + Sync>;

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
    seen: Option<(Timestamp, TraitGroup)>,
    /// Its thread is still running, perhaps from an earlier call: no second one is started.
    busy: Arc<AtomicBool>,
}

impl Collectors {
    /// The collectors of this version: os, hardware, cpu, memory, network, uptime, time
    /// and the agent, which is of this version.
    pub fn new(version: &str) -> Collectors {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let collector = |name, ttl, observe| Collector { name, ttl, timeout: TIMEOUT, observe };
        let version = version.to_owned();
        Collectors::with(vec![
            collector("os", minutes(5), Arc::new(observe::os)),
            collector("hardware", minutes(60), Arc::new(observe::hardware)),
            collector("cpu", minutes(60), Arc::new(observe::cpu)),
            collector("memory", minutes(5), Arc::new(observe::memory)),
            collector("network", minutes(1), Arc::new(network::observe)),
            collector("uptime", Duration::ZERO, Arc::new(observe::uptime)),
            collector("time", minutes(5), Arc::new(observe::time)),
            collector("agent", minutes(60), Arc::new(move |host: &Host| Ok(observe::agent(host, &version)))),
        ])
    }

    /// Other collectors, for tests and tools.
    pub fn with(collectors: Vec<Collector>) -> Collectors {
        let kept = |collector| CachedCollector { collector, seen: None, busy: Arc::default() };
        Collectors { collectors: collectors.into_iter().map(kept).collect() }
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
                        Err(why) => drop(failures.insert(names[index], why)),
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
        Collected { traits: Value::Map(groups.collect()), failures }
    }
}

impl CachedCollector {
    fn is_fresh(&self, now: Timestamp) -> bool {
        // A clock that was set back must not keep an observation for ever.
        self.seen.as_ref().is_some_and(|(at, _)| now >= *at && now.since(*at) < self.collector.ttl)
    }

    /// Starts the collector; gives the instant until which to wait for it.
    fn start(
        &self,
        index: usize,
        host: &Arc<Host>,
        results: Sender<(usize, Result<TraitGroup, String>)>,
    ) -> Result<Instant, String> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err("is still busy from before".to_owned());
        }
        let (host, observe) = (Arc::clone(host), Arc::clone(&self.collector.observe));
        let idle = Idle(Arc::clone(&self.busy));
        std::thread::Builder::new()
            .name(format!("traits-{}", self.collector.name))
            .stack_size(STACK)
            .spawn(move || {
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
