//! [`Metrics`]: what the control plane counts and measures, for Prometheus (OPS-4).
//!
//! Nothing has a label of a node: whatever the size of the fleet, the number of series is a
//! constant.

pub(crate) mod gather;
pub(crate) mod listener;

use model::replication::TransportKind;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use sync::link::LinkCounters;

/// One label; both parts are words of this program, never of anybody else.
type MetricLabel = [(&'static str, &'static str); 1];
type MetricCounters = Family<MetricLabel, Counter>;
type Gauges = Family<MetricLabel, Gauge>;
type Histograms = Family<MetricLabel, Histogram, fn() -> Histogram>;

/// Buckets of latencies: 50 us to 26 s.
fn latencies() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}

/// Buckets of how long links live: 1 s to 12 days.
fn link_times() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 4.0, 11))
}

/// What becomes of events of rollouts. Each has its series from the start, as an alert on an increase misses the event
/// with which a series begins.
const ROLLOUT_OUTCOMES: [&str; 7] =
    ["taken", "duplicate", "refused", "replayed", "forged", "unknown-rollout", "unknown-node"];

/// Everything that is counted. Each method is one moment in the program.
pub(crate) struct Metrics {
    registry: Registry,
    links_opened: MetricCounters,
    link_seconds: Histograms,
    reconnects: Counter,
    events_in: MetricCounters,
    events_out: MetricCounters,
    event_seconds: Histogram,
    propagation_seconds: Histogram,
    failures: MetricCounters,
    accepted: Counter,
    link_counts: MetricCounters,
    resyncs: MetricCounters,
    resync_seconds: Histogram,
    checkins: Counter,
    checkin_seconds: Histogram,
    facts: MetricCounters,
    task_nodes: MetricCounters,
    rollout_events: MetricCounters,
    rollout_halts: Counter,
    /// Looked up when somebody asks, as the two behind it.
    now: Gauges,
    links: Gauges,
    tasks: Gauges,
    rollouts: Gauges,
    rollout_nodes: Gauges,
}

/// Registers a metric, and gives it.
fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn counted<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registered(registry, name, help, M::default())
}

