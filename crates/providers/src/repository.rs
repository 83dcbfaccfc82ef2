//! `repository` on a host: its source, its key and the priority of its packages.

use std::io::Read;

use catalog::types::{FileContent, RepositoryPaths, RepositorySigner, RepositorySpec};
use converge::JobFailure;
use converge::kinds::repository;
use host::FileWrite;
use model::{Digest, Edit, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{fault, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};

/// The largest key, in bytes.
const MAX_KEY: u64 = 1024 * 1024;
/// The keys of repositories.
const KEYRINGS: &str = "/etc/apt/keyrings";
/// apt reads them as its own user.
const MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

impl StateProvider for RepositorySpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let paths = RepositoryPaths::of(&self.name);
        let Some(sources) = kinds.text_file(&paths.sources)? else { return Ok(None) };
        let preferences = kinds.text_file(&paths.preferences)?;
        let key = [&paths.armored_key, &paths.binary_key].into_iter().find_map(|path| {
            match kinds.look(path) {
                // A key that apt cannot read is not in place.
                Ok(PathState::File { digest, mode, .. }) if mode == MODE => {
                    Some((path.as_str(), format!("sha256:{digest}")))
                }
                _ => None,
            }
        });
        let key = key.as_ref().map(|(path, key)| (*path, key.as_str()));
        Ok(repository::observe(Some(&sources), preferences.as_deref(), key))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, .. } = change;
        let paths = RepositoryPaths::of(&self.name);
        let remove = |path: &str| kinds.host.remove_file(path).map(drop).map_err(fault);
        let Some(to) = to else {
            // The source first: apt complains about one without its key.
            return [&paths.sources, &paths.preferences, &paths.armored_key, &paths.binary_key]
                .into_iter()
                .try_for_each(|path| remove(path))
                .map(|()| None);
        };
        let key = place_key(self, kinds, &paths, now, to)?;
        match repository::preferences(to) {
            Some(preferences) => put(kinds, &paths.preferences, preferences.as_bytes())?,
            None => remove(&paths.preferences)?,
        }
        put(kinds, &paths.sources, repository::sources(to, key).as_bytes())?;
        for other in
            [&paths.armored_key, &paths.binary_key].into_iter().filter(|path| Some(path.as_str()) != key)
        {
            remove(other)?;
        }
        Ok(None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Packages
    }

    fn works_below_root(&self) -> bool {
        true
    }

    fn refuse(&self, kinds: &Kinds, _: &Edit<Fields>) -> Result<(), String> {
        let path = RepositoryPaths::of(&self.name).sources;
        let Some(sources) = kinds.text_file(&path)? else { return Ok(()) };
        repository::foreign(&sources).map_or(Ok(()), |why| Err(format!("{path}: {why}")))
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        let key = |state: Option<&Fields>| {
            state.and_then(|state| state.get("key")).filter(|key| !key.is_empty()).cloned()
        };
        let lost = key(edit.from()).is_some_and(|before| key(edit.to()).as_ref() != Some(&before));
        lost.then(|| "cannot be undone: the key that was there before is not kept".to_owned())
    }

    fn remark(&self, kinds: &Kinds) -> Option<String> {
        let old = RepositoryPaths::of(&self.name).one_line;
        let there = kinds.host.exists(&old).unwrap_or(false);
        there.then(|| {
            format!("{old} is there too, and apt reads both; remove it (`file:` with `state: absent`)")
        })
    }
}

/// Puts the key in its place, and says where that is.
fn place_key<'a>(
    spec: &RepositorySpec,
    kinds: &Kinds,
    paths: &'a RepositoryPaths,
    now: Option<&Fields>,
    to: &Fields,
) -> Result<Option<&'a str>, String> {
    let Some(wanted) = to.get("key").filter(|key| !key.is_empty()) else { return Ok(None) };
    let bytes = match &spec.signer {
        RepositorySigner::Key(content) => key_bytes(kinds, content)?,
        RepositorySigner::KeyFile(_) | RepositorySigner::Nobody | RepositorySigner::NotNeeded => Vec::new(),
    };
    if format!("sha256:{}", Digest::of(&bytes)) == *wanted {
        let armored = repository::is_armored(&bytes);
        let path = if armored { &paths.armored_key } else { &paths.binary_key };
        if kinds.look(KEYRINGS)? == PathState::Missing {
            let ownership = PathOwnership::default();
            kinds.host.make_directory(KEYRINGS, &ownership, DIRECTORY_MODE).map_err(text)?;
        }
        put(kinds, path, &bytes)?;
        return Ok(Some(path));
    }
    // What was there before is wanted, and it is there still.
    if now.and_then(|now| now.get("key")) == Some(wanted) {
        let armored = kinds.host.exists(&paths.armored_key).map_err(text)?;
        return Ok(Some(if armored { &paths.armored_key } else { &paths.binary_key }));
    }
    Err(format!("the key that {} had before was not kept", spec.name))
}

fn key_bytes(kinds: &Kinds, content: &FileContent) -> Result<Vec<u8>, String> {
    match content {
        FileContent::Text { text, .. } => Ok(text.as_bytes().to_vec()),
        FileContent::Bytes { bytes, .. } => Ok(bytes.to_vec()),
        FileContent::Blob { digest, size } if *size <= MAX_KEY => {
            let mut bytes = Vec::new();
            let read = kinds.blob(digest)?.take(MAX_KEY).read_to_end(&mut bytes);
            read.map_err(|error| format!("cannot read the key: {error}"))?;
            Ok(bytes)
        }
        FileContent::Blob { size, .. } => Err(format!("source: {size} bytes are no key")),
    }
}

fn put(kinds: &Kinds, path: &str, bytes: &[u8]) -> Result<(), String> {
    let write = FileWrite {
        content: &mut &bytes[..],
        digest: Digest::of(bytes),
        ownership: PathOwnership { mode: Some(MODE), uid: None, gid: None },
        default_mode: MODE,
        backup: false,
        validate: None,
    };
    kinds.host.write(path, write).map_err(text)
}
