//! ROL-9: an agent gets the parts of a closure from a real control plane over its session, piece by piece from where it is,
//! and learns which path that does not have.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use agent::closure_relay::SessionClosures;
use agent::session::{NodeSession, SessionCredentials, Signer};
use data_encoding::BASE64;
use model::Digest;
use providers::ClosureRelay;
use server::api::closures::{ClosurePiece, ClosureProgress};
use test_support::fleet::Fleet;
use test_support::fleet::release::{Plan, make, module};
use trust::nix::NarInfo;

/// Of several answers.
const SIZE: usize = 2_500_000;

fn hash(number: u8) -> String {
    number.to_string().repeat(32)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_uploaded_comes_down_piece_by_piece() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let nar: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    let narinfo = format!(
        "StorePath: /nix/store/{}-p\nURL: nar/x\nCompression: none\nNarHash: sha256:{}\nNarSize: {SIZE}\n",
        hash(1),
        Digest::of(&nar)
    );
    let piece = ClosurePiece { narinfo, from: 0, bytes: BASE64.encode(&nar) };
    let taken: ClosureProgress = fleet.operator().await.post("/v1/closures", &piece).await.unwrap();
    assert!(taken.whole);
    let text = format!("/nix/store/{}-p /nix/store/{}-p", hash(1), hash(2));
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[module("system", &text, &[])]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    let (id, key) = (node.id.clone(), Arc::new(node.key));
    let credentials =
        SessionCredentials { urls: vec![node.url.clone()], proxy: None, tls: node.tls.clone(), number: 0 };
    let signer = Signer::new(node.fleet.clone(), id, key, Default::default());
    let relay = SessionClosures::new(Arc::new(NodeSession::new(credentials, signer)));
    // As a run asks: on a thread that may wait.
    let got = tokio::task::spawn_blocking(move || {
        let text = String::from_utf8(relay.narinfo(&hash(1))?.expect("it is there")).unwrap();
        let info: NarInfo = text.parse().unwrap();
        let mut got = Vec::new();
        let mut answers = 0;
        while (got.len() as u64) < info.nar_size {
            got.extend(relay.archive(&info.nar_hash, got.len() as u64)?);
            answers += 1;
        }
        assert_eq!(relay.narinfo(&hash(2))?, None, "named, and not uploaded");
        let why = relay.narinfo(&hash(3)).expect_err("not named");
        assert!(why.contains("names no closure"), "{why}");
        assert!(relay.archive(&info.nar_hash, info.nar_size).is_err(), "behind its end");
        Ok::<_, String>((got, answers))
    });
    let (got, answers) = got.await.unwrap().unwrap();
    assert!(got == nar);
    assert_eq!(answers, 3, "at most 1 MiB each");
}
