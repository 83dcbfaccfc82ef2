//! [`causes_of`]: why a node is as it is, since when, and what to do next; what the status counts and operators read.

pub(crate) mod next_step;

use model::exchange::{MAX_TRAIT_BYTES, MAX_TRAIT_VALUES};
use model::status::Overall;
use model::{Contention, FailureCode, FailureNote, Pause, ReleaseVersion, Timestamp};
use plane::{Heads, NodeState};
use rollout::OffRelease;
use trust::Revocation;

use crate::status_basis::StatusBasis;
use crate::totals::CauseKey;
use next_step::{CertificateProblem, beacon_for_earlier, join_again, next_step, refused_trust};

/// The cause where no more is known of it.
const SEE_RUN: &str = "see its last run";

/// A line of the status as far as one node makes it.
pub(crate) struct NodeCause {
    pub(crate) key: CauseKey,
    pub(crate) cause: String,
    pub(crate) code: Option<FailureCode>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) next: String,
}

/// What there is to say of a node: why it is not green, and what was requested of it in vain.
pub(crate) fn causes_of(node: &mut NodeState, state: Overall, basis: StatusBasis<'_>) -> Vec<NodeCause> {
    let (certificate, heads) = (CertificateProblem::of(node, basis), basis.heads);
    let (earlier, waits) = (beacon_for_earlier(node, heads), node.waits_for_rollout(heads));
    let next_of = |node: &NodeState, state: Overall, certificate: Option<&CertificateProblem>| match &earlier
    {
        Some(beacon) if state == Overall::NotFresh => beacon.clone(),
        _ if waits && state == Overall::Changing => format!("`muster rollout explain {}`", node.hostname),
        _ => next_step(node, state, certificate),
    };
    let (since, next) = (state_since(node, state, heads), next_of(node, state, certificate.as_ref()));
    let of_state = |(key, cause, code)| NodeCause { key, cause, code, since, next: next.clone() };
    // What the node says now comes before what is kept of a release of before.
    let mut causes: Vec<NodeCause> = unadopted(node).into_iter().collect();
    if causes.is_empty() || !is_told_by_unadopted(node, state) {
        causes.extend(why_not_green(node, state, heads, certificate.as_ref()).into_iter().map(of_state));
    }
    if let Some(CertificateProblem::NotRenewed(cause)) = &certificate {
        let cause = cause.clone();
        let next = format!("on {}: {}", node.hostname, node.agent().verb("status"));
        causes.push(NodeCause { key: CauseKey::RenewalLate, cause, code: None, since: None, next });
    }
    // Of a silent node it is the cause.
    let is_silent = matches!(state, Overall::Revoked | Overall::Offline | Overall::Unreachable);
    let ended = match certificate.filter(|_| !is_silent) {
        Some(CertificateProblem::Ended(cause)) => Some((CauseKey::CertificateEnded, cause, join_again(node))),
        Some(CertificateProblem::Recoverable(cause)) => {
            let next = format!("on {}: {}", node.hostname, node.agent().verb("status"));
            Some((CauseKey::CertificateRecoverable, cause, next))
        }
        Some(CertificateProblem::NotRenewed(_) | CertificateProblem::Rejected(_)) | None => None,
    };
    if let Some((key, cause, next)) = ended {
        causes.push(NodeCause { key, cause, code: None, since: None, next });
    }
    if let Some(cause) = not_fresh(node).filter(|_| state != Overall::NotFresh) {
        let (key, next) =
            (CauseKey::Words(Overall::NotFresh, cause.clone()), next_of(node, Overall::NotFresh, None));
        let since = node.open_items().conditions.freshness.and_then(|held| held.not_fresh_since);
        causes.push(NodeCause { key, cause, code: None, since, next });
    }
    // Whatever its last run came to: nothing is put right meanwhile.
    let is_said = state == Overall::Paused || is_silent;
    if let Some(pause) = node.summary.paused.as_deref().filter(|_| !is_said) {
        let cause = paused(pause);
        let (key, next) =
            (CauseKey::Words(Overall::Paused, cause.clone()), next_step(node, Overall::Paused, None));
        causes.push(NodeCause { key, cause, code: None, since: Some(pause.since), next });
    }
    if let Some(code) = &node.open_items().conditions.refused_trust {
        let (cause, next) = refused_trust(node, code);
        let key = CauseKey::RefusedTrust(code.to_string());
        causes.push(NodeCause { key, cause, code: None, since: None, next });
    }
    causes.extend(off_release(node));
    causes.extend(of_agent(node));
    if node.open_items().untaken_traits.is_some() {
        causes.push(NodeCause {
            key: CauseKey::TraitsTooLarge,
            cause: format!(
                "its traits are more than {} KiB or {MAX_TRAIT_VALUES} values, and are not taken: selectors read those \
                 from before",
                MAX_TRAIT_BYTES / 1024
            ),
            code: None,
            since: None,
            next: format!("install a newer muster-agent on {}, which leaves out what is too large", node.hostname),
        });
    }
    let unknown = &node.summary.unknown_tags;
    if !unknown.is_empty() {
        causes.push(NodeCause {
            key: CauseKey::UnknownTags(unknown.to_vec()),
            cause: format!("a run was requested, and no resource is tagged {}", unknown.join(" or ")),
            code: None,
            since: None,
            next: format!("muster node show {}; request it anew, of tags that it has", node.hostname),
        });
    }
    causes
}

