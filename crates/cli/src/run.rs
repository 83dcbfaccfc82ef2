//! `muster run`: what runs did, resource by resource.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use model::delta::render_edit;
use model::exchange::TraitReport;
use model::report::{MAX_ITEMS, PartialRun};
use model::{Action, NodeId, ResourceReport, RunCounts, RunReport};
use server::api::{self, History};
use store::RunRecord;

use crate::clock::{ago, now};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::object::known;
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{Mark, Screen, plural, tally};
use crate::table::table;

const AFTER: &str = "\
Only runs that differed from the one before are kept; an unchanged run is a line in no log.

Examples:
  muster run list
  muster run list --node web-1.example.com
  muster run show                       the newest run of all
  muster run show web-1.example.com     the newest run of one node
  muster run show web-1.example.com --fact 12";

/// Arguments of `muster run`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RunArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: RunVerb,
}

#[derive(Debug, Subcommand)]
enum RunVerb {
    /// List runs, newest first
    List {
        /// Only of this node
        #[arg(long)]
        node: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show what a run did
    Show {
        /// Of this node; else the newest of all
        node: Option<String>,
        /// The run with this number in the node's log; else the newest
        #[arg(long)]
        fact: Option<u64>,
    },
}

/// There is no such run.
#[derive(Debug, thiserror::Error)]
#[error("there is no such run")]
struct NoRun;

impl UserError for NoRun {
    fn hint(&self) -> Option<String> {
        Some("`muster run list` shows those that are kept; an unchanged run is not".to_owned())
    }
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, or there is no such run.
pub async fn run(args: &RunArgs, screen: Screen) -> Result<Exit, Failure> {
    let operator = args.connect.dial().await?;
    match &args.what {
        RunVerb::List { node, limit } => {
            let limit = usize::from(*limit).into();
            let request = History { node: node.clone(), before: None, limit };
            let runs = operator.call(&api::RUNS, request).await?;
            let names = names(&operator, &runs).await?;
            screen.result(&runs, || list(&runs, &names, screen))?;
        }
        RunVerb::Show { node, fact } => {
            let limit = if fact.is_some() { 1000 } else { 1 }.into();
            let request = History { node: node.clone(), before: None, limit };
            let runs = operator.call(&api::RUNS, request).await?;
            let run = runs.into_iter().find(|run| fact.is_none_or(|fact| run.seq == fact)).ok_or(NoRun)?;
            // A removed node's runs stay.
            let node = known(operator.call(&api::NODE, run.node.as_str()).await)?;
            let name = node.map_or_else(|| run.node.to_string(), |node| node.hostname.to_string());
            let traits = match run.report.counts.failed {
                0 => None,
                _ => known(operator.call(&api::TRAITS, run.node.as_str()).await)?.flatten(),
            };
            screen.result(&run, || show(&run, &name, traits.as_ref(), screen))?;
        }
    }
    Ok(Exit::Ok)
}

/// The hostnames of the nodes of these runs, as far as they are enrolled.
async fn names(
    operator: &Operator,
    runs: &[RunRecord],
) -> Result<BTreeMap<NodeId, String>, OperatorCallError> {
    let mut names = BTreeMap::new();
    for run in runs {
        if !names.contains_key(&run.node)
            && let Some(node) = known(operator.call(&api::NODE, run.node.as_str()).await)?
        {
            names.insert(node.id, node.hostname.to_string());
        }
    }
    Ok(names)
}

/// A run's totals in words; what is zero is left out.
pub fn counts(counts: &RunCounts) -> String {
    let text = tally([
        (counts.failed as usize, "failed"),
        (counts.changed as usize, "changed"),
        (counts.would_change as usize, "would change"),
        (counts.skipped as usize, "skipped"),
        (counts.ok as usize, "ok"),
    ]);
    if text.is_empty() { "nothing to do".to_owned() } else { text }
}

/// What a run came to, and what it was about where that was not all of the set.
pub fn outcome(report: &RunReport) -> String {
    let about = match &report.partial {
        None => String::new(),
        Some(PartialRun::Tags(tags)) => format!(" (only {})", tags.join(", ")),
        // A handler that they notify counts beside them.
        Some(PartialRun::Resources(count)) => {
            format!(" (only {} and what they notify)", plural(*count as usize, "resource"))
        }
    };
    let unknown = match report.unknown_tags.is_empty() {
        true => String::new(),
        false => format!("; no resource is tagged {}", report.unknown_tags.join(" or ")),
    };
    counts(&report.counts) + &about + &unknown
}

fn list(runs: &[RunRecord], names: &BTreeMap<NodeId, String>, screen: Screen) -> String {
    let now = now();
    let row = |run: &RunRecord| {
        let report = &run.report;
        let outcome = outcome(report);
        let marked = if report.counts.failed > 0 { screen.mark(Mark::Bad, &outcome) } else { outcome };
        [
            format!("{} ago", ago(run.at, now)),
            names.get(&run.node).cloned().unwrap_or_else(|| run.node.to_string()),
            run.seq.to_string(),
            report.seq.to_string(),
            why(report).0.to_owned(),
            format!("{} ms", report.duration_ms),
            marked,
        ]
    };
    table(&["WHEN", "NODE", "FACT", "RELEASE", "CHANGES", "TOOK", "CAME TO"], runs.iter().map(row))
}

fn why(report: &RunReport) -> (&'static str, &'static str) {
    match (report.counts.changed, report.intended) {
        (0, _) => ("none", "changed nothing"),
        (_, true) => ("intended", "the changes were intended: the set was new"),
        (_, false) => ("drift put right", "drift: the host had left what is declared, and was put right"),
    }
}

/// By what a reboot of the node is required, if one is.
pub(crate) fn reboot_required(traits: &TraitReport) -> Option<String> {
    let kernel = traits.values.get("kernel")?;
    kernel.get("reboot_required")?.as_bool().filter(|required| *required)?;
    let packages = kernel.get("reboot_packages").and_then(|packages| packages.as_array());
    let newer = kernel.get("newer").and_then(|newer| newer.as_str()).filter(|newer| !newer.is_empty());
    let newer = newer.map(|release| format!("the newer kernel {release}"));
    let packages = packages.into_iter().flatten().filter_map(|name| name.as_str()).map(str::to_owned);
    let named: Vec<String> = newer.into_iter().chain(packages).collect();
    Some(if named.is_empty() { "a package that left no name".to_owned() } else { named.join(", ") })
}

/// What a failure may have to do with, in one line.
fn machine(traits: &TraitReport) -> String {
    let of = |group: &str, name: &str| {
        let value = traits.values.get(group)?.get(name)?;
        value.as_str().map(str::to_owned).or_else(|| Some(value.to_string()))
    };
    let system =
        [of("os", "distro"), of("os", "version")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let full = traits.values.get("mounts").and_then(|mounts| mounts.get("nearly_full")?.as_array());
    let full: Vec<&str> = full.into_iter().flatten().filter_map(|path| path.as_str()).collect();
    let reboot = of("kernel", "reboot_required").filter(|required| required == "true");
    let parts = [
        Some(system),
        of("kernel", "release").map(|release| format!("kernel {release}")),
        of("os", "arch"),
        of("virtualization", "kind").filter(|kind| kind != "none"),
        reboot.map(|_| "a reboot is required".to_owned()),
        (!full.is_empty()).then(|| format!("nearly full: {}", full.join(" "))),
    ];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// One run for people; `traits` are those that its node showed last, where something failed.
pub fn show(run: &RunRecord, node: &str, traits: Option<&TraitReport>, screen: Screen) -> String {
    let report = &run.report;
    let traits = traits.map(|traits| format!("traits  {}\n", machine(traits))).unwrap_or_default();
    let mut out = format!(
        "{node}  run of {} (fact {})  release {}  set {}\n{}{}; {}; took {} ms\n{traits}\n",
        report.started,
        run.seq,
        report.seq,
        report.root.short(),
        outcome(report),
        beside_totals(report),
        why(report).1,
        report.duration_ms,
    );
    if let Some(pause) = &report.paused {
        let text =
            format!("paused on the host since {}, so it only observed: {}\n\n", pause.since, pause.reason);
        out.push_str(&screen.mark(Mark::Bad, &text));
    }
    for item in &report.items {
        resource(&mut out, item, screen);
    }
    let listed = report.items.iter().filter(|item| item.action != Action::Ignored).count();
    let RunCounts { changed, failed, skipped, would_change, .. } = report.counts;
    let all = [changed, failed, skipped, would_change].into_iter().map(|count| count as usize).sum::<usize>();
    if all > listed {
        out.push_str(&format!(
            "... and {} more that are not listed: a report names {MAX_ITEMS}\n",
            all - listed
        ));
    }
    out
}

/// What is listed and not among the totals, so that list and totals agree.
fn beside_totals(report: &RunReport) -> String {
    let ignored = report.items.iter().filter(|item| item.action == Action::Ignored).count();
    if ignored == 0 { String::new() } else { format!(", {ignored} failed and ignored") }
}

fn resource(out: &mut String, item: &ResourceReport, screen: Screen) {
    let (word, mark) = match item.action {
        Action::Ok => ("ok", Mark::Good),
        Action::Changed => ("changed", Mark::Good),
        Action::Failed => ("failed", Mark::Bad),
        Action::Ignored => ("failed, ignored", Mark::Warn),
        Action::Skipped => ("skipped", Mark::Dim),
        Action::WouldChange => ("would change", Mark::Warn),
        Action::Unknown => ("outcome unknown", Mark::Warn),
        Action::Restored => ("restored", Mark::Warn),
        Action::Deleted => ("deleted", Mark::Warn),
    };
    let head = format!("{}  {}", screen.mark(mark, word), item.resource);
    match &item.edit {
        Some(edit) => {
            let mut text = String::new();
            render_edit(&mut text, &head, edit);
            out.push_str(&text);
        }
        None => out.push_str(&format!("  {head}\n")),
    }
    if let Some(reason) = &item.reason {
        out.push_str(&format!("    {}\n", reason.replace('\n', "\n    ")));
    }
}
