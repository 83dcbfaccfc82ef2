//! `muster rollout watch`: follows a rollout until it is through or stands still, over a control plane that restarts.

use std::time::{Duration, Instant};

use rollout::RolloutState;
use server::Credentials;
use server::api::rollouts::{ROLLOUT, RolloutName, RolloutView};

use super::show::{line, show};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError as _};
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{Screen, aside};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// For so long it asks a control plane again that does not answer.
const UNREACHED: Duration = Duration::from_secs(300);

/// Says each change in one line, until the rollout is through or stands still.
pub(super) async fn watch(
    connect: &Connect,
    operator: Operator,
    rollout: &str,
    screen: Screen,
) -> Result<Exit, Failure> {
    let (_, credentials) = connect.credentials()?;
    let mut watched = WatchedRollout { credentials, operator, name: rollout.to_owned(), unreached: None };
    let mut said = String::new();
    loop {
        if let Some(view) = watched.look().await? {
            // A channel's name means another rollout once this one is over: what was begun with is followed to its end.
            view.id.as_str().clone_into(&mut watched.name);
            if let Some(exit) = stands(&view) {
                screen.result(&view, || show(&view, screen))?;
                return Ok(exit);
            }
            let now = line(&view);
            if now != said && !screen.is_json() {
                aside(&now);
            }
            said = now;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A rollout that is looked at again and again.
struct WatchedRollout {
    credentials: Credentials,
    operator: Operator,
    name: String,
    /// Since when the control plane does not answer.
    unreached: Option<Instant>,
}

impl WatchedRollout {
    /// How it stands; `None` while the control plane does not answer.
    ///
    /// # Errors
    /// When the control plane refuses, or does not answer for [`UNREACHED`].
    async fn look(&mut self) -> Result<Option<RolloutView>, Failure> {
        let asked = match self.asked().await {
            Err(error) if is_passing(&error) => error,
            Err(error) => return Err(error.into()),
            Ok(view) => {
                if self.unreached.take().is_some() {
                    aside("the control plane answers again");
                }
                return Ok(Some(view));
            }
        };
        match self.unreached {
            None => {
                self.unreached = Some(Instant::now());
                aside("the control plane does not answer; it is asked again");
                Ok(None)
            }
            Some(since) if since.elapsed() < UNREACHED => Ok(None),
            Some(_) => Err(asked.into()),
        }
    }

    async fn asked(&mut self) -> Result<RolloutView, OperatorCallError> {
        if self.unreached.is_some() || self.operator.is_closed() {
            self.operator = Operator::dial(&self.credentials).await?;
        }
        self.operator.call(&ROLLOUT, RolloutName::from(self.name.as_str())).await
    }
}

/// A control plane that starts anew answers this way.
fn is_passing(error: &OperatorCallError) -> bool {
    error.exit() == Exit::Unreachable
        || matches!(error, OperatorCallError::Refused(problem) if problem.status == 503)
}

/// What a rollout came to that does not go on by itself. One that gave way to a newer release ends as it stood then: it
/// was through, or it halted, was aborted or never began.
pub fn stands(view: &RolloutView) -> Option<Exit> {
    match view.state {
        RolloutState::Opening | RolloutState::Active | RolloutState::Converging => None,
        RolloutState::Failed if view.halt.as_ref().is_some_and(|halt| halt.goes_back) => None,
        RolloutState::Failed | RolloutState::Reverted => Some(Exit::SomeFailed),
        RolloutState::Terminal => Some(Exit::Ok),
        RolloutState::Superseded | RolloutState::Pruned => match view.was_through && view.halt.is_none() {
            true => Some(Exit::Ok),
            false => Some(Exit::SomeFailed),
        },
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
            view["halt"] = serde_json::json!({"at": at, "cause": "it ended", "goesBack": goes_back});
        }
        serde_json::from_value(view).unwrap()
    }

    /// OPS-1: who waits for a rollout hears by the exit code that it did not come through.
    #[test]
    fn a_rollout_that_another_release_ended_did_not_come_through() {
        let code = |state, halt| stands(&view(state, halt)).map(|exit| matches!(exit, Exit::SomeFailed));
        let mut gave_way = view("Superseded", None);
        assert!(matches!(stands(&gave_way), Some(Exit::SomeFailed)), "it was aborted, or never began");
        gave_way.was_through = true;
        assert!(matches!(stands(&gave_way), Some(Exit::Ok)));
        assert_eq!(code("Superseded", Some(false)), Some(true));
        assert_eq!((code("Terminal", None), code("Failed", Some(true))), (Some(false), None));
        assert_eq!(code("Failed", Some(false)), Some(true));
    }
}
