//! CFG-1: a fleet repo is plain files; links and devices are refused, hidden files are not
//! looked at, and a change costs what changed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use cli::folder::{FileChanges, FolderChange, FolderError, RepoFolder, Watch};

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn repo() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "fleet.yaml", "format: 1\n");
    write(dir.path(), "modules/app/module.yaml", "resources: []\n");
    write(dir.path(), "modules/app/files/logo.png", "bytes");
    write(dir.path(), "README.md", "not read");
    write(dir.path(), ".git/config", "not read");
    write(dir.path(), "nodes/.swp.yaml", "not read");
    dir
}

fn paths(folder: &mut RepoFolder) -> Vec<String> {
    folder.scan().unwrap().into_keys().collect()
}

#[test]
fn what_muster_could_mean_is_read_once() {
    let dir = repo();
    let mut folder = RepoFolder::open(dir.path()).unwrap();
    assert_eq!(paths(&mut folder), ["fleet.yaml", "modules/app/files/logo.png", "modules/app/module.yaml"]);
    assert!(paths(&mut folder).is_empty(), "nothing changed");
    write(dir.path(), "hosts/a.yaml", "vars: {}\n");
    fs::remove_file(dir.path().join("modules/app/files/logo.png")).unwrap();
    let changes = folder.scan().unwrap();
    assert_eq!(changes.get("hosts/a.yaml").unwrap().as_deref(), Some(b"vars: {}\n".as_slice()));
    assert_eq!(changes.get("modules/app/files/logo.png"), Some(&None));
    assert_eq!(changes.len(), 2);
}

#[test]
fn a_file_that_becomes_executable_is_read_again() {
    let dir = repo();
    let (path, logo) = ("modules/app/files/logo.png", dir.path().join("modules/app/files/logo.png"));
    let mut folder = RepoFolder::open(dir.path()).unwrap();
    let executable = |changes: FileChanges| changes.get(path).cloned().flatten().unwrap().executable;
    assert!(!executable(folder.scan().unwrap()));
    fs::set_permissions(&logo, fs::Permissions::from_mode(0o744)).unwrap();
    assert!(executable(folder.scan().unwrap()));
    assert!(folder.scan().unwrap().is_empty());
    assert!(executable(folder.reread(&BTreeSet::from([path.to_owned()])).unwrap()));
}

#[test]
fn links_and_devices_are_refused() {
    let dir = repo();
    symlink("/etc/passwd", dir.path().join("modules/app/files/passwd")).unwrap();
    let refused = RepoFolder::open(dir.path()).unwrap().scan();
    assert!(
        matches!(&refused, Err(FolderError::Special(named)) if named == &["modules/app/files/passwd"]),
        "{refused:?}"
    );
    fs::remove_file(dir.path().join("modules/app/files/passwd")).unwrap();
    symlink("modules", dir.path().join("roles")).unwrap();
    assert!(matches!(RepoFolder::open(dir.path()).unwrap().scan(), Err(FolderError::Special(_))));
}

#[test]
fn a_link_that_takes_a_files_place_is_not_followed() {
    let dir = repo();
    let mut folder = RepoFolder::open(dir.path()).unwrap();
    folder.scan().unwrap();
    fs::remove_file(dir.path().join("fleet.yaml")).unwrap();
    symlink("/etc/passwd", dir.path().join("fleet.yaml")).unwrap();
    let again = folder.reread(&BTreeSet::from(["fleet.yaml".to_owned()]));
    assert!(matches!(again, Err(FolderError::Special(_))), "{again:?}");
}

#[test]
fn no_folder_is_told() {
    assert!(matches!(RepoFolder::open(Path::new("/nonexistent")), Err(FolderError::NoFolder(_))));
}

#[tokio::test]
async fn a_watch_names_what_was_edited() {
    let dir = repo();
    let mut watch = Watch::start(dir.path()).unwrap();
    write(dir.path(), "modules/app/module.yaml", "resources: [] # edited\n");
    write(dir.path(), "README.md", "not read");
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Files(BTreeSet::from(["modules/app/module.yaml".to_owned()])));
    // An editor that writes beside and renames.
    write(dir.path(), "modules/app/.new", "resources: []\n");
    fs::rename(dir.path().join("modules/app/.new"), dir.path().join("fleet.yaml")).unwrap();
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Files(BTreeSet::from(["fleet.yaml".to_owned()])));
    // A new folder is watched too.
    write(dir.path(), "hosts/a.yaml", "vars: {}\n");
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Everything);
    write(dir.path(), "hosts/a.yaml", "vars: {} # edited\n");
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Files(BTreeSet::from(["hosts/a.yaml".to_owned()])));
    // One that goes takes its files with it.
    fs::remove_dir_all(dir.path().join("hosts")).unwrap();
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Everything);
}

#[tokio::test]
async fn a_file_that_is_being_written_is_not_named_before_it_is_whole() {
    let dir = repo();
    let mut watch = Watch::start(dir.path()).unwrap();
    let mut begun = fs::File::create(dir.path().join("begun.yaml")).unwrap();
    begun.write_all(b"vars:").unwrap();
    write(dir.path(), "fleet.yaml", "format: 1 # edited\n");
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Files(BTreeSet::from(["fleet.yaml".to_owned()])));
    begun.write_all(b" {}\n").unwrap();
    drop(begun);
    let seen = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap();
    assert_eq!(seen, FolderChange::Files(BTreeSet::from(["begun.yaml".to_owned()])));
}
