//! What operators do next about a node, and what is the matter with its certificate (IDN-2).

use model::status::Overall;
use model::{CertificateState, Hostname, Timestamp};
use plane::{Heads, NodeState};
use trust::adopt::{OLDER_CODE, REQUIRES_CODE, SIGNATURE_CODE, TOO_FEW_CODE, TWO_HEADERS_CODE};
use trust::chain::{MALFORMED_TRUST_CODE, OLDER_TRUST_CODE};

use crate::status_basis::StatusBasis;

/// What is the matter with a node's certificate, if anything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateProblem {
    /// Its renewal is late, or fails.
    NotRenewed(String),
    /// It has ended, and its agent gets another one for its key.
    Recoverable(String),
    /// A CA issued it that counts no more, and its agent gets another one for its key.
    Rejected(String),
    /// It has ended, and the node has to join again.
    Ended(String),
}

impl CertificateProblem {
    pub(crate) fn of(node: &NodeState, basis: StatusBasis<'_>) -> Option<CertificateProblem> {
        let (certificate, now) = (node.certificate?, basis.now);
        let ends = certificate.until;
        let failure = node.open_items().conditions.renewal_failure.as_deref();
        let failed = failure.map(|why| format!("; it says: {why}")).unwrap_or_default();
        match certificate.state(now) {
            CertificateState::Ended if basis.recovery.judge(certificate, now).is_ok() => {
                let words = format!(
                    "its certificate ended at {ends}: its agent gets another one for its key once it runs{failed}"
                );
                Some(CertificateProblem::Recoverable(words))
            }
            CertificateState::Ended => {
                let words = format!("its certificate ended at {ends}: it has to join again{failed}");
                Some(CertificateProblem::Ended(words))
            }
            CertificateState::RenewalLate | CertificateState::Valid if basis.issuers.rejects(node) => {
                let words = format!(
                    "its certificate is of a CA that counts no more: its agent gets another one for its key once it runs, \
                     and one of before this is shut out until it is upgraded{failed}"
                );
                Some(CertificateProblem::Rejected(words))
            }
            CertificateState::RenewalLate => {
                let words = format!("its certificate ends at {ends}, and its renewal is late{failed}");
                Some(CertificateProblem::NotRenewed(words))
            }
            CertificateState::Valid => failure.map(|why| {
                let words = format!("its certificate ends at {ends}, and its renewal fails: {why}");
                CertificateProblem::NotRenewed(words)
            }),
        }
    }
}

/// From when [`CertificateProblem`] of a node is another one though nothing was heard.
pub(crate) fn certificate_until(node: &NodeState, basis: StatusBasis<'_>) -> Option<Timestamp> {
    let certificate = node.certificate?;
    let recovery_ends = basis.recovery.ends_for(certificate).filter(|at| *at > basis.now);
    certificate.state_until(basis.now).or(recovery_ends)
}

/// How a node gets a new certificate.
pub(crate) fn join_again(node: &NodeState) -> String {
    let (name, join) = (&node.hostname, node.agent().verb("join --token-file FILE"));
    format!("`muster token mint {name}`; then on {name}: `{join}`")
}

/// Why a node does not follow newer trust documents, by the code that it says, and what is to be done (IDN-8).
pub(crate) fn refused_trust(node: &NodeState, code: &str) -> (String, String) {
    let version = node.trust_version;
    if code == OLDER_TRUST_CODE {
        return (
            format!(
                "it says that it holds trust document {version}, which this control plane's data does not have"
            ),
            format!("put trust-links.json of a newer backup back; or {}", join_again(node)),
        );
    }
    let next = match code {
        // One with a form that it cannot read: with a token it would not join.
        MALFORMED_TRUST_CODE => format!("install a newer muster-agent on {}", node.hostname),
        _ => join_again(node),
    };
    (format!("it says that it holds trust document {version}, and does not follow newer ones ({code})"), next)
}

/// What signs anew the release that a node is pointed to, where that is not its channel's newest: `muster beacon` alone
/// signs for the newest.
pub(crate) fn beacon_for_earlier(node: &mut NodeState, heads: &Heads) -> Option<String> {
    let (head, _) = node.pointed(heads)?;
    let (channel, seq) = (&head.header.channel, head.header.seq);
    let newest = heads.channels.get(channel)?.header.seq;
    (seq != newest).then(|| format!("`muster beacon --channel {channel} --release {seq}`"))
}

