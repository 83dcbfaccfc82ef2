//! [`WorkMachine`]: inputs to effects.
//!
//! ```text
//! Put --> waiting (queue) --Begin--> mark --Begun--> running --Ended--> answered
//!    |\-> refused, expired: answered, never begun                  mark kept until the object is gone
//!    \--> waiting (release): the order's release is newer than the one held, which refuses it
//! ```
//!
//! Invariant: nothing is begun that has a mark, and no mark goes before its object and its order's time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Timestamp;
use model::collect::CollectInserting;
use model::work::{
    ActionEvent, ActionFact, ActionOutcome, ActionRefusal, MAX_TIMEOUT_SECS, Order, RefusalCode,
};

use super::output::ActionOutput;
use super::refusal_limiter::RefusalLimiter;
use super::waiting::{ActionWait, WaitingAction};
use super::{
    ActionMark, ActionStage, DRAIN, MAX_ENDING, MAX_EXPIRES, MAX_MARKS, MAX_MESSAGE, MAX_PARALLEL,
    MAX_WAITING, OrderError, RETRY, RestoredWork, WorkEffect, WorkInput, WorkPermit, WorkTime,
};

/// Says whether a held release lets something be done, and if not, why.
pub type Allows<'a, P> = &'a dyn Fn(&model::work::Work) -> Result<WorkPermit<P>, ActionRefusal>;

/// The actions of a node.
#[derive(Debug, Default)]
pub struct WorkMachine {
    marks: BTreeMap<String, ActionMark>,
    /// The Action objects that are in the replica.
    present: BTreeSet<String>,
    /// Marks whose objects are gone, by when they may go too.
    fading: BTreeSet<(Timestamp, String)>,
    waiting: BTreeMap<String, WaitingAction>,
    /// The waiting, in the order in which they came.
    queue: BTreeMap<u64, String>,
    arrivals: u64,
    active: BTreeMap<String, ActiveAction>,
    ending: BTreeMap<String, PendingEnd>,
    /// Those of them that are said later, by when.
    later: BTreeSet<(Timestamp, String)>,
    /// How often it is said of what never ran that it is over.
    refusal_limiter: RefusalLimiter,
    /// The host's clock at the last input.
    seen: Timestamp,
    /// The number of the release held.
    held_seq: u64,
    stopping: Stopping,
}

/// Something that is begun and not over.
#[derive(Debug)]
struct ActiveAction {
    cancel: bool,
    phase: ActionPhase,
}

#[derive(Debug)]
enum ActionPhase {
    /// Its beginning is not durable yet.
    Beginning { work: model::work::Work, timeout_secs: u64 },
    /// It is being executed.
    Running { output: ActionOutput, killed: bool },
}

/// A terminal fact that is not durable yet.
#[derive(Debug)]
struct PendingEnd {
    fact: ActionFact,
    mark: Option<ActionMark>,
    /// It is said then: it could not be kept, or too much was said before it.
    later: Option<Timestamp>,
    /// It never ran, and was not said yet.
    unsaid: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stopping {
    #[default]
    No,
    Until(Timestamp),
    Killed,
    Drained,
}

impl WorkMachine {
    /// The work of a node at the start of the agent, and what is to be done first: what was
    /// begun and has no terminal fact is said to be unknown.
    pub fn new<P>(
        restored: RestoredWork,
        at: WorkTime,
        allows: Allows<'_, P>,
    ) -> (WorkMachine, Vec<WorkEffect<P>>) {
        let (marks, held_seq) = (restored.marks, restored.held_seq);
        let mut work = WorkMachine { marks, held_seq, seen: at.now, ..WorkMachine::default() };
        let mut effects = Vec::new();
        // The log alone can know of a beginning when the marks were damaged.
        for id in restored.begun.iter().chain(&restored.ended) {
            let order = restored.orders.iter().find(|(name, _)| name == id);
            let expires = match order {
                Some((_, Ok(order))) => bounded(order.expires, at),
                Some((_, Err(_))) | None => at.trusted,
            };
            work.marks.entry(id.clone()).or_insert(ActionMark { stage: ActionStage::Begun, expires });
        }
        let begun: Vec<(String, ActionMark)> = work
            .marks
            .iter()
            .filter(|(_, mark)| mark.stage == ActionStage::Begun)
            .map(|(id, mark)| (id.clone(), *mark))
            .collect();
        for (id, mark) in begun {
            if restored.ended.contains(&id) {
                let mark = ActionMark { stage: ActionStage::Done, ..mark };
                work.marks.insert(id.clone(), mark);
                effects.push(WorkEffect::Remember { id, mark });
            } else {
                work.end(id, ActionOutcome::Unknown, 0, Some(mark.expires), &mut effects);
            }
        }
        for (id, order) in restored.orders {
            work.put(id, order, at, allows, &mut effects);
        }
        let gone =
            work.marks.iter().filter(|(id, _)| !work.present.contains(*id) && !work.ending.contains_key(*id));
        work.fading = gone.map(|(id, mark)| (mark.expires, id.clone())).collect_inserting();
        work.go_on(at, allows, &mut effects);
        (work, effects)
    }

