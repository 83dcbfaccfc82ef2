//! WIR-4: while its signed artifacts cannot be loaded, the control plane answers 503 with
//! Retry-After on what depends on them, and says why to operators.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::{Method, header};
use model::log::{Fact, FactBody};
use rusqlite::Connection;
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, decoded, new_key, now, quiet, refused, refuses};
use trust::{Slots, TrustDocument};
use wire::{Code, body, route};

#[tokio::test]
async fn a_head_that_is_not_believed_any_more_makes_check_ins_wait() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    let made = make(&plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    node.survives().await;
    fleet.stop().await;
    // The release key is believed no more: what it signed before is not either.
    let file = fleet.dir.path().join("trust.json");
    let good = std::fs::read(&file).unwrap();
    let mut trust: TrustDocument = serde_json::from_slice(&good).unwrap();
    trust.release = Slots::of(new_key().public());
    std::fs::write(&file, serde_json::to_vec(&trust).unwrap()).unwrap();
    // Which says by which documents nodes are certified: none of those is here any more.
    let enroll = fleet.dir.path().join("enroll.json");
    std::fs::remove_file(&enroll).unwrap();
    fleet.start_again().await;
    node.url = fleet.url();

    let blob = route::BLOB.replace("{digest}", &model::Digest::of(b"x").to_string());
    // A rollout and what it asks for depend on them too (ROL-3).
    let manifest = route::ROLLOUT.replace("{id}", "stable@00");
    let asked = [
        (Method::POST, route::CHECKIN),
        (Method::GET, route::STATE),
        (Method::GET, blob.as_str()),
        (Method::GET, manifest.as_str()),
        (Method::GET, route::DISPATCH),
        // One event of a rollout: a body without `frames`.
        (Method::POST, route::EVENTS),
        (Method::POST, route::HEARTBEAT),
    ];
    for (method, path) in asked {
        let bytes = if method == Method::POST { body::encode(&quiet()).unwrap() } else { Vec::new() };
        let response = node.send(node.signed(method, path, bytes)).await;
        let problem = refused(&response, Code::NotReady);
        let after: u64 = response.headers()[header::RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert_eq!(Some(after), problem.retry_after_secs);
        assert!((1..=60).contains(&after));
        let detail = problem.detail.unwrap();
        assert!(detail.contains("release-header is refused: no trusted key signed it"), "{detail}");
    }
    let status = fleet.operator().await.status().await;
    assert!(status.not_ready.unwrap().contains("no trusted key signed it"), "operators are told why");
    // Which keys nodes.yaml declares is not known: nobody is let in with another one meanwhile (CFG-8).
    refuses(fleet.enroll(&fleet.token("web-2"), "web-2", &new_key()).await, Code::NotReady);
    refuses(fleet.ask("web-3", &new_key()).await, Code::NotReady);
    // What does not depend on them goes on: facts are taken.
    let fact = Fact { seq: 1, at: now(), body: FactBody::Repaired { message: "x".to_owned() } };
    let report = model::exchange::Report { incarnation: "i1".parse().unwrap(), facts: vec![fact] };
    let response = node.send(node.signed(Method::POST, route::REPORT, body::encode(&report).unwrap())).await;
    let acked: model::exchange::Acked = decoded(&response).unwrap();
    assert_eq!(acked.acked.seq, 1);

    // Believed again, it is answered again.
    fleet.stop().await;
    std::fs::write(&file, good).unwrap();
    std::fs::remove_file(&enroll).unwrap();
    fleet.start_again().await;
    node.url = fleet.url();
    let answer = node.check_in(&quiet()).await.unwrap();
    assert_eq!(answer.offer.unwrap().header, made.header);
    assert_eq!(fleet.operator().await.status().await.not_ready, None);
}

/// Whoever writes to the database without the release key points nobody anywhere.
#[tokio::test]
async fn a_head_that_was_changed_in_the_database_makes_check_ins_wait() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    fleet.stop().await;
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    let text: String =
        database.query_row("SELECT CAST(header AS TEXT) FROM head", [], |row| row.get(0)).unwrap();
    let changed = text.replacen("86400", "99999", 1);
    assert_ne!(changed, text, "the freshness is in the header: {text}");
    assert_eq!(database.execute("UPDATE head SET header = ?1", [changed]).unwrap(), 1);
    drop(database);
    fleet.start_again().await;
    node.url = fleet.url();
    let problem = refuses(node.check_in(&quiet()).await, Code::NotReady);
    assert!(problem.detail.unwrap().contains("no trusted key signed it"));
    // A new release, made well, puts it right.
    let plan = Plan::new(&fleet.enroll_info().fleet, 2).node("web-1", &[params("b")]);
    let made = make(&plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    assert_eq!(node.check_in(&quiet()).await.unwrap().offer.unwrap().header, made.header);
}
