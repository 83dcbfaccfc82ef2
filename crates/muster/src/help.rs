//! `muster help`: verbs, topics, and every code that an error can carry.

mod conditions;
mod objects;

use clap::{Args, CommandFactory};
use serde::Serialize;
use wire::Code;

use crate::args::Cli;
use cli::exit::{EXITS, Exit};
use cli::failure::{Failure, UserError};
use cli::screen::Screen;

pub use conditions::CONDITIONS;
pub use objects::{MANIFESTS, OBJECTS};

/// The most topics that are named for one that is unknown.
const MAX_NEAR: usize = 3;

const AFTER: &str = "\
Examples:
  muster help                 the verbs
  muster help publish         one of them
  muster help E012            a mistake in a fleet repo
  muster help token_used      a refusal of the control plane
  muster help release_stale   a node's refusal of what it is pointed to
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

/// What a node says when it refuses what it is pointed to, and what to do about it.
pub const REFUSALS: &[(&str, &str, &str)] = &[
    (
        "release_unsigned",
        "the release carries no signature",
        "A node believes only what the release key signed. Publish with `muster publish`; if this stays, something between publisher and node drops signatures.",
    ),
    (
        "release_signature",
        "no trusted key signed the release",
        "The header was changed on its way, or signed with a key that is not in this fleet's trust document. Publish with the fleet's release key.",
    ),
    (
        "beacon_signature",
        "the proof of freshness is not believed",
        "The beacon is not signed by the release key, or speaks of another release. `muster publish --beacon` signs a new one.",
    ),
    (
        "release_requires",
        "the release requires a feature that the node's agent does not have",
        "Install a newer muster-agent on the node; the message names what it lacks. Until then it converges on the release that it holds.",
    ),
    (
        "release_other_fleet",
        "the release is of another fleet",
        "The node joined another fleet than the one that was published to. Look which control plane it calls: `muster-agent status`.",
    ),
    (
        "release_other_channel",
        "the header is of another channel than the node's entry",
        "The control plane points the node to a header of a channel that the release does not give it. Publish again; if it stays, do not trust that control plane.",
    ),
    (
        "release_older",
        "the release is older than one that the node accepted before",
        "Release numbers only rise; going back is a new release with old content. This happens after a control plane's database was restored: publish once more, so that the number rises past what the nodes know.",
    ),
    (
        "release_two_headers",
        "two different headers bear one number",
        "Somebody with the release key signed two releases of one number, or a restored database numbered one anew. Publish again with a higher number, and find out who signs.",
    ),
    (
        "release_stale",
        "the release is past its freshness",
        "The channel's freshness says for how long a signature may be adopted. `muster publish --beacon`, or publish again. Nodes go on with what they hold.",
    ),
    (
        "release_future",
        "the release is dated in the future of the node's clock",
        "Check the clock of the node and of the machine that signed. The node tries again by itself.",
    ),
    (
        "release_proof",
        "the proof does not show that the release gives this entry to this node",
        "The control plane claims for the node what the release does not say. Publish again; if it stays, do not trust that control plane.",
    ),
    (
        "release_other_root",
        "the set is not the one that the release gives to the node",
        "What was sent was changed on its way, or the control plane's store is damaged. The node keeps what it held and tries again.",
    ),
    (
        "release_malformed",
        "the offer cannot be read",
        "Agent and control plane may be of versions too far apart; upgrade the older one.",
    ),
];

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
            true => "`muster help` lists the verbs; codes stand in errors, such as E012, token_used, no-node"
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
    if let Some((code, title, text)) = REFUSALS.iter().find(|(code, ..)| code.eq_ignore_ascii_case(topic)) {
        return made(code, "a node's refusal of what it is pointed to; nothing changes on it", title, text);
    }
    let of_lists = [
        (MANIFESTS, "a mistake in a manifest; nothing was sent"),
        (OBJECTS, "why an object is not taken; the others are not held up by it"),
        (CONDITIONS, "how synchronization of a node stands"),
    ];
    for (codes, of) in of_lists {
        if let Some((code, title, text)) = codes.iter().find(|(code, ..)| code.eq_ignore_ascii_case(topic)) {
            return made(code, of, title, text);
        }
    }
    match topic {
        "exit" => made("exit", "a topic", "exit codes", &exits()),
        "posture" => made("posture", "a topic", "where the keys that sign intent lie", POSTURE),
        "selectors" => made("selectors", "a topic", "how nodes are named", SELECTORS),
        _ => None,
    }
}

const SELECTORS: &str = "\
Terms stand between commas; put the whole in quotes. Names and groups add up, ! takes away, label= and where: narrow.
web-1.example.com, edge-*, edge-**, /db[0-9]+/: hostnames (* stops at a dot, ** does not), or a node's id.
*: every node. There is no other way to say all.
@group: the members of a group, in fleets whose releases name groups; this version's do not.
!TERM: none of these.
label=value: of these only nodes with this label.
where:EXPR: of these only nodes for which it holds, such as where:traits.os.family == \"debian\"; it takes the rest of the text.
A node of which it cannot be said whether it is meant is not taken.";

const POSTURE: &str = "\
Lab: root.key (signs tokens) or release.key (signs releases) lies in the control plane's directory. Whoever breaks into it then holds the fleet. One command works, which is what a laboratory wants.
Sealed: both lie elsewhere. Move root.key and release.key to the machine that mints tokens and publishes, copy operator.json and enroll.json beside them, keep a backup off line, restart `muster server`. Then publish with `--key release.key --operator operator.json`, mint with `--root-key root.key --enroll enroll.json`, and sign freshness with `muster publish --beacon` more often than the shortest freshness of a channel.";

fn exits() -> String {
    EXITS.iter().map(|(exit, what)| format!("{} {what}.\n", *exit as u8)).collect()
}

fn unknown(topic: &str) -> UnknownTopic {
    let verbs: Vec<String> =
        Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let told = [REFUSALS, MANIFESTS, OBJECTS, CONDITIONS].into_iter().flatten().map(|(code, ..)| *code);
    let all: Vec<&str> = resolve::codes::CODES
        .iter()
        .map(|known| known.code)
        .chain(Code::ALL.iter().map(|code| code.as_str()))
        .chain(told)
        .chain(["exit", "posture", "selectors"])
        .chain(verbs.iter().map(String::as_str))
        .collect();
    UnknownTopic { topic: topic.to_owned(), near: near(topic, &all) }
}

/// What is like a topic: the nearest of all, then those that have it in them.
fn near(topic: &str, all: &[&str]) -> Vec<String> {
    let lower = topic.to_ascii_lowercase().replace('_', "-");
    let like =
        |known: &&&str| lower.len() > 1 && known.to_ascii_lowercase().replace('_', "-").contains(&lower);
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
