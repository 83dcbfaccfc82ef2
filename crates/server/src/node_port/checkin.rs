//! The one exchange: a check-in, facts alone, and what a node is pointed to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::exchange::{Acked, Answer, CheckIn, HeldRelease, HeldTrust, Report, Signed, TraitReport};
use model::log::{Cursor, Fact, MAX_FACT_BYTES, MAX_FACTS};
use model::replication::Mode;
use model::status::{Contact, contact_of};
use model::{Incarnation, ReleaseVersion, Timestamp};
use plane::{NodeState, Step};
use store::{Accepted, StoreError};
use trust::signed;
use wire::{Code, Problem};

use super::CallingNode;
use crate::answer::store_problem;
use crate::index::StartComparison;
use crate::releases;
use crate::rollouts::{self, HeardEvents};
use crate::state::{ControlPlane, now, run_to_completion};

/// The longest that a long poll is held.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(60);
/// When the next contact is further away than this, the connection is closed after the
/// answer: an idle node then costs no memory here.
const KEEP_OPEN: Duration = Duration::from_secs(45);

/// The answer to a check-in, and what becomes of the connection that it came on.
pub(crate) struct CheckInReply {
    pub(crate) answer: Answer,
    /// The node's next contact is further away than [`KEEP_OPEN`], and nothing is under way.
    pub(crate) closes_connection: bool,
}

pub(crate) async fn check_in(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    mut request: CheckIn,
    version: Option<ReleaseVersion>,
    wait: Duration,
) -> Result<CheckInReply, Problem> {
    ready(plane)?;
    // A link outlives the removal of its node for a moment.
    if !plane.index.get(&caller.id).is_some_and(|slot| Arc::ptr_eq(&slot, &caller.slot)) {
        return Err(Code::UnknownNode.into());
    }
    caller.is_not_revoked()?;
    is_new_enough(plane, caller, version)?;
    check_facts(&request.facts)?;
    let begun = Instant::now();
    keep_seen(plane, caller, &mut request).await?;
    keep_header(plane, &mut request).await;
    let incarnation = request.incarnation.clone();
    let mut heads = plane.heads.subscribe();
    // What is asked again is small: facts and traits are not held for as long as an answer waits.
    let facts = std::mem::take(&mut request.facts);
    let traits = request.traits.take();
    // Who speaks is taken in once: an answer that waits outlives the process that asked for it, for a moment.
    let (instance, capabilities) = (request.instance.take(), request.capabilities.take());
    let quiet = request.clone();
    let request = CheckIn { facts, traits, instance, capabilities, ..request };
    compare_once(plane, caller).await?;
    let TakenStep { mut step, stream_newly_requested } = take_step(plane, caller, request);
    let acked = match persist(plane, caller, incarnation.clone(), &mut step).await? {
        None => lost_cursor(plane, caller, incarnation, quiet.acked).await?,
        acked => acked,
    };
    plane.metrics.checked_in(begun.elapsed());
    let held_trust = quiet.trust.clone();
    let lacks_trust = lacks_trust(plane, caller, held_trust.as_ref());
    if step.unchanged && !stream_newly_requested && !lacks_trust && wait > Duration::ZERO {
        step = long_poll(plane, caller, quiet, wait, &mut heads).await?;
    }
    step.answer.trust_links = trust_links(plane, caller, held_trust.as_ref());
    step.answer.acked = acked;
    {
        let mut entry = caller.slot.lock();
        step.answer.same_cause = plane.index.others_failing(&entry.node.summary.failures);
        if step.answer.rollout.is_some() {
            // Facts of this request may have changed it.
            step.answer.rollout = entry.node.tell_rollout();
        }
    }
    complete(plane, &mut step).await?;
    let far = Duration::from_secs(step.answer.next_checkin_secs) > KEEP_OPEN;
    let closes_connection = far && step.unchanged && wait.is_zero();
    Ok(CheckInReply { answer: step.answer, closes_connection })
}

