//! EXE-1: the example that the reference shows for each resource type is a right one, in
//! the short form and in the long.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{fleet_with, right, with};
use catalog::types::TYPES;

#[test]
fn each_example_checks_and_binds() {
    for kind in TYPES {
        let indented: String = kind.example.lines().map(|line| format!("  {line}\n")).collect();
        let module = format!("params: {{x: y}}\nresources:\n{indented}");
        let tree = with(
            fleet_with("  x: y\n"),
            [
                ("modules/app/module.yaml", &*module),
                ("modules/app/templates/motd.j2", "hi\n"),
                ("modules/app/executors/health.sh", "#!/bin/sh\n"),
                ("modules/app/files/tool-1.4.tar.gz", "an archive"),
                ("modules/app/files/app-1.4.tar.gz", "a tree of files"),
            ],
        );
        let shared = right(&tree).specialize().modules["app"].clone();
        let resource = &shared.module.resources[0];
        assert_eq!(resource.kind, kind.name);
        let rendered = resource.attributes.contains_key("template").then(|| "hi\n".to_owned());
        let context = catalog::schema::BindContext { files: &shared.module.files, rendered };
        let bound = catalog::schema::bind(kind.name, &resource.name, &resource.attributes, &context);
        assert!(bound.is_ok(), "{}: {bound:?}", kind.name);
    }
}

#[test]
fn the_long_form_is_the_same_thing() {
    let read = |resources: &str| {
        let module = format!("params: {{x: y}}\nresources:\n{resources}");
        right(&with(fleet_with(""), [("modules/app/module.yaml", &*module)])).specialize().modules["app"]
            .digest
    };
    let pairs = [
        ("  - file: /etc/x\n    content: a\n", "  - content: a\n    name: /etc/x\n    type: file\n"),
        ("  - exec: [a, b]\n    always: true\n", "  - type: exec\n    command: [a, b]\n    always: true\n"),
        ("  - line: x y\n    path: /etc/x\n", "  - {type: line, path: /etc/x, line: x y}\n"),
    ];
    for (short, long) in pairs {
        assert_eq!(read(short), read(long), "{short}");
    }
}
