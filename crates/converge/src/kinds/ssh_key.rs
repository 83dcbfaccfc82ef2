//! `ssh_key`: lines of an authorized_keys file; every other byte stays as it is.

use catalog::types::{AuthorizedKey, SshKeySpec};
use model::PathState;

/// What is said of a file and a directory that only the user and root can write.
const PRIVATE: &str = "the user and root";
/// The bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// The lines of the keys that the resource answers for, as far as it declares them, in the order in
/// which it does; `None` when there are none.
pub fn observe(spec: &SshKeySpec, file: &str) -> Option<String> {
    let lines: Vec<AuthorizedKeyLine<'_>> = file.lines().filter_map(AuthorizedKeyLine::read).collect();
    let mut found: Vec<String> = Vec::new();
    for key in &spec.keys {
        let line = lines.iter().find(|line| line.key.base64 == key.base64);
        found.extend(line.map(|line| line.as_declared(spec, key)));
    }
    if spec.exclusive {
        let others = lines.iter().filter(|line| !is_declared(spec, &line.key.base64));
        found.extend(others.map(|line| line.text.trim().to_owned()));
    }
    (!found.is_empty()).then(|| found.join("\n"))
}

/// The file that holds the lines of `to` and none of the other keys that the resource answers for.
/// A key that is there stays in its place; a second line of it goes.
pub fn edit(spec: &SshKeySpec, file: &str, to: Option<&str>) -> String {
    let mut wanted: Vec<AuthorizedKeyLine<'_>> =
        to.unwrap_or_default().lines().filter_map(AuthorizedKeyLine::read).collect();
    let mut written: Vec<String> = Vec::new();
    let mut out = String::with_capacity(file.len() + 256);
    for line in file.split_inclusive('\n') {
        let Some(there) = AuthorizedKeyLine::read(line) else {
            out.push_str(line);
            continue;
        };
        let base64 = &there.key.base64;
        if let Some(number) = wanted.iter().position(|wanted| wanted.key.base64 == *base64) {
            let new = wanted.remove(number).merged(spec, &there);
            written.push(base64.clone());
            out.push_str(&(new + "\n"));
        } else if !written.contains(base64) && !spec.exclusive && !is_declared(spec, base64) {
            out.push_str(line);
        }
    }
    for new in wanted {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("{}\n", new.text));
    }
    out
}

/// Who may write what is at a path: [`SshKeySpec`]'s `access`.
pub fn access(state: &PathState, user: u32) -> String {
    let (PathState::File { mode, uid, .. } | PathState::Directory { mode, uid, .. }) = state else {
        return PRIVATE.to_owned();
    };
    match (*uid == user || *uid == 0, mode & OTHERS_WRITE == 0) {
        (true, true) => PRIVATE.to_owned(),
        (true, false) => format!("others too (mode {mode:04o})"),
        (false, _) => format!("the uid {uid}"),
    }
}

/// Whether [`access`] says that nobody else may write it.
pub fn is_private(access: &str) -> bool {
    access == PRIVATE
}

fn is_declared(spec: &SshKeySpec, base64: &str) -> bool {
    spec.keys.iter().any(|key| key.base64 == base64)
}

/// A line with a key.
struct AuthorizedKeyLine<'a> {
    text: &'a str,
    options: &'a str,
    key: AuthorizedKey,
}

