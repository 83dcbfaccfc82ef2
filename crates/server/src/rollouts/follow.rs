//! Has the rollouts follow the heads: what that means is `rollout::follow`'s; here is read from the store what it goes by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::Value;
use model::health_probe::HealthProbeMode;
use model::policy::Policy;
use model::rollout::RolloutId;
use model::selection::SelectionEntry;
use model::{Channel, Digest, Hostname, NodeId};
use plane::{Head, Heads};
use rollout::{
    EarlierRelease, HeadKind, HeadStep, JoiningNode, NewRollout, ReleaseBefore, RolloutAnswer, RolloutInput,
    RolloutKey, Rollouts, probes_of, reads_declared,
};
use trust::freshness::Freshness;
use trust::{Header, signed};
use wire::{Code, Problem};

use super::RolloutOwner;
use crate::answer::store_problem;
use crate::beacons;
use crate::state::{ControlPlane, now};

/// Releases among which the one before is looked for.
const LOOKED_AT: usize = 100;

impl RolloutOwner {
    /// Has the rollouts of releases begin, before the fleet is pointed to these. Says which earlier releases the members of
    /// rollouts are on, go to or may go back to.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn follow(
        &self,
        plane: &ControlPlane,
        heads: &Heads,
    ) -> Result<BTreeSet<RolloutKey>, Problem> {
        let mut rollouts = self.rollouts.lock().await;
        rollouts.load(plane).await?;
        if rollouts.is_empty() && !heads.channels.values().any(|head| head.header.rollout.is_some()) {
            return Ok(BTreeSet::new());
        }
        let channels = members_of(plane, heads);
        let mut new = Vec::new();
        for head in heads.channels.values() {
            if let HeadStep::Begin = rollouts.core().follow_head(&key_of(head), kind_of(&head.header)) {
                let nodes = channels.get(&head.header.channel).map_or(&[][..], Vec::as_slice);
                new.push(begins(plane, head, nodes).await?);
            }
        }
        if !new.is_empty() {
            let published = vec![RolloutInput::Published(new)];
            let taken = rollouts.take(plane, &plane.store, published, Vec::new()).await?;
            if let Some(RolloutAnswer::Published(Err(refusal))) = taken.answers.first() {
                return Err(Problem::new(Code::Internal, format!("a rollout cannot begin: {refusal}")));
            }
        }
        let moved = moves(plane, rollouts.core(), heads, &channels).await?;
        if !moved.is_empty() {
            rollouts.take(plane, &plane.store, moved, Vec::new()).await?;
        }
        // The heads get what is lacking with this.
        rollouts.take_lacks_release();
        self.wake.notify_one();
        Ok(rollouts.core().releases_in_use())
    }

    /// Ends the rollouts of channels that point to a release which goes to their nodes at once, after the fleet is pointed to
    /// it: until then the rollouts point their members. What fails here is done with the next step.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn end_replaced(&self, plane: &ControlPlane) -> Result<(), Problem> {
        let mut rollouts = self.rollouts.lock().await;
        rollouts.load(plane).await?;
        let inputs = replaced(rollouts.core(), &plane.heads());
        if !inputs.is_empty() {
            rollouts.take(plane, &plane.store, inputs, Vec::new()).await?;
        }
        Ok(())
    }
}

/// What ends the rollouts that releases have replaced which go to their nodes at once.
pub(super) fn replaced(core: &Rollouts, heads: &Heads) -> Vec<RolloutInput> {
    let ends =
        |head: &&Arc<Head>| matches!(core.follow_head(&key_of(head), kind_of(&head.header)), HeadStep::End);
    let heads = heads.channels.values().filter(ends);
    heads.map(|head| RolloutInput::AtOnce { head: key_of(head) }).collect()
}

fn kind_of(header: &Header) -> HeadKind {
    if header.rollout.is_some() { HeadKind::InRollout } else { HeadKind::AtOnce }
}

/// A node, and what a release gives it.
type ChannelNode = (NodeId, Hostname, SelectionEntry);

/// The nodes of each channel whose release goes to them by a rollout.
fn members_of(plane: &ControlPlane, heads: &Heads) -> BTreeMap<Channel, Vec<ChannelNode>> {
    let mut channels = BTreeMap::<_, Vec<_>>::new();
    for slot in plane.index.all() {
        let (id, hostname) = slot.names();
        if let Some((head, entry)) = heads.pointed(&hostname)
            && head.header.rollout.is_some()
        {
            channels.entry(head.header.channel.clone()).or_default().push((id, hostname, entry));
        }
    }
    channels
}

