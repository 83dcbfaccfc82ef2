//! [`FolderState`]: the view of a folder together with the folder itself.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use model::ObjectKey;
use rustix::io::Errno;

use super::disk;
use super::file::FileRead;
use super::names::{self, FileRole};
use super::tree::{FileStamp, FolderLook};
use super::view::{DueFile, FolderView, PlacedObject, Presence};
use super::write;
use crate::backend::{
    AppliedVersion, ApplyRequest, BackendError, ChangeListener, Deleted, Expect, ListingProblem,
    OperationRequest,
};
use crate::manifest::{self, Extras, Format, Manifest};

/// How many names are tried for a new file.
const MAX_PLACES: usize = 16;

/// Hears of every directory that is seen.
pub(crate) type WatchDirectory = Box<dyn Fn(&OwnedFd) + Send>;

/// See the module.
pub(crate) struct FolderState {
    pub(crate) path: PathBuf,
    pub(crate) view: FolderView,
    /// What a writer of ours left when it died has been removed.
    swept: bool,
    /// Who hears of changes, and what watches every directory seen.
    pub(crate) watch: Option<(ChangeListener, WatchDirectory)>,
}

impl FolderState {
    pub(crate) fn new(path: &Path) -> FolderState {
        FolderState { path: path.to_owned(), view: FolderView::new(), swept: false, watch: None }
    }

    /// Looks at the folder, reads what is due, and notifies the listener.
    pub(crate) fn poll(&mut self, now: u64) {
        let root = disk::open_folder(&self.path);
        let look = match &root {
            Err(why) => FolderLook::Unusable(why.clone()),
            Ok(root) => self.look(root),
        };
        let due = self.view.observe(look, now);
        if let Ok(root) = &root {
            for due in due {
                self.load(root, &due);
            }
        }
        if self.view.publish(now)
            && let Some((changed, _)) = &self.watch
        {
            changed();
        }
    }

    fn look(&mut self, root: &OwnedFd) -> FolderLook {
        let watch = &self.watch;
        let mut each = |dir: &OwnedFd| {
            if let Some((_, watch)) = watch {
                watch(dir);
            }
        };
        match disk::look(root, !self.swept, &mut each) {
            Ok(tree) => {
                self.swept = true;
                FolderLook::Here(tree)
            }
            Err(errno) => FolderLook::Unusable(format!("it cannot be looked into: {errno}")),
        }
    }

