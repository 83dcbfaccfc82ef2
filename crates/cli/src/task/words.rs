//! What a task does, and what its nodes are called, in words.

use model::work::Work;
use server::api::work::TaskNodeView;

/// What a task does, as it would be typed.
pub(crate) fn in_words(work: &Work) -> String {
    match work {
        Work::Command { argv } => catalog::delegation::show(argv),
        Work::Action { name, args } => {
            let args: String = args.iter().map(|(key, value)| format!(" {key}={value}")).collect();
            format!("action {name}{args}")
        }
        Work::Query { what, path } => {
            let path = path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
            format!("query {what}{path}")
        }
    }
}

/// The node's name, or its id when it is no node any more.
pub(super) fn name(node: &TaskNodeView) -> String {
    node.hostname.as_ref().map_or_else(|| node.node.to_string(), ToString::to_string)
}
