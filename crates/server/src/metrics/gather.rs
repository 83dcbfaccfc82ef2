//! The text that a scraper gets, and how the control plane is.

use model::replication::TransportKind;
use std::collections::BTreeMap;

use http::StatusCode;
use prometheus_client::encoding::text::encode;

use rollout::{NodeRolloutState, RolloutState};

use super::Metrics;
use crate::answer::{PortReply, reply};
use crate::hub::FleetSyncTotals;
use crate::rollouts::views::RolloutTotals;
use crate::state::ControlPlane;

/// What Prometheus reads (OpenMetrics 1.0).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The states of a task, as the series of `muster_tasks` name them.
const STATES: [&str; 4] = ["planned", "running", "halting", "cancelling"];

impl Metrics {
    fn show(&self, what: &'static str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.now.get_or_create(&[("what", what)]).set(value);
    }

    fn show_rollouts(&self, totals: &RolloutTotals) {
        for state in RolloutState::ALL {
            let gauge = self.rollouts.get_or_create(&[("state", rollout_word(state))]);
            gauge.set(totals.rollouts.get(&state).copied().unwrap_or(0));
        }
        for state in NodeRolloutState::ALL {
            let gauge = self.rollout_nodes.get_or_create(&[("state", node_word(state))]);
            gauge.set(totals.nodes.get(&state).copied().unwrap_or(0));
        }
    }

    fn show_totals(&self, totals: &FleetSyncTotals) {
        self.show("queue_depth", totals.behind);
        self.show("queue_depth_most", totals.most_behind);
        self.show("nodes_behind", totals.nodes_behind);
        self.show("nodes_out_of_sync", totals.out_of_sync);
        self.show("objects_down", totals.down);
        self.show("objects_up", totals.up);
        for transport in TransportKind::ALL {
            let count = totals.links.get(&transport).copied().unwrap_or(0);
            let gauge = self.links.get_or_create(&[("transport", transport.as_str())]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

fn rollout_word(state: RolloutState) -> &'static str {
    match state {
        RolloutState::Opening => "opening",
        RolloutState::Active => "active",
        RolloutState::Converging => "converging",
        RolloutState::Terminal => "terminal",
        RolloutState::Reverted => "reverted",
        RolloutState::Failed => "failed",
        RolloutState::Superseded => "superseded",
        RolloutState::Pruned => "pruned",
    }
}

fn node_word(state: NodeRolloutState) -> &'static str {
    match state {
        NodeRolloutState::Pending => "pending",
        NodeRolloutState::Activating => "activating",
        NodeRolloutState::Soaking => "soaking",
        NodeRolloutState::Converged => "converged",
        NodeRolloutState::Deferred => "deferred",
        NodeRolloutState::Failed => "failed",
        NodeRolloutState::Reverted => "reverted",
    }
}

/// What a scraper asks for with `GET`; `None` for any other path.
pub(crate) fn answer(plane: &ControlPlane, path: &str) -> Option<PortReply> {
    match path {
        "/metrics" => Some(text(plane)),
        "/healthz" => Some(plain(StatusCode::OK, "ok\n".to_owned())),
        "/readyz" => Some(ready(plane)),
        _ => None,
    }
}

fn text(plane: &ControlPlane) -> PortReply {
    let metrics = &plane.metrics;
    metrics.show_totals(&plane.hub.sync_index().totals());
    let health = plane.store.health();
    metrics.show("store_queue", health.queue_depth as u64);
    metrics.show("store_writable", u64::from(health.writable));
    metrics.show("ready", u64::from(plane.not_ready().is_none()));
    metrics.show("nodes", plane.index.len() as u64);
    metrics.show("workflows", plane.work.open_workflows() as u64);
    let mut states: BTreeMap<&str, i64> = BTreeMap::new();
    for state in plane.work.states() {
        *states.entry(state).or_default() += 1;
    }
    for state in STATES {
        let gauge = metrics.tasks.get_or_create(&[("state", state)]);
        gauge.set(states.get(state).copied().unwrap_or(0));
    }
    if let Some(totals) = plane.rollouts.totals() {
        metrics.show_rollouts(&totals);
    }
    let mut text = String::new();
    match encode(&mut text, &metrics.registry) {
        Ok(()) => reply(StatusCode::OK, OPENMETRICS, None, text.into()),
        // Writing to a text does not fail.
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n".to_owned()),
    }
}

/// The signed artifacts are loaded and the store can be written (WIR-4).
fn ready(plane: &ControlPlane) -> PortReply {
    if let Some(why) = plane.not_ready() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    }
    match plane.store.health() {
        health if health.writable => plain(StatusCode::OK, "ready\n".to_owned()),
        health => {
            let why = health.last_error.unwrap_or_default();
            plain(StatusCode::SERVICE_UNAVAILABLE, format!("the store cannot be written: {why}\n"))
        }
    }
}

pub(super) fn plain(status: StatusCode, text: String) -> PortReply {
    reply(status, "text/plain; charset=utf-8", None, text.into())
}
