//! A Debian package: files staged with fixed modes and times, put together by `dpkg-deb`. The same
//! files at the same commit make the same bytes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::{Compression, GzBuilder};

use super::{clear, failed};
use crate::Outcome;

/// The mode of what is run.
pub const EXECUTABLE: u32 = 0o755;
/// The mode of all other files.
pub const PLAIN: u32 = 0o644;

/// What goes into a package, by path below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    /// Where it is installed, without a leading slash.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// [`EXECUTABLE`] or [`PLAIN`].
    pub mode: u32,
}

impl PackageFile {
    /// A file that is read.
    pub fn plain(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> PackageFile {
        PackageFile { path: path.into(), bytes: bytes.into(), mode: PLAIN }
    }

    /// The same, compressed as Debian wants man pages and changelogs: as `NAME.gz`.
    ///
    /// # Errors
    /// When it cannot be compressed.
    pub fn compressed(path: &str, bytes: &[u8]) -> Result<PackageFile, String> {
        let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let packed = packed.map_err(|error| format!("{path}: {error}"))?;
        Ok(PackageFile::plain(format!("{path}.gz"), packed))
    }
}

/// A package before it is built.
#[derive(Clone, Debug)]
pub struct DebianPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The fields of its control file but Installed-Size, in order.
    pub fields: Vec<(&'static str, String)>,
    /// What it installs.
    pub files: Vec<PackageFile>,
    /// The maintainer's scripts: name and text.
    pub scripts: Vec<(&'static str, Vec<u8>)>,
}

/// How a package is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squeeze {
    /// As small as can be.
    Small,
    /// As fast as can be: for tests.
    Fast,
}

/// Whether this machine has what packages are built with.
pub fn can_build() -> bool {
    ["dpkg-deb", "readelf", "md5sum"].iter().all(|program| {
        let mut asked = Command::new(program);
        let asked = asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    })
}

/// The name of this machine's architecture in Debian.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl DebianPackage {
    /// Builds the package below a directory, as `NAME_VERSION_ARCH.deb`; all of its times are
    /// `epoch`, in seconds. Its files are staged in the directory meanwhile.
    ///
    /// # Errors
    /// When files cannot be written or `dpkg-deb` refuses.
    pub fn build(&self, dir: &Path, epoch: u64, squeeze: Squeeze) -> Result<PathBuf, String> {
        let tree = dir.join(format!("{}.tree", self.name));
        clear(&tree)?;
        for file in &self.files {
            write(&tree.join(&file.path), &file.bytes, file.mode)?;
        }
        self.control(&tree)?;
        directories(&tree)?;
        let name = format!("{}_{}_{}.deb", self.name, self.version, architecture());
        let package = dir.join(name);
        clear(&package)?;
        let squeezed: &[&str] = match squeeze {
            Squeeze::Small => &["-Zxz"],
            Squeeze::Fast => &["-Zgzip", "-z1"],
        };
        let mut built = Command::new("dpkg-deb");
        built.args(["--root-owner-group"]).args(squeezed).arg("--build").arg(&tree).arg(&package);
        built.env("SOURCE_DATE_EPOCH", epoch.to_string()).env("LC_ALL", "C");
        let output = built.output().map_err(|error| format!("dpkg-deb: {error}"))?;
        if !output.status.success() {
            return Err(format!("dpkg-deb: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        clear(&tree)?;
        Ok(package)
    }

    fn control(&self, tree: &Path) -> Outcome {
        let dir = tree.join("DEBIAN");
        let kib: u64 = self.files.iter().map(|file| (file.bytes.len() as u64).div_ceil(1024)).sum();
        let mut control = String::new();
        for (name, value) in &self.fields {
            control.push_str(&format!("{name}: {value}\n"));
            if *name == "Maintainer" {
                control.push_str(&format!("Installed-Size: {kib}\n"));
            }
        }
        write(&dir.join("control"), control.as_bytes(), PLAIN)?;
        // Debian's rule: what is below /etc is the administrator's, and kept.
        let mut conffiles: Vec<String> = self.files.iter().map(|file| format!("/{}\n", file.path)).collect();
        conffiles.retain(|path| path.starts_with("/etc/"));
        conffiles.sort();
        if !conffiles.is_empty() {
            write(&dir.join("conffiles"), conffiles.concat().as_bytes(), PLAIN)?;
        }
        write(&dir.join("md5sums"), &self.sums(tree)?, PLAIN)?;
        for (name, text) in &self.scripts {
            write(&dir.join(name), text, EXECUTABLE)?;
        }
        Ok(())
    }

    fn sums(&self, tree: &Path) -> Result<Vec<u8>, String> {
        let mut paths: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        paths.retain(|path| !path.starts_with("etc/"));
        paths.sort_unstable();
        let summed = Command::new("md5sum").args(paths).current_dir(tree).output();
        let summed = summed.map_err(|error| format!("md5sum: {error}"))?;
        if !summed.status.success() {
            return Err(format!("md5sum: {}", String::from_utf8_lossy(&summed.stderr).trim()));
        }
        Ok(summed.stdout)
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Outcome {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed(parent))?;
    }
    fs::write(path, bytes).map_err(failed(path))?;
    // Whatever the umask is.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed(path))
}

/// Gives every directory its mode, whatever the umask is.
fn directories(dir: &Path) -> Outcome {
    fs::set_permissions(dir, fs::Permissions::from_mode(EXECUTABLE)).map_err(failed(dir))?;
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let entry = entry.map_err(failed(dir))?;
        if entry.file_type().map_err(failed(dir))?.is_dir() {
            directories(&entry.path())?;
        }
    }
    Ok(())
}
