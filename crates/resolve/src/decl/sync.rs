//! `sync:` of `fleet.yaml`: which objects are synchronized with which nodes, and how.

use catalog::sync::{self, MISMATCHES, MODES, Unsuitable};
use model::replication::{Mode, ObjectOperation, SyncPolicy};

use super::fleet::percent;
use super::whom::{self, Whom};
use crate::shape::{Reading, near_or_all};
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

/// Keys that have no meaning where nothing is synchronized.
const OF_A_MODE: [&str; 5] = ["kinds", "folder", "mismatch", "max_delete", "operations"];
/// The most entries.
const MAX_ENTRIES: usize = 100;

/// An entry of `sync:`. The first that is for a node holds for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyncDecl {
    pub(crate) name: Spanned<String>,
    pub(crate) nodes: Whom,
    /// Nothing where the mode is off: the nodes then synchronize nothing.
    pub(crate) policy: Option<SyncPolicy>,
}

/// Reads `sync:`, in order.
pub(crate) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<SyncDecl> {
    let mut all: Vec<SyncDecl> = Vec::new();
    for (key, value) in reading.map(node, "sync") {
        if all.len() == MAX_ENTRIES {
            reading
                .error("E099", key.at, format!("more than {MAX_ENTRIES} entries of sync"))
                .help("join some");
            break;
        }
        reading.name(&key.value, key.at, "an entry of sync");
        let decl = entry(reading, key, value);
        taken(reading, &all, &decl);
        all.push(decl);
    }
    all
}

fn entry(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> SyncDecl {
    let what = format!("sync {}", name.value);
    let mut keys = reading.keys(node, &what, "an entry of sync");
    let nodes = keys.read("nodes", |node| whom::read(reading, node));
    let help = "say who is the source of truth: `mode: managed` (the control plane) or `mode: autonomous` (the node)";
    let mode = keys.needed(reading, "mode", (name.at, &what), help);
    let mode = mode.and_then(|node| reading.word(node, "mode", &MODES));
    let off = mode == Some(Mode::Off);
    let said_kinds = keys.get("kinds");
    if said_kinds.is_none() && !off && matches!(node.kind, YamlKind::Map(_)) {
        let help =
            "name the kinds in the order in which they are applied, as in `kinds: [AppProject, Application]`";
        reading.missing_key(name.at, &what, "kinds", help);
    }
    let share = |reading: &mut Reading<'_>, node| {
        let share = percent(reading, node, "max_delete", 100, "25%");
        share.and_then(|share| u8::try_from(share).ok()).unwrap_or(0)
    };
    let policy = SyncPolicy {
        mode: mode.unwrap_or_default(),
        kinds: said_kinds.map(|node| kinds(reading, node)).unwrap_or_default(),
        folder: keys.read("folder", |node| folder(reading, node)),
        mismatch: keys
            .read("mismatch", |node| reading.word(node, "mismatch", &MISMATCHES))
            .unwrap_or_default(),
        max_delete_percent: keys
            .get("max_delete")
            .map_or(SyncPolicy::MAX_DELETE_PERCENT, |node| share(reading, node)),
        operations: keys.read("operations", |node| operations(reading, node)),
    };
    keys.end(reading);
    if off {
        says_nothing(reading, node);
    } else {
        takes_operations(reading, node, mode, &policy);
    }
    SyncDecl { name: name.clone(), nodes, policy: (!off).then_some(policy) }
}

/// Keys that have no meaning where nothing is synchronized.
fn says_nothing(reading: &mut Reading<'_>, node: &YamlNode) {
    let YamlKind::Map(entries) = &node.kind else { return };
    for (key, _) in entries.iter().filter(|(key, _)| OF_A_MODE.contains(&key.value.as_str())) {
        reading
            .error("E074", key.at, format!("`{}` says nothing where the mode is off", key.value))
            .help("drop it, or say another mode");
    }
}

