//! ROL-5: a probe's result counts with the signature of its host's key, for one rollout, event and boot.

#![allow(clippy::unwrap_used)]

use model::Timestamp;
use model::rollout::ProbeOutcome;
use trust::{ProbeEvidence, ProbeEvidenceError, SigningKey};

fn evidence(key: &SigningKey) -> ProbeEvidence {
    ProbeEvidence {
        node: key.public().node_id(),
        incarnation: "log-1".parse().unwrap(),
        rollout: "stable@4f1c2a9".parse().unwrap(),
        event_seq: 4,
        boot: "0c1d".to_owned(),
        probe: "web".to_owned(),
        outcome: ProbeOutcome::Pass,
        at: Timestamp(1_000),
    }
}

#[test]
fn a_result_is_believed_with_its_hosts_signature_alone() {
    let (host, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
    let found = evidence(&host);
    let signature = found.sign(&host).unwrap();
    found.verify(signature.as_ref(), &host.public()).unwrap();

    assert_eq!(found.verify(None, &host.public()), Err(ProbeEvidenceError::NotSigned));
    let forged = found.sign(&other).unwrap();
    assert!(found.verify(forged.as_ref(), &host.public()).is_err());

    let changed = [
        ProbeEvidence { outcome: ProbeOutcome::Fail, ..found.clone() },
        ProbeEvidence { boot: "0c1e".to_owned(), ..found.clone() },
        ProbeEvidence { event_seq: 5, ..found.clone() },
        ProbeEvidence { rollout: "stable@4f1c2aa".parse().unwrap(), ..found.clone() },
        ProbeEvidence { probe: "db".to_owned(), ..found.clone() },
        ProbeEvidence { at: Timestamp(2_000), ..found.clone() },
        ProbeEvidence { incarnation: "log-2".parse().unwrap(), ..found.clone() },
    ];
    for other in changed {
        assert!(other.verify(signature.as_ref(), &host.public()).is_err(), "{other:?}");
    }
}
