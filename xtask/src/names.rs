//! Type names that no crate may use: each named several things, or a thing by a private word.
//! What a type is called says which of them it is (CONTRIBUTING.md, "Where code goes").

use std::path::Path;

use crate::files;

/// The names, with what to write instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("Batch", "the batch of what: ApplyBatch, RecordBatch"),
    ("Became", "the outcome of what: ApplyOutcome"),
    ("Came", "the outcome of what: ApplyOutcome"),
    ("Carrier", "TransportKind or TransportSelector"),
    ("Comeback", "ReconnectPolicy"),
    ("Entry", "the entry of what: LedgerEntry, NodesEntry"),
    ("Gone", "what went: RemovedObject, GoAway"),
    ("Held", "what is held: HeldRelease, HeldDeletion"),
    ("Kept", "what is stored: StoredObject, CachedCollector"),
    ("Lane", "the changes of what: KindChanges"),
    ("Life", "Incarnation, or Instance of a process"),
    ("Light", "SyncSummary"),
    ("Opener", "StreamDialer"),
    ("Opening", "StreamRequest"),
    ("Pace", "RateLimiter"),
    ("Part", "the part of what: TextSegment, PatternShare"),
    ("Piece", "the piece of what: GlobToken, ReleaseChunk"),
    ("Place", "where: a path, key, position or backend"),
    ("Said", "the message or command: SyncReport"),
    ("Seat", "LinkLease"),
    ("Sets", "the sets of what: AgentSets, NodeSets"),
    ("Shore", "LinkHandler"),
    ("Standing", "the condition of what: SyncCondition"),
    ("Teller", "the sender of what: CommandSender"),
    ("Told", "the event, command or error: WorkCommand, UserError"),
    ("Touched", "what was perhaps changed: SuspectedDrift; which files a change overwrites: TouchedFiles"),
    ("Verdict", "the answer to what: SyncCondition"),
    ("Walk", "the search or scan: TreeScan, PathResolution"),
    ("Wanted", "what is desired: DesiredWatch, WantedPackage"),
    ("Way", "the direction or mode: Direction"),
    ("What", "what it chooses: DeleteTarget"),
    ("Whole", "the report or set: FleetReport"),
    ("Word", "the state of what: Overall"),
    ("Wound", "what was corrected or failed of late: CorrectionBackoff"),
];

/// The forbidden type names of all crates, with their files.
pub fn check(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in files(&root.join("crates"), "rs").into_iter().chain(files(&root.join("xtask"), "rs")) {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if shown.contains("/tests/") || shown.contains("/generated/") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let found = forbidden(&text).into_iter();
        wrong.extend(found.map(|(line, name, instead)| {
            format!("{shown}:{line}: no type is called {name}; name {instead}")
        }));
    }
    wrong
}

/// The forbidden names that a text defines as types: line, name, what to write instead.
fn forbidden(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(name) = defined(line) else { continue };
        let known = FORBIDDEN.iter().find(|(forbidden, _)| *forbidden == name);
        found.extend(known.map(|(name, instead)| (number + 1, *name, *instead)));
    }
    found
}

/// The type that a line defines.
pub(crate) fn defined(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        let public = public.trim_start();
        rest = match public.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1.trim_start(),
            None => public,
        };
    }
    let name =
        ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    name.get(..end)
}

#[cfg(test)]
mod tests {
    use super::{defined, forbidden};

    #[test]
    fn definitions_are_found_and_uses_are_not() {
        let text = concat!(
            "/// enum Told\n",
            "pub(super) enum Told<'a> {\n",
            "    let told = Told::Yes;\n",
            "struct Place(u8);\n",
            "pub struct Placement;\n",
            "    type Entry = u8;\n",
            "pub use map::Entry;\n",
        );
        let found: Vec<(usize, &str)> =
            forbidden(text).into_iter().map(|(line, name, _)| (line, name)).collect();
        assert_eq!(found, [(2, "Told"), (4, "Place"), (6, "Entry")]);
    }

    #[test]
    fn a_name_ends_where_the_type_goes_on() {
        assert_eq!(defined("pub trait Told: Error {"), Some("Told"));
        assert_eq!(defined("pub(in crate::a) struct Walk<'w> {"), Some("Walk"));
        assert_eq!(defined("fn struct_of() {"), None);
    }
}