/// Why the node is well on what it holds, and yet not on the release of its rollout.
fn off_release(node: &NodeState) -> Option<NodeCause> {
    let pointer = node.rollout()?;
    let rollout = pointer.dispatch.rollout.clone();
    let (key, cause) = match pointer.off_release.as_ref()? {
        OffRelease::WentBack(cause) => (CauseKey::WentBack(rollout), cause),
        OffRelease::TakenOut(cause) => (CauseKey::TakenOut(rollout), cause),
        OffRelease::Failed(_) => return None,
    };
    Some(NodeCause {
        key,
        cause: model::text::printable(cause).into_owned(),
        code: None,
        since: None,
        next: format!("`muster rollout explain {}`", node.hostname),
    })
}

/// What is the matter with the agent itself: how many hold its key, and how old it is.
fn of_agent(node: &NodeState) -> Vec<NodeCause> {
    let (open_items, name) = (node.open_items(), &node.hostname);
    let mut causes = Vec::new();
    if let Some(since) = open_items.copied {
        causes.push(NodeCause {
            key: CauseKey::CopiedKey,
            cause: "two hosts hold its key: neither gets releases, actions or objects".to_owned(),
            code: None,
            since: Some(since),
            next: format!(
                "stop the copy, and on it `muster-agent prepare-image`; then `muster node approve {name} --copy-resolved`"
            ),
        });
    }
    if let Some(version) = open_items.agent_too_old {
        causes.push(NodeCause {
            key: CauseKey::AgentTooOld(version),
            cause: format!("its agent {version} is older than fleet.yaml takes: its check-ins are refused"),
            code: None,
            since: None,
            next: format!("install a newer muster-agent on {name}, or lower `minimum_agent` in fleet.yaml"),
        });
    }
    let own = ReleaseVersion::parse(env!("CARGO_PKG_VERSION")).unwrap_or_default();
    if let Some(version) = node.agent_version.filter(|version| *version > own) {
        causes.push(NodeCause {
            key: CauseKey::AgentNewer(version),
            cause: format!("its agent {version} is newer than the control plane, which is {own}"),
            code: None,
            since: None,
            next: "upgrade the control plane first, then agents".to_owned(),
        });
    }
    causes
}

