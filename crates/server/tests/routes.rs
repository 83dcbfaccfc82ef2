//! WIR-3: the router answers every route of the table, under both of its names, and nothing
//! else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use http::Method;
use model::Digest;
use test_support::fleet::{Fleet, call, refused};
use wire::Code;
use wire::headers::SIGNATURE;
use wire::route::{self, Access, ROUTES};

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

#[tokio::test]
async fn every_route_of_the_table_is_answered_and_no_other_method() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let message = br#"{"incarnation":"i1","facts":[]}"#.to_vec();
    for route in ROUTES {
        for path in [Some(route.path), route.by_node].into_iter().flatten() {
            let path = path
                .replace("{digest}", &Digest::of(b"nothing").to_string())
                .replace("{id}", "stable@0a")
                .replace("{hash}", "0c6kzph7l0dcbfmjap64f0czdafn3b7x")
                .replace("{node_id}", node.id.as_str());
            for method in METHODS {
                let allowed = method == route.method;
                let method: Method = method.parse().unwrap();
                let bytes = if method == Method::POST { message.clone() } else { Vec::new() };
                let mut request = node.signed(method.clone(), &path, bytes);
                if route.access == Access::Stream && allowed {
                    // Events that are asked for well come for as long as somebody reads them.
                    request.headers_mut().remove(SIGNATURE);
                }
                let response = node.send(request).await;
                let status = response.status().as_u16();
                if allowed {
                    // Answered: well, or refused for what was asked and not for where.
                    let expected = match (route.path, route.access) {
                        (route::BLOB | route::CLOSURE, _) => Code::NotEntitled.status(),
                        (route::TRUST_LINKS | route::ROLLOUT, _) => Code::NotFound.status(),
                        (route::DISPATCH, _) => 204,
                        (
                            route::ENROLL
                            | route::BOOTSTRAP_REPORT
                            | route::RENEW
                            | route::RECOVER
                            | route::EVENTS,
                            _,
                        ) => Code::BadBody.status(),
                        (route::STREAM, _) => Code::Unsigned.status(),
                        (_, Access::Certificate | Access::Stream | Access::Standard) => {
                            Code::MediaType.status()
                        }
                        _ => 200,
                    };
                    assert_eq!(status, expected, "{method} {path}: {response:?}");
                } else {
                    refused(&response, Code::MethodNotAllowed);
                }
            }
        }
    }
}

#[tokio::test]
async fn nothing_else_is_answered() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut client = node.dial().await;
    let digest = Digest::of(b"nothing");
    let id = &node.id;
    let paths = [
        "/".to_owned(),
        "/v1".to_owned(),
        "/v1/agent".to_owned(),
        "/v1/agent/checkin/".to_owned(),
        "/v1/agent//checkin".to_owned(),
        "/v1/agent/Checkin".to_owned(),
        "/v1/agent/checkin/x".to_owned(),
        "/v1/agent/%63heckin".to_owned(),
        "/v2/agent/checkin".to_owned(),
        "/v1/enroll/x".to_owned(),
        "/v1/blobs".to_owned(),
        "/v1/blobs/".to_owned(),
        format!("/v1/blobs/{digest}/x"),
        "/v1/nodes//checkin".to_owned(),
        format!("/v1/nodes/{id}"),
        format!("/v1/nodes/{id}/"),
        format!("/v1/nodes/{id}/checkin/x"),
        format!("/v1/nodes/{id}/../{id}/checkin"),
        // The operator's routes are not here.
        "/v1/status".to_owned(),
        "/v1/nodes".to_owned(),
        "/v1/releases".to_owned(),
    ];
    for path in &paths {
        for method in [Method::GET, Method::POST] {
            let bytes = if method == Method::POST { b"{}".to_vec() } else { Vec::new() };
            refused(&call(&mut client, node.signed(method, path, bytes)).await, Code::NotFound);
        }
    }
    // A digest that is none names nothing.
    for name in ["x", "../../etc/passwd", "sha256"] {
        let path = route::BLOB.replace("{digest}", &name.replace('/', "%2F"));
        refused(&call(&mut client, node.signed(Method::GET, &path, Vec::new())).await, Code::NotFound);
    }
    node.survives().await;
}

#[test]
fn the_table_names_each_route_once() {
    let mut seen = BTreeSet::new();
    for route in ROUTES {
        for path in [Some(route.path), route.by_node].into_iter().flatten() {
            assert!(seen.insert((route.method, path)), "{path} is in the table twice");
            let known = ["/v1/", "/muster.v1.", "/grpc."].iter().any(|start| path.starts_with(start));
            assert!(known, "{path}");
            assert_eq!(path.matches('{').count(), usize::from(path.contains('{')), "{path}");
        }
    }
}
