//! OPS-2: a query's equal answers are shown once, the most frequent first, and nodes without
//! an answer with why.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::screen::Screen;
use cli::task::{answers, answers_text as text, within};
use model::Timestamp;
use model::work::ActionOutcome;
use plane::work::NodeStage;
use serde_json::{Value, json};
use server::api::work::TaskNodeView;

fn node(name: &str, outcome: Option<ActionOutcome>) -> TaskNodeView {
    TaskNodeView {
        node: format!("n-{}", &model::Digest::of(name.as_bytes()).to_string()[..32]).parse().unwrap(),
        hostname: Some(format!("{name}.test").parse().unwrap()),
        stage: if outcome.is_some() { NodeStage::Ended } else { NodeStage::Offline },
        since: Timestamp(0),
        expires: None,
        outcome,
        duration_ms: None,
    }
}

fn answered(name: &str, result: Value) -> TaskNodeView {
    node(name, Some(ActionOutcome::Answered { result }))
}

fn told(nodes: &[TaskNodeView], path: Option<&str>) -> String {
    text(&answers("t-1", nodes, path), Screen::of_process(false))
}

#[test]
fn equal_traits_stand_on_one_line() {
    let of = |version: &str| json!({"os": {"version": version, "id": "debian"}, "up": 1});
    let nodes = [
        answered("web-1", of("12")),
        answered("web-2", of("11")),
        answered("web-3", of("12")),
        node("web-4", None),
        answered("web-5", json!({"up": 2})),
    ];
    let want = "\
5 nodes: 2 answers
         ANSWER  NODES
     2x  12      web-1.test, web-3.test
     1x  11      web-2.test
     1x  has nothing of that name  web-5.test
     1x  offline, so it was not asked  web-4.test
         next: --wait 1h waits for nodes that cannot be reached
";
    let text = told(&nodes, Some("os.version"));
    assert_eq!(
        text.lines().map(str::trim_end).collect::<Vec<_>>(),
        want.lines().collect::<Vec<_>>(),
        "{text}"
    );
}

#[test]
fn the_order_of_keys_makes_no_other_answer() {
    let one: Value = serde_json::from_str(r#"{"a": 1, "b": [1, 2]}"#).unwrap();
    let same: Value = serde_json::from_str(r#"{"b": [1, 2], "a": 1}"#).unwrap();
    let found = answers("t-1", &[answered("web-1", one), answered("web-2", same)], None);
    assert_eq!((found.answers.len(), found.asked), (1, 2));
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["answers"][0]["nodes"], json!(["web-1.test", "web-2.test"]));
    assert_eq!(json["answers"][0]["answer"]["a"], 1);
}

#[test]
fn a_list_of_maps_is_a_table_and_a_text_stands_behind_a_bar() {
    let listeners =
        json!([{"port": 80, "protocol": "tcp"}, {"port": 53, "protocol": "udp", "process": "dnsd"}]);
    let want = "\
1 node: 1 answer

     1x  web-1.test
         PORT  PROCESS  PROTOCOL
         80             tcp
         53    dnsd     udp
";
    assert_eq!(told(&[answered("web-1", listeners)], None), want);
    let file = json!({"mode": "0644", "content": "one\ntwo\n"});
    let want = "\
1 node: 1 answer

     1x  web-1.test
         content:
           | one
           | two
         mode: 0644
";
    assert_eq!(told(&[answered("web-1", file)], None), want);
}

#[test]
fn a_path_goes_through_maps_and_lists() {
    let value = json!({"network": {"addresses": ["192.0.2.1", "192.0.2.2"]}});
    assert_eq!(within(&value, "network.addresses.1"), Some(&json!("192.0.2.2")));
    assert_eq!(within(&value, "network.nothing"), None);
    assert_eq!(within(&value, "network.addresses.9"), None);
}

/// A17: what is not there is no empty answer.
#[test]
fn nodes_that_have_no_such_trait_are_named() {
    let has = |version: &str| json!({"traits": {"os": {"version": version}}});
    let lacks = || json!({"traits": {"os": {}}});
    let nodes = [answered("web-1", has("12")), answered("web-2", lacks()), answered("web-3", lacks())];
    let found = answers("t-1", &nodes, Some("os.version"));
    assert_eq!(found.absent, ["web-2.test", "web-3.test"]);
    assert_eq!(found.answers.len(), 1);
    let text = told(&nodes, Some("os.version"));
    assert!(text.contains("2x  has nothing of that name  web-2.test, web-3.test"), "{text}");
    assert!(!text.contains("(nothing)"), "{text}");
    let null = answers("t-1", &[answered("web-1", json!({"a": null}))], Some("a"));
    assert!(null.absent.is_empty() && null.answers.len() == 1, "an empty answer is an answer");
}
