//! Every request and answer of the operator port that a test sees is as docs/schema/operator-port.json
//! says (WIR-1).

use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/operator-port.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the schema is there")).unwrap()
});

/// Panics when something is not as it is described. A request that was refused may be anything.
pub fn check(method: &Method, path: &str, request: &[u8], response: &Response<Bytes>) {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let Some(kind) = kind.filter(|kind| kind.ends_with("json")) else { return };
    let path = path.split('?').next().unwrap();
    let templates = DOCUMENT["paths"].as_object().unwrap();
    let found = templates.iter().find(|(template, _)| is_of(template, path));
    let described = found.map(|(_, methods)| &methods[method.as_str().to_lowercase()]);
    let answer = serde_json::from_slice(response.body()).unwrap();
    if response.status() != StatusCode::OK {
        let problem = json!({ "$ref": "#/components/schemas/Problem" });
        return valid(path, &problem, &answer);
    }
    let described = described.filter(|described| described.is_object());
    let described = described.unwrap_or_else(|| panic!("{method} {path} is not described"));
    valid(path, &described["responses"]["200"]["content"][kind]["schema"], &answer);
    let schema = &described["requestBody"]["content"][kind]["schema"];
    if !request.is_empty() && schema.is_object() {
        valid(path, schema, &serde_json::from_slice(request).unwrap());
    }
}

fn is_of(template: &str, path: &str) -> bool {
    let (wanted, given) = (template.split('/'), path.split('/'));
    template.split('/').count() == path.split('/').count()
        && wanted.zip(given).all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
}

fn valid(path: &str, schema: &Value, value: &Value) {
    let mut schema = schema.as_object().expect("there is a schema").clone();
    schema.insert("components".to_owned(), DOCUMENT["components"].clone());
    if let Err(error) = jsonschema::draft202012::validate(&schema.into(), value) {
        panic!("{path}: {error} at {}: {value}", error.instance_path());
    }
}
