//! `sudo`: a rule in a file of its own below `/etc/sudoers.d`.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::{Ensure, FILE_TIMEOUT_SECS, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
    literal, literals,
};

/// Where rules are.
pub(super) const FOLDER: &str = "/etc/sudoers.d";
/// The attributes that make a rule.
const STRUCTURED: [&str; 6] = ["users", "groups", "hosts", "runas", "commands", "nopasswd"];

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "sudo",
    summary: "A file in `/etc/sudoers.d`, of root and mode 0440. `visudo` checks the new bytes before they have \
              their name: a rule with a mistake fails and is never visible.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::new("users", FieldKind::List, "", "users that the rule is for; `ALL` is everybody"),
        Attribute::new("groups", FieldKind::List, "", "groups that the rule is for, without `%`"),
        Attribute::new("hosts", FieldKind::List, "[ALL]", "hosts on which it holds"),
        Attribute::new(
            "runas",
            FieldKind::Line,
            "ALL:ALL",
            "as whom the commands may run, `USERS` or `USERS:GROUPS`",
        ),
        Attribute::new(
            "commands",
            FieldKind::List,
            "",
            "absolute paths with or without arguments, or `ALL`; commas, colons and `=` in arguments are escaped",
        ),
        Attribute::new("nopasswd", FieldKind::Bool, "false", "no password is asked for"),
        Attribute::new("content", FieldKind::Text, "", "the whole file, in the words of sudoers(5)"),
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- sudo: deployers\n  groups: [adm]\n  commands: [/usr/bin/systemctl restart nginx]\n  nopasswd: true\n",
    manages: Manages::State,
    removal: &[],
    rules,
    bind,
};

/// `sudo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SudoSpec {
    /// The file's name below `/etc/sudoers.d`.
    pub name: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// The file's bytes; none for what is absent.
    pub content: Option<String>,
    /// Its path.
    pub path: String,
}

impl StateSpec for SudoSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::new();
        fields.extend(self.content.clone().map(|content| ("content".to_owned(), content)));
        fields.extend(
            [("mode", "0440"), ("owner", "0:0")].map(|(name, text)| (name.to_owned(), text.to_owned())),
        );
        fields
    }

    fn needs(&self) -> Vec<&str> {
        vec![FOLDER, "/usr/sbin/visudo"]
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    if let Some(name) = literal(attributes, "name").filter(|name| !is_file_name(name)) {
        let message = format!("sudo does not read a file called `{name}`");
        found.push(AttributeProblem::value(
            "name",
            message,
            "letters, digits, _ and -, without a dot or a ~",
        ));
    }
    if is_absent(attributes) {
        return found;
    }
    let structured = STRUCTURED.into_iter().find(|name| attributes.contains_key(*name));
    match (attributes.contains_key("content"), structured) {
        (true, Some(other)) => {
            let message = format!("`content` and `{other}` both say what the rule is");
            found.push(AttributeProblem::conflict(other, message, "keep one of them"));
        }
        (true, None) => {}
        (false, _) => found.extend(missing(attributes)),
    }
    for (name, sign) in [("users", "#+"), ("groups", "#"), ("hosts", "+/:*")] {
        if let Some(item) = literals(attributes, name).find(|item| !is_word(item, sign)) {
            let message = format!("`{item}` cannot stand in a rule by itself");
            found.push(AttributeProblem::value(name, message, "write one name; `content` takes anything"));
        }
    }
    if let Some(runas) = literal(attributes, "runas")
        .filter(|runas| !runas.split([':', ',']).all(|it| it.is_empty() || is_word(it.trim(), "#%")))
    {
        let message = format!("`{runas}` does not say as whom the commands run");
        found.push(AttributeProblem::value(
            "runas",
            message,
            "write one such as ALL, postgres or postgres:ALL",
        ));
    }
    for command in literals(attributes, "commands").filter(|command| !is_command(command)) {
        let message = format!("`{command}` is not a command that sudo can allow");
        let help = "write an absolute path, with its arguments if they are fixed, or ALL";
        found.push(AttributeProblem::value("commands", message, help));
    }
    found
}

fn missing(attributes: &BTreeMap<String, Value>) -> Option<AttributeProblem> {
    let (whom, what) = (["users", "groups"], "commands");
    let lacking = match whom.iter().any(|name| attributes.contains_key(*name)) {
        false => "users` or `groups",
        true if !attributes.contains_key(what) => what,
        true => return None,
    };
    let help = "add whom it is for and `commands:`, or write the rule as `content:`";
    Some(AttributeProblem::missing(None, format!("`sudo` needs `{lacking}`"), help))
}

/// Whether sudo reads a file of this name.
fn is_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

fn is_word(text: &str, signs: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.$!@".contains(c) || signs.contains(c);
    !text.is_empty() && text.chars().all(fits)
}

fn is_command(text: &str) -> bool {
    let allowed = text.trim_start_matches('!');
    let alias = allowed.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let path = allowed.strip_prefix("sudoedit ").unwrap_or(allowed).trim_start();
    !allowed.is_empty() && (alias || path.starts_with('/')) && !text.ends_with('\\')
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let name = given.name();
    let ensure = given.ensure();
    let content = given.text("content").map(|text| match text.is_empty() || text.ends_with('\n') {
        true => text,
        false => text + "\n",
    });
    let content = content.or_else(|| (ensure == Ensure::Present).then(|| rule(given)));
    Ok(Spec::Sudo(SudoSpec { path: format!("{FOLDER}/{name}"), name, ensure, content }))
}

fn rule(given: &ResourceAttributes<'_>) -> String {
    let groups = given.list("groups").unwrap_or_default().into_iter().map(|group| format!("%{group}"));
    let whom: Vec<String> = given.list("users").unwrap_or_default().into_iter().chain(groups).collect();
    let hosts = given.list("hosts").unwrap_or_else(|| vec!["ALL".to_owned()]).join(", ");
    let runas = given.text("runas").unwrap_or_else(|| "ALL:ALL".to_owned());
    let tag = if given.bool("nopasswd") { "NOPASSWD: " } else { "" };
    let commands: Vec<String> =
        given.list("commands").unwrap_or_default().iter().map(|it| escaped(it)).collect();
    format!("{} {hosts} = ({runas}) {tag}{}\n", whom.join(", "), commands.join(", "))
}

/// A command with a backslash before what would end it.
fn escaped(command: &str) -> String {
    let mut out = String::with_capacity(command.len() + 4);
    let mut before = ' ';
    for c in command.chars() {
        if matches!(c, ',' | ':' | '=' | '#') && before != '\\' {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{escaped, is_command};

    #[test]
    fn what_would_end_a_command_or_its_arguments_is_escaped() {
        assert_eq!(escaped("/usr/bin/tool #5 a=b,c"), "/usr/bin/tool \\#5 a\\=b\\,c");
        assert_eq!(escaped("/usr/bin/tool \\#5"), "/usr/bin/tool \\#5");
        assert!(is_command("/usr/bin/tool #5"));
        assert!(!is_command("/usr/bin/tool \\"));
    }
}
