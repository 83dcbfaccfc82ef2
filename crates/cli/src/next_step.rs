//! Commands that operators are told to type next: with the credentials that this process was called
//! with, so that they reach the same control plane.
//!
//! The CLI writes such a command with [`muster`]. The control plane, and errors that do not know the
//! credentials, write the command without them into a sentence, and [`with_credentials`] adds them as it is printed.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use model::text::shell_word;

use crate::credentials::OPERATOR_ENV;

/// How a command begins inside a sentence.
const PROGRAM: &str = "muster ";
/// The verbs that ask a control plane.
pub const ASKING_VERBS: [&str; 11] =
    ["diff", "node", "object", "publish", "query", "release", "render", "run", "status", "task", "workflow"];

/// The option that names the credentials, as it is typed; empty where the default or the environment
/// names them, which hold for the next command too.
static OPTION: OnceLock<String> = OnceLock::new();

/// Remembers the credentials that were named.
pub(crate) fn remember(operator: Option<&Path>) {
    let named = operator.filter(|path| std::env::var_os(OPERATOR_ENV).as_deref() != Some(path.as_os_str()));
    // The first call counts: a process is called once.
    let _ = OPTION.set(
        named
            .map(|path| format!(" --operator {}", shell_word(&path.display().to_string())))
            .unwrap_or_default(),
    );
}

fn option() -> &'static str {
    OPTION.get().map_or("", String::as_str)
}

/// A verb of this program, as it is to be typed to reach the same control plane.
pub(crate) fn muster(verb: &str) -> String {
    format!("muster {verb}{}", option())
}

/// A sentence whose commands reach the same control plane.
pub(crate) fn with_credentials(text: &str) -> Cow<'_, str> {
    with_option(text, option())
}

/// A sentence with an option in each of its commands that asks a control plane, behind the verb: that is where
/// the command ends for certain.
fn with_option<'a>(text: &'a str, option: &str) -> Cow<'a, str> {
    if option.is_empty() || !text.contains(PROGRAM) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + option.len());
    let mut rest = text;
    while let Some(at) = rest.find(PROGRAM) {
        let begins = rest[..at].chars().next_back().is_none_or(|before| " `(:".contains(before));
        let (before, after) = rest.split_at(at + PROGRAM.len());
        out.push_str(before);
        let verb = after.find(|c: char| !c.is_ascii_lowercase()).map_or(after, |end| &after[..end]);
        out.push_str(verb);
        rest = &after[verb.len()..];
        if begins && ASKING_VERBS.contains(&verb) && !rest.starts_with(option) {
            out.push_str(option);
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::with_option;

    #[test]
    fn commands_in_a_sentence_name_the_credentials_behind_their_verb() {
        for (text, want) in [
            ("muster node show web-1", "muster node --operator f show web-1"),
            (
                "muster publish, or muster publish --beacon",
                "muster publish --operator f, or muster publish --operator f --beacon",
            ),
            ("`muster object resync web-1`; wait", "`muster object --operator f resync web-1`; wait"),
            ("`muster status`", "`muster status --operator f`"),
            ("add an entry, then muster publish", "add an entry, then muster publish --operator f"),
            ("`muster help CODE`, `muster check DIR`", "`muster help CODE`, `muster check DIR`"),
            ("on web-1: muster-agent resume", "on web-1: muster-agent resume"),
            ("a newer muster is needed", "a newer muster is needed"),
            ("mymuster run", "mymuster run"),
            ("muster run --operator f show x", "muster run --operator f show x"),
        ] {
            assert_eq!(with_option(text, " --operator f"), want);
            assert_eq!(with_option(text, ""), text);
        }
    }
}
