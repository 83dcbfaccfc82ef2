//! Releases of a world, as a host is asked to activate them.

use std::time::Duration;

use ::model::Digest;
use activation::{
    ActivationTerms, AfterConfirm, ContactRule, Generation, GenerationId, HealthProbe, HealthProbeKind,
    HealthProbeMode, ProbeTopology,
};
use node::{ActivationRequest, Adoption, RolloutPart};
use trust::rollout_terms::{OfflineConfirm, OnFailure};

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

/// What a host is asked for.
pub fn request(order: &HostOrder) -> ActivationRequest {
    let HostOrder { rollout, seq, soak, terms, .. } = order;
    let root = generation(*seq).id.0;
    let adoption = Adoption {
        header: serde_json::from_value(serde_json::json!({"payload": "e30=", "signatures": []})).unwrap(),
        digest: Digest::of(b"header"),
        channel: "stable".parse().unwrap(),
        seq: *seq,
        root,
        objects: Default::default(),
        floor: trust::Floor::default(),
        freshness: None,
        adopted_at: ::model::Timestamp::default(),
    };
    let (rollout, soak_secs, on_failure) = (rollout.clone(), soak.as_secs(), terms.on_failure);
    let part = RolloutPart { rollout, seq: *seq, root, soak_secs, on_failure };
    let terms = ActivationTerms {
        window: Duration::from_secs(terms.confirm.window_secs),
        tries: terms.confirm.tries,
        contact: match terms.confirm.offline {
            OfflineConfirm::Return => ContactRule::Required,
            OfflineConfirm::Confirm => ContactRule::ProbesAlone,
        },
        after_confirm: match on_failure {
            OnFailure::Halt => AfterConfirm::Stay,
            OnFailure::Rollback => AfterConfirm::Return,
        },
        ..ActivationTerms::default()
    };
    let probes = vec![probe("web", HealthProbeMode::Enforce), probe("eye", HealthProbeMode::Observe)];
    ActivationRequest { part, adoption, terms, probes: ProbeTopology::declare(probes).unwrap() }
}
