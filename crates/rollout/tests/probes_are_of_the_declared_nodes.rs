//! ROL-7: a node's probes are those of its channel whose selector takes it by what is declared of it, and no other.

use std::time::Duration;

use ::model::Hostname;
use ::model::health_probe::{
    ChannelProbe, DeclareProbesError, HealthProbe, HealthProbeKind, HealthProbeMode, MAX_CHANNEL_PROBES,
    MAX_PROBES,
};
use ::model::policy::Policy;
use rollout::{SelectProbesError, probes_of};

use crate::model::terms::declared;

fn probe(name: &str, of: Option<&str>) -> ChannelProbe {
    let probe = HealthProbe {
        name: name.to_owned(),
        kind: HealthProbeKind::Tcp { address: "localhost:80".to_owned() },
        mode: HealthProbeMode::Enforce,
        grace: Duration::from_secs(30),
        sustained: Duration::from_secs(30),
        every: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
    };
    ChannelProbe { of: of.map(str::to_owned), probe }
}

fn policy(probes: Vec<ChannelProbe>) -> Policy {
    Policy { probes, ..Policy::default() }
}

fn named(policy: &Policy, hostname: &str, labels: &[(&str, &str)]) -> Result<Vec<String>, SelectProbesError> {
    let hostname: Hostname = hostname.parse().unwrap();
    let topology = probes_of(policy, &hostname, &declared(labels))?;
    Ok(topology.probes().iter().map(|probe| probe.name.clone()).collect())
}

#[test]
fn a_selector_takes_nodes_by_name_and_label() {
    let policy = policy(vec![
        probe("ssh", None),
        probe("web", Some("where:labels.tier == \"web\"")),
        probe("edge", Some("edge-*")),
    ]);
    assert_eq!(named(&policy, "db-1", &[]).unwrap(), ["ssh"]);
    assert_eq!(named(&policy, "a", &[("tier", "web")]).unwrap(), ["ssh", "web"]);
    assert_eq!(named(&policy, "edge-1", &[("tier", "db")]).unwrap(), ["ssh", "edge"]);
}

#[test]
fn what_cannot_be_read_or_is_too_much_is_an_error() {
    let bad = policy(vec![probe("web", Some("where:labels.tier =="))]);
    assert!(
        matches!(named(&bad, "a", &[]), Err(SelectProbesError::Selector { probe, .. }) if probe == "web")
    );
    let many = |count: usize, of: Option<&str>| {
        policy((0..count).map(|number| probe(&format!("p{number}"), of)).collect())
    };
    let over = SelectProbesError::Declare(DeclareProbesError::TooMany(MAX_PROBES + 1));
    assert_eq!(named(&many(MAX_PROBES + 1, None), "a", &[]), Err(over));
    assert_eq!(named(&many(MAX_CHANNEL_PROBES, Some("b")), "a", &[]).unwrap(), [""; 0]);
    let over = SelectProbesError::TooMany(MAX_CHANNEL_PROBES + 1);
    assert_eq!(named(&many(MAX_CHANNEL_PROBES + 1, Some("b")), "a", &[]), Err(over));
}

/// The form is signed: it is in the policy of a channel.
#[test]
fn the_form_in_a_policy_is_kept() {
    let text = concat!(
        r#"{"where":"edge-*","name":"web","kind":"tcp","address":"localhost:80","mode":"enforce","graceMillis":30000,"#,
        r#""sustainedMillis":30000,"everyMillis":10000,"timeoutMillis":5000}"#,
    );
    assert_eq!(serde_json::to_string(&probe("web", Some("edge-*"))).unwrap(), text);
    assert_eq!(serde_json::from_str::<ChannelProbe>(text).unwrap(), probe("web", Some("edge-*")));
    let plain = serde_json::to_value(Policy::default()).unwrap();
    assert_eq!(plain.get("probes"), None, "a channel without probes has the policy of before");
}
