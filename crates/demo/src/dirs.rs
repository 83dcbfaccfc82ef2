//! The demo's directory: the control plane's, the fleet's, the objects' and each host's.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::DemoError;

/// The example fleet beside the source that this program was built from.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet");
/// What a minimal host is known by.
const OS_RELEASE: &str =
    "ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n";

/// A directory of its own, open to nobody else, removed at the end unless it is to be kept.
#[derive(Debug)]
pub struct DemoDir(TempDir);

impl DemoDir {
    /// Makes the directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(keep: bool) -> Result<DemoDir, DemoError> {
        let made = tempfile::Builder::new().prefix("muster-demo-").disable_cleanup(keep).tempdir();
        made.map(DemoDir).map_err(DemoError::using(&std::env::temp_dir()))
    }

    /// Where the control plane keeps everything.
    pub fn control(&self) -> PathBuf {
        self.dir().join("control")
    }

    /// Where the fleet repo lies.
    pub fn fleet(&self) -> PathBuf {
        self.dir().join("fleet")
    }

    /// Where the manifests of objects lie.
    pub fn manifests(&self) -> PathBuf {
        self.dir().join("objects")
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// Copies a fleet repo, so that it may be edited.
    ///
    /// # Errors
    /// When it is not there, or cannot be copied.
    pub fn copy_fleet(&self, from: Option<&Path>) -> Result<(), DemoError> {
        let from = from.map_or_else(|| PathBuf::from(EXAMPLE), Path::to_owned);
        if !from.join("fleet.yaml").exists() {
            return Err(DemoError::NoExample(from));
        }
        copy(&from, &self.fleet())
    }

    /// Makes a host: a root with the few files by which it is known, and a place for state.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn host(&self, name: &str) -> Result<HostDirs, DemoError> {
        let dir = self.dir().join("hosts").join(name);
        let host = HostDirs { root: dir.join("root"), state: dir.join("state"), log: dir.join("agent.log") };
        make_dir(&host.root.join("etc"))?;
        // Whoever runs the demo stands for root there, so that owners can be set.
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let files = [
            ("etc/os-release", OS_RELEASE.to_owned()),
            ("etc/passwd", format!("root:x:{uid}:{gid}:root:/root:/bin/sh\n")),
            ("etc/group", format!("root:x:{gid}:\n")),
            ("etc/hostname", format!("{name}\n")),
        ];
        for (path, text) in files {
            let path = host.root.join(path);
            fs::write(&path, text).map_err(DemoError::using(&path))?;
        }
        Ok(host)
    }
}

/// Where a host lies.
#[derive(Clone, Debug)]
pub struct HostDirs {
    /// What its agent converges.
    pub root: PathBuf,
    /// What its agent remembers.
    pub state: PathBuf,
    /// What its agent says.
    pub log: PathBuf,
}

fn make_dir(path: &Path) -> Result<(), DemoError> {
    fs::create_dir_all(path).map_err(DemoError::using(path))
}

fn copy(from: &Path, to: &Path) -> Result<(), DemoError> {
    make_dir(to)?;
    for entry in fs::read_dir(from).map_err(DemoError::using(from))? {
        let from = entry.map_err(DemoError::using(from))?.path();
        let to = to.join(from.file_name().unwrap_or_default());
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(DemoError::using(&to))?;
        }
    }
    Ok(())
}
