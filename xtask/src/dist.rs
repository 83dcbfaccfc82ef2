//! The binaries as they are shipped: the control plane and the operators' tool for speed, the
//! agent, which goes on every host, for size.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, run};

/// What is shipped: the package, its binary, the profile that it is built with.
const SHIPPED: [(&str, &str, &str); 2] =
    [("muster", "muster", "release"), ("agent", "muster-agent", "agent")];

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
    for (package, binary, profile) in SHIPPED {
        run("cargo", &["build", "--profile", profile, "--package", package, "--bin", binary])?;
        let (from, to) = (root.join("target").join(profile).join(binary), place.join(binary));
        // One that runs cannot be written over; its name can go.
        match fs::remove_file(&to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&to)(error)),
            _ => {}
        }
        let size = fs::copy(&from, &to).map_err(failed(&from))?;
        println!("{}  {:.2} MiB", to.display(), size as f64 / 1048576.0);
    }
    Ok(())
}