/// Why a node is not green: one cause, or each of its failures that is kept.
fn why_not_green(
    node: &NodeState,
    state: Overall,
    heads: &Heads,
    certificate: Option<&CertificateProblem>,
) -> Vec<(CauseKey, String, Option<FailureCode>)> {
    let of_rollout = node.rollout_failure().filter(|_| state == Overall::Failed);
    if is_of_failures(state) && of_rollout.is_none() && !node.summary.failures.is_empty() {
        let of = |note: &FailureNote| {
            (CauseKey::Failure(note.key()), note.line(), note.cause.as_ref().map(|cause| cause.code))
        };
        return node.summary.failures.iter().map(of).collect();
    }
    let Some(cause) = state_cause(node, state, heads, certificate) else { return Vec::new() };
    let key = match state {
        _ if run_under_way(node, state, heads).is_some() => CauseKey::RunUnderWay(state),
        Overall::Stalled => CauseKey::Silence(state),
        Overall::Offline | Overall::Unreachable => match certificate {
            Some(CertificateProblem::Ended(_)) => CauseKey::CertificateEnded,
            Some(CertificateProblem::Recoverable(_)) => CauseKey::CertificateRecoverable,
            Some(CertificateProblem::Rejected(_)) => CauseKey::CertificateRejected,
            _ => CauseKey::Silence(state),
        },
        _ => CauseKey::Words(state, cause.clone()),
    };
    vec![(key, cause, None)]
}

/// Its cause is a failure of its last run.
pub(crate) fn is_of_failures(state: Overall) -> bool {
    matches!(state, Overall::Failed | Overall::Degraded)
}

/// Why the node does not hold the release that it was offered, by its own word; whatever its state.
fn unadopted(node: &NodeState) -> Option<NodeCause> {
    let unadopted = node.open_items().conditions.unadopted.as_ref()?;
    Some(NodeCause {
        key: CauseKey::Unadopted(unadopted.cause),
        cause: model::text::printable(&unadopted.text()).into_owned(),
        code: None,
        since: Some(unadopted.since),
        next: format!("on {}: {}", node.hostname, node.agent().verb("doctor")),
    })
}

/// That it does not adopt the release is all that there is to say of its state.
fn is_told_by_unadopted(node: &NodeState, state: Overall) -> bool {
    state == Overall::Changing && node.open_items().refusal.is_none()
}

/// Why a node is not green, in the words of the first of its [`causes_of`] that is of its state.
pub(crate) fn cause(node: &NodeState, state: Overall, basis: StatusBasis<'_>) -> Option<String> {
    let certificate = CertificateProblem::of(node, basis);
    let unadopted = unadopted(node).filter(|_| state == Overall::Changing);
    // Whatever its state: an operator has to decide.
    let is_urgent = |it: &NodeCause| !matches!(it.key, CauseKey::AgentNewer(_));
    let of_agent = of_agent(node).into_iter().find(is_urgent).map(|it| it.cause);
    let unadopted = unadopted.map(|it| it.cause);
    let of_state = || state_cause(node, state, basis.heads, certificate.as_ref());
    of_agent.or(unadopted).or_else(of_state).or_else(|| off_release(node).map(|it| it.cause))
}

