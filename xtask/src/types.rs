//! A type name stands for one thing: no two types of the product have one name, however visible, but for
//! private ones of inline modules. Test modules and types inside functions do not count.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files;
use crate::names::defined;

/// Crates that no part of the product uses; each has names of its own.
const NOT_PRODUCT: &[&str] = &["test-support", "bench", "demo", "sim"];

/// Names that are right for more than one type, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("Cli", "the command line of each of two programs"),
    ("Result", "std's alias with a crate's own error"),
];

/// A type and where it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Definition {
    name: String,
    /// The crate.
    owner: String,
    /// `file:line`.
    at: String,
}

/// Every name of two types, and every allowed name that only one type has.
pub fn check(root: &Path) -> Vec<String> {
    let crates = root.join("crates");
    let mut definitions = Vec::new();
    for path in files(&crates, "rs") {
        let Ok(inside) = path.strip_prefix(&crates) else { continue };
        let shown = inside.display().to_string();
        let Some((owner, file)) = shown.split_once('/') else { continue };
        if !file.starts_with("src/") || file.contains("/generated/") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        definitions.extend(definitions_of(owner, &format!("crates/{shown}"), &text));
    }
    repeated(&definitions, ALLOWED)
}

/// The types that a file of a crate defines.
fn definitions_of(owner: &str, file: &str, text: &str) -> Vec<Definition> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut is_test = false;
    while let Some((number, line)) = lines.next() {
        if is_test && line.starts_with("mod ") && line.ends_with('{') {
            lines.by_ref().find(|(_, line)| *line == "}");
        }
        is_test = line == "#[cfg(test)]";
        let is_public = line.trim_start().starts_with("pub ");
        // What is indented is in a module or a macro if it is public, else in a function or an `impl`.
        let Some(name) = defined(line).filter(|name| !name.is_empty()) else { continue };
        if is_public || !line.starts_with(' ') {
            let at = format!("{file}:{}", number + 1);
            found.push(Definition { name: name.to_owned(), owner: owner.to_owned(), at });
        }
    }
    found
}

/// What is wrong with the names of these types.
fn repeated(definitions: &[Definition], allowed: &[(&str, &str)]) -> Vec<String> {
    let mut named: BTreeMap<&str, Vec<&Definition>> = BTreeMap::new();
    for definition in definitions {
        named.entry(&definition.name).or_default().push(definition);
    }
    let is_product = |one: &Definition| !NOT_PRODUCT.contains(&one.owner.as_str());
    let clash = |one: &Definition, other: &Definition| {
        let both = one.owner == other.owner || is_product(one) && is_product(other);
        both && !std::ptr::eq(one, other)
    };
    let mut wrong = Vec::new();
    for (name, all) in &named {
        let clashing: Vec<&str> = all
            .iter()
            .filter(|one| all.iter().any(|other| clash(one, other)))
            .map(|one| one.at.as_str())
            .collect();
        let is_allowed = allowed.iter().any(|(allowed, _)| allowed == name);
        if !clashing.is_empty() && !is_allowed {
            wrong.push(format!("{name} names several types; say which: {}", clashing.join(", ")));
        } else if clashing.is_empty() && is_allowed {
            wrong.push(format!("{name} names one type; take it off the list in xtask/src/types.rs"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::{Definition, definitions_of, repeated};

    fn of(owner: &str, text: &str) -> Vec<Definition> {
        definitions_of(owner, &format!("{owner}.rs"), text)
    }

    fn wrong(files: &[(&str, &str)], allowed: &[(&str, &str)]) -> Vec<String> {
        let all: Vec<Definition> = files.iter().flat_map(|(owner, text)| of(owner, text)).collect();
        repeated(&all, allowed)
    }

    #[test]
    fn two_types_of_the_product_have_two_names() {
        let wrong = wrong(&[("a", "\npub(crate) struct Limits;"), ("b", "enum Limits {}")], &[]);
        assert_eq!(wrong, ["Limits names several types; say which: a.rs:2, b.rs:1"]);
    }

    #[test]
    fn types_outside_the_product_have_a_name_within_the_crate() {
        let scoped = "pub(crate) type Sets = u8;";
        assert!(wrong(&[("bench", "pub struct Sets;"), ("b", "pub struct Sets;")], &[]).is_empty());
        assert_eq!(wrong(&[("bench", scoped), ("bench", "struct Sets;")], &[]).len(), 1);
    }

    #[test]
    fn types_of_tests_functions_and_traits_do_not_count() {
        let text = concat!(
            "#[cfg(test)]\nmod tests {\n    pub struct Host;\n}\n",
            "impl A for B {\n    type Host = u8;\n}\n",
            "fn read() {\n    struct Host(u8);\n}\n",
            "macro_rules! ids {\n    ($name:ident) => {\n        pub struct $name;\n",
            "        pub struct Host;\n    };\n}\n",
        );
        let lines: Vec<String> = of("a", text).into_iter().map(|one| one.at).collect();
        assert_eq!(lines, ["a.rs:14"]);
    }

    #[test]
    fn an_allowed_name_is_of_several_types() {
        let two = [("a", "pub struct Cli;"), ("b", "pub struct Cli;")];
        assert!(wrong(&two, &[("Cli", "two programs")]).is_empty());
        assert_eq!(wrong(&two[..1], &[("Cli", "two programs")]).len(), 1);
    }
}
