//! `sysctl`: a kernel parameter, at once and at every boot.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::{Ensure, FILE_TIMEOUT_SECS, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
};

/// The file of parameters that say no other.
pub(super) const FILE: &str = "/etc/sysctl.d/60-muster.conf";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "sysctl",
    summary: "A kernel parameter: set at once, and a line of a file in `/etc/sysctl.d` for the next boot. A value \
              that the kernel refuses is not written. A file that is read later and says otherwise is a failure \
              that names it. With `on_remove: delete` the kernel gets back the value that it had; `state: absent` \
              leaves that to the next boot.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::required(
            "value",
            FieldKind::Line,
            "the value; words are compared, not the spaces between them",
        ),
        Attribute::new("runtime", FieldKind::Bool, "true", "set it at once; `false`: at the next boot alone"),
        Attribute::new("path", FieldKind::Path, FILE, "another file that the system reads at boot"),
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- sysctl: net.ipv4.conf.all.accept_redirects\n  value: 0\n",
    manages: Manages::State,
    removal: &["runtime", "path"],
    rules,
    bind,
};

/// `sysctl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysctlSpec {
    /// Its key as declared.
    pub key: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Its value, with one space between words; empty for what is absent.
    pub value: String,
    /// It is set at once.
    pub runtime: bool,
    /// The file.
    pub path: String,
}

/// The path of a key below `/proc/sys`. Where its first separator is a dot, a dot stands for `/` and a
/// `/` for a dot, as sysctl.d(5) has it: `net.ipv4.conf.eth0/1.forwarding`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn sysctl_path(key: &str) -> Result<String, &'static str> {
    let dotted = key.find(['.', '/']).is_none_or(|at| key.as_bytes()[at] == b'.');
    let swap = |c: char| match c {
        '.' if dotted => '/',
        '/' if dotted => '.',
        other => other,
    };
    let path: String = key.chars().map(swap).collect();
    if path.contains(['*', '?', '[']) {
        return Err("a pattern is not one parameter; name each");
    }
    let fits = |c: char| c.is_ascii_graphic() && !"=#;\"'".contains(c);
    if !path.chars().all(fits)
        || path.split('/').any(|part| matches!(part, "" | "." | ".."))
        || path.starts_with('-')
    {
        return Err("it is not the name of a kernel parameter");
    }
    if !path.contains('/') {
        return Err("a kernel parameter has a folder, as `vm` in vm.swappiness");
    }
    Ok(path)
}

/// A value with one space between its words.
pub fn sysctl_words(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl StateSpec for SysctlSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::from([
            ("value".to_owned(), self.value.clone()),
            ("overridden_by".to_owned(), String::new()),
        ]);
        if self.runtime {
            fields.insert("runtime".to_owned(), self.value.clone());
        }
        fields
    }

    fn needs(&self) -> Vec<&str> {
        vec![&self.path]
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    if let Some((name, why)) =
        literal(attributes, "name").and_then(|name| Some((name, sysctl_path(name).err()?)))
    {
        let help =
            "write one such as vm.swappiness, or net.ipv4.conf.eth0/1.forwarding for the interface eth0.1";
        found.push(AttributeProblem::value("name", format!("`{name}`: {why}"), help));
    }
    if literal(attributes, "value").is_some_and(|value| value.trim().is_empty()) {
        let message = "an empty value sets nothing".to_owned();
        found.push(AttributeProblem::value("value", message, "write the value, or `state: absent`"));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let key = given.name();
    sysctl_path(&key).map_err(|why| format!("`{key}`: {why}"))?;
    Ok(Spec::Sysctl(SysctlSpec {
        key,
        ensure: given.ensure(),
        value: sysctl_words(&given.text_or_empty("value")),
        runtime: given.flag("runtime").unwrap_or(true),
        path: given.text("path").unwrap_or_else(|| FILE.to_owned()),
    }))
}
