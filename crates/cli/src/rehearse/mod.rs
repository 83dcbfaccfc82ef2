//! `muster rehearse`: the rollout of a fleet repo, played beforehand (ROL-11).

mod nodes;

use std::path::PathBuf;

use clap::Args;
use model::{Channel, Timestamp};
use rehearsal::{FaultShare, FaultShares, Rehearsal, RehearsalOutcome, RehearsalReport, RehearseError};
use resolve::Fleet;
use resolve::rollouts::ChannelRollout;

use crate::check::{self, CheckedRepo};
use crate::clock;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::folder::RepoFolder;
use crate::screen::Screen;

pub use nodes::FleetNodesError;

const AFTER: &str = "\
Nothing is sent, no key is needed and no control plane is asked: the decisions are the real
ones, the hosts are made up. Nodes are those that the repo names; --nodes makes a fleet of that
size, of its patterns or, where there is none, of the named nodes once more. A SHARE is 0% to
100%; nodes that fail, that are offline and that are cut off are different ones. A node that
fails is seen by its enforcing probes alone.

The same repo, shares, --seed and --at give the same bytes. Every node is taken to change;
rollouts of other channels that share a budget or go first are not played. Ends with 3 when the
rollout stops, or is not through after 400 days.

Examples:
  muster rehearse --repo fleet
  muster rehearse --repo fleet --fail 5% --offline 10%
  muster rehearse --repo fleet --channel stable --nodes 10000 --cut-off 1% --seed 7
  muster rehearse --repo fleet --fail 100% --json | jq '.stop'";

/// Arguments of `muster rehearse`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RehearseArgs {
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// The channel, where several have `rollouts`
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<Channel>,
    /// Nodes whose probes fail in the release
    #[arg(long, value_name = "SHARE", default_value_t)]
    fail: FaultShare,
    /// Nodes that nobody reaches
    #[arg(long, value_name = "SHARE", default_value_t)]
    offline: FaultShare,
    /// Nodes that all takes twenty times as long
    #[arg(long, value_name = "SHARE", default_value_t)]
    slow: FaultShare,
    /// Nodes that call once an hour, until they hear of the rollout
    #[arg(long, value_name = "SHARE", default_value_t)]
    seldom: FaultShare,
    /// Nodes from which the release takes the network
    #[arg(long, value_name = "SHARE", default_value_t)]
    cut_off: FaultShare,
    /// The size of the fleet, made of what the repo declares
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// What draws the nodes with which something goes wrong: a number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    seed: u64,
    /// When the release is signed and published [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
}

fn seed(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| {
        format!("a seed is a whole number from 0 to {}; another one draws other nodes", u64::MAX)
    })
}

/// Why nothing is rehearsed.
#[derive(Debug, thiserror::Error)]
pub enum RehearseVerbError {
    /// No channel has a rollout.
    #[error("no channel has `rollouts`: a release reaches all nodes of its channel at once")]
    NoRollouts,
    /// This channel has none.
    #[error("channel {0} has no `rollouts`: a release reaches all of its nodes at once")]
    WithoutRollout(Channel),
    /// There is no such channel.
    #[error("there is no channel {0}")]
    UnknownChannel(Channel, Vec<String>),
    /// Several channels have one.
    #[error("{} channels have `rollouts`, and one is rehearsed at a time", .0.len())]
    SeveralChannels(Vec<Channel>),
    /// The nodes of the channel.
    #[error("the nodes of channel {channel} cannot be made")]
    Nodes {
        /// The channel.
        channel: Channel,
        /// Why not.
        source: FleetNodesError,
    },
    /// The rehearsal itself.
    #[error("the rollout of channel {channel} cannot be rehearsed")]
    Rehearse {
        /// The channel.
        channel: Channel,
        /// Why not.
        source: RehearseError,
    },
}

impl UserError for RehearseVerbError {
    fn hint(&self) -> Option<String> {
        match self {
            RehearseVerbError::NoRollouts | RehearseVerbError::WithoutRollout(_) => {
                Some("declare its waves under `rollouts:` in fleet.yaml or rollouts.yaml".to_owned())
            }
            RehearseVerbError::UnknownChannel(_, known) => Some(format!("there are {}", known.join(", "))),
            RehearseVerbError::SeveralChannels(channels) => {
                let names: Vec<String> = channels.iter().map(ToString::to_string).collect();
                Some(format!("name one with --channel: {}", names.join(", ")))
            }
            RehearseVerbError::Nodes { source, .. } => source.hint(),
            RehearseVerbError::Rehearse { .. } => None,
        }
    }
}

