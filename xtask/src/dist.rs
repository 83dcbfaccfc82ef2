//! The binaries as they are shipped: the control plane and the operators' tool for speed, the
//! agent, which goes on every host, for size; and the Debian packages of both (OPS-6).
//!
//! ```text
//! cargo build ──▶ target/dist/muster, muster-agent ─┐
//! the crate manual ──▶ man pages, completion ───────┼─▶ package::build ──▶ *.deb
//! packaging/ ──▶ units, scripts, conffiles ─────────┘
//! ```

mod changelog;
pub mod needs;
pub mod package;
pub mod packages;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, run, run_with, test_programs};
use packages::Release;

/// The largest agent, in bytes: 10 MiB, with everything but the mesh.
pub const MAX_AGENT: u64 = 10 * 1024 * 1024;
/// What makes the agent's C code small: of Curve25519 and of large numbers the code that runs on
/// every processor alone, and no tables for unwinding. A handshake of the agent takes 0.2 ms of CPU
/// more by that (0.05 before); what encrypts and hashes stays as it is. ML-KEM, which
/// the agent does not offer, and ML-DSA have no assembler: the headers that choose it are taken as included.
const SMALL_C: (&str, &str) = (
    "AWS_LC_SYS_CFLAGS",
    "-DMY_ASSEMBLER_IS_TOO_OLD_FOR_ADX_AVX2 -DMLDSA_NATIVE_BACKEND_H -DMLKEM_NATIVE_BACKEND_H \
     -fno-asynchronous-unwind-tables -fno-unwind-tables",
);
/// What makes the Rust code and the linking small. With frame pointers a function's entry in the tables for
/// unwinding does not follow each push, which takes a third off them, and profilers see stacks; functions and
/// constants that are alike are there once, whose addresses Rust does not promise to differ; relocations are packed.
const SMALL_RUST: &str = "-C force-frame-pointers=yes \
     -C link-arg=-Wl,--icf=all,--ignore-data-address-equality,-z,pack-relative-relocs -C strip=symbols";
/// The Rust flags of the build of the agent. The linker that the compiler brings for this
/// target folds identical functions and packs relative relocations, which takes half a MiB off and asks for the
/// C library of Debian 12 (glibc 2.36); of symbols the profile alone leaves those of the program.
const RUST: &str = if cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
    SMALL_RUST
} else {
    "-C strip=symbols"
};

/// Which builds are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildProfile {
    /// As they are shipped.
    Shipped,
    /// The debug builds that tests use, without debug information.
    Debug,
}

/// What `cargo xtask dist` is asked for.
#[derive(Clone, Debug)]
pub struct DistOptions {
    /// Which builds.
    pub profile: BuildProfile,
    /// The packages' version; the workspace's when absent.
    pub version: Option<String>,
}

impl DistOptions {
    /// Reads the command's arguments: `--debug`, `--version VERSION`.
    ///
    /// # Errors
    /// When one is none of them.
    pub fn parse(args: &[String]) -> Result<DistOptions, String> {
        let mut options = DistOptions { profile: BuildProfile::Shipped, version: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--debug" => options.profile = BuildProfile::Debug,
                "--version" => {
                    options.version = Some(args.next().ok_or("--version needs a version")?.clone());
                }
                other => return Err(format!("dist takes --debug and --version VERSION, not {other}")),
            }
        }
        Ok(options)
    }
}

/// Where the builds of a profile lie side by side, as they expect each other, and their packages.
pub fn place(root: &Path, profile: BuildProfile) -> PathBuf {
    root.join(match profile {
        BuildProfile::Shipped => "target/dist",
        BuildProfile::Debug => "target/dist/debug",
    })
}

/// Builds them, puts them side by side, and makes their packages.
///
/// # Errors
/// When one cannot be built or copied, the agent is too large, or a package cannot be made.
pub fn make(root: &Path, options: &DistOptions) -> Outcome {
    let place = programs(root, options.profile)?;
    if !package::can_build() {
        println!("no packages: there is no dpkg-deb or readelf on this machine");
        return Ok(());
    }
    let manual = place.join("manual");
    clear(&manual)?;
    let written = manual.display().to_string();
    match options.profile {
        BuildProfile::Shipped => run("cargo", &["run", "--quiet", "--package", "manual", "--", &written])?,
        BuildProfile::Debug => run(&root.join("target/debug/manual").display().to_string(), &[&written])?,
    }
    let release = Release::of(root, options.profile, options.version.as_deref())?;
    for made in packages::make(root, &place, &manual, &release, &place)? {
        let size = fs::metadata(&made).map_err(failed(&made))?.len();
        println!("{}  {:.2} MiB", made.display(), size as f64 / 1048576.0);
    }
    Ok(())
}

/// Builds the programs and puts them side by side; says where.
///
/// # Errors
/// When one cannot be built or copied, or the agent is too large.
pub fn programs(root: &Path, profile: BuildProfile) -> Result<PathBuf, String> {
    let place = place(root, profile);
    fs::create_dir_all(&place).map_err(failed(&place))?;
    match profile {
        BuildProfile::Shipped => shipped(root, &place)?,
        BuildProfile::Debug => debug(root, &place)?,
    }
    Ok(place)
}

fn shipped(root: &Path, place: &Path) -> Outcome {
    run("cargo", &["build", "--release", "--package", "muster", "--bin", "muster"])?;
    build_agent(&["--bin", "muster-agent"])?;
    for (binary, profile) in [("muster", "release"), ("muster-agent", "agent")] {
        let (from, to) = (root.join("target").join(profile).join(binary), place.join(binary));
        clear(&to)?;
        let size = fs::copy(&from, &to).map_err(failed(&from))?;
        println!("{}  {:.2} MiB", to.display(), size as f64 / 1048576.0);
        if binary == "muster-agent" && size > MAX_AGENT {
            return Err(format!("the agent has {size} bytes, over {MAX_AGENT}"));
        }
    }
    Ok(())
}

/// The debug builds are ten times as large by what only debuggers read.
fn debug(root: &Path, place: &Path) -> Outcome {
    test_programs::build(root)?;
    for binary in ["muster", "muster-agent"] {
        let (from, to) = (root.join("target/debug").join(binary), place.join(binary));
        clear(&to)?;
        run("strip", &["--strip-unneeded", "-o", &to.display().to_string(), &from.display().to_string()])?;
    }
    Ok(())
}

/// Builds something of the agent's package as it is shipped.
///
/// # Errors
/// When it cannot be built.
pub fn build_agent(what: &[&str]) -> Outcome {
    let build = ["build", "--profile", "agent", "--package", "agent"];
    let rust = [RUST, &without_sources()].concat();
    run_with(&[SMALL_C, ("RUSTFLAGS", &rust)], "cargo", &[&build, what].concat())
}

/// Flags that leave out of the places that panics and logs name where this machine has the sources of dependencies: it
/// stands in the agent five hundred times, and says something of who built it.
fn without_sources() -> String {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    let mut registries: Vec<String> =
        sources.into_iter().flatten().flatten().map(|entry| entry.path().display().to_string()).collect();
    // Flags are parted by spaces.
    registries.retain(|path| !path.contains(' '));
    registries.sort();
    registries.iter().map(|path| format!(" --remap-path-prefix={path}=")).collect()
}

/// Removes a file or directory, if it is there. A program that runs cannot be written over; its
/// name can go.
fn clear(path: &Path) -> Outcome {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Names the path in an error.
pub(crate) fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + use<> {
    let path = path.display().to_string();
    move |error: std::io::Error| format!("{path}: {error}")
}
