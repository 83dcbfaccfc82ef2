//! `muster rollout`: how a release reaches the nodes of its channel, and words to it.

mod show;
mod watch;

use clap::{Args, Subcommand};
use model::Channel;
use rollout::NodeRolloutState;
use server::api::operation::Empty;
use server::api::rollouts::{
    CONTROL_ROLLOUT, ControlRollout, EXPLAIN_ROLLOUT, NodeRolloutView, ROLLOUT, ROLLOUTS, RolloutHistory,
    RolloutName, RolloutTurn,
};
use server::api::{self, HeadView, NODE, NodeName};

use crate::clock::now;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{Screen, aside};

use show::node_stands;
pub use show::{explained, idle, line, list, show, still_held};
pub(crate) use show::{standing_since, words};
pub use watch::stands;

const AFTER: &str = "\
A ROLLOUT is an id, or the beginning of one with seven digits at least, as stable@4f1c2a9; or a
channel: the rollout of it that runs or is halted, else the one that waits, else the last one. To
approve, a channel is the one that waits to be approved.

Examples:
  muster rollout list
  muster rollout show stable         its waves, and why nodes wait
  muster rollout watch stable        follow it until it stands still
  muster rollout explain web-1       why this node has not changed yet
  muster rollout pause stable        start no node until it is resumed
  muster rollout resume stable       go on, after a pause or in spite of what failed
  muster rollout approve stable      count the newest wave's gate as passed
  muster rollout abort stable        end it where it is
  muster rollout rollback stable     have what was started go back";

const AFTER_WATCH: &str = "\
Ends with 3 where it halted, went back or was aborted, also where a newer release took its place
since. A control plane that does not answer is asked again for five minutes; then it ends with 4.";

const AFTER_APPROVE: &str = "\
What it lifts: the gate of the newest open wave, or that an earlier rollout halted while this one
waited. What it does not: a pause, a freeze, a wave's `notBefore`, a pin, `after:`, and an earlier
rollout that runs. Said twice it lifts two gates: with --wave it lifts the one that was meant.";

const AFTER_ROLLBACK: &str = "\
Refused once the rollout was through, as its nodes gave up the release of before then:
`muster release rollback NUMBER` publishes that once more.";

/// Arguments of `muster rollout`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RolloutArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: RolloutVerb,
}

#[derive(Debug, Subcommand)]
enum RolloutVerb {
    /// List rollouts, those of the newest releases first
    List {
        /// Only those of this channel
        #[arg(long)]
        channel: Option<Channel>,
        /// At most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show a rollout: its waves, what it waits for, what stopped it
    Show {
        /// Its id or channel
        rollout: String,
    },
    /// Follow a rollout until it is through, or stands still
    #[command(after_help = AFTER_WATCH)]
    Watch {
        /// Its id or channel
        rollout: String,
    },
    /// Say why a node has not changed yet
    Explain {
        /// Its hostname or id
        node: String,
    },
    /// Count the gate of the newest open wave as passed, or let one begin that waits after a halt
    #[command(after_help = AFTER_APPROVE)]
    Approve {
        /// Its id or channel
        rollout: String,
        /// Only while this is the newest open wave, so that said twice it opens one wave
        #[arg(long, value_name = "NAME")]
        wave: Option<String>,
    },
    /// Start no node until it is resumed
    Pause {
        /// Its id or channel
        rollout: String,
    },
    /// Go on: after a pause, or after a halt in spite of what failed
    Resume {
        /// Its id or channel
        rollout: String,
    },
    /// End it where it is: nodes that did not begin stay on what they have
    Abort {
        /// Its id or channel
        rollout: String,
    },
    /// Have every node that was started go back, where the release's terms allow that
    #[command(after_help = AFTER_ROLLBACK)]
    Rollback {
        /// Its id or channel
        rollout: String,
    },
    /// Take a node out of a rollout: it holds up no wave and no other node
    Skip {
        /// Its id or channel
        rollout: String,
        /// The node's hostname or id
        node: String,
    },
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, or refuses.
pub async fn run(args: &RolloutArgs, screen: Screen) -> Result<Exit, Failure> {
    let operator = args.connect.dial().await?;
    let order = match &args.what {
        RolloutVerb::List { channel, limit } => {
            let limit = usize::from(*limit).into();
            let request = RolloutHistory { channel: channel.clone(), before: None, limit };
            let rollouts = operator.call(&ROLLOUTS, request).await?;
            if let (true, Some(channel)) = (rollouts.is_empty(), channel) {
                aside(&nothing_of(channel, &operator.call(&api::HEAD, Empty {}).await?));
            }
            return Ok(screen.result(&rollouts, || list(&rollouts, screen))?);
        }
        RolloutVerb::Show { rollout } => {
            let view = operator.call(&ROLLOUT, RolloutName::from(rollout.as_str())).await?;
            screen.result(&view, || show(&view, screen))?;
            return Ok(Exit::Ok);
        }
        RolloutVerb::Watch { rollout } => {
            return watch::watch(&args.connect, operator, rollout, screen).await;
        }
        RolloutVerb::Explain { node } => {
            let name = || NodeName { node: node.clone() };
            let view = operator.call(&EXPLAIN_ROLLOUT, name()).await?;
            let text = match &view {
                Some(view) => explained(view),
                None => idle(&operator.call(&NODE, name()).await?),
            };
            screen.result(&view, || text)?;
            return Ok(Exit::Ok);
        }
        RolloutVerb::Approve { rollout, wave } => {
            ControlRollout { wave: wave.clone(), ..order(rollout, RolloutTurn::Approve) }
        }
        RolloutVerb::Pause { rollout } => order(rollout, RolloutTurn::Pause),
        RolloutVerb::Resume { rollout } => order(rollout, RolloutTurn::Resume),
        RolloutVerb::Abort { rollout } => order(rollout, RolloutTurn::Abort),
        RolloutVerb::Rollback { rollout } => order(rollout, RolloutTurn::Rollback),
        RolloutVerb::Skip { rollout, node } => {
            ControlRollout { node: Some(node.clone()), ..order(rollout, RolloutTurn::Skip) }
        }
    };
    let (turn, node) = (order.turn, order.node.clone());
    let view = operator.call(&CONTROL_ROLLOUT, order).await?;
    screen.result(&view, || show(&view, screen))?;
    if let Some(held) = still_held(&view, turn, now()) {
        aside(&held);
    }
    if let Some(node) = node {
        let explained = operator.call(&EXPLAIN_ROLLOUT, NodeName { node }).await?;
        let explained = explained.filter(|explained| explained.rollout == view.id);
        explained.iter().for_each(|node| aside(explain_skipped(node).trim_end()));
    }
    Ok(Exit::Ok)
}

fn order(rollout: &str, turn: RolloutTurn) -> ControlRollout {
    ControlRollout { rollout: rollout.to_owned(), turn, node: None, wave: None }
}

/// What taking a node out did to it.
fn explain_skipped(view: &NodeRolloutView) -> String {
    match view.state {
        NodeRolloutState::Pending => node_stands(view),
        _ => format!("{}It holds up nobody; taking it out does not take it back", node_stands(view)),
    }
}

/// Why a channel lists no rollout.
fn nothing_of(channel: &Channel, head: &HeadView) -> String {
    if head.headers.contains_key(channel) {
        return format!("channel {channel} had no rollout yet");
    }
    let channels: Vec<&str> = head.headers.keys().map(Channel::as_str).collect();
    match channels.is_empty() {
        true => "nothing is published yet".to_owned(),
        false => format!("there is no channel {channel}; those that there are: {}", channels.join(", ")),
    }
}
