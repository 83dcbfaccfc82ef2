//! LIF-4: the files of a control plane's directory, as a released version wrote them, stay readable,
//! and this version writes them as they are. The golden directory is of a test fleet; nothing else
//! trusts its keys. `MUSTER_BLESS=1` makes another one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::Timestamp;
use server::{Posture, posture};

const FILES: [&str; 9] = [
    "enroll.json",
    "node-ca.key",
    "node-ca.pem",
    "operator-ca.key",
    "operator-ca.pem",
    "operator.json",
    "release.key",
    "root.key",
    "trust.json",
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/directory")
}

fn now() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

/// Opens a directory as a control plane does, and writes what it writes.
fn open(directory: &Path) -> posture::Founded {
    let founded = posture::open(directory, Some(&"demo".parse().unwrap()), now()).unwrap();
    let operator = "https://muster.example:9443".parse().unwrap();
    let nodes = ["https://muster.example:8443".parse().unwrap()];
    posture::write_client_files(directory, &founded, &operator, &nodes, now()).unwrap();
    founded
}

fn files(directory: &Path) -> BTreeMap<String, String> {
    let read = |name: &&str| (name.to_string(), std::fs::read_to_string(directory.join(name)).unwrap());
    FILES.iter().map(read).collect()
}

/// The names and types in a JSON value, its texts and numbers left out.
fn shape(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), shape(value))).collect()
        }
        serde_json::Value::Array(list) => list.iter().map(shape).collect(),
        serde_json::Value::String(_) => "text".into(),
        serde_json::Value::Number(_) => "number".into(),
        other => other.clone(),
    }
}

#[test]
fn a_directory_of_before_is_opened_and_stays_as_it_is() {
    if std::env::var_os("MUSTER_BLESS").is_some() {
        let _ = std::fs::remove_dir_all(golden());
        open(&golden());
    }
    let directory = tempfile::tempdir().unwrap();
    let kept = files(&golden());
    for (name, text) in &kept {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let founded = open(directory.path());
    assert!(!founded.new && founded.posture == Posture::Lab && founded.release_key.is_some());
    assert_eq!(files(directory.path()), kept, "operator.json and enroll.json are written as they were");

    // Credentials of before held no trust document: they get it, and are otherwise as they were.
    let operator = directory.path().join("operator.json");
    let mut of_before: serde_json::Value = serde_json::from_str(&kept["operator.json"]).unwrap();
    assert!(of_before.as_object_mut().unwrap().remove("trust").is_some());
    std::fs::write(&operator, of_before.to_string()).unwrap();
    open(directory.path());
    assert_eq!(files(directory.path()), kept);

    // What a new directory gets has the form of the golden one.
    let new = tempfile::tempdir().unwrap();
    open(&new.path().join("new"));
    for (name, text) in files(&new.path().join("new")) {
        let kept = &kept[&name];
        match name.ends_with(".json") {
            true => {
                let parsed = |text: &str| shape(&serde_json::from_str(text).unwrap());
                assert_eq!(parsed(&text), parsed(kept), "{name}");
            }
            false => {
                let first = |text: &str| text.split([':', '\n']).next().unwrap().to_owned();
                assert_eq!(first(&text), first(kept), "{name}");
            }
        }
    }
}
