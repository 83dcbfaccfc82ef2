//! IDN-2, CNV-3: the control plane knows when each certificate that it issued ends, and how the agent of a host is
//! called there, also after a restart.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::CheckIn;
use model::invocation::AgentInvocation;
use model::log::{Fact, FactBody};
use net::issue::NODE_LIFE;
use test_support::fleet::{Fleet, now, quiet};

#[tokio::test]
async fn an_end_and_an_invocation_outlive_a_restart() {
    let mut fleet = Fleet::start().await;
    let before = now().plus(NODE_LIFE);
    let member = fleet.node("web-1").await;
    let invocation = AgentInvocation { command: "muster-agent --state /srv/state".to_owned(), service: None };
    let body = FactBody::Started {
        version: "0.1.0".to_owned(),
        boot_id: "boot".to_owned(),
        invocation: Some(invocation.clone()),
        cut_off_run: Some(now()),
    };
    let facts = vec![Fact { seq: 1, at: now(), body }];
    member.check_in(&CheckIn { facts, ..quiet() }).await.unwrap();
    for restarted in [false, true] {
        if restarted {
            fleet.stop().await;
            fleet.start_again().await;
        }
        let mut operator = fleet.operator().await;
        let node = operator.node("web-1").await;
        let ends = node.certificate_ends.unwrap();
        assert!(ends >= before && ends <= now().plus(NODE_LIFE), "{ends}, restarted: {restarted}");
        assert_eq!(node.invocation.as_ref(), Some(&invocation), "restarted: {restarted}");
    }
}
