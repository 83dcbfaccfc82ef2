//! `user`: an account of the host's own files.

use std::collections::BTreeMap;
use std::fmt;

use lang::Value;
use model::collect::CollectInserting;
use model::sort::SortCompactly;
use model::{Digest, Fields, Timestamp};

use super::account::{account_name_problem, group_names_problem};
use super::{COMMAND_TIMEOUT_SECS, Ensure, ResourceSubject, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
    literals,
};

/// How `expires` says that an account does not expire.
const NEVER: &str = "never";
/// The most days that the shadow file is given.
const MAX_DAYS: i64 = 99_999;
/// Seconds of a day.
const DAY_SECS: i64 = 24 * 3600;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "user",
    summary: "An account in `/etc/passwd` and `/etc/shadow`, kept by the tools of the shadow suite. What is \
              not declared of it stays as it is. Accounts of the system (a uid below 1000, `nobody`) are \
              removed only with `system: true`, and root never.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::new(
            "uid",
            FieldKind::Int(0, 4_294_967_294),
            "",
            "its number; refused when another user has it",
        ),
        Attribute::new(
            "group",
            FieldKind::Account,
            "",
            "its primary group; a new user without it gets one of its own name",
        ),
        Attribute::new("groups", FieldKind::List, "", "names of the other groups that it is in"),
        Attribute::new(
            "append",
            FieldKind::Bool,
            "true",
            "`groups` are added to those that it is in; `false`: it leaves all others",
        ),
        Attribute::new(
            "home",
            FieldKind::Path,
            "",
            "its home directory; a new user without it gets /home/NAME",
        ),
        Attribute::new(
            "create_home",
            FieldKind::Bool,
            "true",
            "a new user's home is made, from /etc/skel; with `system: true` it is `false` by default",
        ),
        Attribute::new(
            "move_home",
            FieldKind::Bool,
            "false",
            "where `home` changes, what is in the old one is moved; without it only the entry changes",
        ),
        Attribute::new("shell", FieldKind::Path, "", "its login shell"),
        Attribute::new("comment", FieldKind::Line, "", "its full name, or what it is for"),
        Attribute::new(
            "password",
            FieldKind::Line,
            "",
            "a crypt hash, as `mkpasswd` makes it, or `*` for none; shown as a digest only",
        )
        .secret(),
        Attribute::new(
            "update_password",
            FieldKind::Word(&["always", "on_create"]),
            "always",
            "`on_create`: `password` is for a new user, and one that is there keeps its own",
        ),
        Attribute::new(
            "locked",
            FieldKind::Bool,
            "",
            "its password is locked; keys still log in, which `expires` ends too",
        ),
        Attribute::new(
            "expires",
            FieldKind::Line,
            "",
            "the day from which it cannot log in, such as 2027-01-31, or `never`",
        ),
        Attribute::new(
            "password_min_days",
            FieldKind::Int(0, MAX_DAYS),
            "",
            "days for which a new password cannot be changed again",
        ),
        Attribute::new(
            "password_max_days",
            FieldKind::Int(0, MAX_DAYS),
            "",
            "days after which a password must be changed",
        ),
        Attribute::new(
            "password_warn_days",
            FieldKind::Int(0, MAX_DAYS),
            "",
            "days before that on which the user is warned",
        ),
        Attribute::new(
            "system",
            FieldKind::Bool,
            "false",
            "a new user gets a uid of the system's range; and such a one may be removed",
        ),
        Attribute::new(
            "remove_home",
            FieldKind::Bool,
            "false",
            "its home and its mail go with it, if the home is its own",
        ),
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- user: deploy\n  comment: Deployments\n  groups: [adm]\n  shell: /bin/bash\n  password: \"*\"\n  password_max_days: 365\n",
    manages: Manages::State,
    removal: &["system", "remove_home"],
    rules,
    bind,
};

/// `user`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSpec {
    /// Its name.
    pub name: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Its number.
    pub uid: Option<u32>,
    /// Name or number of its primary group.
    pub group: Option<String>,
    /// Names of its other groups, sorted, each once.
    pub groups: Option<Vec<String>>,
    /// It leaves the groups that are not in `groups`.
    pub exclusive: bool,
    /// Its home directory.
    pub home: Option<String>,
    /// A new user's home is made.
    pub create_home: bool,
    /// What is in its home moves with it.
    pub move_home: bool,
    /// Its login shell.
    pub shell: Option<String>,
    /// Its full name.
    pub comment: Option<String>,
    /// Its password.
    pub password: Option<PasswordHash>,
    /// A user that is there keeps its password.
    pub password_on_create: bool,
    /// Its password is locked.
    pub locked: Option<bool>,
    /// The first day, as a date, on which it cannot log in; `never`.
    pub expires: Option<String>,
    /// Ages of its password in days: least, most, and warned before.
    pub password_days: PasswordDays,
    /// It is an account of the system.
    pub system: bool,
    /// Its home goes with it.
    pub remove_home: bool,
}

/// Ages of a password, in days; what is absent is left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PasswordDays {
    /// It cannot be changed again for so long.
    pub min: Option<i64>,
    /// It must be changed after so long.
    pub max: Option<i64>,
    /// The user is warned for so long before.
    pub warn: Option<i64>,
}

