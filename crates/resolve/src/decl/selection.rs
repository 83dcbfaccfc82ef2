//! The nodes that a wave, a budget, an edge or a probe is for: `nodes:` with terms of the selector grammar, `where:` with
//! a condition over what is declared of a node, or both.

use lang::Selector;
use lang::selector::{DeclaredTerm, SelectorError};

use crate::exprs::{self, ExprSite, LabelUse, SelectedGroup};
use crate::shape::{Keys, Reading};
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

/// What is said of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodesSaid {
    /// Nothing.
    Nothing,
    /// Something that cannot be read (reported).
    Broken,
    /// These.
    These(Selector),
}

impl NodesSaid {
    /// The selector, where there is one that can be read.
    pub(crate) fn selector(self) -> Option<Selector> {
        match self {
            NodesSaid::These(selector) => Some(selector),
            NodesSaid::Nothing | NodesSaid::Broken => None,
        }
    }
}

/// Reads `nodes` and `where` of a map.
pub(super) fn read(reading: &mut Reading<'_>, keys: &mut Keys<'_>) -> NodesSaid {
    let (nodes, condition) = (keys.get("nodes"), keys.get("where"));
    said(reading, nodes, condition)
}

/// Reads one end of an edge: a condition, or a map with `nodes` and `where`.
pub(super) fn read_end(reading: &mut Reading<'_>, node: &YamlNode, what: &'static str) -> Option<Selector> {
    let YamlKind::Map(_) = &node.kind else { return said(reading, None, Some(node)).selector() };
    let mut keys = reading.keys(node, what, "an end of an edge");
    let nodes = read(reading, &mut keys);
    if nodes == NodesSaid::Nothing {
        reading.missing_key(
            node.at,
            what,
            "where",
            "say which nodes are meant, as in `where: labels.tier == \"db\"`",
        );
    }
    keys.end(reading);
    nodes.selector()
}

fn said(reading: &mut Reading<'_>, nodes: Option<&YamlNode>, condition: Option<&YamlNode>) -> NodesSaid {
    if nodes.is_none() && condition.is_none() {
        return NodesSaid::Nothing;
    }
    let before = reading.sink.count();
    let terms = nodes.map(|node| terms(reading, node)).unwrap_or_default();
    let condition = condition.and_then(|node| {
        let condition = exprs::condition(reading, node, ExprSite::Rollout, None)?;
        Some(Spanned { value: condition.source().trim().to_owned(), at: node.at })
    });
    if reading.sink.count() != before {
        return NodesSaid::Broken;
    }
    let texts = terms.iter().map(|term| term.value.clone());
    let condition_text = condition.as_ref().map(|condition| format!("where:{}", condition.value));
    let text = texts.chain(condition_text).collect::<Vec<_>>().join(", ");
    match Selector::parse(&text) {
        Ok(selector) => NodesSaid::These(selector),
        Err(error) => {
            let at = terms.first().map(|term| term.at).or(condition.map(|condition| condition.at));
            mistake(reading, at.unwrap_or_default(), &terms, &error);
            NodesSaid::Broken
        }
    }
}

/// The terms under `nodes`, each noted with the groups and labels that it names.
fn terms(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<Spanned<String>> {
    let terms = reading.one_or_more(node, "nodes");
    if matches!(&node.kind, YamlKind::List(items) if items.is_empty()) {
        reading
            .error("E110", node.at, "`nodes` names no node")
            .help("name some, as in `nodes: [\"edge-*\", \"@eu\"]`; \"*\" is every node");
    }
    for term in &terms {
        if term.value.trim_start_matches(['!', ' ']).starts_with("where:") {
            reading
                .error("E110", term.at, "a condition does not stand under `nodes`")
                .help("write it beside that, as in `where: labels.ring == \"0\"`");
            continue;
        }
        // What one term cannot say alone ("not this") is read together with the others.
        let Ok(read) = Selector::parse(term.value.trim_start_matches(['!', ' '])) else { continue };
        for declared in read.declared_terms() {
            match declared {
                DeclaredTerm::Group(group) => reading.uses.groups.push(SelectedGroup { group, at: term.at }),
                DeclaredTerm::Label { name, .. } => {
                    reading.uses.labels.push(LabelUse { label: name, at: term.at });
                }
            }
        }
    }
    terms
}

fn mistake(reading: &mut Reading<'_>, first: At, terms: &[Spanned<String>], error: &SelectorError) {
    let at = match error {
        SelectorError::Name { term, .. } | SelectorError::BadName { term, .. } => {
            terms.iter().find(|written| written.value.contains(term.as_str())).map(|written| written.at)
        }
        _ => None,
    };
    reading
        .error("E110", at.unwrap_or(first), error.to_string())
        .help("write hostnames, globs, \"@group\" or \"label=value\"; \"*\" is every node");
}
