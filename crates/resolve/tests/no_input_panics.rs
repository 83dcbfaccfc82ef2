//! CFG-1, SCL-3: whatever a file holds, a check ends with a fleet or with mistakes that can
//! be shown, each at a place.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{fleet_with, with};
use proptest::prelude::*;
use resolve::{Tree, check, codes, render};

fn full() -> Tree {
    with(
        fleet_with("  x: {type: list, default: [a], merge: unique}\n  port: 80\n"),
        [
            (
                "fleet.yaml",
                "format: 1\nname: t\nchannels: {stable: {freshness: 24h, transport: sse}}\ndefaults: {channel: stable}\nsync:\n  a: {nodes: [\"web-1*.t\", \"/db1+/\"], mode: managed, kinds: [App, Site], folder: /srv/m, max_delete: 10%}\n  b: {mode: autonomous, kinds: [App], mismatch: upsert}\ndelegations:\n  ops:\n    nodes: [\"*-2.t\", a.t]\n    commands: [\"/bin/a 'b c' **\", [/bin/b, \"-*\"]]\n    actions: {go: {command: [/bin/c, \"{x}\"], args: {x: \"web-*\"}, timeout: 5s}}\n    queries: [traits, {file: [/etc/*]}]\n",
            ),
            (
                "groups.yaml",
                "groups:\n  - where: labels.site == \"north\" and version(\"1.10\") > version(\"1.9\")\n    vars: {app.x: [b]}\n",
            ),
            (
                "nodes.yaml",
                "nodes:\n  - match: [\"web-*.t\", \"/db[0-9]+/\", a.t]\n    except: [\"web-lab?.t\"]\n    roles: [app]\n    labels: {site: north}\n    vars:\n      app.port: \"${{ 8000 + 1 }}\"\n    conditional_vars:\n      - when: traits.memory.total_mb < 1024\n        vars: {app.port: 81}\n",
            ),
            ("hosts/a.t.yaml", "environment: staging\nvars: {app.x: [ä, 'b c']}\n"),
            (
                "modules/app/module.yaml",
                "params:\n  x: {type: list, default: [a], merge: unique}\n  port: 80\nresources:\n  - file: /etc/x\n    id: x\n    content: |\n      port ${{ params.port }}\n      ü ${{ node.hostname | upper }}\n    mode: 0644\n    notify: [reload]\n  - line: \"a b\"\n    path: /etc/hosts\n    matching: ^a\n    when: file_exists(\"/etc/hosts\") or changed(\"x\")\n    subscribes: x\n  - name: c\n    type: custom\n    script: executors/c.sh\nhandlers:\n  - id: reload\n    exec: [a, -b]\nverify: a -t\n",
            ),
            ("modules/app/templates/t.j2", "{% for a in params.x %}\n{{ a }}\n{% endfor %}\n"),
            ("modules/app/executors/c.sh", "#!/bin/sh\n"),
        ],
    )
}

/// Bytes that mean something to some reader.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "",
        " ",
        "\n",
        "\n  ",
        ": ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "${{",
        "}}",
        "{{",
        "{%",
        "%}",
        "\"",
        "'",
        "|",
        ">",
        "&a",
        "*a",
        "!!t",
        "---\n",
        "? ",
        "#",
        "\t",
        "\u{feff}",
        "\u{0}",
        "ä",
        "🦀",
        "secret:",
        "/",
        "..",
        "(",
        ")",
        "null",
        "~",
        "0644",
        "-",
        ",",
        "\r\n",
        "%YAML 1.2\n",
        "<<",
    ];
    prop_oneof![
        6 => proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn spliced_files_are_checked(splices in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..12, piece()), 1..5)) {
        let mut tree = full();
        for (file, place, cut, piece) in splices {
            let path = file.get(&tree.files.keys().cloned().collect::<Vec<_>>()).clone();
            let mut bytes = tree.files[&path].to_vec();
            let start = if bytes.is_empty() { 0 } else { place.index(bytes.len()) };
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, piece);
            tree.files.insert(path, bytes.into());
        }
        if let Err(found) = check(&tree) {
            prop_assert!(!found.is_empty());
            for diagnostic in &found {
                prop_assert!(codes::explain(diagnostic.code).is_some(), "{}", diagnostic.code);
                prop_assert!(!diagnostic.message.is_empty());
                let placed = diagnostic.span.as_ref().is_none_or(|span| tree.files.contains_key(&*span.file));
                prop_assert!(placed, "{diagnostic:?}");
            }
            prop_assert!(!render(&found, &tree).is_empty());
        }
    }
}

#[test]
fn the_fleet_that_is_spliced_is_right() {
    crate::common::right(&full());
}