/// The agent is as new as the release that the node is pointed to asks for. One that is not is heard of, and told what
/// to install; `version` is that of the request, where it says one.
fn is_new_enough(
    plane: &ControlPlane,
    caller: &CallingNode,
    version: Option<ReleaseVersion>,
) -> Result<(), Problem> {
    let heads = plane.heads();
    let mut entry = caller.slot.lock();
    let pointed = entry.node.pointed(&heads);
    let minimum = pointed.and_then(|(head, _)| head.minimum_agent);
    let too_old =
        version.or(entry.node.agent_version).filter(|version| minimum.is_some_and(|min| *version < min));
    let before = entry.node.change_open_items(|it| std::mem::replace(&mut it.agent_too_old, too_old));
    let Some((version, minimum)) = too_old.zip(minimum) else {
        if before.is_some() {
            plane.index.mark_entry(&caller.slot, &mut entry);
        }
        return Ok(());
    };
    entry.node.last_seen = Some(now());
    plane.index.touch(&caller.slot, &mut entry);
    plane.index.mark_entry(&caller.slot, &mut entry);
    let detail = format!(
        "this agent is {version}, and the fleet takes {minimum} or later: install muster-agent {minimum}"
    );
    Err(Problem::new(Code::AgentTooOld, detail))
}

/// What depends on the signed artifacts waits until they are loaded (WIR-4).
pub(super) fn ready(plane: &ControlPlane) -> Result<(), Problem> {
    match plane.not_ready() {
        Some(why) => Err(Problem::new(Code::NotReady, why)),
        None => Ok(()),
    }
}

/// Verifies and stores the `seen` document of a check-in that carries a new one.
async fn keep_seen(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    request: &mut CheckIn,
) -> Result<(), Problem> {
    let Some(document) = request.seen.take() else { return Ok(()) };
    let taken = caller.slot.lock().node.take_seen(&document);
    let new = taken.map_err(|error| Problem::new(Code::SeenRefused, error.to_string()))?;
    if !new {
        return Ok(());
    }
    let (plane, caller) = (plane.clone(), caller.clone());
    run_to_completion(async move {
        let stored = plane.store.put_seen(&caller.id, document, now()).await;
        // Not stored: the next answer asks for it again.
        stored.inspect_err(|_| caller.slot.lock().node.seen = None).map_err(store_problem)
    })
    .await
}

/// Keeps the header of the release that a node holds, if it was asked for and is believed.
async fn keep_header(plane: &Arc<ControlPlane>, request: &mut CheckIn) {
    let Some(header) = request.header.take() else { return };
    // One that nobody asked for costs nothing more.
    let digest = signed::digest(&header);
    let is_held = |held: &&HeldRelease| held.header == digest;
    if !request.held.as_ref().filter(is_held).is_some_and(|held| plane.heads().lacks(held.seq, &digest)) {
        return;
    }
    let keeper = plane.clone();
    let kept = run_to_completion(async move { releases::keep_node_header(&keeper, header).await }).await;
    if let Err(problem) = kept {
        // The rest of the check-in counts all the same.
        tracing::warn!(%problem, "the header of the release that a node holds is not kept");
    }
}

/// Has a node that synchronizes compare once after each start of the control plane, whose data may have gone back
/// to what it was before (SCL-4).
async fn compare_once(plane: &ControlPlane, caller: &CallingNode) -> Result<(), Problem> {
    if caller.slot.lock().comparison == StartComparison::Asked {
        return Ok(());
    }
    let Some(root) = caller.slot.pointed_root(&plane.heads()) else { return Ok(()) };
    if plane.grants.mode(&root).await.map_err(store_problem)? != Mode::Off {
        plane.hub.sync_index().update(&caller.id, |summary| summary.called(plane.boot()));
    }
    caller.slot.lock().comparison = StartComparison::Asked;
    Ok(())
}

/// A step of a node's state.
struct TakenStep {
    step: Step,
    /// The step is the first that asks the node for a stream, as work waits (SYN-10).
    stream_newly_requested: bool,
}

fn take_step(plane: &ControlPlane, caller: &CallingNode, request: CheckIn) -> TakenStep {
    let heads = plane.heads();
    let (authority, nodes) =
        (request.trust.as_ref().and_then(|held| held.authority.clone()), plane.index.len());
    let (taken, was_late, contact) = {
        let mut entry = caller.slot.lock();
        plane.index.touch(&caller.slot, &mut entry);
        let (silent_since, promised) = (entry.node.silent_since(), entry.node.promised);
        let is_first = entry.node.last_seen.is_none();
        let was_late = is_first || contact_of(silent_since, promised, now()) != Contact::Online;
        let says_more = is_first
            || entry.node.held != request.held
            || entry.node.run != request.run
            || entry.node.runs.unmade.as_deref() != request.unmade_run.as_ref()
            || entry.node.runs.under_way.map(|run| run.since) != request.running_since
            || entry.node.open_items().refusal.is_some();
        let untaken = entry.node.open_items().untaken_traits.is_some();
        let mut step = entry.node.check_in(request, &heads, now());
        step.answer.renew_certificate = wants_renewal(plane, &entry.node, authority.as_deref(), nodes);
        let says_more = says_more
            || step.conditions_changed
            || untaken != entry.node.open_items().untaken_traits.is_some();
        if says_more || entry.counts_otherwise(&heads, now()) {
            plane.index.mark_entry(&caller.slot, &mut entry);
        }
        let stream_newly_requested = step.answer.stream_requested && entry.note_work_notified();
        let contact = entry.node.contact_untold(Contact::Online);
        (TakenStep { step, stream_newly_requested }, was_late, contact)
    };
    if let Some(contact) = contact {
        plane.rollouts.contact(&caller.id, contact);
    }
    if was_late {
        plane.work.online(&caller.id);
    }
    taken
}

