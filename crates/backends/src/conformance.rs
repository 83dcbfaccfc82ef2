//! What every backend keeps (SYN-9), as checks that a backend's tests run on it.

use bytes::Bytes;
use model::ObjectKey;

use crate::backend::{Apply, Backend, BackendError, Deleted, Expect, Found, Precondition};
use crate::signals::{Changes, Signal, Signals};

/// A backend under check, and the ways around it.
pub trait Subject {
    /// The backend.
    fn backend(&mut self) -> &mut dyn Backend;
    /// Puts an object as a user does, not as synchronization does.
    fn edit(&mut self, key: &ObjectKey, spec: &[u8]);
    /// Deletes an object as a user does.
    fn erase(&mut self, key: &ObjectKey);
    /// Lets what users did settle, however long that takes.
    fn settle(&mut self);
}

/// What a check found wrong.
pub type Outcome = Result<(), String>;
/// A check; it wants a subject without objects.
pub type Check = fn(&mut dyn Subject) -> Outcome;

/// All checks, by name.
pub const CHECKS: &[(&str, Check)] = &[
    ("what is applied is found", applied_is_found),
    ("applying again changes nothing", apply_is_idempotent),
    ("expectations are kept", expectations_hold),
    ("preconditions of deletes are kept", preconditions_hold),
    ("own changes are no signals", own_changes_do_not_echo),
    ("changes of users are signals", edits_are_signalled),
    ("a status is a subresource", status_is_apart),
    ("a uid given here is kept while the object lives", uids_are_kept),
    ("versions follow content", versions_follow_content),
    ("content of another object is refused for good", foreign_content_is_refused),
];

/// A key for checks.
pub fn key(name: &str) -> ObjectKey {
    let section = model::SectionKey { kind: model::Kind::new("Widget"), namespace: "checks".into() };
    ObjectKey { section, name: name.into() }
}

