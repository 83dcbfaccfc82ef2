//! What operators do next about a node, and what is said of its certificate (IDN-2).

use std::time::Duration;

use model::status::Overall;
use model::{Hostname, Timestamp};
use plane::NodeState;
use trust::adopt::{OLDER_CODE, REQUIRES_CODE, SIGNATURE_CODE, TWO_HEADERS_CODE};
use trust::chain::OLDER_TRUST_CODE;

/// A certificate that ends sooner is worth a word: nothing renews it.
const ENDS_SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// How much longer a node's certificate opens sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateLife {
    /// Long enough, or no session is opened with it.
    Fine,
    /// It ends within [`ENDS_SOON`].
    EndsSoon(Timestamp),
    /// It has ended.
    Ended(Timestamp),
}

impl CertificateLife {
    pub(crate) fn of(node: &NodeState, now: Timestamp) -> CertificateLife {
        match node.certificate_ends {
            Some(ends) if ends <= now => CertificateLife::Ended(ends),
            Some(ends) if ends.minus(ENDS_SOON) <= now => CertificateLife::EndsSoon(ends),
            _ => CertificateLife::Fine,
        }
    }

    /// What is the matter with it.
    pub(crate) fn cause(self) -> Option<String> {
        match self {
            CertificateLife::Fine => None,
            CertificateLife::EndsSoon(ends) => {
                Some(format!("its certificate ends at {ends}, and nothing renews it"))
            }
            CertificateLife::Ended(ends) => {
                Some(format!("its certificate ended at {ends}, so it cannot call"))
            }
        }
    }
}

/// From when [`CertificateLife`] of a node is another one.
pub(crate) fn certificate_until(node: &NodeState, now: Timestamp) -> Option<Timestamp> {
    let ends = node.certificate_ends?;
    [ends.minus(ENDS_SOON), ends].into_iter().find(|at| *at > now)
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
            format!("it holds trust document {version}, which this control plane's data does not have"),
            format!("put trust-links.json of a newer backup back; or {}", join_again(node)),
        );
    }
    (format!("it holds trust document {version}, and does not follow newer ones ({code})"), join_again(node))
}

pub(crate) fn next_step(node: &NodeState, state: Overall, now: Timestamp) -> String {
    let refusal = node.refusal.as_ref().map(|refusal| &*refusal.code);
    let contends = node.contended.is_some();
    let (name, agent): (&Hostname, _) = (&node.hostname, node.agent());
    match state {
        Overall::Changing if refusal == Some(REQUIRES_CODE) => {
            format!("install a newer muster-agent on {name}")
        }
        // What the node holds is numbered higher: the control plane's data went back.
        Overall::Changing if matches!(refusal, Some(OLDER_CODE | TWO_HEADERS_CODE)) => {
            "`muster publish`; it makes a release above those that nodes hold".to_owned()
        }
        Overall::Changing if node.refused_trust.is_some() => join_again(node),
        // Its key was retired, and the node knows that.
        Overall::Changing if refusal == Some(SIGNATURE_CODE) => {
            "`muster publish`, with a release key that the fleet believes".to_owned()
        }
        Overall::Converged => String::new(),
        Overall::Offline | Overall::Unreachable => match CertificateLife::of(node, now) {
            CertificateLife::Ended(_) => join_again(node),
            _ => format!("on {name}: {}", agent.inspect()),
        },
        Overall::Stalled => format!("on {name}: {}", agent.verb("status")),
        Overall::Unassigned => "add an entry to nodes.yaml, then `muster publish`".to_owned(),
        Overall::Paused => format!("on {name}: {}", agent.verb("resume")),
        Overall::Stale => "`muster publish`, or `muster publish --beacon`".to_owned(),
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

    use model::invocation::AgentInvocation;
    use trust::SigningKey;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn node(ends: Option<Timestamp>) -> NodeState {
        let key = SigningKey::from_seed(&[1; 32]).public();
        let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, Timestamp(0));
        node.certificate_ends = ends;
        node
    }

    /// A week before it ends and when it has ended; never where no session is opened with it.
    #[test]
    fn a_certificate_is_told_a_week_before_it_ends() {
        let ends = Timestamp(0).plus(30 * DAY);
        let at = |day: u32| CertificateLife::of(&node(Some(ends)), Timestamp(0).plus(day * DAY));
        assert_eq!([at(0), at(22)], [CertificateLife::Fine; 2]);
        assert_eq!([at(23), at(29)], [CertificateLife::EndsSoon(ends); 2]);
        assert_eq!([at(30), at(31)], [CertificateLife::Ended(ends); 2]);
        assert_eq!(CertificateLife::of(&node(None), ends), CertificateLife::Fine);
        let until = |day: u32| certificate_until(&node(Some(ends)), Timestamp(0).plus(day * DAY));
        assert_eq!(until(0), Some(Timestamp(0).plus(23 * DAY)));
        assert_eq!([until(23), until(30)], [Some(ends), None]);
    }

    /// What is to be done about a silent node exists on that host.
    #[test]
    fn the_next_step_is_one_of_that_host() {
        let of = |command: &str, service: Option<&str>| AgentInvocation {
            command: command.to_owned(),
            service: service.map(str::to_owned),
        };
        let next = |invocation: Option<AgentInvocation>, ends: i64, state: Overall| {
            let mut node = node(Some(Timestamp(ends)));
            node.keep_invocation(invocation);
            next_step(&node, state, Timestamp(10))
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
}