fn key_of(head: &Head) -> RolloutKey {
    RolloutKey { channel: head.header.channel.clone(), seq: head.header.seq }
}

/// The rollout of a release.
async fn begins(plane: &ControlPlane, head: &Head, nodes: &[ChannelNode]) -> Result<NewRollout, Problem> {
    let terms = head.header.rollout.clone().ok_or(Code::Internal)?;
    let mut joining = JoiningNodes::of(plane, head).await?;
    let mut joined = Vec::with_capacity(nodes.len());
    for node in nodes {
        joined.push(joining.node(node).await?);
    }
    Ok(NewRollout {
        id: id(plane, head).await?,
        key: key_of(head),
        header: head.digest,
        terms,
        nodes: joined,
    })
}

/// What the wire calls the rollout of a release.
async fn id(plane: &ControlPlane, head: &Head) -> Result<RolloutId, Problem> {
    let of = |is_taken: bool| {
        RolloutId::of_release(&head.header.channel, head.header.label.as_deref(), &head.digest, |_| is_taken)
    };
    let by_commit = of(false);
    let stored = plane.store.rollout(&by_commit).await.map_err(store_problem)?;
    Ok(of(stored.is_some_and(|stored| stored.key.seq != head.header.seq)))
}

/// Who is in a channel by its release and not in its rollouts, and who is in a rollout and no more in its channel.
async fn moves(
    plane: &ControlPlane,
    core: &Rollouts,
    heads: &Heads,
    channels: &BTreeMap<Channel, Vec<ChannelNode>>,
) -> Result<Vec<RolloutInput>, Problem> {
    let mut inputs = Vec::new();
    let known: BTreeSet<&Channel> = core.documents().map(|document| &document.key.channel).collect();
    for channel in known.into_iter().filter(|channel| heads.has_rollout(channel)) {
        let nodes = channels.get(channel).map_or(&[][..], Vec::as_slice);
        let there: BTreeSet<&NodeId> = nodes.iter().map(|(id, ..)| id).collect();
        inputs.extend(core.strangers(channel, &there).into_iter().map(|node| left(channel.clone(), node)));
    }
    for (channel, nodes) in channels {
        let Some(head) = heads.channels.get(channel) else { continue };
        let mut joining = None;
        for node in nodes.iter().filter(|(id, ..)| core.lacks_member(channel, id)) {
            let joining = match &mut joining {
                Some(joining) => joining,
                none => none.insert(JoiningNodes::of(plane, head).await?),
            };
            inputs.push(RolloutInput::Joined { channel: channel.clone(), node: joining.node(node).await? });
        }
    }
    Ok(inputs)
}

fn left(channel: Channel, node: NodeId) -> RolloutInput {
    RolloutInput::Removed { channel, node }
}

/// What became of nodes that joined the fleet or left it.
pub(super) async fn came_or_went(
    plane: &ControlPlane,
    core: &Rollouts,
    nodes: BTreeSet<NodeId>,
) -> Result<Vec<RolloutInput>, Problem> {
    let (mut inputs, heads) = (Vec::new(), plane.heads());
    for id in nodes {
        let slot = plane.index.get(&id);
        let place = slot.and_then(|slot| heads.pointed(&slot.names().1).map(|found| (slot, found)));
        let channel = place.as_ref().map(|(_, (head, _))| head.header.channel.clone());
        let others = core.left_by(&id, channel.as_ref());
        inputs.extend(others.into_iter().map(|other| left(other, id.clone())));
        if let Some((slot, (head, entry))) = place
            && head.header.rollout.is_some()
            && core.lacks_member(&head.header.channel, &id)
        {
            let node = (id, slot.names().1, entry);
            let joining = JoiningNodes::of(plane, &head).await?.node(&node).await?;
            inputs.push(RolloutInput::Joined { channel: head.header.channel.clone(), node: joining });
        }
    }
    Ok(inputs)
}

