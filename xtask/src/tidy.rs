//! The rules of the house that a compiler does not keep (ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{Outcome, files};

/// Crates in the order in which they may use one another: only those before.
pub const LAYERS: &[&str] = &[
    "model",
    "lang",
    "trust",
    "activation",
    "rollout",
    "catalog",
    "converge",
    "resolve",
    "sync",
    "node",
    "rehearsal",
    "plane",
    "wire",
    "spool",
    "net",
    "store",
    "host",
    "providers",
    "backends",
    "streams",
    "server",
    "agent",
    "cli",
    "test-support",
    "fuzz",
    "figures",
    "bench",
    "demo",
    "muster",
    "manual",
    "sim",
    "xtask",
];
/// Crates that hold decisions.
pub const CORES: &[&str] = &[
    "model",
    "lang",
    "trust",
    "activation",
    "rollout",
    "catalog",
    "converge",
    "resolve",
    "sync",
    "node",
    "rehearsal",
    "plane",
];
/// What no core crate may reach, through whatever it uses.
const FORBIDDEN_IN_CORES: &[&str] =
    &["tokio", "mio", "socket2", "hyper", "rustls", "rusqlite", "rustix", "tempfile", "rand", "chrono"];
/// What the agent may not reach: it goes on every host. Fleet repos are read by `resolve`
/// alone; the YAML parser itself is allowed, because the agent reads manifests.
const FORBIDDEN_IN_AGENT: &[&str] = &["resolve", "store", "server", "rusqlite", "axum"];
/// The longest source file, in lines.
const MAX_LINES: usize = 600;
/// The only file that may do what the compiler cannot check: it declares one function of the C library.
const UNSAFE: &str = "crates/host/src/heap.rs";

/// Checks everything; reports all that is wrong at once.
///
/// # Errors
/// When something is.
pub fn check(root: &Path) -> Outcome {
    let mut wrong = Vec::new();
    match Graph::read(root) {
        Ok(graph) => {
            wrong.extend(layers(&graph));
            wrong.extend(cores(&graph));
            wrong.extend(agent(&graph));
        }
        Err(error) => wrong.push(error),
    }
    wrong.extend(core_lints(root));
    wrong.extend(sources(root));
    wrong.extend(harnesses(root));
    wrong.extend(crate::names::check(root));
    wrong.extend(crate::types::check(root));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The platform that the compiler runs on, as cargo names it.
fn host_platform() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc -vV: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// The packages and what each uses, development dependencies aside.
struct Graph {
    uses: BTreeMap<String, BTreeSet<String>>,
    members: BTreeSet<String>,
}

impl Graph {
    fn read(root: &Path) -> Result<Graph, String> {
        // Of this platform alone: what only others need was never downloaded on a fresh machine.
        let platform = host_platform()?;
        let output = Command::new("cargo")
            .args(["metadata", "--format-version", "1", "--offline", "--locked"])
            .args(["--filter-platform", &platform])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let names: BTreeMap<String, String> =
            list(&metadata["packages"]).iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"]) {
            let name = names.get(&text(&node["id"])).cloned().unwrap_or_default();
            let normal = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let deps = list(&node["deps"]);
            let deps = deps.iter().filter(|dep| normal(dep)).filter_map(|dep| names.get(&text(&dep["pkg"])));
            uses.entry(name).or_default().extend(deps.cloned());
        }
        let members = list(&metadata["workspace_members"]);
        let members = members.iter().filter_map(|id| names.get(&text(id)).cloned()).collect();
        Ok(Graph { uses, members })
    }

    fn reaches(&self, from: &str) -> BTreeSet<String> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(name) = next.pop() {
            for dep in self.uses.get(&name).into_iter().flatten() {
                if seen.insert(dep.clone()) {
                    next.push(dep.clone());
                }
            }
        }
        seen
    }
}

fn layers(graph: &Graph) -> Vec<String> {
    let place = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let mut wrong = Vec::new();
    for member in &graph.members {
        let Some(own) = place(member) else {
            wrong.push(format!(
                "crate {member} has no layer; put it into xtask/src/tidy.rs and ARCHITECTURE.md"
            ));
            continue;
        };
        for used in graph.uses.get(member).into_iter().flatten().filter(|used| graph.members.contains(*used))
        {
            if place(used).is_none_or(|used| used >= own) {
                wrong.push(format!("{member} uses {used}, which is not above it"));
            }
        }
    }
    wrong
}