/// The node's certificate counts for too long, or a CA issued it that was replaced.
fn wants_renewal(plane: &ControlPlane, node: &NodeState, authority: Option<&str>, nodes: usize) -> bool {
    plane.certificates.wants_renewal(node.certificate, now())
        || plane.authorities.set().wants_renewal(node, authority, nodes, now())
}

/// There are trust documents newer than the one that the node holds, and than those that it was sent before: one
/// that does not follow them need not be told at once again and again.
fn lacks_trust(plane: &ControlPlane, caller: &CallingNode, held: Option<&HeldTrust>) -> bool {
    let documents = plane.trust.documents();
    let lacking = documents.links_after(held);
    !lacking.links.is_empty() && lacking.last > caller.slot.lock().trust_sent
}

/// The newer trust documents that the answer carries.
fn trust_links(plane: &ControlPlane, caller: &CallingNode, held: Option<&HeldTrust>) -> Vec<Signed> {
    let documents = plane.trust.documents();
    let lacking = documents.links_after(held);
    if !lacking.links.is_empty() {
        caller.slot.lock().trust_sent = lacking.last;
    }
    lacking.links.to_vec()
}

/// Waits until there is something to say, or the wait is over.
async fn long_poll(
    plane: &ControlPlane,
    caller: &CallingNode,
    request: CheckIn,
    wait: Duration,
    heads: &mut tokio::sync::watch::Receiver<Arc<plane::Heads>>,
) -> Result<Step, Problem> {
    let deadline = tokio::time::sleep(wait.min(MAX_WAIT));
    tokio::pin!(deadline);
    loop {
        let mut woken = std::pin::pin!(caller.slot.wake.notified());
        // From here on it is woken, by whatever changed meanwhile too.
        woken.as_mut().enable();
        caller.is_not_revoked()?;
        let TakenStep { step, stream_newly_requested } = take_step(plane, caller, request.clone());
        if !step.unchanged || stream_newly_requested || lacks_trust(plane, caller, request.trust.as_ref()) {
            return Ok(step);
        }
        // It is here meanwhile, and calls again after that.
        let contact = Duration::from_secs(step.answer.next_checkin_secs);
        caller.slot.lock().node.promised = contact + wait.min(MAX_WAIT);
        tokio::select! {
            _ = heads.changed() => {}
            () = woken => {}
            () = &mut deadline => return Ok(step),
        }
    }
}

