//! `ini`: a key of a section in an INI file.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::edited::{CREATE, VALIDATE};
use super::{EditedFile, Ensure, FILE_TIMEOUT_SECS, GROUP, MODE, OWNER, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "ini",
    summary: "A key in an INI file: `[section]`, `key = value`. Comments, order and every other byte are kept, \
              and the style of the file's separators. A key that stands more than once in its section is \
              left once, at its last place; `values` declares one that stands several times, as systemd's do.",
    short: Short::Attribute("path"),
    attributes: &[
        STATE,
        Attribute::always("path", FieldKind::Path, "the file"),
        Attribute::new(
            "section",
            FieldKind::Line,
            "",
            "the section, without brackets; without it the key stands before the first section",
        ),
        Attribute::new(
            "key",
            FieldKind::Line,
            "",
            "the key; without it `state: absent` removes the whole section",
        ),
        Attribute::new("value", FieldKind::Line, "", "the value, compared as text"),
        Attribute::new("values", FieldKind::List, "", "the values of a key that stands once for each"),
        Attribute::new("bare", FieldKind::Bool, "false", "the key stands alone, without `=`"),
        Attribute::new(
            "separator",
            FieldKind::Text,
            "",
            "what stands between a new key and its value; without it as in the rest of the file, else ` = `",
        ),
        CREATE,
        VALIDATE,
        MODE,
        OWNER,
        GROUP,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- ini: /etc/systemd/journald.conf\n  section: Journal\n  key: SystemMaxUse\n  value: 200M\n  \
              create: true\n",
    manages: Manages::State,
    removal: &["path", "section", "key", "separator", "mode", "owner", "group"],
    rules,
    bind,
};

/// `ini`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniSpec {
    /// Present or absent.
    pub ensure: Ensure,
    /// The file.
    pub file: EditedFile,
    /// The section; `None` is what stands before the first.
    pub section: Option<String>,
    /// The key; `None` is the whole section, which is to go.
    pub key: Option<String>,
    /// What the key holds.
    pub value: IniValue,
    /// What stands between a new key and its value.
    pub separator: Option<String>,
}

/// What a key of an INI file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IniValue {
    /// The key stands alone.
    Bare,
    /// The key stands once for each of these.
    Values(Vec<String>),
}

impl StateSpec for IniSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::new();
        match &self.value {
            IniValue::Bare => fields.insert("bare".to_owned(), "true".to_owned()),
            IniValue::Values(values) => fields.insert("value".to_owned(), values.join("\n")),
        };
        self.file.declare(&mut fields);
        fields
    }

    fn edited_file(&self) -> Option<&EditedFile> {
        Some(&self.file)
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let has = |name: &str| attributes.contains_key(name);
    let given: Vec<&str> = ["value", "values", "bare"].into_iter().filter(|name| has(name)).collect();
    let mut found = Vec::new();
    if let [first, second, ..] = given.as_slice() {
        let message = format!("`{first}` and `{second}` both say what the key holds");
        found.push(AttributeProblem::conflict(second, message, "keep one of value, values and bare"));
    }
    if is_absent(attributes) {
        if !has("key") && !has("section") {
            let help = "add `key:`, or `section:` to remove a whole section";
            let message = "`ini` needs `key` or `section`".to_owned();
            found.push(AttributeProblem::missing(None, message, help));
        }
        return found;
    }
    if !has("key") {
        let message = "`ini` needs `key`".to_owned();
        found.push(AttributeProblem::missing(None, message, "add `key:`"));
    }
    if given.is_empty() {
        let help = "add `value:`, `values:` for a key that stands several times, or `bare: true`";
        found.push(AttributeProblem::missing(None, "`ini` needs `value`".to_owned(), help));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let section = given.text("section").map(|section| section.trim().to_owned());
    if let Some(section) = section.as_deref().filter(|name| name.is_empty() || name.contains(']')) {
        return Err(format!("`{section}` cannot be a section's name"));
    }
    let key = given.text("key");
    let no_key = |key: &str| {
        key.is_empty()
            || key.trim() != key
            || key.starts_with(['[', '#', ';'])
            || key.contains('=')
            || key.contains(": ")
    };
    if let Some(key) = key.as_deref().filter(|key| no_key(key)) {
        return Err(format!("`{key}` cannot be a key of an INI file"));
    }
    let separator = given.text("separator");
    if let Some(separator) =
        separator.as_deref().filter(|text| !matches!(text.trim_matches([' ', '\t']), "=" | ":"))
    {
        return Err(format!("`{separator}` is no separator; write `=` or `:`, with blanks around it or not"));
    }
    let values = match (given.bool("bare"), given.text("value"), given.list("values")) {
        (true, _, _) => IniValue::Bare,
        (false, Some(value), _) => IniValue::Values(vec![value]),
        (false, None, values) => IniValue::Values(values.unwrap_or_default()),
    };
    if let IniValue::Values(values) = &values
        && (given.ensure() == Ensure::Present && values.is_empty() || values.iter().any(|v| v.trim() != v))
    {
        return Err("its value begins or ends with blanks, or there is none".to_owned());
    }
    Ok(Spec::Ini(IniSpec {
        ensure: given.ensure(),
        file: EditedFile::read(given),
        section,
        key,
        value: values,
        separator,
    }))
}
