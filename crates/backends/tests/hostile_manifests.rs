//! SYN-9: no text of a manifest costs more than its bounds, escapes, or means two things.
#![allow(clippy::unwrap_used)]

use crate::support::Stage;
use backends::manifest::{self, Format, MAX_DOCUMENTS, MAX_FILE, read};
use proptest::prelude::*;

fn refused(text: &str, format: Format) -> (Option<u32>, &'static str) {
    match read(text.as_bytes(), format) {
        Ok(manifests) => panic!("taken: {text:.200} as {} manifests", manifests.len()),
        Err(error) => (error.line, error.problem.code()),
    }
}

fn yaml(rest: &str) -> String {
    format!("kind: App\nmetadata:\n  name: a\n{rest}")
}

#[test]
fn each_with_its_line_and_code() {
    for (text, line, code) in [
        ("[]", 1, "not-a-map"),
        ("just text", 1, "not-a-map"),
        ("metadata:\n  name: a", 1, "no-kind"),
        ("\n\nkind: App", 3, "no-name"),
        ("kind: App\nmetadata: {}", 2, "no-name"),
        ("kind: App\nmetadata: [a]", 2, "no-name"),
        ("kind: App\nmetadata:\n  name: 7", 3, "not-a-text"),
        ("kind: [App]\nmetadata:\n  name: a", 1, "not-a-text"),
        ("kind: App\nmetadata:\n  name: a\n  name: b", 4, "duplicate-key"),
        ("kind: App\nmetadata: {name: a}\nspec:\n  - x: 1\n    x: 2", 5, "duplicate-key"),
        ("kind: App\nmetadata: {name: a}\n---\nkind: App\nmetadata: {name: a}", 3, "duplicate-object"),
        ("kind: App\nmetadata:\n  name: ../../etc/passwd", 3, "bad-name"),
        ("kind: App\nmetadata:\n  name: \"a\\u0000b\"", 3, "bad-name"),
        ("kind: App\nmetadata:\n  name: .hidden", 3, "bad-name"),
        ("kind: App\nmetadata:\n  name: ü", 3, "bad-name"),
        ("kind: App\nmetadata:\n  name: a\n  namespace: x/y", 4, "bad-name"),
        ("kind: App:status\nmetadata: {name: a}", 1, "bad-name"),
        ("kind: ..\nmetadata: {name: a}", 1, "bad-name"),
        ("metadata: {name: a}\nkind: Module", 2, "reserved-kind"),
        ("kind: Delegation\nmetadata: {name: a}", 1, "reserved-kind"),
    ] {
        assert_eq!(refused(text, Format::Yaml), (Some(line), code), "{text}");
    }
    assert_eq!(
        refused(&format!("kind: {}\nmetadata: {{name: a}}", "K".repeat(64)), Format::Yaml).1,
        "bad-name"
    );
    let long = format!("kind: App\nmetadata: {{name: {}}}", "a".repeat(254));
    assert_eq!(refused(&long, Format::Yaml).1, "bad-name");
    assert_eq!(read(b"kind: App\nmetadata: {name: a}\nspec: \xff", Format::Yaml).unwrap_err().line, Some(3));
}

#[test]
fn what_readers_take_differently_is_refused() {
    for rest in [
        "spec: {mode: 0644}",
        "spec: {on: yes}",
        "spec: {on: Off}",
        "spec: {big: 9007199254740993}",
        "spec: {big: 99999999999999999999999}",
        "spec: {big: 1e300}",
        "spec: {x: .nan}",
        "spec: {x: -.inf}",
        "spec: !!binary aGk=",
        "spec: !secret x",
        "spec: {? {a: b} : c}",
        "base: &b {x: 1}\nspec:\n  <<: *b",
        "spec: &a [*a]",
        "spec: *nobody",
    ] {
        let code = refused(&yaml(rest), Format::Yaml).1;
        assert!(matches!(code, "not-plain" | "not-yaml"), "{rest}: {code}");
    }
    for rest in ["1e999", "9007199254740993", "NaN", "01", "'x'"] {
        let text = format!("{{\"kind\":\"App\",\"metadata\":{{\"name\":\"a\"}},\n\"spec\":{rest}}}");
        assert_eq!(refused(&text, Format::Json).0, Some(2), "{rest}");
    }
    let twice = "{\"kind\":\"App\",\n\"metadata\":{\"name\":\"a\",\n\"name\":\"b\"}}";
    assert_eq!(refused(twice, Format::Json), (Some(3), "duplicate-key"));
}

