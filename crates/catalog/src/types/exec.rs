//! `exec` and `shell`: commands.

use std::collections::BTreeMap;

use super::{COMMAND_TIMEOUT_SECS, Spec, no_rules};
use crate::module::CommandLine;
use crate::module::OnRemove::{Delete, Keep};
use crate::schema::{Attribute, FieldKind, Manages, ResourceAttributes, ResourceType, Short};

/// The declaration of `exec`.
pub(super) static EXEC: ResourceType = ResourceType {
    name: "exec",
    summary: "A program with its arguments; no shell is involved.",
    short: Short::Attribute("command"),
    attributes: &attributes(Attribute::always("command", FieldKind::Argv, "program and arguments")),
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete],
    handler: true,
    guarded: true,
    example: "- exec: [newaliases]\n  creates: /etc/aliases.db\n",
    manages: Manages::Effect,
    removal: &["command", "remove", "cwd", "environment", "returns", "user"],
    rules: no_rules,
    bind,
};

/// The declaration of `shell`.
pub(super) static SHELL: ResourceType = ResourceType {
    name: "shell",
    summary: "A text that `/bin/sh -c` runs.",
    attributes: &attributes(Attribute::always("command", FieldKind::Shell, "the text")),
    example: "- shell: getent passwd app > /var/lib/app/passwd\n  creates: /var/lib/app/passwd\n",
    ..EXEC
};

const fn attributes(command: Attribute) -> [Attribute; 11] {
    [
        command,
        Attribute::new("creates", FieldKind::Path, "", "do nothing when this path exists"),
        Attribute::new("unless", FieldKind::Command, "", "do nothing when this succeeds"),
        Attribute::new("onlyif", FieldKind::Command, "", "do nothing unless this succeeds"),
        Attribute::new("always", FieldKind::Bool, "false", "run every time, and report a change every time"),
        Attribute::new("cwd", FieldKind::Path, "/", "working directory"),
        Attribute::new("environment", FieldKind::Texts, "", "added to the command's environment"),
        Attribute::new("returns", FieldKind::Codes, "[0]", "exit codes that mean success"),
        Attribute::new(
            "stdin",
            FieldKind::Text,
            "",
            "what the command reads from its standard input; it is shown nowhere, and guards do not get it",
        )
        .secret()
        .takes_secret(),
        Attribute::new(
            "user",
            FieldKind::Account,
            "root",
            "user to run as, with its primary group and no other group",
        ),
        Attribute::new(
            "remove",
            FieldKind::Command,
            "",
            "what `on_remove: delete` runs when the resource leaves the node's set, if it ever ran",
        ),
    ]
}

/// `exec` and `shell`.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// What to run.
    pub command: CommandLine,
    /// Skip when this path exists.
    pub creates: Option<String>,
    /// Skip when this succeeds.
    pub unless: Option<CommandLine>,
    /// Skip unless this succeeds.
    pub onlyif: Option<CommandLine>,
    /// Run every time, and report a change every time.
    pub always: bool,
    /// Working directory; `/` by default.
    pub cwd: Option<String>,
    /// Extra environment.
    pub environment: BTreeMap<String, String>,
    /// Exit codes that mean success; 0 by default.
    pub returns: Vec<i32>,
    /// What the command reads from its standard input; shown nowhere.
    pub stdin: Option<String>,
    /// User to run as; root by default.
    pub user: Option<String>,
    /// What undoes it when the resource left the set.
    pub remove: Option<CommandLine>,
}

/// Without the text of `stdin`, which may hold secrets.
impl std::fmt::Debug for ExecSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ExecSpec {
            command,
            creates,
            unless,
            onlyif,
            always,
            cwd,
            environment,
            returns,
            stdin,
            user,
            remove,
        } = self;
        f.debug_struct("ExecSpec")
            .field("command", command)
            .field("creates", creates)
            .field("unless", unless)
            .field("onlyif", onlyif)
            .field("always", always)
            .field("cwd", cwd)
            .field("environment", environment)
            .field("returns", returns)
            .field("stdin", &stdin.as_ref().map(String::len))
            .field("user", user)
            .field("remove", remove)
            .finish()
    }
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Exec(ExecSpec {
        command: given.command("command").ok_or("command is missing")?,
        creates: given.text("creates"),
        unless: given.command("unless"),
        onlyif: given.command("onlyif"),
        always: given.bool("always"),
        cwd: given.text("cwd"),
        environment: given.texts("environment"),
        returns: given.codes("returns").unwrap_or_else(|| vec![0]),
        stdin: given.text("stdin"),
        user: given.text("user"),
        remove: given.command("remove"),
    }))
}
