//! CNV-2: what a resource changed is told from/to, as an operator reads it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use catalog::types::{DirectorySpec, Ensure, FileContent, LineSpec, Ownership, Spec, SymlinkSpec};
use common::{Lab, exec, file, is_root, lab};
use model::delta::render_edit;

fn told(lab: &Lab, spec: &Spec) -> String {
    let mut text = String::new();
    match lab.check(spec).edit {
        Some(edit) => render_edit(&mut text, "it", &edit),
        None => text.push_str("in sync\n"),
    }
    // What a check announces is what an apply tells.
    let announced = lab.check(spec).edit;
    if !matches!(spec, Spec::Exec(_)) {
        assert_eq!(lab.apply(spec).unwrap().edit, announced);
        assert_eq!(lab.check(spec).edit, None);
    }
    text
}

#[test]
fn files() {
    let lab = lab();
    let mut spec = file("/f", "one\ntwo\n");
    spec.ownership.mode = Some(0o600);
    assert_eq!(
        told(&lab, &Spec::File(spec.clone())),
        "+ it\n    content:\n      +one\n      +two\n    mode: 0600\n"
    );
    spec.content = Some(common::text("one\n2\n"));
    assert_eq!(told(&lab, &Spec::File(spec.clone())), "~ it\n    content:\n      -two\n      +2\n");
    fs::set_permissions(lab.path("/f"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(told(&lab, &Spec::File(spec.clone())), "~ it\n    mode: 0666 -> 0600\n");
    let digest = lab.blobs.put(&[0xff; 3]);
    spec.content = Some(FileContent::Blob { digest, size: 3 });
    let text = told(&lab, &Spec::File(spec.clone()));
    assert!(text.contains(&format!("+sha256:{} (3 bytes)", digest.short())), "{text}");
    (spec.ensure, spec.content) = (Ensure::Absent, None);
    assert_eq!(told(&lab, &Spec::File(spec)), "- it\n");
    assert!(!lab.path("/f").exists());
}

#[test]
fn a_file_takes_the_place_of_a_link_when_it_has_content() {
    let lab = lab();
    lab.write("/target", b"kept");
    symlink("target", lab.path("/f")).unwrap();
    let mut silent = file("/f", "");
    silent.content = None;
    let why = lab.failed_check(&Spec::File(silent));
    assert_eq!(
        why,
        "/f is a symlink to target; say `content`, `source` or `template` to replace it by a file"
    );
    let text = told(&lab, &Spec::File(file("/f", "mine")));
    assert_eq!(
        text,
        "~ it\n    content: mine\n    mode: 0644\n    target: target -> (none)\n    type: symlink -> file\n"
    );
    assert_eq!((lab.read("/f").as_str(), lab.read("/target").as_str()), ("mine", "kept"));
}

#[test]
fn owners_read_as_names() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let lab = lab();
    lab.write("/etc/passwd", b"web:x:33:33::/:\n");
    lab.write("/etc/group", b"web:x:34:\n");
    lab.write("/f", b"x");
    let mut spec = file("/f", "x");
    spec.ownership = Ownership { mode: None, owner: Some("web".to_owned()), group: Some("4711".to_owned()) };
    assert_eq!(
        told(&lab, &Spec::File(spec.clone())),
        "~ it\n    group: root -> 4711\n    owner: root -> web\n"
    );
    spec.ownership.owner = Some("ghost".to_owned());
    assert_eq!(lab.failed_check(&Spec::File(spec)), "there is no user `ghost` on the host");
}

#[test]
fn directories_links_and_commands() {
    let lab = lab();
    let mut spec = DirectorySpec {
        path: "/d".to_owned(),
        ensure: Ensure::Present,
        ownership: Ownership { mode: Some(0o750), ..Ownership::default() },
        recurse: false,
        in_the_way: catalog::types::InTheWay::Stays,
    };
    assert_eq!(told(&lab, &Spec::Directory(spec.clone())), "+ it\n    mode: 0750\n");
    lab.write("/d/file", b"");
    spec.ensure = Ensure::Absent;
    let why = lab.failed_check(&Spec::Directory(spec.clone()));
    assert_eq!(why, "/d is not empty; say `recurse: true` to remove what is inside too");
    spec.recurse = true;
    let checked = lab.check(&Spec::Directory(spec.clone()));
    assert_eq!(checked.note.as_deref(), Some("cannot be undone: what is inside is removed for good"));
    assert_eq!(told(&lab, &Spec::Directory(spec)), "- it\n");
    let mut link = SymlinkSpec {
        path: "/l".to_owned(),
        ensure: Ensure::Present,
        target: "a".to_owned(),
        in_the_way: catalog::types::InTheWay::Stays,
    };
    assert_eq!(told(&lab, &Spec::Symlink(link.clone())), "+ it\n    target: a\n");
    link.target = "b".to_owned();
    assert_eq!(told(&lab, &Spec::Symlink(link)), "~ it\n    target: a -> b\n");
    assert_eq!(told(&lab, &Spec::Exec(exec("nginx -s reload"))), "~ it\n    command: nginx -s reload\n");
}

#[test]
fn lines() {
    let lab = lab();
    lab.write("/etc/sshd_config", b"# c\r\n#Port 22\r\nEnd");
    let spec = Spec::Line(LineSpec {
        path: "/etc/sshd_config".to_owned(),
        ensure: Ensure::Present,
        line: "Port 2222".to_owned(),
        matching: Some("^#?Port ".to_owned()),
        after: None,
        create: false,
        ownership: Ownership::default(),
        validate: None,
    });
    assert_eq!(told(&lab, &spec), "~ it\n    line: #Port 22 -> Port 2222\n");
    assert_eq!(lab.read("/etc/sshd_config"), "# c\r\nPort 2222\r\nEnd");
}

#[test]
fn what_is_no_file_is_left_alone() {
    let lab = lab();
    fs::create_dir(lab.path("/d")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(lab.path("/s")).unwrap();
    assert_eq!(
        lab.failed_check(&Spec::File(file("/d", "x"))),
        "/d is a directory, not a file; move it away or declare a `directory` there; `force: true` removes it"
    );
    assert_eq!(
        lab.failed_check(&Spec::File(file("/s", "x"))),
        "/s is a socket, not a file; it is left alone, remove it by hand"
    );
    let missing = Spec::Line(LineSpec {
        path: "/none".to_owned(),
        ensure: Ensure::Present,
        line: "x".to_owned(),
        matching: None,
        after: None,
        create: false,
        ownership: Ownership::default(),
        validate: None,
    });
    assert_eq!(lab.failed_check(&missing), "/none does not exist; say `create: true` to make it");
}

#[test]
fn a_blob_that_is_missing_or_wrong_changes_nothing() {
    let lab = lab();
    lab.write("/f", b"old");
    let digest = model::Digest::of(b"new");
    let mut spec = file("/f", "");
    spec.content = Some(FileContent::Blob { digest, size: 3 });
    let spec = Spec::File(spec);
    let checked = lab.check(&spec);
    let missing = lab.kinds.apply("n", &spec, &checked, common::LONG).unwrap_err();
    assert_eq!(missing.message, format!("the blob {} has not arrived yet", digest.short()));
    lab.blobs.corrupt(digest, b"bad");
    let wrong = lab.kinds.apply("n", &spec, &checked, common::LONG).unwrap_err();
    assert!(wrong.message.contains("is not what was declared"), "{wrong}");
    assert_eq!(lab.read("/f"), "old");
}
