//! The traits that a node observes of itself: one table for `check`, the collectors and
//! the reference.

/// One observed trait: `traits.GROUP.NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trait {
    /// The part after the group.
    pub name: &'static str,
    /// `string`, `int`, `bool` or `list`.
    pub kind: &'static str,
    /// What it says, with its unit.
    pub summary: &'static str,
}

const fn t(name: &'static str, kind: &'static str, summary: &'static str) -> Trait {
    Trait { name, kind, summary }
}

/// A collector's traits, with the collector's name.
pub type Group = (&'static str, &'static [Trait]);

/// Every trait, by the collector that observes it. A collector that fails leaves its whole
/// group undefined; one that succeeds gives every trait of its group.
pub const TRAITS: &[Group] = &[
    (
        "os",
        &[
            t("family", "string", "`debian`, `redhat`, `suse`, `arch`, `alpine`, ... from os-release"),
            t("distro", "string", "the distribution's name"),
            t("version", "string", "the distribution's version, empty for a rolling one"),
            t("id", "string", "ID of os-release"),
            t("arch", "string", "the kernel's architecture"),
            t("kernel", "string", "the kernel's release"),
            t("codename", "string", "the distribution's code name, may be empty"),
        ],
    ),
    (
        "hardware",
        &[
            t("arch", "string", "the machine's architecture"),
            t("machine", "string", "what the kernel calls the machine"),
            t("vendor", "string", "who made it, may be empty"),
            t("model", "string", "its product name, may be empty"),
        ],
    ),
    (
        "cpu",
        &[
            t("count", "int", "logical processors"),
            t("model", "string", "the processor's name, may be empty"),
        ],
    ),
    ("memory", &[t("total_mb", "int", "main memory in MiB"), t("swap_mb", "int", "swap space in MiB")]),
    (
        "network",
        &[
            t("hostname", "string", "what the host calls itself"),
            t("fqdn", "string", "its full name as far as it knows"),
            t("addresses", "list", "its addresses, sorted, without loopback"),
            t("interfaces", "list", "its interfaces' names, sorted, without loopback"),
        ],
    ),
    (
        "uptime",
        &[
            t("seconds", "int", "seconds since boot"),
            t("boot_id", "string", "an id that is new at each boot"),
        ],
    ),
    ("time", &[t("timezone", "string", "the time zone's name")]),
    (
        "agent",
        &[
            t("version", "string", "the agent's version"),
            t("rooted", "bool", "it is confined to a host root"),
        ],
    ),
];

/// What of a dotted path below `traits` is not a trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No collector of this name.
    Group,
    /// The collector has no trait of this name.
    Name,
    /// The trait is no map: nothing lies below it.
    Below,
}

/// Looks the parts after `traits` up; a group alone is known.
///
/// # Errors
/// Which part is unknown.
pub fn lookup<S: AsRef<str>>(path: &[S]) -> Result<(), Unknown> {
    let Some(group) = path.first() else { return Ok(()) };
    let (_, members) = TRAITS.iter().find(|(name, _)| *name == group.as_ref()).ok_or(Unknown::Group)?;
    let Some(name) = path.get(1) else { return Ok(()) };
    let found = members.iter().find(|member| member.name == name.as_ref()).ok_or(Unknown::Name)?;
    // A list's element is reached by its number.
    let deeper = path.len() > 2 && !(found.kind == "list" && path.len() == 3);
    if deeper { Err(Unknown::Below) } else { Ok(()) }
}

/// The names of the groups.
pub fn groups() -> impl Iterator<Item = &'static str> {
    TRAITS.iter().map(|(name, _)| *name)
}

/// The names in one group; none for an unknown one.
pub fn members(group: &str) -> impl Iterator<Item = &'static str> {
    TRAITS.iter().filter(move |(name, _)| *name == group).flat_map(|(_, all)| all.iter().map(|t| t.name))
}

#[cfg(test)]
mod tests {
    use super::{Unknown, lookup};

    #[test]
    fn names_the_part_that_is_unknown() {
        assert_eq!(lookup(&["os", "family"]), Ok(()));
        assert_eq!(lookup::<&str>(&[]), Ok(()));
        assert_eq!(lookup(&["oss"]), Err(Unknown::Group));
        assert_eq!(lookup(&["os", "famly"]), Err(Unknown::Name));
        assert_eq!(lookup(&["os", "family", "x"]), Err(Unknown::Below));
        assert_eq!(lookup(&["network", "addresses", "0"]), Ok(()));
    }
}
