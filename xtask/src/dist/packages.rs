//! What is in each package: `muster` (control plane and operators' tool) and `muster-agent`.
//! Sources are in `packaging/`; docs/install.md has what they do on a host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::changelog::{self, Heading};
use super::package::{DebianPackage, EXECUTABLE, PackageFile, Squeeze, architecture};
use super::{BuildProfile, failed, needs};

const MAINTAINER: &str = "Muster developers <developers@muster.invalid>";
/// Its helpers enable units, and remember on an upgrade what an administrator disabled.
const PRE_DEPENDS: &str = "init-system-helpers (>= 1.54~)";

/// Which version is packaged, from which builds, as of when.
#[derive(Clone, Debug)]
pub struct Release {
    /// The packages' version.
    pub version: String,
    /// Which builds.
    pub profile: BuildProfile,
    /// The commit's time, in seconds: every file's time.
    pub epoch: u64,
    /// The same, as changelogs write it.
    pub date: String,
}

impl Release {
    /// The workspace's version, or the one named, at its newest commit.
    ///
    /// # Errors
    /// When the version cannot be one or git does not answer.
    pub fn of(root: &Path, profile: BuildProfile, version: Option<&str>) -> Result<Release, String> {
        let version = version.unwrap_or(env!("CARGO_PKG_VERSION"));
        let fits = |c: char| c.is_ascii_alphanumeric() || ".+~-".contains(c);
        if !version.starts_with(|c: char| c.is_ascii_digit()) || !version.chars().all(fits) {
            return Err(format!("{version:?} cannot be a package's version"));
        }
        let (epoch, date) = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => (epoch.clone(), date_of(&epoch)?),
            Err(_) => (git(root, "%ct")?, git(root, "%cD")?),
        };
        let epoch = epoch.parse().map_err(|_| format!("{epoch:?} is no time"))?;
        Ok(Release { version: version.to_owned(), profile, epoch, date })
    }
}

fn git(root: &Path, format: &str) -> Result<String, String> {
    let format = format!("--format={format}");
    stdout(Command::new("git").args(["log", "-1", &format]).current_dir(root), "git log")
}

fn date_of(epoch: &str) -> Result<String, String> {
    let at = format!("--date=@{epoch}");
    stdout(Command::new("date").args(["--utc", "--rfc-email", &at]).env("LC_ALL", "C"), "date")
}

fn stdout(command: &mut Command, name: &str) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// What differs between the packages.
struct PackageSpec {
    name: &'static str,
    /// The first line of the description.
    synopsis: &'static str,
    /// The rest of it, a line each.
    description: &'static [&'static str],
    /// What it needs besides the libraries that its program is linked to.
    depends: &'static [&'static str],
    suggests: &'static str,
    /// A file of `packaging/NAME/`, and where it goes.
    installed: &'static [(&'static str, &'static str)],
}

const MUSTER: PackageSpec = PackageSpec {
    name: "muster",
    synopsis: "control plane and operators' tool for fleets of machines that nobody can reach",
    description: &[
        "Muster looks after fleets of machines behind NAT, in racks of customers and",
        "at the edge. An agent on each machine dials out, learns what its host should",
        "be from a signed set of objects, and keeps it so.",
        "",
        "This package has the command line tool of operators and the control plane,",
        "which the installation neither enables nor starts.",
    ],
    depends: &["systemd | systemd-standalone-sysusers | systemd-sysusers"],
    suggests: "muster-agent",
    installed: &[
        ("muster.service", "usr/lib/systemd/system/muster.service"),
        ("sysusers.conf", "usr/lib/sysusers.d/muster.conf"),
        ("tmpfiles.conf", "usr/lib/tmpfiles.d/muster.conf"),
        ("default", "etc/default/muster"),
    ],
};

const AGENT: PackageSpec = PackageSpec {
    name: "muster-agent",
    synopsis: "keeps a host as its Muster fleet declares",
    description: &[
        "The agent of Muster runs on every host of a fleet. It dials the control",
        "plane, takes only what an operator signed, makes the host so, keeps it so",
        "through outages, and reports what happened.",
        "",
        "The service starts by itself once the host has joined: muster-agent join.",
    ],
    depends: &[],
    suggests: "muster",
    installed: &[
        ("muster-agent.service", "usr/lib/systemd/system/muster-agent.service"),
        ("muster-agent.path", "usr/lib/systemd/system/muster-agent.path"),
        ("tmpfiles.conf", "usr/lib/tmpfiles.d/muster-agent.conf"),
        ("default", "etc/default/muster-agent"),
    ],
};

