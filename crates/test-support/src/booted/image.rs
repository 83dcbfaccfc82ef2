//! The tree that every booted host begins with, and a folder of Debian packages: built once, kept
//! below [`CACHE`], named by the digest of its recipe, and never built again while the recipe is the
//! same.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use model::Digest;

use super::commands::{script, succeed};
use super::ledger;
use super::sweep;
use super::unbootable::Unbootable;

/// Where images and the folders of running tests lie; shared by all working copies on a machine.
pub const CACHE: &str = "/var/cache/muster-test-hosts";
/// What is installed in the tree.
const BASE: &str =
    "dbus systemd systemd-sysv libpam-systemd iproute2 procps cron sudo gnupg ca-certificates tzdata";
/// What hosts can install, with all that these depend on (`/srv/packages/debian` in a host).
const PACKAGES: &str = "nginx-light postgresql chrony systemd-timesyncd openssh-server openssh-client rsyslog \
                        logrotate faketime hello jq tree less file bc nano curl rsync nftables acl attr unzip \
                        xz-utils bzip2 unattended-upgrades";
/// How the tree is made.
const BUILD: &str = include_str!("image.sh");
/// The programs of the outer machine, with the packages that have them.
const PROGRAMS: &[(&str, &str)] = &[
    ("systemd-nspawn", "systemd-container"),
    ("debootstrap", "debootstrap"),
    ("dpkg-scanpackages", "dpkg-dev"),
    ("apt-get", "apt"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
];

/// A tree to boot from. Nobody writes to it: hosts have overlays.
#[derive(Clone, Debug)]
pub struct Image {
    folder: PathBuf,
}

impl Image {
    /// The image of this recipe; built if it is not there, which takes one to three minutes.
    ///
    /// # Errors
    /// Why hosts cannot be booted on this machine.
    pub fn shared() -> Result<Image, Unbootable> {
        static SHARED: OnceLock<Result<Image, Unbootable>> = OnceLock::new();
        SHARED.get_or_init(Image::find).clone()
    }

    /// The tree.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Debian's packages and their index.
    pub fn packages(&self) -> PathBuf {
        self.folder.join("packages")
    }

    fn find() -> Result<Image, Unbootable> {
        if std::env::var_os("MUSTER_BOOTED").is_none() {
            return Err(Unbootable::NotAsked);
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Unbootable::NotRoot);
        }
        if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !is_installed(program)) {
            return Err(Unbootable::ProgramMissing { program, package });
        }
        probe().map_err(Unbootable::KernelRefuses)?;
        Image::build().map_err(Unbootable::ImageFailed)
    }

    fn build() -> Result<Image, String> {
        let (mirror, suite) = mirror()?;
        let recipe = Digest::of_parts([BUILD, BASE, PACKAGES, &suite].map(str::as_bytes));
        let folder = Path::new(CACHE).join(format!("image-{}", recipe.short()));
        let image = Image { folder: folder.clone() };
        // One of several test programs builds; the others wait for it.
        let lock = File::create(folder.with_extension("lock")).map_err(|error| error.to_string())?;
        lock.lock().map_err(|error| error.to_string())?;
        if folder.exists() {
            return Ok(image);
        }
        let begun = Instant::now();
        eprintln!("building the image of booted hosts in {}", folder.display());
        let unfinished = folder.with_extension("part");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished).map_err(|error| error.to_string())?;
        script(BUILD, &[&unfinished.display().to_string(), &mirror, &suite, BASE, PACKAGES])?;
        fs::rename(&unfinished, &folder).map_err(|error| error.to_string())?;
        ledger::write(&format!("image-{}", recipe.short()), &ledger::seconds(begun));
        Ok(image)
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// Tries overlays, namespaces and cgroups once, before anything depends on them. Where the cache lies
/// on an overlay itself, as in a container, the upper layers of hosts get a file system in memory.
fn probe() -> Result<(), String> {
    let runs = sweep::runs();
    let failed = |error: std::io::Error| format!("{}: {error}", runs.display());
    fs::create_dir_all(&runs).map_err(failed)?;
    // One of several test programs at a time: of two that mount, the second would hide the first's.
    let lock = File::create(runs.with_extension("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    try_in(&runs).or_else(|_| {
        succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "tmpfs"]).arg(&runs))?;
        try_in(&runs).inspect_err(|_| drop(succeed(Command::new("umount").arg(&runs))))
    })
}

fn try_in(runs: &Path) -> Result<(), String> {
    let name = format!("muster-probe-{}", std::process::id());
    let folder = runs.join(&name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let tried = script(include_str!("probe.sh"), &[&folder.display().to_string(), &name]);
    let _ = fs::remove_dir_all(&folder);
    tried.map(drop)
}

/// The mirror and the suite of this machine's own apt sources.
fn mirror() -> Result<(String, String), String> {
    let release =
        fs::read_to_string("/etc/os-release").map_err(|error| format!("/etc/os-release: {error}"))?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or("/etc/os-release names no VERSION_CODENAME")?.trim_matches('"').to_owned();
    let format = ["--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"];
    let listed = succeed(Command::new("apt-get").arg("indextargets").args(format))?;
    let wanted = format!(" {suite} main");
    let mirror = listed.lines().find_map(|line| line.strip_suffix(wanted.as_str()));
    Ok((mirror.ok_or(format!("apt has no source for {suite} main"))?.to_owned(), suite))
}
