//! IDN-1: no resource writes, owns or removes what is Muster's own: its state wherever it is, its
//! sockets, its configuration, its units.
#![allow(clippy::unwrap_used)]

use converge::bind::{Inputs, bind};
use serde_json::{Value, json};

use crate::common::set;

/// Why a resource is refused on an agent whose state is in `/data/agent`.
fn refusal(resource: Value) -> Option<String> {
    let set = set(json!([{"name": "m", "resources": [resource], "files": {"files/t/a": {
        "digest": "0000000000000000000000000000000000000000000000000000000000000000", "size": 1}}}]));
    let own = ["/data//agent".to_owned()];
    let traits = serde_json::from_value(json!({})).unwrap();
    let inputs = Inputs {
        modules: &set.modules,
        params: &set.params,
        hostname: Some("h"),
        traits: Some(&traits),
        own_paths: &own,
        secrets: lang::OpenedSecrets::SEALED,
    };
    let desired = bind(&inputs);
    let resource = desired.resources().next().unwrap();
    resource.spec.as_ref().err().map(ToString::to_string)
}

#[track_caller]
fn refused(resource: Value, why: &str) {
    let refusal = refusal(resource);
    assert!(refusal.as_ref().is_some_and(|refusal| refusal.contains(why)), "{refusal:?}");
}

#[test]
fn its_state_is_written_and_removed_by_nobody() {
    let own = "is Muster's own";
    refused(
        json!({"type": "file", "name": "/var/lib/muster/identity.key", "attributes": {"content": "x"}}),
        own,
    );
    refused(json!({"type": "file", "name": "/var/lib//muster/x", "attributes": {"state": "absent"}}), own);
    refused(
        json!({"type": "line", "name": "l", "attributes": {"path": "/data/agent/config", "line": "x"}}),
        own,
    );
    refused(json!({"type": "directory", "name": "/data/agent"}), own);
    refused(
        json!({"type": "symlink", "name": "/run/muster/agent.sock", "attributes": {"target": "/x"}}),
        own,
    );
    for path in ["/var/run/muster/agent.sock", "/data/agent/agent.sock"] {
        refused(json!({"type": "symlink", "name": path, "attributes": {"target": "/x"}}), own);
    }
    let file = json!({"type": "file", "name": "/etc/systemd/system/muster-agent.service", "attributes": {"content": "x"}});
    refused(file, own);
}

#[test]
fn a_directory_that_holds_it_is_not_removed_with_all_that_is_in_it() {
    let remove = |path: &str| json!({"type": "directory", "name": path, "attributes": {"state": "absent", "recurse": true}});
    refused(remove("/data"), "/data holds /data/agent, which is Muster's own");
    refused(remove("/var/lib"), "/var/lib holds /var/lib/muster");
    let purge = json!({"type": "directory", "name": "/data", "attributes": {"source": "t", "purge": true}});
    refused(purge, "/data holds /data/agent");
}

#[test]
fn its_units_are_not_stopped() {
    let unit =
        |attributes: Value| json!({"type": "service", "name": "muster-agent", "attributes": attributes});
    refused(unit(json!({"state": "stopped"})), "muster-agent.service is Muster's own");
    refused(unit(json!({"enabled": false})), "muster-agent.service is Muster's own");
    assert_eq!(refusal(unit(json!({"enabled": true}))), None);
}

#[test]
fn what_only_lies_beside_it_is_declared_as_ever() {
    let directory =
        |path: &str, attributes: Value| json!({"type": "directory", "name": path, "attributes": attributes});
    assert_eq!(refusal(directory("/data", json!({"mode": "0755"}))), None);
    assert_eq!(refusal(directory("/data/agents", json!({"state": "absent", "recurse": true}))), None);
    assert_eq!(refusal(directory("/data", json!({"source": "t"}))), None);
    let traits =
        json!({"type": "file", "name": "/etc/muster/traits.d/site.json", "attributes": {"content": "{}"}});
    assert_eq!(refusal(traits), None);
}
