//! Appending an entry to `tokens.yaml` or `revocations.yaml` of a fleet repo: what was there stays as it was written.

use std::path::{Path, PathBuf};

use model::{Hostname, NodeId, Timestamp};
use resolve::{
    DeclaredRevocation, DeclaredToken, REVOCATIONS_FILE, TOKENS_FILE, declared_revocations, declared_tokens,
};
use spool::{Disk, SpoolError};

use crate::failure::UserError;

/// The longest file that is appended to, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum DeclareError {
    /// The folder holds no fleet repo.
    #[error("there is no fleet.yaml in {}", .0.display())]
    NoRepo(PathBuf),
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// The file has mistakes, or is written so that an entry cannot be appended.
    #[error("nothing can be appended to {}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What to write there by hand.
        entry: String,
    },
    /// The file cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpoolError,
    },
}

impl UserError for DeclareError {
    fn hint(&self) -> Option<String> {
        match self {
            DeclareError::NoRepo(_) => Some("name the folder of the fleet repo: --repo DIR".to_owned()),
            DeclareError::Form { entry, .. } => {
                let entry = entry.trim_end();
                Some(format!(
                    "`muster check DIR` shows its mistakes; or write this into it by hand:\n{entry}"
                ))
            }
            DeclareError::Read { .. } | DeclareError::Write { .. } => None,
        }
    }
}

/// A token to declare.
pub(crate) struct NewToken<'a> {
    pub(crate) nonce: &'a str,
    /// The host that it is for; `None` for a group's.
    pub(crate) hostname: Option<&'a Hostname>,
    pub(crate) expires_at: Timestamp,
    pub(crate) replaces: Option<&'a NodeId>,
}

impl NewToken<'_> {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let NewToken { nonce, hostname, expires_at, replaces } = self;
        let mut fields = vec![("nonce", quoted(nonce))];
        fields.extend(hostname.map(|hostname| ("hostname", hostname.to_string())));
        fields.push(("expires_at", quoted(expires_at)));
        fields.extend(replaces.map(|node| ("replaces", node.to_string())));
        fields
    }
}

/// Declares a token in a fleet repo; gives the file.
///
/// # Errors
/// When the file has mistakes, or cannot be written; it is as it was then.
pub(crate) fn token(repo: &Path, token: &NewToken<'_>) -> Result<PathBuf, DeclareError> {
    let NewToken { nonce, hostname, expires_at, replaces } = token;
    let fields = token.fields();
    let list = RepoList { repo, file: TOKENS_FILE, key: "tokens" };
    let wanted = DeclaredToken {
        nonce: (*nonce).to_owned(),
        expires_at: *expires_at,
        hostname: hostname.cloned(),
        replaces: replaces.cloned(),
    };
    list.append(&fields, |text| declared_tokens(text).ok(), |read| read == &wanted)
}

/// Declares that a host is revoked; gives all that are declared then.
///
/// # Errors
/// As [`token`].
pub(crate) fn revocation(
    repo: &Path,
    host: &Hostname,
    not_before: Timestamp,
    why: Option<&str>,
) -> Result<Vec<DeclaredRevocation>, DeclareError> {
    let mut fields = vec![("host", host.to_string()), ("not_before", quoted(&not_before))];
    fields.extend(why.map(|why| ("why", quoted(&why))));
    let list = RepoList { repo, file: REVOCATIONS_FILE, key: "revocations" };
    let is_it = |read: &DeclaredRevocation| {
        read.host == *host && read.not_before == not_before && read.why.as_deref() == why
    };
    let path = list.append(&fields, |text| declared_revocations(text).ok(), is_it)?;
    let form = || DeclareError::Form { path, entry: entry(&fields, 0) };
    declared_revocations(&list.read()?).map_err(|_| form())
}

/// An entry as it is declared, for people to copy.
pub(crate) fn token_entry(token: &NewToken<'_>) -> String {
    let fields: Vec<String> =
        token.fields().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

/// A text in double quotes, as YAML reads it whatever it holds.
fn quoted(value: &dyn std::fmt::Display) -> String {
    serde_json::Value::String(value.to_string()).to_string()
}

/// A list in a file of a fleet repo.
struct RepoList<'a> {
    repo: &'a Path,
    file: &'static str,
    key: &'static str,
}

