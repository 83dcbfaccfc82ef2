//! A folder whose clock the test turns.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

pub mod conformance;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use backends::{Backend, Folder, FoundObject, Listing};
use model::ObjectKey;

use self::conformance::Subject;

/// Watches a backend; each value received is one call of its listener.
pub fn watch(backend: &mut dyn Backend) -> Receiver<()> {
    let (sender, told) = std::sync::mpsc::channel();
    let listener = move || sender.send(()).unwrap_or_default();
    backend.watch(Box::new(listener)).unwrap();
    told
}

/// Whether the listener was called since the last time.
pub fn changed(told: &Receiver<()>) -> bool {
    told.try_iter().count() > 0
}

pub struct Stage {
    dir: tempfile::TempDir,
    pub folder: Folder,
    clock: Arc<AtomicU64>,
}

impl Stage {
    pub fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let clock = Arc::new(AtomicU64::new(0));
        let folder = open(&dir.path().join("folder"), &clock);
        Stage { dir, folder, clock }
    }

    /// The folder's path.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("folder")
    }

    /// A place outside it.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file in place, as `echo >` does.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).unwrap();
    }

    /// As after a restart of the agent.
    pub fn restart(&mut self) {
        self.folder = open(&self.root(), &self.clock);
    }

    /// Time passes, and the folder is looked at.
    pub fn pass(&mut self, milliseconds: u64) {
        self.clock.fetch_add(milliseconds, Ordering::SeqCst);
        self.folder.poll();
    }

    /// Everything settles: more time than any wait of the folder, looked at often.
    pub fn settle(&mut self) {
        for _ in 0..80 {
            self.pass(100);
        }
    }

    pub fn list(&mut self) -> Listing {
        self.folder.list()
    }

    /// `name=spec.v` of all objects, for short assertions.
    pub fn said(&mut self) -> Vec<String> {
        self.list().objects.iter().map(said).collect()
    }

    pub fn codes(&mut self) -> Vec<(String, &'static str)> {
        self.list().problems.into_iter().map(|it| (it.path, it.code)).collect()
    }
}

fn open(path: &Path, clock: &Arc<AtomicU64>) -> Folder {
    let clock = clock.clone();
    // Looked at by the test alone: the clock stands still in between.
    Folder::with_clock(path, Arc::new(move || clock.load(Ordering::SeqCst)))
}

pub fn said(found: &FoundObject) -> String {
    let spec: serde_json::Value = serde_json::from_slice(&found.spec).unwrap();
    format!("{}={}", found.key.name, spec["spec"]["v"])
}

/// A manifest with one number.
pub fn yaml(name: &str, v: u32) -> String {
    format!("# {name}\nkind: App\nmetadata:\n  name: {name}\nspec: {{v: {v}}}\n")
}

pub fn app(name: &str) -> ObjectKey {
    ObjectKey::of("App", name)
}

impl Stage {
    /// Watches the folder.
    pub fn watch(&mut self) -> Receiver<()> {
        watch(&mut self.folder)
    }
}

impl Subject for Stage {
    fn backend(&mut self) -> &mut dyn Backend {
        &mut self.folder
    }

    fn edit(&mut self, key: &ObjectKey, spec: &[u8]) {
        let path = self.file_of(key).unwrap_or_else(|| format!("mine/{}.json", key.name));
        self.write(&path, spec);
    }

    fn erase(&mut self, key: &ObjectKey) {
        let path = self.file_of(key).expect("a file");
        self.remove(&path);
    }

    fn settle(&mut self) {
        Stage::settle(self);
    }
}

impl Stage {
    fn file_of(&self, key: &ObjectKey) -> Option<String> {
        let own = format!(
            "{}/{}/{}.yaml",
            key.section.kind.as_str().to_lowercase(),
            if key.section.namespace.is_empty() { "_" } else { &key.section.namespace },
            key.name
        );
        let mine = format!("mine/{}.json", key.name);
        [own, mine].into_iter().find(|path| self.path(path).exists())
    }
}
