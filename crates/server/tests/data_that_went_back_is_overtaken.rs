//! SCL-4: a control plane whose data went back learns from the nodes which releases they hold, by headers that
//! the fleet's release key signed, and takes none but one above them; it tells them how far it has their facts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::{CheckIn, HeldRelease, Signed};
use model::log::{Fact, FactBody};
use server::api::{HeadView, StatusView};
use store::IncarnationCause;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::{Fleet, Member, new_key, now, quiet, refuses};
use wire::Code;

struct Restored {
    fleet: Fleet,
    node: Member,
    /// Release 2, which the node holds and the data lost.
    lost: Made,
}

fn plan(fleet: &Fleet, seq: u64, text: &str) -> Plan {
    Plan::new(&fleet.enroll_info().fleet, seq).node("web-1", &[params(text)])
}

async fn publish(fleet: &Fleet, plan: &Plan) -> Made {
    let made = make(plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    made
}

/// A fleet whose data is of release 1 again while its node holds release 2 and two facts were acknowledged of
/// which the data has one.
async fn restored() -> Restored {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    publish(&fleet, &plan(&fleet, 1, "a")).await;
    node.check_in(&CheckIn { facts: vec![fact(1)], ..quiet() }).await.unwrap();
    fleet.stop().await;
    let backup = fleet.backup();
    fleet.start_again().await;
    node.url = fleet.url();
    let lost = publish(&fleet, &plan(&fleet, 2, "b")).await;
    let told = CheckIn { facts: vec![fact(2)], ..holding(&lost, None) };
    let answer = node.check_in(&told).await.unwrap();
    assert_eq!(answer.acked.map(|acked| acked.seq), Some(2));
    assert!(!answer.want_header, "it has that release");
    fleet.stop().await;
    fleet.restore(&backup);
    fleet.start_again().await;
    node.url = fleet.url();
    Restored { fleet, node, lost }
}

fn fact(seq: u64) -> Fact {
    Fact { seq, at: now(), body: FactBody::Repaired { message: format!("fact {seq}") } }
}

fn holding(made: &Made, header: Option<Signed>) -> CheckIn {
    let held: HeldRelease = made.held("web-1");
    CheckIn { held: Some(held), header, ..quiet() }
}

async fn head(fleet: &Fleet) -> HeadView {
    fleet.operator().await.get("/v1/head").await.unwrap()
}

async fn status(fleet: &Fleet) -> StatusView {
    fleet.operator().await.status().await
}

#[tokio::test]
async fn the_next_release_is_above_what_nodes_hold() {
    let Restored { fleet, node, lost } = restored().await;
    let back = head(&fleet).await;
    assert_eq!((back.seq, back.node_header.is_some()), (Some(1), false));
    assert_eq!(back.went_back.map(|back| back.cause), Some(IncarnationCause::Copied));
    assert!(node.check_in(&holding(&lost, None)).await.unwrap().want_header);

    // Whoever has a node's key alone moves no number.
    let forged = make(&plan(&fleet, 2_000_000, "x"), &new_key()).header;
    assert!(node.check_in(&holding(&lost, Some(forged))).await.unwrap().want_header, "it is not believed");
    assert_eq!(status(&fleet).await.overtaken_by, None);

    let answer = node.check_in(&holding(&lost, Some(lost.header.clone()))).await.unwrap();
    assert!(!answer.want_header, "it has it now");
    assert_eq!(status(&fleet).await.overtaken_by, Some(2));
    assert_eq!(head(&fleet).await.node_header, Some(lost.header.clone()));
    let another = make(&plan(&fleet, 2, "c"), &fleet.release_key());
    refuses(fleet.operator().await.publish(&another).await, Code::HeadMoved);

    let next = Plan { expected_head: Some(1), ..plan(&fleet, 3, "c") };
    publish(&fleet, &next).await;
    let healed = head(&fleet).await;
    assert_eq!((healed.seq, healed.node_header, healed.went_back), (Some(3), None, None));
    assert_eq!(status(&fleet).await.overtaken_by, None);
    let answer = node.check_in(&holding(&lost, None)).await.unwrap();
    assert!(!answer.want_header && answer.offer.is_some());
}

#[tokio::test]
async fn two_headers_of_one_number_are_noticed_and_have_a_way_out() {
    let Restored { mut fleet, mut node, lost } = restored().await;
    // Nobody could know better: no node called.
    publish(&fleet, &plan(&fleet, 2, "c")).await;
    assert!(node.check_in(&holding(&lost, None)).await.unwrap().want_header);
    node.check_in(&holding(&lost, Some(lost.header.clone()))).await.unwrap();
    assert_eq!(status(&fleet).await.overtaken_by, Some(2));
    let back = head(&fleet).await;
    assert_eq!(back.node_header, Some(lost.header.clone()));
    assert_eq!(back.went_back.map(|back| back.cause), Some(IncarnationCause::Overtaken));
    // Kept over a restart.
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    assert_eq!(status(&fleet).await.overtaken_by, Some(2));
    publish(&fleet, &plan(&fleet, 3, "c")).await;
    assert_eq!(status(&fleet).await.overtaken_by, None);
}

#[tokio::test]
async fn a_node_is_told_how_far_its_facts_are_here() {
    let Restored { fleet: _fleet, node, lost } = restored().await;
    let acked = |acked| CheckIn { acked: Some(acked), ..holding(&lost, None) };
    let answer = node.check_in(&acked(2)).await.unwrap();
    assert_eq!(answer.acked.map(|acked| acked.seq), Some(1), "fact 2 is to come again");
    assert_eq!(node.check_in(&acked(1)).await.unwrap().acked, None, "nothing is lost");
    // Of a log that it never saw.
    let other = CheckIn { incarnation: "i2".parse().unwrap(), ..acked(7) };
    assert_eq!(node.check_in(&other).await.unwrap().acked.map(|acked| acked.seq), Some(0));
}
