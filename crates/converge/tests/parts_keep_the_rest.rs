//! EXE-1, CNV-1: an edit of a block, an INI key or a JSON value keeps every byte that is not its own;
//! editing again changes nothing; what an edit made, the state before takes back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use catalog::schema::{BindContext, bind};
use catalog::types::{BlockSpec, IniSpec, JsonSpec, Spec, StateSpec};
use converge::kinds::{block, ini, json, state};
use lang::Value;
use model::Fields;
use proptest::prelude::*;
use serde_json::json;

fn bound(kind: &str, name: &str, attributes: serde_json::Value) -> Result<Spec, String> {
    let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    bind(kind, name, &attributes, &context)
}

fn a_block(content: &str, place: serde_json::Value) -> BlockSpec {
    let mut attributes = json!({"path": "/f", "content": content});
    attributes.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
    match bound("block", "x", attributes) {
        Ok(Spec::Block(spec)) => spec,
        other => panic!("{other:?}"),
    }
}

fn an_ini(attributes: serde_json::Value) -> IniSpec {
    let mut all = json!({"path": "/f"});
    all.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
    match bound("ini", "x", all) {
        Ok(Spec::Ini(spec)) => spec,
        other => panic!("{other:?}"),
    }
}

fn a_json(attributes: serde_json::Value) -> JsonSpec {
    let mut all = json!({"path": "/f"});
    all.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
    match bound("json", "x", all) {
        Ok(Spec::Json(spec)) => spec,
        other => panic!("{other:?}"),
    }
}

fn put_block(spec: &BlockSpec, file: &str) -> String {
    String::from_utf8(block::edit(spec, file.as_bytes(), Some(&spec.declared())).unwrap()).unwrap()
}

fn put_ini(spec: &IniSpec, file: &str) -> String {
    let to = state::desired(spec);
    String::from_utf8(ini::edit(spec, file.as_bytes(), to.as_ref())).unwrap()
}

fn put_json(spec: &JsonSpec, file: &str) -> Result<String, String> {
    let now = json::observe(spec, file.as_bytes())?;
    let to = json::desired(spec, spec.declared(), now.as_ref());
    Ok(String::from_utf8(json::edit(spec, file.as_bytes(), to.as_ref())?).unwrap())
}

const BLOCK: &str = "# BEGIN MUSTER BLOCK x\none\ntwo\n# END MUSTER BLOCK x\n";

/// A file that was made for its parts goes with the last of them, with what was made around them.
#[test]
fn a_json_file_of_nothing_but_empty_objects_is_void() {
    for (text, is_void) in [
        ("", true),
        (" {}\n", true),
        ("{ \"log\": { \"deep\": {} }, \"x\": {} }\n", true),
        ("{\"log\": []}", false),
        ("{\"log\": null}", false),
        ("{\"log\": {\"level\": 1}}", false),
        ("{\"log\":", false),
    ] {
        assert_eq!(json::is_void(text.as_bytes()), is_void, "{text}");
    }
    assert!(!json::is_void(b"\xff"));
}

#[test]
fn a_table_of_blocks() {
    let table = [
        ("one\ntwo\n", json!({}), "", BLOCK.to_owned()),
        ("one\ntwo", json!({}), "a\nb", format!("a\nb\n{BLOCK}")),
        ("one\ntwo\n", json!({"after": "^a"}), "a\nb\n", format!("a\n{BLOCK}b\n")),
        ("one\ntwo\n", json!({"insert_before": "^b"}), "a\nb\n", format!("a\n{BLOCK}b\n")),
        ("one\ntwo\n", json!({"after": "^z"}), "a\nb\n", format!("a\nb\n{BLOCK}")),
        ("one\ntwo\n", json!({}), "a\r\nb\r\n", format!("a\r\nb\r\n{}", BLOCK.replace('\n', "\r\n"))),
        ("one\ntwo\n", json!({}), &format!("a\n{}c", BLOCK.replace("one", "old")), format!("a\n{BLOCK}c")),
        ("", json!({}), "", "# BEGIN MUSTER BLOCK x\n# END MUSTER BLOCK x\n".to_owned()),
        // Another block of another name, and a longer name that begins as this one does.
        (
            "one\ntwo\n",
            json!({"after": "^a"}),
            "# BEGIN MUSTER BLOCK x y\na\n# END MUSTER BLOCK x y\n",
            format!("# BEGIN MUSTER BLOCK x y\na\n# END MUSTER BLOCK x y\n{BLOCK}"),
        ),
        (
            "one\ntwo\n",
            json!({"comment": "<!--", "comment_end": "-->"}),
            "<p>\n",
            "<p>\n<!-- BEGIN MUSTER BLOCK x -->\none\ntwo\n<!-- END MUSTER BLOCK x -->\n".to_owned(),
        ),
        // The declaration says another comment now.
        ("one\ntwo\n", json!({"comment": ";"}), BLOCK, BLOCK.replace('#', ";")),
    ];
    for (content, place, before, after) in table {
        let spec = a_block(content, place);
        let once = put_block(&spec, before);
        assert_eq!(once, after, "{before:?}");
        assert_eq!(put_block(&spec, &once), once, "again");
        assert_eq!(block::observe(&spec, once.as_bytes()).unwrap(), Some(spec.declared()));
    }
}

