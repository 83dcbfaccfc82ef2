//! The table itself.

use super::{Attribute, FieldKind, ResourceType, Short};
use crate::module::OnRemove::{Delete, Keep, Restore};

const fn a(name: &'static str, kind: FieldKind, default: &'static str, summary: &'static str) -> Attribute {
    Attribute { name, kind, required: false, default, summary }
}

const fn must(name: &'static str, kind: FieldKind, summary: &'static str) -> Attribute {
    Attribute { name, kind, required: true, default: "", summary }
}

const STATE: Attribute =
    a("state", FieldKind::Word(&["present", "absent"]), "present", "`absent` removes it on purpose");
const MODE: Attribute =
    a("mode", FieldKind::Mode, "", "permission bits; without it they are left as they are");
const OWNER: Attribute = a("owner", FieldKind::Account, "", "owning user; without it, left as it is");
const GROUP: Attribute = a("group", FieldKind::Account, "", "owning group; without it, left as it is");
const COMMAND_TIMEOUT_SECS: u32 = 600;
const FILE_TIMEOUT_SECS: u32 = 60;

/// Every resource type of this version.
pub const TYPES: &[ResourceType] = &[
    ResourceType {
        name: "file",
        summary: "A regular file: its bytes, its mode, its owner.",
        short: Short::Path,
        attributes: &[
            STATE,
            a("content", FieldKind::Text, "", "the bytes, inline; `${{ }}` is evaluated"),
            a("source", FieldKind::Source, "", "the bytes, from a file of the module; never rendered"),
            a(
                "template",
                FieldKind::Template,
                "",
                "the bytes, from a template of the module; sees params, vars, traits, node",
            ),
            MODE,
            OWNER,
            GROUP,
            a(
                "validate",
                FieldKind::Command,
                "",
                "must succeed before the new bytes become visible; `%s` is the path of the temporary file",
            ),
            a(
                "backup",
                FieldKind::Bool,
                "false",
                "keep the previous bytes beside the file, as `NAME.muster-backup`",
            ),
        ],
        timeout_secs: FILE_TIMEOUT_SECS,
        on_remove: &[Keep, Delete, Restore],
        handler: false,
        guarded: false,
        example: "- file: /etc/motd\n  template: motd.j2\n  mode: \"0644\"\n  owner: root\n",
    },
    ResourceType {
        name: "directory",
        summary: "A directory: its mode and its owner. Parents are not made by themselves; declare them.",
        short: Short::Path,
        attributes: &[
            STATE,
            MODE,
            OWNER,
            GROUP,
            a("recurse", FieldKind::Bool, "false", "`state: absent` removes what is inside too"),
        ],
        timeout_secs: FILE_TIMEOUT_SECS,
        on_remove: &[Keep, Delete, Restore],
        handler: false,
        guarded: false,
        example: "- directory: /etc/nginx/conf.d\n  mode: \"0755\"\n",
    },
    ResourceType {
        name: "symlink",
        summary: "A symbolic link.",
        short: Short::Path,
        attributes: &[STATE, must("target", FieldKind::Text, "what the link points to; it need not exist")],
        timeout_secs: FILE_TIMEOUT_SECS,
        on_remove: &[Keep, Delete, Restore],
        handler: false,
        guarded: false,
        example: "- symlink: /etc/localtime\n  target: /usr/share/zoneinfo/Europe/Paris\n",
    },
    ResourceType {
        name: "line",
        summary: "One line in a text file; every other line is kept as it is.",
        short: Short::Attribute("line"),
        attributes: &[
            STATE,
            must("path", FieldKind::Path, "the file"),
            must("line", FieldKind::Line, "the line, without its newline"),
            a(
                "matching",
                FieldKind::Regex,
                "",
                "the last line that matches is replaced; with `state: absent` every such line goes",
            ),
            a(
                "after",
                FieldKind::Regex,
                "",
                "a new line goes after the last line that matches, else at the end",
            ),
            a(
                "create",
                FieldKind::Bool,
                "false",
                "make the file when it is missing; otherwise that is a failure",
            ),
            MODE,
            OWNER,
            GROUP,
        ],
        timeout_secs: FILE_TIMEOUT_SECS,
        on_remove: &[Keep],
        handler: false,
        guarded: false,
        example: "- line: PermitRootLogin no\n  path: /etc/ssh/sshd_config\n  matching: ^#?PermitRootLogin\n",
    },
    ResourceType {
        name: "exec",
        summary: "A program with its arguments; no shell is involved.",
        short: Short::Attribute("command"),
        attributes: &[
            must("command", FieldKind::Argv, "program and arguments"),
            CREATES,
            UNLESS,
            ONLYIF,
            ALWAYS,
            CWD,
            ENVIRONMENT,
            RETURNS,
            USER,
        ],
        timeout_secs: COMMAND_TIMEOUT_SECS,
        on_remove: &[Keep],
        handler: true,
        guarded: true,
        example: "- exec: [newaliases]\n  creates: /etc/aliases.db\n",
    },
    ResourceType {
        name: "shell",
        summary: "A text that `/bin/sh -c` runs.",
        short: Short::Attribute("command"),
        attributes: &[
            must("command", FieldKind::Shell, "the text"),
            CREATES,
            UNLESS,
            ONLYIF,
            ALWAYS,
            CWD,
            ENVIRONMENT,
            RETURNS,
            USER,
        ],
        timeout_secs: COMMAND_TIMEOUT_SECS,
        on_remove: &[Keep],
        handler: true,
        guarded: true,
        example: "- shell: getent passwd app > /var/lib/app/passwd\n  creates: /var/lib/app/passwd\n",
    },
    ResourceType {
        name: "custom",
        summary: "A script that reads `{name, state, params}` as JSON and answers `{changed, error}`.",
        short: Short::Name,
        attributes: &[
            must(
                "script",
                FieldKind::Script,
                "the script; one of the module is shipped and pinned by its hash",
            ),
            a(
                "sha256",
                FieldKind::Sha256,
                "",
                "the hash of a script on the host; needed with an absolute path",
            ),
            a("state", FieldKind::Text, "present", "handed to the script"),
            a("params", FieldKind::Values, "", "handed to the script"),
            a(
                "dry_run",
                FieldKind::Bool,
                "false",
                "the script understands `dryRun` and may be started by a plan",
            ),
        ],
        timeout_secs: COMMAND_TIMEOUT_SECS,
        on_remove: &[Keep],
        handler: true,
        guarded: false,
        example: "- custom: app-health\n  script: executors/health.sh\n  params: {url: \"http://localhost:8080/health\"}\n",
    },
];