/// What of a fleet repo is rehearsed, and how.
#[derive(Clone, Debug)]
pub struct RehearsalRequest {
    /// The channel; the only one that has a rollout where it is not named.
    pub channel: Option<Channel>,
    /// The size of the fleet; the nodes that are named where it is absent.
    pub nodes: Option<usize>,
    /// Of how many nodes what goes wrong.
    pub faults: FaultShares,
    /// What draws them.
    pub seed: u64,
    /// When the release is signed and published.
    pub begins: Timestamp,
}

/// Does the verb.
///
/// # Errors
/// When the repo has mistakes, the channel has no rollout, or there are no nodes to rehearse with.
pub fn run(args: &RehearseArgs, screen: Screen) -> Result<Exit, Failure> {
    let request = RehearsalRequest {
        channel: args.channel.clone(),
        nodes: args.nodes,
        faults: FaultShares {
            fail: args.fail,
            offline: args.offline,
            slow: args.slow,
            seldom: args.seldom,
            cut_off: args.cut_off,
        },
        seed: args.seed,
        // In whole seconds, so that what is printed says exactly when.
        begins: args.at.unwrap_or_else(|| Timestamp::from_secs(clock::now().secs())),
    };
    let rehearsal = prepare(&check::read(&mut RepoFolder::open(&args.repo)?)?, request)?;
    let report = rehearsal::rehearse(&rehearsal)
        .map_err(|source| RehearseVerbError::Rehearse { channel: rehearsal.channel, source })?;
    screen.result(&report, || format!("{report}{}", again(&report)))?;
    Ok(match report.outcome {
        RehearsalOutcome::Through => Exit::Ok,
        RehearsalOutcome::Halted
        | RehearsalOutcome::WentBack
        | RehearsalOutcome::GoingBack
        | RehearsalOutcome::Unfinished => Exit::SomeFailed,
    })
}

/// Takes of a fleet repo what is to be rehearsed.
///
/// # Errors
/// When the repo has mistakes, the channel has no rollout, or there are no nodes to rehearse with.
pub fn prepare(checked: &CheckedRepo, request: RehearsalRequest) -> Result<Rehearsal, Failure> {
    let RehearsalRequest { channel, nodes, faults, seed, begins } = request;
    let fleet = checked.fleet.as_ref().map_err(|diagnostics| checked.broken(diagnostics))?;
    let rollouts = fleet.rollouts(begins, []).map_err(|diagnostics| checked.broken(&diagnostics))?;
    let ChannelRollout { channel, terms, .. } = chosen(fleet, rollouts, channel.as_ref())?;
    let nodes = nodes::of_channel(fleet.specialize(), &channel, nodes)
        .map_err(|source| RehearseVerbError::Nodes { channel: channel.clone(), source })?;
    Ok(Rehearsal { channel, terms, nodes, faults, seed, begins })
}

fn chosen(
    fleet: &Fleet,
    mut rollouts: Vec<ChannelRollout>,
    asked: Option<&Channel>,
) -> Result<ChannelRollout, RehearseVerbError> {
    let Some(asked) = asked else {
        let last = rollouts.pop().ok_or(RehearseVerbError::NoRollouts)?;
        if rollouts.is_empty() {
            return Ok(last);
        }
        let names = rollouts.into_iter().map(|rollout| rollout.channel).chain([last.channel]);
        return Err(RehearseVerbError::SeveralChannels(names.collect()));
    };
    let known = &fleet.specialize().channels;
    if !known.contains_key(asked.as_str()) {
        return Err(RehearseVerbError::UnknownChannel(asked.clone(), known.keys().cloned().collect()));
    }
    let found = rollouts.into_iter().find(|rollout| rollout.channel == *asked);
    found.ok_or_else(|| RehearseVerbError::WithoutRollout(asked.clone()))
}

/// What gives the same report again, beside the repo and the shares.
fn again(report: &RehearsalReport) -> String {
    let RehearsalReport { seed, begins, .. } = report;
    format!("the same again: --seed {seed} --at {begins}\n")
}
