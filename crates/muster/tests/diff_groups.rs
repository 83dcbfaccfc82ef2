//! CFG-6, OPS-2, SYN-5: what a publish would change, fleet-wide: grouped by identical
//! difference, deletions shown, what only observes marked, what the control plane comes to be
//! allowed said, and nothing sensitive printed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::diff::{self, Compared};
use lang::Pattern;
use model::delta::{Edit, render};
use resolve::Tree;
use test_support::programs::repo::{Control, changes, code, fleet_yaml, muster, out, publish, write};

const BASE: &str = "\
params:
  note: {type: string, default: hello}
  password: {type: string, default: first-secret}
resources:
  - file: /etc/motd
    content: ${{ params.note }}
    mode: \"0644\"
  - file: /etc/old.conf
    content: old
    on_remove: delete
  - file: /etc/shadowed
    content: ${{ params.password }}
    sensitive: true
";

const NODES: &str = "\
nodes:
  - match: [web-1.test, web-2.test, web-3.test]
    roles: [base]
  - match: [db-1.test]
    roles: [base]
    vars: {base.note: database}
  - match: [lab-1.test]
    roles: [base]
    labels: {phase: adopt}
  - match: [\"edge-*.test\"]
    roles: [base]
";

fn repo() -> Vec<(&'static str, String)> {
    vec![
        ("fleet.yaml", fleet_yaml()),
        ("groups.yaml", "groups:\n  - where: labels.phase == \"adopt\"\n    observe: true\n".to_owned()),
        ("nodes.yaml", NODES.to_owned()),
        ("roles/base.yaml", "modules: [base]\n".to_owned()),
        ("modules/base/module.yaml", BASE.to_owned()),
    ]
}

async fn compare(control: &Control, files: &[(&str, String)], selector: Option<&str>) -> Compared {
    let tree = Tree::of(files.iter().map(|(path, text)| (*path, text.as_str())));
    let fleet = resolve::check(&tree).unwrap();
    let selector = selector.map(|text| Pattern::parse(text).unwrap());
    let operator = control.operator().await;
    diff::against_published(&operator, &fleet, selector.as_ref(), None)
        .await
        .unwrap_or_else(|failure| panic!("{}", failure.text()))
}

fn edited(edit: impl Fn(&str, &str) -> String) -> Vec<(&'static str, String)> {
    repo().into_iter().map(|(path, text)| (path, edit(path, &text))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_repo_is_no_difference() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let compared = compare(&control, &repo(), None).await;
    assert!(compared.is_same());
    assert_eq!((compared.from, compared.nodes, compared.same), (Some(1), 5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_change_alike_are_one_group_and_observers_are_marked() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let files = edited(|path, text| match path {
        "modules/base/module.yaml" => {
            text.replace("  - file: /etc/old.conf\n    content: old\n    on_remove: delete\n", "")
        }
        _ => text.to_owned(),
    });
    let compared = compare(&control, &files, None).await;
    assert_eq!((compared.same, compared.change, compared.observe, compared.patterns), (0, 5, 1, 1));
    let groups: Vec<(usize, &str, bool, bool)> = compared
        .groups
        .iter()
        .map(|group| (group.count, &*group.nodes[0], group.first.observe, group.pattern))
        .collect();
    assert_eq!(groups[0], (4, "db-1.test", false, false));
    assert!(groups.contains(&(1, "lab-1.test", true, false)), "{groups:?}");
    assert!(groups.contains(&(1, "edge-*.test", false, true)), "{groups:?}");
    let text = render(&compared.groups[0].first.resources);
    assert_eq!(text, "- base/file:/etc/old.conf  no longer declared -> DELETE (on_remove: delete)\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_var_changes_only_the_nodes_that_it_reaches() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let files = edited(|path, text| match path {
        "nodes.yaml" => text.replace("base.note: database", "base.note: \"two\\nlines\""),
        _ => text.to_owned(),
    });
    let compared = compare(&control, &files, None).await;
    assert_eq!((compared.same, compared.change, compared.groups.len()), (4, 1, 1));
    let (line, edit) = compared.groups[0].first.resources.edits.iter().next().unwrap();
    assert_eq!(line.to_string(), "base/file:/etc/motd");
    assert!(
        matches!(edit, Edit::Change { from, to } if from["content"] == "database" && to["content"] == "two\nlines")
    );
    assert!(compare(&control, &files, Some("web-*.test")).await.is_same());
    assert_eq!(compare(&control, &files, Some("db-1.test")).await.change, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_to_accept_a_part_is_shown() {
    let control = Control::start().await;
    let part = |validate: &str| {
        edited(|path, text| match path {
            "modules/base/module.yaml" => format!(
                "{text}  - ini: port\n    path: /etc/app.ini\n    key: port\n    value: 1\n    create: true\n    \
                 validate: {validate}\n"
            ),
            _ => text.to_owned(),
        })
    };
    publish(&mut control.publisher().await, changes(&part("app -t %s"))).await;
    let compared = compare(&control, &part("app --test %s"), Some("web-1.test")).await;
    let text = render(&compared.groups[0].first.resources);
    assert!(text.contains("validate: app -t %s -> app --test %s"), "{text}");
    assert_eq!(compared.groups[0].first.resources.edits.len(), 1, "{text}");
}

/// `fleet.yaml` with more at its end.
fn granting(more: &str) -> Vec<(&'static str, String)> {
    edited(|path, text| match path {
        "fleet.yaml" => format!("{text}{more}"),
        _ => text.to_owned(),
    })
}

const OPS: &str = "\
delegations:
  ops:
    nodes: [\"web-*.test\"]
    commands: [/usr/bin/uptime]
    actions:
      restart: {command: [/usr/bin/systemctl, restart, \"{unit}\"], args: {unit: \"web-*\"}, timeout: 60s}
";

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_allowed_is_said_and_grouped() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let compared = compare(&control, &granting(OPS), None).await;
    assert_eq!((compared.same, compared.change, compared.groups.len()), (2, 3, 1), "the web nodes alone");
    assert_eq!(
        render(&compared.groups[0].first.granted),
        "+ delegation ops: action restart  the control plane MAY NOW ask for it\n    \
         command: /usr/bin/systemctl restart {unit}\n    timeout: 1m\n    {unit}: web-*\n\
         + delegation ops: run /usr/bin/uptime  the control plane MAY NOW ask for it\n"
    );
    publish(&mut control.publisher().await, changes(&granting(OPS))).await;
    assert!(compare(&control, &granting(OPS), None).await.is_same());
    let wider = OPS.replace("uptime]", "uptime, /usr/bin/id]").replace("unit: \"web-*\"", "unit: \"*\"");
    let compared = compare(&control, &granting(&wider), Some("web-1.test")).await;
    assert_eq!(
        render(&compared.groups[0].first.granted),
        "~ delegation ops: action restart  MAY NOW be asked for otherwise\n    {unit}: web-* -> *\n\
         + delegation ops: run /usr/bin/id  the control plane MAY NOW ask for it\n"
    );
    let compared = compare(&control, &repo(), None).await;
    let text = render(&compared.groups[0].first.granted);
    assert!(text.contains("- delegation ops: run /usr/bin/uptime  may no longer be asked for\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn synchronization_and_settings_are_said_beside_resources() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let sync = "sync: {web: {nodes: [\"web-*.test\", \"db-*.test\"], mode: managed, kinds: [App], folder: /srv/m}}\n";
    let files: Vec<(&str, String)> = granting(sync)
        .into_iter()
        .map(|(path, text)| {
            let text = text.replace("default: hello", "default: goodbye");
            (path, text.replace("freshness: 24h", "freshness: 24h, transport: stream"))
        })
        .collect();
    let compared = compare(&control, &files, None).await;
    let web = compared.groups.iter().find(|group| &*group.nodes[0] == "web-1.test").unwrap();
    assert_eq!(
        render(&web.first.granted),
        "~ settings of the channel\n    transport: auto -> stream\n\
         + synchronization  BEGINS: objects come and go by what the other side says\n    folder: /srv/m\n    \
         kinds: App\n    max_delete: 25%\n    mismatch: recreate\n    mode: managed\n"
    );
    assert!(render(&web.first.resources).contains("hello -> goodbye"));
    let db = compared.groups.iter().find(|group| &*group.nodes[0] == "db-1.test").unwrap();
    assert!(db.first.resources.is_empty() && !db.first.granted.is_empty(), "only what is granted differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_is_told_apart_names_its_parts() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let one = "delegations: {one: {nodes: [edge-1.test], queries: [traits]}}\n";
    let compared = compare(&control, &granting(one), None).await;
    assert_eq!((compared.change, compared.patterns), (0, 1), "the other part has what it had");
    assert_eq!(&*compared.groups[0].nodes[0], "edge-*.test");
    publish(&mut control.publisher().await, changes(&granting(one))).await;
    let more = "delegations: {one: {queries: [traits]}, two: {nodes: [edge-1.test], queries: [disks]}}\n";
    let compared = compare(&control, &granting(more), None).await;
    let of_patterns = compared.groups.iter().filter(|group| group.pattern);
    let mut names: Vec<&str> = of_patterns.map(|group| &*group.nodes[0]).collect();
    names.sort_unstable();
    assert_eq!(names, ["edge-*.test", "edge-*.test except edge-1.test"]);
    // What is taken back is one pattern again.
    let compared = compare(&control, &repo(), None).await;
    assert_eq!(compared.patterns, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn render_shows_what_is_granted() {
    let dir = tempfile::tempdir().unwrap();
    let sync = "sync: {web: {nodes: [\"web-*.test\"], mode: autonomous, kinds: [App]}}\n";
    write(dir.path(), &granting(&(OPS.to_owned() + sync)));
    let render = async |node: &str, more: &[&str]| {
        let output = muster(dir.path(), &[&["render", node], more].concat()).await;
        assert_eq!(code(&output), 0);
        out(&output)
    };
    let text = render("web-1.test", &[]).await;
    assert!(text.contains("\nsynchronization\n  kinds: App\n"), "{text}");
    assert!(
        text.contains("\ndelegation ops  (the control plane may)\n  action restart\n    command: /usr/bin/systemctl restart {unit}\n"),
        "{text}"
    );
    assert!(text.contains("\n  run /usr/bin/uptime\n"), "{text}");
    let text = render("db-1.test", &[]).await;
    assert!(!text.contains("synchronization") && !text.contains("delegation"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&render("web-2.test", &["--json"]).await).unwrap();
    assert_eq!(json["sync"]["mode"], "autonomous");
    assert_eq!(json["delegations"]["ops"]["commands"][0][0], "/usr/bin/uptime");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_name_their_file_and_packages_their_state() {
    const PARTS: &str = "\
resources:
  - {ini: /etc/a.ini, name: size, section: Journal, key: SystemMaxUse, value: 200M}
  - {block: limits, path: /etc/limits.conf, content: hard}
  - {json: /etc/a.json, name: level, pointer: /log/level, value: info}
  - {line: \"export A=1\", path: /etc/profile, matching: ^export A}
  - {host: db-1.test, address: 192.0.2.10}
  - {package: telnetd, state: absent, purge: true}
  - {package: tzdata, state: latest}
  - {type: ssh_key, name: keys, user: amy, key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl}
";
    let dir = tempfile::tempdir().unwrap();
    let nodes = "nodes:\n  - match: [web-1.test]\n    modules: [parts]\n";
    let files = [("modules/parts/module.yaml", PARTS.to_owned()), ("nodes.yaml", nodes.to_owned())];
    write(dir.path(), &[&files[..], &[("fleet.yaml", fleet_yaml())]].concat());
    let output = muster(dir.path(), &["render", "web-1.test"]).await;
    assert_eq!(code(&output), 0);
    let text = out(&output);
    assert!(text.contains("package:telnetd\n    purge: true\n    state: absent\n  "), "{text}");
    assert!(text.contains("package:tzdata\n    state: latest\n"), "{text}");
    for field in [
        "path: /etc/a.ini",
        "section: Journal",
        "key: SystemMaxUse",
        "path: /etc/limits.conf",
        "path: /etc/a.json",
        "path: /etc/profile",
        "matching: ^export A",
        "path: /etc/hosts",
        "user: amy",
    ] {
        assert!(text.contains(field), "{field}:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let files = edited(|path, text| match path {
        "nodes.yaml" => text.replace("web-3.test", "web-4.test"),
        _ => text.to_owned(),
    });
    let compared = compare(&control, &files, None).await;
    assert_eq!((compared.nodes, compared.change), (6, 2));
    let said: Vec<String> =
        compared.groups.iter().map(|group| format!("{} {:?}", group.nodes[0], group.assigned)).collect();
    assert!(
        said.contains(&"web-3.test Lost".to_owned()) && said.contains(&"web-4.test New".to_owned()),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sensitive_differs_and_is_not_shown() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let files = edited(|_, text| text.replace("first-secret", "second-secret"));
    let compared = compare(&control, &files, Some("web-1.test")).await;
    let shown = format!(
        "{} {}",
        render(&compared.groups[0].first.resources),
        serde_json::to_string(&compared).unwrap()
    );
    assert!(shown.contains("base/file:/etc/shadowed") && shown.contains("differs"), "{shown}");
    assert!(!shown.contains("first-secret") && !shown.contains("second-secret"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_prints_groups_and_ends_with_two() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &edited(|_, text| text.replace("default: hello", "default: goodbye")));
    let operator = control.operator_file().display().to_string();
    let output = muster(dir.path(), &["diff", "--operator", &operator]).await;
    assert_eq!(code(&output), 2);
    let text = out(&output);
    assert!(
        text.starts_with("r1 -> this repo   5 nodes: 0 same, 5 change (1 only observe); 1 pattern"),
        "{text}"
    );
    assert!(
        text.contains(
            "     3  web-1.test +2\n        ~ base/file:/etc/motd\n            content: hello -> goodbye\n"
        ),
        "{text}"
    );
    assert!(text.contains("(bound with the built-in sample"), "{text}");
}

/// The lines of what differs in the resources of the only group.
async fn resources(before: &[(&str, String)], after: &[(&str, String)]) -> String {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(before)).await;
    let compared = compare(&control, after, None).await;
    assert_eq!(compared.groups.len(), 1, "{:?}", compared.groups);
    render(&compared.groups[0].first.resources)
}

fn fleet_of(modules: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let names: Vec<&str> = modules.iter().map(|(path, _)| path.split('/').nth(1).unwrap()).collect();
    let nodes = format!("nodes:\n  - match: [web-1.test]\n    modules: [{}]\n", names.join(", "));
    let mut files = vec![("fleet.yaml", fleet_yaml()), ("nodes.yaml", nodes)];
    files.extend(modules.iter().map(|(path, text)| (*path, (*text).to_owned())));
    files
}

const A_FILE: &str = "resources:\n  - file: /etc/del\n    content: x\n    on_remove: delete\n";

/// A8: what the node keeps is not shown as removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_resource_in_another_module_and_a_renamed_module_are_moves() {
    let before =
        fleet_of(&[("modules/a/module.yaml", A_FILE), ("modules/b/module.yaml", "description: b\n")]);
    let moved = fleet_of(&[("modules/a/module.yaml", "description: a\n"), ("modules/b/module.yaml", A_FILE)]);
    assert_eq!(resources(&before, &moved).await, "~ b/file:/etc/del  was a/file:/etc/del\n");
    let whole = format!("when: traits.cpu.count > 1\n{A_FILE}");
    let before = fleet_of(&[("modules/a/module.yaml", &whole)]);
    let renamed = fleet_of(&[("modules/b/module.yaml", &whole.replace("content: x", "content: y"))]);
    let text = resources(&before, &renamed).await;
    assert_eq!(text, "~ b/file:/etc/del  was a/file:/etc/del\n    content: x -> y\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_with_another_name_for_the_same_line_is_a_move() {
    let module = |name: &str| {
        format!(
            "resources:\n  - line: one\n    name: {name}\n    path: /etc/f\n  - line: two\n    path: /etc/f\n"
        )
    };
    let (before, after) = (module("first"), module("other"));
    let before = fleet_of(&[("modules/a/module.yaml", &before)]);
    let after = fleet_of(&[("modules/a/module.yaml", &after)]);
    assert_eq!(resources(&before, &after).await, "~ a/line:other  was a/line:first\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_becomes_a_directory_is_one_change() {
    let before = fleet_of(&[("modules/a/module.yaml", A_FILE)]);
    let after =
        fleet_of(&[("modules/a/module.yaml", "resources:\n  - directory: /etc/del\n    mode: \"0750\"\n")]);
    let text = resources(&before, &after).await;
    assert!(text.starts_with("~ a/directory:/etc/del  takes the place of a/file:/etc/del\n"), "{text}");
    assert!(text.contains("mode: 0750") && !text.contains("DELETE"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_observing_says_that_removals_were_held_back() {
    let files = |observe: &str| {
        let mut files = fleet_of(&[("modules/a/module.yaml", A_FILE)]);
        files[1].1.push_str(observe);
        files
    };
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&files("    observe: true\n"))).await;
    let compared = compare(&control, &files(""), None).await;
    assert!(compared.groups[0].first.observe_ends);
}

/// A13: `*` is every node.
#[tokio::test(flavor = "multi_thread")]
async fn a_star_alone_is_every_node() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    write(control.dir.path(), &repo());
    let operator = control.operator_file().display().to_string();
    let output = muster(control.dir.path(), &["diff", "*", "--operator", &operator]).await;
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert!(out(&output).contains("5 nodes: all the same"), "{}", out(&output));
}
