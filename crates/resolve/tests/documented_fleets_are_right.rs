//! CFG-1, CFG-2: what the pages show of a fleet repo passes `muster check`: every YAML of the README and of
//! `docs/`, put where it belongs into a fleet that has the rest. The tutorial's fleet is checked as a
//! whole by its own test, the examples of resource types by `resource_type_examples`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use resolve::{Tree, check, render};

/// What the snippets name and do not show.
const SURROUNDINGS: &[(&str, &str)] = &[
    ("fleet.yaml", HEAD),
    ("environments.yaml", "environments: {production: {}, staging: {}}\n"),
    (
        "nodes.yaml",
        "nodes:\n  - match: [web-1.example.com]\n    roles: [base, web]\n    modules: [shown]\n    labels: {region: eu, phase: adopt}\n",
    ),
    ("roles/base.yaml", "modules: [base]\n"),
    ("roles/web.yaml", "modules: [nginx]\n"),
    ("modules/base/module.yaml", "params: {ntp: [ntp.example.com], loglevel: info}\n"),
    ("modules/nginx/module.yaml", "params: {port: {type: port, default: 80}, workers: 2}\n"),
    ("modules/certs/module.yaml", "params: {}\n"),
    ("modules/extra/module.yaml", "params: {}\n"),
    ("modules/debug/module.yaml", "params: {}\n"),
    ("modules/shown/module.yaml", "params: {}\n"),
    ("modules/shown/templates/site.conf.j2", "# {{ node.hostname }}\n"),
    ("modules/shown/templates/app.conf.j2", "# {{ node.hostname }}\n"),
    ("modules/shown/files/app-1.4.tar.gz", "a tree of files"),
    ("modules/shown/executors/account.sh", "#!/bin/sh\n"),
];
const HEAD: &str =
    "format: 1\nname: acme\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n";
/// The params of a module that shows none.
const PARAMS: &str = "params:\n  sites: {type: list, default: [{name: shop, port: 8080}]}\n";

/// A fenced YAML of a page.
struct Snippet {
    page: PathBuf,
    line: usize,
    text: String,
}

fn pages(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
}

fn snippets(page: &Path) -> Vec<Snippet> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line == "```yaml" {
            let inside: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            let text = inside.iter().map(|line| format!("{line}\n")).collect();
            found.push(Snippet { page: page.to_owned(), line: number + 1, text });
        }
    }
    found
}

impl Snippet {
    fn has_key(&self, key: &str) -> bool {
        self.text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))
    }

    /// The file that it shows, and what stands in it; none of what is no fleet repo's.
    fn file(&self) -> Option<(&'static str, String)> {
        let of_others = ["kind", "steps"].iter().any(|key| self.has_key(key));
        if of_others || self.text.starts_with("# Ansible") {
            return None;
        }
        let keys = [
            ("nodes", "nodes.yaml"),
            ("groups", "groups.yaml"),
            ("environments", "environments.yaml"),
            ("tokens", "tokens.yaml"),
            ("revocations", "revocations.yaml"),
            ("recipients", "recipients.yaml"),
            ("modules", "roles/web.yaml"),
            ("environment", "hosts/web-1.example.com.yaml"),
        ];
        let fleet = ["format", "channels", "windows", "rollouts", "sync", "delegations", "vars", "secrets"];
        let module = ["resources", "description"];
        let text = &self.text;
        if let Some((_, path)) = keys.iter().find(|(key, _)| self.has_key(key)) {
            Some((path, text.clone()))
        } else if module.iter().any(|key| self.has_key(key)) {
            let params = if self.has_key("params") { "" } else { PARAMS };
            Some(("modules/shown/module.yaml", format!("{params}{text}")))
        } else if text.trim_start().starts_with("- ") {
            let indented: String = text.lines().map(|line| format!("  {}\n", line.trim_end())).collect();
            Some(("modules/shown/module.yaml", format!("{PARAMS}resources:\n{indented}")))
        } else if fleet.iter().any(|key| self.has_key(key)) {
            let head = if self.has_key("format") { "" } else { HEAD };
            Some(("fleet.yaml", format!("{head}{text}")))
        } else {
            panic!("{}:{}: what is this of?\n{text}", self.page.display(), self.line)
        }
    }
}

#[test]
fn each_snippet_is_right_where_it_belongs() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![top.join("README.md")];
    pages(&top.join("docs"), &mut paths);
    let own_tests = ["tutorial.md", "tutorial-rollouts.md", "resource-types.md"];
    let is_here = |page: &&PathBuf| !own_tests.iter().any(|name| page.ends_with(name));
    let mut checked = 0;
    for snippet in paths.iter().filter(is_here).flat_map(|page| snippets(page)) {
        let Some((path, text)) = snippet.file() else { continue };
        let mut tree = Tree::of(SURROUNDINGS.iter().copied());
        tree.files.extend(Tree::of([(path, text.as_str())]).files);
        if let Err(found) = check(&tree) {
            panic!("{}:{}:\n{}", snippet.page.display(), snippet.line, render(&found, &tree));
        }
        checked += 1;
    }
    assert!(checked >= 15, "only {checked} snippets were found: is a fence written another way?");
}
