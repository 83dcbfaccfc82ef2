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
/// What a header with a rollout section requires: an agent that begins with no wave before its time, and takes back what
/// does not prove itself.
pub const ROLLOUT_FEATURE: &str = "rollout";

/// Something that a release can use and that not every agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name in `requires`; never reused for another meaning.
    pub name: &'static str,
    /// Resource types whose use makes a release require it.
    pub resource_types: &'static [&'static str],
    /// Keys of any resource whose use makes a release require it.
    pub resource_keys: &'static [&'static str],
    /// Attributes of a type whose use makes a release require it.
    pub attributes: &'static [TypeAttribute],
    /// Functions in `when:` whose use makes a release require it.
    pub predicates: &'static [&'static str],
    /// Files of modules whose use makes a release require it.
    pub files: Option<FileUse>,
    /// Secrets make a release require it.
    pub secrets: bool,
    /// The rollout section of a header makes that header require it, and no other header of the release.
    pub rollout: bool,
}

/// An attribute of a resource type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeAttribute {
    /// The type's name.
    pub kind: &'static str,
    /// The attribute's name.
    pub name: &'static str,
}

/// What an older agent would not see of the files of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// That one is executable.
    Executable,
}

impl Feature {
    /// A feature that nothing uses, to be named and filled in.
    pub const NONE: Feature = Feature {
        name: "",
        resource_types: &[],
        resource_keys: &[],
        attributes: &[],
        predicates: &[],
        files: None,
        secrets: false,
        rollout: false,
    };
}

const FORCE: &[TypeAttribute] = &[
    TypeAttribute { kind: "file", name: "force" },
    TypeAttribute { kind: "directory", name: "force" },
    TypeAttribute { kind: "symlink", name: "force" },
];
const PART_VALIDATE: &[TypeAttribute] = &[
    TypeAttribute { kind: "line", name: "validate" },
    TypeAttribute { kind: "block", name: "validate" },
    TypeAttribute { kind: "ini", name: "validate" },
    TypeAttribute { kind: "json", name: "validate" },
];
const UPDATE_PASSWORD: &[TypeAttribute] = &[TypeAttribute { kind: "user", name: "update_password" }];
const STDIN: &[TypeAttribute] =
    &[TypeAttribute { kind: "exec", name: "stdin" }, TypeAttribute { kind: "shell", name: "stdin" }];

/// The features that this build has beyond what the first release of this format has. What
/// every agent has is not listed; nor are keys that an older agent may ignore without harm
/// (`retries`, `tags`).
pub const FEATURES: &[Feature] = &[
    Feature { name: "foreach", resource_keys: &["foreach"], ..Feature::NONE },
    // An older agent would fail each such resource at every run; refused, it stays on what it holds.
    Feature {
        name: "resource-types-2",
        resource_types: &[
            "block",
            "cron",
            "download",
            "group",
            "host",
            "hostname",
            "ini",
            "json",
            "mount",
            "package",
            "repository",
            "service",
            "ssh_key",
            "sudo",
            "sysctl",
            "timer",
            "user",
        ],
        ..Feature::NONE
    },
    Feature { name: "guards", resource_keys: &["only_if", "not_if"], ..Feature::NONE },
    Feature { name: "archive", resource_types: &["archive"], ..Feature::NONE },
    // An older agent would fail each of them, and confirm the release all the same.
    Feature { name: "generation-parts", resource_types: &["image", "switch"], ..Feature::NONE },
    Feature { name: "nixos", resource_types: &["nixos"], ..Feature::NONE },
    Feature { name: "force", attributes: FORCE, ..Feature::NONE },
    Feature { name: "part-validate", attributes: PART_VALIDATE, ..Feature::NONE },
    Feature { name: "update-password", attributes: UPDATE_PASSWORD, ..Feature::NONE },
    Feature { name: "stdin", attributes: STDIN, ..Feature::NONE },
    Feature { name: "executable-files", files: Some(FileUse::Executable), ..Feature::NONE },
    // An older agent would fail whatever is made of one.
    Feature { name: "secrets", secrets: true, ..Feature::NONE },
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
    // An older agent would take at once what is to begin in waves, and keep what fails.
    Feature { name: ROLLOUT_FEATURE, rollout: true, ..Feature::NONE },
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
