//! How a release that was published before reaches its nodes once more.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Channel, Timestamp};
use rollout::RolloutRules;
use server::api::HeadView;
use trust::{Header, RolloutTerms};

use super::rollouts::{RolloutPlanView, WavePlanView, frozen, text_without_nodes};
use crate::header;

/// Which waves the headers of an earlier release go through when they are signed anew at a time, and in which channels
/// it goes to all nodes at once that have a rollout now. How many nodes each wave has, only the fleet repo of then says.
pub(crate) fn waves(headers: &[Header], head: &HeadView, now: Timestamp) -> String {
    let plans: Vec<RolloutPlanView> = headers
        .iter()
        .filter_map(|header| {
            let terms = RolloutTerms::clone(header.rollout.as_deref()?).signed_again(now);
            Some(plan(&header.channel, terms, now))
        })
        .collect();
    let staged: BTreeMap<&Channel, Header> = head
        .headers
        .iter()
        .filter_map(|(channel, document)| {
            Some((channel, header::verify(channel, document, &head.trust).ok()?))
        })
        .filter(|(_, header)| header.rollout.is_some() && Some(header.seq) == head.seq)
        .collect();
    let at_once =
        headers.iter().filter(|header| header.rollout.is_none() && staged.contains_key(&header.channel)).map(
            |header| format!("channel {}: it goes to all nodes at once, without a rollout\n", header.channel),
        );
    text_without_nodes(&plans) + &at_once.collect::<String>()
}

fn plan(channel: &Channel, terms: RolloutTerms, now: Timestamp) -> RolloutPlanView {
    let rules = RolloutRules::new(Arc::new(terms));
    let terms = rules.terms();
    let wave = |wave: usize| WavePlanView {
        name: rules.wave_name(wave).to_owned(),
        not_before: rules.not_before(wave),
        nodes: 0,
        pinned: 0,
        enrolled: 0,
        awaited: 0,
        soak_secs: rules.gate(wave).soak_secs,
        success: rules.gate(wave).success,
        taken_by_no_wave: Vec::new(),
        is_whole_channel: terms.waves.is_empty(),
    };
    RolloutPlanView {
        channel: channel.clone(),
        id: None,
        waves: (0..rules.waves()).map(wave).collect(),
        on_failure: terms.on_failure,
        after: terms.after.clone(),
        frozen: frozen(terms, now),
    }
}