fn cores(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for core in CORES {
        let reached = graph.reaches(core);
        for forbidden in FORBIDDEN_IN_CORES.iter().filter(|name| reached.contains(**name)) {
            wrong.push(format!("core crate {core} reaches {forbidden}"));
        }
    }
    wrong
}

fn agent(graph: &Graph) -> Vec<String> {
    let reached = graph.reaches("agent");
    let found = FORBIDDEN_IN_AGENT.iter().filter(|name| reached.contains(**name));
    found.map(|name| format!("the agent reaches {name}")).collect()
}

/// Every core crate has the same clippy.toml, which bans clocks, files and the like.
fn core_lints(root: &Path) -> Vec<String> {
    let read = |core: &str| std::fs::read_to_string(root.join("crates").join(core).join("clippy.toml"));
    let Ok(rules) = read("model") else { return vec!["crates/model/clippy.toml is missing".to_owned()] };
    let differs = |core: &&&str| read(core).ok().as_ref() != Some(&rules);
    let differing = CORES.iter().filter(differs);
    differing.map(|core| format!("crates/{core}/clippy.toml differs from crates/model/clippy.toml")).collect()
}

fn sources(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in files(&root.join("crates"), "rs").into_iter().chain(files(&root.join("xtask"), "rs")) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let lines = text.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("{shown}: {lines} lines, over {MAX_LINES}; one subject each"));
        }
        let marks = [concat!("#[", "ignore"), concat!("todo", "!("), concat!("unimplemented", "!(")];
        for mark in marks.iter().filter(|mark| text.contains(**mark)) {
            wrong.push(format!("{shown}: contains {mark}"));
        }
        if text.contains(concat!("unsafe", "_code")) && shown != UNSAFE {
            wrong.push(format!("{shown}: only {UNSAFE} may allow what the compiler cannot check"));
        }
        let examples = compiled_examples(&text).into_iter();
        wrong.extend(
            examples.map(|line| format!("{shown}:{line}: no test compiles examples; name a language")),
        );
        let is_test = shown.contains("/tests/");
        if !text.starts_with("//!") && !is_test {
            wrong.push(format!("{shown}: does not begin by saying what it is"));
        }
    }
    wrong
}

/// The lines where documentation begins an example that rustdoc would compile. `cargo xtask test` runs none.
fn compiled_examples(text: &str) -> Vec<usize> {
    let doc = |line: &str| {
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(|doc| doc.trim().to_owned())
    };
    let mut is_inside = false;
    let fences = text.lines().enumerate().filter_map(|(number, line)| {
        let doc = doc(line.trim_start())?;
        Some((number + 1, doc.strip_prefix("```")?.to_owned()))
    });
    let begins = fences.filter(|_| {
        is_inside = !is_inside;
        is_inside
    });
    begins
        .filter(|(_, language)| language.is_empty() || language == "rust")
        .map(|(number, _)| number)
        .collect()
}

/// Where a crate's test files are modules of one program (`tests/all.rs`), a file that neither it
/// nor the crate's Cargo.toml names would never run.
fn harnesses(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for harness in files(&root.join("crates"), "rs").into_iter().filter(|path| path.ends_with("tests/all.rs"))
    {
        let Some(tests) = harness.parent() else { continue };
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let (all, manifest) = (read(&harness), read(&tests.join("../Cargo.toml")));
        for path in files(tests, "rs").into_iter().filter(|path| path.parent() == Some(tests)) {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let runs =
                all.contains(&format!("mod {name};\n")) || manifest.contains(&format!("name = \"{name}\""));
            if !runs {
                let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                wrong.push(format!("{shown}: tests/all.rs does not name it, so its tests never run"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::compiled_examples;

    #[test]
    fn examples_that_rustdoc_would_compile_are_found() {
        let fence = "```";
        let text = format!(
            "/// {fence}text\n/// a\n/// {fence}\nfn a() {{}}\n    //! {fence}\n    //! b\n    //! {fence}\n"
        );
        assert_eq!(compiled_examples(&text), [5]);
        assert_eq!(compiled_examples(&format!("/// {fence}rust\n/// {fence}\n")), [1]);
        assert!(compiled_examples(&format!("let a = \"{fence}\";\n")).is_empty());
    }
}
