//! What this program does in a booted host: one thing to one resource.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::schema::{BindContext, bind};
use converge::JobDone;
use converge::run::Undo;
use host::{Host, HostOptions};
use model::Digest;
use providers::{Blobs, Kinds};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a command of a resource may take here: a mount that hangs is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);

struct NoBlobs;

impl Blobs for NoBlobs {
    fn open(&self, _: &Digest) -> io::Result<Box<dyn Read>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn keep(&self, _: &mut dyn Read) -> io::Result<Digest> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[derive(Deserialize)]
struct Ask {
    what: String,
    kind: String,
    name: String,
    attributes: BTreeMap<String, lang::Value>,
    #[serde(default)]
    prior: Option<converge::Prior>,
}

fn done(ask: Ask) -> Result<Value, String> {
    let host = Host::open(Path::new("/"), HostOptions::default()).unwrap();
    let kinds = Kinds::new(Arc::new(host), Arc::new(NoBlobs));
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    if let Some(prior) = ask.prior {
        let undo = Undo { path: ask.name, prior, kept: false, kind: ask.kind, attributes: ask.attributes };
        return kinds.undo(&undo).map(|()| Value::Null);
    }
    let spec = bind(&ask.kind, &ask.name, &ask.attributes, &context)?;
    let checked = match kinds.check(&ask.name, &spec, TIMEOUT, true)? {
        JobDone::Checked(checked) => checked,
        other => return Err(format!("{other:?}")),
    };
    match ask.what.as_str() {
        "check" => Ok(serde_json::to_value(checked).unwrap()),
        _ => kinds.apply(&ask.name, &spec, &checked, TIMEOUT).map(|it| serde_json::to_value(it).unwrap()),
    }
}

#[test]
fn what_is_asked_is_done() {
    if std::env::var_os("MUSTER_INSIDE").is_none() {
        println!("skipped: it is the part that runs in a booted host");
        return;
    }
    let ask = serde_json::from_slice(&fs::read("/root/ask.json").unwrap()).unwrap();
    let answer = match done(ask) {
        Ok(done) => json!({"done": done}),
        Err(error) => json!({"error": error}),
    };
    fs::write("/root/answer.json", answer.to_string()).unwrap();
}
