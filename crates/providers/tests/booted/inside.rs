//! What this program does in a booted host: one thing to one resource.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::schema::{BindContext, bind};
use converge::run::Undo;
use converge::{JobDone, RunPurpose};
use host::{Host, HostOptions};
use model::{Digest, Fields};
use providers::{Blobs, Kinds};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a command of a resource may take here: a mount that hangs is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a transaction of packages may take here.
const TRANSACTION: Duration = Duration::from_secs(120);

struct NoBlobs;

impl Blobs for NoBlobs {
    fn open(&self, _: &Digest) -> io::Result<Box<dyn Read>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn keep(&self, _: &mut dyn Read) -> io::Result<Digest> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn unpacked(&self, _: &str) -> io::Result<Option<Fields>> {
        Ok(None)
    }

    fn keep_unpacked(&self, _: &str, _: Option<&Fields>) -> io::Result<()> {
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
    if ask.what == "together" {
        return together(&kinds, &ask, &context);
    }
    let spec = bind(&ask.kind, &ask.name, &ask.attributes, &context)?;
    let checked = match kinds.check(&ask.name, &spec, TIMEOUT, true)? {
        JobDone::Checked(checked) => checked,
        other => return Err(format!("{other:?}")),
    };
    match ask.what.as_str() {
        "check" => Ok(serde_json::to_value(checked).unwrap()),
        _ => Ok(serde_json::to_value(kinds.apply(&ask.name, &spec, &checked, TIMEOUT)?).unwrap()),
    }
}

/// Applies several resources in one go, `attributes` by name; what came of each in words.
fn together(kinds: &Kinds, ask: &Ask, context: &BindContext<'_>) -> Result<Value, String> {
    kinds.begin_run(RunPurpose::Converge);
    let mut all = Vec::new();
    for (name, attributes) in &ask.attributes {
        let lang::Value::Map(attributes) = attributes else { return Err(format!("{name}: no attributes")) };
        let spec = bind(&ask.kind, name, attributes, context)?;
        match kinds.check(name, &spec, TRANSACTION, false)? {
            JobDone::Checked(checked) => all.push((name.as_str(), spec, checked)),
            other => return Err(format!("{other:?}")),
        }
    }
    let resources: Vec<_> =
        all.iter().map(|(name, spec, checked)| (*name, spec, checked, TRANSACTION)).collect();
    let results = kinds.apply_together(&resources).into_iter().map(|result| match result {
        Ok(applied) if applied.changed => "changed".to_owned(),
        Ok(_) => "ok".to_owned(),
        Err(why) => why.message,
    });
    let named = all.iter().map(|(name, ..)| (*name).to_owned()).zip(results.map(Value::from));
    Ok(Value::Object(named.collect()))
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