/// Builds both packages: the programs are in `binaries`, their man pages and completion below
/// `manual/PROGRAM`, as the crate `manual` writes them. Says where the packages are.
///
/// # Errors
/// When a file is missing or a package cannot be built.
pub fn make(
    root: &Path,
    binaries: &Path,
    manual: &Path,
    release: &Release,
    to: &Path,
) -> Result<Vec<PathBuf>, String> {
    let squeeze = match release.profile {
        BuildProfile::Shipped => Squeeze::Small,
        BuildProfile::Debug => Squeeze::Fast,
    };
    let build = |spec: &PackageSpec| {
        put_together(root, binaries, manual, release, spec)?.build(to, release.epoch, squeeze)
    };
    [MUSTER, AGENT].iter().map(build).collect()
}

/// The agent's package, before it is built; the arguments are those of [`make`].
///
/// # Errors
/// When a file is missing.
pub fn agent(
    root: &Path,
    binaries: &Path,
    manual: &Path,
    release: &Release,
) -> Result<DebianPackage, String> {
    put_together(root, binaries, manual, release, &AGENT)
}

fn put_together(
    root: &Path,
    binaries: &Path,
    manual: &Path,
    release: &Release,
    spec: &PackageSpec,
) -> Result<DebianPackage, String> {
    let name = spec.name;
    let read = |path: &Path| fs::read(path).map_err(failed(path));
    let program = binaries.join(name);
    let sources = root.join("packaging").join(name);
    let mut files =
        vec![PackageFile { path: format!("usr/bin/{name}"), bytes: read(&program)?, mode: EXECUTABLE }];
    for (source, path) in spec.installed {
        files.push(PackageFile::plain(*path, read(&sources.join(source))?));
    }
    let pages = manual.join(name);
    for path in all_files(&pages)? {
        let bytes = read(&path)?;
        let path = path.strip_prefix(&pages).unwrap_or(&path).display().to_string();
        files.push(match path.starts_with("usr/share/man/") {
            true => PackageFile::compressed(&path, &bytes)?,
            false => PackageFile::plain(path, bytes),
        });
    }
    let doc = format!("usr/share/doc/{name}");
    files.push(PackageFile::plain(format!("{doc}/copyright"), read(&root.join("packaging/copyright"))?));
    let changelog = root.join("CHANGELOG.md");
    let changelog = fs::read_to_string(&changelog).map_err(failed(&changelog))?;
    let heading =
        Heading { package: name, version: &release.version, maintainer: MAINTAINER, date: &release.date };
    let changelog = changelog::debian(&changelog, &heading);
    files.push(PackageFile::compressed(&format!("{doc}/changelog"), changelog.as_bytes())?);
    let mut scripts = Vec::new();
    for script in ["postinst", "prerm", "postrm"] {
        scripts.push((script, read(&sources.join(script))?));
    }
    let fields = fields(release, spec, &program)?;
    Ok(DebianPackage { name: name.to_owned(), version: release.version.clone(), fields, files, scripts })
}

fn fields(
    release: &Release,
    spec: &PackageSpec,
    program: &Path,
) -> Result<Vec<(&'static str, String)>, String> {
    let mut depends = needs::of(program)?;
    depends.extend(spec.depends.iter().map(|package| (*package).to_owned()));
    let built: &[&str] = match release.profile {
        BuildProfile::Shipped => &[],
        BuildProfile::Debug => {
            &["", "Built for tests, with the profile dev: slow, large, not to be shipped."]
        }
    };
    let mut description = spec.synopsis.to_owned();
    for line in spec.description.iter().chain(built) {
        description.push_str("\n ");
        description.push_str(if line.is_empty() { "." } else { line });
    }
    Ok(vec![
        ("Package", spec.name.to_owned()),
        ("Version", release.version.clone()),
        ("Architecture", architecture().to_owned()),
        ("Maintainer", MAINTAINER.to_owned()),
        ("Pre-Depends", PRE_DEPENDS.to_owned()),
        ("Depends", depends.join(", ")),
        ("Suggests", spec.suggests.to_owned()),
        ("Section", "admin".to_owned()),
        ("Priority", "optional".to_owned()),
        ("Description", description),
    ])
}

/// Every file below a directory, in order.
fn all_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let path = entry.map_err(failed(dir))?.path();
        if path.is_dir() {
            found.extend(all_files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
