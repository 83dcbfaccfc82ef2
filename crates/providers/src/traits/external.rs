//! `external`: facts that an administrator adds, from files and programs (TRT-2).
//!
//! ```text
//! /etc/muster/traits.d/NAME.json       an object             -> traits.external.NAME.KEY
//! /etc/muster/traits.d/NAME.txt        lines of KEY=VALUE    -> the same, every value a text
//! /etc/muster/traits.d/NAME, 0755      a program that prints one or the other
//! ```
//!
//! Whoever may write such a file says what this host is, so only root may: a file, or a directory
//! around it, that somebody else could have written is refused by name, and the others count.

use std::collections::BTreeMap;
use std::time::Duration;

use host::{End, Host, Program, SealedScript};
use lang::Value;
use model::text::chain;

use super::{ObserveFailure, TraitGroup};

/// Where they lie.
pub const EXTERNAL: &str = "/etc/muster/traits.d";
/// The largest file or output, in bytes.
pub const MAX_EXTERNAL: usize = 64 * 1024;
/// The largest program, in bytes.
const MAX_PROGRAM: usize = 32 * 1024 * 1024;
/// The most files.
const MAX_SOURCES: usize = 256;
/// How long one program may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Permission bits of everybody but the owner that let one write.
const WRITABLE: u32 = 0o022;
/// Permission bits that make a file a program.
const EXECUTABLE: u32 = 0o111;

/// Reads every source. Those that fail are left out and named.
pub(super) fn observe(host: &Host) -> Result<TraitGroup, ObserveFailure> {
    let names = host.names(EXTERNAL, MAX_SOURCES).map_err(|error| chain(&error))?.unwrap_or_default();
    let (mut group, mut failures) = (TraitGroup::new(), Vec::new());
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        match source(host, name) {
            Ok(Some((stem, values))) => drop(group.insert(stem, values)),
            Ok(None) => {}
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    if failures.is_empty() {
        return Ok(group);
    }
    Err(ObserveFailure { why: failures.join("; "), rest: Some(group) })
}

fn source(host: &Host, name: &str) -> Result<Option<(String, Value)>, String> {
    let path = format!("{EXTERNAL}/{name}");
    let Some(real) = host.real(&path).map_err(|error| chain(&error))?.filter(host::Real::is_file) else {
        return Ok(None);
    };
    if (real.uid() != 0 && real.uid() != host.euid()) || real.mode() & WRITABLE != 0 {
        return Err("somebody other than root may write it; give it to root, mode 0644 or 0755".to_owned());
    }
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let form = match extension {
        "json" => FactForm::Json,
        "txt" => FactForm::Lines,
        _ if real.mode() & EXECUTABLE != 0 => FactForm::Program,
        _ => return Err("it is no .json, no .txt and no program".to_owned()),
    };
    if !is_name(stem) {
        return Err(format!("`{stem}` cannot be named in an expression; use letters, digits and _"));
    }
    let bytes = match form {
        FactForm::Program => run(host, name, &real)?,
        FactForm::Json | FactForm::Lines => {
            let read = host.read_followed(&path, MAX_EXTERNAL as u64).map_err(|error| chain(&error))?;
            read.unwrap_or_default()
        }
    };
    let values = match form {
        FactForm::Json => json(&bytes)?,
        FactForm::Lines => lines(&bytes)?,
        FactForm::Program if bytes.trim_ascii_start().starts_with(b"{") => json(&bytes)?,
        FactForm::Program => lines(&bytes)?,
    };
    Ok(Some((stem.to_owned(), values)))
}

enum FactForm {
    Json,
    Lines,
    Program,
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Runs the bytes that were looked at, whatever becomes of the path meanwhile.
fn run(host: &Host, name: &str, real: &host::Real) -> Result<Vec<u8>, String> {
    if !host.exec_allowed() {
        return Err(format!("programs do not run here: {}", crate::ROOTED));
    }
    let (_, bytes) = real.read(MAX_PROGRAM).map_err(|error| chain(&error))?;
    if bytes.len() as u64 != real.size() {
        return Err(format!("it has {} bytes, more than {MAX_PROGRAM}", real.size()));
    }
    let program = SealedScript::new(name, &bytes).map_err(|error| format!("it cannot be loaded: {error}"))?;
    let command = host::Command::new(Program::Script(program), PROGRAM_TIMEOUT, MAX_EXTERNAL + 1);
    let finished = host.run(&command).map_err(|error| chain(&error))?;
    match finished.end {
        End::Exited(0) if finished.stdout.bytes.len() <= MAX_EXTERNAL => Ok(finished.stdout.bytes),
        End::Exited(0) => Err(format!("it printed more than {MAX_EXTERNAL} bytes")),
        end => Err(crate::kinds::failure(end, &finished, PROGRAM_TIMEOUT)),
    }
}

fn json(bytes: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(bytes).map_err(|error| error.to_string())? {
        map @ Value::Map(_) => Ok(map),
        other => Err(format!("an object is needed, and this is a {}", other.type_name())),
    }
}

fn lines(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no UTF-8 text")?;
    let mut values = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=').ok_or_else(|| format!("`{line}` is not KEY=VALUE"))?;
        if !is_name(key.trim()) {
            return Err(format!("`{}` cannot be named in an expression", key.trim()));
        }
        values.insert(key.trim().to_owned(), Value::from(value.trim()));
    }
    Ok(Value::Map(values))
}
