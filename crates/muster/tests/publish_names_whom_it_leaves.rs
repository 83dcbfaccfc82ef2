//! CFG-1, ROL-4: a publish names the nodes that have an entry in what is published and none in what the repo means,
//! whether they were named or a pattern took them; in its question, with `--dry-run`, and as JSON.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::credentials;
use cli::publish::{LeftOut, Publisher};
use test_support::fleet::Fleet;
use test_support::programs::repo::{app_module, changes, code, fleet_yaml, muster, out, publish, write};

fn nodes(matches: &[&str]) -> (&'static str, String) {
    let entry = |text: &&str| format!("  - match: [{text}]\n    modules: [app]\n");
    ("nodes.yaml", format!("nodes:\n{}", matches.iter().map(entry).collect::<String>()))
}

async fn publisher(fleet: &Fleet) -> Publisher {
    let operator = fleet.dir.path().join("operator.json");
    let key = credentials::release_key(None, &operator).unwrap();
    Publisher::connect(credentials::operator(Some(&operator)).unwrap().1, [key]).await.unwrap()
}

/// A fleet with three nodes enrolled, and what was published: one is named, the others are of patterns.
async fn published() -> (Fleet, Publisher) {
    let fleet = Fleet::start().await;
    for name in ["web-1.test", "web-2.test", "db-1.test"] {
        fleet.node(name).await;
    }
    let mut publisher = publisher(&fleet).await;
    let files = [
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        nodes(&["web-1.test", "gone.test", "nobody-*.test", "web-*.test", "\"**\""]),
    ];
    publish(&mut publisher, changes(&files)).await;
    (fleet, publisher)
}

fn left(names: &[&str]) -> LeftOut {
    LeftOut { count: names.len(), first: names.iter().map(|name| (*name).into()).collect() }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_entries_and_of_patterns() {
    let (fleet, mut resident) = published().await;
    let cases: [(&[&str], &[&str]); 4] = [
        // Another pattern takes who was named.
        (&["web-*.test", "\"**\""], &[]),
        (&["web-1.test", "gone.test", "web-*.test"], &["db-1.test"]),
        (&["web-2.test", "db-*.test"], &["gone.test", "web-1.test"]),
        (&["other.test"], &["db-1.test", "gone.test", "web-1.test", "web-2.test"]),
    ];
    for (matches, names) in cases {
        let files =
            [("fleet.yaml", fleet_yaml()), ("modules/app/module.yaml", app_module("hello")), nodes(matches)];
        // One that knows what is published, and one that has to read it.
        let mut fresh = publisher(&fleet).await;
        for publisher in [&mut resident, &mut fresh] {
            let built = publisher.take(changes(&files)).await.unwrap();
            let changed = publisher.compare(&built).await.unwrap();
            assert_eq!(changed.left_out, left(names), "{matches:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_words_and_as_json() {
    let (fleet, _) = published().await;
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        nodes(&["web-1.test", "gone.test", "web-*.test"]),
    ];
    write(dir.path(), &files);
    let operator = fleet.dir.path().join("operator.json");
    let operator = operator.to_str().unwrap();
    let dry = ["publish", "--operator", operator, "--dry-run"];
    let asked = muster(dir.path(), &dry).await;
    let words = "1 node gets no entry any more and keeps what is there: db-1.test";
    assert_eq!(code(&asked), 2);
    assert!(out(&asked).contains(words), "{}", out(&asked));
    let json = muster(dir.path(), &[&["--json"], &dry[..]].concat()).await;
    let json: serde_json::Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(json["leftOut"], serde_json::json!({"count": 1, "first": ["db-1.test"]}));
    let done = muster(dir.path(), &["publish", "--operator", operator, "--yes"]).await;
    assert!(out(&done).contains(words), "{}", out(&done));
}
