//! `muster rollout`: how a release reaches the nodes of its channel, and words to it.

mod show;

use std::time::Duration;

use clap::{Args, Subcommand};
use model::Channel;
use rollout::RolloutState;
use server::api::rollouts::{
    CONTROL_ROLLOUT, ControlRollout, EXPLAIN_ROLLOUT, ROLLOUT, ROLLOUTS, RolloutHistory, RolloutName,
    RolloutTurn, RolloutView,
};
use server::api::{NODE, NodeName};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::{Screen, aside};

pub(crate) use show::words;
pub use show::{explained, idle, line, list, show};

/// How often `watch` looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);

const AFTER: &str = "\
A ROLLOUT is an id, as stable@4f1c2a9, or a channel: that one's newest.

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
    #[command(after_help = "Ends with 3 where it halted, or where another release ended it.")]
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
    Approve {
        /// Its id or channel
        rollout: String,
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
            return Ok(screen.result(&rollouts, || list(&rollouts, screen))?);
        }
        RolloutVerb::Show { rollout } => {
            let view = operator.call(&ROLLOUT, RolloutName::from(rollout.as_str())).await?;
            screen.result(&view, || show(&view, screen))?;
            return Ok(Exit::Ok);
        }
        RolloutVerb::Watch { rollout } => return watch(&operator, rollout, screen).await,
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
        RolloutVerb::Approve { rollout } => (rollout, RolloutTurn::Approve, None),
        RolloutVerb::Pause { rollout } => (rollout, RolloutTurn::Pause, None),
        RolloutVerb::Resume { rollout } => (rollout, RolloutTurn::Resume, None),
        RolloutVerb::Abort { rollout } => (rollout, RolloutTurn::Abort, None),
        RolloutVerb::Rollback { rollout } => (rollout, RolloutTurn::Rollback, None),
        RolloutVerb::Skip { rollout, node } => (rollout, RolloutTurn::Skip, Some(node.clone())),
    };
    let (rollout, turn, node) = order;
    let order = ControlRollout { rollout: rollout.clone(), turn, node };
    let view = operator.call(&CONTROL_ROLLOUT, order).await?;
    screen.result(&view, || show(&view, screen))?;
    Ok(Exit::Ok)
}

/// Says each change in one line, until the rollout is through or stands still.
async fn watch(operator: &Operator, rollout: &str, screen: Screen) -> Result<Exit, Failure> {
    let mut said = String::new();
    loop {
        let view = operator.call(&ROLLOUT, RolloutName::from(rollout)).await?;
        if let Some(exit) = stands(&view) {
            screen.result(&view, || show(&view, screen))?;
            return Ok(exit);
        }
        let now = line(&view);
        if now != said && !screen.is_json() {
            aside(&now);
        }
        said = now;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a rollout came to that does not go on by itself.
fn stands(view: &RolloutView) -> Option<Exit> {
    match view.state {
        RolloutState::Opening | RolloutState::Active | RolloutState::Converging => None,
        RolloutState::Failed if view.halt.as_ref().is_some_and(|halt| halt.goes_back) => None,
        RolloutState::Failed | RolloutState::Reverted => Some(Exit::SomeFailed),
        // It was halted, or a release that went to all nodes at once ended it.
        RolloutState::Superseded if view.halt.is_some() => Some(Exit::SomeFailed),
        RolloutState::Terminal | RolloutState::Superseded | RolloutState::Pruned => Some(Exit::Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, RolloutView, stands};

    fn view(state: &str, halt: Option<bool>) -> RolloutView {
        let at = "2027-01-15T08:00:00Z";
        let mut view = serde_json::json!({
            "id": "stable@4f1c", "channel": "stable", "seq": 41, "published": at, "state": state, "since": at,
        });
        if let Some(goes_back) = halt {
            view["halt"] = serde_json::json!({"at": at, "cause": "it ended", "goesBack": goes_back, "wasThrough": false});
        }
        serde_json::from_value(view).unwrap()
    }

    /// OPS-1: who waits for a rollout hears by the exit code that it did not come through.
    #[test]
    fn a_rollout_that_another_release_ended_did_not_come_through() {
        let code = |state, halt| stands(&view(state, halt)).map(|exit| matches!(exit, Exit::SomeFailed));
        assert_eq!(code("Superseded", None), Some(false));
        assert_eq!(code("Superseded", Some(false)), Some(true));
        assert_eq!((code("Terminal", None), code("Failed", Some(true))), (Some(false), None));
        assert_eq!(code("Failed", Some(false)), Some(true));
    }
}
