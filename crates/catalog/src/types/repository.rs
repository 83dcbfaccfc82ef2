//! `repository`: a source of packages (apt), with its key.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::{Ensure, FileContent, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep};
use crate::params;
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
    literal,
};

/// Seconds that setting it may take where `timeout:` says nothing.
const TIMEOUT_SECS: u32 = 60;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "repository",
    summary: "A source of packages (apt): `/etc/apt/sources.list.d/NAME.sources`, its key in \
              `/etc/apt/keyrings`, its priority in `/etc/apt/preferences.d`. It comes before every `package`, \
              and the lists of packages are refreshed before the next one is installed.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::required("uris", FieldKind::List, "where it is, such as https://deb.example.com/debian"),
        Attribute::required("suites", FieldKind::List, "its suites, or a path that ends with `/`"),
        Attribute::new("components", FieldKind::List, "", "its components, such as `main`"),
        Attribute::new("types", FieldKind::List, "deb", "`deb`, `deb-src` or both"),
        Attribute::new("architectures", FieldKind::List, "", "without it, those of the host"),
        Attribute::new("key", FieldKind::Text, "", "the key that signs it, as armored text"),
        Attribute::new("source", FieldKind::Source, "", "the key as a file of the module, armored or binary"),
        Attribute::new("signed_by", FieldKind::Path, "", "a key that is on the host already"),
        Attribute::new("trusted", FieldKind::Bool, "false", "take packages that nobody signed"),
        Attribute::new("priority", FieldKind::Int(-32768, 32767), "", "the priority of all its packages"),
        Attribute::new(
            "pin",
            FieldKind::Line,
            "origin \"HOST\"",
            "which packages the priority is of, as in apt_preferences(5)",
        ),
        Attribute::new("enabled", FieldKind::Bool, "true", "false keeps it and takes nothing from it"),
    ],
    timeout_secs: TIMEOUT_SECS,
    on_remove: &[Keep, Delete],
    handler: false,
    guarded: false,
    example: "- repository: backports\n  uris: https://deb.example.com/debian\n  suites: bookworm-backports\n  \
              components: [main]\n  signed_by: /usr/share/keyrings/debian-archive-keyring.gpg\n  priority: 100\n  \
              enabled: false\n",
    manages: Manages::State,
    removal: &[],
    rules,
    bind,
};

/// `repository`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositorySpec {
    /// Its name, and that of its files.
    pub name: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// `deb`, `deb-src`.
    pub types: Vec<String>,
    /// Where it is.
    pub uris: Vec<String>,
    /// Its suites.
    pub suites: Vec<String>,
    /// Its components.
    pub components: Vec<String>,
    /// Architectures; none for those of the host.
    pub architectures: Vec<String>,
    /// Who signs it.
    pub signer: RepositorySigner,
    /// The priority of its packages.
    pub priority: Option<i64>,
    /// Which packages the priority is of; empty without one.
    pub pin: String,
    /// Packages are taken from it.
    pub enabled: bool,
}

/// The files of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryPaths {
    /// The source itself.
    pub sources: String,
    /// Its key, armored.
    pub armored_key: String,
    /// Its key, binary.
    pub binary_key: String,
    /// The priority of its packages.
    pub preferences: String,
    /// A source of the same name in the old form, which is not touched.
    pub one_line: String,
}

impl RepositoryPaths {
    /// The files of the repository of this name.
    pub fn of(name: &str) -> RepositoryPaths {
        RepositoryPaths {
            sources: format!("/etc/apt/sources.list.d/{name}.sources"),
            armored_key: format!("/etc/apt/keyrings/{name}.asc"),
            binary_key: format!("/etc/apt/keyrings/{name}.gpg"),
            preferences: format!("/etc/apt/preferences.d/{name}.pref"),
            one_line: format!("/etc/apt/sources.list.d/{name}.list"),
        }
    }
}

/// Who signs a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepositorySigner {
    /// The holder of this key.
    Key(FileContent),
    /// The holder of a key on the host.
    KeyFile(String),
    /// Nobody, and that is accepted.
    Nobody,
    /// The repository is declared absent, so nobody has to sign it.
    NotNeeded,
}

impl StateSpec for RepositorySpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::from([
            ("types".to_owned(), self.types.join(" ")),
            ("uris".to_owned(), self.uris.join(" ")),
            ("suites".to_owned(), self.suites.join(" ")),
            ("components".to_owned(), self.components.join(" ")),
            ("architectures".to_owned(), self.architectures.join(" ")),
            ("enabled".to_owned(), self.enabled.to_string()),
            ("trusted".to_owned(), (self.signer == RepositorySigner::Nobody).to_string()),
            ("priority".to_owned(), self.priority.map(|priority| priority.to_string()).unwrap_or_default()),
        ]);
        fields.insert("pin".to_owned(), self.pin.clone());
        let (key, signed_by) = match &self.signer {
            RepositorySigner::Key(content) => (key_field(content), String::new()),
            RepositorySigner::KeyFile(path) => (String::new(), path.clone()),
            RepositorySigner::Nobody | RepositorySigner::NotNeeded => Default::default(),
        };
        fields.extend([("key".to_owned(), key), ("signed_by".to_owned(), signed_by)]);
        fields
    }

    fn needs(&self) -> Vec<&str> {
        match &self.signer {
            RepositorySigner::KeyFile(path) => vec![path],
            RepositorySigner::Key(_) | RepositorySigner::Nobody | RepositorySigner::NotNeeded => Vec::new(),
        }
    }
}