#[test]
fn a_value_is_refused_for_what_its_text_is() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for (spec, code) in [
        ("9007199254740991".to_owned(), None),
        ("-9007199254740991".to_owned(), None),
        ("9007199254740992".to_owned(), Some("not-plain")),
        ("-9007199254740992".to_owned(), Some("not-plain")),
        ("18446744073709551615".to_owned(), Some("not-plain")),
        ("9007199254740991.0".to_owned(), None),
        ("1e300".to_owned(), Some("not-plain")),
        ("{\"a\":[-1e300]}".to_owned(), Some("not-plain")),
        (nested(manifest::MAX_DEPTH - 1), None),
        (nested(manifest::MAX_DEPTH), Some("too-deep")),
        (format!("{{\"a\":{}}}", nested(manifest::MAX_DEPTH - 1)), Some("too-deep")),
    ] {
        let text = format!("{{\"kind\":\"App\",\"metadata\":{{\"name\":\"a\"}},\"spec\":{spec}}}");
        let of_text = read(text.as_bytes(), Format::Json);
        let of_value = manifest::of_value(serde_json::from_str(&text).unwrap());
        assert_eq!(of_text.err().map(|error| error.problem.code()), code, "{spec}");
        assert_eq!(of_value.err().map(|error| error.problem.code()), code, "{spec}");
    }
}

