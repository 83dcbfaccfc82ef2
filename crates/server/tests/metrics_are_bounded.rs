//! OPS-4: metrics, health and readiness; no series is of one node, so their number is the same
//! for any fleet. Levels of logs change while it runs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};

use http::Method;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use server::api::LogLevel;
use test_support::fleet::synced::{managed, manifest, publish};
use test_support::fleet::{Fleet, Operator, refuses};
use wire::Code;

/// What the operator port says in plain text.
async fn text(operator: &mut Operator, path: &str) -> (u16, String) {
    let response = operator.raw(Method::GET, path, Vec::new()).await;
    (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count()
}

fn value(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().unwrap().to_owned()
}

async fn work_on(fleet: &Fleet, operator: &mut Operator, name: &str) {
    fleet.node(name).await.survives().await;
    operator.apply(vec![manifest(name, "shop", 1), manifest(name, "no", 1)]).await;
    operator.begin(name, &["/bin/true"]).await;
    operator.actions_when(name, 1).await;
}

#[tokio::test]
async fn a_larger_fleet_has_no_more_series() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let names: Vec<String> = (0..6).map(|n| format!("web-{n}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), managed())).collect();
    publish(&fleet, &mut operator, &nodes).await;
    work_on(&fleet, &mut operator, "web-0").await;
    let (status, before) = text(&mut operator, "/metrics").await;
    assert_eq!(status, 200);
    assert!(before.trim_end().ends_with("# EOF"), "OpenMetrics ends so");
    for name in &names[1..] {
        work_on(&fleet, &mut operator, name).await;
    }
    let (_, after) = text(&mut operator, "/metrics").await;
    assert_eq!(series(&before), series(&after));
    assert!(!names.iter().any(|name| after.contains(name)), "{after}");
    assert_eq!(value(&after, "muster_objects_accepted_total"), "12");
    assert_eq!(value(&after, "muster_now{what=\"queue_depth\"}"), "18");
    assert_eq!(value(&after, "muster_now{what=\"nodes_behind\"}"), "6");
    assert_eq!(value(&after, "muster_tasks{state=\"running\"}"), "6");
    assert_eq!(value(&after, "muster_checkins_total"), "6");
}

#[tokio::test]
async fn refusals_are_counted_by_code() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let refused: Result<serde_json::Value, _> = operator.get("/v1/nodes/nobody").await;
    refuses(refused, Code::NotFound);
    let (_, metrics) = text(&mut operator, "/metrics").await;
    assert_eq!(value(&metrics, "muster_failures_total{code=\"not-found\"}"), "1");
}

#[tokio::test]
async fn it_says_whether_it_lives_and_is_ready() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    assert_eq!(text(&mut operator, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(text(&mut operator, "/readyz").await, (200, "ready\n".to_owned()));
}

#[tokio::test]
async fn scrapers_have_a_listener_of_their_own_when_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let levels: Arc<Mutex<Vec<String>>> = Arc::default();
    let set = levels.clone();
    let log = server::LogControl::new(move |level| match level {
        "debug" | "info" => {
            set.lock().unwrap().push(level.to_owned());
            Ok(())
        }
        other => Err(format!("{other:?} is no level")),
    });
    let config = server::Config {
        metrics_address: Some(([127, 0, 0, 1], 0).into()),
        log: Some(log),
        ..test_support::fleet::config(dir.path(), 0, 0)
    };
    let running = server::start(config).await.unwrap();
    let address = running.metrics_address.unwrap();
    for (path, wanted) in [("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/v1/nodes", 404)] {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut send, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request =
            http::Request::get(path).header("host", "x").body(Full::<bytes::Bytes>::default()).unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), wanted, "{path}");
        response.into_body().collect().await.unwrap();
    }
    let fleet = Fleet::of(dir, running);
    let mut operator = fleet.operator().await;
    let said: LogLevel = operator.post("/v1/log-level", &json!({"level": "debug"})).await.unwrap();
    assert_eq!(said.level, "debug");
    assert_eq!(*levels.lock().unwrap(), ["debug"]);
    let refused: Result<LogLevel, _> = operator.post("/v1/log-level", &json!({"level": "loud"})).await;
    refuses(refused, Code::BadBody);
}
