//! What a guard asks for is carried out.

use std::collections::VecDeque;

use activation::ReturnCause;
use activation::guarded::{GuardEffect, GuardInput, guarded_cause, held_back};
use converge::ResourceId;
use model::log::FactBody;

use super::{LiveGuard, RunGuard, locked};
use crate::generations::boot_moment;
use crate::render::chain;

impl RunGuard {
    /// Gives the guard an input, and does all that follows; what was refused, in words.
    pub(super) fn give(&self, guard: &mut LiveGuard, input: GuardInput) -> Option<String> {
        let now = boot_moment().ok()?;
        let effects = guard.guard.handle(input, now.at);
        self.carry_out_all(guard, effects)
    }

    pub(super) fn carry_out_all(&self, guard: &mut LiveGuard, effects: Vec<GuardEffect>) -> Option<String> {
        let mut queue = VecDeque::from(effects);
        let mut refused = None;
        while let Some(effect) = queue.pop_front() {
            let Some(input) = self.carry_out(guard, effect, &mut refused) else { continue };
            let Ok(now) = boot_moment() else { break };
            // What was left of the list is in what follows, where it is still to be done.
            queue = guard.guard.handle(input, now.at).into();
        }
        refused
    }

    fn carry_out(
        &self,
        guard: &mut LiveGuard,
        effect: GuardEffect,
        refused: &mut Option<String>,
    ) -> Option<GuardInput> {
        match effect {
            GuardEffect::Persist(record) => {
                let error = self.files.persist(&record).err()?;
                return Some(GuardInput::NotPersisted(chain(&error)));
            }
            GuardEffect::ArmWatchdog => {
                let error = self.files.arm(self.storage.durable(), guard.guard.record()).err()?;
                return Some(GuardInput::NotArmed(chain(&error)));
            }
            GuardEffect::Disarm => {
                if let Err(error) = self.files.disarm(guard.guard.record()) {
                    tracing::warn!(error = %chain(&error), "the watchdog stays, and has nothing to do");
                }
            }
            GuardEffect::Refuse(refusal) => *refused = Some(refusal.to_string()),
            GuardEffect::TakeForEnded => return Some(GuardInput::RunCutOff),
            GuardEffect::RestartAgent => {
                if let Err(error) = self.files.watchdog().take_up_agent() {
                    let reason = format!("systemd does not start the agent as it is now: {}", chain(&error));
                    return Some(GuardInput::NotStartedAnew(reason));
                }
                if let Some(daemon) = self.daemon.get() {
                    daemon.restart();
                }
            }
            GuardEffect::TryContact { number } => {
                tracing::info!(number, "a guarded change waits for a contact");
                guard.asked = false;
            }
            GuardEffect::Undo { again } => {
                return Some(GuardInput::Undone(self.undo_all(guard, again)));
            }
            GuardEffect::Keep => {
                tracing::info!("the guarded change stays");
                return Some(GuardInput::Kept);
            }
            GuardEffect::TellUndone(cause) => self.tell_undone(guard, &cause),
            GuardEffect::TellNotUndone(left) => self.say(format!(
                "a guarded change was undone, but not all of it, and that is not tried any more: {}",
                left.join("; ")
            )),
            GuardEffect::Log(text) => tracing::warn!("{}", model::text::one_line(&text)),
        }
        None
    }

    fn tell_undone(&self, guard: &LiveGuard, cause: &ReturnCause) {
        let record = guard.guard.record();
        let until = boot_moment().ok().and_then(|now| {
            let held = held_back(&record.quarantine, guard.guard.target(), &locked(&self.contacts), &now)?;
            Some(held.until_text(now.at))
        });
        let until = until.unwrap_or_else(|| "the next run tries once more".to_owned());
        let resources = guard.changes.resources();
        let names: Vec<&str> = resources.iter().map(ResourceId::as_str).collect();
        let (names, cause) = (names.join(", "), guarded_cause(cause));
        self.say(format!("{names}: undone, as {cause}; {until}"));
    }

    /// A fact for the node's log: it is said when there is a network again.
    fn say(&self, message: String) {
        tracing::warn!("{message}");
        if let Err(error) = self.storage.append_blocking(FactBody::Repaired { message }) {
            tracing::warn!(error = %chain(&error), "it cannot be told later");
        }
    }
}
