//! ROL-7: where the release says so, its probes alone decide of a host whose window ends with the control plane gone: it
//! confirms if they pass, and returns if one does not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use activation::ActivationStage;
use agent::generations::boot_moment;
use test_support::scripted::victim::Victim;
use test_support::wait::until;
use trust::rollout_terms::OfflineConfirm;

use crate::rollouts_confirm_or_return::{
    begins, failed, in_waves, is_back, kinds, on_trial_with, says, stage,
};

/// What is left of the window once the agent begins anew; its probe is asked each second.
const LEFT: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn its_probes_alone_decide_at_the_end_of_the_window() {
    for passes in [true, false] {
        let mut victim = Victim::start().await;
        let mut plan = in_waves("six\n", "test -e $MUSTER_ROOT/ready");
        let mut terms = plan.rollout.clone().unwrap();
        terms.confirm.offline = OfflineConfirm::Confirm;
        plan.rollout = Some(terms);
        // Its failures decide nothing: it did not pass yet.
        plan.policy.probes[0].probe.grace = Duration::from_secs(600);
        begins(&victim, &plan).await;
        until("it is to be confirmed", async || {
            matches!(stage(&victim), ActivationStage::Confirming(_)).then_some(())
        })
        .await;
        victim.control.stage.play().gone = true;
        // Most of the window goes by.
        on_trial_with(&mut victim, |trial| trial.deadline = boot_moment().unwrap().at.plus(LEFT)).await;
        if passes {
            std::fs::write(victim.root.join("ready"), "").unwrap();
        }
        victim.begin();
        if !passes {
            until("it returns", async || (victim.file("/etc/motd") == "five\n").then_some(())).await;
            victim.control.stage.play().gone = false;
            is_back(&victim).await;
            let why = failed(&victim);
            assert!(why.as_ref().is_some_and(|why| why.contains("nothing confirmed it")), "{why:?}");
            continue;
        }
        until("it is confirmed", async || {
            matches!(stage(&victim), ActivationStage::Probation(_)).then_some(())
        })
        .await;
        assert_eq!(victim.file("/etc/motd"), "six\n");
        assert!(!kinds(&victim).contains(&"converged"), "nobody heard of it yet");
        victim.control.stage.play().gone = false;
        says(&victim, "converged").await;
        assert_eq!(victim.control.stage.play().held.clone().unwrap().seq, 6);
        assert!(!kinds(&victim).contains(&"back"), "{:?}", kinds(&victim));
    }
}
