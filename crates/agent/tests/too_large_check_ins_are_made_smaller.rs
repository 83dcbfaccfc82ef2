//! WIR-6, CNV-5: a control plane that takes less than this agent's bounds answers 413. The agent leaves out what it
//! names and goes on with the rest: facts keep their numbers, releases are adopted, nothing is sent again as it was
//! refused; journal and `status` say what is left out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use model::Timestamp;
use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use test_support::children::program;
use test_support::scripted::stage::{Stage, join, make, plan};
use test_support::scripted::{DaemonProcess, ScriptedControl, now, problem};
use test_support::wait::until;
use wire::{Code, Problem, route};

/// What a check-in carries that can be too large.
type Carried = (Vec<Fact>, bool);

/// Takes no traits, no facts of adoptions, and one fact at a time.
fn refusal(message: &CheckIn) -> Option<Code> {
    let adopted = |fact: &Fact| matches!(fact.body, FactBody::Adopted { .. });
    match message {
        _ if message.traits.is_some() || message.facts.len() > 1 => Some(Code::BodyTooLarge),
        _ if message.facts.iter().any(adopted) => Some(Code::FactTooLarge),
        _ => None,
    }
}

fn status(state: &Path, root: &Path) -> String {
    let mut status = Command::new(program("muster-agent"));
    status.arg("--state").arg(state).arg("--root").arg(root).arg("status");
    String::from_utf8(status.output().unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_left_out_and_the_rest_goes_on() {
    let (stage, refused) = (Stage::default(), Arc::new(Mutex::new(Vec::<Carried>::new())));
    stage.play().next_checkin_secs = Some(1);
    let (answers, noted) = (stage.clone(), refused.clone());
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, body| {
        if parts.uri.path() == route::CHECKIN {
            let message: CheckIn = serde_json::from_slice(&body).unwrap();
            if let Some(code) = refusal(&message) {
                noted.lock().unwrap().push((message.facts, message.traits.is_some()));
                return problem(&Problem::new(code, "as the test says"));
            }
        }
        answers.answer(parts, &body)
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    std::fs::create_dir_all(root.join("etc")).unwrap();
    join(&control, &state, &root);
    let _daemon = DaemonProcess::start(&state, &root);
    for (seq, text) in [(5, "five\n"), (6, "six\n"), (7, "seven\n")] {
        let made = make(&plan(seq, text));
        {
            let mut play = stage.play();
            play.contents.extend(made.contents);
            play.offer = Some(made.offer);
        }
        until(&format!("release {seq} is adopted and told"), async || {
            let motd = std::fs::read_to_string(root.join("etc/motd")).unwrap_or_default();
            let play = stage.play();
            let left_out = play.facts.values().filter(|fact| match &fact.body {
                FactBody::Repaired { message } => message.contains("(adopted) was left out"),
                _ => false,
            });
            let adopted = left_out.count() as u64 == seq - 4;
            (motd == text && adopted && play.held.as_ref()?.seq == seq).then_some(())
        })
        .await;
    }
    let numbers: Vec<u64> = stage.play().facts.keys().copied().collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "each fact came under its number");
    let refused = refused.lock().unwrap().clone();
    for (at, carried) in refused.iter().enumerate() {
        assert!(!refused[..at].contains(carried), "sent again as it was refused: {carried:?}");
    }
    let alone = refused.iter().filter(|(facts, traits)| *traits && facts.len() <= 1);
    assert!(alone.count() <= 2, "as the traits changed: {refused:?}");
    let shown = status(&state, &root);
    assert!(shown.contains("LEFT OUT       ") && shown.contains("-too-large"), "{shown}");
    assert!(!shown.contains("FAILED"), "contacts go on: {shown}");
}

/// An hour later by the control plane's clock, traits that were left out go again though it does not ask for them, and
/// `status` says no more that they are left out.
#[tokio::test(flavor = "multi_thread")]
async fn traits_go_again_by_themselves_and_nothing_is_left_out() {
    let (stage, hour_is_over) = (Stage::default(), Arc::<AtomicBool>::default());
    let (told_time, took) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    stage.play().next_checkin_secs = Some(1);
    let (answers, is_over, taken) = (stage.clone(), hour_is_over.clone(), took.clone());
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, body| {
        if parts.uri.path() == route::CHECKIN {
            let message: CheckIn = serde_json::from_slice(&body).unwrap();
            let over = is_over.load(Ordering::SeqCst);
            if over && !told_time.swap(true, Ordering::SeqCst) {
                let mut skewed = Problem::new(Code::Skewed, "as the test says");
                skewed.server_time = Some(Timestamp(now().0 + 7_200_000));
                return problem(&skewed);
            }
            if message.traits.is_some() && !over {
                return problem(&Problem::new(Code::BodyTooLarge, "as the test says"));
            }
            taken.fetch_or(message.traits.is_some(), Ordering::SeqCst);
        }
        answers.answer(parts, &body)
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    std::fs::create_dir_all(root.join("etc")).unwrap();
    join(&control, &state, &root);
    let _daemon = DaemonProcess::start(&state, &root);
    let left_out = "LEFT OUT       this host's traits are left out, for an hour at the most";
    until("the status says so", async || status(&state, &root).contains(left_out).then_some(())).await;
    assert!(!took.load(Ordering::SeqCst));
    hour_is_over.store(true, Ordering::SeqCst);
    until("they go again", async || took.load(Ordering::SeqCst).then_some(())).await;
    until("it is over", async || (!status(&state, &root).contains("LEFT OUT")).then_some(())).await;
}
