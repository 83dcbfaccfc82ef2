//! What every backend keeps (SYN-9), as checks.

use bytes::Bytes;
use model::ObjectKey;

use backends::{ApplyRequest, Backend, BackendError, Deleted, ErrorClass, Expect, FoundObject};

use super::{changed, watch};

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

/// The checks of all backends, by name.
pub const CHECKS: &[(&str, Check)] = &[
    ("what is applied is found", applied_is_found),
    ("applying again changes nothing", apply_is_idempotent),
    ("expectations are kept", expectations_hold),
    ("preconditions of deletes are kept", preconditions_hold),
    ("a uid given here is kept while the object lives", uids_are_kept),
    ("versions follow content", versions_follow_content),
    ("content of another object is refused for good", foreign_content_is_refused),
];

/// The checks of backends that others change too, by name.
pub const WATCH_CHECKS: &[(&str, Check)] = &[
    ("the listener does not hear of own changes", own_changes_do_not_echo),
    ("the listener hears of changes of users", edits_are_told),
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
    let apply = ApplyRequest { key: &key, spec: &spec, source_uid: Some("u-1"), expect: Expect::Anything };
    subject.backend().apply(apply).map(|applied| applied.version).map_err(said)
}

fn found(subject: &mut dyn Subject, name: &str) -> Result<FoundObject, String> {
    let found = subject.backend().get(&key(name)).map_err(said)?;
    found.ok_or_else(|| format!("{name} is not found"))
}

fn said(error: BackendError) -> String {
    format!("{}: {error}", error.code)
}

fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn applied_is_found(subject: &mut dyn Subject) -> Outcome {
    let version = put(subject, "a", 1)?;
    put(subject, "b", 2)?;
    subject.settle();
    let listing = subject.backend().list();
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
        let apply = ApplyRequest { key: &key, spec, source_uid: None, expect };
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
    matches!(result, Err(BackendError { class: ErrorClass::Recoverable, code: "conflict", .. }))
}

fn preconditions_hold(subject: &mut dyn Subject) -> Outcome {
    let version = put(subject, "a", 1)?;
    let key = key("a");
    let mut delete = |expect| subject.backend().delete(&key, &expect);
    ensure(conflicts(delete(Expect::Version("other".into()))), "another version holds")?;
    ensure(conflicts(delete(Expect::Absent)), "absent holds though it is there")?;
    let gone = delete(Expect::Version(version)).map_err(said)?;
    ensure(gone == Deleted::Removed, "it is not gone")?;
    let again = delete(Expect::Anything).map_err(said)?;
    ensure(again == Deleted::Absent, "it is deleted twice")?;
    subject.settle();
    let listing = subject.backend().list();
    ensure(listing.objects.is_empty() && listing.complete, "something is left")
}

fn own_changes_do_not_echo(subject: &mut dyn Subject) -> Outcome {
    put(subject, "b", 1)?;
    subject.backend().list();
    subject.settle();
    let told = watch(subject.backend());
    subject.settle();
    put(subject, "a", 1)?;
    subject.settle();
    put(subject, "b", 2)?;
    subject.settle();
    subject.backend().delete(&key("a"), &Expect::Anything).map_err(said)?;
    subject.settle();
    ensure(!changed(&told), "an own change came back")
}

fn edits_are_told(subject: &mut dyn Subject) -> Outcome {
    put(subject, "a", 1)?;
    subject.backend().list();
    let told = watch(subject.backend());
    subject.settle();
    changed(&told);
    subject.edit(&key("a"), &spec("a", 7));
    subject.settle();
    ensure(changed(&told), "an edit is not told")?;
    ensure(found(subject, "a")?.spec == spec("a", 7), "the edit is not found")?;
    subject.edit(&key("n"), &spec("n", 1));
    subject.settle();
    ensure(changed(&told), "a new object is not told")?;
    ensure(found(subject, "n")?.source_uid.is_none(), "a user's object has a source")?;
    subject.erase(&key("a"));
    subject.settle();
    ensure(changed(&told), "a deletion is not told")?;
    let listing = subject.backend().list();
    ensure(listing.objects.len() == 1 && listing.complete, "the deleted one is still there")
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
        let apply = ApplyRequest { key: &key, spec, source_uid: None, expect: Expect::Anything };
        let refused =
            matches!(subject.backend().apply(apply), Err(BackendError { class: ErrorClass::Permanent, .. }));
        ensure(refused, &format!("content is taken: {}", String::from_utf8_lossy(spec)))?;
    }
    let large = vec![b' '; sync::object::MAX_CONTENT + 1];
    let key = key("a");
    let apply = ApplyRequest { key: &key, spec: &large, source_uid: None, expect: Expect::Anything };
    let error = subject.backend().apply(apply).err().map(|error| error.code);
    ensure(error == Some("too-large"), "content beyond the bound is taken")?;
    let listing = subject.backend().list();
    ensure(listing.objects.is_empty(), "something was made")
}
