//! CNV-2, CFG-6: what people read of a difference, to the letter.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::delta::render;
use model::lines::diff_lines;
use model::{Delta, Edit, Fields};

fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn delta(edits: Vec<(&str, Edit<Fields>)>) -> Delta<String, Fields> {
    Delta { edits: edits.into_iter().map(|(key, edit)| (key.to_owned(), edit)).collect() }
}

#[test]
fn a_difference_as_people_read_it() {
    let site = |port: &str| format!("server {{\n  {port}\n  root /srv;\n}}\n");
    let text = render(&delta(vec![
        (
            "nginx/file:/etc/nginx/conf.d/site.conf",
            Edit::Change {
                from: fields(&[("content", &site("listen 8080;")), ("mode", "0600"), ("owner", "root")]),
                to: fields(&[("content", &site("listen 8443 ssl;")), ("mode", "0644"), ("owner", "root")]),
            },
        ),
        ("base/directory:/srv", Edit::Add { to: fields(&[("mode", "0755"), ("state", "present")]) }),
        ("base/user:jdoe", Edit::Remove { from: fields(&[("shell", "/bin/sh")]) }),
        (
            "base/symlink:/etc/x",
            Edit::Change {
                from: fields(&[("target", "/a"), ("backup", "yes")]),
                to: fields(&[("target", "/b")]),
            },
        ),
    ]));
    let want = "\
+ base/directory:/srv
    mode: 0755
    state: present
~ base/symlink:/etc/x
    backup: yes -> (none)
    target: /a -> /b
- base/user:jdoe
~ nginx/file:/etc/nginx/conf.d/site.conf
    content:
      -  listen 8080;
      +  listen 8443 ssl;
    mode: 0600 -> 0644
";
    assert_eq!(text, want);
}

#[test]
fn a_long_difference_is_cut() {
    let to: String = (0..100).map(|i| format!("line {i}\n")).collect();
    let text = render(&delta(vec![("m/file:/f", Edit::Add { to: fields(&[("content", &to)]) })]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["+ m/file:/f", "    content:", "      +line 0"]);
    assert_eq!((lines.len(), lines[42]), (43, "      ... 60 more lines"));
}

#[test]
fn equal_states_render_to_nothing() {
    let state = fields(&[("mode", "0644")]);
    assert_eq!(
        render(&Delta::between(&[("k".to_owned(), state.clone())].into(), &[("k".to_owned(), state)].into())),
        ""
    );
}

#[test]
fn lines_that_differ() {
    for (from, to, want) in [
        ("", "", vec![]),
        ("a\nb\nc", "a\nb\nc", vec![]),
        ("a\nb\nc", "a\nx\nc", vec!["-b", "+x"]),
        ("a\nc", "a\nb\nc", vec!["+b"]),
        ("a\na\na", "a\na", vec!["-a"]),
        ("a", "", vec!["-a"]),
        ("", "a\nb", vec!["+a", "+b"]),
        // Two distant edits leave what is between them alone (D6).
        ("a\nb\nc\nd\ne", "a\nB\nc\nD\ne", vec!["-b", "+B", "-d", "+D"]),
        ("a\nb\nc\nd", "b\nc\nx\nd\ne", vec!["-a", "+x", "+e"]),
    ] {
        assert_eq!(diff_lines(from, to), want, "{from:?} to {to:?}");
    }
}

#[test]
fn an_edit_on_the_wire() {
    let edit = |edit: &Edit<Fields>| serde_json::to_string(edit).unwrap();
    let state = fields(&[("mode", "0644")]);
    assert_eq!(edit(&Edit::Add { to: state.clone() }), r#"{"op":"add","to":{"mode":"0644"}}"#);
    assert_eq!(edit(&Edit::Remove { from: state }), r#"{"op":"remove","from":{"mode":"0644"}}"#);
}

/// What is too large to be compared line by line is shown whole, and soon.
#[test]
fn huge_texts_are_compared_by_head_and_tail() {
    let text = |letter: char| -> String { (0..50_000).map(|n| format!("{letter}{n}\n")).collect() };
    let lines = diff_lines(&format!("head\n{}tail\n", text('a')), &format!("head\n{}tail\n", text('b')));
    assert_eq!((lines.len(), lines[0].as_str(), lines[99_999].as_str()), (100_000, "-a0", "+b49999"));
}
