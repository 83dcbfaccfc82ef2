//! `hostname`: the name of the host.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::{Ensure, FILE_TIMEOUT_SECS, Spec, StateSpec};
use crate::module::OnRemove::{Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
};

/// The longest name that the kernel holds, in bytes.
const MAX_NAME: usize = 64;
/// The longest part between two dots, in bytes.
const MAX_LABEL: usize = 63;

/// The file with the name that the host gets at boot.
pub const HOSTNAME: &str = "/etc/hostname";
/// What the host's name for people is kept in, among others.
pub const MACHINE_INFO: &str = "/etc/machine-info";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "hostname",
    summary: "The host's name: `/etc/hostname`, and the kernel at once. A name with a dot is allowed, as \
              `hostnamectl` allows it; the short one with a `host` entry for the full one is more usual. \
              `/etc/hosts` is not touched: declare a `host` with the address 127.0.1.1.",
    short: Short::Name,
    attributes: &[Attribute::new(
        "pretty",
        FieldKind::Line,
        "",
        "a name for people, with spaces and capitals; an empty one removes it",
    )],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Restore],
    handler: false,
    guarded: false,
    example: "- hostname: web-1\n  pretty: Web server 1\n",
    manages: Manages::State,
    removal: &[],
    rules,
    bind,
};

/// `hostname`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostnameSpec {
    /// The name.
    pub name: String,
    /// The name for people.
    pub pretty: Option<String>,
}

impl StateSpec for HostnameSpec {
    fn ensure(&self) -> Ensure {
        Ensure::Present
    }

    fn declared(&self) -> Fields {
        let mut fields =
            Fields::from(["hostname", "in_kernel"].map(|field| (field.to_owned(), self.name.clone())));
        fields.extend(self.pretty.clone().map(|pretty| ("pretty".to_owned(), pretty)));
        fields
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let name = literal(attributes, "name").and_then(|name| Some((name, hostname_problem(name)?)));
    let problem = |(name, why)| {
        let help = "letters, digits and -, at most 64, in parts between dots of at most 63; such as web-1";
        AttributeProblem::value("name", format!("`{name}` cannot be a host's name: {why}"), help)
    };
    name.map(problem).into_iter().collect()
}

/// What is wrong with a host's name; the rules are those of `hostnamectl`.
fn hostname_problem(name: &str) -> Option<&'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME {
        return Some("it is empty or too long");
    }
    if name == "localhost" || name.ends_with(".localhost") || name.starts_with("localhost.") {
        return Some("localhost stands for every host");
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > MAX_LABEL {
            return Some("a part between its dots is empty or too long");
        }
        if !label.chars().all(fits) {
            return Some("it holds something else than letters, digits, - and dots");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some("a part of it begins or ends with -");
        }
    }
    None
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Hostname(HostnameSpec { name: given.name(), pretty: given.text("pretty") }))
}
