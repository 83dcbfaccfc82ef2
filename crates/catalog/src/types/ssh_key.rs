//! `ssh_key`: public keys that may log in as a user.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::BASE64;
use lang::Value;
use model::Fields;

use super::{Ensure, FILE_TIMEOUT_SECS, ResourceSubject, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literals,
};

/// The kinds of key that OpenSSH takes in an authorized_keys file.
const KEY_KINDS: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];
/// What is written for a key that is refused.
const KEY_HELP: &str = "write the line of the .pub file: type, base64 and comment";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "ssh_key",
    summary: "A public key in a user's `authorized_keys`, or a list of keys. Other lines are kept. The file and \
              its directory are made if they are missing, and put right if somebody else could write them; \
              what was made goes with its last key (`on_remove`), unless something else is in it.",
    short: Short::Attribute("key"),
    attributes: &[
        STATE,
        Attribute::always(
            "key",
            FieldKind::List,
            "the line of a .pub file, or a list of them; found again by its base64",
        ),
        Attribute::always("user", FieldKind::Account, "whom the keys let in"),
        Attribute::new(
            "options",
            FieldKind::List,
            "",
            "options of these keys, such as `no-pty` or `from=\"192.0.2.0/24\"`; without it they are left",
        ),
        Attribute::new(
            "exclusive",
            FieldKind::Bool,
            "false",
            "every key that this resource does not name goes; one resource for a user may say so",
        ),
        Attribute::new(
            "path",
            FieldKind::Path,
            "~/.ssh/authorized_keys",
            "another file; outside of the home it belongs to root, and its directory must be there",
        ),
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- ssh_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl amy@laptop\n  user: root\n  options: [no-port-forwarding]\n",
    manages: Manages::State,
    removal: &["key", "user", "options", "exclusive", "path"],
    rules,
    bind,
};

/// `ssh_key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKeySpec {
    /// The keys, in order.
    pub keys: Vec<AuthorizedKey>,
    /// Present or absent.
    pub ensure: Ensure,
    /// Whom they let in.
    pub user: String,
    /// Options of the keys, joined by commas; `None` leaves them as they are.
    pub options: Option<String>,
    /// Every other key goes.
    pub exclusive: bool,
    /// The file; that of the user's home by default.
    pub path: Option<String>,
}

/// A public key. Its text is `type base64 comment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedKey {
    /// Its type, such as `ssh-ed25519`.
    pub kind: String,
    /// The key itself, in base64.
    pub base64: String,
    /// Who or what it belongs to.
    pub comment: Option<String>,
}

impl AuthorizedKey {
    /// Reads `type base64 comment`.
    ///
    /// # Errors
    /// What is wrong with it, in words; nothing of it is quoted, since it may be a secret one.
    pub fn parse(text: &str) -> Result<AuthorizedKey, &'static str> {
        let mut words = text.trim().splitn(3, char::is_whitespace);
        let (kind, base64) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if text.contains("PRIVATE KEY") {
            return Err("it is a private key, which no other host may have");
        }
        if kind == "ssh-dss" {
            return Err("OpenSSH takes no DSA keys any more");
        }
        if !KEY_KINDS.contains(&kind) {
            return Err("it does not begin with the type of a public key, such as ssh-ed25519");
        }
        let bytes = BASE64.decode(base64.as_bytes()).map_err(|_| "what follows its type is not base64")?;
        if !begins_with(&bytes, kind) {
            return Err("its base64 is cut off or is a key of another type");
        }
        let comment = words.next().map(str::trim).filter(|comment| !comment.is_empty());
        Ok(AuthorizedKey {
            kind: kind.to_owned(),
            base64: base64.to_owned(),
            comment: comment.map(str::to_owned),
        })
    }

    /// Whether a word of a line is the type of a key.
    pub fn is_kind(word: &str) -> bool {
        KEY_KINDS.contains(&word)
    }
}

impl fmt::Display for AuthorizedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.base64)?;
        self.comment.as_ref().map_or(Ok(()), |comment| write!(f, " {comment}"))
    }
}

/// A key's bytes are fields with their lengths before them: its type, then at least one more.
fn begins_with(bytes: &[u8], kind: &str) -> bool {
    let mut rest = bytes;
    let mut fields = 0;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some(field) = after.get(..length) else { return false };
        if fields == 0 && field != kind.as_bytes() {
            return false;
        }
        (fields, rest) = (fields + 1, &after[length..]);
    }
    fields > 1 && rest.is_empty()
}

impl SshKeySpec {
    /// How a key's line reads, with the options that are declared.
    pub fn line_of(&self, key: &AuthorizedKey) -> String {
        match self.options.as_deref().filter(|options| !options.is_empty()) {
            Some(options) => format!("{options} {key}"),
            None => key.to_string(),
        }
    }
}

impl StateSpec for SshKeySpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let lines: Vec<String> = self.keys.iter().map(|key| self.line_of(key)).collect();
        Fields::from([
            ("keys".to_owned(), lines.join("\n")),
            ("access".to_owned(), "the user and root".to_owned()),
        ])
    }

    fn needs(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    fn after(&self) -> Vec<ResourceSubject<'_>> {
        vec![ResourceSubject::Named { kind: "user", name: &self.user }]
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    for key in literals(attributes, "key") {
        if let Err(why) = AuthorizedKey::parse(key) {
            found.push(AttributeProblem::secret_value(format!("key: {why}"), KEY_HELP));
        }
    }
    if attributes.get("key").is_some_and(|key| matches!(key, Value::List(keys) if keys.is_empty())) {
        let message = "an empty list names no key".to_owned();
        found.push(AttributeProblem::value("key", message, KEY_HELP));
    }
    for option in literals(attributes, "options") {
        if !is_option(option) {
            let message = format!("`{option}` is not an option of an authorized key");
            let help = "one such as no-pty, or command=\"/usr/bin/true\" with its text in double quotes";
            found.push(AttributeProblem::value("options", message, help));
        }
    }
    found
}

/// A name, or a name with a text in double quotes: no space or comma outside of them.
fn is_option(option: &str) -> bool {
    let (name, text) = option.split_once('=').map_or((option, None), |(name, text)| (name, Some(text)));
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let quoted = |text: &str| {
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        inner.is_some_and(|inner| !inner.replace("\\\"", "").contains('"') && !inner.ends_with('\\'))
    };
    named && text.is_none_or(quoted)
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let texts = given.list("key").unwrap_or_default();
    let mut keys: Vec<AuthorizedKey> = Vec::new();
    for text in &texts {
        let key = AuthorizedKey::parse(text).map_err(|why| format!("key: {why}"))?;
        if !keys.iter().any(|other| other.base64 == key.base64) {
            keys.push(key);
        }
    }
    let ensure = given.ensure();
    Ok(Spec::SshKey(SshKeySpec {
        keys,
        ensure,
        user: given.text_or_empty("user"),
        options: given.list("options").map(|options| options.join(",")),
        exclusive: given.bool("exclusive") && ensure == Ensure::Present,
        path: given.text("path"),
    }))
}
