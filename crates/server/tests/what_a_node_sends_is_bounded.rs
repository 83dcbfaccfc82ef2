//! SCL-3, WIR-6: what one node sends is charged as it is once unpacked, its facts and traits are bounded in bytes,
//! and a database that is full still answers unchanged check-ins.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Method, header};
use model::Digest;
use model::exchange::{Acked, CheckIn, MAX_TRAIT_BYTES, MAX_TRAIT_VALUES, Report, TraitReport};
use model::log::{Fact, FactBody, MAX_FACT_BYTES};
use serde_json::{Value, json};
use test_support::fleet::{Fleet, Member, config, now, number, problem, quiet};
use wire::{Code, route};

const MIB: usize = 1024 * 1024;

fn said(seq: u64, bytes: usize) -> Fact {
    Fact { seq, at: now(), body: FactBody::Repaired { message: "x".repeat(bytes) } }
}

fn report(facts: Vec<Fact>) -> Report {
    Report { incarnation: "i1".parse().unwrap(), facts }
}

/// Sends a body of zeros that unpacks to so many bytes.
async fn send_packed(node: &Member, bytes: usize) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; bytes]).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < bytes / 400, "{} bytes", packed.len());
    let mut request = node.signed_at(Method::POST, route::REPORT, packed, now(), number());
    request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    problem(&node.send(request).await).code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_is_of_what_was_unpacked() {
    let fleet = Fleet::start().await;
    let (node, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    // The whole share is 64 MiB; what is sent is 160 KiB.
    let mut taken = 0;
    while send_packed(&node, MIB).await == Code::BadBody.as_str() {
        taken += 1;
        assert!(taken <= 64, "{taken} MiB are more than the share");
    }
    assert!(taken >= 60, "{taken} MiB are less than the share");
    assert_eq!(send_packed(&node, MIB).await, Code::Busy.as_str());
    other.survives().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_has_a_bound_that_is_named() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let large = report(vec![said(1, 10), said(2, MAX_FACT_BYTES)]);
    let refused = node.post::<_, Acked>(route::REPORT, &large).await.expect_err("it is too large");
    assert_eq!((refused.code.as_str(), refused.status), (Code::FactTooLarge.as_str(), 413));
    assert!(refused.detail.unwrap().starts_with("fact 2 (repaired)"));
    // One that the agent's log takes is taken here.
    let largest = report(vec![said(1, MAX_FACT_BYTES - 200)]);
    let acked: Acked = node.post(route::REPORT, &largest).await.unwrap();
    assert_eq!(acked.acked.seq, 1);
}

fn traits(values: Value) -> CheckIn {
    let digest = Digest::of(number().to_string().as_bytes());
    CheckIn { traits: Some(TraitReport::whole(digest, values)), ..quiet() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traits_have_bounds_that_are_named() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let many = vec![json!([]); MAX_TRAIT_VALUES];
    let mut operator = fleet.operator().await;
    // An agent of before knows no bounds: its traits are not taken, and all else that it says counts.
    for large in [json!({ "a": { "a": "x".repeat(MAX_TRAIT_BYTES) } }), json!({ "a": { "a": many } })] {
        let all = CheckIn { facts: vec![said(1, 10)], ..traits(large) };
        let answer = node.check_in(&all).await.unwrap();
        assert_eq!(answer.acked.map(|acked| acked.seq), Some(1));
        assert!(!answer.want_traits, "they would be the same again");
        let kept: Option<TraitReport> = operator.get("/v1/nodes/web-1/traits").await.unwrap();
        assert_eq!(kept, None);
        assert!(operator.node("web-1").await.traits_too_large);
        let status = operator.status().await;
        assert!(status.causes.iter().any(|line| line.cause.starts_with("its traits are more than 384 KiB")));
    }
    let part = |name: &str| json!({ name: { "a": "x".repeat(MAX_TRAIT_BYTES / 2) } });
    let first = traits(part("a"));
    let base = first.traits.as_ref().unwrap().digest;
    assert!(!node.check_in(&first).await.unwrap().want_traits);
    assert!(!operator.node("web-1").await.traits_too_large, "these are taken");
    // Differences that add up to too much are asked for whole.
    let mut more = traits(part("b"));
    more.traits.as_mut().unwrap().base = Some(base);
    node.check_in(&more).await.unwrap();
    let kept: Option<TraitReport> = fleet.operator().await.get("/v1/nodes/web-1/traits").await.unwrap();
    assert_eq!(kept.unwrap().digest, base);
    assert!(node.check_in(&quiet()).await.unwrap().want_traits);
}

/// A file system of a few MiB, until it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(mib: usize) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=0700"), "tmpfs"]).arg(dir.path());
        mount.output().is_ok_and(|done| done.status.success()).then_some(SmallDisk(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_answers_unchanged_check_ins_and_acknowledges_nothing() {
    let Some(disk) = SmallDisk::mount(24) else {
        return eprintln!("skipped: no small file system can be mounted here");
    };
    let running = server::start(config(disk.0.path(), 0, 0)).await.unwrap();
    // Its own directory is that of the disk, which outlives it.
    let dir = tempfile::Builder::new().prefix("fleet").tempdir_in(disk.0.path()).unwrap();
    for file in
        std::fs::read_dir(disk.0.path()).unwrap().map(Result::unwrap).filter(|file| file.path().is_file())
    {
        if !file.file_name().to_string_lossy().starts_with("muster.db") {
            std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
    }
    let mut fleet = Fleet::of(dir, running);
    let node = fleet.node("web-1").await;
    node.survives().await;
    let mut seq = 0;
    let refused = loop {
        match node.post::<_, Acked>(route::REPORT, &report(vec![said(seq + 1, 500_000)])).await {
            Ok(acked) => seq = acked.acked.seq,
            Err(refused) => break refused,
        }
        assert!(seq < 60, "24 MiB hold no {seq} facts of half a MiB");
    };
    assert_eq!((refused.status, refused.code.as_str()), (503, Code::StoreUnavailable.as_str()), "{refused}");
    // SCL-3: what changes nothing needs no disk.
    for _ in 0..3 {
        node.survives().await;
    }
    // What was acknowledged is there, and the rest comes when there is room.
    let refused = node.post::<_, Acked>(route::REPORT, &report(vec![said(seq + 1, 500_000)])).await;
    assert!(refused.is_err());
    let remount = ["-o", "remount,size=64m"];
    assert!(Command::new("mount").args(remount).arg(disk.0.path()).status().unwrap().success());
    let acked: Acked = node.post(route::REPORT, &report(vec![said(seq + 1, 500_000)])).await.unwrap();
    assert_eq!(acked.acked.seq, seq + 1);
    fleet.stop().await;
}
