//! [`allows`]: whether the delegations of a release allow what the control plane asks for.
//!
//! The control plane asks here before it takes a task in, and the node asks here, with the
//! delegations of the release that it holds, before it begins one; the node's answer counts
//! (OPS-2, LIF-5). Pure: what is allowed follows from the two arguments alone.

pub mod argument;
mod words;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::work::{ActionSpec, Delegation, MAX_ARGS, MAX_TIMEOUT_SECS, QuerySpec, Work};

pub use argument::TextError;
pub use words::{SplitError, permits, show, split};

/// The most delegations of one fleet.
pub const MAX_DELEGATIONS: usize = 100;
/// The most commands, or actions, of one delegation, and the most patterns of a file query.
pub const MAX_ITEMS: usize = 256;
/// The last item of a command that stands for any further arguments.
pub const REST: &str = "**";
/// What may be asked, in the words of [`Work::Query`].
pub const QUERIES: [&str; 5] = ["traits", "processes", "listeners", "disks", "file"];
/// The most characters of a name or a path that a refusal repeats.
const MAX_SHOWN: usize = 100;

/// What is allowed, ready to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permitted {
    /// The program and its arguments, an action's filled in; empty for a query. To be run as
    /// it is, never by a shell.
    pub argv: Vec<String>,
    /// The file that a query is of: absolute, without `.`, `..` or `//`. A link on its way is
    /// not to be followed, or what it leads to is to be asked for anew.
    pub path: Option<String>,
    /// The longest time that it may take, in seconds; an order may ask for less.
    pub timeout_secs: u64,
    /// The delegation that allows it, by its position.
    pub by: usize,
}

/// Why no delegation allows it. Repeats no argument's value: it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDelegated {
    /// There is no delegation.
    #[error("no release delegates anything to the control plane here")]
    Nothing,
    /// No command with this program.
    #[error("no delegation allows to run {0:?}")]
    Program(String),
    /// The program is allowed, and not with these arguments.
    #[error("{0:?} is delegated, but not with these arguments")]
    Arguments(String),
    /// An operation on an object.
    #[error("no delegation allows operations on objects; `sync` of a release does")]
    Operation,
    /// There is no program.
    #[error("the command is empty")]
    Empty,
    /// More than [`MAX_ARGS`].
    #[error("a command has at most {MAX_ARGS} arguments")]
    TooMany,
    /// An argument that no pattern takes.
    #[error("argument {position} cannot be: {source}")]
    Text {
        /// Which, counted from 1 after the program; 0 is the program.
        position: usize,
        /// What is wrong with it.
        source: TextError,
    },
    /// No action of that name.
    #[error("no delegation has an action {0:?}")]
    Action(String),
    /// An argument that the action needs is not given.
    #[error("action {action:?} needs the argument {argument:?}")]
    Missing {
        /// The action.
        action: String,
        /// The argument.
        argument: String,
    },
    /// An argument is given that the action does not have.
    #[error("action {action:?} has no argument {argument:?}")]
    Unknown {
        /// The action.
        action: String,
        /// The argument.
        argument: String,
    },
    /// An argument does not match its pattern.
    #[error(
        "argument {argument:?} of action {action:?} does not match `{pattern}` (or begins with -, or climbs with ..)"
    )]
    Argument {
        /// The action.
        action: String,
        /// The argument.
        argument: String,
        /// What it is to match.
        pattern: String,
    },
    /// An action's command cannot be filled in; no release that was checked has one.
    #[error("action {0:?} is declared wrongly")]
    Broken(String),
    /// No delegation allows the query.
    #[error("no delegation allows the query {0:?}")]
    Query(String),
    /// A query of files without a path, or another one with it.
    #[error("only the query `file` has a path, and it needs one")]
    Path,
    /// The path of a query is none.
    #[error("the path cannot be asked for: {0}")]
    BadPath(#[source] TextError),
    /// No delegation allows the file.
    #[error("no delegation allows to read {0:?}")]
    File(String),
}

/// Whether delegations that count together allow a piece of work, and as what it is done.
///
/// # Errors
/// [`NotDelegated`] says why not.
pub fn allows(delegations: &[Delegation], work: &Work) -> Result<Permitted, NotDelegated> {
    if delegations.is_empty() {
        return Err(NotDelegated::Nothing);
    }
    match work {
        Work::Command { argv } => command(delegations, argv),
        Work::Action { name, args } => action(delegations, name, args),
        Work::Query { what, path } => query(delegations, what, path.as_deref()),
        Work::Operation { .. } => Err(NotDelegated::Operation),
    }
}

fn command(delegations: &[Delegation], argv: &[String]) -> Result<Permitted, NotDelegated> {
    let program = argv.first().ok_or(NotDelegated::Empty)?;
    if argv.len() > MAX_ARGS {
        return Err(NotDelegated::TooMany);
    }
    let plain = |(position, text): (usize, &String)| {
        argument::plain(text).map_err(|source| NotDelegated::Text { position, source })
    };
    argv.iter().enumerate().try_for_each(plain)?;
    let taking = |delegation: &Delegation| delegation.commands.iter().any(|patterns| takes(patterns, argv));
    let Some((by, timeout_secs)) = longest(delegations, taking) else {
        let mut all = delegations.iter().flat_map(|delegation| &delegation.commands);
        let known = all.any(|patterns| patterns.first().is_some_and(|first| is_program(first, program)));
        let shown = shortened(program);
        return Err(if known { NotDelegated::Arguments(shown) } else { NotDelegated::Program(shown) });
    };
    Ok(Permitted { argv: argv.to_vec(), path: None, timeout_secs, by })
}

