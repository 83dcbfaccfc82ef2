//! The binaries as they are shipped: the control plane and the operators' tool for speed, the
//! agent, which goes on every host, for size.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, run, run_with};

/// The largest agent, in bytes: 7.3 MiB.
pub const MAX_AGENT: u64 = 7_654_604;
/// What makes the agent's C code small: of Curve25519 and of large numbers the code that runs on
/// every processor alone, and no tables for unwinding. A handshake of the agent takes 0.2 ms of CPU
/// more by that (0.05 before); what encrypts and hashes stays as it is.
const SMALL_C: (&str, &str) = (
    "AWS_LC_SYS_CFLAGS",
    "-DMY_ASSEMBLER_IS_TOO_OLD_FOR_ADX_AVX2 -fno-asynchronous-unwind-tables -fno-unwind-tables",
);
/// What the build of the agent has in its environment. The linker that the compiler brings for this
/// target folds identical functions; of symbols the profile alone leaves those of the program.
const SMALL: &[(&str, &str)] = if cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
    &[SMALL_C, ("RUSTFLAGS", "-C link-arg=-Wl,--icf=all -C strip=symbols")]
} else {
    &[SMALL_C, ("RUSTFLAGS", "-C strip=symbols")]
};

/// Where they lie side by side, as they expect each other.
pub fn place(root: &Path) -> PathBuf {
    root.join("target/dist")
}

/// Builds them and puts them side by side.
///
/// # Errors
/// When one cannot be built or copied.
pub fn make(root: &Path) -> Outcome {
    let place = place(root);
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    fs::create_dir_all(&place).map_err(failed(&place))?;
    run("cargo", &["build", "--release", "--package", "muster", "--bin", "muster"])?;
    build_agent(&["--bin", "muster-agent"])?;
    for (binary, profile) in [("muster", "release"), ("muster-agent", "agent")] {
        let (from, to) = (root.join("target").join(profile).join(binary), place.join(binary));
        // One that runs cannot be written over; its name can go.
        match fs::remove_file(&to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&to)(error)),
            _ => {}
        }
        let size = fs::copy(&from, &to).map_err(failed(&from))?;
        println!("{}  {:.2} MiB", to.display(), size as f64 / 1048576.0);
        if binary == "muster-agent" && size > MAX_AGENT {
            return Err(format!("the agent has {size} bytes, over {MAX_AGENT}"));
        }
    }
    Ok(())
}

/// Builds something of the agent's package as it is shipped.
///
/// # Errors
/// When it cannot be built.
pub fn build_agent(what: &[&str]) -> Outcome {
    let build = ["build", "--profile", "agent", "--package", "agent"];
    run_with(SMALL, "cargo", &[&build, what].concat())
}
