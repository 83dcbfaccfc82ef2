//! What differs in how releases reach their nodes (ROL-1): waves, budgets, edges and so on, in people's words.

use std::collections::BTreeMap;

use model::delta::Delta;
use model::{Channel, Fields, Timestamp};
use resolve::Specialized;
use resolve::rollouts::{NotBefore, RolloutPolicy};
use server::api::HeadView;
use trust::Header;
use trust::rollout_terms::{
    BudgetTerms, NodeEdge, OfflineConfirm, OnFailure, RolloutTerms, WaveMembers, WaveTerms,
};

use crate::header;

/// What of all rollouts differs, by its name: `stable: wave canary`.
pub(super) type RolloutDelta = Delta<String, Fields>;

/// The headers of the newest release. Those of channels that are gone are pointed to still, by the release that had them last.
fn newest(head: &HeadView) -> Vec<Header> {
    let believed = |(channel, document)| header::verify(channel, document, &head.trust).ok();
    head.headers.iter().filter_map(believed).filter(|header| Some(header.seq) == head.seq).collect()
}

/// The policies of a fleet beside the headers that are pointed to now. Headers that are not believed count as none.
pub(super) fn differ(head: &HeadView, fleet: &Specialized) -> RolloutDelta {
    let old = newest(head);
    let of_channel = |name: &str| old.iter().find(|header| header.channel.as_str() == name);
    let (mut was, mut is) = (BTreeMap::new(), BTreeMap::new());
    for header in old.iter().filter(|header| fleet.channels.contains_key(header.channel.as_str())) {
        if let Some(terms) = &header.rollout {
            let policy = fleet.rollouts.get(header.channel.as_str());
            let shown = ShownTerms { channel: &header.channel, terms, policy, signed: header.created };
            was.extend(shown.parts());
        }
    }
    for (name, policy) in fleet.rollouts.iter() {
        let Ok(channel) = name.parse::<Channel>() else { continue };
        // As if it were signed when the old one was: what is counted from the signature then differs only where the
        // policy does.
        let signed = of_channel(name).map_or(Timestamp(0), |header| header.created);
        let terms = policy.terms(signed);
        let shown = ShownTerms { channel: &channel, terms: &terms, policy: Some(policy), signed };
        is.extend(shown.parts());
    }
    Delta::between(&was, &is)
}

/// What differs between the headers that are pointed to and others.
pub(super) fn of_headers(head: &HeadView, new: &[Header]) -> RolloutDelta {
    let old = newest(head);
    let parts = |headers: &[Header]| -> BTreeMap<String, Fields> {
        let shown = headers.iter().filter_map(|header| {
            let terms = header.rollout.as_deref()?;
            Some(ShownTerms { channel: &header.channel, terms, policy: None, signed: header.created })
        });
        shown.flat_map(|shown| shown.parts()).collect()
    };
    Delta::between(&parts(&old), &parts(new))
}

/// The terms of one channel.
struct ShownTerms<'a> {
    channel: &'a Channel,
    terms: &'a RolloutTerms,
    /// The policy of today, by which times are told to be counted from the signature.
    policy: Option<&'a RolloutPolicy>,
    signed: Timestamp,
}

impl ShownTerms<'_> {
    fn parts(&self) -> BTreeMap<String, Fields> {
        let ShownTerms { channel, terms, .. } = self;
        let mut parts = BTreeMap::from([(format!("{channel}: rollout"), whole(terms))]);
        let mut before = None;
        for wave in &terms.waves {
            let mut fields = self.wave(wave);
            fields.insert("after".to_owned(), before.unwrap_or("nothing").to_owned());
            before = Some(&*wave.name);
            parts.insert(format!("{channel}: wave {}", wave.name), fields);
        }
        parts.extend(
            terms.budgets.iter().map(|one| (format!("{channel}: budget of {}", one.of), budget(one))),
        );
        let edge = |NodeEdge { before, after }: &NodeEdge| {
            (format!("{channel}: {before} before {after}"), Fields::new())
        };
        parts.extend(terms.edges.iter().map(edge));
        for pin in &terms.pins {
            let said = [("until", pin.until.to_string()), ("reason", pin.reason.clone())];
            let said: Fields = said.into_iter().filter(|(_, text)| !text.is_empty()).map(owned).collect();
            parts.extend(pin.nodes.iter().map(|node| (format!("{channel}: pin of {node}"), said.clone())));
        }
        parts
    }

    fn wave(&self, wave: &WaveTerms) -> Fields {
        let nodes = match &wave.members {
            WaveMembers::Where(selector) => selector.to_string(),
            WaveMembers::Percent(percent) => format!("{percent}% of the channel"),
            WaveMembers::Rest => "all that are left".to_owned(),
        };
        let mut fields = Fields::from(
            [
                ("nodes", nodes),
                ("soak", secs(wave.gate.soak_secs)),
                ("success", format!("{}%", wave.gate.success)),
            ]
            .map(owned),
        );
        if let Some(at) = wave.not_before {
            fields.insert("notBefore".to_owned(), self.time(&wave.name, at));
        }
        fields
    }

    /// A time, as it is counted: from the signature where the policy counts so, and where it may have before. Nobody writes a
    /// time that lies whole minutes after a signature, which has milliseconds.
    fn time(&self, wave: &str, at: Timestamp) -> String {
        let after = at.since(self.signed);
        let is_counted = matches!(
            self.policy.and_then(|policy| policy.not_before(wave)),
            Some(NotBefore::AfterSignature(_))
        );
        match is_counted && after.as_millis().is_multiple_of(60_000) && self.signed.plus(after) == at {
            true => format!("+{}", secs(after.as_secs())),
            false => at.to_string(),
        }
    }
}

fn whole(terms: &RolloutTerms) -> Fields {
    let after: Vec<&str> = terms.after.iter().map(Channel::as_str).collect();
    // A window that is moved keeps its name.
    let freeze: Vec<String> =
        terms.freeze.iter().map(|freeze| format!("{} ({})", freeze.name, freeze.window)).collect();
    let said = [
        ("onFailure", on_failure(terms.on_failure).to_owned()),
        (
            "confirm",
            format!(
                "within {}, {} tries, {}",
                secs(terms.confirm.window_secs),
                terms.confirm.tries,
                match terms.confirm.offline {
                    OfflineConfirm::Return => "back when offline",
                    OfflineConfirm::Confirm => "by its probes when offline",
                }
            ),
        ),
        ("after", after.join(", ")),
        ("freeze", freeze.join(", ")),
        ("seed", terms.seed.clone()),
    ];
    said.into_iter().filter(|(_, text)| !text.is_empty()).map(owned).collect()
}

fn on_failure(on_failure: OnFailure) -> &'static str {
    match on_failure {
        OnFailure::Halt => "halt",
        OnFailure::Rollback => "rollback",
    }
}

fn budget(budget: &BudgetTerms) -> Fields {
    let share = budget.in_flight.map(|share| ("inFlight", share.to_string()));
    share.into_iter().chain(budget.max.map(|max| ("max", max.to_string()))).map(owned).collect()
}

fn owned((name, text): (&str, String)) -> (String, String) {
    (name.to_owned(), text)
}

fn secs(secs: u64) -> String {
    catalog::duration::show(u32::try_from(secs).unwrap_or(u32::MAX))
}