fn state_cause(
    node: &NodeState,
    state: Overall,
    heads: &Heads,
    certificate: Option<&CertificateProblem>,
) -> Option<String> {
    let never_called = || "joined, and has not called yet".to_owned();
    let silent = || node.last_seen.map_or_else(never_called, |seen| format!("last heard of at {seen}"));
    match state {
        Overall::Converged => None,
        Overall::Revoked => node.revoked.as_deref().map(revoked),
        Overall::Offline | Overall::Unreachable => match certificate {
            Some(
                CertificateProblem::Ended(cause)
                | CertificateProblem::Recoverable(cause)
                | CertificateProblem::Rejected(cause),
            ) => Some(cause.clone()),
            _ => Some(silent()),
        },
        _ if node.last_seen.is_none() => Some(never_called()),
        Overall::Unassigned if heads.channels.is_empty() => Some("nothing is published yet".to_owned()),
        Overall::Unassigned => Some(match &node.held {
            None => "no entry of the fleet repo matches this hostname".to_owned(),
            Some(held) => format!(
                "no entry of the fleet repo matches this hostname any more; it keeps converging on release {}, \
                 which it holds",
                held.seq
            ),
        }),
        Overall::New => Some("enrolled, no run reported yet".to_owned()),
        Overall::Stalled => Some(stalled(node, heads)),
        Overall::NotFresh => not_fresh(node).or_else(|| {
            Some("the release it is pointed to is past its freshness by the control plane's clock".to_owned())
        }),
        Overall::Changing => match &node.open_items().refusal {
            Some(refusal) => Some(refusal.message.to_string()),
            None if node.holds_pointed(heads) => {
                let under_way = run_under_way(node, state, heads);
                Some(under_way.unwrap_or_else(|| {
                    "its first run on the release that it holds is not reported yet".to_owned()
                }))
            }
            None if node.waits_for_rollout(heads) => {
                Some("the rollout of its channel gives it no release".to_owned())
            }
            None => Some("has not adopted the newest release yet".to_owned()),
        },
        Overall::Paused => node.summary.paused.as_deref().map(paused),
        Overall::Diverged if !node.open_items().contended.is_empty() => {
            Some(contended(&node.open_items().contended))
        }
        Overall::Diverged | Overall::Relapsed => Some(format!(
            "{} corrective runs in a row: something else changes this host",
            node.summary.streak
        )),
        Overall::Failed if node.rollout_failure().is_some() => {
            node.rollout_failure().map(|failure| model::text::printable(failure).into_owned())
        }
        Overall::Failed | Overall::Degraded => {
            node.summary.failures.first().map(FailureNote::line).or_else(|| Some(SEE_RUN.to_owned()))
        }
        Overall::WouldChange => Some(node.summary.would_change.as_deref().unwrap_or(SEE_RUN).to_owned()),
    }
}

/// Since when it counts no more, and why.
fn revoked(revocation: &Revocation) -> String {
    let why = revocation.why.as_deref().map(|why| format!(": {}", model::text::printable(why)));
    format!(
        "revoked: what was issued for it before {} counts no more{}",
        revocation.not_before,
        why.unwrap_or_default()
    )
}

/// Why no run that was due is known to have been made.
fn stalled(node: &NodeState, heads: &Heads) -> String {
    let since = node.no_run_since().map(|since| format!(" since {since}")).unwrap_or_default();
    let why = match &node.runs.unmade {
        Some(unmade) => model::text::printable(&unmade.reason).into_owned(),
        None => run_under_way(node, Overall::Stalled, heads)
            .unwrap_or_else(|| "none was reported in time".to_owned()),
    };
    format!("no successful run{since}: {why}")
}

/// That a node says of itself that what it holds is not fresh, and what that means.
fn not_fresh(node: &NodeState) -> Option<String> {
    let held = node.open_items().conditions.freshness.filter(|held| held.not_fresh_since.is_some())?;
    let signed = held.signed_at;
    Some(format!("no release or beacon was signed since {signed}: it takes neither actions nor objects"))
}

/// Says since when a run has been under way, by the node's clock as its journal has it, where that is why the node
/// is in this state.
fn run_under_way(node: &NodeState, state: Overall, heads: &Heads) -> Option<String> {
    let is_why = match state {
        Overall::Stalled => node.runs.unmade.is_none(),
        Overall::Changing => node.open_items().refusal.is_none() && node.holds_pointed(heads),
        _ => false,
    };
    let run = node.runs.under_way.filter(|_| is_why)?;
    Some(format!("a run has been under way since {}", run.since))
}

/// Why a host is paused; since when is a column of its own.
fn paused(pause: &Pause) -> String {
    let until = pause.until.map(|until| format!(", until {until}")).unwrap_or_default();
    format!("paused on its host{until}: {}", model::text::printable(&pause.reason))
}

