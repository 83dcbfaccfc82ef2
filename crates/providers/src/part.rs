//! Parts of text files: a block, a key of an INI file, values in a JSON file.
//!
//! ```text
//! observe: file -> converge::kinds::TYPE::observe -> texts (+ the file's mode, owner, group)
//! set:     file -> converge::kinds::TYPE::edit    -> file, replaced whole
//! ```

use std::path::Path;

use catalog::types::{BlockSpec, EditedFile, Ensure, IniSpec, JsonSpec, Ownership, StateSpec};
use converge::JobFailure;
use converge::kinds::{AccountLookup, DEFAULT_FILE_MODE, block, ini, json};
use host::FileWrite;
use model::{Digest, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::file::run_validate;
use crate::kinds::{MAX_EDITED, fault, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};

/// A thing that is a part of a text file.
trait FilePart: StateSpec {
    fn file(&self) -> &EditedFile;

    /// What the file holds of it.
    fn find(&self, bytes: &[u8]) -> Result<Option<Fields>, String>;

    /// The file in which it has the state `to`.
    fn edited(&self, bytes: &[u8], to: Option<&Fields>) -> Result<Vec<u8>, String>;

    /// The file holds nothing but what such parts leave behind.
    fn is_void(&self, bytes: &[u8]) -> bool;

    fn wanted(&self, now: Option<&Fields>) -> Result<Option<Fields>, String>;
}

impl FilePart for BlockSpec {
    fn file(&self) -> &EditedFile {
        &self.file
    }

    fn find(&self, bytes: &[u8]) -> Result<Option<Fields>, String> {
        block::observe(self, bytes)
    }

    fn edited(&self, bytes: &[u8], to: Option<&Fields>) -> Result<Vec<u8>, String> {
        block::edit(self, bytes, to)
    }

    fn is_void(&self, bytes: &[u8]) -> bool {
        bytes.is_empty()
    }

    fn wanted(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }
}

impl FilePart for IniSpec {
    fn file(&self) -> &EditedFile {
        &self.file
    }

    fn find(&self, bytes: &[u8]) -> Result<Option<Fields>, String> {
        Ok(ini::observe(self, bytes))
    }

    fn edited(&self, bytes: &[u8], to: Option<&Fields>) -> Result<Vec<u8>, String> {
        Ok(ini::edit(self, bytes, to))
    }

    fn is_void(&self, bytes: &[u8]) -> bool {
        ini::is_void(bytes)
    }

    fn wanted(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }
}

impl FilePart for JsonSpec {
    fn file(&self) -> &EditedFile {
        &self.file
    }

    fn find(&self, bytes: &[u8]) -> Result<Option<Fields>, String> {
        json::observe(self, bytes)
    }

    fn edited(&self, bytes: &[u8], to: Option<&Fields>) -> Result<Vec<u8>, String> {
        json::edit(self, bytes, to)
    }

    fn is_void(&self, bytes: &[u8]) -> bool {
        json::is_void(bytes)
    }

    fn wanted(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        Ok(json::desired(self, self.declared(), now))
    }
}

impl<T: FilePart> StateProvider for T {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let file = self.file();
        let Some((bytes, state)) = read(kinds, &file.path)? else {
            if self.ensure() == Ensure::Present && !file.create {
                return Err(format!("{} does not exist; say `create: true` to make it", file.path));
            }
            return Ok(None);
        };
        let Some(mut fields) = self.find(&bytes)? else { return Ok(None) };
        ownership(kinds, file, &state, &mut fields);
        Ok(Some(fields))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        self.wanted(now)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { to, timeout, .. } = change;
        let file = self.file();
        let wanted = wanted_ownership(kinds, to)?;
        // Again, from the file itself: who owns its directory may have put another one there.
        let given = match read(kinds, &file.path)? {
            Some(_) => kinds.host.read_to_give(&file.path, MAX_EDITED, &wanted).map_err(text)?,
            None => None,
        };
        let (old, now) = given.map(|given| (given.bytes, given.ownership)).unzip();
        let new = self.edited(old.as_deref().unwrap_or_default(), to)?;
        // Declared so: what the ledger knows keeps no `create`.
        if to.is_none() && file.create && self.is_void(&new) {
            return kinds.host.remove_file(&file.path).map(|_| None).map_err(fault);
        }
        if old.as_ref() == Some(&new) {
            return kinds.host.give_file(&file.path, &wanted).map(|()| None).map_err(fault);
        }
        let validate = |path: &Path| match &file.validate {
            Some(command) => run_validate(kinds, command, path, timeout),
            None => Ok(()),
        };
        let write = FileWrite {
            content: &mut new.as_slice(),
            digest: Digest::of(&new),
            // As it was read, not as it may be by now.
            ownership: wanted.or(now.unwrap_or_default()),
            default_mode: DEFAULT_FILE_MODE,
            backup: false,
            validate: Some(&validate),
        };
        kinds.host.write(&file.path, write).map(|()| None).map_err(fault)
    }

    fn surroundings(&self, _: &Kinds) -> Result<Vec<String>, String> {
        Ok(vec![self.file().path.clone()])
    }

    fn leaves_nothing(&self, bytes: &[u8]) -> bool {
        self.is_void(bytes)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    /// Below another root no command says whether the new file is right.
    fn works_below_root(&self) -> bool {
        self.file().validate.is_none()
    }
}

/// A file's bytes and what is there; `None` when there is none.
fn read(kinds: &Kinds, path: &str) -> Result<Option<(Vec<u8>, PathState)>, String> {
    match kinds.look(path)? {
        PathState::Missing => Ok(None),
        state @ PathState::File { .. } => {
            let bytes = kinds.host.read(path, MAX_EDITED).map_err(text)?.unwrap_or_default();
            Ok(Some((bytes, state)))
        }
        other => Err(format!("{path} is not a regular file ({}); it is left alone", other.what())),
    }
}

/// Adds what the file has of the ownership that is declared, in the form of the declaration.
fn ownership(kinds: &Kinds, file: &EditedFile, state: &PathState, fields: &mut Fields) {
    let PathState::File { mode, uid, gid, .. } = state else { return };
    let Ownership { mode: wanted, owner, group } = &file.ownership;
    fields.extend(wanted.map(|_| ("mode".to_owned(), format!("{mode:04o}"))));
    let names = kinds.names();
    let text = |declared: &String, number: u32, name: String| match declared {
        declared if !kinds.host.enforces_ownership() => declared.clone(),
        declared if declared.parse() == Ok(number) => declared.clone(),
        _ => name,
    };
    fields.extend(owner.as_ref().map(|owner| ("owner".to_owned(), text(owner, *uid, names.user(*uid)))));
    fields.extend(group.as_ref().map(|group| ("group".to_owned(), text(group, *gid, names.group(*gid)))));
}

/// The ownership that a state names.
fn wanted_ownership(kinds: &Kinds, to: Option<&Fields>) -> Result<PathOwnership, String> {
    let get = |name| to.and_then(|to| to.get(name)).cloned();
    let mode = get("mode").and_then(|mode| u32::from_str_radix(&mode, 8).ok());
    let (ownership, _) = kinds.wanted(&Ownership { mode, owner: get("owner"), group: get("group") })?;
    Ok(ownership)
}
