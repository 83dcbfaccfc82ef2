//! [`Delta`]: the one form of a difference, and [`render`], its one renderer.
//!
//! Publish diff, node plan, drift and run reports are all deltas: keyed edits from one
//! state to another. What a state is (an object's stub, a resource's fields) is the
//! type parameter; how it reads is its [`Fields`].

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collect::CollectInserting;
use crate::lines::diff_lines;

/// Named attributes of a thing as text; what a renderer shows.
pub type Fields = BTreeMap<String, String>;

/// The longest field text, in bytes, that is carried whole; longer ones are named by digest.
pub const MAX_FIELD: usize = 16 * 1024;
/// The most lines of one field's difference that [`render`] prints.
const MAX_LINES: usize = 40;

/// One edit: from nothing, to nothing, or from one state to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Edit<V> {
    /// It was not there.
    Add {
        /// The new state.
        to: V,
    },
    /// It was there and differs.
    Change {
        /// The old state.
        from: V,
        /// The new state.
        to: V,
    },
    /// It is to go, or went.
    Remove {
        /// The old state.
        from: V,
    },
}

impl<V> Edit<V> {
    /// The old state, if there was one.
    pub fn from(&self) -> Option<&V> {
        match self {
            Edit::Add { .. } => None,
            Edit::Change { from, .. } | Edit::Remove { from } => Some(from),
        }
    }

    /// The new state, if there is one.
    pub fn to(&self) -> Option<&V> {
        match self {
            Edit::Add { to } | Edit::Change { to, .. } => Some(to),
            Edit::Remove { .. } => None,
        }
    }

    /// The same edit over another form of the states.
    pub fn map<W>(&self, mut form: impl FnMut(&V) -> W) -> Edit<W> {
        match self {
            Edit::Add { to } => Edit::Add { to: form(to) },
            Edit::Change { from, to } => Edit::Change { from: form(from), to: form(to) },
            Edit::Remove { from } => Edit::Remove { from: form(from) },
        }
    }
}

/// What differs between two keyed states; empty when they are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Delta<K: Ord, V> {
    /// The edits, by key.
    pub edits: BTreeMap<K, Edit<V>>,
}

impl<K: Ord, V> Default for Delta<K, V> {
    fn default() -> Self {
        Delta { edits: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Delta<K, V> {
    /// The difference between two maps.
    pub fn between(old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> Delta<K, V> {
        let mut edits = BTreeMap::new();
        for (key, from) in old {
            match new.get(key) {
                Some(to) if to == from => {}
                Some(to) => {
                    edits.insert(key.clone(), Edit::Change { from: from.clone(), to: to.clone() });
                }
                None => {
                    edits.insert(key.clone(), Edit::Remove { from: from.clone() });
                }
            }
        }
        for (key, to) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
            edits.insert(key.clone(), Edit::Add { to: to.clone() });
        }
        Delta { edits }
    }
}

impl<K: Ord, V> Delta<K, V> {
    /// Nothing differs.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }
}

/// Prints a delta for people: one line an edit, then what differs in it, field by field.
pub fn render<K: Ord + fmt::Display>(delta: &Delta<K, Fields>) -> String {
    let mut out = String::new();
    for (key, edit) in &delta.edits {
        render_edit(&mut out, &key.to_string(), edit);
    }
    out
}

/// Prints one edit in the form that [`render`] uses.
pub fn render_edit(out: &mut String, key: &str, edit: &Edit<Fields>) {
    let empty = Fields::new();
    let (sign, from, to) = match edit {
        Edit::Add { to } => ('+', &empty, to),
        Edit::Change { from, to } => ('~', from, to),
        Edit::Remove { from } => ('-', from, &empty),
    };
    out.push_str(&format!("{sign} {key}\n"));
    if matches!(edit, Edit::Remove { .. }) {
        return;
    }
    let names: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect_inserting();
    for name in names {
        render_field(out, name, from.get(name), to.get(name));
    }
}

fn render_field(out: &mut String, name: &str, from: Option<&String>, to: Option<&String>) {
    if from == to {
        return;
    }
    let long = |text: Option<&String>| text.is_some_and(|text| text.contains('\n'));
    if !long(from) && !long(to) {
        let line = match (from, to) {
            (Some(from), Some(to)) => format!("{from} -> {to}"),
            (None, Some(to)) => to.clone(),
            (Some(from), None) => format!("{from} -> (none)"),
            (None, None) => return,
        };
        out.push_str(&format!("    {name}: {line}\n"));
        return;
    }
    out.push_str(&format!("    {name}:\n"));
    let lines = diff_lines(from.map_or("", String::as_str), to.map_or("", String::as_str));
    for line in lines.iter().take(MAX_LINES) {
        out.push_str(&format!("      {line}\n"));
    }
    if lines.len() > MAX_LINES {
        out.push_str(&format!("      ... {} more lines\n", lines.len() - MAX_LINES));
    }
}
