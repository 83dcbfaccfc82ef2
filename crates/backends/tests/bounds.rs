//! SYN-9: a folder has bounds; beyond them nothing is deleted and it is told.

use crate::support::{Stage, app, yaml};
use backends::{ApplyRequest, Backend as _, Expect};

#[test]
fn a_file_that_is_too_large() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.write("b.yaml", yaml("b", 1));
    stage.list();
    stage.write("a.yaml", "#".repeat(backends::manifest::MAX_FILE + 1));
    stage.settle();
    assert_eq!(stage.said(), ["a=1", "b=1"]);
    assert_eq!(stage.codes(), [("a.yaml".to_owned(), "too-large")]);
}

#[test]
fn directories_that_are_too_deep() {
    let mut stage = Stage::new();
    stage.write(&format!("{}a.yaml", "d/".repeat(15)), yaml("a", 1));
    assert_eq!(stage.said(), ["a=1"]);
    assert!(stage.list().complete);
    stage.write(&format!("{}b.yaml", "d/".repeat(16)), yaml("b", 1));
    stage.settle();
    assert_eq!(stage.said(), ["a=1"]);
    assert_eq!(stage.codes()[0].1, "too-deep");
    assert!(!stage.list().complete);
}

#[test]
fn more_files_than_are_looked_at() {
    let mut stage = Stage::new();
    stage.write("z.yaml", yaml("z", 1));
    stage.list();
    std::fs::create_dir(stage.path("many")).unwrap();
    for n in 0..50_000 {
        std::fs::File::create(stage.path(&format!("many/{n}.status.json"))).unwrap();
    }
    stage.pass(0);
    stage.pass(10_000);
    stage.pass(10_000);
    let listing = stage.list();
    let said: Vec<String> = listing.objects.iter().map(crate::support::said).collect();
    assert_eq!(said, ["z=1"], "what is beyond the bound is not taken for deleted");
    assert!(!listing.complete);
    assert_eq!(listing.problems[0].code, "too-many");
}

#[test]
fn more_bytes_than_are_kept() {
    let mut stage = Stage::new();
    let filler = "x".repeat(1_000_000);
    for n in 0..70 {
        let spec = format!(r#"{{"v":{n},"filler":"{filler}"}}"#);
        let text = format!(r#"{{"kind":"App","metadata":{{"name":"n{n:02}"}},"spec":{spec}}}"#);
        stage.write(&format!("{n:02}.json"), text);
    }
    let listing = stage.list();
    assert_eq!(listing.objects.len(), 67);
    assert!(!listing.complete && listing.problems.len() == 3);
    let key = app("new");
    let spec = format!(r#"{{"kind":"App","metadata":{{"name":"new"}},"spec":"{filler}"}}"#);
    let apply = ApplyRequest { key: &key, spec: spec.as_bytes(), source_uid: None, expect: Expect::Anything };
    assert_eq!(stage.folder.apply(apply).unwrap_err().code, "too-large");
}

#[test]
fn the_longest_names_fit_into_file_names() {
    let mut stage = Stage::new();
    for (n, name) in ["a".repeat(253), format!("{}b", "a".repeat(252))].iter().enumerate() {
        let key = app(name);
        let spec = format!(r#"{{"kind":"App","metadata":{{"name":"{name}"}},"spec":{{"v":{n}}}}}"#);
        let apply = ApplyRequest {
            key: &key,
            spec: spec.as_bytes(),
            source_uid: Some("u"),
            expect: Expect::Anything,
        };
        stage.folder.apply(apply).unwrap();
    }
    for file in std::fs::read_dir(stage.path("app/_")).unwrap().map(|file| file.unwrap().path()) {
        std::fs::write(format!("{}.status.json", file.display()), "{}").unwrap();
    }
    stage.restart();
    let listing = stage.list();
    assert!(listing.complete && listing.problems.is_empty());
    assert_eq!(listing.objects.iter().filter(|it| it.status.is_some()).count(), 2);
}

#[test]
fn kinds_that_differ_in_case_alone_have_files_of_their_own() {
    let mut stage = Stage::new();
    for kind in ["App", "APP", "app"] {
        let key = model::ObjectKey::of(kind, "a");
        let spec = format!(r#"{{"kind":"{kind}","metadata":{{"name":"a"}}}}"#);
        let apply =
            ApplyRequest { key: &key, spec: spec.as_bytes(), source_uid: None, expect: Expect::Anything };
        stage.folder.apply(apply).unwrap();
    }
    stage.restart();
    assert_eq!(stage.list().objects.len(), 3);
}

#[test]
fn objects_in_memory_are_bounded_by_their_bytes() {
    use backends::{ApplyRequest, Backend as _, BackendError, Embedded, ErrorClass, Expect};
    let large = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    let most = backends::embedded::MAX_BYTES >> 20;
    let mut full = Embedded::default();
    let key = |n: u64| crate::support::app(&format!("a{n}"));
    for n in 0..most {
        full.restore(&key(n), None, None, large.clone()).unwrap();
    }
    let over = full.restore(&key(most), None, None, large).unwrap_err();
    assert!(matches!(over, BackendError { class: ErrorClass::Permanent, code: "too-many", .. }), "{over:?}");
    let (more, spec) = (crate::support::app("one-more"), br#"{"kind":"App","metadata":{"name":"one-more"}}"#);
    let put = |full: &mut Embedded| {
        full.apply(ApplyRequest { key: &more, spec, source_uid: None, expect: Expect::Anything })
    };
    assert!(matches!(
        put(&mut full),
        Err(BackendError { class: ErrorClass::Permanent, code: "too-many", .. })
    ));
    full.restore(&key(1), None, None, bytes::Bytes::new()).unwrap();
    put(&mut full).unwrap();
}
