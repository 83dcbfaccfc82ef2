//! The machine that a benchmark ran on, as its kernel and its distribution tell it.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// What a figure depends on beside the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchMachine {
    /// As the kernel names the processor; absent where nobody wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Cores that the kernel has.
    pub cores: usize,
    /// Memory in GiB, rounded.
    pub memory_gib: u64,
    /// The kernel's version.
    pub kernel: String,
    /// As `/etc/os-release` names it.
    pub distribution: String,
}

impl BenchMachine {
    /// This machine.
    ///
    /// # Errors
    /// When a file of the kernel or the distribution cannot be read.
    pub fn this() -> Result<BenchMachine, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (cpus, memory, release) =
            (read("/proc/cpuinfo")?, read("/proc/meminfo")?, read("/etc/os-release")?);
        let kib =
            field(&memory, "MemTotal").and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(BenchMachine {
            cpu: field(&cpus, "model name").map(str::to_owned),
            cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: (kib.ok_or("/proc/meminfo has no MemTotal")? + (1 << 19)) >> 20,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            distribution: release
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned()),
        })
    }
}

/// The value of the first line `NAME : VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
}

impl fmt::Display for BenchMachine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BenchMachine { cores, memory_gib, kernel, distribution, .. } = self;
        write!(out, "{cores} cores")?;
        if let Some(cpu) = &self.cpu {
            write!(out, " of {cpu}")?;
        }
        write!(out, ", {memory_gib} GiB, {distribution}, kernel {kernel}")
    }
}