fn timed(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    registered(registry, name, help, latencies())
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("muster");
        let r = &mut registry;
        let link_seconds = Family::new_with_constructor(link_times as fn() -> Histogram);
        let metrics = Metrics {
            links_opened: counted(r, "links_opened", "Links that agents opened, by transport"),
            link_seconds: registered(r, "link_duration_seconds", "How long links lived", link_seconds),
            reconnects: counted(r, "reconnects", "Links that took the place of another"),
            events_in: counted(r, "events_received", "Frames received on links, by type"),
            events_out: counted(r, "events_sent", "Frames sent on links, by type"),
            event_seconds: timed(r, "event_seconds", "From taking a batch of events to its being durable"),
            propagation_seconds: timed(
                r,
                "propagation_seconds",
                "From acceptance at the source to durable at the destination",
            ),
            failures: counted(r, "failures", "Refused requests and frames, by code"),
            accepted: counted(r, "objects_accepted", "Changes of objects that operators made"),
            link_counts: counted(r, "link_counts", "What links counted, by what"),
            resyncs: counted(r, "resyncs", "Resyncs by how they went"),
            resync_seconds: timed(r, "resync_seconds", "How long resyncs took"),
            checkins: counted(r, "checkins", "Check-ins answered"),
            checkin_seconds: timed(r, "checkin_seconds", "Check-ins, long polls' waits left out"),
            facts: counted(r, "facts", "Facts accepted, by kind"),
            task_nodes: counted(r, "task_nodes_ended", "Nodes that tasks ended on, by outcome"),
            rollout_events: counted(r, "rollout_events", "Events of rollouts, by what became of them"),
            rollout_halts: counted(r, "rollout_halts", "Rollouts that stopped by a gate or an operator"),
            now: counted(r, "now", "How things stand, by what"),
            links: counted(r, "links", "Agents that have a link, by transport"),
            tasks: counted(r, "tasks", "Open tasks, by state"),
            rollouts: counted(r, "rollouts", "Rollouts that are kept, by state"),
            rollout_nodes: counted(r, "rollout_nodes", "Nodes of the channels' current rollouts, by state"),
            registry,
        };
        for outcome in ROLLOUT_OUTCOMES {
            drop(metrics.rollout_events.get_or_create(&[("outcome", outcome)]));
        }
        metrics
    }

    /// A link was opened; `again` when it took the place of another.
    pub(crate) fn link_opened(&self, transport: TransportKind, again: bool) {
        self.links_opened.get_or_create(&[("transport", transport.as_str())]).inc();
        if again {
            self.reconnects.inc();
        }
    }

    /// A link ended.
    pub(crate) fn link_closed(&self, transport: TransportKind, lived: Duration) {
        self.link_seconds.get_or_create(&[("transport", transport.as_str())]).observe(lived.as_secs_f64());
    }

    /// A batch of events was made durable.
    pub(crate) fn processed(&self, took: Duration) {
        self.event_seconds.observe(took.as_secs_f64());
    }

    /// A change reached its destination.
    pub(crate) fn propagated(&self, took: Duration) {
        self.propagation_seconds.observe(took.as_secs_f64());
    }

    /// A request or a frame was refused.
    pub(crate) fn failed(&self, code: &str) {
        // Codes are few; what is none of them is counted together.
        let mut codes = wire::Code::ALL.iter().map(|known| known.as_str()).chain(sync::refusal::ALL);
        let known = codes.find(|known| *known == code);
        self.failures.get_or_create(&[("code", known.unwrap_or("other"))]).inc();
    }

    /// Operators changed so many objects.
    pub(crate) fn accepted(&self, count: u64) {
        self.accepted.inc_by(count);
    }

    /// A link counted this, and `before` the last time.
    pub(crate) fn counted(&self, now: &LinkCounters, before: &LinkCounters) {
        type Of = fn(&LinkCounters) -> u64;
        let rows: [(&MetricCounters, &'static str, &'static str, Of); 12] = [
            (&self.events_out, "type", "event", |c| c.sent),
            (&self.events_out, "type", "processed", |c| c.acks_sent),
            (&self.events_in, "type", "event", |c| c.received),
            (&self.events_in, "type", "processed", |c| c.acks_received),
            (&self.link_counts, "what", "coalesced", |c| c.coalesced),
            (&self.link_counts, "what", "superseded", |c| c.superseded),
            (&self.link_counts, "what", "duplicate", |c| c.duplicates),
            (&self.link_counts, "what", "applied", |c| c.applied),
            (&self.link_counts, "what", "refused", |c| c.refused_here + c.refused_there),
            (&self.link_counts, "what", "resync_frames", |c| c.resync_frames),
            (&self.link_counts, "what", "resync_objects", |c| c.resync_objects),
            (&self.resyncs, "what", "started", |c| c.resyncs + c.resyncs_served),
        ];
        for (family, label, value, of) in rows {
            family.get_or_create(&[(label, value)]).inc_by(of(now).saturating_sub(of(before)));
        }
    }

    /// No permit for a resync at the time.
    pub(crate) fn resync_refused(&self) {
        self.resyncs.get_or_create(&[("what", "refused")]).inc();
    }

    /// A resync ended.
    pub(crate) fn resync_ended(&self, took: Duration) {
        self.resyncs.get_or_create(&[("what", "finished")]).inc();
        self.resync_seconds.observe(took.as_secs_f64());
    }

    /// A check-in was answered.
    pub(crate) fn checked_in(&self, took: Duration) {
        self.checkins.inc();
        self.checkin_seconds.observe(took.as_secs_f64());
    }

    /// A fact was accepted.
    pub(crate) fn fact(&self, kind: &'static str) {
        self.facts.get_or_create(&[("kind", kind)]).inc();
    }

    /// A node said something of a rollout.
    pub(crate) fn rollout_event(&self, outcome: &'static str) {
        self.rollout_events.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// A rollout starts nothing any more.
    pub(crate) fn rollout_halted(&self) {
        self.rollout_halts.inc();
    }

    /// A task ended on a node.
    pub(crate) fn task_node_ended(&self, outcome: &'static str) {
        self.task_nodes.get_or_create(&[("outcome", outcome)]).inc();
    }
}
