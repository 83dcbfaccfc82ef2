//! The form in which modules and a node's params travel.

use std::collections::{BTreeMap, BTreeSet};

use lang::Value;
use model::Digest;
use model::window::DeclaredWindow;
use serde::{Deserialize, Serialize};

/// The most items that one `foreach` goes over.
pub const MAX_LOOP_ITEMS: usize = 10_000;
/// The most `retries` of a resource.
pub const MAX_RETRIES: u8 = 10;
/// Seconds between two tries where `retry_delay` says nothing.
pub const DEFAULT_RETRY_DELAY_SECS: u32 = 5;
/// The longest `retry_delay`, in seconds.
pub const MAX_RETRY_DELAY_SECS: u32 = 600;
/// The most tags of a resource.
pub const MAX_TAGS: usize = 32;

/// A module as a release carries it: source, shared by digest between all nodes that use it.
///
/// Content of an object of kind `Module`; its name is the module's.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The module's name, unique in the fleet.
    pub name: String,
    /// Modules that must have converged before this one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub depends_on: BTreeSet<String>,
    /// Expression; the module is skipped where it is false.
    pub when: Option<String>,
    /// Declared params, by name without the module's prefix.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ParamDecl>,
    /// Resources in declared order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<DeclaredResource>,
    /// Handlers: run once at the end of the module, only when notified.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<DeclaredResource>,
    /// Run after the writes and before the handlers; failure restores the files.
    pub verify: Option<CommandLine>,
    /// Only report what would change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observe: bool,
    /// Template bodies by name (below `templates/`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, String>,
    /// Files and executor scripts by path relative to the module (`files/x`, `executors/y.sh`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileRef>,
    /// Digests of every blob that this object needs; an authority for fetching them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub blobs: BTreeSet<Digest>,
}

/// What is read of a [`Module`] that is not to be bound: a module of thousands of resources takes megabytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModuleBlobs {
    /// As [`Module::blobs`].
    #[serde(default)]
    pub blobs: BTreeSet<Digest>,
}

/// A file of a module, held as a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
    /// It is executable where the fleet repo lies, and a directory tree copies it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub executable: bool,
}

/// A command: an argv list, or a text for `/bin/sh -c`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandLine {
    /// Program and arguments; no shell is involved.
    Argv(Vec<String>),
    /// A text that `/bin/sh -c` runs.
    Shell(String),
}

/// A resource as declared: attributes still hold `${{ }}` expressions.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredResource {
    /// The type's name, one of [`crate::types::TYPES`]: `file`, `service`, `exec`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its identity: the path of a file, the name of an exec.
    pub name: String,
    /// A short name to refer to it by; without one, `name` serves.
    pub id: Option<String>,
    /// Expression; the resource is skipped where it is false.
    pub when: Option<String>,
    /// References (`id`, `name`, `module/id`) that must have succeeded first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// References that must come later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Resources or handlers to run when this one changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
    /// Resources whose change notifies this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribes: Vec<String>,
    /// Only report what would change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observe: bool,
    /// What happens on a node when the resource leaves its set.
    pub on_remove: Option<OnRemove>,
    /// Hide from/to and output in plans and reports.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sensitive: bool,
    /// A failure is reported but neither skips dependents nor fails the run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_failure: bool,
    /// Seconds until the resource's commands are killed; a default per type.
    pub timeout: Option<u32>,
    /// A list or a map, or an expression for one: the resource stands once for each of its
    /// items, which its expressions see as `item` and `key`. At most [`MAX_LOOP_ITEMS`].
    pub foreach: Option<Value>,
    /// The resource is skipped unless this command succeeds.
    pub only_if: Option<CommandLine>,
    /// The resource is skipped when this command succeeds.
    pub not_if: Option<CommandLine>,
    /// How often it is tried again when it fails; at most [`MAX_RETRIES`].
    pub retries: Option<u8>,
    /// Seconds between two tries; [`DEFAULT_RETRY_DELAY_SECS`] unless said.
    pub retry_delay: Option<u32>,
    /// Names by which a run can be limited to some resources; sorted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// The type's own attributes: raw text, lists and maps as written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Value>,
}

