//! `package`: a package of the distribution (apt).

use std::collections::BTreeMap;
use std::time::Duration;

use lang::Value;
use model::Fields;

use super::{Ensure, Spec, StateSpec, Together};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::params;
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
};

/// Seconds that a transaction may take where `timeout:` says nothing.
const TRANSACTION_TIMEOUT_SECS: u32 = 3600;
/// How old the lists of packages may be before they are refreshed, by default.
pub const CACHE_VALID: Duration = Duration::from_secs(24 * 3600);
/// How long another user of the package manager is waited for, by default.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest name of a package.
const MAX_NAME: usize = 128;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "package",
    summary: "A package of the distribution (apt). Those that stand side by side are installed in one \
              transaction, which never removes a package that nobody declared absent.",
    short: Short::Name,
    attributes: &[
        Attribute::new(
            "state",
            FieldKind::Word(&["present", "absent", "latest"]),
            "present",
            "`latest` keeps it at the version that the repositories offer; `absent` removes it",
        ),
        Attribute::new(
            "version",
            FieldKind::Line,
            "",
            "the version, exact or with `*` (`1.22.*`); without it any version will do",
        ),
        Attribute::new(
            "allow_downgrade",
            FieldKind::Bool,
            "false",
            "`version` may be lower than what is there",
        ),
        Attribute::new(
            "hold",
            FieldKind::Bool,
            "",
            "whether other upgrades pass it by; without it, left as it is",
        ),
        Attribute::new("purge", FieldKind::Bool, "false", "its configuration goes when it is removed"),
        Attribute::new(
            "default_release",
            FieldKind::Line,
            "",
            "the release that versions are taken from first",
        ),
        Attribute::new(
            "install_recommends",
            FieldKind::Bool,
            "",
            "whether what it recommends is installed with it; without it, as apt is configured",
        ),
        Attribute::new(
            "responses",
            FieldKind::List,
            "",
            "answers to its questions (debconf), each as `QUESTION TYPE VALUE`; they are shown nowhere",
        )
        .secret(),
        Attribute::new(
            "start_services",
            FieldKind::Bool,
            "true",
            "false: no service is started or restarted by the transaction",
        ),
        Attribute::new(
            "conffiles",
            FieldKind::Word(&["keep", "replace"]),
            "keep",
            "what an upgrade does with configuration files that were changed by hand",
        ),
        Attribute::new("deb", FieldKind::Path, "", "a `.deb` file on the host to install it from"),
        Attribute::new(
            "allow_removals",
            FieldKind::Bool,
            "false",
            "the transaction may remove packages that are in its way",
        ),
        Attribute::new("cache_valid", FieldKind::Duration, "24h", "refresh lists of packages that are older"),
        Attribute::new(
            "lock_timeout",
            FieldKind::Duration,
            "2m",
            "how long another user of the package manager is waited for",
        ),
    ],
    timeout_secs: TRANSACTION_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- package: bsdextrautils\n  install_recommends: false\n",
    manages: Manages::State,
    removal: &["purge", "allow_removals", "lock_timeout", "hold"],
    rules,
    bind,
};

/// `package`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageSpec {
    /// Its name; `NAME:ARCH` for one of another architecture.
    pub name: String,
    /// What of it is wanted.
    pub wanted: WantedPackage,
    /// Whether it is to be held; `None` leaves it as it is.
    pub hold: Option<bool>,
    /// A `.deb` file on the host.
    pub deb: Option<String>,
    /// Answers to its questions, as `QUESTION TYPE VALUE`.
    pub responses: Vec<String>,
    /// Lists of packages that are older are refreshed.
    pub cache_valid: Duration,
    /// How the transaction that it is part of works.
    pub options: TransactionOptions,
}

/// What of a package is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedPackage {
    /// Any version.
    Any,
    /// This version, exact or with `*`.
    Version {
        /// The pattern.
        pattern: String,
        /// It may be lower than what is there.
        downgrade: bool,
    },
    /// The version that the repositories offer.
    Latest,
    /// Nothing.
    Absent,
}

/// What holds for a whole transaction. Packages with the same options share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionOptions {
    /// The release that versions are taken from first.
    pub default_release: Option<String>,
    /// Whether recommended packages are installed; `None` is apt's own configuration.
    pub install_recommends: Option<bool>,
    /// Services may be started.
    pub start_services: bool,
    /// Configuration files that were changed by hand are replaced.
    pub replace_conffiles: bool,
    /// Packages that are in the way may be removed.
    pub allow_removals: bool,
    /// The configuration of what is removed goes too.
    pub purge: bool,
    /// How long another user of the package manager is waited for.
    pub lock_timeout: Duration,
}