    fn load(&mut self, root: &OwnedFd, due: &DueFile) {
        let Some(role) = names::role(&due.path) else { return };
        let limit = match role {
            FileRole::Manifests(_) => manifest::MAX_FILE,
            FileRole::Status => sync::object::MAX_CONTENT,
        };
        match disk::read(root, &due.path, limit) {
            Ok(Some((bytes, stamp))) if stamp == due.stamp || due.restless => {
                self.view.loaded(&due.path, stamp, understand(role, &bytes));
            }
            // It changes under the reader, or is gone by now: the next look will tell.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV)) => {
                let why = format!("it cannot be read: {errno}");
                self.view.loaded(&due.path, due.stamp, FileRead::Refused(why));
            }
            Err(errno) => {
                let message = format!("it cannot be read: {errno}");
                self.view.not_loaded(&due.path, ListingProblem::of(&due.path, None, "not-readable", message));
            }
        }
    }

    pub(crate) fn apply(&mut self, apply: &ApplyRequest<'_>) -> Result<AppliedVersion, BackendError> {
        manifest::identify(apply.key, apply.spec)?;
        let root = self.root()?;
        let old = self.view.object(apply.key).cloned();
        if !apply.expect.holds(old.as_ref().map(|old| &old.found)) {
            return Err(BackendError::conflict(apply.key));
        }
        let rested = match &old {
            Some(old) => self.rested(&root, &old.path)?,
            None => true,
        };
        if !rested && apply.expect != Expect::Anything {
            let message = format!("the file of {} is being written; try again", apply.key);
            return Err(BackendError::temporary("unsettled", message));
        }
        let extras = extras(old.as_ref(), apply.source_uid);
        let version = normal_version(apply, &extras)?;
        if let Some(old) = &old
            && rested
            && old.readable
            && old.found.version == version
        {
            return Ok(AppliedVersion { version });
        }
        if apply.spec.len() > self.view.room() {
            let message = "the folder has as many bytes of objects as it may have";
            return Err(BackendError::permanent("too-large", message));
        }
        let (path, text) = match &old {
            Some(old) => (old.path.clone(), self.rewritten(&root, old, apply, &extras)?),
            None => self.new_file(&root, apply, &extras)?,
        };
        let read = understand_path(&path, text.as_bytes());
        match &read {
            FileRead::Manifests { manifests, .. } if manifests.iter().any(|it| it.version() == version) => {}
            _ => return Err(unwritable(apply.key)),
        }
        self.write(&root, &path, text.as_bytes(), read)?;
        Ok(AppliedVersion { version })
    }

    /// The new text of the file in which an object stands.
    fn rewritten(
        &self,
        root: &OwnedFd,
        old: &PlacedObject,
        apply: &ApplyRequest<'_>,
        extras: &Extras,
    ) -> Result<String, BackendError> {
        let format = format_of(&old.path);
        let new = manifest::render(apply.spec, extras, format).map_err(|it| it.anywhere())?;
        if old.alone {
            return Ok(new);
        }
        Ok(manifest::splice(&self.shared_text(root, old)?, old.manifest.position, Some(&new))?)
    }

    /// The text of a file that holds several objects, if it is as it was read.
    fn shared_text(&self, root: &OwnedFd, old: &PlacedObject) -> Result<String, BackendError> {
        let broken = || {
            let message = format!("{} holds other objects too and cannot be read now", old.path);
            BackendError::temporary("unsettled", message)
        };
        if !old.readable || !self.rested(root, &old.path)? {
            return Err(broken());
        }
        let read = disk::read(root, &old.path, manifest::MAX_FILE).map_err(|_| broken())?;
        let (bytes, _) = read.ok_or_else(broken)?;
        String::from_utf8(bytes).map_err(|_| broken())
    }

    /// Path and text for an object that has no file. What YAML cannot say again is written as
    /// JSON.
    fn new_file(
        &self,
        root: &OwnedFd,
        apply: &ApplyRequest<'_>,
        extras: &Extras,
    ) -> Result<(String, String), BackendError> {
        if self.view.len() >= disk::MAX_FILES {
            return Err(BackendError::permanent("too-many", "the folder has as many files as it may have"));
        }
        let mut format = Format::Yaml;
        let mut text = manifest::render(apply.spec, extras, format).map_err(|it| it.anywhere())?;
        if manifest::read(text.as_bytes(), format).is_err() {
            format = Format::Json;
            text = manifest::render(apply.spec, extras, format).map_err(|it| it.anywhere())?;
        }
        for attempt in 0..MAX_PLACES {
            let path = names::path_for(apply.key, format, attempt);
            let free = match self.view.file(&path) {
                // What stands there is of other objects, or of nobody knows whom.
                Some(_) => false,
                None => !disk::stamp_of(root, &path).is_ok_and(|stamp| stamp.is_some()),
            };
            if free {
                return Ok((path, text));
            }
        }
        let message = format!("every name for {} is taken in the folder; remove the files there", apply.key);
        Err(BackendError::permanent("no-name", message))
    }

    pub(crate) fn delete(&mut self, key: &ObjectKey, expect: &Expect) -> Result<Deleted, BackendError> {
        let root = self.root()?;
        let Some(old) = self.view.object(key).cloned() else { return Ok(Deleted::Absent) };
        if !expect.holds(Some(&old.found)) {
            return Err(BackendError::conflict(key));
        }
        if old.alone {
            if *expect != Expect::Anything && !self.rested(&root, &old.path)? {
                let message = format!("the file of {key} is being written; try again");
                return Err(BackendError::temporary("unsettled", message));
            }
            self.remove(&root, &old.path)?;
        } else {
            let text = manifest::splice(&self.shared_text(&root, &old)?, old.manifest.position, None)?;
            let read = understand_path(&old.path, text.as_bytes());
            self.write(&root, &old.path, text.as_bytes(), read)?;
        }
        for status in names::statuses(&old.path, key, old.alone) {
            self.remove(&root, &status)?;
        }
        for operation in names::operations(&old.path, key, old.alone) {
            write::remove(&self.path, &root, &operation)?;
        }
        Ok(Deleted::Removed)
    }

    fn write(
        &mut self,
        root: &OwnedFd,
        path: &str,
        bytes: &[u8],
        read: FileRead,
    ) -> Result<(), BackendError> {
        write::write(&self.path, root, path, bytes)?;
        let stamp = disk::stamp_of(root, path).ok().flatten();
        self.view.wrote(path, stamp, read);
        Ok(())
    }

    fn remove(&mut self, root: &OwnedFd, path: &str) -> Result<(), BackendError> {
        write::remove(&self.path, root, path)?;
        self.view.removed(path);
        Ok(())
    }

    pub(crate) fn request_operation(
        &mut self,
        key: &ObjectKey,
        request: &OperationRequest,
    ) -> Result<(), BackendError> {
        let root = self.root()?;
        let Some(old) = self.view.object(key).cloned() else { return Err(BackendError::absent(key)) };
        // The view keeps what vanished until it is settled.
        if disk::stamp_of(&root, &old.path).is_ok_and(|stamp| stamp.is_none()) {
            return Err(BackendError::absent(key));
        }
        let mut text = serde_json::to_vec(request)
            .map_err(|error| BackendError::permanent("not-writable", error.to_string()))?;
        text.push(b'\n');
        let paths = names::operations(&old.path, key, old.alone);
        let (path, other) = paths.split_first().ok_or_else(|| unwritable(key))?;
        write::write(&self.path, &root, path, &text)?;
        // Written when the file held other objects too, and not taken.
        other.iter().try_for_each(|other| write::remove(&self.path, &root, other))
    }

    /// The folder, if it is the one that was looked at.
    fn root(&self) -> Result<OwnedFd, BackendError> {
        let gone = |why: &str| {
            let message = format!("the folder {} is not there: {why}", self.path.display());
            BackendError::temporary("folder-gone", message)
        };
        if let Presence::Unusable(why) = self.view.presence() {
            return Err(gone(why));
        }
        let root = disk::open_folder(&self.path).map_err(|why| gone(&why))?;
        let id = disk::identity(&root).map_err(|errno| gone(&errno.to_string()))?;
        if self.view.id() != Some(id) {
            return Err(gone("another one stands in its place"));
        }
        Ok(root)
    }

    /// A file is as it was read, or as it was written here.
    fn rested(&self, root: &OwnedFd, path: &str) -> Result<bool, BackendError> {
        let now = disk::stamp_of(root, path).map_err(|errno| {
            let path = self.path.join(path);
            BackendError::temporary("not-readable", format!("cannot read {}: {errno}", path.display()))
        })?;
        let known: Option<FileStamp> = self.view.file(path).and_then(super::file::FolderFile::stamp);
        Ok(known.is_some() && known == now)
    }
}

