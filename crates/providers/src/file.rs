//! `file` on a host.

use model::text::chain;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use catalog::module::CommandLine;
use catalog::types::{Ensure, FileContent, FileSpec};
use converge::JobFailure;
use converge::kinds::{DEFAULT_FILE_MODE, file};
use host::{FileWrite, Program};
use model::{Digest, PathOwnership};

use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, fault, replaced_note, succeeded};
use crate::provider::{Decided, PathProvider};

/// Where the temporary file's path goes in a validate command.
const PLACEHOLDER: &str = "%s";

impl PathProvider for FileSpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let (prior, wanted, note) = kinds.prior(&self.path, self.ensure, &self.ownership)?;
        // Texts are only made for what is to be shown.
        if !file::differs(self, &prior, &wanted) {
            return Ok(Decided { prior, wanted, note, ..Decided::default() });
        }
        let old = kinds.shown_file(&self.path, &prior);
        let new = match &self.content {
            Some(FileContent::Blob { digest, size }) => kinds.shown_blob(digest, *size),
            Some(FileContent::Text { .. } | FileContent::Bytes { .. }) | None => None,
        };
        let bytes = file::Bytes { old: old.as_deref(), new: new.as_deref() };
        let edit = file::assess(self, &prior, &wanted, bytes, &kinds.names())?;
        let note = note.into_iter().chain(replaced_note(&prior)).reduce(|a, b| format!("{a}; {b}"));
        Ok(Decided { prior, wanted, edit, note, bytes: None })
    }

    fn needs_command(&self, decided: &Decided) -> bool {
        self.validate.is_some() && decided.edit.is_some() && file::writes(self, &decided.prior)
    }

    fn act(&self, kinds: &Kinds, decided: &Decided, timeout: Duration) -> Result<(), JobFailure> {
        if self.ensure == Ensure::Absent {
            kinds.host.remove_file(&self.path).map(drop).map_err(fault)
        } else if file::writes(self, &decided.prior) {
            kinds.in_place_of(&self.path, &decided.prior, || write(kinds, self, &decided.wanted, timeout))
        } else {
            match kinds.host.set_ownership(&self.path, &decided.wanted) {
                // What is not to be given as it lies there is written anew, where it is known what it holds.
                Err(error) if self.content.is_some() && error.source.is_not_to_give() => {
                    write(kinds, self, &decided.wanted, timeout)
                }
                done => done.map_err(fault),
            }
        }
    }
}

fn write(
    kinds: &Kinds,
    spec: &FileSpec,
    wanted: &PathOwnership,
    timeout: Duration,
) -> Result<(), JobFailure> {
    let mut nothing = std::io::empty();
    let mut inline: &[u8];
    let mut blob: Box<dyn Read>;
    let (content, digest): (&mut dyn Read, Digest) = match &spec.content {
        Some(FileContent::Text { text, digest }) => {
            inline = text.as_bytes();
            (&mut inline, *digest)
        }
        Some(FileContent::Bytes { bytes, digest }) => {
            inline = bytes;
            (&mut inline, *digest)
        }
        Some(FileContent::Blob { digest, .. }) => {
            blob = kinds.blob(digest)?;
            (&mut *blob, *digest)
        }
        None => (&mut nothing, Digest::of(&[])),
    };
    let validate = |path: &Path| match &spec.validate {
        Some(command) => run_validate(kinds, command, path, timeout),
        None => Ok(()),
    };
    let write = FileWrite {
        content,
        digest,
        ownership: *wanted,
        default_mode: DEFAULT_FILE_MODE,
        backup: spec.backup,
        validate: Some(&validate),
    };
    kinds.host.write(&spec.path, write).map_err(fault)
}

/// Asks a validate command about a file that is not visible yet.
pub(crate) fn run_validate(
    kinds: &Kinds,
    command: &CommandLine,
    path: &Path,
    timeout: Duration,
) -> Result<(), String> {
    let path = path.to_str().ok_or("the temporary file's path is not UTF-8")?;
    let program = match command {
        CommandLine::Argv(argv) => {
            Program::Argv(argv.iter().map(|arg| arg.replace(PLACEHOLDER, path)).collect())
        }
        CommandLine::Shell(text) => {
            let quoted = format!("'{}'", path.replace('\'', r"'\''"));
            Program::Shell(text.replace(PLACEHOLDER, &quoted))
        }
    };
    let command = host::Command::new(program, timeout, MAX_OUTPUT);
    let finished = kinds.host.run(&command).map_err(|error| chain(&error))?;
    succeeded(&finished, timeout)
}