impl StateSpec for PackageSpec {
    fn ensure(&self) -> Ensure {
        if self.wanted == WantedPackage::Absent { Ensure::Absent } else { Ensure::Present }
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::from([("status".to_owned(), "installed".to_owned())]);
        if let WantedPackage::Version { pattern, .. } = &self.wanted {
            fields.insert("version".to_owned(), pattern.clone());
        }
        fields.extend(self.hold.map(|hold| ("hold".to_owned(), hold.to_string())));
        fields
    }

    fn needs(&self) -> Vec<&str> {
        self.deb.as_deref().into_iter().collect()
    }

    fn after_types(&self) -> &'static [&'static str] {
        &["repository"]
    }

    fn together(&self) -> Option<Together> {
        Some(Together::Packages)
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let given = |name: &str| attributes.contains_key(name);
    let state = attributes.get("state").and_then(Value::as_str).unwrap_or("present");
    let mut problems = Vec::new();
    if let Some(Err(message)) = literal(attributes, "name").map(refuse_name) {
        problems.push(AttributeProblem::value(
            "name",
            message,
            "write the name as `apt-cache show` takes it",
        ));
    }
    if let Some(Err(message)) = literal(attributes, "version").map(refuse_version) {
        let help = "write it as `apt-cache policy` shows it, `*` for any text";
        problems.push(AttributeProblem::value("version", message, help));
    }
    if given("version") && matches!(state, "latest" | "absent") {
        let message = format!("`version` has no meaning with `state: {state}`");
        problems.push(AttributeProblem::conflict("version", message, "leave out one of them"));
    }
    if given("deb") && state == "latest" {
        let message = "a file has one version, and `state: latest` asks the repositories".to_owned();
        problems.push(AttributeProblem::conflict("deb", message, "leave out `state`, or `deb`"));
    }
    let downgrade = attributes.get("allow_downgrade").is_some_and(|value| params::bool(value) == Ok(true));
    if downgrade && !given("version") {
        let message = "`allow_downgrade` needs the `version` to go down to".to_owned();
        problems.push(AttributeProblem::missing(Some("allow_downgrade"), message, "add `version:`"));
    }
    problems
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let name = given.name();
    refuse_name(&name)?;
    let version = given.text("version");
    if let Some(version) = &version {
        refuse_version(version).map_err(|why| format!("version: {why}"))?;
    }
    let seconds = |name: &str, default: Duration| {
        given.int(name).and_then(|secs| u64::try_from(secs).ok()).map_or(default, Duration::from_secs)
    };
    let responses = given.list("responses").unwrap_or_default();
    if responses.iter().any(|response| response.split_whitespace().count() < 2) {
        // The answer may be a secret, so it is not repeated.
        return Err(
            "responses: each is `QUESTION TYPE VALUE`, such as `postfix/mailname string example.com`".into(),
        );
    }
    let default_release = given.text("default_release");
    if default_release
        .as_ref()
        .is_some_and(|release| release.is_empty() || release.contains(char::is_whitespace))
    {
        return Err("default_release: a release is one word, such as bookworm-backports".into());
    }
    let wanted = match (given.text("state").as_deref(), version) {
        (Some("absent"), _) => WantedPackage::Absent,
        (Some("latest"), _) => WantedPackage::Latest,
        (_, Some(pattern)) => WantedPackage::Version { pattern, downgrade: given.bool("allow_downgrade") },
        _ => WantedPackage::Any,
    };
    Ok(Spec::Package(PackageSpec {
        name,
        wanted,
        hold: given.flag("hold"),
        deb: given.text("deb"),
        responses,
        cache_valid: seconds("cache_valid", CACHE_VALID),
        options: TransactionOptions {
            default_release,
            install_recommends: given.flag("install_recommends"),
            start_services: given.flag("start_services").unwrap_or(true),
            replace_conffiles: given.text("conffiles").as_deref() == Some("replace"),
            allow_removals: given.bool("allow_removals"),
            purge: given.bool("purge"),
            lock_timeout: seconds("lock_timeout", LOCK_TIMEOUT),
        },
    }))
}

/// A package's name as Debian policy has it, with an architecture or without.
fn refuse_name(name: &str) -> Result<(), String> {
    let (package, arch) = name.split_once(':').unwrap_or((name, "any"));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = package.len() >= 2
        && name.len() <= MAX_NAME
        && package.starts_with(plain)
        && package.chars().all(|c| plain(c) || "+-.".contains(c))
        && !arch.is_empty()
        && arch.chars().all(|c| plain(c) || c == '-');
    // apt reads a sign at the end as what to do with the package.
    if fits && (!package.ends_with(['+', '-']) || package.ends_with("++")) {
        return Ok(());
    }
    if name.contains('=') {
        return Err(format!("`{name}` is not a package's name; write the version as `version:`"));
    }
    Err(format!("`{name}` is not a package's name (lower-case letters, digits and + - .)"))
}

fn refuse_version(version: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+-:~*".contains(c);
    if !version.is_empty() && version.chars().all(fits) {
        return Ok(());
    }
    Err(format!("`{version}` is not a version such as 1.22.1-9 or 1.22.*"))
}