/// The content of an object with a number in its spec.
pub fn spec(name: &str, size: u32) -> Bytes {
    let metadata = format!(r#""metadata":{{"name":"{name}","namespace":"checks"}}"#);
    Bytes::from(format!(
        r#"{{"apiVersion":"checks/v1","kind":"Widget",{metadata},"spec":{{"rate":0.5,"size":{size}}}}}"#
    ))
}

fn put(subject: &mut dyn Subject, name: &str, size: u32) -> Result<String, String> {
    let (key, spec) = (key(name), spec(name, size));
    let apply = Apply { key: &key, spec: &spec, source_uid: Some("u-1"), expect: Expect::Anything };
    subject.backend().apply(apply).map(|applied| applied.version).map_err(said)
}

fn found(subject: &mut dyn Subject, name: &str) -> Result<Found, String> {
    let found = subject.backend().get(&key(name)).map_err(said)?;
    found.ok_or_else(|| format!("{name} is not found"))
}

fn said(error: BackendError) -> String {
    format!("{}: {error}", error.code())
}

fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn applied_is_found(subject: &mut dyn Subject) -> Outcome {
    let version = put(subject, "a", 1)?;
    put(subject, "b", 2)?;
    subject.settle();
    let listing = subject.backend().list().map_err(said)?;
    ensure(listing.complete && listing.problems.is_empty(), "the listing is not complete")?;
    ensure(listing.objects.len() == 2, "not both are listed")?;
    let one = found(subject, "a")?;
    ensure(listing.objects.first() == Some(&one), "list and get differ")?;
    ensure(one.version == version, "another version is found")?;
    ensure(one.spec == spec("a", 1), "another spec is found")?;
    ensure(one.source_uid.as_deref() == Some("u-1"), "the source's uid is not recorded")?;
    ensure(one.status.is_none() && !one.deleting, "it has what nobody gave it")
}

fn apply_is_idempotent(subject: &mut dyn Subject) -> Outcome {
    let version = put(subject, "a", 1)?;
    ensure(put(subject, "a", 1)? == version, "the version changed")?;
    subject.settle();
    ensure(put(subject, "a", 1)? == version, "the version changed later")?;
    ensure(found(subject, "a")?.version == version, "another version is found")
}

fn expectations_hold(subject: &mut dyn Subject) -> Outcome {
    let (key, one, two) = (key("a"), spec("a", 1), spec("a", 2));
    let mut apply = |spec: &[u8], expect: Expect| {
        let apply = Apply { key: &key, spec, source_uid: None, expect };
        subject.backend().apply(apply)
    };
    ensure(conflicts(apply(&one, Expect::Version("x".into()))), "a version of nothing holds")?;
    let version = apply(&one, Expect::Absent).map_err(said)?.version;
    ensure(conflicts(apply(&two, Expect::Absent)), "absent holds though it is there")?;
    let next = apply(&two, Expect::Version(version.clone())).map_err(said)?.version;
    ensure(next != version, "another content has the same version")?;
    ensure(conflicts(apply(&one, Expect::Version(version))), "an old version holds")
}

fn conflicts<T>(result: Result<T, BackendError>) -> bool {
    matches!(result, Err(BackendError::Recoverable { code: "conflict", .. }))
}

fn preconditions_hold(subject: &mut dyn Subject) -> Outcome {
    let version = put(subject, "a", 1)?;
    let key = key("a");
    subject.backend().assign_uid(&key, "here-1");
    let with = |uid: Option<&str>, version: Option<&str>| Precondition {
        uid: uid.map(str::to_owned),
        version: version.map(str::to_owned),
    };
    let mut delete = |precondition| subject.backend().delete(&key, &precondition);
    ensure(conflicts(delete(with(Some("other"), None))), "another uid holds")?;
    ensure(conflicts(delete(with(None, Some("other")))), "another version holds")?;
    let gone = delete(with(Some("here-1"), Some(&version))).map_err(said)?;
    ensure(gone == Deleted::Gone, "it is not gone")?;
    let again = delete(with(None, None)).map_err(said)?;
    ensure(again == Deleted::Absent, "it is deleted twice")?;
    subject.settle();
    let listing = subject.backend().list().map_err(said)?;
    ensure(listing.objects.is_empty() && listing.complete, "something is left")
}

fn signals(subject: &mut dyn Subject) -> Result<Signals, String> {
    let signals = subject.backend().watch().map_err(said)?;
    subject.backend().list().map_err(said)?;
    subject.settle();
    while signals.try_next().is_some() {}
    Ok(signals)
}

fn own_changes_do_not_echo(subject: &mut dyn Subject) -> Outcome {
    put(subject, "b", 1)?;
    let signals = signals(subject)?;
    put(subject, "a", 1)?;
    subject.settle();
    put(subject, "b", 2)?;
    subject.backend().put_status(&key("b"), None, Some(br#"{"ready":true}"#)).map_err(said)?;
    subject.settle();
    subject.backend().delete(&key("a"), &Precondition::default()).map_err(said)?;
    subject.settle();
    match signals.try_next() {
        None => Ok(()),
        Some(signal) => Err(format!("an own change came back: {signal:?}")),
    }
}

fn edits_are_signalled(subject: &mut dyn Subject) -> Outcome {
    put(subject, "a", 1)?;
    let signals = signals(subject)?;
    let told = |signals: &Signals, name: &str| -> Outcome {
        while let Some(signal) = signals.try_next() {
            match signal {
                Signal::Changed(Changes::Everything) => return Ok(()),
                Signal::Changed(Changes::Keys(keys)) if keys.contains(&key(name)) => return Ok(()),
                _ => {}
            }
        }
        Err(format!("a change of {name} is not signalled"))
    };
    subject.edit(&key("a"), &spec("a", 7));
    subject.settle();
    told(&signals, "a")?;
    ensure(found(subject, "a")?.spec == spec("a", 7), "the edit is not found")?;
    subject.edit(&key("n"), &spec("n", 1));
    subject.settle();
    told(&signals, "n")?;
    ensure(found(subject, "n")?.source_uid.is_none(), "a user's object has a source")?;
    subject.erase(&key("a"));
    subject.settle();
    told(&signals, "a")?;
    let listing = subject.backend().list().map_err(said)?;
    ensure(listing.objects.len() == 1 && listing.complete, "the deleted one is still there")
}

fn status_is_apart(subject: &mut dyn Subject) -> Outcome {
    let key = key("a");
    let none = subject.backend().put_status(&key, None, Some(b"{}"));
    ensure(matches!(none, Err(BackendError::Recoverable { code: "absent", .. })), "nothing has a status")?;
    let version = put(subject, "a", 1)?;
    let bad = subject.backend().put_status(&key, None, Some(b"[1]"));
    ensure(matches!(bad, Err(BackendError::Permanent { .. })), "a list is a status")?;
    subject.backend().assign_uid(&key, "here-1");
    let other = subject.backend().put_status(&key, Some("other"), Some(b"{}"));
    ensure(conflicts(other), "the status of another uid is taken")?;
    let status = br#"{"phase":"Ready","n":1}"#;
    subject.backend().put_status(&key, Some("here-1"), Some(status)).map_err(said)?;
    for _ in 0..2 {
        let one = found(subject, "a")?;
        ensure(one.status.as_deref() == Some(&br#"{"n":1,"phase":"Ready"}"#[..]), "another status is found")?;
        ensure(one.version == version && one.spec == spec("a", 1), "the status changed the spec")?;
        subject.settle();
    }
    put(subject, "a", 2)?;
    ensure(found(subject, "a")?.status.is_some(), "applying took the status away")?;
    subject.backend().put_status(&key, None, None).map_err(said)?;
    subject.settle();
    ensure(found(subject, "a")?.status.is_none(), "the status is still there")
}

fn uids_are_kept(subject: &mut dyn Subject) -> Outcome {
    subject.edit(&key("a"), &spec("a", 1));
    subject.settle();
    let first = found(subject, "a")?;
    ensure(first.uid.is_none(), "it has a uid of its own")?;
    subject.backend().assign_uid(&key("a"), "here-1");
    subject.edit(&key("a"), &spec("a", 2));
    subject.settle();
    let edited = found(subject, "a")?;
    ensure(edited.uid.as_deref() == Some("here-1"), "an edit made it another")?;
    subject.erase(&key("a"));
    subject.settle();
    subject.edit(&key("a"), &spec("a", 2));
    subject.settle();
    let again = found(subject, "a")?;
    ensure(again.uid.is_none(), "one that was made again is the same")?;
    ensure(again.version == edited.version, "the version depends on the uid given here")
}

fn versions_follow_content(subject: &mut dyn Subject) -> Outcome {
    let one = put(subject, "a", 1)?;
    let two = put(subject, "a", 2)?;
    ensure(one != two, "two contents have one version")?;
    ensure(put(subject, "a", 1)? == one, "one content has two versions")?;
    subject.edit(&key("a"), &spec("a", 1));
    subject.settle();
    let unmarked = found(subject, "a")?;
    ensure(unmarked.source_uid.is_none() && unmarked.version != one, "losing the mark is no change")?;
    let backend = subject.backend();
    ensure(backend.equivalent(&spec("a", 1), &unmarked.spec), "the same is not equivalent")?;
    ensure(!backend.equivalent(&spec("a", 2), &unmarked.spec), "another content is equivalent")
}

fn foreign_content_is_refused(subject: &mut dyn Subject) -> Outcome {
    let bodies: [&[u8]; 5] = [&spec("b", 1), b"", b"[]", b"{}", b"{\"kind\":\"Widget\"}"];
    for spec in bodies {
        let key = key("a");
        let apply = Apply { key: &key, spec, source_uid: None, expect: Expect::Anything };
        let refused = matches!(subject.backend().apply(apply), Err(BackendError::Permanent { .. }));
        ensure(refused, &format!("content is taken: {}", String::from_utf8_lossy(spec)))?;
    }
    let large = vec![b' '; sync::object::MAX_CONTENT + 1];
    let key = key("a");
    let apply = Apply { key: &key, spec: &large, source_uid: None, expect: Expect::Anything };
    let error = subject.backend().apply(apply).err().map(|error| error.code());
    ensure(error == Some("too-large"), "content beyond the bound is taken")?;
    let listing = subject.backend().list().map_err(said)?;
    ensure(listing.objects.is_empty(), "something was made")
}