/// A crypt hash without the mark of a locked one. Its texts for people name it by digest.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl PasswordHash {
    /// What a shadow file holds, with any mark of a locked password taken off.
    pub fn of_shadow(text: &str) -> PasswordHash {
        PasswordHash(text.trim_start_matches('!').to_owned())
    }

    /// There is no password that could be locked.
    pub fn is_none(&self) -> bool {
        matches!(self.0.as_str(), "" | "*")
    }

    /// The secret itself, for the shadow file alone.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// How it is compared and shown: `none`, or a digest.
    pub fn shown(&self) -> String {
        if self.is_none() {
            "none".to_owned()
        } else {
            format!("sha256:{}", Digest::of(self.0.as_bytes()).short())
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// Days from 1970-01-01 to a date such as `2027-01-31`; `None` when it is none.
pub fn days_of_date(date: &str) -> Option<i64> {
    let day: Timestamp = format!("{date}T00:00:00Z").parse().ok().filter(|_| date.len() == 10)?;
    Some(day.secs() / DAY_SECS)
}

/// The date so many days from 1970-01-01.
pub fn date_of_days(days: i64) -> String {
    let instant = Timestamp::from_secs(days.saturating_mul(DAY_SECS)).to_string();
    instant.split('T').next().unwrap_or_default().to_owned()
}

impl StateSpec for UserSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let days = self.password_days;
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let texts = [
            ("uid", self.uid.map(|uid| uid.to_string())),
            ("group", self.group.clone()),
            ("groups", self.groups.as_ref().map(|groups| groups.join(" "))),
            ("home", self.home.clone()),
            ("shell", self.shell.clone()),
            ("comment", self.comment.clone()),
            ("password", self.password.as_ref().map(PasswordHash::shown)),
            ("locked", self.locked.map(|locked| locked.to_string())),
            ("expires", self.expires.clone()),
            ("password_min_days", number(days.min)),
            ("password_max_days", number(days.max)),
            ("password_warn_days", number(days.warn)),
        ];
        texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect_inserting()
    }

    fn after(&self) -> Vec<ResourceSubject<'_>> {
        let groups = self.group.iter().chain(self.groups.iter().flatten());
        groups.map(|name| ResourceSubject::Named { kind: "group", name }).collect()
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    found.extend(literal(attributes, "name").and_then(|name| account_name_problem("name", name)));
    found.extend(group_names_problem("groups", literals(attributes, "groups")));
    for name in ["comment", "home", "shell"] {
        if literal(attributes, name).is_some_and(|text| text.contains(':')) {
            let message = "a colon cannot stand in the passwd file".to_owned();
            found.push(AttributeProblem::value(name, message, "leave it out"));
        }
    }
    if let Some(password) = literal(attributes, "password").filter(|password| !is_crypt_hash(password)) {
        // Nothing of it is quoted: it may be somebody's password.
        let message = match password.is_empty() {
            true => "password: an empty one would let everybody in",
            false => "password: it is not a crypt hash",
        };
        let help = "write what `mkpasswd -m yescrypt` prints, or \"*\" for no password";
        found.push(AttributeProblem::secret_value(message.to_owned(), help));
    }
    if let Some(date) =
        literal(attributes, "expires").filter(|date| *date != NEVER && days_of_date(date).is_none())
    {
        let message = format!("`{date}` is not a date");
        found.push(AttributeProblem::value("expires", message, "write one such as 2027-01-31, or never"));
    }
    if attributes.contains_key("append") && !attributes.contains_key("groups") {
        let message = "`append` says what becomes of groups that `groups` does not name".to_owned();
        found.push(AttributeProblem::conflict("append", message, "add `groups`, or drop it"));
    }
    found
}

/// `*`, `!`, or a modular crypt hash, which may be marked as locked.
fn is_crypt_hash(text: &str) -> bool {
    let hash = text.trim_start_matches('!');
    let fits = |c: char| c.is_ascii_alphanumeric() || "./$=,-_+*".contains(c);
    match hash {
        "" => text.starts_with('!'),
        "*" => true,
        hash => hash.starts_with('$') && hash.matches('$').count() >= 3 && hash.chars().all(fits),
    }
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let password = given.text("password");
    let marked = password.as_ref().is_some_and(|text| text.starts_with('!') && text.len() > 1);
    let groups = given.list("groups").map(|mut groups| {
        groups.sort_compactly();
        groups.dedup();
        groups
    });
    let number =
        |name| given.int(name).map(u32::try_from).transpose().map_err(|_| format!("{name} is too large"));
    Ok(Spec::User(UserSpec {
        name: given.name(),
        ensure: given.ensure(),
        uid: number("uid")?,
        group: given.text("group"),
        groups,
        exclusive: given.flag("append") == Some(false),
        home: given.text("home").map(|home| match home.trim_end_matches('/') {
            "" => "/".to_owned(),
            home => home.to_owned(),
        }),
        create_home: given.flag("create_home").unwrap_or(!given.bool("system")),
        move_home: given.bool("move_home"),
        shell: given.text("shell"),
        comment: given.text("comment"),
        password: password.as_deref().map(PasswordHash::of_shadow),
        password_on_create: given.text("update_password").as_deref() == Some("on_create"),
        locked: given.flag("locked").or(marked.then_some(true)),
        expires: given.text("expires"),
        password_days: PasswordDays {
            min: given.int("password_min_days"),
            max: given.int("password_max_days"),
            warn: given.int("password_warn_days"),
        },
        system: given.bool("system"),
        remove_home: given.bool("remove_home"),
    }))
}