#[test]
fn bombs_are_cheap() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let below = format!("*a{}, ", n - 1).repeat(10);
        laughs.push_str(&format!("a{n}: &a{n} [{}]\n", below.trim_end_matches(", ")));
    }
    assert_eq!(refused(&yaml(&laughs), Format::Yaml).1, "too-many");
    let text = format!("t: &t {}\nl: [{}]\n", "x".repeat(900_000), "*t, ".repeat(1000));
    match read(yaml(&text).as_bytes(), Format::Yaml).unwrap_err().problem {
        manifest::ManifestProblem::TooLarge { size } => {
            assert!(size < 16 * 1024 * 1024, "it was written out")
        }
        other => panic!("{other}"),
    }
    let deep = format!("spec: {}{}", "[".repeat(100), "]".repeat(100));
    assert_eq!(refused(&yaml(&deep), Format::Yaml).1, "too-deep");
    let deep = format!("spec: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(refused(&yaml(&deep), Format::Yaml).1, "too-deep" | "not-yaml"));
    let deep = format!(
        "{{\"kind\":\"App\",\"metadata\":{{\"name\":\"a\"}},\"spec\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(refused(&deep, Format::Json).1, "too-deep");
    let mut nested = String::from("a0: &a0 [x]\n");
    for n in 1..70 {
        nested.push_str(&format!("a{n}: &a{n} [*a{}]\n", n - 1));
    }
    assert_eq!(refused(&yaml(&nested), Format::Yaml).1, "too-deep");
    let block: String = (0..200).map(|n| format!("{}k:\n", " ".repeat(n))).collect();
    assert_eq!(refused(&block, Format::Yaml).1, "too-deep");
    assert_eq!(refused(&"---\n".repeat(MAX_DOCUMENTS + 1), Format::Yaml).1, "too-many");
    assert_eq!(refused(&" ".repeat(MAX_FILE + 1), Format::Yaml).1, "too-large");
    let large = yaml(&format!("spec: {}", "x".repeat(sync::object::MAX_CONTENT)));
    assert_eq!(refused(&large, Format::Yaml).1, "too-large");
}

/// SCL-3: each anchor keeps a copy of its value, so one within the other multiply what is read: 60 of them around
/// 200 KB of text would take 12 MB, and 2 MB of a file with as many killed an agent.
#[test]
fn nested_anchors_count_as_often_as_they_are_kept() {
    let nested = |depth: usize, text: usize| {
        let open: String = (0..depth).map(|n| format!("&a{n} [")).collect();
        yaml(&format!("spec: {open}{}{}", "x".repeat(text), "]".repeat(depth)))
    };
    assert_eq!(refused(&nested(60, 200_000), Format::Yaml).1, "too-large");
    let values = "[], ".repeat(20_000);
    let many: String = (0..30).map(|n| format!("&a{n} [")).collect();
    let many = yaml(&format!("spec: {many}{values}{}", "]".repeat(30)));
    assert_eq!(refused(&many, Format::Yaml).1, "too-many");
    read(nested(60, 1000).as_bytes(), Format::Yaml).unwrap();
}

#[test]
fn a_hostile_file_does_not_touch_its_neighbours() {
    let mut stage = Stage::new();
    stage.write("a.yaml", crate::support::yaml("a", 1));
    for n in 0..200 {
        stage.write(&format!("bad/{n:03}.yaml"), "kind: [");
    }
    assert_eq!(stage.said(), ["a=1"]);
    let listing = stage.list();
    assert_eq!(listing.problems.len(), 101, "problems are bounded");
    assert_eq!(listing.problems[100].code, "more-problems");
}

#[test]
fn aliases_and_the_core_schema() {
    let text = "kind: App\nmetadata: {name: a, namespace: ''}\nbase: &b {x: 1, y: [~, True, 0x1F, 0o17, -3, 1.5, 0.5]}\nspec: *b\nt: 2024-01-02\nu: 12:30\nv: 'no'\n";
    let manifests = read(text.as_bytes(), Format::Yaml).unwrap();
    let value = r#"{"x":1,"y":[null,true,31,15,-3,1.5,0.5]}"#;
    let expected = format!(
        r#"{{"base":{value},"kind":"App","metadata":{{"name":"a"}},"spec":{value},"t":"2024-01-02","u":"12:30","v":"no"}}"#
    );
    assert_eq!(String::from_utf8(manifests[0].spec.to_vec()).unwrap(), expected);
}

#[test]
fn what_a_server_keeps_is_no_content() {
    let text = r#"{"kind":"App","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
        "generation":3,"creationTimestamp":null,"managedFields":[{}],"selfLink":"/x","deletionTimestamp":"2026-01-01T00:00:00Z",
        "finalizers":["f/1"],"labels":{"l":"1"},"annotations":{"argocd.argoproj.io/source-uid":"s",
        "muster.dev/source-uid-mismatch-policy":"upsert"}},"status":{"ok":true}}"#;
    let one = read(text.as_bytes(), Format::Json).unwrap().remove(0);
    assert_eq!((one.uid.as_deref(), one.source_uid.as_deref()), (Some("u"), Some("s")));
    assert_eq!(one.finalizers, ["f/1"]);
    assert_eq!(one.status.as_deref(), Some(&br#"{"ok":true}"#[..]));
    let spec = r#"{"apiVersion":"v1","kind":"App","metadata":{"annotations":{"muster.dev/source-uid-mismatch-policy":"upsert"},"labels":{"l":"1"},"name":"a","namespace":"n"}}"#;
    assert_eq!(String::from_utf8(one.spec.to_vec()).unwrap(), spec);
    let marked = r#"{"kind":"App","metadata":{"name":"a","annotations":{"muster.dev/source-uid":"s"}}}"#;
    let one = read(marked.as_bytes(), Format::Json).unwrap().remove(0);
    assert_eq!(&one.spec[..], br#"{"kind":"App","metadata":{"name":"a"}}"#);
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        (-(1i64 << 53) + 1..(1i64 << 53)).prop_map(serde_json::Value::from),
        (-1e9..1e9f64).prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
        "[ -~\n\t]{0,20}".prop_map(serde_json::Value::from),
        "(yes|no|null|~|0644|1e3|0x1|- a|a: b|#x|--- |\\.\\.\\.|y|@a|%b|`|!|&a|\\*a|\\[|\\{)"
            .prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::btree_map("[ -~äß\u{85}\u{2028}]{0,12}", inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_and_its_text_are_one_manifest(value in values()) {
        let value = serde_json::json!({"kind": "App", "metadata": {"name": "a"}, "spec": value});
        let one = manifest::of_value(value.clone()).unwrap();
        prop_assert_eq!(&one, &read(value.to_string().as_bytes(), Format::Json).unwrap()[0]);
        prop_assert_eq!(&one.spec[..], &serde_json_canonicalizer::to_vec(&value).unwrap()[..]);
    }

    #[test]
    fn what_is_rendered_reads_the_same(value in values()) {
        let spec = serde_json::json!({"kind": "App", "metadata": {"name": "a"}, "spec": value});
        let spec = serde_json_canonicalizer::to_vec(&spec).unwrap();
        let extras = manifest::Extras { source_uid: Some("s".into()), ..Default::default() };
        for format in [Format::Json, Format::Yaml] {
            let text = manifest::render(&spec, &extras, format).unwrap();
            let back = read(text.as_bytes(), format);
            prop_assert!(back.is_ok(), "{text}\n{back:?}");
            prop_assert_eq!(&back.unwrap()[0].spec[..], &spec[..], "{}", text);
        }
    }

    #[test]
    fn any_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-:{}\\[\\]&*!?|>'\"%@`# \n\ta-c0-9,.]{0,80}") {
        for format in [Format::Json, Format::Yaml] {
            let _ = read(&bytes, format);
            let _ = read(text.as_bytes(), format);
            let _ = manifest::read_status(text.as_bytes());
        }
    }
}

/// A version is text: `1.10` is not 1.1.
#[test]
fn a_number_that_would_be_written_otherwise_is_refused() {
    for (text, becomes) in [("1.10", "1.1"), ("1.0", "1"), (".5", "0.5"), ("1e3", "1000"), ("-2.50", "-2.5")]
    {
        let manifest = format!("kind: App\nmetadata: {{name: a}}\nspec:\n  ver: {text}\n");
        let found = manifest::read(manifest.as_bytes(), Format::Yaml).unwrap_err();
        assert_eq!(found.line, Some(4), "{text}");
        let wanted = format!("`{text}` would become {becomes}; quote it");
        assert!(found.problem.to_string().starts_with(&wanted), "{}", found.problem);
        let quoted = manifest.replace(text, &format!("\"{text}\""));
        let spec = manifest::read(quoted.as_bytes(), Format::Yaml).unwrap().remove(0).spec;
        assert!(std::str::from_utf8(&spec).unwrap().contains(&format!("\"{text}\"")), "{spec:?}");
    }
    for text in ["1.1", "0.5", "-2.5", "7", "1.25"] {
        let manifest = format!("kind: App\nmetadata: {{name: a}}\nspec: {{ver: {text}}}\n");
        assert!(manifest::read(manifest.as_bytes(), Format::Yaml).is_ok(), "{text}");
    }
}

#[test]
fn every_mistake_of_a_text_is_told_at_once() {
    let text = "kind: App\nmetadata: {name: a}\nspec:\n  ver: 1.10\n  on: yes\n  x: 1\n  x: 2\n  mode: 0644\n---\n\
                kind: App\nmetadata: {name: b}\nspec: {ver: 2.0}\n";
    let found = manifest::mistakes(text.as_bytes(), Format::Yaml);
    let lines: Vec<Option<u32>> = found.iter().map(|one| one.line).collect();
    assert_eq!(lines, [4, 5, 7, 8, 12].map(Some), "{found:?}");
    let second = "kind: App\n---\nmetadata: {name: b}\n---\nkind: App\nmetadata: {name: c}\n";
    let found = manifest::mistakes(second.as_bytes(), Format::Yaml);
    let codes: Vec<&str> = found.iter().map(|one| one.problem.code()).collect();
    assert_eq!(codes, ["no-name", "no-kind"]);
    let third = "metadata: {namespace: 1, uid: [u]}\nspec: {}\n---\nspec: {}\n";
    let found = manifest::mistakes(third.as_bytes(), Format::Yaml);
    let codes: Vec<(Option<u32>, &str)> = found.iter().map(|one| (one.line, one.problem.code())).collect();
    let (name, kind, text) = ("no-name", "no-kind", "not-a-text");
    let all = [(1, text), (1, text), (1, kind), (1, name), (3, kind), (3, name)];
    assert_eq!(codes, all.map(|(line, code)| (Some(line), code)));
    // However many there are, what is told is bounded.
    let many: String = (0..1000).map(|n| format!("  k{n}: 1.10\n")).collect();
    let many = format!("kind: App\nmetadata: {{name: a}}\nspec:\n{many}");
    assert_eq!(manifest::mistakes(many.as_bytes(), Format::Yaml).len(), 50);
    assert!(manifest::mistakes(b"kind: App\nmetadata: {name: a}\n", Format::Yaml).is_empty());
}
