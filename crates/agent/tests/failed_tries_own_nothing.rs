//! CNV-10: what a try that failed did not make around a thing, or took back, is not Muster's: who makes it
//! afterwards keeps it, also when it is empty.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use catalog::module::{DeclaredResource, Module, OnRemove};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{adopt, module, resource};

#[test]
fn an_empty_file_of_another_stays_when_its_part_leaves() {
    let attributes = [
        ("path", "/srv/app/conf".into()),
        ("key", "level".into()),
        ("value", "high".into()),
        ("create", lang::Value::from(true)),
    ];
    let part =
        DeclaredResource { on_remove: Some(OnRemove::Delete), ..resource("ini", "level", &attributes) };
    let host = LocalHost::new(vec![Module { resources: vec![part], ..module("base") }]);
    let (code, said) = printed(&host.agent(&["apply", "--once"]));
    assert!(code != Some(0) && said.contains("the directory that it is in does not exist"), "{said}");
    std::fs::create_dir_all(host.root().join("srv/app")).unwrap();
    host.write("srv/app/conf", "");
    adopt(&host.state(), 2, vec![module("base")]);
    let (code, said) = printed(&host.agent(&["apply", "--once"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(host.read("srv/app/conf").as_deref(), Some(""), "{said}");
}
