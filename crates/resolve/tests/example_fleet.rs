//! CFG-1: `examples/fleet`, which the first five minutes publish, is right, and means what
//! its README says it means.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::Path;

use model::replication::Mode;
use resolve::{Tree, check, render};

fn read_into(tree: &mut Tree, top: &Path, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_into(tree, top, &path);
        } else {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            tree.files.insert(name, std::fs::read(&path).unwrap().into());
        }
    }
}

#[test]
fn the_example_is_right() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet");
    let mut tree = Tree::default();
    read_into(&mut tree, &top, &top);
    let fleet = match check(&tree) {
        Ok(fleet) => fleet,
        Err(found) => panic!("{}", render(&found, &tree)),
    };
    let nodes = fleet.specialize();
    let web = nodes.node("web-1.demo").unwrap().read_params().unwrap();
    assert_eq!(web.modules, ["base", "web"]);
    assert_eq!(web.node.environment.as_deref(), Some("production"));
    assert!(!web.observe);

    let staging = nodes.node("web-2.demo").unwrap().read_params().unwrap();
    assert_eq!(staging.vars["web.port"], 8081.into());
    assert_eq!(staging.host_vars["web.workers"], 3.into());

    let lab = nodes.node("lab-1.demo").unwrap().read_params().unwrap();
    assert!(lab.observe);
    assert_eq!(lab.modules, ["base"]);
    let granted = |name| nodes.node(name).unwrap().grants.clone();
    let delegations = granted("lab-1.demo").read_delegations().unwrap();
    assert_eq!(delegations["look"].commands, [["/usr/bin/uptime"]]);
    assert!(delegations["look"].actions.is_empty());
    assert!(granted("web-1.demo").read_delegations().unwrap()["web"].actions.contains_key("reload"));
    let sync = |name| granted(name).read_sync().unwrap().unwrap();
    let (web, lab) = (sync("web-1.demo"), sync("lab-1.demo"));
    assert_eq!((web.mode, web.folder.as_deref()), (Mode::Managed, Some("/srv/sites")));
    assert_eq!(
        (web.kinds, lab.kinds, lab.mode),
        (vec!["Site".to_owned()], vec!["Site".to_owned()], Mode::Autonomous)
    );
    assert!(nodes.node("db-1.demo").is_none());
    assert_eq!(nodes.blobs.len(), 2);
}
