//! WIR-6, CNV-4, SYN-3: a control plane with every key of its own stolen takes no host's memory, disk or time by what it
//! answers: what is too long, packed too well or has no end is cut at its bound, and the host goes on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use test_support::scripted::stolen::{Instead, bomb, said};
use test_support::scripted::victim::{Victim, delegating};
use test_support::wait::{eventually, until};
use wire::body::{GZIP, JSON, MAX_ANSWER};
use wire::route;

/// More than an answer may be, unpacked.
const MUCH: u64 = 4 * MAX_ANSWER as u64;
/// What the agent's process may have had at the most, in KiB: a few times the longest answer.
const MOST_KIB: u64 = 160 * 1024;

fn whole(kind: &str, coding: Option<&str>, bytes: impl Into<Vec<u8>>) -> Instead {
    Instead::Reply(said(StatusCode::OK, kind, coding, bytes.into()))
}

fn endless(coding: Option<&'static str>, first: &[u8], piece: &[u8]) -> Instead {
    Instead::Endless { coding, first: Bytes::copy_from_slice(first), piece: Bytes::copy_from_slice(piece) }
}

/// Answers that no honest control plane gives.
fn answers() -> Vec<(&'static str, Instead)> {
    let spaces = vec![b' '; 64 * 1024];
    let nested = [vec![b'['; 1_000_000], vec![b']'; 1_000_000]].concat();
    let away = http::Response::builder().status(StatusCode::FOUND).header("location", "https://127.0.0.1:1/");
    vec![
        ("nothing", whole(JSON, None, "")),
        ("half of it", whole(JSON, None, "{\"nextCheckinSecs\":")),
        ("a page", whole("text/html", None, "<html>sign in</html>")),
        ("longer than its bound", whole(JSON, None, vec![b' '; MAX_ANSWER + 1])),
        ("a packed bomb", whole(JSON, Some(GZIP), bomb(MUCH))),
        ("no gzip", whole(JSON, Some(GZIP), "plain")),
        ("a coding that is not spoken", whole(JSON, Some("br"), "x")),
        ("nested without end", whole(JSON, None, nested)),
        ("without end", endless(None, b"", &spaces)),
        ("without end, packed", endless(Some(GZIP), b"", &bomb(1 << 20))),
        ("another place", Instead::Reply(away.body(Bytes::new().into()).unwrap())),
        (
            "a refusal without end",
            Instead::Reply(said(
                StatusCode::SERVICE_UNAVAILABLE,
                "application/problem+json",
                None,
                serde_json::to_vec(&json!({
                    "title": "x".repeat(1 << 20), "status": 503, "code": "busy", "retryAfterSecs": u64::MAX,
                }))
                .unwrap(),
            )),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_takes_memory_or_ends_the_agent() {
    let mut victim = Victim::start().await;
    for (what, instead) in answers() {
        let asked = victim.control.asked(route::CHECKIN) + 1;
        victim.control.instead(route::CHECKIN, instead);
        until(&format!("{what}: it checks in"), async || {
            victim.nudge();
            (victim.control.asked(route::CHECKIN) > asked).then_some(())
        })
        .await;
        victim.is_alive();
    }
    // While nothing that it hears makes sense, it keeps its host.
    std::fs::write(victim.root.join("etc/motd"), "by hand\n").unwrap();
    eventually("an edit is put right", || victim.file("/etc/motd") == "five\n").await;
    victim.control.as_usual();
    victim.nudge();
    victim.contacts(1).await;
    // The same in place of frames; each time it takes what comes rightly afterwards.
    let of_frames = ["half of it", "a packed bomb", "without end", "nested without end"];
    for (number, (what, instead)) in answers().into_iter().enumerate() {
        if !of_frames.contains(&what) {
            continue;
        }
        let asked = victim.control.asked(route::EVENTS) + 1;
        victim.control.instead(route::EVENTS, instead);
        until(&format!("{what}: it polls"), async || {
            victim.nudge();
            (victim.control.asked(route::EVENTS) >= asked).then_some(())
        })
        .await;
        victim.control.as_usual();
        // It may read for a while, and waits before it polls again.
        let next = victim.control.asked(route::EVENTS) + 1;
        until(&format!("{what}: it polls again"), async || {
            (victim.control.asked(route::EVENTS) >= next).then_some(())
        })
        .await;
        victim.settles(&format!("after-{number}")).await;
        victim.is_alive();
    }
    let peak = victim.peak_kib();
    assert!(peak < MOST_KIB, "{peak} KiB at the most");
}

/// What it says for people is cut before it is kept, logged or shown, and moves no terminal.
#[tokio::test(flavor = "multi_thread")]
async fn no_text_fills_the_log() {
    let victim = Victim::start().await;
    let long = format!("\u{1b}[2J\u{202e}{}", "x".repeat(1 << 20));
    let refusal =
        json!({"title": long, "status": 403, "code": long, "detail": long, "help": long, "requestId": long});
    let refusal = serde_json::to_vec(&refusal).unwrap();
    // Whose frames are refused waits ever longer before it posts again.
    for (path, times) in [(route::CHECKIN, 3), (route::EVENTS, 1)] {
        let reply = said(StatusCode::FORBIDDEN, "application/problem+json", None, refusal.clone());
        victim.control.instead(path, Instead::Reply(reply));
        let asked = victim.control.asked(path) + times;
        until("it is refused", async || {
            victim.nudge();
            (victim.control.asked(path) >= asked).then_some(())
        })
        .await;
        if path == route::CHECKIN {
            let problem = until("its status says why", async || {
                victim.status()["daemon"]["contact"]["problem"].as_str().map(str::to_owned)
            })
            .await;
            assert!(problem.len() < 8 * 1024, "{} bytes", problem.len());
        }
        victim.control.as_usual();
    }
    let log = victim.log();
    assert!(log.len() < 512 * 1024, "{} bytes of log", log.len());
    assert!(!log.contains(&0x1b), "no escape is in the log");
    let kept = std::fs::metadata(victim.state().path().join("contact.json")).unwrap().len();
    assert!(kept < 64 * 1024, "{kept} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_content_takes_the_disk() {
    let mut victim = Victim::start().await;
    let mut plan = delegating(6, "six\n");
    plan.blob = Some(b"six\n".to_vec());
    let made = victim.offer(&plan);
    assert!(!made.contents.is_empty());
    // Nothing of it travels inside the answer.
    for text in &mut victim.control.stage.play().offer.as_mut().unwrap().set.as_mut().unwrap().contents {
        text.clear();
    }
    // Without end in one answer; and answer after answer, of which each says that all of the world follows.
    let mut again = said(StatusCode::PARTIAL_CONTENT, "application/octet-stream", None, vec![b'x'; 8 << 20]);
    let range = format!("bytes 0-1/{}", u64::MAX);
    again.headers_mut().insert("content-range", range.parse().unwrap());
    let without_end = (endless(None, b"", &[b'x'; 64 * 1024]), "longer than");
    for (instead, why) in [without_end, (Instead::Reply(again), "over the limit of")] {
        victim.control.instead(route::BLOB, instead);
        until("it gave up, and says why", async || {
            victim.nudge();
            let said = victim.control.stage.play().said.clone()?;
            said.unadopted.filter(|said| said.reason.contains(why))
        })
        .await;
        let kept = size(victim.state().path());
        assert!(kept < 2 * model::object::MAX_BLOB, "{kept} bytes are kept");
    }
    victim.is_alive();
    assert_eq!(victim.file("/etc/motd"), "five\n");
    // What was kept of it does not stand in the way.
    victim.control.as_usual();
    victim.adopts(&plan).await;
    assert!(victim.peak_kib() < MOST_KIB);
}

fn size(at: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(at).unwrap().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// A wait of ten years is one of an hour at the most (`node/tests/waits_are_bounded.rs`), and what happens is told sooner.
#[tokio::test(flavor = "multi_thread")]
async fn no_wait_keeps_it_silent() {
    let victim = Victim::start().await;
    victim.control.stage.play().next_checkin_secs = Some(10 * 365 * 24 * 3600);
    victim.contacts(1).await;
    let last = victim.control.stage.last();
    std::fs::write(victim.root.join("etc/motd"), "by hand\n").unwrap();
    eventually("an edit is put right", || victim.file("/etc/motd") == "five\n").await;
    until("it tells that", async || (victim.control.stage.last() > last).then_some(())).await;
}