impl<'a> AuthorizedKeyLine<'a> {
    /// Reads `type base64 comment`, or the same after options.
    fn read(text: &'a str) -> Option<AuthorizedKeyLine<'a>> {
        let line = text.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let first = line.split_whitespace().next()?;
        let options = if AuthorizedKey::is_kind(first) { "" } else { &line[..end_of_options(line)] };
        let mut words = line[options.len()..].trim_start().splitn(3, char::is_whitespace);
        let kind = words.next().filter(|kind| AuthorizedKey::is_kind(kind))?.to_owned();
        let base64 = words.next()?.to_owned();
        let comment = words.next().map(|comment| comment.trim().to_owned()).filter(|it| !it.is_empty());
        Some(AuthorizedKeyLine { text: line, options, key: AuthorizedKey { kind, base64, comment } })
    }

    /// The line with only what the resource declares of it.
    fn as_declared(&self, spec: &SshKeySpec, declared: &AuthorizedKey) -> String {
        let comment = declared.comment.as_ref().and(self.key.comment.clone());
        let options = if spec.options.is_some() { self.options } else { "" };
        line(options, &AuthorizedKey { comment, ..self.key.clone() })
    }

    /// This line, with what the resource does not declare as it is there.
    fn merged(&self, spec: &SshKeySpec, there: &AuthorizedKeyLine<'_>) -> String {
        let declares_options = spec.options.is_some() || !is_declared(spec, &self.key.base64);
        let options = if declares_options { self.options } else { there.options };
        let comment = self.key.comment.clone().or_else(|| there.key.comment.clone());
        line(options, &AuthorizedKey { comment, ..self.key.clone() })
    }
}

fn line(options: &str, key: &AuthorizedKey) -> String {
    if options.is_empty() { key.to_string() } else { format!("{options} {key}") }
}

/// Where the options of a line end: at the first space outside of double quotes.
fn end_of_options(line: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            '\\' if quoted && !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            c if c.is_whitespace() && !quoted => return at,
            _ => {}
        }
        escaped = false;
    }
    line.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::types::{Ensure, StateSpec};

    const A: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    const B: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn spec(keys: &[&str]) -> SshKeySpec {
        SshKeySpec {
            keys: keys.iter().map(|key| AuthorizedKey::parse(key).unwrap()).collect(),
            ensure: Ensure::Present,
            user: "amy".to_owned(),
            options: None,
            exclusive: false,
            path: None,
        }
    }

    /// The file after it was made as declared; a second time changes nothing.
    fn made(spec: &SshKeySpec, file: &str) -> String {
        let keys = &spec.declared()["keys"];
        let once = edit(spec, file, Some(keys));
        assert_eq!(observe(spec, &once).as_ref(), Some(keys), "{once}");
        assert_eq!(edit(spec, &once, Some(keys)), once);
        once
    }

    #[test]
    fn a_key_is_added_found_again_by_its_base64_and_removed() {
        let amy = format!("ssh-ed25519 {A} amy");
        let spec = spec(&[&amy]);
        let file = format!("# mine\nno-pty ssh-ed25519 {B} old\nnot a key");
        let once = made(&spec, &file);
        assert_eq!(once, format!("{file}\n{amy}\n"));
        assert_eq!(edit(&spec, &once, None), format!("{file}\n"));
        let renamed = format!("command=\"a \\\" b\",no-pty ssh-ed25519 {A} other\nssh-ed25519 {A} twice\n");
        assert_eq!(made(&spec, &renamed), format!("command=\"a \\\" b\",no-pty ssh-ed25519 {A} amy\n"));
    }

    #[test]
    fn options_are_left_unless_they_are_declared() {
        let mut spec = spec(&[&format!("ssh-ed25519 {A}")]);
        let file = format!("from=\"192.0.2.1\" ssh-ed25519 {A} amy\n");
        assert_eq!(made(&spec, &file), file);
        spec.options = Some("no-pty".to_owned());
        assert_eq!(made(&spec, &file), format!("no-pty ssh-ed25519 {A} amy\n"));
        spec.options = Some(String::new());
        assert_eq!(made(&spec, &file), format!("ssh-ed25519 {A} amy\n"));
    }

    #[test]
    fn others_go_only_from_an_exclusive_list_and_can_be_put_back() {
        let mut spec = spec(&[&format!("ssh-ed25519 {A}")]);
        spec.exclusive = true;
        let file = format!("no-pty ssh-ed25519 {B} other\n# comment\n");
        let before = observe(&spec, &file);
        let once = made(&spec, &file);
        assert_eq!(once, format!("# comment\nssh-ed25519 {A}\n"));
        (spec.exclusive, spec.ensure) = (false, Ensure::Absent);
        let back = edit(&spec, &once, before.as_deref());
        assert_eq!(back, format!("# comment\nno-pty ssh-ed25519 {B} other\n"));
    }

    #[test]
    fn who_else_may_write_it_is_told() {
        let file = |uid, mode| PathState::File { digest: model::Digest::ZERO, size: 0, mode, uid, gid: 0 };
        let directory = |uid, mode| PathState::Directory { mode, uid, gid: 0, empty: false };
        let table = [
            (PathState::Missing, None),
            (file(1000, 0o600), None),
            (file(0, 0o755), None),
            (file(1000, 0o620), Some("others too (mode 0620)")),
            (file(1000, 0o602), Some("others too (mode 0602)")),
            (file(1001, 0o600), Some("the uid 1001")),
            (directory(1000, 0o700), None),
            (directory(1000, 0o770), Some("others too (mode 0770)")),
            (directory(1001, 0o777), Some("the uid 1001")),
        ];
        for (state, told) in table {
            let said = access(&state, 1000);
            assert_eq!(is_private(&said), told.is_none(), "{state:?}");
            assert_eq!(said, told.unwrap_or(PRIVATE), "{state:?}");
        }
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        let short = &A[..40];
        let wrong = [
            format!("ssh-rsa {A}"),
            format!("ssh-ed25519 {short}"),
            "ssh-ed25519 !!!".to_owned(),
            format!("ssh-dss {A}"),
            A.to_owned(),
            "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
        ];
        for key in wrong {
            assert!(AuthorizedKey::parse(&key).is_err(), "{key}");
        }
    }
}
