//! CFG-4: `notify: NAME` means the one resource of that name that does something when it is notified, and a
//! node gets it in words that mean no other. Where several do, and in every other reference, it is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{codes, fleet_with, right, with};
use resolve::Tree;

const PACKAGE: &str = "  - package: nginx\n";
const SERVICE: &str = "  - service: nginx\n    state: running\n";

/// A fleet whose module has these resources, and a file that says this.
fn module(others: &str, says: &str) -> Tree {
    let body = format!("resources:\n{others}  - file: /etc/x\n    content: a\n    {says}\n");
    with(fleet_with("  x: y\n"), [("modules/app/module.yaml", &*body)])
}

/// Whom the file of a module notifies, as nodes get it.
fn notified(tree: &Tree) -> Vec<String> {
    let fleet = right(tree);
    let module = &fleet.specialize().modules["app"].module;
    let file = module.resources.iter().find(|resource| resource.name == "/etc/x").unwrap();
    file.notify.clone()
}

#[test]
fn a_package_and_a_service_of_one_name_leave_no_doubt() {
    let named = SERVICE.replace("    state", "    id: web\n    state");
    let handled = "  - exec: [reload]\n    name: nginx\n    when: changed\n    always: true\n";
    let table = [
        (format!("{PACKAGE}{SERVICE}"), "service:nginx"),
        (format!("{PACKAGE}{named}"), "web"),
        (format!("{PACKAGE}{handled}"), "exec:nginx"),
        (SERVICE.to_owned(), "nginx"),
    ];
    for (others, expected) in table {
        assert_eq!(notified(&module(&others, "notify: nginx")), [expected], "{others}");
    }
    let several = module(&format!("{PACKAGE}{SERVICE}"), "notify: [nginx, package:nginx]");
    assert_eq!(notified(&several), ["service:nginx", "package:nginx"], "what is said is left");
}

#[test]
fn a_handler_of_that_name_is_meant_too() {
    let handlers = "handlers:\n  - exec: [nginx, -s, reload]\n    name: nginx\n";
    let tree = module(PACKAGE, &format!("notify: nginx\n{handlers}"));
    assert_eq!(notified(&tree), ["exec:nginx"]);
}

#[test]
fn one_of_another_module_is_meant_there() {
    let other = format!("resources:\n{PACKAGE}{SERVICE}");
    let tree = with(
        module("", "notify: web/nginx"),
        [("modules/web/module.yaml", &*other), ("roles/app.yaml", "modules: [app, web]\n")],
    );
    assert_eq!(notified(&tree), ["web/service:nginx"]);
}

#[test]
fn where_several_can_act_or_none_it_is_refused() {
    let timer = "  - timer: nginx\n    command: /usr/bin/x\n    on_calendar: daily\n";
    let group = "  - group: nginx\n";
    let all = format!("{PACKAGE}{SERVICE}");
    for (others, says) in [
        (format!("{SERVICE}{timer}"), "notify: nginx"),
        (format!("{PACKAGE}{group}"), "notify: nginx"),
        (all.clone(), "depends_on: [nginx]"),
        (all.clone(), "before: [nginx]"),
        (all.clone(), "subscribes: [nginx]"),
    ] {
        assert_eq!(codes(&module(&others, says)), ["E080"], "{others}{says}");
    }
    let twice = module(&all, "notify: nginx\nhandlers:\n  - service: nginx");
    assert_eq!(codes(&twice), ["E080"], "a resource and a handler");
}
