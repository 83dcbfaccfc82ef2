//! `host`: an entry of the hosts file.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lang::Value;
use model::Fields;

use super::{Ensure, FILE_TIMEOUT_SECS, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short,
};

/// The hosts file of a machine.
pub const HOSTS: &str = "/etc/hosts";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "host",
    summary: "A name in `/etc/hosts`: its address and its aliases. Other lines, and comments, are kept.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::required("address", FieldKind::Line, "the IPv4 or IPv6 address"),
        Attribute::new(
            "aliases",
            FieldKind::List,
            "",
            "other names of the address; without it they are left",
        ),
        Attribute::new("path", FieldKind::Path, HOSTS, "another file of this form"),
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- host: db-1.example.com\n  address: 192.0.2.10\n  aliases: [db-1]\n",
    manages: Manages::State,
    removal: &["path", "aliases"],
    rules,
    bind,
};

/// `host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The name.
    pub name: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Its address; none for what is absent.
    pub address: Option<String>,
    /// Other names of the address, in order; `None` leaves them as they are.
    pub aliases: Option<Vec<String>>,
    /// The file.
    pub path: String,
}

impl StateSpec for HostSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::new();
        fields.extend(self.address.clone().map(|address| ("address".to_owned(), address)));
        fields.extend(self.aliases.as_ref().map(|aliases| ("aliases".to_owned(), aliases.join(" "))));
        fields
    }

    fn needs(&self) -> Vec<&str> {
        vec![&self.path]
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let Some(address) = attributes.get("address").and_then(Value::as_str) else { return Vec::new() };
    if address.contains("${{") || address.parse::<IpAddr>().is_ok() {
        return Vec::new();
    }
    let help = "write one such as 192.0.2.10 or 2001:db8::10";
    vec![AttributeProblem::value("address", format!("`{address}` is not an IP address"), help)]
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let (name, aliases) = (given.name(), given.list("aliases"));
    for name in std::iter::once(&name).chain(aliases.iter().flatten()) {
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#') {
            return Err(format!("`{name}` cannot be a name in a hosts file"));
        }
    }
    Ok(Spec::Host(HostSpec {
        name,
        ensure: given.ensure(),
        address: given.text("address"),
        aliases,
        path: given.text("path").unwrap_or_else(|| HOSTS.to_owned()),
    }))
}
