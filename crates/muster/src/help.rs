//! `muster help`: verbs, topics, and every code that an error can carry.

use std::sync::LazyLock;

use clap::{Args, CommandFactory};
use serde::Serialize;
use wire::Code;

use crate::args::Cli;
use cli::exit::{EXITS, Exit};
use cli::failure::{Failure, UserError};
use cli::screen::Screen;

/// The most topics that are named for one that is unknown.
const MAX_NEAR: usize = 3;

const AFTER: &str = "\
Examples:
  muster help                 the verbs
  muster help publish         one of them
  muster help E012            a mistake in a fleet repo
  muster help token-used      a refusal of the control plane
  muster help release-stale   a node's refusal of what it is pointed to
  muster help no-node         a mistake in a manifest, or why an object is not taken
  muster help node-late       how synchronization of a node stands
  muster help exit            the exit codes
  muster help selectors       how nodes are named
  muster help posture         where the keys lie, and how to move them

Ends with 1 when nothing is known of the topic; the nearest that are known are named.";

/// Arguments of `muster help`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct HelpArgs {
    /// A verb, a code, `exit`, `selectors` or `posture`
    topic: Option<String>,
}

/// What a code means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The code.
    pub code: String,
    /// What says it.
    pub of: &'static str,
    /// In a few words.
    pub title: String,
    /// Why, and what to do.
    pub text: String,
}

/// What a node says when it refuses what it is pointed to.
pub const REFUSALS: &str = "a node's refusal of what it is pointed to; nothing changes on it";
/// What a node says when it does not follow a newer trust document.
pub const TRUST_REFUSALS: &str = "a node's refusal of a newer trust document; what it holds stays in force";
/// How synchronization of a node stands: the reasons of [`model::condition::SyncCause`].
pub const CONDITIONS: &str = "how synchronization of a node stands";

/// The codes that are no mistake in a fleet repo and no refusal of the control plane: in the file
/// a line with `#` says what the codes below it are of, then each has a line with code and title
/// and one with the text.
pub static CODES: LazyLock<Vec<Explanation>> = LazyLock::new(|| {
    let (mut lines, mut of) = (include_str!("help/codes.txt").lines().peekable(), "");
    let code = || {
        let mut line = lines.next()?;
        if let Some(heading) = line.strip_prefix("# ") {
            (of, line) = (heading, lines.next()?);
        }
        let (code, title) = line.split_once(' ')?;
        let text: Vec<&str> =
            std::iter::from_fn(|| lines.next_if(|line| line.starts_with(' '))).map(str::trim_start).collect();
        Some(Explanation { code: code.to_owned(), of, title: title.to_owned(), text: text.join("\n") })
    };
    std::iter::from_fn(code).collect()
});

/// Nothing is known of the topic.
#[derive(Debug, thiserror::Error)]
#[error("{topic:?} is no verb, no topic, and no code that this version says")]
struct UnknownTopic {
    topic: String,
    near: Vec<String>,
}

impl UserError for UnknownTopic {
    fn hint(&self) -> Option<String> {
        let near: Vec<String> = self.near.iter().map(|near| format!("`muster help {near}`")).collect();
        Some(match near.is_empty() {
            false => format!("did you mean {}?", near.join(" or ")),
            true => "`muster help` lists the verbs; codes stand in errors, such as E012, token-used, no-node"
                .to_owned(),
        })
    }
}

/// Does the verb.
///
/// # Errors
/// When the topic is unknown.
pub fn run(args: &HelpArgs, screen: Screen) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    let Some(topic) = &args.topic else {
        screen.text(&command.render_long_help().to_string())?;
        return Ok(Exit::Ok);
    };
    command.build();
    if let Some(verb) = command.find_subcommand_mut(topic) {
        screen.text(&verb.render_long_help().to_string())?;
        return Ok(Exit::Ok);
    }
    let explanation = explain(topic).ok_or_else(|| unknown(topic))?;
    screen.result(&explanation, || {
        let Explanation { code, of, title, text } = &explanation;
        format!("{code}  {title}\n({of})\n\n{}\n", wrapped(text))
    })?;
    Ok(Exit::Ok)
}

/// What a code or topic means.
pub fn explain(topic: &str) -> Option<Explanation> {
    let made = |code: &str, of, title: &str, text: &str| {
        Some(Explanation { code: code.to_owned(), of, title: title.to_owned(), text: text.to_owned() })
    };
    if let Some(found) = resolve::codes::explain(topic) {
        return made(found.code, "a mistake in a fleet repo", found.title, found.text);
    }
    if let Some(code) = Code::ALL.iter().find(|code| code.as_str().eq_ignore_ascii_case(topic)) {
        return made(code.as_str(), "a refusal of the control plane", code.title(), code.help());
    }
    if let Some(found) = CODES.iter().find(|known| known.code.eq_ignore_ascii_case(topic)) {
        return Some(found.clone());
    }
    topic.eq_ignore_ascii_case("exit").then(|| made("exit", "a topic", "exit codes", &exits()))?
}

fn exits() -> String {
    EXITS.iter().map(|(exit, what)| format!("{} {what}.\n", *exit as u8)).collect()
}

fn unknown(topic: &str) -> UnknownTopic {
    let verbs: Vec<String> =
        Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let all: Vec<&str> = resolve::codes::CODES
        .iter()
        .map(|known| known.code)
        .chain(Code::ALL.iter().map(|code| code.as_str()))
        .chain(CODES.iter().map(|known| known.code.as_str()))
        .chain(["exit"])
        .chain(verbs.iter().map(String::as_str))
        .collect();
    UnknownTopic { topic: topic.to_owned(), near: near(topic, &all) }
}

/// What is like a topic: the nearest of all, then those that have it in them.
fn near(topic: &str, all: &[&str]) -> Vec<String> {
    let lower = topic.to_ascii_lowercase().replace('_', "-");
    let like = |known: &&&str| lower.len() > 1 && known.to_ascii_lowercase().contains(&lower);
    let mut near: Vec<&str> = lang::nearest(topic, all.iter().copied()).into_iter().collect();
    near.extend(all.iter().filter(like).copied());
    let mut seen = std::collections::BTreeSet::new();
    near.retain(|known| seen.insert(*known));
    near.into_iter().take(MAX_NEAR).map(str::to_owned).collect()
}

/// Breaks paragraphs into lines of a readable width.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 90;
    let mut out = String::new();
    for paragraph in text.lines() {
        let mut width = 0;
        for word in paragraph.split(' ') {
            let length = word.chars().count();
            if width > 0 && width + 1 + length > WIDTH {
                out.push('\n');
                width = 0;
            }
            if width > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += length;
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}