/// Makes durable what a step says is new, before anything of it is acknowledged. Whole, also when the node
/// hangs up in the middle: what memory has by now and the store has not is asked of nobody again. So what
/// cannot be stored goes out of memory, each by itself.
async fn persist(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    incarnation: Incarnation,
    step: &mut Step,
) -> Result<Option<Cursor>, Problem> {
    let (traits, facts) = (step.traits.take(), std::mem::take(&mut step.facts));
    let (first_use, run_confirmed) = (step.first_use, step.run_confirmed);
    let tagged_run_confirmed = step.tagged_run_confirmed.take();
    let confirms = run_confirmed.is_some() || tagged_run_confirmed.is_some();
    let (copied, capabilities) = (step.newly_copied.take(), step.capabilities.take());
    let says_more = confirms || copied.is_some() || capabilities.is_some();
    if !first_use && !says_more && traits.is_none() && facts.is_empty() {
        return Ok(None);
    }
    let (plane, caller) = (plane.clone(), caller.clone());
    run_to_completion(async move {
        let mut stored = Ok(());
        if first_use {
            let used = plane.store.certificate_used(&caller.id).await;
            // Not stored: the next request is the first one again (ENR-7).
            stored = stored.and(used.inspect_err(|_| caller.slot.lock().node.certificate_used = false));
        }
        if let Some(number) = run_confirmed {
            let undo = |_: &StoreError| {
                caller.slot.lock().node.change_open_items(|it| _ = it.run_request.get_or_insert(number));
            };
            stored = stored.and(plane.store.confirm_run(&caller.id, number).await.inspect_err(undo));
        }
        if let Some(run) = tagged_run_confirmed {
            let confirmed = plane.store.confirm_tagged_run(&caller.id, run.number).await;
            let undo = |_: &StoreError| {
                caller.slot.lock().node.change_open_items(|it| _ = it.tagged_run.get_or_insert(run));
            };
            stored = stored.and(confirmed.inspect_err(undo));
        }
        if let Some(at) = copied {
            stored = stored.and(note_copied(&plane, &caller, at).await);
        }
        if let Some(capabilities) = capabilities {
            note_newer(&plane, &capabilities.version);
            let kept = plane.store.put_capabilities(&caller.id, *capabilities).await;
            // Not stored: the next answer asks for them again.
            stored = stored.and(kept.inspect_err(|_| caller.slot.lock().node.agent_version = None));
        }
        // A check-in after this one may have brought newer ones meanwhile.
        let is_newest = |traits: &TraitReport| caller.slot.lock().node.traits == Some(traits.digest);
        if let Some(traits) = traits.filter(is_newest) {
            let put = keep_traits(&plane, &caller, traits).await;
            // Not stored: the next answer asks for them again.
            stored = stored.and(put.inspect_err(|_| caller.slot.lock().node.traits = None));
        }
        stored.map_err(store_problem)?;
        if facts.is_empty() {
            return Ok(None);
        }
        accept_facts(&plane, &caller, &incarnation, facts).await.map(Some)
    })
    .await
}

/// Makes durable that two hosts hold a node's key, and ends what is open to either (IDN-10).
pub(crate) async fn note_copied(
    plane: &ControlPlane,
    caller: &CallingNode,
    at: Timestamp,
) -> Result<(), StoreError> {
    let hostname = caller.slot.names().1;
    tracing::error!(node = %caller.id, %hostname, "two hosts hold this node's key: neither gets releases, actions or \
        objects until an operator decides");
    let undo = |_: &StoreError| caller.slot.lock().node.change_open_items(|it| it.copied = None);
    plane.store.set_copied(&caller.id, Some(at)).await.inspect_err(undo)?;
    plane.index.mark(&caller.slot);
    plane
        .hub
        .sync_index()
        .update(&caller.id, |summary| summary.duplicate = Some(tokio::time::Instant::now()));
    if let Some(link) = plane.hub.sync_index().link(&caller.id) {
        link.end(Code::DuplicateIdentity.as_str(), "two hosts hold this node's key");
    }
    Ok(())
}

/// Says once of each version that an agent is newer than this control plane.
fn note_newer(plane: &ControlPlane, version: &str) {
    let (Some(agent), Some(own)) =
        (ReleaseVersion::parse(version), ReleaseVersion::parse(env!("CARGO_PKG_VERSION")))
    else {
        return;
    };
    if agent > own && plane.joins.note_newer(agent) {
        tracing::warn!(agent = %agent, control_plane = %own, "agents are newer than this control plane: upgrade it");
    }
}

/// How far the node's log is durable here, where that is less than was acknowledged: the data went back, and
/// the node is to send again what it still has (SCL-4).
async fn lost_cursor(
    plane: &ControlPlane,
    caller: &CallingNode,
    incarnation: Incarnation,
    acked: Option<u64>,
) -> Result<Option<Cursor>, Problem> {
    let Some(acked) = acked.filter(|acked| *acked > 0) else { return Ok(None) };
    let cursor = durable_cursor(plane, caller, &incarnation).await?;
    Ok((cursor.seq < acked).then_some(cursor))
}

/// How far a log of the node is durable here, or less while facts of another request are being stored.
async fn durable_cursor(
    plane: &ControlPlane,
    caller: &CallingNode,
    incarnation: &Incarnation,
) -> Result<Cursor, Problem> {
    let known = caller.slot.lock().node.cursor.clone();
    if let Some(known) = known.filter(|known| known.incarnation == *incarnation) {
        return Ok(known);
    }
    // Of a log that is not the newest here, or of none that is known: the store says.
    let accepted = plane.store.append_facts(&caller.id, incarnation, Vec::new(), now()).await;
    Ok(accepted.map_err(store_problem)?.cursor)
}

