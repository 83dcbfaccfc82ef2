//! Releases of a world, as a host is asked to activate them.

use std::time::Duration;

use ::model::Digest;
use activation::{
    ActivationOrder, Generation, GenerationId, HealthProbe, HealthProbeKind, HealthProbeMode, ProbeTopology,
};
use node::{RolloutPart, activation_terms};

use crate::model::node::HostOrder;

pub fn generation(seq: u64) -> Generation {
    Generation { id: GenerationId(Digest::of(&seq.to_be_bytes())), seq, bytes: 0 }
}

fn probe(name: &str, mode: HealthProbeMode) -> HealthProbe {
    HealthProbe {
        name: name.to_owned(),
        kind: HealthProbeKind::Tcp { address: "127.0.0.1:80".to_owned() },
        mode,
        grace: Duration::ZERO,
        sustained: Duration::from_secs(30),
        every: Duration::from_secs(20),
        timeout: Duration::from_secs(5),
    }
}

/// Of which rollout.
pub fn part(order: &HostOrder) -> RolloutPart {
    RolloutPart {
        rollout: order.rollout.clone(),
        seq: order.seq,
        root: generation(order.seq).id.0,
        soak_secs: order.soak.as_secs(),
        on_failure: order.terms.on_failure,
    }
}

/// What a host is to activate.
pub fn activation_order(order: &HostOrder) -> ActivationOrder {
    let probes = vec![probe("web", HealthProbeMode::Enforce), probe("eye", HealthProbeMode::Observe)];
    ActivationOrder {
        target: generation(order.seq),
        terms: activation_terms(&order.terms.confirm, order.terms.on_failure),
        probes: ProbeTopology::declare(probes).unwrap(),
    }
}
