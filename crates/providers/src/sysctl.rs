//! `sysctl` on a host: the kernel first, then the file that it is read from at boot.

use std::time::Duration;

use catalog::types::{SysctlSpec, sysctl_path, sysctl_words};
use converge::JobFailure;
use converge::kinds::sysctl::{self, FOLDERS};
use model::{Edit, Fields};

use crate::Kinds;
use crate::kinds::{fault, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider};

/// The most files of a folder that are looked at.
const MAX_FILES: usize = 1000;
/// The largest of them, in bytes, that is read; and the longest value of a parameter.
const MAX_FILE: u64 = 1024 * 1024;

/// Where the parameter is in the kernel.
fn kernel_path(spec: &SysctlSpec) -> Result<String, String> {
    sysctl_path(&spec.key).map(|path| format!("/proc/sys/{path}")).map_err(str::to_owned)
}

/// What the kernel has; `None` when it has no such parameter.
fn in_kernel(spec: &SysctlSpec, kinds: &Kinds) -> Result<Option<String>, String> {
    let bytes = kinds.host.read(&kernel_path(spec)?, MAX_FILE).map_err(text)?;
    Ok(bytes.map(|bytes| sysctl_words(&String::from_utf8_lossy(&bytes))))
}

/// The files that are read after the resource's own, with their texts.
fn later_files(spec: &SysctlSpec, kinds: &Kinds) -> Result<Vec<(String, String)>, String> {
    let mut names = Vec::new();
    for folder in FOLDERS {
        names.push(kinds.host.names(folder, MAX_FILES).map_err(text)?.unwrap_or_default());
    }
    let mut files = Vec::new();
    for path in sysctl::read_later(spec, &names) {
        // One that is a link to nothing, or cannot be read here, sets nothing.
        if let Ok(Some(bytes)) = kinds.host.read_followed(&path, MAX_FILE) {
            files.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(files)
}

/// Sets it in the kernel and reads it back; what the kernel did not take is put back.
fn set_in_kernel(spec: &SysctlSpec, kinds: &Kinds, value: &str) -> Result<(), String> {
    let path = kernel_path(spec)?;
    let before = in_kernel(spec, kinds)?;
    kinds.host.set_kernel_parameter(&path, value).map_err(text)?;
    let after = in_kernel(spec, kinds)?;
    if after.as_deref() == Some(value) {
        return Ok(());
    }
    if let Some(before) = before {
        kinds.host.set_kernel_parameter(&path, &before).map_err(text)?;
    }
    Err(format!("the kernel made {} of {value}; its value before was put back", after.unwrap_or_default()))
}

impl StateProvider for SysctlSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let file = kinds.text_file(&self.path)?.unwrap_or_default();
        let value = sysctl::value_in(self, &file);
        let overridden = sysctl::overridden(self, value.as_deref(), &later_files(self, kinds)?);
        let mut fields = Fields::from([
            ("value".to_owned(), value.unwrap_or_default()),
            ("overridden_by".to_owned(), overridden),
        ]);
        if self.runtime {
            fields.extend(in_kernel(self, kinds)?.map(|value| ("runtime".to_owned(), value)));
        }
        Ok(Some(fields))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        Ok(Some(sysctl::desired(self)))
    }

    fn refuse(&self, kinds: &Kinds, edit: &Edit<Fields>) -> Result<(), String> {
        let sets = edit.to().is_some_and(|to| to.contains_key("runtime"));
        if sets && in_kernel(self, kinds)?.is_none() {
            return Err(format!(
                "the kernel has no parameter `{}` ({} is not there); load the module that has it before, or \
                 say `runtime: false`",
                self.key,
                kernel_path(self)?
            ));
        }
        Ok(())
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, .. } = change;
        let of = |fields: Option<&Fields>, name: &str| fields.and_then(|fields| fields.get(name).cloned());
        let runtime = of(to, "runtime").filter(|value| of(now, "runtime").as_ref() != Some(value));
        let value = if to.is_none() { Some(String::new()) } else { of(to, "value") };
        // A line that goes is gone even where the kernel does not take its value back.
        let goes = value.as_ref().is_some_and(String::is_empty);
        if let Some(value) = runtime.as_ref().filter(|_| !goes) {
            set_in_kernel(self, kinds, value)?;
        }
        let old = kinds.text_file(&self.path)?;
        let file = old.as_deref().unwrap_or_default();
        let new = value.map(|value| sysctl::edit(self, file, Some(&value))).filter(|new| *new != file);
        if let Some(new) = new {
            let written = match (new.is_empty(), old.is_some()) {
                (true, true) => kinds.host.remove_file(&self.path).map(drop).map_err(fault),
                (true, false) => Ok(()),
                (false, _) => kinds.write_text(&self.path, &new),
            };
            if let (Err(_), false, Some(_), Some(before)) = (&written, goes, &runtime, of(now, "runtime")) {
                // What the next boot would not have is not kept for now either.
                set_in_kernel(self, kinds, &before)?;
            }
            written?;
        }
        if let Some(value) = runtime.filter(|_| goes) {
            set_in_kernel(self, kinds, &value)?;
        }
        Ok(None)
    }

    /// The kernel gets back the value that it had, as far as it takes it: some only go one way until the
    /// next boot, which no removal can change.
    fn remove(
        &self,
        kinds: &Kinds,
        now: Option<&Fields>,
        before: Option<&Fields>,
        timeout: Duration,
    ) -> Result<(), JobFailure> {
        self.set(kinds, StateChange { now, to: None, timeout })?;
        if let Some(value) = sysctl::taken_back(now, before)
            && let Err(why) = set_in_kernel(self, kinds, value)
        {
            tracing::warn!(key = self.key, why, "the kernel keeps the parameter's value until the next boot");
        }
        Ok(())
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    fn works_below_root(&self) -> bool {
        !self.runtime
    }
}
