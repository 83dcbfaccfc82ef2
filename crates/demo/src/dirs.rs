//! The demo's directory: the control plane's, the fleet's, the objects' and each host's.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use server::posture::{self, FoundError};

use cli::failure::UserError;

/// The example fleet beside the source that this program was built from.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet");
/// What a minimal host is known by.
const OS_RELEASE: &str =
    "ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n";

/// Why the demo's directory cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DemoDirError {
    /// A file or directory cannot be made.
    #[error("cannot make {}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The example fleet is not there.
    #[error("there is no fleet repo at {}", .0.display())]
    NoExample(PathBuf),
    /// The operating system gives no randomness.
    #[error("the demo's directory cannot be named")]
    Random(#[source] FoundError),
}

impl UserError for DemoDirError {
    fn hint(&self) -> Option<String> {
        matches!(self, DemoDirError::NoExample(_)).then(|| "name one with --fleet DIR".to_owned())
    }
}

/// A directory of its own, removed at the end unless it is to be kept.
#[derive(Debug)]
pub struct DemoDir {
    dir: PathBuf,
    keep: bool,
}

impl DemoDir {
    /// Makes the directory, open to nobody else.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(keep: bool) -> Result<DemoDir, DemoDirError> {
        let suffix: [u8; 4] = posture::random().map_err(DemoDirError::Random)?;
        let dir = std::env::temp_dir().join(format!("muster-demo-{}", HEXLOWER.encode(&suffix)));
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|source| DemoDirError::Make { path: dir.clone(), source })?;
        Ok(DemoDir { dir, keep })
    }

    /// Where the control plane keeps everything.
    pub fn control(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// Where the fleet repo lies.
    pub fn fleet(&self) -> PathBuf {
        self.dir.join("fleet")
    }

    /// Where the manifests of objects lie.
    pub fn manifests(&self) -> PathBuf {
        self.dir.join("objects")
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Copies a fleet repo, so that it may be edited.
    ///
    /// # Errors
    /// When it is not there, or cannot be copied.
    pub fn copy_fleet(&self, from: Option<&Path>) -> Result<(), DemoDirError> {
        let from = from.map_or_else(|| PathBuf::from(EXAMPLE), Path::to_owned);
        if !from.join("fleet.yaml").exists() {
            return Err(DemoDirError::NoExample(from));
        }
        copy(&from, &self.fleet())
    }

    /// Makes a host: a root with the few files by which it is known, and a place for state.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn host(&self, name: &str) -> Result<HostDirs, DemoDirError> {
        let dir = self.dir.join("hosts").join(name);
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
            fs::write(&path, text).map_err(|source| DemoDirError::Make { path, source })?;
        }
        Ok(host)
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            tracing::warn!(dir = %self.dir.display(), %error, "the demo's directory could not be removed");
        }
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

fn make_dir(path: &Path) -> Result<(), DemoDirError> {
    fs::create_dir_all(path).map_err(|source| DemoDirError::Make { path: path.to_owned(), source })
}

fn copy(from: &Path, to: &Path) -> Result<(), DemoDirError> {
    make_dir(to)?;
    let failed = |source| DemoDirError::Make { path: to.to_owned(), source };
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).map_err(|source| DemoDirError::Make { path: target, source })?;
        }
    }
    Ok(())
}