/// Nodes that come to the rollout of a release.
struct JoiningNodes<'a> {
    plane: &'a ControlPlane,
    channel: Channel,
    seq: u64,
    /// Selectors read what is declared of a node.
    reads_declared: bool,
    /// The release that a node without one is pointed to until its wave opens.
    before: Option<u64>,
    /// Releases of the channel before this one, by number.
    earlier: BTreeMap<u64, Digest>,
    policies: BTreeMap<Digest, Arc<Policy>>,
}

impl<'a> JoiningNodes<'a> {
    /// Reads what is stored; nobody decides of rollouts meanwhile.
    async fn of(plane: &'a ControlPlane, head: &Head) -> Result<JoiningNodes<'a>, Problem> {
        let header = &head.header;
        let documents =
            plane.store.rollout_documents(Some(&header.channel), Some(header.seq), LOOKED_AT).await;
        let mut before = ReleaseBefore::of(&documents.map_err(store_problem)?);
        let mut earlier = BTreeMap::new();
        let releases = plane.store.releases(LOOKED_AT, Some(header.seq)).await.map_err(store_problem)?;
        for release in releases {
            let Some(signed) = release.headers.get(&header.channel) else { continue };
            let digest = signed::digest(signed);
            earlier.insert(release.seq, digest);
            if !before.is_open(release.seq) {
                continue;
            }
            let known = crate::releases::committed(plane, signed)?;
            let is_fallback =
                header.fallbacks.iter().any(|named| named.seq == release.seq && named.header == digest);
            let beacon =
                beacons::stored(plane, &header.channel, release.seq).await?.map(|(beacon, _)| beacon);
            let signed_at = Freshness::of(&known, beacon.as_ref()).signed_at;
            let release = EarlierRelease {
                seq: release.seq,
                kind: kind_of(&known),
                is_fallback,
                fresh_until: signed_at.plus(known.freshness()),
            };
            before.look_at(&release, now());
        }
        Ok(JoiningNodes {
            plane,
            channel: header.channel.clone(),
            seq: header.seq,
            reads_declared: header.rollout.as_deref().is_some_and(reads_declared),
            before: before.found(),
            earlier,
            policies: BTreeMap::new(),
        })
    }

    async fn node(&mut self, node: &ChannelNode) -> Result<JoiningNode, Problem> {
        let (id, hostname, entry) = node;
        let (declared, policy) = self.declared(&entry.root).await?;
        let enforcing: Vec<String> = match probes_of(&policy, hostname, &declared) {
            Ok(probes) => {
                let enforced = probes.probes().iter().filter(|probe| probe.mode == HealthProbeMode::Enforce);
                enforced.map(|probe| probe.name.clone()).collect()
            }
            // The node cannot read them either, and refuses the release.
            Err(error) => {
                tracing::warn!(node = %id, %hostname, %error, "the probes of a node cannot be read");
                Vec::new()
            }
        };
        let before = self.held(id).or(self.before);
        let (node, hostname, enforcing) = (id.clone(), hostname.clone(), enforcing.into());
        Ok(JoiningNode { node, hostname, declared, enforcing, before })
    }

    /// The release of the channel that a node holds, by its own word, where it is one that is stored here.
    fn held(&self, node: &NodeId) -> Option<u64> {
        let slot = self.plane.index.get(node)?;
        let entry = slot.lock();
        let held = entry.node.held.as_ref()?;
        // One that went back to how its host was found names the release that failed, with a set of nothing.
        let is_known = held.root != Digest::ZERO
            && held.channel == self.channel
            && held.seq < self.seq
            && self.earlier.get(&held.seq) == Some(&held.header);
        is_known.then_some(held.seq)
    }

    async fn declared(&mut self, root: &Digest) -> Result<(Value, Arc<Policy>), Problem> {
        let grants = &self.plane.grants;
        let digest = grants.policy_digest(root).await.map_err(store_problem)?;
        let policy = match digest {
            None => Arc::default(),
            Some(digest) => match self.policies.get(&digest) {
                Some(policy) => policy.clone(),
                None => {
                    let policy = Arc::new(grants.channel_policy(root).await.map_err(store_problem)?);
                    self.policies.insert(digest, policy.clone());
                    policy
                }
            },
        };
        let reads = self.reads_declared || policy.probes.iter().any(|probe| probe.of.is_some());
        let declared = match reads {
            true => grants.declared(root).await.map_err(store_problem)?,
            false => None,
        };
        Ok((declared.unwrap_or_else(|| Value::Map(BTreeMap::new())), policy))
    }
}
