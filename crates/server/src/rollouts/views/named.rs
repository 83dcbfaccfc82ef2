//! Which rollout a name means: its id, the beginning of one, or a channel.

use model::Channel;
use model::rollout::RolloutId;
use rollout::{HaltCause, RolloutDocument, RolloutState, Rollouts, WaitCause};
use wire::{Code, Problem};

use super::super::RolloutOwner;
use crate::answer::store_problem;
use crate::api::rollouts::RolloutTurn;
use crate::index::clip;
use crate::state::ControlPlane;

/// The fewest digits behind the `@` that stand for a whole id.
const MIN_DIGITS: usize = 7;
/// The most rollouts of a channel among which the beginning of an id is looked for, the newest of them: what one answer of
/// the store holds.
const LOOKED_AT: usize = 1000;
/// The most ids that a refusal names.
const MAX_NAMED: usize = 5;

/// The rollout that a name means.
pub(crate) struct NamedRollout {
    pub(crate) document: RolloutDocument,
    /// Another one of the channel that a channel's name could have meant, and how it stands.
    pub(crate) other: Option<(RolloutId, RolloutState)>,
}

impl RolloutOwner {
    /// The rollout that a name means, for somebody who gives it this order, or who looks at it.
    pub(crate) async fn named(
        &self,
        plane: &ControlPlane,
        name: &str,
        turn: Option<RolloutTurn>,
    ) -> Result<NamedRollout, Problem> {
        if let Ok(id) = name.parse::<RolloutId>() {
            let document = by_id(plane, &id).await?;
            return Ok(NamedRollout { document, other: None });
        }
        let channel: Channel = name.parse().map_err(|_| unknown(name))?;
        let chosen = {
            let rollouts = self.stored(plane).await?;
            ChannelRollouts::of(rollouts.core(), &channel).chosen(rollouts.core(), turn)?
        };
        if let Some(chosen) = chosen {
            return Ok(chosen);
        }
        let newest = plane.store.rollout_documents(Some(&channel), None, 1).await.map_err(store_problem)?;
        let document = newest.into_iter().next().ok_or_else(|| unknown(name))?;
        Ok(NamedRollout { document, other: None })
    }
}

/// The document of an id, or of the only one that begins so.
async fn by_id(plane: &ControlPlane, id: &RolloutId) -> Result<RolloutDocument, Problem> {
    if let Some(document) = plane.store.rollout(id).await.map_err(store_problem)? {
        return Ok(document);
    }
    let name = id.as_str();
    let (channel, digits) = name.split_once('@').unwrap_or_default();
    let Some(channel) = channel.parse::<Channel>().ok().filter(|_| digits.len() >= MIN_DIGITS) else {
        return Err(too_short(name));
    };
    let documents = plane.store.rollout_documents(Some(&channel), None, LOOKED_AT).await;
    let documents = documents.map_err(store_problem)?.into_iter();
    let mut found: Vec<RolloutDocument> =
        documents.filter(|document| document.id.as_str().starts_with(name)).collect();
    if found.len() > 1 {
        return Err(ambiguous(name, found.iter().map(|document| &document.id)));
    }
    found.pop().ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Problem {
    Problem {
        help: Some("`muster rollout list` names those that there are".to_owned()),
        ..Problem::new(Code::NotFound, format!("there is no rollout {:?}", clip(name)))
    }
}

fn too_short(name: &str) -> Problem {
    let help = format!(
        "an id may be shortened to {MIN_DIGITS} digits; `muster rollout list` names those that there are"
    );
    Problem { help: Some(help), ..unknown(name) }
}

fn ambiguous<'i>(name: &str, ids: impl Iterator<Item = &'i RolloutId>) -> Problem {
    let ids: Vec<&str> = ids.map(RolloutId::as_str).collect();
    let named = ids.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = match ids.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Problem {
        help: Some("name one of them by its id, or by more of its digits".to_owned()),
        ..Problem::new(
            Code::NotFound,
            format!("{:?} means no single rollout: it may be {named}{more}", clip(name)),
        )
    }
}

/// The rollouts of a channel that its name may mean.
pub(super) struct ChannelRollouts<'a> {
    channel: &'a Channel,
    /// The newest that began and did not give way.
    current: Option<&'a RolloutDocument>,
    pub(super) waiting: Option<&'a RolloutDocument>,
}

impl<'a> ChannelRollouts<'a> {
    pub(super) fn of(core: &'a Rollouts, channel: &'a Channel) -> ChannelRollouts<'a> {
        let (mut current, mut waiting) = (None, None);
        // In the order of their numbers: the last one that fits counts.
        for document in core.documents().filter(|document| document.key.channel == *channel) {
            match document.state {
                RolloutState::Opening => waiting = Some(document),
                state if !state.gave_way() => current = Some(document),
                _ => {}
            }
        }
        ChannelRollouts { channel, current, waiting }
    }

    /// What somebody who looks at the channel is shown: the rollout that runs or is halted, else the one that waits, else
    /// the one that is through or back.
    pub(super) fn shown(&self) -> Option<&'a RolloutDocument> {
        self.open().or(self.waiting).or(self.current)
    }

    /// The current one, where it is not through and not back.
    fn open(&self) -> Option<&'a RolloutDocument> {
        self.current.filter(|document| document.state.is_running() || document.state == RolloutState::Failed)
    }

    fn chosen(&self, core: &Rollouts, turn: Option<RolloutTurn>) -> Result<Option<NamedRollout>, Problem> {
        let running = self.open().filter(|document| document.state.is_running());
        let chosen = match turn {
            Some(RolloutTurn::Approve) => self.waiting_for_approval(core).or(running).or(self.shown()),
            Some(RolloutTurn::Abort) => {
                let halted = self.open().filter(|document| running.is_none() && !is_aborted(document));
                if let (Some(halted), Some(waiting)) = (halted, self.waiting) {
                    // To end one of them lets the other begin, or stay: nobody guesses which is meant.
                    return Err(ambiguous(self.channel.as_str(), [&halted.id, &waiting.id].into_iter()));
                }
                running.or(halted).or(self.waiting).or(self.current)
            }
            _ => self.shown(),
        };
        let Some(document) = chosen else { return Ok(None) };
        let mut others = [self.current, self.waiting].into_iter().flatten();
        let other = others.rfind(|other| other.key != document.key);
        let other = other.map(|other| (other.id.clone(), other.state));
        Ok(Some(NamedRollout { document: document.clone(), other }))
    }

    /// The rollout that begins once somebody approves it.
    fn waiting_for_approval(&self, core: &Rollouts) -> Option<&'a RolloutDocument> {
        self.waiting.filter(|document| {
            let wait = core.waits_to_begin(&document.key).map(WaitCause::from);
            matches!(wait, Some(WaitCause::EarlierHalted(_)))
        })
    }
}

fn is_aborted(document: &RolloutDocument) -> bool {
    document.halt.as_ref().is_some_and(|halt| matches!(halt.cause, HaltCause::Aborted { .. }))
}
