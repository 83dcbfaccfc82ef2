//! IDN-4, CNV-12: each answer to a check-in on a link says what time it is at the control plane, so a node knows
//! how far its clock is off without a request, of which the signed time is judged.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::Timestamp;
use model::exchange::Answer;
use model::replication::Mode;
use streams::LinkCommand;
use sync::Frame;
use test_support::fleet::link::{handler, linked, publish_mode};
use test_support::fleet::{Fleet, now, quiet};

use test_support::wait::eventually;

/// As of now, and not as of before the request.
fn is_current(answer: &Answer, before: Timestamp) -> bool {
    answer.server_time.is_some_and(|time| before <= time && time <= now())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_link_alone() {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    node.survives().await;

    let answer = node.check_in(&quiet()).await.unwrap();
    assert_eq!(answer.server_time, None, "DLT-1: nothing else");

    let own = handler("n1");
    let link = linked(&node, Mode::Managed, "one", &own).await;
    for count in 1..=2 {
        let before = now().minus(Duration::from_millis(1));
        assert!(link.commands.send(LinkCommand::Send(Box::new(Frame::CheckIn(Box::new(quiet()))))).await);
        let answers = || -> Vec<Answer> {
            let frames = own.received().into_iter();
            frames
                .filter_map(|frame| if let Frame::Answer(answer) = frame { Some(*answer) } else { None })
                .collect()
        };
        eventually("the check-in is answered", || answers().len() == count).await;
        let answers = answers();
        let answer = answers.last().unwrap();
        assert!(is_current(answer, before), "{:?} from {before}", answer.server_time);
    }
    link.stop().await;
}