#[test]
fn markers_that_are_broken_are_named_and_nothing_is_written() {
    let spec = a_block("one", json!({}));
    let table = [
        ("a\n# BEGIN MUSTER BLOCK x\nb\n", "its begin stands in line 2, its end nowhere"),
        ("# END MUSTER BLOCK x\n", "its begin stands nowhere, its end in line 1"),
        (&*format!("{BLOCK}{BLOCK}"), "its begin stands in line 1, 5, its end in line 4, 8"),
        ("# END MUSTER BLOCK x\n# BEGIN MUSTER BLOCK x\n", "its begin stands in line 2, its end in line 1"),
        (
            "# BEGIN MUSTER BLOCK x\n# BEGIN MUSTER BLOCK y\n# END MUSTER BLOCK x\n",
            "line 2 inside it marks another block",
        ),
    ];
    for (file, words) in table {
        let to = spec.declared();
        let why = block::edit(&spec, file.as_bytes(), Some(&to)).unwrap_err();
        assert!(why.contains(words) && why.contains("`x` in /f"), "{why}");
        assert!(block::edit(&spec, file.as_bytes(), None).is_err());
    }
    for name in ["", " x", "a\nb", "BEGIN MUSTER BLOCK"] {
        assert!(bound("block", name, json!({"path": "/f", "content": "a"})).is_err(), "{name:?}");
    }
}

const INI: &str = "; head\ntop=1\n\n[a]\n# port = 1\nname = x ; y\nport = 80\n\n[b]\nport: 81\n";

