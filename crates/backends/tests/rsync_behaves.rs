//! SYN-9: rsync writes a hidden file and renames it; with `--inplace` it writes bit by bit.

use crate::support::{Stage, yaml};

#[test]
fn hidden_files_do_not_count() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.list();
    stage.write(".a.yaml.Xy12Zz", &yaml("a", 2)[..12]);
    stage.write(".b.yaml.Qq34Ww", yaml("b", 1));
    stage.settle();
    assert_eq!(stage.said(), ["a=1"]);
    std::fs::rename(stage.path(".a.yaml.Xy12Zz"), stage.path("a.yaml")).unwrap();
    stage.pass(100);
    stage.write(".a.yaml.Xy12Zz", yaml("a", 2));
    std::fs::rename(stage.path(".a.yaml.Xy12Zz"), stage.path("a.yaml")).unwrap();
    std::fs::rename(stage.path(".b.yaml.Qq34Ww"), stage.path("b.yaml")).unwrap();
    stage.settle();
    assert_eq!(stage.said(), ["a=2", "b=1"]);
    assert!(stage.list().complete);
}

#[test]
fn old_times_are_no_old_content() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.list();
    // `rsync -t` sets the time of the source, here the same for both, with the same size.
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for v in [2, 3] {
        stage.write(".a.yaml.tmp", yaml("a", v));
        let file = std::fs::File::options().write(true).open(stage.path(".a.yaml.tmp")).unwrap();
        file.set_modified(time).unwrap();
        std::fs::rename(stage.path(".a.yaml.tmp"), stage.path("a.yaml")).unwrap();
        stage.settle();
        assert_eq!(stage.said(), [format!("a={v}")]);
    }
    // The same in place: only the kernel's own time of the change differs.
    stage.write("a.yaml", yaml("a", 4));
    let file = std::fs::File::options().write(true).open(stage.path("a.yaml")).unwrap();
    file.set_modified(time).unwrap();
    stage.settle();
    assert_eq!(stage.said(), ["a=4"]);
}

#[test]
fn delete_before_and_copy_after() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c"] {
        stage.write(&format!("{name}.yaml"), yaml(name, 1));
    }
    stage.list();
    stage.remove("b.yaml");
    stage.pass(200);
    stage.write("c.yaml", yaml("c", 2));
    stage.settle();
    assert_eq!(stage.said(), ["a=1", "c=2"]);
}