/// Keeps traits whole. Those that differ from what is not kept, or that came to be too large by differences,
/// are asked for anew, whole.
async fn keep_traits(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    traits: TraitReport,
) -> Result<(), StoreError> {
    let kept = match traits.base {
        Some(_) => plane.store.traits(&caller.id).await?,
        None => None,
    };
    match traits.over(kept).filter(TraitReport::is_within_bounds) {
        Some(whole) => plane.store.put_traits(&caller.id, whole, now()).await,
        None => {
            caller.slot.lock().node.traits = None;
            Ok(())
        }
    }
}

/// Not to be cancelled: what the store took and the index did not would be known to nobody until the next
/// start.
async fn accept_facts(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    incarnation: &Incarnation,
    facts: Vec<Fact>,
) -> Result<Cursor, Problem> {
    let accepted = append(plane, caller, incarnation, facts).await?;
    plane.index.accepted(&caller.slot, accepted.cursor.clone(), &accepted.new);
    for fact in &accepted.new {
        plane.metrics.fact(fact.body.kind());
    }
    plane.work.facts(plane, &caller.id, &accepted.new).await;
    Ok(accepted.cursor)
}

/// Makes facts durable; events of rollouts among them with all that follows from them (ROL-5). An event behind a gap takes
/// no effect, as its fact is not accepted: both are asked for again, with what is missing (SCL-4).
async fn append(
    plane: &ControlPlane,
    caller: &CallingNode,
    incarnation: &Incarnation,
    mut facts: Vec<Fact>,
) -> Result<Accepted, Problem> {
    if rollouts::are_among(&facts) {
        let durable = durable_cursor(plane, caller, incarnation).await?;
        facts = model::log::up_to_gap(durable.seq, facts);
    }
    if !rollouts::are_among(&facts) {
        let appended = plane.store.append_facts(&caller.id, incarnation, facts, now()).await;
        return appended.map_err(store_problem);
    }
    let heard = HeardEvents::of_facts(plane, caller, incarnation, facts);
    plane.rollouts.events(heard).await?.accepted.ok_or_else(|| Code::Internal.into())
}

/// Puts the set into an offer that needs one.
async fn complete(plane: &ControlPlane, step: &mut Step) -> Result<(), Problem> {
    if let (Some(wanted), Some(offer)) = (step.wanted, step.answer.offer.as_mut()) {
        offer.set = plane.sets.offer(wanted).await.map_err(store_problem)?;
        if offer.set.is_none() {
            return Err(Problem::new(Code::Internal, "the release's set is not stored"));
        }
    }
    Ok(())
}

pub(super) async fn report(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    report: Report,
) -> Result<Acked, Problem> {
    check_facts(&report.facts)?;
    let (plane, caller) = (plane.clone(), caller.clone());
    run_to_completion(async move {
        let acked = accept_facts(&plane, &caller, &report.incarnation, report.facts).await?;
        Ok(Acked { acked })
    })
    .await
}

fn check_facts(facts: &[Fact]) -> Result<(), Problem> {
    if facts.len() > MAX_FACTS {
        return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_FACTS} facts a request")));
    }
    match facts.iter().find(|fact| !fact.is_within_bounds()) {
        Some(fact) => {
            let (seq, kind) = (fact.seq, fact.body.kind());
            let detail = format!("fact {seq} ({kind}) is larger than {MAX_FACT_BYTES} bytes");
            Err(Problem::new(Code::FactTooLarge, detail))
        }
        None => Ok(()),
    }
}

/// What the node is pointed to, named in full: the check-in's answer to one that holds nothing.
pub(super) async fn state(plane: &ControlPlane, caller: &CallingNode) -> Result<Answer, Problem> {
    ready(plane)?;
    let heads = plane.heads();
    let mut step = {
        let mut node = caller.slot.lock().node.clone();
        let incarnation = node.cursor.as_ref().map(|cursor| cursor.incarnation.clone());
        let incarnation = incarnation.or_else(|| "none".parse().ok()).ok_or(Code::Internal)?;
        let empty = CheckIn {
            held: None,
            incarnation,
            facts: Vec::new(),
            run: None,
            unmade_run: None,
            freshness: None,
            running_since: None,
            traits: None,
            full: true,
            run_confirmed: None,
            tagged_run_confirmed: None,
            seen: None,
            header: None,
            acked: None,
            trust: None,
            renewal_failure: None,
            unadopted: None,
            instance: None,
            capabilities: None,
        };
        node.check_in(empty, &heads, now())
    };
    complete(plane, &mut step).await?;
    Ok(step.answer)
}
