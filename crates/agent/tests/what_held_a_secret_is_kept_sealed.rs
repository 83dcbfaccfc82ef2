//! SEC-3, CNV-10: what a file that holds a secret was before a change is kept under the host's own key, is recorded by a
//! digest that tells nobody what it was, and can be put back; the sealing key is the host's own and is read by its owner alone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use agent::identity::{self, KeyError, SEALING_KEY_FILE};
use agent::state::StateDir;
use catalog::types::{Ensure, FileContent, FileSpec, InTheWay, Ownership, Spec};
use converge::kinds::Checked;
use converge::{JobDone, Prior, Undo};
use host::{Host, HostOptions};
use model::{Digest, PathState};
use providers::Kinds;

const BEFORE: &[u8] = b"planted-before";
const TIME: Duration = Duration::from_secs(60);

#[test]
fn and_comes_back_as_it_was() {
    let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let durable = Arc::new(StateDir::create(state.path()).unwrap().open().unwrap());
    let host = Arc::new(Host::open(root.path(), HostOptions::default()).unwrap());
    let kinds = Kinds::new(host, durable);
    let file = root.path().join("key");
    fs::write(&file, BEFORE).unwrap();
    let spec = Spec::File(FileSpec {
        path: "/key".to_owned(),
        ensure: Ensure::Present,
        content: Some(FileContent::text("planted-after")),
        ownership: Ownership { mode: Some(0o600), ..Ownership::default() },
        validate: None,
        backup: false,
        in_the_way: InTheWay::Stays,
    });
    let Ok(JobDone::Checked(checked)) = kinds.check("key", &spec, TIME, false) else { panic!("no check") };
    let checked: Checked = kinds.seal_prior(&spec, checked).unwrap();
    let Prior::Path(PathState::File { digest, .. }) = &checked.prior else { panic!("{:?}", checked.prior) };
    assert_ne!(*digest, Digest::of(BEFORE), "a plain digest of a short value is as good as the value");
    assert!(kinds.keep_prior_sealed(&spec, &checked).unwrap());
    assert!(kinds.apply("key", &spec, &checked, TIME).unwrap().changed);
    assert_eq!(fs::read(&file).unwrap(), b"planted-after");
    let mut looked = 0;
    let mut todo = vec![state.path().to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            looked += 1;
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(7).any(|part| part == b"planted"), "{}", path.display());
        }
    }
    assert!(looked > 1, "what is kept was looked at");
    let (kind, attributes, made) = ("file".to_owned(), BTreeMap::new(), Vec::new());
    kinds
        .undo(&Undo { path: "/key".to_owned(), prior: checked.prior, kept: true, kind, attributes, made })
        .unwrap();
    assert_eq!(fs::read(&file).unwrap(), BEFORE);
}

#[test]
fn the_sealing_key_is_made_once_and_is_its_owner_s() {
    let state = tempfile::tempdir().unwrap();
    let made = identity::sealing_key(state.path()).unwrap();
    let path = state.path().join(SEALING_KEY_FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(identity::sealing_key(state.path()).unwrap().public(), made.public());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(identity::sealing_key(state.path()), Err(KeyError::Open { .. })));
    fs::write(&path, "hunter2").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = identity::sealing_key(state.path()).unwrap_err();
    assert!(matches!(error, KeyError::SealingForm { .. }) && !error.to_string().contains("hunter2"));
}