/// The host of the first address, as apt calls an origin; empty for files.
fn host(uris: &[String]) -> &str {
    let rest = uris.first().and_then(|uri| uri.split_once("://")).map_or("", |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default()
}

/// How a key reads in a state: by its digest.
fn key_field(content: &FileContent) -> String {
    format!("sha256:{}", content.digest())
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let name = literal(attributes, "name").map(refuse_name).and_then(Result::err);
    let mut found: Vec<AttributeProblem> = name
        .map(|message| AttributeProblem::value("name", message, "write one such as `vendor`"))
        .into_iter()
        .collect();
    if !is_absent(attributes) {
        found.extend(signer_problem(attributes));
    }
    found
}

/// Exactly one attribute says who signs it.
fn signer_problem(attributes: &BTreeMap<String, Value>) -> Option<AttributeProblem> {
    let trusted = attributes.get("trusted").is_some_and(|value| params::bool(value) != Ok(false));
    let mut given: Vec<&str> =
        ["key", "source", "signed_by"].into_iter().filter(|name| attributes.contains_key(*name)).collect();
    given.extend(trusted.then_some("trusted"));
    match given.as_slice() {
        [_] => own_key_file(attributes),
        [] => Some(AttributeProblem::missing(
            None,
            "nothing says who signs the packages of this `repository`".to_owned(),
            "add `key:`, `source:` or `signed_by:`; `trusted: true` takes packages that nobody signed",
        )),
        [first, second, ..] => Some(AttributeProblem::conflict(
            second,
            format!("`{first}` and `{second}` both say who signs it"),
            "leave out one of them",
        )),
    }
}

/// The file where the repository keeps a key that it declares is nobody else's: it goes with the repository.
fn own_key_file(attributes: &BTreeMap<String, Value>) -> Option<AttributeProblem> {
    let (name, file) = (literal(attributes, "name")?, literal(attributes, "signed_by")?);
    let paths = RepositoryPaths::of(name);
    [paths.armored_key, paths.binary_key].contains(&file.to_owned()).then(|| {
        let message = format!("{file} is where the repository keeps a key that it declares itself");
        let help = "say `key:` or `source:`, or give the key's file another name";
        AttributeProblem::value("signed_by", message, help)
    })
}

/// apt passes by files whose names have other characters.
fn refuse_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        true => Err(format!("`{name}` cannot name a file of apt (letters, digits and _ - .)")),
        false => Ok(()),
    }
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let name = given.name();
    refuse_name(&name)?;
    let list = |name: &str| -> Result<Vec<String>, String> {
        let items = given.list(name).unwrap_or_default();
        match items.iter().find(|item| item.is_empty() || item.contains(char::is_whitespace)) {
            Some(item) => Err(format!("{name}: `{item}` is not one word")),
            None => Ok(items),
        }
    };
    let types = Some(list("types")?).filter(|types| !types.is_empty()).unwrap_or(vec!["deb".to_owned()]);
    if let Some(other) = types.iter().find(|kind| !matches!(kind.as_str(), "deb" | "deb-src")) {
        return Err(format!("types: `{other}` is neither deb nor deb-src"));
    }
    let (uris, suites, components) = (list("uris")?, list("suites")?, list("components")?);
    if let Some(uri) = uris.iter().find(|uri| !uri.contains(":/")) {
        return Err(format!("uris: `{uri}` is not an address such as https://deb.example.com/debian"));
    }
    let ensure = given.ensure();
    let flat = suites.iter().filter(|suite| suite.ends_with('/')).count();
    if ensure == Ensure::Present && (flat > 0) != components.is_empty() {
        return Err("components: a suite has some, and a path that ends with `/` has none".to_owned());
    }
    let key = match given.text("key") {
        Some(text) if !text.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----") => {
            return Err("key: it is no armored public key (-----BEGIN PGP PUBLIC KEY BLOCK-----)".to_owned());
        }
        Some(text) => Some(FileContent::text(text.trim_end().to_owned() + "\n")),
        None => given.content()?,
    };
    let signer = match (key, given.text("signed_by")) {
        _ if ensure == Ensure::Absent => RepositorySigner::NotNeeded,
        (Some(key), _) => RepositorySigner::Key(key),
        (None, Some(path)) => RepositorySigner::KeyFile(path),
        (None, None) => RepositorySigner::Nobody,
    };
    let priority = given.int("priority");
    let pin = match priority {
        None => String::new(),
        Some(_) => given.text("pin").unwrap_or_else(|| format!("origin \"{}\"", host(&uris))),
    };
    Ok(Spec::Repository(RepositorySpec {
        name,
        ensure,
        types,
        uris,
        suites,
        components,
        architectures: list("architectures")?,
        signer,
        priority,
        pin,
        enabled: given.flag("enabled").unwrap_or(true),
    }))
}
