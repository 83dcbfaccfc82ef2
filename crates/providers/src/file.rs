//! `file` on a host.

use model::text::chain;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use catalog::module::Command;
use catalog::spec::{Content, Ensure, FileSpec};
use converge::kinds::{Applied, Checked, DEFAULT_FILE_MODE, file};
use converge::{Done, Outcome};
use host::{Program, Write};
use model::{Digest, Edit, Fields, PathOwnership, PathState};

use crate::kinds::{MAX_OUTPUT, applied, succeeded, text, unchanged};
use crate::undo::undo_note;
use crate::{Kinds, ROOTED};

/// Where the temporary file's path goes in a validate command.
const PLACEHOLDER: &str = "%s";

pub(crate) fn check(kinds: &Kinds, spec: &FileSpec) -> Outcome {
    let decided = decide(kinds, spec)?;
    let validates = spec.validate.is_some() && file::writes(spec, &decided.prior);
    if decided.edit.is_some() && validates && !kinds.host.exec_allowed() {
        return Ok(Done::Skipped(ROOTED.to_owned()));
    }
    let cannot_undo = decided.edit.as_ref().and_then(|_| undo_note(&decided.prior));
    let note = decided.note.into_iter().chain(cannot_undo).reduce(|a, b| format!("{a}; {b}"));
    Ok(Done::Checked(Checked { edit: decided.edit, prior: decided.prior, note, unknown: false }))
}

pub(crate) fn apply(kinds: &Kinds, spec: &FileSpec, timeout: Duration) -> Result<Applied, String> {
    let decided = decide(kinds, spec)?;
    let Some(edit) = decided.edit else {
        return Ok(unchanged());
    };
    if spec.ensure == Ensure::Absent {
        kinds.host.remove_file(&spec.path).map_err(text)?;
    } else if file::writes(spec, &decided.prior) {
        write(kinds, spec, &decided.wanted, timeout)?;
    } else {
        kinds.host.set_ownership(&spec.path, &decided.wanted).map_err(text)?;
    }
    Ok(applied(edit))
}

struct Decided {
    prior: PathState,
    wanted: PathOwnership,
    edit: Option<Edit<Fields>>,
    note: Option<String>,
}

fn decide(kinds: &Kinds, spec: &FileSpec) -> Result<Decided, String> {
    let prior = kinds.look(&spec.path)?;
    let (wanted, note) = match spec.ensure {
        Ensure::Present => kinds.wanted(&spec.ownership)?,
        Ensure::Absent => Default::default(),
    };
    if !file::differs(spec, &prior, &wanted) {
        return Ok(Decided { prior, wanted, edit: None, note });
    }
    let old = kinds.shown_file(&spec.path, &prior);
    let new = match &spec.content {
        Some(Content::Blob { digest, size }) => kinds.shown_blob(digest, *size),
        Some(Content::Text { .. }) | None => None,
    };
    let bytes = file::Bytes { old: old.as_deref(), new: new.as_deref() };
    let edit = file::assess(spec, &prior, &wanted, bytes, &kinds.names())?;
    Ok(Decided { prior, wanted, edit, note })
}

fn write(kinds: &Kinds, spec: &FileSpec, wanted: &PathOwnership, timeout: Duration) -> Result<(), String> {
    let mut nothing = std::io::empty();
    let mut inline: &[u8];
    let mut blob: Box<dyn Read>;
    let (content, digest): (&mut dyn Read, Digest) = match &spec.content {
        Some(Content::Text { text, digest }) => {
            inline = text.as_bytes();
            (&mut inline, *digest)
        }
        Some(Content::Blob { digest, .. }) => {
            blob = kinds.blob(digest)?;
            (&mut *blob, *digest)
        }
        None => (&mut nothing, Digest::of(&[])),
    };
    let validate = |path: &Path| match &spec.validate {
        Some(command) => run_validate(kinds, command, path, timeout),
        None => Ok(()),
    };
    let write = Write {
        content,
        digest,
        ownership: *wanted,
        default_mode: DEFAULT_FILE_MODE,
        backup: spec.backup,
        validate: Some(&validate),
    };
    kinds.host.write(&spec.path, write).map_err(text)
}

fn run_validate(kinds: &Kinds, command: &Command, path: &Path, timeout: Duration) -> Result<(), String> {
    let path = path.to_str().ok_or("the temporary file's path is not UTF-8")?;
    let program = match command {
        Command::Argv(argv) => Program::Argv(argv.iter().map(|arg| arg.replace(PLACEHOLDER, path)).collect()),
        Command::Shell(text) => {
            let quoted = format!("'{}'", path.replace('\'', r"'\''"));
            Program::Shell(text.replace(PLACEHOLDER, &quoted))
        }
    };
    let command = host::Command::new(program, timeout, MAX_OUTPUT);
    let finished = kinds.host.run(&command).map_err(|error| chain(&error))?;
    succeeded(&finished, timeout)
}
