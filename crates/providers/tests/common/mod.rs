//! A host in a temporary directory, and a blob store in memory.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catalog::types::{
    CustomSpec, Ensure, ExecSpec, FileContent, FileSpec, InTheWay, Ownership, Script, Spec,
};
use converge::JobDone;
use converge::kinds::{Applied, Checked};
use host::{Host, HostOptions};
use model::{Digest, Fields};
use providers::{Blobs, KeepBytesError, Kinds};

/// Long enough for everything that ends by itself.
pub const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Memory(Mutex<BTreeMap<Digest, Vec<u8>>>, Mutex<BTreeMap<String, Fields>>);

impl Memory {
    pub fn put(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.0.lock().unwrap().insert(digest, bytes.to_vec());
        digest
    }

    /// How many contents there are.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Removes what nothing needs.
    pub fn forget(&self, digest: Digest) {
        self.0.lock().unwrap().remove(&digest);
    }

    /// Makes the store lie about a digest.
    pub fn corrupt(&self, digest: Digest, bytes: &[u8]) {
        self.0.lock().unwrap().insert(digest, bytes.to_vec());
    }
}

impl Blobs for Memory {
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read>> {
        let bytes = self.0.lock().unwrap().get(digest).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn keep(&self, bytes: &mut dyn Read, digest: &Digest) -> Result<(), KeepBytesError> {
        let mut all = Vec::new();
        bytes.read_to_end(&mut all)?;
        if Digest::of(&all) != *digest {
            return Err(KeepBytesError::WrongDigest);
        }
        self.put(&all);
        Ok(())
    }

    fn unpacked(&self, path: &str) -> io::Result<Option<Fields>> {
        Ok(self.1.lock().unwrap().get(path).cloned())
    }

    fn keep_unpacked(&self, path: &str, unpacked: Option<&Fields>) -> io::Result<()> {
        let mut all = self.1.lock().unwrap();
        match unpacked {
            Some(unpacked) => drop(all.insert(path.to_owned(), unpacked.clone())),
            None => drop(all.remove(path)),
        }
        Ok(())
    }
}

pub struct Lab {
    pub dir: tempfile::TempDir,
    pub blobs: Arc<Memory>,
    pub kinds: Kinds,
}

/// A host where commands may run.
pub fn lab() -> Lab {
    lab_with(HostOptions { allow_exec: true, ..HostOptions::default() })
}

pub fn lab_with(options: HostOptions) -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Arc::new(Memory::default());
    let host = Arc::new(Host::open(dir.path(), options).unwrap());
    let kinds = Kinds::new(host, Arc::clone(&blobs) as Arc<dyn Blobs>);
    Lab { dir, blobs, kinds }
}

impl Lab {
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn check(&self, spec: &Spec) -> Checked {
        match self.kinds.check("name", spec, LONG, false) {
            Ok(JobDone::Checked(checked)) => checked,
            other => panic!("{other:?}"),
        }
    }

    pub fn failed_check(&self, spec: &Spec) -> String {
        match self.kinds.check("name", spec, LONG, false) {
            Err(why) => why.message,
            other => panic!("{other:?}"),
        }
    }

    pub fn apply(&self, spec: &Spec) -> Result<Applied, String> {
        self.kinds.apply("name", spec, &self.check(spec), LONG).map_err(String::from)
    }
}

pub fn text(text: &str) -> FileContent {
    FileContent::Text { text: text.into(), digest: Digest::of(text.as_bytes()) }
}

pub fn file(path: &str, content: &str) -> FileSpec {
    FileSpec {
        path: path.to_owned(),
        ensure: Ensure::Present,
        content: Some(text(content)),
        ownership: Ownership::default(),
        validate: None,
        backup: false,
        in_the_way: InTheWay::Stays,
    }
}

pub fn exec(command: &str) -> ExecSpec {
    ExecSpec {
        remove: None,
        command: catalog::module::CommandLine::Shell(command.to_owned()),
        creates: None,
        unless: None,
        onlyif: None,
        always: false,
        cwd: None,
        environment: BTreeMap::new(),
        returns: Vec::new(),
        stdin: None,
        user: None,
    }
}

pub fn shipped(lab: &Lab, script: &str) -> CustomSpec {
    let digest = lab.blobs.put(script.as_bytes());
    CustomSpec {
        script: Script::Shipped { path: "executors/it.sh".to_owned(), digest, size: script.len() as u64 },
        state: "present".to_owned(),
        params: BTreeMap::new(),
        dry_run: false,
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
