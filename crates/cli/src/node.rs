//! `muster node`: list, show, approve, deny, traits, remove, revoke, replace, run, facts.

mod failed_joins;
mod joins;
mod replace;
mod revoke;
pub mod run;
pub mod traits;
pub mod wait;

use std::path::PathBuf;
use std::time::Duration;

use catalog::duration;
use clap::{Args, Subcommand};
use model::exchange::HeldFreshness;
use model::log::FactBody;
use model::status::{Drift, Enforcement};
use model::text::same_cause;
use model::time::when;
use model::{CertificateState, Contention, KeyConfirmation, Timestamp};
use serde::Serialize;
use server::api::objects::{SYNC, SyncView};
use server::api::{self, History, NodeView};
use store::FactRecord;

use self::joins::JoinChoice;
use self::replace::ReplaceArgs;
use self::revoke::RevokeArgs;
use crate::clock::{ago, now, short};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::listing::PagedTable;
use crate::object::{self, known};
use crate::run::{counts, outcome};
use crate::screen::{Mark, Screen};
use crate::status::mark;
use crate::table::table;
use crate::whom::NAMING_HINT;

const AFTER: &str = "\
A PATTERN is a hostname, a glob (* stops at a dot, ** does not) or a /regular expression/.

Examples:
  muster node list
  muster node list 'web-*.example.com'
  muster node list 'rack=r1'
  muster node show web-1.example.com
  muster node traits 'web-**' --out traits      what muster check --traits reads
  muster node facts web-1.example.com
  muster node run 'web-**' --yes      run now, not at the next contact
  muster node run 'web-**' --tags nginx,tls --yes
  muster node run web-1.example.com --wait 2m     ends with 3 when it failed or is late
  muster node remove web-1.example.com
  muster node revoke web-1.example.com --repo fleet --why 'stolen from the rack'
  muster node replace web-1.example.com           a token for the host that was reinstalled
  muster node list --failed-joins
  muster node list --pending          hosts that ask to join, with their keys
  muster node approve web-2.example.com
  muster node deny SHA256:...";

/// Arguments of `muster node`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct NodeArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: NodeVerb,
}