#[test]
fn a_table_of_ini_keys() {
    let key = |section: &str, key: &str, value: &str| json!({"section": section, "key": key, "value": value});
    let table = [
        (key("a", "port", "90"), INI, INI.replace("port = 80", "port = 90")),
        (key("a", "port", "80"), INI, INI.to_owned()),
        (key("b", "port", "82"), INI, INI.replace("port: 81", "port: 82")),
        (key("a", "new", "1"), INI, INI.replace("port = 80\n", "port = 80\nnew = 1\n")),
        (key("c", "k", "v"), INI, format!("{INI}\n[c]\nk: v\n")),
        (json!({"key": "top", "value": "2"}), INI, INI.replace("top=1", "top=2")),
        (json!({"key": "more", "value": "2"}), INI, INI.replace("top=1\n", "top=1\nmore=2\n")),
        // Where the key stands switched off, it is set beside.
        (key("a", "x", "1"), "[a]\n#x = 0\ny = 2\n", "[a]\n#x = 0\nx = 1\ny = 2\n".to_owned()),
        // The last one counts, and it alone is left.
        (key("a", "k", "3"), "[a]\nk=1\nz=0\nk=2\n", "[a]\nz=0\nk=3\n".to_owned()),
        (key("a", "k", "2"), "[a]\nk=1\n[a]\nk=2\n", "[a]\n[a]\nk=2\n".to_owned()),
        // Several values.
        (
            json!({"section": "S", "key": "E", "values": ["", "a b", "c"]}),
            "[S]\nE=x\nF=1\n",
            "[S]\nE=\nE=a b\nE=c\nF=1\n".to_owned(),
        ),
        (json!({"section": "S", "key": "E", "values": ["c"]}), "[S]\nE=a\nE=b\n", "[S]\nE=c\n".to_owned()),
        // A key alone.
        (
            json!({"section": "m", "key": "skip", "bare": true}),
            "[m]\nx = 1\n",
            "[m]\nx = 1\nskip\n".to_owned(),
        ),
        (json!({"section": "m", "key": "skip", "bare": true}), "[m]\nskip = 1\n", "[m]\nskip\n".to_owned()),
        (key("m", "skip", "1"), "[m]\nskip\nx=1\n", "[m]\nskip=1\nx=1\n".to_owned()),
        // A value that goes on in further lines.
        (key("a", "k", "v"), "[a]\nk = 1\n  2\nz = 3\n", "[a]\nk = v\nz = 3\n".to_owned()),
        (key("a", "k", "v"), "[a]\nk=1 \\\n2\nz=3\n", "[a]\nk=v\nz=3\n".to_owned()),
        // Line ends, unfinished lines, marks, blanks before keys, colons in values.
        (key("a", "k", "v"), "[a]\r\nk=1\r\n", "[a]\r\nk=v\r\n".to_owned()),
        (key("a", "k", "v"), "[a]\nk=1", "[a]\nk=v".to_owned()),
        (key("a", "n", "v"), "[a]\nk=1", "[a]\nk=1\nn=v\n".to_owned()),
        (key("a", "k", "v"), "\u{feff}[a]\nk=1\n", "\u{feff}[a]\nk=v\n".to_owned()),
        (json!({"key": "k", "value": "v"}), "\u{feff}[a]\n", "\u{feff}k = v\n[a]\n".to_owned()),
        (key("a", "n", "v"), "[a]\n\tk = 1\n", "[a]\n\tk = 1\n\tn = v\n".to_owned()),
        (key("a", "a:b", "v"), "[a]\na:b = 1\n", "[a]\na:b = v\n".to_owned()),
        (key("a", "url", "http://x/?a=b"), "[a]\nurl = http://y\n", "[a]\nurl = http://x/?a=b\n".to_owned()),
        (key("a", "k", "v"), "", "[a]\nk = v\n".to_owned()),
        (json!({"section": "a", "key": "k", "value": "v", "separator": "="}), "", "[a]\nk=v\n".to_owned()),
        // Removed.
        (json!({"section": "a", "key": "port", "state": "absent"}), INI, INI.replace("port = 80\n", "")),
        (json!({"section": "a", "state": "absent"}), INI, "; head\ntop=1\n\n[b]\nport: 81\n".to_owned()),
        (json!({"section": "z", "state": "absent"}), INI, INI.to_owned()),
    ];
    for (attributes, before, after) in table {
        let spec = an_ini(attributes.clone());
        let once = put_ini(&spec, before);
        assert_eq!(once, after, "{attributes} on {before:?}");
        assert_eq!(put_ini(&spec, &once), once, "again {attributes} on {before:?}");
        let now = ini::observe(&spec, once.as_bytes());
        assert_eq!(state::difference(now.as_ref(), state::desired(&spec).as_ref()), None, "{attributes}");
    }
}

