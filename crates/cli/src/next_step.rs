//! Commands that operators are told to type next: with the credentials that this process was called
//! with, so that they reach the same control plane.
//!
//! The CLI writes such a command with [`muster`]. The control plane, and errors that do not know the
//! credentials, write the command without them into a sentence, and [`with_credentials`] adds them as it is
//! printed. In such a sentence a command stands in backticks, or the sentence begins with it, up to its first
//! semicolon or the end of the line. Nothing else of it is a command.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use model::text::shell_word;

use crate::credentials::OPERATOR_ENV;

/// How a command begins.
const PROGRAM: &str = "muster ";
/// The verbs that ask a control plane.
pub const ASKING_VERBS: [&str; 19] = [
    "audit", "beacon", "closure", "diff", "key", "node", "object", "operator", "prove", "publish", "query",
    "release", "render", "rollout", "run", "secret", "status", "task", "workflow",
];

/// The name of the option that names the credentials.
const OPTION_NAME: &str = "--operator";

/// The option that names the credentials, as it is typed; empty where the default or the environment
/// names them, which hold for the next command too.
static OPTION: OnceLock<String> = OnceLock::new();

/// Remembers the credentials that were named.
pub(crate) fn remember(operator: Option<&Path>) {
    let named = operator.filter(|path| std::env::var_os(OPERATOR_ENV).as_deref() != Some(path.as_os_str()));
    // The first call counts: a process is called once.
    let _ = OPTION.set(
        named
            .map(|path| format!(" {OPTION_NAME} {}", shell_word(&path.display().to_string())))
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

/// A sentence with an option in each of its commands that asks a control plane and does not have it yet.
fn with_option<'a>(text: &'a str, option: &str) -> Cow<'a, str> {
    if option.is_empty() || !text.contains(PROGRAM) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + option.len());
    let mut parts = text.split('`').enumerate().peekable();
    while let Some((place, part)) = parts.next() {
        // Backticks come in pairs: what stands behind the last of an odd number is no command.
        let command = match (place, parts.peek()) {
            (0, _) => part.split([';', '\n']).next(),
            (_, Some(_)) if place % 2 == 1 => Some(part),
            (_, _) => None,
        };
        let (before, after) = part.split_at(command.and_then(verb_end).unwrap_or_default());
        out.push_str(before);
        if !before.is_empty() {
            out.push_str(option);
        }
        out.push_str(after);
        if parts.peek().is_some() {
            out.push('`');
        }
    }
    Cow::Owned(out)
}

/// Where the verb of a command ends, if it asks a control plane and does not name the credentials: the option is put
/// there, as behind `--` it would be another program's.
fn verb_end(command: &str) -> Option<usize> {
    let verb = command.strip_prefix(PROGRAM)?.split_whitespace().next()?;
    let names_it = |word: &str| word.split('=').next() == Some(OPTION_NAME);
    let asks = ASKING_VERBS.contains(&verb) && !command.split_whitespace().any(names_it);
    asks.then_some(PROGRAM.len() + verb.len())
}

#[cfg(test)]
mod tests {
    use super::with_option;
    use crate::failure::UserError as _;
    use crate::task::Interrupted;

    /// The rule of the module's documentation.
    #[test]
    fn commands_of_a_sentence_name_the_credentials_behind_their_verb() {
        for (text, want) in [
            // It begins with it.
            ("muster node show web-1", "muster node --operator f show web-1"),
            ("muster status", "muster status --operator f"),
            ("muster run show x; muster run list", "muster run --operator f show x; muster run list"),
            ("muster run show x\nmuster run list", "muster run --operator f show x\nmuster run list"),
            (
                "muster run show x; or `muster run list`",
                "muster run --operator f show x; or `muster run --operator f list`",
            ),
            // It stands in backticks, wherever they are.
            ("`muster object resync web-1`; wait", "`muster object --operator f resync web-1`; wait"),
            ("add it,\n`muster publish`", "add it,\n`muster publish --operator f`"),
            ("say \"`muster status`\"", "say \"`muster status --operator f`\""),
            (
                "`muster publish`, or `muster beacon --every 1d`",
                "`muster publish --operator f`, or `muster beacon --operator f --every 1d`",
            ),
            // It has the option, wherever and whatever it is.
            ("muster run --operator f show x", "muster run --operator f show x"),
            ("`muster run show x --operator g --follow`", "`muster run show x --operator g --follow`"),
            ("muster run show x --operator=f; wait", "muster run show x --operator=f; wait"),
            ("muster run show x; --operator", "muster run --operator f show x; --operator"),
            // It asks no control plane, or is no command.
            ("`muster help CODE`, `muster check DIR`", "`muster help CODE`, `muster check DIR`"),
            ("on web-1: `muster-agent resume`", "on web-1: `muster-agent resume`"),
            ("a newer muster is needed", "a newer muster is needed"),
            ("a muster node does it", "a muster node does it"),
            ("add an entry, then muster publish", "add an entry, then muster publish"),
            ("the `x` muster run `y`", "the `x` muster run `y`"),
            ("an `open muster run", "an `open muster run"),
            ("an open `muster run", "an open `muster run"),
            ("`mymuster run` `muster runs` `muster run-x`", "`mymuster run` `muster runs` `muster run-x`"),
            ("muster ", "muster "),
        ] {
            assert_eq!(with_option(text, " --operator f"), want);
            assert_eq!(with_option(text, ""), text);
        }
    }

    #[test]
    fn the_hint_of_an_interruption_names_them_once() {
        let hint =
            Interrupted { what: "task", id: "t-1".to_owned(), off: "cancel" }.hint().unwrap_or_default();
        assert_eq!(
            with_option(&hint, " --operator f"),
            "`muster task --operator f show t-1 --follow`; `muster task --operator f cancel t-1` calls it off"
        );
    }
}