/// What is changed again and again, and by whom: the newest of them.
fn contended(contended: &[Contention]) -> String {
    let text = contended.first().map(|newest| model::text::printable(&newest.summary()).into_owned());
    let more = contended.len().saturating_sub(1);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    format!("{}{more}", text.unwrap_or_default())
}

/// Since when a node is in a state, by what tells of that state as [`cause`] does; `None` where nothing does.
pub(crate) fn since(node: &mut NodeState, state: Overall, heads: &Heads) -> Option<Timestamp> {
    let unadopted = unadopted(node).filter(|_| state == Overall::Changing);
    unadopted.map_or_else(|| state_since(node, state, heads), |it| it.since)
}

fn state_since(node: &mut NodeState, state: Overall, heads: &Heads) -> Option<Timestamp> {
    match state {
        Overall::Offline | Overall::Unreachable => Some(node.heard_at()),
        Overall::Revoked => node.revoked.as_ref().map(|revocation| revocation.not_before),
        Overall::New => Some(node.enrolled_at),
        Overall::Stalled => node.no_run_since(),
        Overall::Changing => {
            let pointed = node.pointed(heads).or_else(|| heads.pointed(&node.hostname));
            pointed.map(|(head, _)| head.header.created)
        }
        Overall::Paused => node.summary.paused.as_ref().map(|pause| pause.since),
        Overall::Diverged => node.open_items().contended.iter().map(|one| one.since).min(),
        Overall::Failed | Overall::Degraded | Overall::WouldChange | Overall::Converged => node.summary.since,
        // Of a streak of corrections only its length is kept.
        Overall::NotFresh => node.open_items().conditions.freshness.and_then(|held| held.not_fresh_since),
        Overall::Relapsed | Overall::Unassigned => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use trust::SigningKey;

    use super::*;

    /// CNV-3: a host that is paused is said to be so, also where its state is a failure.
    #[test]
    fn a_pause_is_told_beside_a_failure() {
        let key = SigningKey::from_seed(&[1; 32]).public();
        let issuers = crate::authority::CountingIssuers {
            current: plane::renewal::CertificateIssuer::of(&key),
            previous: None,
            was_replaced: false,
            reject_before: None,
        };
        let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, Timestamp(1));
        node.last_seen = Some(Timestamp(5));
        let pause = Pause { reason: "a disk is changed".to_owned(), since: Timestamp(3), until: None };
        node.summary.paused = Some(Box::new(pause));
        let heads = Heads::default();
        let recovery = plane::renewal::CertificateRecovery::Off;
        let basis = StatusBasis { heads: &heads, recovery, issuers, now: Timestamp(6) };
        let mut told = |state| {
            let causes = causes_of(&mut node, state, basis);
            causes.into_iter().filter(|it| it.cause.contains("a disk is changed")).count()
        };
        use Overall::{Degraded, Offline, Paused};
        assert_eq!([Degraded, Paused, Offline].map(&mut told), [1, 1, 0]);
    }

    /// CNV-3: each state counts from what tells of it, whatever the last run came to and when.
    #[test]
    fn since_when_is_told_by_the_state() {
        let key = SigningKey::from_seed(&[1; 32]).public();
        let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, Timestamp(1));
        let heads = Heads::default();
        let told = |node: &mut NodeState| {
            use Overall::{Degraded, Diverged, New, Offline, Paused, Relapsed, Unreachable};
            [New, Offline, Unreachable, Degraded, Paused, Diverged, Relapsed]
                .map(|state| since(node, state, &heads).map(|at| at.0))
        };
        assert_eq!(told(&mut node), [Some(1), Some(1), Some(1), None, None, None, None]);
        node.last_seen = Some(Timestamp(5));
        node.summary.since = Some(Timestamp(2));
        node.summary.paused =
            Some(Box::new(Pause { reason: "r".to_owned(), since: Timestamp(3), until: None }));
        assert_eq!(told(&mut node), [Some(1), Some(5), Some(5), Some(2), Some(3), None, None]);
    }
}
