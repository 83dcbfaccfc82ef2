//! EXE-1: `muster check` and the node read attributes through one table; what binds is
//! typed, what does not says why.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use catalog::module::{CommandLine, FileRef};
use catalog::schema::{BindContext, ProblemKind, bind, check, find};
use catalog::types::{Ensure, FileContent, Script, Spec};
use lang::Value;
use model::Digest;

fn attributes(json: &str) -> BTreeMap<String, Value> {
    serde_json::from_str(json).unwrap()
}

fn files() -> BTreeMap<String, FileRef> {
    let file = FileRef { digest: Digest::of(b"x"), size: 1, executable: false };
    BTreeMap::from([("files/a.txt".into(), file), ("executors/h.sh".into(), file)])
}

fn bound(kind: &str, name: &str, json: &str) -> Result<Spec, String> {
    let context = BindContext { files: &files(), rendered: Some("rendered".into()) };
    bind(kind, name, &attributes(json), &context)
}

#[test]
fn files_are_typed() {
    let Spec::File(spec) =
        bound("file", "/etc/x", r#"{"content": "a", "mode": "0644", "owner": 0, "backup": "yes"}"#).unwrap()
    else {
        panic!("not a file")
    };
    assert_eq!(
        (spec.ownership.mode, spec.ownership.owner.as_deref(), spec.backup),
        (Some(0o644), Some("0"), true)
    );
    assert!(
        matches!(&spec.content, Some(FileContent::Text { text, digest }) if &**text == "a" && *digest == Digest::of(b"a"))
    );
    let Spec::File(spec) =
        bound("file", "/etc/x", r#"{"source": "a.txt", "mode": 640, "validate": "true %s"}"#).unwrap()
    else {
        panic!("not a file")
    };
    assert_eq!(spec.ownership.mode, Some(0o640));
    assert_eq!(spec.validate, Some(CommandLine::Shell("true %s".into())));
    assert!(matches!(spec.content, Some(FileContent::Blob { size: 1, .. })));
    let Spec::File(spec) = bound("file", "/etc/x", r#"{"state": "absent"}"#).unwrap() else {
        panic!("not a file")
    };
    assert_eq!((spec.ensure, spec.content), (Ensure::Absent, None));
}

#[test]
fn the_other_types() {
    assert!(matches!(bound("directory", "/d", r#"{"mode": "0755"}"#), Ok(Spec::Directory(_))));
    assert!(matches!(bound("symlink", "/l", r#"{"target": "../x"}"#), Ok(Spec::Symlink(_))));
    assert!(matches!(bound("line", "x", r#"{"path": "/etc/hosts", "line": "a b"}"#), Ok(Spec::Line(_))));
    let Ok(Spec::Exec(exec)) =
        bound("exec", "x", r#"{"command": ["a", 1], "returns": [0, 2], "environment": {"A": true}}"#)
    else {
        panic!("not an exec")
    };
    assert_eq!(exec.command, CommandLine::Argv(vec!["a".into(), "1".into()]));
    assert_eq!((exec.returns, exec.environment["A"].as_str()), (vec![0, 2], "true"));
    let Ok(Spec::Custom(custom)) =
        bound("custom", "x", r#"{"script": "executors/h.sh", "params": {"n": 1}}"#)
    else {
        panic!("not a custom")
    };
    assert!(matches!(custom.script, Script::Shipped { size: 1, .. }));
    assert_eq!((custom.state.as_str(), custom.dry_run), ("present", false));
}

#[test]
fn what_does_not_bind_says_why() {
    let table = [
        ("file", "/etc/x", r#"{"mode": "9"}"#, "mode: `9` is not an octal mode such as \"0644\" or \"0755\""),
        ("file", "etc/x", "{}", "name: `etc/x` is not an absolute path; it must begin with /"),
        ("file", "/", "{}", "name: `/` must name something below /, without a slash at the end"),
        ("file", "/a/../b", "{}", "name: `/a/../b` has a . or .. part; write the path it means"),
        ("file", "/x", r#"{"source": "b.txt"}"#, "files/b.txt is not in the module"),
        ("file", "/x", r#"{"source": "../b"}"#, "source: `../b` does not name a file of the module"),
        ("file", "/x", r#"{"content": ["a"]}"#, "content: a text is needed, and this is a list"),
        ("symlink", "/x", "{}", "`symlink` needs `target`"),
        (
            "line",
            "x",
            r#"{"path": "/p", "line": "a\nb"}"#,
            "line: one line is needed, and this has a line break; declare one `line` for each",
        ),
        (
            "exec",
            "x",
            r#"{"command": "a b"}"#,
            "command: an argv list is needed, such as [systemctl, reload, nginx]; the `shell` type takes a text",
        ),
        (
            "custom",
            "x",
            r#"{"script": "/opt/x.sh"}"#,
            "script: a script on the host needs `sha256`, its hash",
        ),
        ("container", "nginx", "{}", "this version has no resource type `container`"),
    ];
    for (kind, name, json, wanted) in table {
        assert_eq!(bound(kind, name, json).unwrap_err(), wanted);
    }
}

#[test]
fn check_takes_expressions_on_trust_and_bind_does_not() {
    let file = find("file").unwrap();
    let dynamic = attributes(r#"{"mode": "${{ params.mode }}", "content": "a"}"#);
    assert!(check(file, "/etc/${{ params.name }}", &dynamic, false).is_empty());
    assert!(bind("file", "/etc/x", &dynamic, &BindContext { files: &files(), rendered: None }).is_err());
}

#[test]
fn a_command_needs_a_guard_unless_it_is_a_handler() {
    let exec = find("exec").unwrap();
    let bare = attributes(r#"{"command": ["a"]}"#);
    assert!(matches!(check(exec, "a", &bare, false).as_slice(), [one] if one.kind == ProblemKind::Unguarded));
    assert!(check(exec, "a", &bare, true).is_empty());
    for guard in [r#""creates": "/x""#, r#""unless": "a""#, r#""onlyif": ["a"]"#, r#""always": true"#] {
        let guarded = attributes(&format!(r#"{{"command": ["a"], {guard}}}"#));
        assert!(check(exec, "a", &guarded, false).is_empty(), "{guard}");
    }
}