const CREATES: Attribute = a("creates", FieldKind::Path, "", "do nothing when this path exists");
const UNLESS: Attribute = a("unless", FieldKind::Command, "", "do nothing when this succeeds");
const ONLYIF: Attribute = a("onlyif", FieldKind::Command, "", "do nothing unless this succeeds");
const ALWAYS: Attribute =
    a("always", FieldKind::Bool, "false", "run every time, and report a change every time");
const CWD: Attribute = a("cwd", FieldKind::Path, "/", "working directory");
const ENVIRONMENT: Attribute = a("environment", FieldKind::Texts, "", "added to the command's environment");
const RETURNS: Attribute = a("returns", FieldKind::Codes, "[0]", "exit codes that mean success");
const USER: Attribute = a("user", FieldKind::Account, "root", "user to run as");

/// Keys that every resource may have, with what they hold and do.
pub const COMMON: &[(&str, &str, &str)] = &[
    ("type", "name of a type", "the type, in the long form"),
    ("name", "text", "what the resource is; in the short form it follows from the value"),
    ("id", "name", "a short name for references (`id`, or `module/id` from another module)"),
    ("when", "expression", "skip the resource where it is false; `changed` is true when a notifier changed"),
    ("depends_on", "references", "these must have succeeded first"),
    ("before", "references", "this one comes before them"),
    ("notify", "references", "run these, resources or handlers, when this one changed"),
    ("subscribes", "references", "run this one when one of these changed"),
    ("observe", "bool", "only report what would change"),
    ("on_remove", "`keep`, `delete` or `restore`", "what happens when the resource leaves a node's set"),
    ("sensitive", "bool", "show neither content nor output in plans and reports"),
    ("ignore_failure", "bool", "a failure is reported, but skips no dependent and fails no run"),
    ("timeout", "duration", "kill the resource's commands after this long"),
    (
        "foreach",
        "list, map or expression for one",
        "one resource for each item; its other keys see `item` and `key` (of a list, the number from 0)",
    ),
    ("only_if", "argv list or shell text", "skip the resource unless this command succeeds"),
    ("not_if", "argv list or shell text", "skip the resource when this command succeeds"),
    ("retries", "whole number", "try again this often when it fails"),
    ("retry_delay", "duration", "the time between two tries"),
    ("tags", "names", "names by which a run can be limited to some resources"),
];

/// Types that the format knows and this version does not.
pub const LATER_TYPES: &[&str] = &[
    "package",
    "repository",
    "service",
    "user",
    "group",
    "ssh_key",
    "cron",
    "timer",
    "sysctl",
    "mount",
    "hostname",
    "host",
    "block",
    "ini",
    "json",
    "git",
    "archive",
    "download",
    "firewall",
    "container",
    "template",
];
