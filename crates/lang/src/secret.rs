//! [`OpenedSecrets`]: the values behind `secret("NAME")`, where they were opened (SEC-1).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

/// The longest name of a secret, in bytes.
pub const MAX_SECRET_NAME: usize = 200;
/// What stands in the place of a secret where its value is not to be had.
pub const HIDDEN_SECRET: &str = "(secret)";

/// Whether a text names a secret: parts of letters, digits, `-`, `_` and `.`, with `/` between them.
pub fn is_secret_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(fits);
    text.len() <= MAX_SECRET_NAME && text.split('/').all(part)
}

/// A secret as expressions name it; what depends on it is told by this where nobody opened it.
pub fn secret_reference(name: &str) -> String {
    format!("secret(\"{name}\")")
}

/// Whether what is not observed is a secret, as [`secret_reference`] names it.
pub fn is_secret_reference(observed: &str) -> bool {
    observed.starts_with("secret(")
}

/// The `secret("NAME")` of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUse {
    /// The secret's name; `None` where it is computed, so that nobody knows it before the node.
    pub name: Option<String>,
    /// Where it starts, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// By name the bytes of a secret, or why they cannot be had.
pub type SecretResults = BTreeMap<String, Result<Zeroizing<Vec<u8>>, String>>;

/// The values of a node's secrets, in memory alone. Never printed, wiped when the last copy is dropped. Cheap to clone.
#[derive(Clone, Default)]
pub struct OpenedSecrets {
    values: SecretValues,
}

#[derive(Clone, Default)]
enum SecretValues {
    /// Nobody opened any: what depends on one is not known.
    #[default]
    Sealed,
    /// Each reads as [`HIDDEN_SECRET`], for who shows what a node gets.
    Hidden,
    /// By name the bytes, or why they cannot be had.
    Opened(Arc<SecretResults>),
}

impl OpenedSecrets {
    /// Nothing is opened: what depends on a secret is told as not observed.
    pub const SEALED: &'static OpenedSecrets = &OpenedSecrets { values: SecretValues::Sealed };
    /// Every secret reads as [`HIDDEN_SECRET`].
    pub const HIDDEN: &'static OpenedSecrets = &OpenedSecrets { values: SecretValues::Hidden };

    /// These were opened, or could not be, for the reason given.
    pub fn opened(values: SecretResults) -> OpenedSecrets {
        OpenedSecrets { values: SecretValues::Opened(Arc::new(values)) }
    }

    /// Every secret reads as [`HIDDEN_SECRET`], so that what holds one may be shown.
    pub fn are_hidden(&self) -> bool {
        matches!(self.values, SecretValues::Hidden)
    }

    /// The text of a secret as expressions see it: without the newline that it may end with. `None` where it was
    /// not opened or is not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(self.bytes(name)?).ok()?;
        Some(text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text)))
    }

    /// The whole value.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        match &self.values {
            SecretValues::Sealed => None,
            SecretValues::Hidden => Some(HIDDEN_SECRET.as_bytes()),
            SecretValues::Opened(values) => values.get(name)?.as_ref().ok().map(|bytes| bytes.as_slice()),
        }
    }

    /// Why what depends on a secret, named as [`secret_reference`] has it, cannot be had on this node.
    pub fn why_not(&self, reference: &str) -> Option<String> {
        let SecretValues::Opened(values) = &self.values else { return None };
        let name = reference.strip_prefix("secret(\"")?.strip_suffix("\")")?;
        Some(match values.get(name) {
            Some(Err(why)) => format!("secret `{name}`: {why}"),
            Some(Ok(_)) => {
                format!("secret `{name}` is not UTF-8, and can stand only as the whole content of a file")
            }
            None => format!("secret `{name}` is not in the release that this node holds"),
        })
    }
}

impl fmt::Debug for OpenedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            SecretValues::Sealed => f.write_str("OpenedSecrets(sealed)"),
            SecretValues::Hidden => f.write_str("OpenedSecrets(hidden)"),
            SecretValues::Opened(values) => write!(f, "OpenedSecrets({} values hidden)", values.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_of_plain_words() {
        for right in ["a", "retail/tls", "retail/tls.key", "A_1/b-2"] {
            assert!(is_secret_name(right), "{right}");
        }
        for wrong in ["", "/a", "a/", "a//b", "../a", "a/..", "a/.b", "a b", "a\"b", "\u{e9}"] {
            assert!(!is_secret_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_trailing_newline_is_the_file_s_and_not_the_text_s() {
        let value = |text: &str| Ok(Zeroizing::new(text.as_bytes().to_vec()));
        let secrets = OpenedSecrets::opened(BTreeMap::from([
            ("a".to_owned(), value("x\n")),
            ("b".to_owned(), value("x\n\n")),
            ("c".to_owned(), Ok(Zeroizing::new(vec![0xff]))),
            ("d".to_owned(), Err("no wrap".to_owned())),
        ]));
        assert_eq!((secrets.text("a"), secrets.bytes("a")), (Some("x"), Some(&b"x\n"[..])));
        assert_eq!(secrets.text("b"), Some("x\n"));
        assert_eq!((secrets.text("c"), secrets.bytes("c")), (None, Some(&[0xff][..])));
        assert_eq!((secrets.text("d"), secrets.bytes("d")), (None, None));
        assert!(!format!("{secrets:?}").contains('x'));
    }
}