#[derive(Debug, Subcommand)]
enum NodeVerb {
    /// List nodes with their state
    List {
        /// Only those whose hostname matches
        #[arg(conflicts_with = "failed_joins")]
        pattern: Option<String>,
        /// Instead: hosts that could not join, and why, by their own word
        #[arg(long, conflicts_with_all = ["pattern", "pending"])]
        failed_joins: bool,
        /// Hosts that ask to join instead, and those that were denied
        #[arg(long, conflicts_with = "pattern")]
        pending: bool,
    },
    /// Let a host in that asks to join
    Approve {
        /// Hostname, id or fingerprint
        name: String,
        /// Instead: two hosts held this node's key, and one alone does from now on
        #[arg(long)]
        copy_resolved: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Refuse a host that asks to join, until it is forgotten
    Deny {
        /// Hostname, id or fingerprint
        name: String,
        /// Instead: forget its key, which may ask anew then
        #[arg(long)]
        forget: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Write what nodes observe of themselves into a directory, for `check --traits` and `render --traits`
    Traits {
        /// Only those whose hostname matches
        pattern: Option<String>,
        /// The directory; a file HOSTNAME.json each
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Show one node on all axes
    Show {
        /// Hostname or id
        node: String,
    },
    /// Remove a node: its certificate opens nothing any more; the host stays as it is
    Remove {
        /// Hostname or id
        node: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Revoke a host: what was issued for it before now counts no more, and it is cut off at once
    Revoke(RevokeArgs),
    /// Mint a token with which a reinstalled host takes the place of the node that it was
    Replace(ReplaceArgs),
    /// Request that nodes run now
    Run {
        /// Which nodes
        pattern: String,
        /// Only resources with one of these tags, and what they notify
        #[arg(long, value_name = "TAG,...", value_delimiter = ',')]
        tags: Vec<String>,
        /// Wait this long until they ran, and say what it came to [default: request it and end]
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<u32>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List what a node's log says, newest first
    Facts {
        /// Hostname or id
        node: String,
        /// At most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
}

/// What is listed of a node.
const COLUMNS: [&str; 6] = ["NODE", "STATE", "CHANNEL", "RELEASE", "SEEN", "CAUSE"];

/// Nothing matches.
#[derive(Debug, thiserror::Error)]
#[error("no enrolled node matches {0:?}")]
struct NoNode(String);

impl UserError for NoNode {
    fn hint(&self) -> Option<String> {
        Some(NAMING_HINT.to_owned())
    }
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, or refuses.
pub async fn run(args: &NodeArgs, screen: Screen) -> Result<Exit, Failure> {
    let operator = args.connect.dial().await?;
    match &args.what {
        NodeVerb::Traits { pattern, out } => {
            return traits::keep(&operator, pattern.as_deref(), out, screen).await;
        }
        NodeVerb::List { failed_joins: true, .. } => return failed_joins::list(&operator, screen).await,
        NodeVerb::List { pending: true, .. } => return joins::list(&operator, screen).await,
        NodeVerb::Approve { name, copy_resolved: true, yes } => {
            return joins::resolve_copy(&operator, name, *yes, screen).await;
        }
        NodeVerb::Approve { name, copy_resolved: false, yes } => {
            return joins::decide(&operator, name, JoinChoice::Approve, *yes, screen).await;
        }
        NodeVerb::Deny { name, forget, yes } => {
            let choice = if *forget { JoinChoice::Forget } else { JoinChoice::Deny };
            return joins::decide(&operator, name, choice, *yes, screen).await;
        }
        NodeVerb::List { pattern, .. } => {
            let mut listing = PagedTable::new(screen, &COLUMNS);
            let mut pages = operator.pages(&api::NODES, pattern.as_deref());
            while let Some(page) = pages.next().await? {
                listing.page(&page.nodes, |node| row(node, screen))?;
            }
            if let Some(pattern) = pattern.as_ref().filter(|_| listing.is_empty()) {
                return Err(NoNode(pattern.clone()).into());
            }
            listing.end()?;
        }
        NodeVerb::Revoke(revoke) => return revoke::run(revoke, &args.connect, &operator, screen).await,
        NodeVerb::Replace(replace) => return replace::run(replace, &args.connect, &operator, screen).await,
        NodeVerb::Show { node } => {
            let node = operator.call(&api::NODE, node.as_str()).await?;
            let answer = operator.call(&SYNC, Some(node.hostname.as_str())).await;
            let sync = known(answer)?.and_then(|page| page.nodes.into_iter().next());
            let traits = known(operator.call(&api::TRAITS, node.hostname.as_str()).await)?.flatten();
            let reboot_required = traits.as_ref().and_then(crate::run::reboot_required);
            let agent_too_old = run::agent_too_old(&node, traits.as_ref());
            let whole = NodeReport { node, sync, reboot_required, agent_too_old };
            screen.result(&whole, || show(&whole, screen))?;
        }
        NodeVerb::Remove { node, yes } => {
            let view = operator.call(&api::NODE, node.as_str()).await?;
            let what =
                format!("{} ({}) will be removed; it must join anew to come back", view.hostname, view.id);
            screen.confirm(&what, *yes)?;
            let removed = operator.call(&api::REMOVE_NODE, view.id.as_str()).await?;
            screen.result(&removed, || {
                format!("{} is removed; the host keeps its state\n", removed.hostname)
            })?;
        }
        NodeVerb::Run { pattern, tags, wait, yes } => {
            let wait = wait.map(|secs| Duration::from_secs(u64::from(secs)));
            return run::request(&operator, pattern, tags, wait, *yes, screen).await;
        }
        NodeVerb::Facts { node, limit } => {
            let limit = usize::from(*limit).into();
            let request = History { node: Some(node.clone()), before: None, limit };
            let facts = operator.call(&api::FACTS, request).await?;
            screen.result(&facts, || facts_text(&facts))?;
        }
    }
    Ok(Exit::Ok)
}

/// Nodes as a table.
pub fn list(nodes: &[NodeView], screen: Screen) -> String {
    table(&COLUMNS, nodes.iter().map(|node| row(node, screen)))
}

/// A node as a row under [`COLUMNS`].
fn row(node: &NodeView, screen: Screen) -> [String; COLUMNS.len()] {
    [
        node.hostname.to_string(),
        screen.mark(mark(node.state), &node.state.to_string()),
        node.channel.as_ref().map(ToString::to_string).unwrap_or_default(),
        release(node),
        node.last_seen.map_or_else(|| "never".to_owned(), |seen| format!("{} ago", ago(seen, now()))),
        node.cause.clone().unwrap_or_default(),
    ]
}

/// The release held, and the one pointed to when that is another.
fn release(node: &NodeView) -> String {
    let held = node.held.as_ref().map(|held| held.seq);
    match (held, node.pointed_seq) {
        (Some(held), Some(pointed)) if held != pointed => format!("{held} -> {pointed}"),
        (Some(held), _) => held.to_string(),
        (None, Some(pointed)) => format!("- -> {pointed}"),
        (None, None) => "-".to_owned(),
    }
}

/// A node and how synchronization with it fares.
#[derive(Serialize)]
struct NodeReport {
    #[serde(flatten)]
    node: NodeView,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<SyncView>,
    /// By what a reboot is required, as the node showed last.
    #[serde(rename = "rebootRequired", skip_serializing_if = "Option::is_none")]
    reboot_required: Option<String>,
    /// A run by tag is requested, and the agent does not know that.
    #[serde(rename = "agentTooOld", skip_serializing_if = "std::ops::Not::not")]
    agent_too_old: bool,
}

/// What is known of a node, a row each.
type Rows = Vec<(&'static str, String)>;

fn show(whole: &NodeReport, screen: Screen) -> String {
    let (node, now) = (&whole.node, now());
    let mut rows = how_it_is(node, now, screen);
    rows.extend(what_its_agent_is(node, now, screen));
    rows.extend(what_it_holds(node, now, screen));
    rows.extend(how_it_ran(node, now));
    rows.extend(what_waits_for_it(whole, screen));
    rows.extend(whole.sync.iter().flat_map(|sync| object::one(sync, screen)));
    // What a node says keeps to its field.
    let field = |value: &str| value.trim_end().replace('\n', "\n          ");
    rows.iter().map(|(name, value)| format!("{name:<9} {}\n", field(value))).collect()
}

fn how_it_is(node: &NodeView, now: Timestamp, screen: Screen) -> Rows {
    let mut rows = vec![
        ("node", node.hostname.to_string()),
        ("id", node.id.to_string()),
        ("key", node.fingerprint.clone()),
        ("state", screen.mark(mark(node.state), &node.state.to_string())),
    ];
    if let Some(cause) = &node.cause {
        let since = node.since.map(|since| format!(" (since {})", ago(since, now))).unwrap_or_default();
        rows.push(("cause", format!("{cause}{since}")));
        if let Some(others) = node.same_cause {
            rows.push(("", same_cause(others)));
        }
    }
    let status = &node.status;
    let paused = match status.enforcement {
        Enforcement::On => "",
        Enforcement::Paused => ", paused on its host",
    };
    let axes = format!(
        "result {:?}, drift {}, contact {:?}, release {:?}{paused}",
        status.result,
        drift(status.drift, node.successful_run),
        status.contact,
        status.release
    );
    rows.push(("axes", axes.to_lowercase()));
    rows
}

/// By whose word its key is the host's, and what its agent says that it is.
fn what_its_agent_is(node: &NodeView, now: Timestamp, screen: Screen) -> Rows {
    let mut rows = Rows::new();
    if let Some(confirmation) = node.key_confirmation {
        let text = match confirmation {
            KeyConfirmation::None => "nobody's word: the token named no key; it gets no secrets",
            KeyConfirmation::Operator => "an operator's approval; it gets no secrets",
            KeyConfirmation::Token => "a signed token",
            KeyConfirmation::Declared => "the fleet repo",
        };
        rows.push(("key by", text.to_owned()));
    }
    if let Some(since) = node.copied_since {
        let text = format!("two hosts hold its key, noticed {}", when(since, now));
        rows.push(("copied", screen.mark(Mark::Bad, &text)));
    }
    if !node.join_labels.is_empty() {
        let labels: Vec<String> =
            node.join_labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        rows.push(("joined as", labels.join(", ")));
    }
    if let Some(agent) = &node.capabilities {
        let checksum = agent.checksum.map(|digest| format!(", sha256 {digest}")).unwrap_or_default();
        rows.push(("agent", format!("{}{checksum}", agent.version)));
        if !agent.builtins.is_empty() {
            rows.push(("can", agent.builtins.join(", ")));
        }
        rows.extend(agent.hooks.iter().map(|(path, digest)| ("hook", format!("{path} sha256 {digest}"))));
    }
    rows
}

fn what_it_holds(node: &NodeView, now: Timestamp, screen: Screen) -> Rows {
    let seen = match node.last_seen {
        Some(seen) => format!("{} ago", ago(seen, now)),
        None => "never".to_owned(),
    };
    let promised = short(std::time::Duration::from_secs(node.promised_secs));
    let mut rows = Rows::new();
    rows.push(("channel", node.channel.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)));
    rows.push(("release", release(node)));
    if let Some(root) = node.held.as_ref().map(|held| held.root) {
        rows.push(("set", root.short()));
    }
    rows.push(("seen", format!("{seen}; to call within {promised}")));
    if let Some(unadopted) = &node.unadopted {
        let text = format!("{} (since {})", unadopted.text(), when(unadopted.since, now));
        rows.push(("unadopted", screen.mark(Mark::Warn, &text)));
    }
    if let Some(HeldFreshness { signed_at, not_fresh_since, stale_since }) = node.freshness {
        let seq = node.held.as_ref().map_or(0, |held| held.seq);
        rows.push(("fresh", freshness(seq, signed_at, not_fresh_since, stale_since)));
    }
    if let Some(ends) = node.certificate_ends {
        rows.push(("cert ends", certificate(ends, node, now, screen)));
    }
    match (node.trust_version, &node.refused_trust) {
        (Some(version), Some(code)) => {
            rows.push(("trust", format!("document {version}, and follows no newer one: {code}")));
        }
        // Of the first there is nothing to say.
        (Some(version), None) if version > 1 => rows.push(("trust", format!("document {version}"))),
        (Some(_) | None, _) => {}
    }
    rows
}

fn how_it_ran(node: &NodeView, now: Timestamp) -> Rows {
    let mut rows = Rows::new();
    if let Some(run) = node.last_run {
        rows.push(("last run", format!("{} ago", ago(run, now))));
        let successful = node.successful_run.map_or_else(|| "none known".to_owned(), |run| when(run, now));
        rows.push(("last good", successful));
    }
    if let Some(since) = node.running_since {
        rows.push(("running", format!("since {}", when(since, now))));
    }
    if let Some(totals) = &node.counts {
        rows.push(("came to", counts(totals)));
    }
    let contended = node.contended.iter().map(|one| ("contended", one.text(now)));
    rows.extend(contended);
    rows
}

fn what_waits_for_it(whole: &NodeReport, screen: Screen) -> Rows {
    let (node, mut rows) = (&whole.node, Rows::new());
    if let Some(reason) = &whole.reboot_required {
        rows.push(("reboot", format!("required by {reason}")));
    }
    if node.traits_too_large {
        let text = "larger than they may be, and not taken: selectors read those from before";
        rows.push(("traits", screen.mark(Mark::Warn, text)));
    }
    if !node.unknown_tags.is_empty() {
        let tags = node.unknown_tags.join(" or ");
        rows.push(("tags", format!("a run was requested, and no resource is tagged {tags}")));
    }
    if node.run_request.is_some() {
        rows.push(("run", "requested; not confirmed yet".to_owned()));
    }
    if let Some(tagged) = &node.tagged_run {
        rows.push(("run", run::waiting(tagged, whole.agent_too_old)));
    }
    if let Some(entry) = &node.last_change {
        let at = when(entry.at, now());
        let text = format!("by {}, {at}: {} (audit entry {})", entry.by, entry.operation, entry.number);
        rows.push(("changed", text));
    }
    rows
}

/// Whether the host stays as declared. One that never was cannot drift from it.
fn drift(drift: Drift, successful_run: Option<Timestamp>) -> String {
    match drift {
        Drift::Converged if successful_run.is_none() => "unknown".to_owned(),
        drift => format!("{drift:?}"),
    }
}

/// When a certificate ends, and whether that is a matter.
fn certificate(ends: Timestamp, node: &NodeView, now: Timestamp, screen: Screen) -> String {
    let (text, failure) = (when(ends, now), node.renewal_failure.as_deref());
    let failed = failure.map(|why| format!("; it says: {why}")).unwrap_or_default();
    match node.certificate_state {
        Some(CertificateState::Ended) => screen
            .mark(Mark::Bad, &format!("{text}: it has to recover it by its key, or to join again{failed}")),
        Some(CertificateState::RenewalLate) => {
            screen.mark(Mark::Warn, &format!("{text}: its renewal is late{failed}"))
        }
        Some(CertificateState::Valid) | None => match failure {
            Some(why) => screen.mark(Mark::Warn, &format!("{text}: its renewal fails: {why}")),
            None => text,
        },
    }
}

/// How fresh what a node holds is, as it says.
fn freshness(
    seq: u64,
    signed_at: Timestamp,
    not_fresh_since: Option<Timestamp>,
    stale_since: Option<Timestamp>,
) -> String {
    let not_fresh = not_fresh_since.map(|since| format!("not fresh since {since}: no actions, no objects"));
    let stale = stale_since.map(|since| format!("stale since {since}: nothing confirmed it"));
    let states: Vec<String> = not_fresh.into_iter().chain(stale).collect();
    let states = if states.is_empty() { "fresh again".to_owned() } else { states.join("; ") };
    format!("release {seq}, last signed for at {signed_at}: {states}")
}

fn facts_text(facts: &[FactRecord]) -> String {
    let now = now();
    let row = |record: &FactRecord| {
        let what = match &record.fact.body {
            FactBody::Run(report) => outcome(report),
            FactBody::Adopted { seq, root, .. } => format!("release {seq}, set {}", root.short()),
            FactBody::Refused { code, message } => format!("{code}: {message}"),
            FactBody::Freshness { seq, signed_at, not_fresh_since, stale_since } => {
                freshness(*seq, *signed_at, *not_fresh_since, *stale_since)
            }
            FactBody::Started { version, cut_off_run: Some(since), .. } => {
                format!("agent {version}; the run that began at {since} was cut off")
            }
            FactBody::Started { version, .. } => format!("agent {version}"),
            FactBody::Repaired { message } => message.clone(),
            FactBody::FileRestored { path, version } => {
                format!("somebody at the host put version {version} of {path} back")
            }
            FactBody::Rebooting { reason, window } => {
                format!("required by {reason}; window {window}")
            }
            FactBody::NotRebooted { reason } => reason.clone(),
            FactBody::Action(action) => format!("{}: {}", action.id, action.event),
            FactBody::Contended { resources, .. } if resources.is_empty() => "nothing any more".to_owned(),
            FactBody::Contended { resources, more } => {
                let named: Vec<String> = resources.iter().map(Contention::summary).collect();
                let named = named.join(", ");
                if *more > 0 { format!("{named} and {more} more") } else { named }
            }
            FactBody::Rollout(fact) => format!("{}: {}", fact.rollout, fact.event),
            FactBody::Unknown => "a sort of fact that a newer agent knows".to_owned(),
        };
        let number = format!("{}/{}", record.incarnation, record.fact.seq);
        [number, format!("{} ago", ago(record.fact.at, now)), record.fact.body.kind().to_owned(), what]
    };
    table(&["FACT", "WHEN", "KIND", "WHAT"], facts.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CNV-3: no green that is not green.
    #[test]
    fn a_host_that_never_was_right_has_not_stayed_right() {
        assert_eq!(drift(Drift::Converged, None), "unknown");
        assert_eq!(drift(Drift::Converged, Some(Timestamp(1))), "Converged");
        assert_eq!(drift(Drift::Diverged, None), "Diverged");
    }
}
