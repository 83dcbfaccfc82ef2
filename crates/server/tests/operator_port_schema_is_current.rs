//! WIR-1: docs/schema/operator-port.json describes every operation of the operator port, as OpenAPI 3.1
//! with the JSON Schema of every body, made from the types; MUSTER_BLESS=1 writes it anew. That what the port
//! answers is valid by it is looked at in every test that asks an operator (`fleet::described`); here,
//! that this finds what is not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use http::Method;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use server::api::authority::STAGE_AUTHORITY;
use server::api::closures::*;
use server::api::joins::*;
use server::api::lists::*;
use server::api::objects::*;
use server::api::operation::Operation;
use server::api::operators::*;
use server::api::rollouts::*;
use server::api::sealing::*;
use server::api::work::*;
use server::api::*;
use test_support::fleet::{Fleet, described};
use wire::Problem;
use wire::body::JSON;
use wire::problem::PROBLEM_JSON;

macro_rules! operations {
    ($generator:ident: $($operation:ident)*) => {
        vec![$(described_as(stringify!($operation), &$operation, &mut $generator)),*]
    };
}

fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let operations = operations!(generator:
        STATUS NODES NODE ENTRY REMOVE_NODE SEALING_KEYS JOINS APPROVE_JOIN DENY_JOIN FORGET_JOIN RESOLVE_COPY TRAITS FACTS RUNS RUN HEAD
        RELEASES CHUNK MISSING FETCH PUT_CHUNKS PUT_CLOSURE
        COMMIT ADD_BEACONS LISTS ADD_LISTS FAILED_JOINS REQUEST_RUN REQUEST_TAGGED_RUN TRUST ADD_TRUST STAGE_AUTHORITY ISSUE_PROXY
        SET_LOG_LEVEL
        OBJECTS OBJECT APPLY DELETE_OBJECTS SYNC RESYNC
        SELECT TASKS TASK TASK_NODES OUTPUT BEGIN_TASK CANCEL_TASK
        WORKFLOWS WORKFLOW BEGIN_WORKFLOW CONTROL_WORKFLOW
        ROLLOUTS ROLLOUT ROLLOUT_NODES EXPLAIN_ROLLOUT CONTROL_ROLLOUT
        WHOAMI OPERATORS ADD_OPERATOR REVOKE_OPERATOR
        OPERATOR_AUTHORITIES ROTATE_OPERATOR_AUTHORITY RETIRE_OPERATOR_AUTHORITY RENEW_OPERATOR AUDIT
    );
    let mut paths = contents();
    for (path, method, operation) in operations {
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        assert!(methods.as_object_mut().unwrap().insert(method, operation).is_none(), "{path} twice");
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "The operator port of a Muster control plane",
            "version": "1",
        },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

/// Contents are no JSON.
fn contents() -> Map<String, Value> {
    let bytes = json!({ "application/octet-stream": {} });
    let answer = |content| json!({ "200": { "description": "The answer", "content": content } });
    let digest = json!({ "name": "digest", "in": "path", "required": true, "schema": { "type": "string" } });
    let paths = json!({
        CONTENTS: { "post": {
            "operationId": "put_contents",
            "description": "Each content with its length before it, 4 bytes, big-endian; answers how many were new.",
            "requestBody": { "content": bytes },
            "responses": answer(json!({ JSON: { "schema": { "type": "integer" } } })),
        } },
        (format!("{CONTENTS}/{{digest}}")): { "get": {
            "operationId": "content",
            "parameters": [digest],
            "responses": answer(bytes),
        } },
    });
    paths.as_object().unwrap().clone()
}

/// Path, method and description of an operation.
fn described_as<Q: JsonSchema, A: JsonSchema>(
    name: &str,
    operation: &Operation<Q, A>,
    generator: &mut SchemaGenerator,
) -> (&'static str, String, Value) {
    let inline = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let fields = inline.into_generator().into_root_schema_for::<Q>();
    let none = Map::new();
    let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let in_path = |name: &str| operation.path.contains(&format!("{{{name}}}"));
    let is_post = operation.method == Method::POST;
    let required: Vec<&str> = fields
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let parameters = properties.iter().filter(|(name, _)| in_path(name) || !is_post).map(|(name, schema)| {
        let place = if in_path(name) { "path" } else { "query" };
        let required = in_path(name) || required.contains(&name.as_str());
        json!({ "name": name, "in": place, "required": required, "schema": schema })
    });
    let parameters: Vec<Value> = parameters.collect();
    let problem = generator.subschema_for::<Problem>();
    let mut described = json!({
        "operationId": name.to_lowercase(),
        "responses": {
            "200": {
                "description": "The answer",
                "content": { JSON: { "schema": generator.subschema_for::<A>() } },
            },
            "default": {
                "description": "A refusal",
                "content": { PROBLEM_JSON: { "schema": problem } },
            },
        },
    });
    if is_post {
        let mut schema = Value::from(generator.subschema_for::<Q>());
        if !parameters.is_empty() {
            // What the path names need not be in the body.
            let rest = |name: &str| !in_path(name);
            let properties: Map<_, _> = properties
                .iter()
                .filter(|(name, _)| rest(name))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let required: Vec<_> = required.iter().filter(|name| rest(name)).collect();
            schema = json!({ "type": "object", "properties": properties, "required": required });
        }
        described["requestBody"] = json!({ "content": { JSON: { "schema": schema } } });
    }
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    (operation.path, operation.method.as_str().to_lowercase(), described)
}

#[test]
fn the_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/operator-port.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "operator-port.json is not current; MUSTER_BLESS=1 writes it");
}

#[tokio::test]
async fn what_is_not_as_described_is_found() {
    let fleet = Fleet::start().await;
    fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    let request = Vec::new();
    let good = operator.raw(Method::GET, "/v1/nodes", request.clone()).await;
    let looked = |path: &str, body: &Value| {
        let mut response = good.clone();
        *response.body_mut() = serde_json::to_vec(body).unwrap().into();
        catch_unwind(AssertUnwindSafe(|| described::check(&Method::GET, path, &request, &response))).is_ok()
    };
    let answer: Value = serde_json::from_slice(good.body()).unwrap();
    assert!(looked("/v1/nodes?limit=1", &answer));
    assert!(!looked("/v1/no-such-thing", &answer));
    let mut other = answer.clone();
    other["nodes"][0]["state"] = "marvellous".into();
    assert!(!looked("/v1/nodes", &other), "no such word");
    let mut other = answer.clone();
    other["nodes"][0].as_object_mut().unwrap().remove("hostname");
    assert!(!looked("/v1/nodes", &other), "something is missing");
    let refused = operator.raw(Method::GET, "/v1/nodes/nobody", Vec::new()).await;
    assert_eq!(refused.status(), 404);
}