#[test]
fn a_table_of_json_values() {
    let at = |pointer: &str, value: serde_json::Value| json!({"pointer": pointer, "value": value});
    let file = "{\n    \"b\": 1.50,\n    \"a\": {\"x\": [1, 2]},\n    \"é\": null\n}\n";
    let table = [
        (at("/b", json!(2)), file, file.replace("1.50", "2")),
        (at("/a/x", json!([1, 2])), file, file.to_owned()),
        (at("/a/x/1", json!(3)), file, file.replace("[1, 2]", "[1, 3]")),
        (at("/a/y", json!("q\"")), file, file.replace("[1, 2]}", "[1, 2], \"y\": \"q\\\"\"}")),
        (at("/c", json!(true)), file, file.replace("null\n", "null,\n    \"c\": true\n")),
        (
            at("/c/d", json!({"e": [1]})),
            "{\n  \"a\": 1\n}",
            "{\n  \"a\": 1,\n  \"c\": {\n    \"d\": {\n      \"e\": [\n        1\n      ]\n    }\n  }\n}"
                .to_owned(),
        ),
        (at("/c", json!(1)), "", "{\n  \"c\": 1\n}\n".to_owned()),
        (at("/c", json!(1)), "{}", "{\n  \"c\": 1\n}".to_owned()),
        (at("/c", json!(1)), "{\"a\":1}", "{\"a\":1,\"c\":1}".to_owned()),
        (at("/c", json!({"d": 1, "e": 2})), "{\"a\":1}", "{\"a\":1,\"c\":{\"d\":1,\"e\":2}}".to_owned()),
        (at("/c", json!(1)), "{ \"a\": 1, \"b\": 2 }\n", "{ \"a\": 1, \"b\": 2, \"c\": 1 }\n".to_owned()),
        (at("/c", json!(1)), "{\r\n\t\"a\": 1\r\n}", "{\r\n\t\"a\": 1,\r\n\t\"c\": 1\r\n}".to_owned()),
        (at("/a~1b/~0", json!(1)), "{\"a/b\":{\"~\":0}}", "{\"a/b\":{\"~\":1}}".to_owned()),
        (at("/a", json!(2)), "{\"a\":0,\"a\":1}", "{\"a\":0,\"a\":2}".to_owned()),
        (at("/a", json!("é")), "{\"a\": \"\\u00e9\"}", "{\"a\": \"\\u00e9\"}".to_owned()),
        (
            at("/a", json!({"x": 1, "y": 2})),
            "{\"a\": {\"y\":2,\"x\":1}}",
            "{\"a\": {\"y\":2,\"x\":1}}".to_owned(),
        ),
        (json!({"pointer": "/a", "json": "0.10"}), "{\"a\": 1}", "{\"a\": 0.10}".to_owned()),
        (json!({"pointer": "/a", "json": "null"}), "{}", "{\n  \"a\": null\n}".to_owned()),
        (
            json!({"merge": {"a": {"y": 2}, "z": [1]}}),
            "{\"a\": {\"x\": 1}}",
            "{\"a\": {\"x\": 1, \"y\": 2}, \"z\": [1]}".to_owned(),
        ),
        (json!({"pointer": "/b", "state": "absent"}), file, file.replace("\"b\": 1.50,\n    ", "")),
        (json!({"pointer": "/é", "state": "absent"}), file, file.replace(",\n    \"é\": null", "")),
        (json!({"pointer": "/a", "state": "absent"}), "{\"a\":0,\"a\":1}", "{}".to_owned()),
        (json!({"pointer": "/a/b", "state": "absent"}), "{\"a\":0}", "{\"a\":0}".to_owned()),
    ];
    for (attributes, before, after) in table {
        let spec = a_json(attributes.clone());
        let once = put_json(&spec, before).unwrap();
        assert_eq!(once, after, "{attributes} on {before:?}");
        assert_eq!(put_json(&spec, &once).unwrap(), once, "again {attributes} on {before:?}");
    }
}

#[test]
fn what_is_no_json_is_named_by_line_and_column() {
    let spec = a_json(json!({"pointer": "/a/b", "value": 1}));
    let table = [
        ("{\n  // said\n  \"a\": 1\n}", "/f: line 2, column 3: a comment"),
        ("{\n  \"a\": 1,\n}", "/f: it is not JSON: key must be a string at line 3 column 1"),
        ("{\"a\": 1", "line 1 column 7"),
        ("{\"a\": 1}", "what should hold `b` of /a/b is a number"),
        ("{\"a\": [1]}", "`b` of /a/b is no item of a list of 1"),
    ];
    for (file, words) in table {
        let why = put_json(&spec, file).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(put_json(&spec, &deep).is_err());
    assert!(json::observe(&spec, b"\xff").unwrap_err().contains("UTF-8"));
    let gone = a_json(json!({"pointer": "/a/0", "state": "absent"}));
    assert!(put_json(&gone, "{\"a\": [1]}").unwrap_err().contains("not removed by its index"));
}

fn ini_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("[a]".to_owned()),
        Just("[b] ; c".to_owned()),
        "[ \t]{0,2}[kx]( ?[=:] ?)[v0-9 ]{0,3}",
        "[#;] ?k ?= ?1",
        Just("skip".to_owned()),
        Just(String::new()),
        Just("k = 1 \\".to_owned()),
        "[ =:\\[\\]#a-z]{0,6}",
    ]
}