/// Whether a command is one of those that a list of patterns stands for.
fn takes(patterns: &[String], argv: &[String]) -> bool {
    let (Some((first, patterns)), Some((program, arguments))) = (patterns.split_first(), argv.split_first())
    else {
        return false;
    };
    let (patterns, open) = match patterns.split_last() {
        Some((last, before)) if last == REST => (before, true),
        _ => (patterns, false),
    };
    let enough = if open { arguments.len() >= patterns.len() } else { arguments.len() == patterns.len() };
    enough
        && is_program(first, program)
        && patterns.iter().zip(arguments).all(|(pattern, argument)| argument::fits(pattern, argument))
}

/// A program is an absolute path with nothing to resolve in it; `**` in its pattern is refused.
fn is_program(pattern: &str, program: &str) -> bool {
    let tidy = argument::tidy_path(program).is_ok_and(|tidy| tidy == program);
    tidy && !pattern.contains(REST) && argument::path_fits(pattern, program)
}

fn action(
    delegations: &[Delegation],
    name: &str,
    args: &BTreeMap<String, String>,
) -> Result<Permitted, NotDelegated> {
    let mut why = NotDelegated::Action(shortened(name));
    let mut filled: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (position, delegation) in delegations.iter().enumerate() {
        let Some(spec) = delegation.actions.get(name) else { continue };
        match fill(name, spec, args) {
            Ok(argv) => drop(filled.insert(position, argv)),
            Err(error) => why = error,
        }
    }
    let fits = delegations.iter().enumerate().filter(|(position, _)| filled.contains_key(position));
    let timed = fits.map(|(position, delegation)| {
        let own = delegation.actions.get(name).and_then(|spec| spec.timeout_secs);
        (position, own.unwrap_or(u64::MAX).min(limit(delegation)))
    });
    let Some((by, timeout_secs)) = timed.min_by_key(|(position, secs)| (Reverse(*secs), *position)) else {
        return Err(why);
    };
    let argv = filled.remove(&by).ok_or(why)?;
    Ok(Permitted { argv, path: None, timeout_secs, by })
}

/// An action's command with its arguments filled in.
fn fill(name: &str, spec: &ActionSpec, args: &BTreeMap<String, String>) -> Result<Vec<String>, NotDelegated> {
    let action = || shortened(name);
    if let Some(unknown) = args.keys().find(|argument| !spec.args.contains_key(*argument)) {
        return Err(NotDelegated::Unknown { action: action(), argument: shortened(unknown) });
    }
    for (argument, pattern) in &spec.args {
        let Some(value) = args.get(argument) else {
            return Err(NotDelegated::Missing { action: action(), argument: argument.clone() });
        };
        if !argument::fits(pattern, value) {
            let (argument, pattern) = (argument.clone(), pattern.clone());
            return Err(NotDelegated::Argument { action: action(), argument, pattern });
        }
    }
    let text = |part: &String| match placeholder(part) {
        Some(argument) => args.get(argument).cloned().ok_or_else(|| NotDelegated::Broken(action())),
        None => Ok(part.clone()),
    };
    let argv: Vec<String> = spec.command.iter().map(text).collect::<Result<_, _>>()?;
    let literal = |program: &String| is_program(program, program) && !argument::has_wildcard(program);
    if spec.command.first().is_some_and(literal) && argv.len() <= MAX_ARGS {
        Ok(argv)
    } else {
        Err(NotDelegated::Broken(action()))
    }
}

/// The name in `{name}`, when that is the whole of an action's argument.
pub fn placeholder(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix('{')?.strip_suffix('}')?;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(fits)).then_some(name)
}

fn query(delegations: &[Delegation], what: &str, path: Option<&str>) -> Result<Permitted, NotDelegated> {
    if path.is_some() != (what == "file") {
        return Err(NotDelegated::Path);
    }
    let path = path.map(argument::tidy_path).transpose().map_err(NotDelegated::BadPath)?;
    let asks = |spec: &QuerySpec| match (spec, &path) {
        (QuerySpec::File { paths }, Some(path)) => {
            paths.iter().any(|pattern| argument::path_fits(pattern, path))
        }
        (spec, None) => name_of(spec) == what,
        (_, Some(_)) => false,
    };
    match (longest(delegations, |delegation| delegation.queries.iter().any(asks)), path) {
        (Some((by, timeout_secs)), path) => Ok(Permitted { argv: Vec::new(), path, timeout_secs, by }),
        (None, Some(path)) => Err(NotDelegated::File(shortened(&path))),
        (None, None) => Err(NotDelegated::Query(shortened(what))),
    }
}

/// The name of a query.
pub fn name_of(query: &QuerySpec) -> &'static str {
    match query {
        QuerySpec::Traits => "traits",
        QuerySpec::Processes => "processes",
        QuerySpec::Listeners => "listeners",
        QuerySpec::Disks => "disks",
        QuerySpec::File { .. } => "file",
    }
}

/// The longest time that a delegation allows.
fn limit(delegation: &Delegation) -> u64 {
    delegation.timeout_secs.unwrap_or(MAX_TIMEOUT_SECS).min(MAX_TIMEOUT_SECS)
}

/// Of the delegations that allow it the first that allows the longest time.
fn longest(delegations: &[Delegation], allow: impl Fn(&Delegation) -> bool) -> Option<(usize, u64)> {
    let allowing = delegations.iter().enumerate().filter(|(_, delegation)| allow(delegation));
    let timed = allowing.map(|(position, delegation)| (position, limit(delegation)));
    timed.min_by_key(|(position, secs)| (Reverse(*secs), *position))
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