/// What is asked of an object goes to its owner: the node, beside the object's manifest.
fn takes_operations(reading: &mut Reading<'_>, node: &YamlNode, mode: Option<Mode>, policy: &SyncPolicy) {
    let YamlKind::Map(entries) = &node.kind else { return };
    let Some((Spanned { at, .. }, _)) = entries.iter().find(|(key, _)| key.value == "operations") else {
        return;
    };
    let at = *at;
    if mode == Some(Mode::Managed) {
        reading
            .error(
                "E074",
                at,
                "`operations` are for autonomous nodes: here the control plane owns the objects",
            )
            .help("drop it; `muster object apply` makes objects so as they are to be");
    } else if mode == Some(Mode::Autonomous) && policy.folder.is_none() {
        reading
            .error("E074", at, "`operations` are handed over in a folder, and this entry has none")
            .help("name the folder of the manifests, as in `folder: /srv/manifests`");
    }
}

fn operations(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<ObjectOperation> {
    let mut operations = Vec::new();
    for text in reading.texts(node, "operations") {
        let Some((_, operation)) = ObjectOperation::ALL.iter().find(|(word, _)| *word == text.value) else {
            let help = near_or_all(&text.value, ObjectOperation::ALL.iter().map(|(word, _)| *word));
            reading.error("E017", text.at, format!("there is no operation `{}`", text.value)).help(help);
            continue;
        };
        if operations.contains(operation) {
            let message = format!("the operation `{}` stands here twice", text.value);
            reading.error("E008", text.at, message).help("keep one of the two");
            continue;
        }
        operations.push(*operation);
    }
    operations
}

fn kinds(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<String> {
    let texts = reading.texts(node, "kinds");
    if texts.is_empty() && matches!(&node.kind, YamlKind::List(items) if items.is_empty()) {
        reading
            .error("E096", node.at, "`kinds` names no kind, so nothing would be synchronized")
            .help("name one, or say `mode: off`");
    }
    if let Some(over) = texts.get(SyncPolicy::MAX_KINDS) {
        let message = format!("more than {} kinds", SyncPolicy::MAX_KINDS);
        reading.error("E099", over.at, message).help("synchronize fewer");
    }
    let mut kinds: Vec<Spanned<String>> = Vec::new();
    for text in texts {
        if let Some(first) = kinds.iter().find(|known| known.value.eq_ignore_ascii_case(&text.value)) {
            reading
                .error("E008", text.at, format!("the kind `{}` stands here twice", text.value))
                .help("keep one of the two")
                .label(first.at, "first here");
            continue;
        }
        if let Err(why) = sync::kind(&text.value) {
            let help = match why {
                Unsuitable::Reserved => "drop it; objects of your own have kinds of their own",
                _ => "as in  AppProject",
            };
            let message = format!("`{}` cannot be synchronized: {why}", text.value);
            reading.error("E096", text.at, message).help(help);
        }
        kinds.push(text);
    }
    kinds.into_iter().map(|kind| kind.value).collect()
}

fn folder(reading: &mut Reading<'_>, node: &YamlNode) -> Option<String> {
    let text = reading.text(node, "folder")?;
    if let Err(why) = sync::folder(&text.value) {
        let message = format!("`{}` cannot hold manifests: {why}", text.value);
        reading.error("E097", text.at, message).help("name a folder of its own, such as /srv/manifests");
    }
    Some(text.value)
}

/// An entry, or a part of it, that an earlier one leaves nothing for.
fn taken(reading: &mut Reading<'_>, earlier: &[SyncDecl], decl: &SyncDecl) {
    if let Some(all) = earlier.iter().find(|other| other.nodes.is_all()) {
        let message =
            format!("`{}` is never reached: `{}` is for every node", decl.name.value, all.name.value);
        reading
            .error("E031", decl.name.at, message)
            .help("move it before that entry")
            .label(all.name.at, "taken here");
        return;
    }
    for item in decl.nodes.items() {
        let pattern = item.pattern.as_str();
        let same = |other: &&super::nodes::PatternItem| {
            other.pattern == item.pattern || (item.pattern.is_exact() && other.pattern.matches(pattern))
        };
        let first: Option<At> =
            earlier.iter().flat_map(|other| other.nodes.items()).find(same).map(|other| other.at);
        if let Some(first) = first {
            reading
                .error("E031", item.at, format!("`{pattern}` is taken by an earlier entry of sync"))
                .help("move this entry before that one, or drop the pattern")
                .label(first, "taken here");
        }
    }
}