fn a_file(line: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let end = prop_oneof![Just("\n"), Just("\r\n")];
    (proptest::collection::vec(line, 0..12), end, any::<bool>())
        .prop_map(|(lines, end, last)| lines.join(end) + if last { end } else { "" })
}

fn a_json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i16>().prop_map(serde_json::Value::from),
        "[a-c\"\\\\é/~]{0,3}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::btree_map("[a-c/~]{1,2}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn fields(state: Option<&Fields>) -> Fields {
    state.cloned().unwrap_or_default()
}

proptest! {
    #[test]
    fn a_block_twice_is_a_block_once(file in a_file("[a-c# ]{0,3}"), content in a_file("[a-z ]{0,4}"), after in any::<bool>()) {
        let place = if after { json!({"after": "a"}) } else { json!({"insert_before": "a"}) };
        let spec = a_block(&content, place);
        let once = put_block(&spec, &file);
        prop_assert_eq!(&put_block(&spec, &once), &once);
        let now = block::observe(&spec, once.as_bytes()).unwrap();
        prop_assert_eq!(now, Some(spec.declared()));
        let gone = String::from_utf8(block::edit(&spec, once.as_bytes(), None).unwrap()).unwrap();
        let end = if file.contains("\r\n") { "\r\n" } else { "\n" };
        prop_assert!(gone == file || gone == format!("{file}{end}"), "{gone:?}");
    }

    #[test]
    fn an_ini_key_twice_is_an_ini_key_once(file in a_file(ini_line()), value in "[v0-9]{0,3}", section in any::<bool>()) {
        let mut attributes = json!({"key": "k", "value": value});
        if section {
            attributes["section"] = json!("a");
        }
        let spec = an_ini(attributes);
        let once = put_ini(&spec, &file);
        prop_assert_eq!(&put_ini(&spec, &once), &once);
        prop_assert_eq!(ini::observe(&spec, once.as_bytes()), Some(spec.declared()), "{:?}", once);
        // Every line that is not the key's is kept, in its order.
        let gone = |text: &str| String::from_utf8(ini::edit(&spec, text.as_bytes(), None)).unwrap();
        let (was, is) = (gone(&file), gone(&once));
        let mut rest = is.lines();
        prop_assert!(was.lines().all(|line| rest.any(|other| other == line)), "{:?} {:?}", was, is);
        // The state before takes it back; a backslash at a value's end joins what follows it now.
        let before = ini::observe(&spec, file.as_bytes());
        let back = ini::edit(&spec, once.as_bytes(), before.as_ref());
        if !file.contains('\\') {
            prop_assert_eq!(ini::observe(&spec, &back), before, "{:?}", String::from_utf8_lossy(&back));
        }
    }

    #[test]
    fn a_json_value_twice_is_a_json_value_once(
        file in proptest::collection::btree_map("[a-c/~]{1,2}", a_json_value(), 0..4),
        value in a_json_value(), pretty in any::<bool>(), merged in any::<bool>(),
    ) {
        let file = serde_json::Value::Object(file.into_iter().collect());
        let text = if pretty { serde_json::to_string_pretty(&file) } else { serde_json::to_string(&file) }.unwrap();
        let spec = match merged {
            true => a_json(json!({"merge": {"d": {"e": value}, "f": 1}})),
            false => a_json(json!({"pointer": "/d/e", "value": value})),
        };
        let once = put_json(&spec, &text).unwrap();
        prop_assert_eq!(&put_json(&spec, &once).unwrap(), &once);
        let mut wanted = file.clone();
        wanted["d"] = json!({"e": value});
        if merged {
            wanted["f"] = json!(1);
        }
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&once).unwrap(), wanted);
        // What was there stands in the same bytes, and removing gives them back.
        let before = json::observe(&spec, text.as_bytes()).unwrap();
        let back = json::edit(&spec, once.as_bytes(), before.as_ref()).unwrap();
        prop_assert_eq!(
            fields(json::observe(&spec, &back).unwrap().as_ref()), fields(before.as_ref())
        );
    }
}