    /// What to do about an input.
    pub fn handle<P>(&mut self, input: WorkInput, at: WorkTime, allows: Allows<'_, P>) -> Vec<WorkEffect<P>> {
        let mut effects = Vec::new();
        self.see(at);
        match input {
            WorkInput::Tick => {}
            WorkInput::Put { id, order } => self.put(id, order, at, allows, &mut effects),
            WorkInput::Removed { id } => self.removed(&id),
            WorkInput::Delegations { seq } => {
                self.held_seq = seq;
                self.reauthorize_waiting(at, allows, &mut effects);
            }
            WorkInput::Begun { id } => self.begun(&id, allows, &mut effects),
            WorkInput::NotBegun { id, message } => {
                if self.active.remove(&id).is_some() {
                    self.end(id, ActionOutcome::Failed { message }, 0, None, &mut effects);
                }
            }
            WorkInput::Output { id, stream, bytes } => {
                if let Some(output) = self.output(&id) {
                    say(&id, output.take(stream, &bytes, at.now), &mut effects);
                }
            }
            WorkInput::OutputLost { id, stream, bytes } => {
                if let Some(output) = self.output(&id) {
                    output.lost(stream, bytes);
                }
            }
            WorkInput::Ended { id, outcome, duration_ms } => {
                if let Some(ActiveAction { phase: ActionPhase::Running { mut output, .. }, .. }) =
                    self.active.remove(&id)
                {
                    say(&id, output.finish(), &mut effects);
                    self.end(id, outcome, duration_ms, None, &mut effects);
                }
            }
            WorkInput::Kept { id } => self.kept(&id),
            WorkInput::NotKept { id } => self.put_off(&id, at.now.plus(RETRY)),
            WorkInput::Stopping => {
                if self.stopping == Stopping::No {
                    self.stopping = Stopping::Until(at.now.plus(DRAIN));
                }
            }
        }
        self.go_on(at, allows, &mut effects);
        effects
    }

    /// A clock that was set back puts nothing off.
    fn see(&mut self, at: WorkTime) {
        let back = self.seen.since(at.now);
        self.seen = at.now;
        if back.is_zero() {
            return;
        }
        self.refusal_limiter.set_back(back);
        self.later = std::mem::take(&mut self.later)
            .into_iter()
            .map(|(due, id)| {
                let due = due.minus(back);
                if let Some(ending) = self.ending.get_mut(&id) {
                    ending.later = Some(due);
                }
                (due, id)
            })
            .collect_inserting();
    }

    /// When a [`WorkInput::Tick`] is due next, by the host's clock; `None` when nothing waits for time.
    pub fn next_deadline(&self, at: WorkTime) -> Option<Timestamp> {
        let flush = self.active.values().filter_map(|active| match &active.phase {
            ActionPhase::Running { output, .. } => output.due(),
            ActionPhase::Beginning { .. } => None,
        });
        let expiry = self.waiting.values().map(|waiting| {
            let left = waiting.order.expires.since(at.trusted);
            at.now.plus(left + Duration::from_millis(1))
        });
        let retry = self.later.first().map(|(due, _)| *due);
        let stop = match self.stopping {
            Stopping::Until(until) => Some(until),
            Stopping::No | Stopping::Killed | Stopping::Drained => None,
        };
        flush.chain(expiry).chain(retry).chain(stop).min()
    }

    /// The marks as they are, or are about to be: what must be durable.
    pub fn marks(&self) -> &BTreeMap<String, ActionMark> {
        &self.marks
    }

