//! `muster check`: every mistake of a fleet repo at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lang::{Diagnostics, SourceSpan, Value};
use model::Timestamp;
use resolve::{Fleet, IdleGroup, IdlePattern, IdleRevocation, Resolver, Unevaluated};
use serde::Serialize;

use crate::clock;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::folder::{FolderError, RepoFolder};
use crate::observed;
use crate::publish::PublishError;
use crate::screen::{Screen, plural};

/// The most expressions that need a trait that are shown.
const MAX_SHOWN: usize = 20;

const AFTER: &str = "\
Works offline. What every named node gets is bound as the node binds it, as far as that needs no
observed trait; the expressions that need one are listed. With --traits a node is judged by the traits
of DIR/HOSTNAME.json too: what `muster node traits --out DIR` wrote, or a map of groups as
`muster render --traits` reads it. Ends with 1 when there are mistakes. A group that no node is in, and
a pattern of sync or delegations that matches no declared node, is no mistake, and is named as a warning; so
is a revoked host that no entry matches, a wave that takes no named node, a pin that is over.

Examples:
  muster check
  muster check fleet
  muster check fleet --traits traits
  muster help E012          what a code means";

/// Arguments of `muster check`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct CheckArgs {
    /// The fleet repo
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Judge nodes by the recorded traits of this directory too
    #[arg(long, value_name = "DIR")]
    traits: Option<PathBuf>,
}

/// What is in a fleet repo that is right in every part.
#[derive(Serialize)]
struct Counted<'a> {
    name: &'a str,
    nodes: usize,
    patterns: usize,
    modules: usize,
    channels: usize,
    diagnostics: [(); 0],
    /// What is no mistake, and may be a slip of the pen.
    warnings: Vec<String>,
    /// Nodes that were judged by recorded traits.
    observed: usize,
    /// Expressions that need a trait that only nodes observe.
    unevaluated: Vec<NeedsTrait<'a>>,
}

/// An expression that needs a trait that only nodes observe.
#[derive(Serialize)]
struct NeedsTrait<'a> {
    #[serde(flatten)]
    span: &'a SourceSpan,
    part: &'a str,
    needs: &'a str,
}

#[derive(Serialize)]
struct Mistakes<'a> {
    diagnostics: &'a Diagnostics,
}

/// A fleet repo as it was read: what it means, or what is wrong with it.
pub struct CheckedRepo {
    /// What read it.
    resolver: Resolver,
    /// What it means.
    pub fleet: Result<Arc<Fleet>, Diagnostics>,
}

impl CheckedRepo {
    /// Reports mistakes as every verb does that needs the repo to be right.
    pub(crate) fn broken(&self, diagnostics: &Diagnostics) -> PublishError {
        PublishError::broken(diagnostics, &self.resolver.tree())
    }

    /// Judges nodes by what they observe, by hostname.
    ///
    /// # Errors
    /// Every mistake that shows.
    pub fn observed(&self, traits: &BTreeMap<String, Value>) -> Result<BTreeSet<Unevaluated>, Diagnostics> {
        self.resolver.observed(traits)
    }
}

/// Reads and checks a folder.
///
/// # Errors
/// When it cannot be read; mistakes are no error here.
pub fn read(folder: &mut RepoFolder) -> Result<CheckedRepo, FolderError> {
    let mut resolver = Resolver::new();
    let fleet = resolver.update(folder.scan()?).map(|(fleet, _)| fleet);
    Ok(CheckedRepo { resolver, fleet })
}

/// Reads a fleet repo that has to be right; its mistakes are reported.
///
/// # Errors
/// When it cannot be read, or has mistakes.
pub fn fleet(dir: &Path) -> Result<Arc<Fleet>, Failure> {
    let checked = read(&mut RepoFolder::open(dir)?)?;
    match &checked.fleet {
        Ok(fleet) => Ok(Arc::clone(fleet)),
        Err(diagnostics) => Err(checked.broken(diagnostics).into()),
    }
}

/// Does the verb.
///
/// # Errors
/// When the folder cannot be read.
pub fn run(args: &CheckArgs, screen: Screen) -> Result<Exit, Failure> {
    let checked = read(&mut RepoFolder::open(&args.dir)?)?;
    let traits = args.traits.as_deref().map(observed::of_directory).transpose()?;
    // Asked once: what is counted from the signature reads the same wherever it shows.
    let now = clock::now();
    let right = checked.fleet.as_ref().map_err(Clone::clone).and_then(|fleet| {
        let observed = traits.as_ref().map(|traits| checked.observed(traits)).transpose()?;
        // Nodes of patterns are known to the control plane alone.
        let rollouts = fleet.rollouts(now, [])?;
        Ok((fleet, observed, rollouts))
    });
    match &right {
        Ok((fleet, observed, rollouts)) => {
            let warned = rollouts.iter().flat_map(|rollout| rollout.warnings.iter().cloned()).collect();
            right_in_every_part(fleet, traits.as_ref(), observed.as_ref(), warned, screen)
        }
        Err(diagnostics) => {
            let diagnostics = &all_mistakes(diagnostics, &checked.resolver, now);
            screen.result(&Mistakes { diagnostics }, || {
                let text = resolve::render(diagnostics, &checked.resolver.tree());
                let end = plural(diagnostics.len(), "mistake");
                format!("{text}\n{end}; `muster help CODE` explains a code\n")
            })?;
            Ok(Exit::Error)
        }
    }
}

