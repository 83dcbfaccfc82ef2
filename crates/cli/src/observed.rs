//! The traits to bind with: recorded ones, a file's, or a sample.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lang::Value;
use serde::{Serialize, Serializer};
use serde_json::json;
use server::api;

use crate::failure::UserError;
use crate::operator::Operator;

/// What the names of files end with that hold a node's traits.
const EXTENSION: &str = ".json";
/// How long recorded traits are waited for before the sample serves.
const PATIENCE: Duration = Duration::from_secs(5);

/// Traits, and where they are from.
#[derive(Clone, Debug)]
pub struct Observed {
    /// A map of groups.
    pub traits: Value,
    /// Where they are from.
    pub source: TraitSource,
}

/// Where traits are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraitSource {
    /// The node of this name recorded them.
    Recorded(String),
    /// A file.
    File(PathBuf),
    /// The built-in sample.
    Sample,
}

impl fmt::Display for TraitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraitSource::Recorded(hostname) => write!(f, "what {hostname} recorded"),
            TraitSource::File(path) => path.display().fmt(f),
            TraitSource::Sample => f.write_str("the built-in sample (debian 12, 2 processors, 2048 MiB)"),
        }
    }
}

/// As people read it.
impl Serialize for TraitSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why traits cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TraitsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds no traits.
    #[error("{} does not hold traits as JSON", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

impl UserError for TraitsError {
    fn hint(&self) -> Option<String> {
        Some("traits are a map of groups: {\"os\": {\"family\": \"debian\"}, ...}".to_owned())
    }
}

/// Reads traits from a file: a map of groups, or what the control plane recorded.
///
/// # Errors
/// When the file cannot be read or holds something else.
pub fn of_file(path: &Path) -> Result<Observed, TraitsError> {
    let bytes = fs::read(path).map_err(|source| TraitsError::Read { path: path.to_owned(), source })?;
    let parsed = serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(&bytes);
    let groups = parsed.and_then(|mut map| {
        let recorded = map.contains_key("digest").then(|| map.remove("values")).flatten();
        serde_json::from_value(recorded.unwrap_or(json!(map)))
    });
    let traits = groups.map_err(|source| TraitsError::Parse { path: path.to_owned(), source })?;
    Ok(Observed { traits, source: TraitSource::File(path.to_owned()) })
}

/// Reads the traits of many nodes: every `HOSTNAME.json` of a directory, as [`of_file`] reads it.
///
/// # Errors
/// When the directory or one of the files cannot be read, or holds something else.
pub fn of_directory(path: &Path) -> Result<BTreeMap<String, Value>, TraitsError> {
    let unreadable = |source| TraitsError::Read { path: path.to_owned(), source };
    let mut traits = BTreeMap::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let hostname = file.file_name().and_then(|name| name.to_str()?.strip_suffix(EXTENSION));
        if let Some(hostname) = hostname.map(str::to_owned) {
            traits.insert(hostname, of_file(&file)?.traits);
        }
    }
    Ok(traits)
}

/// The file of a directory that holds a node's traits.
pub fn file_in(directory: &Path, hostname: &str) -> PathBuf {
    directory.join(format!("{hostname}{EXTENSION}"))
}

/// What the node itself recorded; `None` when it recorded nothing, or nobody answers.
pub async fn recorded(operator: &Operator, hostname: &str) -> Option<Observed> {
    let asked = tokio::time::timeout(PATIENCE, operator.call(&api::TRAITS, hostname)).await;
    let report = match asked {
        Ok(Ok(report)) => report?,
        Ok(Err(error)) => {
            tracing::debug!(%error, hostname, "no recorded traits");
            return None;
        }
        Err(_) => return None,
    };
    let traits = serde_json::from_value(report.values).ok()?;
    Some(Observed { traits, source: TraitSource::Recorded(hostname.to_owned()) })
}

/// A machine that does not exist, for binding where nothing is recorded. Holds every trait.
pub fn sample(hostname: &str) -> Observed {
    let values = json!({
        "os": {
            "family": "debian", "distro": "Debian GNU/Linux", "version": "12", "id": "debian",
            "arch": "x86_64", "kernel": "6.1.0", "codename": "bookworm",
        },
        "hardware": { "arch": "x86_64", "machine": "x86_64", "vendor": "Sample", "model": "Sample" },
        "cpu": { "count": 2, "model": "Sample" },
        "memory": { "total_mb": 2048, "swap_mb": 0 },
        "kernel": { "release": "6.1.0", "cmdline": "", "reboot_required": false, "reboot_packages": [], "newer": "" },
        "virtualization": { "kind": "none", "container": false },
        "cloud": { "provider": "", "instance": "" },
        "disks": { "names": ["sda"], "total_mb": 20480 },
        "mounts": { "points": ["/"], "remote": [], "nearly_full": [] },
        "listeners": { "tcp": [22], "udp": [] },
        "packages": { "manager": "apt", "count": 300, "held": [] },
        "services": { "manager": "systemd", "enabled": ["ssh.service"] },
        "users": { "count": 0, "names": [] },
        "certificates": { "count": 0, "first_end": "", "first_path": "" },
        "load": { "one": 0, "five": 0, "fifteen": 0 },
        "network": {
            "hostname": hostname, "fqdn": hostname, "addresses": ["192.0.2.10"], "interfaces": ["eth0"],
        },
        "uptime": { "seconds": 3600, "boot_id": "00000000-0000-0000-0000-000000000000" },
        "time": { "timezone": "UTC" },
        "agent": { "version": env!("CARGO_PKG_VERSION"), "rooted": false, "features": [] },
    });
    // Literals without null and floats are a value.
    let traits = serde_json::from_value(values).unwrap_or(Value::Map(BTreeMap::new()));
    Observed { traits, source: TraitSource::Sample }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sample_holds_every_trait() {
        let sample = super::sample("web-1");
        for member in catalog::traits::TRAITS.iter() {
            let path = format!("{}.{}", member.group, member.name);
            assert!(sample.traits.path(&path).is_some(), "{path}");
        }
    }
}
