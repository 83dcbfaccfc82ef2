//! Features: what a release may require of the program that takes it (ROL-4).
//!
//! An agent ignores fields and objects that it does not know. A change that an older agent must
//! not ignore (waves, a new resource type) therefore gets a feature: the publisher names it in the
//! header's `requires`, and a build whose [`FEATURES`] lack it refuses the release and goes on
//! converging on the one that it holds.

/// The most features that one header may require.
pub const MAX_REQUIRES: usize = 64;
/// The most missing features that a refusal names.
const MAX_NAMED: usize = 8;

/// Something that a release can use and that not every agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name in `requires`; never reused for another meaning.
    pub name: &'static str,
    /// Resource types whose use makes a release require it.
    pub resource_types: &'static [&'static str],
    /// Keys of any resource whose use makes a release require it.
    pub resource_keys: &'static [&'static str],
    /// Functions in `when:` whose use makes a release require it.
    pub predicates: &'static [&'static str],
}

impl Feature {
    /// A feature that nothing uses, to be named and filled in.
    pub const NONE: Feature = Feature { name: "", resource_types: &[], resource_keys: &[], predicates: &[] };
}

/// The features that this build has beyond what the first release of this format has. What
/// every agent has is not listed; nor are keys that an older agent may ignore without harm
/// (`retries`, `tags`).
pub const FEATURES: &[Feature] = &[
    Feature { name: "foreach", resource_keys: &["foreach"], ..Feature::NONE },
    Feature { name: "cron", resource_types: &["cron"], ..Feature::NONE },
    Feature { name: "units", resource_types: &["service", "timer"], ..Feature::NONE },
    Feature { name: "guards", resource_keys: &["only_if", "not_if"], ..Feature::NONE },
    Feature {
        name: "predicates",
        predicates: &[
            "command_succeeds",
            "day_of_week",
            "dir_exists",
            "hour_range",
            "in_window",
            "port_listening",
            "process_running",
        ],
        ..Feature::NONE
    },
];

/// The features in `requires` that `known` lacks, in the order given and as a text for people;
/// `None` when all are there.
pub fn missing(requires: &[String], known: &[Feature]) -> Option<String> {
    let has = |name: &str| known.iter().any(|feature| feature.name == name);
    let missing: Vec<&str> = requires.iter().map(String::as_str).filter(|name| !has(name)).collect();
    if missing.is_empty() {
        return None;
    }
    let named = missing[..missing.len().min(MAX_NAMED)].join(", ");
    let rest = missing.len().saturating_sub(MAX_NAMED);
    Some(if rest == 0 { named } else { format!("{named} and {rest} more") })
}