fn unwritable(key: &ObjectKey) -> BackendError {
    BackendError::permanent("not-writable", format!("{key} cannot be written so that it reads the same"))
}

fn format_of(path: &str) -> Format {
    match names::role(path) {
        Some(FileRole::Manifests(format)) => format,
        _ => Format::Yaml,
    }
}

/// What a manifest keeps when its spec is replaced.
fn extras(old: Option<&PlacedObject>, source_uid: Option<&str>) -> Extras {
    Extras {
        uid: old.and_then(|old| old.manifest.uid.clone()),
        source_uid: source_uid.map(str::to_owned),
        finalizers: old.map(|old| old.manifest.finalizers.clone()).unwrap_or_default(),
        status: old.and_then(|old| old.manifest.status.clone()),
    }
}

/// The version that the object will be found with.
fn normal_version(apply: &ApplyRequest<'_>, extras: &Extras) -> Result<String, BackendError> {
    let manifests: Vec<Manifest> = manifest::read(apply.spec, Format::Json)?;
    let only = manifests.first().ok_or_else(|| unwritable(apply.key))?;
    Ok(manifest::version(&only.spec, apply.source_uid, extras.uid.as_deref()))
}

fn understand_path(path: &str, bytes: &[u8]) -> FileRead {
    understand(names::role(path).unwrap_or(FileRole::Manifests(Format::Yaml)), bytes)
}

fn understand(role: FileRole, bytes: &[u8]) -> FileRead {
    match role {
        FileRole::Status => match manifest::read_status(bytes) {
            Ok(status) => FileRead::Status(status),
            Err(error) => FileRead::Bad(error),
        },
        FileRole::Manifests(format) => match manifest::read(bytes, format) {
            Ok(manifests) => {
                let blank = bytes.iter().all(u8::is_ascii_whitespace);
                FileRead::Manifests { manifests, blank }
            }
            Err(error) => FileRead::Bad(error),
        },
    }
}