/// The mistakes with what is wrong with the times of rollouts, which show also where other things are wrong.
fn all_mistakes(found: &Diagnostics, resolver: &Resolver, now: Timestamp) -> Diagnostics {
    let times = resolver.mistaken_times(now);
    if times.is_empty() || found.len() >= resolve::MAX_SHOWN {
        return found.clone();
    }
    let mut all: Diagnostics = found.iter().cloned().chain(times).collect();
    all.sort_by(|a, b| (&a.span, a.code, &a.message).cmp(&(&b.span, b.code, &b.message)));
    all.dedup();
    all
}

fn right_in_every_part(
    fleet: &Fleet,
    traits: Option<&BTreeMap<String, Value>>,
    observed: Option<&BTreeSet<Unevaluated>>,
    warned: Vec<String>,
    screen: Screen,
) -> Result<Exit, Failure> {
    let specialized = fleet.specialize();
    let names = || traits.into_iter().flat_map(BTreeMap::keys);
    let is_node = |name: &&String| specialized.node(name).is_some();
    let strangers = names().filter(|name| !is_node(name));
    let strangers = strangers.map(|name| format!("the traits of {name} are of no node of this fleet"));
    let mut warnings: Vec<String> = fleet.idle_groups().iter().map(IdleGroup::to_string).collect();
    warnings.extend(fleet.idle_patterns().iter().map(IdlePattern::to_string));
    warnings.extend(fleet.idle_revocations().iter().map(IdleRevocation::to_string));
    warnings.extend(fleet.idle_probes());
    warnings.extend(warned);
    warnings.extend(strangers);
    let counted = Counted {
        name: fleet.name(),
        nodes: specialized.exact.size(),
        patterns: specialized.patterns.len(),
        modules: specialized.modules.len(),
        channels: specialized.channels.len(),
        diagnostics: [],
        warnings,
        observed: names().filter(is_node).count(),
        unevaluated: observed.unwrap_or(fleet.unevaluated()).iter().map(needs).collect(),
    };
    Ok(screen.result(&counted, || text(&counted, traits.is_some()))?)
}

fn needs(unevaluated: &Unevaluated) -> NeedsTrait<'_> {
    let Unevaluated { span, part, observed } = unevaluated;
    NeedsTrait { span, part: part.trim_end_matches([':', ' ']), needs: observed }
}

fn text(counted: &Counted<'_>, by_traits: bool) -> String {
    let Counted { name, nodes, patterns, modules, channels, .. } = counted;
    let counts = [
        plural(*nodes, "named node"),
        plural(*patterns, "pattern"),
        plural(*modules, "module"),
        plural(*channels, "channel"),
    ];
    let mut out: String = counted.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    out.push_str(&format!("fleet {name} is right: {}\n", counts.join(", ")));
    if by_traits {
        out.push_str(&format!("{} judged by recorded traits\n", plural(counted.observed, "node")));
    }
    let unevaluated = &counted.unevaluated;
    if unevaluated.is_empty() {
        return out;
    }
    let count = plural(unevaluated.len(), "expression");
    out.push_str(&format!("not evaluated here, for want of a trait that only nodes observe: {count}\n"));
    for NeedsTrait { span: SourceSpan { file, line, column, .. }, part, needs } in
        unevaluated.iter().take(MAX_SHOWN)
    {
        let part = if part.is_empty() { String::new() } else { format!("{part}: ") };
        out.push_str(&format!("  {file}:{line}:{column}  {part}{needs}\n"));
    }
    if unevaluated.len() > MAX_SHOWN {
        out.push_str(&format!("  and {} more (--json has all)\n", unevaluated.len() - MAX_SHOWN));
    }
    out
}

#[cfg(test)]
mod tests {
    use resolve::Tree;

    use super::*;

    /// CFG-1: a mistake of times that shows with the whole fleet shows once.
    #[test]
    fn a_mistake_of_times_is_shown_once() -> Result<(), Box<dyn std::error::Error>> {
        let rollouts = "rollouts:\n  stable:\n    waves:\n      - {name: a, percent: 10, notBefore: +48h}\n      \
                        - {name: b, percent: 20, notBefore: +24h}\n";
        let files = [
            (
                "fleet.yaml",
                "format: 1\nname: acme\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n",
            ),
            ("nodes.yaml", "nodes:\n  - match: [web-1.example.com]\n"),
            ("rollouts.yaml", rollouts),
        ];
        let mut resolver = Resolver::new();
        let changes = Tree::of(files).files.into_iter().map(|(path, file)| (path, Some(file)));
        let (fleet, _) = resolver.update(changes.collect()).map_err(|found| format!("{found:?}"))?;
        let now = Timestamp::from_secs(1_800_000_000);
        let found = fleet.rollouts(now, []).err().ok_or("the second wave is before the first")?;
        assert_eq!(all_mistakes(&found, &resolver, now), found);
        assert_eq!(found.iter().map(|mistake| mistake.code).collect::<Vec<_>>(), ["E112"]);
        Ok(())
    }
}