    /// How many are being executed or about to be.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// How many wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn put<P>(
        &mut self,
        id: String,
        order: Result<Order, OrderError>,
        at: WorkTime,
        allows: Allows<'_, P>,
        effects: &mut Vec<WorkEffect<P>>,
    ) {
        self.present.insert(id.clone());
        if let Some(mark) = self.marks.get(&id) {
            self.fading.remove(&(mark.expires, id.clone()));
        }
        if let Some(active) = self.active.get_mut(&id) {
            // Only cancelling has a meaning for what is begun.
            active.cancel |= order.is_ok_and(|order| order.cancel);
            return;
        }
        if self.marks.contains_key(&id) || self.ending.contains_key(&id) {
            return;
        }
        let mut order = match order {
            Ok(order) => order,
            Err(error) => {
                self.drop_waiting(&id);
                let outcome = ActionOutcome::Failed { message: error.to_string() };
                return self.refuse_unstarted(id, outcome, at.trusted.plus(MAX_EXPIRES), at, effects);
            }
        };
        order.expires = bounded(order.expires, at);
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.order = order;
            return;
        }
        let admitted = if order.cancel { Ok(()) } else { self.admits(&order, allows) };
        self.wait(id, order, admitted, at, effects);
    }

    /// Has an order wait for its turn, or for the release that it names, or refuses it.
    fn wait<P>(
        &mut self,
        id: String,
        order: Order,
        admitted: Result<(), ActionRefusal>,
        at: WorkTime,
        effects: &mut Vec<WorkEffect<P>>,
    ) {
        let waits_for = match admitted {
            Ok(()) => {
                self.arrivals += 1;
                self.queue.insert(self.arrivals, id.clone());
                ActionWait::Queued(self.arrivals)
            }
            Err(refusal) if self.adopts_first(&order, &refusal) => {
                effects.push(WorkEffect::CheckIn);
                ActionWait::Release(refusal)
            }
            Err(refusal) => return self.refuse_unstarted(id, refusal.into(), order.expires, at, effects),
        };
        self.waiting.insert(id, WaitingAction { order, waits_for });
    }

    /// Whether what is refused may be allowed by a release that the node has not adopted yet.
    fn adopts_first(&self, order: &Order, refusal: &ActionRefusal) -> bool {
        refusal.code != RefusalCode::TooMany && order.release > Some(self.held_seq)
    }

    /// Whether a new order may wait for its turn.
    fn admits<P>(&self, order: &Order, allows: Allows<'_, P>) -> Result<(), ActionRefusal> {
        let too_many = |message| Err(ActionRefusal { code: RefusalCode::TooMany, message });
        if self.waiting.len() >= MAX_WAITING {
            return too_many(format!("more than {MAX_WAITING} actions wait on this node"));
        }
        if self.marks.len() >= MAX_MARKS {
            return too_many(format!("more than {MAX_MARKS} actions are remembered on this node"));
        }
        allows(&order.work).map(|_| ())
    }

    fn removed(&mut self, id: &str) {
        self.present.remove(id);
        // What has not begun is withdrawn; what has goes on, and its facts are kept.
        self.drop_waiting(id);
        // Nobody asks any more, and nothing was done.
        if self.ending.get(id).is_some_and(|ending| ending.unsaid) {
            self.forget_ending(id);
        }
        if !self.active.contains_key(id) && !self.ending.contains_key(id) {
            self.fade(id);
        }
    }

    /// The object is gone, and so may the mark be, in time.
    fn fade(&mut self, id: &str) {
        if let Some(mark) = self.marks.get(id).filter(|_| !self.present.contains(id)) {
            self.fading.insert((mark.expires, id.to_owned()));
        }
    }

    fn drop_waiting(&mut self, id: &str) -> Option<Order> {
        let waiting = self.waiting.remove(id)?;
        if let ActionWait::Queued(arrival) = waiting.waits_for {
            self.queue.remove(&arrival);
        }
        Some(waiting.order)
    }

    fn reauthorize_waiting<P>(
        &mut self,
        at: WorkTime,
        allows: Allows<'_, P>,
        effects: &mut Vec<WorkEffect<P>>,
    ) {
        let judged = |(id, waiting): (&String, &WaitingAction)| {
            let admitted = allows(&waiting.order.work).map(|_| ());
            let keeps_turn = admitted.is_ok() && matches!(waiting.waits_for, ActionWait::Queued(_));
            (!keeps_turn).then(|| (id.clone(), admitted))
        };
        let judged: Vec<_> = self.waiting.iter().filter_map(judged).collect();
        for (id, admitted) in judged {
            let Some(order) = self.drop_waiting(&id) else { continue };
            self.wait(id, order, admitted, at, effects);
        }
    }

    fn begun<P>(&mut self, id: &str, allows: Allows<'_, P>, effects: &mut Vec<WorkEffect<P>>) {
        let stopping = self.stopping != Stopping::No;
        let Some(active) = self.active.get_mut(id) else { return };
        let ActionPhase::Beginning { work, timeout_secs } = &active.phase else { return };
        if active.cancel || stopping {
            self.active.remove(id);
            return self.end(id.to_owned(), ActionOutcome::Cancelled, 0, None, effects);
        }
        // Another release may be held by now.
        let leave = match allows(work) {
            Ok(leave) => leave,
            Err(refusal) => {
                self.active.remove(id);
                return self.end(id.to_owned(), refusal.into(), 0, None, effects);
            }
        };
        let timeout = Duration::from_secs((*timeout_secs).min(leave.timeout_secs).max(1));
        effects.push(WorkEffect::Execute { id: id.to_owned(), permitted: leave.permitted, timeout });
        active.phase = ActionPhase::Running { output: ActionOutput::default(), killed: false };
    }

    /// Says that an action is over that never ran, or puts that off: whoever orders without
    /// end what is refused shall not fill the log with answers. More than are kept here are
    /// not answered at all.
    fn refuse_unstarted<P>(
        &mut self,
        id: String,
        outcome: ActionOutcome,
        expires: Timestamp,
        at: WorkTime,
        effects: &mut Vec<WorkEffect<P>>,
    ) {
        if self.ending.len() >= MAX_ENDING {
            return;
        }
        let due = self.refusal_limiter.next(at.now);
        let before = effects.len();
        self.end(id.clone(), outcome, 0, Some(expires), effects);
        if due > at.now {
            effects.truncate(before);
            self.put_off(&id, due);
            if let Some(ending) = self.ending.get_mut(&id) {
                ending.unsaid = true;
            }
        }
    }

    /// The end of an action is said then.
    fn put_off(&mut self, id: &str, due: Timestamp) {
        if let Some(ending) = self.ending.get_mut(id) {
            ending.later = Some(due);
            self.later.insert((due, id.to_owned()));
        }
    }

    fn forget_ending(&mut self, id: &str) -> Option<PendingEnd> {
        let ending = self.ending.remove(id)?;
        if let Some(due) = ending.later {
            self.later.remove(&(due, id.to_owned()));
        }
        Some(ending)
    }

    /// Says that an action is over. `expires` is given for one that has no mark yet.
    fn end<P>(
        &mut self,
        id: String,
        outcome: ActionOutcome,
        duration_ms: u64,
        expires: Option<Timestamp>,
        effects: &mut Vec<WorkEffect<P>>,
    ) {
        let outcome = shortened(outcome);
        let known = self.marks.get(&id).map(|mark| mark.expires);
        let room = known.is_some() || self.marks.len() < MAX_MARKS;
        let mark = known
            .or(expires)
            .filter(|_| room)
            .map(|expires| ActionMark { stage: ActionStage::Done, expires });
        let fact = ActionFact { id: id.clone(), event: ActionEvent::Ended { outcome, duration_ms } };
        effects.push(WorkEffect::End { fact: fact.clone(), mark });
        self.ending.insert(id, PendingEnd { fact, mark, later: None, unsaid: false });
    }

    fn kept(&mut self, id: &str) {
        let Some(ending) = self.forget_ending(id) else { return };
        if let Some(mark) = ending.mark {
            self.marks.insert(id.to_owned(), mark);
        }
        self.fade(id);
    }

    fn output(&mut self, id: &str) -> Option<&mut ActionOutput> {
        match &mut self.active.get_mut(id)?.phase {
            ActionPhase::Running { output, .. } => Some(output),
            ActionPhase::Beginning { .. } => None,
        }
    }

    /// Everything that time or room makes possible.
    fn go_on<P>(&mut self, at: WorkTime, allows: Allows<'_, P>, effects: &mut Vec<WorkEffect<P>>) {
        self.flush(at, effects);
        self.retry(at, effects);
        self.drop_late(at, effects);
        self.stop(at);
        self.kill(effects);
        self.begin(at, allows, effects);
        self.forget(at, effects);
        self.drained(effects);
    }

    fn flush<P>(&mut self, at: WorkTime, effects: &mut Vec<WorkEffect<P>>) {
        for (id, active) in &mut self.active {
            if let ActionPhase::Running { output, .. } = &mut active.phase {
                say(id, output.flush(at.now), effects);
            }
        }
    }

    fn retry<P>(&mut self, at: WorkTime, effects: &mut Vec<WorkEffect<P>>) {
        while self.later.first().is_some_and(|(due, _)| *due <= at.now) {
            let Some((_, id)) = self.later.pop_first() else { return };
            if let Some(ending) = self.ending.get_mut(&id) {
                (ending.later, ending.unsaid) = (None, false);
                effects.push(WorkEffect::End { fact: ending.fact.clone(), mark: ending.mark });
            }
        }
    }

    /// What was cancelled or expired while it waited.
    fn drop_late<P>(&mut self, at: WorkTime, effects: &mut Vec<WorkEffect<P>>) {
        let late = |waiting: &WaitingAction| {
            let cancelled = waiting.order.cancel.then_some(ActionOutcome::Cancelled);
            cancelled.or_else(|| (at.trusted > waiting.order.expires).then(|| waiting.expired()))
        };
        let ends: Vec<(String, ActionOutcome)> =
            self.waiting.iter().filter_map(|(id, waiting)| Some((id.clone(), late(waiting)?))).collect();
        for (id, outcome) in ends {
            let Some(order) = self.drop_waiting(&id) else { continue };
            self.refuse_unstarted(id, outcome, order.expires, at, effects);
        }
    }

    fn stop(&mut self, at: WorkTime) {
        if matches!(self.stopping, Stopping::Until(until) if at.now >= until) {
            self.stopping = Stopping::Killed;
            self.active.values_mut().for_each(|active| active.cancel = true);
        }
    }

    fn kill<P>(&mut self, effects: &mut Vec<WorkEffect<P>>) {
        for (id, active) in self.active.iter_mut().filter(|(_, active)| active.cancel) {
            if let ActionPhase::Running { killed, .. } = &mut active.phase
                && !std::mem::replace(killed, true)
            {
                effects.push(WorkEffect::Kill { id: id.clone() });
            }
        }
    }

    fn begin<P>(&mut self, at: WorkTime, allows: Allows<'_, P>, effects: &mut Vec<WorkEffect<P>>) {
        while self.stopping == Stopping::No && self.active.len() < MAX_PARALLEL {
            let Some((_, id)) = self.queue.first_key_value().map(|(arrival, id)| (*arrival, id.clone()))
            else {
                return;
            };
            let Some(order) = self.drop_waiting(&id) else { return };
            let expires = bounded(order.expires, at);
            match allows(&order.work) {
                Err(refusal) => self.wait(id, Order { expires, ..order }, Err(refusal), at, effects),
                Ok(leave) => {
                    let timeout_secs = order.timeout_secs.min(leave.timeout_secs).clamp(1, MAX_TIMEOUT_SECS);
                    let mark = ActionMark { stage: ActionStage::Begun, expires };
                    self.marks.insert(id.clone(), mark);
                    effects.push(WorkEffect::Begin { id: id.clone(), mark });
                    let phase = ActionPhase::Beginning { work: order.work, timeout_secs };
                    self.active.insert(id, ActiveAction { cancel: false, phase });
                }
            }
        }
    }

    fn forget<P>(&mut self, at: WorkTime, effects: &mut Vec<WorkEffect<P>>) {
        while let Some((expires, id)) = self.fading.first().cloned() {
            if at.trusted <= expires {
                return;
            }
            self.fading.pop_first();
            self.marks.remove(&id);
            effects.push(WorkEffect::Forget { id });
        }
    }

    fn drained<P>(&mut self, effects: &mut Vec<WorkEffect<P>>) {
        let stopping = matches!(self.stopping, Stopping::Until(_) | Stopping::Killed);
        // A fact that could not be kept does not hold the stop up: the mark says unknown then.
        let tried = self.ending.len() == self.later.len();
        if stopping && self.active.is_empty() && tried {
            self.stopping = Stopping::Drained;
            effects.push(WorkEffect::Drained);
        }
    }
}

/// When an order expires, whatever it says itself.
pub(super) fn bounded(expires: Timestamp, at: WorkTime) -> Timestamp {
    expires.min(at.trusted.plus(MAX_EXPIRES))
}

/// What is said for people has a bound: an order that cannot be read may be quoted in it.
fn shortened(mut outcome: ActionOutcome) -> ActionOutcome {
    if let ActionOutcome::Refused { message, .. } | ActionOutcome::Failed { message } = &mut outcome {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    }
    outcome
}

fn say<P>(id: &str, events: Vec<ActionEvent>, effects: &mut Vec<WorkEffect<P>>) {
    effects.extend(events.into_iter().map(|event| WorkEffect::Say(ActionFact { id: id.to_owned(), event })));
}
