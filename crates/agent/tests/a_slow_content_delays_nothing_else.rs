//! DLT-4, LIF-10, SYN-1: no lock is held across a request. A content that takes long to come stops
//! neither check-ins nor a new stream, and is adopted when it is there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use test_support::scripted::stage::{Stage, join, make, plan};
use test_support::scripted::{DaemonProcess, ScriptedControl, problem};
use test_support::wait::until;
use wire::{Code, Problem, route};

/// Lets contents through, or not.
#[derive(Default)]
struct Gate {
    state: Mutex<Passage>,
    changed: Condvar,
}

#[derive(Default)]
struct Passage {
    open: bool,
    contents_asked: usize,
    streams_asked: usize,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.contents_asked += 1;
        // Longer than the test may take, so that a failed one ends.
        let longest = Duration::from_secs(40);
        drop(self.changed.wait_timeout_while(state, longest, |state| !state.open).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn check_ins_and_streams_go_on_while_a_content_is_fetched() {
    let (stage, gate) = (Stage::default(), Arc::new(Gate::default()));
    stage.play().next_checkin_secs = Some(1);
    stage.play().stream_requested = true;
    let (answers, passage) = (stage.clone(), gate.clone());
    let control = ScriptedControl::start(&["127.0.0.1"], move |parts, body| {
        let blob = route::BLOB.split('{').next().unwrap();
        if parts.uri.path() == route::SUBSCRIBE {
            passage.state.lock().unwrap().streams_asked += 1;
            return problem(&Problem::new(Code::Busy, "no streams now"));
        }
        if parts.uri.path().starts_with(blob) {
            tokio::task::block_in_place(|| passage.wait());
        }
        answers.answer(parts, &body)
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    std::fs::create_dir_all(root.join("etc")).unwrap();
    join(&control, &state, &root);
    let mut release = plan(1, "");
    release.blob = Some(b"a large file\n".to_vec());
    let made = make(&release);
    stage.play().contents.extend(made.contents);
    stage.play().offer = Some(made.offer);
    let mut daemon = DaemonProcess::start(&state, &root);
    let asked = || gate.state.lock().unwrap().contents_asked;
    until("a content is asked for", async || (asked() > 0).then_some(())).await;
    let (check_ins, streams) = (stage.play().check_ins, gate.state.lock().unwrap().streams_asked);
    until("three check-ins and a stream beside it", async || {
        let streams_asked = gate.state.lock().unwrap().streams_asked;
        (stage.play().check_ins >= check_ins + 3 && streams_asked > streams).then_some(())
    })
    .await;
    assert_eq!(asked(), 1, "the content is asked for once");
    assert_eq!(stage.play().held, None);
    gate.open();
    until("the release is adopted and converged on", async || {
        let motd = std::fs::read_to_string(root.join("etc/motd")).unwrap_or_default();
        (stage.play().held.is_some() && motd == "a large file\n").then_some(())
    })
    .await;
    assert!(daemon.is_alive());
}
