//! What a publisher knows of rollouts: what is published of them, and what a new release makes of them (ROL-1).

use std::collections::BTreeMap;

use model::Channel;
use model::rollout::RolloutId;
use resolve::release::Built;
use resolve::rollouts::ChannelRollout;
use server::api::{self, History};
use trust::Header;
use trust::release::Fallback;

use super::super::error::PublishError;
use super::Publisher;
use crate::header;

/// Earlier releases among which the commit of a new one is looked for, to tell what its rollouts are called.
const EARLIER_RELEASES: usize = 1000;

impl Publisher {
    /// The channels whose releases reach their nodes in another way than what is published; none of a channel whose
    /// header is not believed.
    pub(super) fn changed_rollouts(&self, built: &Built) -> Vec<Channel> {
        let headers = self.head.headers.iter();
        let headers = headers
            .filter_map(|(channel, document)| header::verify(channel, document, &self.head.trust).ok());
        changed_rollouts(headers.collect::<Vec<_>>().iter(), built)
    }

    /// What the rollouts of the release that was published last are called on the wire, by channel.
    ///
    /// # Errors
    /// When the releases before cannot be asked for.
    pub(crate) async fn rollout_ids(
        &self,
        rollouts: &[ChannelRollout],
        seq: u64,
        label: Option<&str>,
    ) -> Result<BTreeMap<Channel, RolloutId>, PublishError> {
        if rollouts.is_empty() {
            return Ok(BTreeMap::new());
        }
        // A commit names the first rollout of it alone.
        let is_taken = match label.filter(|label| RolloutId::is_commit(label)) {
            Some(label) => {
                let request =
                    History { before: Some(seq), limit: EARLIER_RELEASES.into(), ..History::default() };
                let earlier = self.operator.call(&api::RELEASES, request).await?;
                earlier.iter().any(|release| release.ref_label == label)
            }
            None => false,
        };
        let ids = rollouts.iter().filter_map(|rollout| {
            let header = trust::signed::digest(self.head.headers.get(&rollout.channel)?);
            Some((
                rollout.channel.clone(),
                RolloutId::of_release(&rollout.channel, label, &header, |_| is_taken),
            ))
        });
        Ok(ids.collect())
    }

    /// The rollouts of the release that the files make that were taken in last, as if it were signed now.
    ///
    /// # Errors
    /// [`PublishError::Broken`] with what shows only beside the time and the nodes; or the control plane does not answer.
    pub(crate) async fn rollouts(&mut self) -> Result<Vec<ChannelRollout>, PublishError> {
        let Some(fleet) = self.resolver.fleet().cloned() else { return Ok(Vec::new()) };
        if fleet.rollout_policies().is_empty() {
            return Ok(Vec::new());
        }
        self.redial().await?;
        let enrolled = self.operator.enrolled(None).await?;
        let planned = fleet.rollouts(crate::clock::now(), enrolled.iter().map(String::as_str));
        planned.map_err(|diagnostics| PublishError::broken(&diagnostics, &self.resolver.tree()))
    }

    /// What a channel is pointed to, and what that release names as its own fallbacks: the newest first.
    pub(super) fn before(&self, channel: &Channel) -> Vec<Fallback> {
        let Some(document) = self.head.headers.get(channel) else { return Vec::new() };
        let Ok(header) = header::verify(channel, document, &self.head.trust) else { return Vec::new() };
        let now = Fallback { seq: header.seq, header: trust::signed::digest(document) };
        std::iter::once(now).chain(header.fallbacks).collect()
    }
}

/// The channels for which a header says otherwise how a release reaches its nodes than a release that is built.
pub(super) fn changed_rollouts<'h>(headers: impl Iterator<Item = &'h Header>, built: &Built) -> Vec<Channel> {
    let differs = |header: &&Header| {
        let policy = built.fleet().rollouts.get(header.channel.as_str());
        match (policy, &header.rollout) {
            (None, None) => false,
            (Some(policy), Some(terms)) => !policy.is_of(terms, header.created),
            (None, Some(_)) | (Some(_), None) => true,
        }
    };
    let declared = |header: &&Header| built.fleet().channels.contains_key(header.channel.as_str());
    headers.filter(declared).filter(differs).map(|header| header.channel.clone()).collect()
}