impl DeclaredResource {
    /// What reports call it: `file:/etc/motd`.
    pub fn label(&self) -> String {
        format!("{}:{}", self.kind, self.name)
    }

    /// Whether it has the key (`foreach`, `only_if`, `not_if`) of a feature that an agent may lack.
    pub fn has_key(&self, key: &str) -> bool {
        match key {
            "foreach" => self.foreach.is_some(),
            "only_if" => self.only_if.is_some(),
            "not_if" => self.not_if.is_some(),
            _ => false,
        }
    }
}

/// What happens to a resource that leaves the node's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRemove {
    /// Leave it as it is and forget it.
    Keep,
    /// Delete it, if Muster made it or manages it whole.
    Delete,
    /// Put back what was there before Muster first changed it.
    Restore,
}

/// A param's declaration.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamDecl {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ParamType,
    /// The value where nothing sets it.
    pub default: Option<Value>,
    /// A node that sets no value is a mistake.
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// Smallest integer allowed.
    pub min: Option<i64>,
    /// Largest integer allowed.
    pub max: Option<i64>,
    /// The values allowed, for an enum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// How a value of a later layer meets one of an earlier layer.
    #[serde(default, skip_serializing_if = "Merge::is_replace")]
    pub merge: Merge,
}

/// The type of a param. A value is read from its raw text by this type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamType {
    /// Any text.
    #[default]
    String,
    /// A whole number.
    Int,
    /// 1 to 65535.
    Port,
    /// true/false, yes/no, on/off.
    Bool,
    /// An absolute path.
    Path,
    /// A version such as 1.10; kept as text, compared by `version()`.
    Version,
    /// A duration such as `5m`; kept as text.
    Duration,
    /// One of `values`.
    Enum,
    /// A list.
    List,
    /// A map.
    Map,
    /// A secret, set by its name.
    Secret,
}

/// How values of two layers meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// The later one wins whole.
    #[default]
    Replace,
    /// Maps merge key by key, recursively.
    Deep,
    /// Lists are joined.
    Append,
    /// Lists are joined; a value stays where it first stood.
    Unique,
}

impl Merge {
    fn is_replace(&self) -> bool {
        *self == Merge::Replace
    }
}

/// What a node entry adds to the modules: content of the object of kind `Params`.
///
/// Everything that needs no observed trait is already merged into `vars`; what a
/// conditional layer may change is bound on the node, the host file's vars last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// What is declared about the node.
    pub node: Declared,
    /// Module names in the order in which roles and entries named them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Vars by full name (`nginx.port`), merged up to `environment_overrides`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, Value>,
    /// Layers that depend on observed traits, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditional: Vec<ConditionalVars>,
    /// The host file's vars; they win over everything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_vars: BTreeMap<String, Value>,
    /// Only report what would change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observe: bool,
    /// The declared windows that expressions of the node's modules ask for, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<String, DeclaredWindow>,
}

/// Vars that hold where an expression over observed traits is true (CFG-9: they tune
/// values; they never choose roles or secrets).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionalVars {
    /// Expression over `traits`, `node` and `vars`.
    pub when: String,
    /// Vars by full name.
    pub vars: BTreeMap<String, Value>,
}

/// What the fleet repo declares about a node; `node` in expressions (with `hostname` added).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Its channel.
    pub channel: String,
    /// Its environment.
    pub environment: Option<String>,
    /// Who owns it.
    pub owner: Option<String>,
    /// Its roles in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The named groups that it is in, sorted: what selectors call `@group`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
    /// The fingerprint of its key, which alone may enroll under its name (CFG-8).
    pub key: Option<String>,
}

impl Declared {
    /// What selectors read of it: a map with `groups`, a list of names, and `labels`, a map of texts.
    pub fn facts(&self) -> Value {
        let texts = |(name, value): (&String, &String)| (name.clone(), Value::from(value.as_str()));
        let groups = self.groups.iter().map(|group| Value::from(group.as_str())).collect();
        Value::Map(BTreeMap::from([
            ("groups".to_owned(), Value::List(groups)),
            ("labels".to_owned(), Value::Map(self.labels.iter().map(texts).collect())),
        ]))
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}