impl RepoList<'_> {
    fn path(&self) -> PathBuf {
        self.repo.join(self.file)
    }

    fn read(&self) -> Result<String, DeclareError> {
        let path = self.path();
        let bytes = spool::atomic::read_file(&path, MAX_FILE);
        let bytes = bytes.map_err(|source| DeclareError::Read { path: path.clone(), source })?;
        let entry = String::new();
        String::from_utf8(bytes.unwrap_or_default()).map_err(|_| DeclareError::Form { path, entry })
    }

    /// Appends an entry, and looks that exactly this was added.
    fn append<T: PartialEq>(
        &self,
        fields: &[(&str, String)],
        parse: impl Fn(&str) -> Option<Vec<T>>,
        is_it: impl Fn(&T) -> bool,
    ) -> Result<PathBuf, DeclareError> {
        if !self.repo.join("fleet.yaml").exists() {
            return Err(DeclareError::NoRepo(self.repo.to_owned()));
        }
        let (path, before) = (self.path(), self.read()?);
        let indent = indent_of_items(&before);
        let form = || DeclareError::Form { path: path.clone(), entry: entry(fields, indent) };
        let mut known = parse(&before).ok_or_else(form)?;
        let mut text = if known.is_empty() { with_open_list(&before, self.key) } else { before };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&entry(fields, indent));
        let mut read = parse(&text).ok_or_else(form)?;
        let last = read.pop().filter(is_it);
        if last.is_none() || !same(&mut known, &mut read) {
            return Err(form());
        }
        spool::atomic::write_file(&Disk::new(), &path, text.as_bytes(), 0o644)
            .map_err(|source| DeclareError::Write { path: path.clone(), source })?;
        Ok(path)
    }
}

fn same<T: PartialEq>(known: &mut [T], read: &mut [T]) -> bool {
    known.len() == read.len() && known.iter().zip(read.iter()).all(|(known, read)| known == read)
}

/// An item of a list in block style.
fn entry(fields: &[(&str, String)], indent: usize) -> String {
    let line = |(at, (name, value)): (usize, &(&str, String))| {
        let mark = if at == 0 { "- " } else { "  " };
        format!("{}{mark}{name}: {value}\n", " ".repeat(indent))
    };
    fields.iter().enumerate().map(line).collect()
}

/// How far the items of a list are indented: two spaces where there is none yet.
fn indent_of_items(text: &str) -> usize {
    let item = text.lines().find(|line| line.trim_start().starts_with("- "));
    item.map_or(2, |line| line.len() - line.trim_start().len())
}

/// The text with its list open for items: `key:` at the end.
fn with_open_list(text: &str, key: &str) -> String {
    let is_key = |line: &&str| line.split('#').next().is_some_and(|line| line.trim_end().starts_with(key));
    let mut kept: String =
        text.lines().filter(|line| !is_key(line)).map(|line| format!("{line}\n")).collect();
    kept.push_str(&format!("{key}:\n"));
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(1_800_000_000 + secs)
    }

    /// What an operator wrote stays as it is, comments and all.
    #[test]
    fn entries_are_appended_to_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let host: Hostname = "web-1".parse().unwrap();
        let revoke = |at, why| revocation(dir.path(), &host, at, why);
        assert!(matches!(revoke(at(0), None), Err(DeclareError::NoRepo(_))));
        std::fs::write(dir.path().join("fleet.yaml"), "").unwrap();
        let file = dir.path().join(REVOCATIONS_FILE);
        for before in
            ["", "# who is out\n", "revocations:\n", "# a\nrevocations: []\n", "revocations: [] # none"]
        {
            std::fs::write(&file, before).unwrap();
            assert_eq!(revoke(at(0), None).unwrap().len(), 1, "{before:?}");
        }
        for before in [
            "revocations:\n- host: db-1\n  not_before: 2026-01-01T00:00:00Z\n",
            "revocations:\n    # long ago\n    - host: db-1\n      not_before: 2026-01-01T00:00:00Z # why",
        ] {
            std::fs::write(&file, before).unwrap();
            let all = revoke(at(5), Some("a \"quoted\": # reason")).unwrap();
            let hosts: Vec<_> = all.iter().map(|one| one.host.as_str()).collect();
            assert_eq!(hosts, ["db-1", "web-1"]);
            assert_eq!(all[1].why.as_deref(), Some("a \"quoted\": # reason"));
            assert!(std::fs::read_to_string(&file).unwrap().starts_with(before));
        }
    }

    /// What cannot be appended to is left alone, and the entry is shown.
    #[test]
    fn a_file_of_another_form_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("fleet.yaml"), "").unwrap();
        let file = dir.path().join(TOKENS_FILE);
        for before in
            ["tokens: [{nonce: a, expires_at: \"2026-01-01T00:00:00Z\"}]\n", "tokens: {", "other: 1\n"]
        {
            std::fs::write(&file, before).unwrap();
            let host = "web-1".parse().unwrap();
            let new = NewToken { nonce: "n", hostname: Some(&host), expires_at: at(0), replaces: None };
            let error = token(dir.path(), &new).unwrap_err();
            assert!(error.hint().unwrap().contains("- nonce: \"n\""), "{error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
        }
    }
}