pub(crate) fn next_step(
    node: &NodeState,
    state: Overall,
    certificate: Option<&CertificateProblem>,
) -> String {
    let refusal = node.open_items().refusal.as_ref().map(|refusal| &*refusal.code);
    let contends = !node.open_items().contended.is_empty();
    let (name, agent): (&Hostname, _) = (&node.hostname, node.agent());
    match state {
        Overall::Changing if refusal == Some(REQUIRES_CODE) => {
            format!("install a newer muster-agent on {name}")
        }
        // What the node holds is numbered higher: the control plane's data went back.
        Overall::Changing if matches!(refusal, Some(OLDER_CODE | TWO_HEADERS_CODE)) => {
            "`muster publish`; it makes a release above those that nodes hold".to_owned()
        }
        Overall::Changing if node.open_items().conditions.refused_trust.is_some() => {
            let code = node.open_items().conditions.refused_trust.as_deref().unwrap_or_default();
            refused_trust(node, code).1
        }
        Overall::Changing if refusal == Some(TOO_FEW_CODE) => {
            "`muster publish`, with as many signers as `muster key show` names for the channel".to_owned()
        }
        // Its key was retired, and the node knows that.
        Overall::Changing if refusal == Some(SIGNATURE_CODE) => {
            "`muster publish`, with a release key that the fleet believes".to_owned()
        }
        Overall::Converged => String::new(),
        Overall::Revoked => format!("`muster node remove {name}`; to let it in again: {}", join_again(node)),
        Overall::Offline | Overall::Unreachable => match certificate {
            Some(CertificateProblem::Ended(_)) => join_again(node),
            Some(CertificateProblem::Recoverable(_) | CertificateProblem::Rejected(_)) => {
                format!("on {name}: {}", agent.start())
            }
            _ => format!("on {name}: {}", agent.inspect()),
        },
        Overall::Stalled => format!("on {name}: {}", agent.verb("status")),
        Overall::Unassigned => "add an entry to nodes.yaml, then `muster publish`".to_owned(),
        Overall::Paused => format!("on {name}: {}", agent.verb("resume")),
        Overall::NotFresh => "`muster publish`, or `muster beacon`".to_owned(),
        Overall::New | Overall::Changing => format!("muster node show {name}"),
        Overall::Diverged if contends => {
            format!("muster node show {name}; on it: {}", agent.verb("doctor"))
        }
        _ => format!("muster run show {name}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::LazyLock;
    use std::time::Duration;

    use model::CertificateValidity;
    use model::invocation::AgentInvocation;
    use plane::renewal::{CertificateIssuer, CertificateRecovery};
    use trust::SigningKey;

    use super::*;
    use crate::authority::CountingIssuers;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Nothing is published.
    fn basis(recovery: CertificateRecovery, now: Timestamp) -> StatusBasis<'static> {
        static NOTHING: LazyLock<Heads> = LazyLock::new(Heads::default);
        StatusBasis { heads: &NOTHING, recovery, issuers: issuers(1, None), now }
    }

    /// The CA of this key counts, in a fleet that was founded with that of key 1.
    fn issuers(current: u8, previous: Option<u8>) -> CountingIssuers {
        let of = |seed| CertificateIssuer::of(&SigningKey::from_seed(&[seed; 32]).public());
        let (current, was_replaced) = (of(current), current > 1);
        CountingIssuers { current, previous: previous.map(of), was_replaced, reject_before: None }
    }

    fn node(certificate: Option<CertificateValidity>) -> NodeState {
        let key = SigningKey::from_seed(&[1; 32]).public();
        let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, Timestamp(0));
        node.certificate = certificate;
        node
    }

    /// From three quarters of its validity on, when a renewal fails, and when it has ended; never where no
    /// session is opened with it.
    #[test]
    fn a_renewal_that_is_late_or_fails_is_told() {
        let days = CertificateValidity::starting(Timestamp(0), 40 * DAY);
        let at = |day: u32, failure: Option<&str>| {
            let mut node = node(Some(days));
            node.change_open_items(|it| it.conditions.renewal_failure = failure.map(Into::into));
            CertificateProblem::of(&node, basis(CertificateRecovery::Off, Timestamp(0).plus(day * DAY)))
        };
        let words = |problem: Option<CertificateProblem>| match problem {
            Some(CertificateProblem::NotRenewed(words)) => words,
            other => panic!("{other:?}"),
        };
        assert_eq!([at(0, None), at(29, None)], [None, None]);
        assert!(words(at(30, None)).ends_with("and its renewal is late"));
        assert!(words(at(39, Some("the disk is full"))).ends_with("is late; it says: the disk is full"));
        assert!(words(at(20, Some("busy"))).ends_with("its renewal fails: busy"));
        assert!(matches!(at(40, None), Some(CertificateProblem::Ended(_))));
        let off = CertificateRecovery::Off;
        assert_eq!(CertificateProblem::of(&node(None), basis(off, Timestamp(0).plus(99 * DAY))), None);
        let until = |day: u32| certificate_until(&node(Some(days)), basis(off, Timestamp(0).plus(day * DAY)));
        let day = |day: u32| Some(Timestamp(0).plus(day * DAY));
        assert_eq!([until(0), until(30), until(40)], [day(30), day(40), None]);
    }

    /// IDN-8: a silent node whose certificate is of a CA that counts no more says so, whether anything is changing or not.
    #[test]
    fn a_certificate_of_a_ca_that_counts_no_more_is_a_cause() {
        let mut of_first = node(Some(CertificateValidity::starting(Timestamp(0), 40 * DAY)));
        of_first.issuer = Some(issuers(1, None).current);
        for (current, previous, told) in
            [(1, None, false), (2, Some(1), false), (2, None, true), (3, Some(2), true)]
        {
            let basis = StatusBasis {
                issuers: issuers(current, previous),
                ..basis(CertificateRecovery::Off, Timestamp(0).plus(DAY))
            };
            let problem = CertificateProblem::of(&of_first, basis);
            let is_told = matches!(problem, Some(CertificateProblem::Rejected(_)));
            assert_eq!(is_told, told, "{current} {previous:?}");
            let causes = crate::causes::causes_of(&mut of_first, Overall::Offline, basis);
            let named = causes.iter().any(|it| it.cause.contains("of a CA that counts no more"));
            assert_eq!(named, told, "{current} {previous:?}");
        }
    }

    /// IDN-8: an agent from before thresholds is upgraded; a token would not help it.
    #[test]
    fn an_agent_that_cannot_read_the_trust_document_is_upgraded() {
        let next = |code: &str| {
            let mut node = node(None);
            node.change_open_items(|it| it.conditions.refused_trust = Some(code.into()));
            let (_, next) = refused_trust(&node, code);
            assert_eq!(next_step(&node, Overall::Changing, None), next);
            next
        };
        assert_eq!(next("trust-malformed"), "install a newer muster-agent on web-1");
        assert!(next("trust-forged").contains("muster token mint web-1"));
    }

    /// What is to be done about a silent node exists on that host.
    #[test]
    fn the_next_step_is_one_of_that_host() {
        let of = |command: &str, service: Option<&str>| AgentInvocation {
            command: command.to_owned(),
            service: service.map(str::to_owned),
        };
        let next = |invocation: Option<AgentInvocation>, ends: i64, state: Overall| {
            let off = CertificateRecovery::Off;
            let until = Timestamp(ends);
            let mut node = node(Some(CertificateValidity { from: Timestamp(0), until }));
            node.keep_invocation(invocation);
            next_step(&node, state, CertificateProblem::of(&node, basis(off, Timestamp(10))).as_ref())
        };
        let service = of("muster-agent", Some("muster-agent.service"));
        let rooted = of("muster-agent --state /s --root /r", None);
        for (invocation, ends, state, want) in [
            (Some(service.clone()), 99, Overall::Offline, "on web-1: systemctl status muster-agent"),
            (
                Some(rooted.clone()),
                99,
                Overall::Unreachable,
                "on web-1: muster-agent --state /s --root /r doctor",
            ),
            (None, 99, Overall::Offline, "on web-1: muster-agent doctor"),
            (Some(of("x; id", None)), 99, Overall::Offline, "on web-1: muster-agent doctor"),
            (Some(rooted), 99, Overall::Paused, "on web-1: muster-agent --state /s --root /r resume"),
            (
                Some(service),
                9,
                Overall::Offline,
                "`muster token mint web-1`; then on web-1: `muster-agent join --token-file FILE`",
            ),
        ] {
            assert_eq!(next(invocation, ends, state), want);
        }
    }

    /// IDN-2: a silent node whose certificate has ended gets another one by itself once its agent runs, as far as the
    /// policy says; only else is it to join again.
    #[test]
    fn an_agent_is_started_where_that_is_enough() {
        let certificate = CertificateValidity::starting(Timestamp(0), 40 * DAY);
        let within = CertificateRecovery::Within(30 * DAY);
        let join = "`muster token mint web-1`; then on web-1: `muster-agent join --token-file FILE`";
        let mut node = node(Some(certificate));
        for (service, recovery, day, want) in [
            (Some("muster-agent.service"), within, 41, "on web-1: systemctl start muster-agent"),
            (None, within, 70, "on web-1: muster-agent daemon"),
            (None, within, 71, join),
            (None, CertificateRecovery::Off, 41, join),
        ] {
            let service = service.map(str::to_owned);
            node.keep_invocation(Some(AgentInvocation { service, ..AgentInvocation::default() }));
            let problem = CertificateProblem::of(&node, basis(recovery, Timestamp(0).plus(day * DAY)));
            let next = next_step(&node, Overall::Offline, problem.as_ref());
            assert_eq!(next, want, "{recovery:?} on day {day}");
            let is_recoverable = matches!(problem, Some(CertificateProblem::Recoverable(_)));
            assert_eq!(is_recoverable, want != join);
        }
        // What is said then is another thing from then on.
        let until_on = |day: u32| certificate_until(&node, basis(within, Timestamp(0).plus(day * DAY)));
        let until = until_on(41);
        let end = Timestamp(0).plus(70 * DAY);
        assert!(until.is_some_and(|at| at > end && at.since(end) < DAY), "{until:?}");
        assert_eq!(until_on(71), None);
    }
}
