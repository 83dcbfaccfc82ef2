//! [`Desired::estimated_bytes`]: about how much memory a bound set takes.

use std::mem::size_of;

use catalog::module::{CommandLine, FileRef};
use catalog::types::Spec;

use super::resource::size;
use super::{BoundModule, BoundResource, Desired, ResourceGuard};
use crate::{ResourceId, When};

/// What an entry of a map takes beside its texts.
const ENTRY: usize = 48;

impl Desired {
    /// About how many bytes of memory it takes: texts, links, trees, and the fixed size of each resource. `None` where a
    /// condition is decided in the run: that holds everything which expressions see, traits of any size among it.
    pub fn estimated_bytes(&self) -> Option<usize> {
        let asks = |when: &When| matches!(when, When::Ask(_));
        let is_open = self.modules.iter().any(|module| asks(&module.when))
            || self.resources().any(|resource| asks(&resource.when));
        let modules = || self.modules.iter().map(|module| module_bytes(module)).sum();
        (!is_open).then(modules)
    }
}

fn module_bytes(module: &BoundModule) -> usize {
    let resources = module.resources.iter().chain(&module.handlers);
    module.held + resources.map(|resource| resource_bytes(resource)).sum::<usize>()
}

fn resource_bytes(resource: &BoundResource) -> usize {
    let BoundResource { id, kind, name, spec, kept, tags, guards, .. } = resource;
    let texts = id.as_str().len() + kind.len() + name.len() + tags.iter().map(String::len).sum::<usize>();
    let kept: usize = kept.iter().map(|(name, value)| ENTRY + name.len() + size(value)).sum();
    let tree: usize = match spec {
        Ok(Spec::Tree(tree)) => tree.files.keys().map(|path| ENTRY + path.len() + size_of::<FileRef>()).sum(),
        _ => 0,
    };
    let guards: usize = guards.iter().map(guard_bytes).sum();
    size_of::<BoundResource>() + texts + kept + tree + guards + link_bytes(resource)
}

fn link_bytes(resource: &BoundResource) -> usize {
    let BoundResource { depends_on, after, notify, notifiers, .. } = resource;
    let named = notifiers.values().map(Vec::len).sum::<usize>();
    let names: usize = notifiers.keys().map(|name| ENTRY + name.len()).sum();
    names + (depends_on.len() + after.len() + notify.len() + named) * size_of::<ResourceId>()
}

fn guard_bytes(guard: &ResourceGuard) -> usize {
    ENTRY
        + match &guard.command {
            CommandLine::Argv(words) => words.iter().map(|word| ENTRY + word.len()).sum(),
            CommandLine::Shell(text) => text.len(),
        }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use catalog::module::{Module, Params};
    use lang::OpenedSecrets;
    use serde_json::{Value as Json, json};

    use super::super::{Inputs, bind};

    fn estimated(resources: Json) -> Option<usize> {
        let module: Module = serde_json::from_value(json!({"name": "m", "resources": resources})).unwrap();
        let params: Params =
            serde_json::from_value(json!({"node": {"channel": "stable"}, "modules": ["m"]})).unwrap();
        let modules = BTreeMap::from([("m".to_owned(), Arc::new(module))]);
        let desired = bind(&Inputs {
            modules: &modules,
            params: &params,
            hostname: Some("host"),
            traits: None,
            own_paths: &[],
            secrets: OpenedSecrets::SEALED,
        });
        assert!(desired.resources().all(|resource| resource.spec.is_ok()), "{desired:?}");
        desired.estimated_bytes()
    }

    fn items(count: usize) -> Vec<usize> {
        (0..count).collect()
    }

    /// CNV-12: each item of a loop has a text of its own, also one that is the same for all.
    #[test]
    fn texts_count_for_each_item_of_a_loop() {
        let text = "x".repeat(10_000);
        let looped = json!([{
            "type": "file", "name": "/etc/${{ item }}", "foreach": items(100), "attributes": {"content": text},
        }]);
        let bytes = estimated(looped).unwrap();
        assert!((1_000_000..1_300_000).contains(&bytes), "{bytes}");
    }

    /// CNV-12: what loops refer to each other by is counted by pairs.
    #[test]
    fn links_between_loops_count() {
        let file = |folder: &str, count: usize| {
            json!({
                "type": "file", "name": format!("/{folder}/${{{{ item }}}}"), "id": folder, "foreach": items(count),
                "attributes": {"content": ""},
            })
        };
        let apart = estimated(json!([file("a", 100), file("b", 100)])).unwrap();
        let mut notifying = file("a", 100);
        notifying["notify"] = json!(["b"]);
        let linked = estimated(json!([notifying, file("b", 100)])).unwrap();
        assert!(linked > apart + 100 * 100 * 16, "{apart} {linked}");
    }

    /// CNV-12: a condition that is decided in the run holds all that it may read, of any size.
    #[test]
    fn what_is_asked_in_the_run_is_not_estimated() {
        let file = json!({
            "type": "file", "name": "/etc/a", "when": "file_exists('/etc/b')", "attributes": {"content": ""},
        });
        assert_eq!(estimated(json!([file])), None);
    }
}
