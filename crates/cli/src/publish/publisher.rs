//! [`Publisher`]: from changed files to a release that the fleet is pointed to.

mod again;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use model::rollout::RolloutId;
use model::selection::PatternEntry;
use model::trie::{Leaf, Trie};
use model::{Channel, Digest, Selection};
use resolve::release::{self, Builder, Built, Stamp};
use resolve::rollouts::ChannelRollout;
use resolve::{Changed, DeclaredAdmission, Fleet, Resolver};
use serde::Serialize;
use server::Credentials;
use server::api::lists::ListsAdded;
use server::api::operation::Empty;
use server::api::{self, Commit, HeadView, History, ReleaseSummary};
use trust::feature::FEATURES;
use trust::release::Fallback;
use trust::{Header, Slots, TrustDocument};
use wire::Code;

use super::error::PublishError;
use super::left_out::{LeftOut, left_out};
use super::number::LastSigned;
use super::request::SigningRequest;
use super::rollouts::RolloutPlanView;
use super::signers::{ReleaseSigners, Signatures};
use super::upload::{Uploaded, upload};
use crate::credentials::ReleaseKey;
use crate::folder::FileChanges;
use crate::header;
use crate::lists::{ListError, ListSigner, ListsPlan, Undeclared};
use crate::operator::Operator;
use crate::remote;
use crate::screen::aside;
use crate::secret::{BlockedNodes, SecretPublisher, SecretSettings, StatementRelay};
use crate::signer::FleetSigner;
use crate::status::trust_overtaken;
pub(crate) use again::EarlierHeaders;

/// How often a release is numbered anew because another one was published meanwhile.
pub(super) const COMMIT_ATTEMPTS: usize = 5;
/// Earlier releases among which the commit of a new one is looked for, to tell what its rollouts are called.
const EARLIER_RELEASES: usize = 1000;

/// How a release differs from the one that is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseComparison {
    /// Exact entries that came, went or get something else.
    pub nodes: usize,
    /// Patterns that came, went or get something else.
    pub patterns: usize,
    /// Channels whose releases reach their nodes in another way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<Channel>,
    /// Nodes that have an entry and get none.
    #[serde(skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
    /// Nothing that nodes see differs.
    pub same: bool,
}

/// What a publish came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The release's number.
    pub seq: u64,
    /// It was published already; nothing was sent.
    pub unchanged: bool,
    /// What differs from the release before.
    pub changed: ReleaseComparison,
    /// Exact entries.
    pub nodes: usize,
    /// Patterns.
    pub patterns: usize,
    /// Modules.
    pub modules: usize,
    /// Chunks sent.
    pub chunks: usize,
    /// Contents sent.
    pub contents: usize,
    /// Bytes sent, TLS included.
    pub bytes: u64,
    /// What of the signed lists changed: who may join, and who is revoked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<String>,
    /// How the release reaches its nodes, in the channels that have waves.
    #[serde(skip_serializing_if = "Vec::is_empty", rename = "plannedRollouts")]
    pub rollouts: Vec<RolloutPlanView>,
}

/// Publishes, and keeps what it learned, so that the next change costs what it touches.
pub struct Publisher {
    operator: Operator,
    credentials: Credentials,
    signers: ReleaseSigners,
    last: LastSigned,
    resolver: Resolver,
    builder: Builder,
    secrets: SecretPublisher,
    blocked: BlockedNodes,
    head: HeadView,
    /// The selection of the head, once this publisher has published or read it.
    published: Option<Selection>,
    /// Who may join and who is revoked, by the files that were taken in last.
    declared: DeclaredAdmission,
}

impl Publisher {
    /// Connects, and reads what is published now. `keys` sign together; the first seals secrets, too.
    ///
    /// # Errors
    /// When the control plane does not answer, its nodes do not believe a key, or one is given twice.
    pub async fn connect(
        credentials: Credentials,
        keys: impl IntoIterator<Item = ReleaseKey>,
    ) -> Result<Publisher, PublishError> {
        let operator = Operator::dial(&credentials).await?;
        let head = operator.call(&api::HEAD, Empty {}).await?;
        let signers = ReleaseSigners::of(keys, &head.trust)?;
        let ReleaseKey { key, path } = signers.first();
        let last = LastSigned::beside(path, key.public(), &head.trust.fleet);
        let (resolver, builder) = (Resolver::new(), Builder::new());
        let (secrets, blocked) = (SecretPublisher::default(), BlockedNodes::default());
        Ok(Publisher {
            operator,
            credentials,
            signers,
            last,
            resolver,
            builder,
            secrets,
            blocked,
            head,
            published: None,
            declared: DeclaredAdmission::default(),
        })
    }

    /// Asks for the secrets of fleet repos there; without it a repo that uses one is not published.
    pub fn ask_for_secrets(&mut self, settings: SecretSettings) {
        self.secrets.settings = Some(settings);
    }

    /// Nodes for which the release that was prepared last seals nothing although they need it.
    pub fn blocked(&self) -> &BlockedNodes {
        &self.blocked
    }

    /// The release that the fleet is pointed to.
    pub fn seq(&self) -> Option<u64> {
        self.head.seq
    }

    /// The number that the next release gets.
    pub fn next_seq(&self) -> u64 {
        self.last.next(&self.head).seq
    }

    /// Why that is not the number after the newest release's, where it is not.
    pub fn gap(&self) -> Option<String> {
        self.last.next(&self.head).gap
    }

    /// Takes changed files in and builds the release that they make.
    ///
    /// # Errors
    /// [`PublishError::Broken`] with every mistake; the changes are kept, and the next ones
    /// are relative to them. So they are when a secret cannot be sealed, or the control plane does not answer.
    pub async fn take(&mut self, changes: FileChanges) -> Result<Built, PublishError> {
        let began = Instant::now();
        let (fleet, changed) = match self.resolver.update(changes) {
            Ok(done) => done,
            Err(diagnostics) => return Err(PublishError::broken(&diagnostics, &self.resolver.tree())),
        };
        self.declared = fleet.admission().clone();
        let resolved = began.elapsed();
        let built = self.sealed(&fleet, &changed).await;
        if built.is_err() {
            // What changed is said once: what comes next is built from nothing.
            self.builder = Builder::new();
        }
        tracing::debug!(?resolved, built = ?began.elapsed() - resolved, "a release is prepared");
        built
    }

    /// The release of a fleet, with what is sealed for its nodes.
    async fn sealed(&mut self, fleet: &Fleet, changed: &Changed) -> Result<Built, PublishError> {
        self.redial().await?;
        let relay = StatementRelay { operator: &self.operator, fleet: &self.head.trust.fleet };
        let sealed = self.secrets.seal(fleet, changed, &self.signers.first().key, relay).await?;
        self.blocked = BlockedNodes { without_recipient_key: sealed.without_key, patterns: sealed.patterns };
        Ok(self.builder.build(&sealed.fleet, &sealed.changed)?)
    }

    /// How a release differs from the one that is published now.
    ///
    /// # Errors
    /// When that one cannot be read.
    pub async fn compare(&mut self, built: &Built) -> Result<ReleaseComparison, PublishError> {
        let new = built.selection();
        let Some(root) = self.head.selection else {
            let (nodes, patterns) = (new.exact().len(), new.patterns().len());
            return Ok(ReleaseComparison { nodes, patterns, ..ReleaseComparison::default() });
        };
        let rollouts = self.changed_rollouts(built);
        if root == built.root()? && !self.is_overtaken() {
            let same = rollouts.is_empty();
            return Ok(ReleaseComparison { same, rollouts, ..ReleaseComparison::default() });
        }
        let (mut nodes, mut went) = (0, Vec::new());
        let patterns = if let Some(old) = &self.published {
            Trie::diff(old.exact(), new.exact(), &mut |was: Option<&Arc<Leaf>>, is: Option<&Arc<Leaf>>| {
                nodes += 1;
                went.extend(was.filter(|_| is.is_none()).map(|leaf| leaf.name.clone()));
            });
            old.patterns().to_vec()
        } else {
            let old = remote::top(&self.operator, &root).await?;
            let changed = remote::changed(&self.operator, &old, new.exact()).await?;
            nodes = changed.len();
            went.extend(changed.into_iter().filter(|(_, change)| change.new.is_none()).map(|(name, _)| name));
            old.patterns
        };
        let left_out = left_out(&self.operator, went, &patterns, new).await?;
        let patterns = changed_patterns(&patterns, new.patterns());
        Ok(ReleaseComparison { nodes, patterns, left_out, rollouts, same: false })
    }

    /// The channels whose releases reach their nodes in another way than what is published; none of a channel whose
    /// header is not believed.
    fn changed_rollouts(&self, built: &Built) -> Vec<Channel> {
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
        let enrolled = match fleet.specialize().patterns.is_empty() {
            true => BTreeSet::new(),
            false => self.operator.enrolled(None).await?,
        };
        let planned = fleet.rollouts(crate::clock::now(), enrolled.iter().map(String::as_str));
        planned.map_err(|diagnostics| PublishError::broken(&diagnostics, &self.resolver.tree()))
    }

    /// Sends what the control plane lacks of a release, signs it and points the fleet to it.
    ///
    /// # Errors
    /// [`PublishError`]; nothing points to the release then, and the next attempt sends only
    /// what is still missing.
    pub async fn publish(
        &mut self,
        built: &Built,
        label: Option<String>,
        changed: ReleaseComparison,
    ) -> Result<Published, PublishError> {
        self.redial().await?;
        let before = self.operator.sent();
        let fleet = built.fleet();
        let mut published = Published {
            seq: self.head.seq.unwrap_or(0),
            unchanged: true,
            changed,
            nodes: fleet.exact.size(),
            patterns: fleet.patterns.len(),
            modules: fleet.modules.len(),
            ..Published::default()
        };
        if !self.is_published(built, label.as_deref())? {
            let began = Instant::now();
            let Uploaded { chunks, contents } = upload(&self.operator, built).await?;
            let uploaded = began.elapsed();
            let signed =
                |publisher: &Publisher, seq| publisher.signed(built, seq, label.clone(), Signatures::Enough);
            published.seq = self.commit(built.root()?, signed).await?;
            tracing::debug!(?uploaded, committed = ?began.elapsed() - uploaded, "a release is published");
            published.unchanged = false;
            (published.chunks, published.contents) = (chunks, contents);
            published.bytes = self.operator.sent() - before;
        }
        self.published = Some(built.selection().clone());
        Ok(published)
    }

    /// Sends what the control plane lacks of a release, and signs it with what is at hand, for others to sign and to
    /// publish. `None` when exactly this is published already.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub(crate) async fn request(
        &mut self,
        built: &Built,
        label: Option<String>,
        lists: &ListsPlan,
    ) -> Result<Option<SigningRequest>, PublishError> {
        self.redial().await?;
        if self.is_published(built, label.as_deref())? {
            return Ok(None);
        }
        upload(&self.operator, built).await?;
        let commit = self.signed(built, self.next_seq(), label, Signatures::AtHand)?;
        Ok(Some(self.requested(commit, lists)))
    }

    fn requested(&mut self, commit: Commit, lists: &ListsPlan) -> SigningRequest {
        // The number is given from here on, whether or not it comes to be published.
        self.last.keep(self.next_seq(), commit.headers.values());
        SigningRequest::of(commit, lists.add.clone(), self.head.trust.clone(), crate::clock::now())
    }

    /// Signs lists with a release key of this publisher.
    fn lists(&self) -> ListSigner<'_> {
        let key = self.signers.of_lists(&self.head.trust);
        ListSigner { operator: &self.operator, trust: &self.head.trust, key }
    }

    /// What of the lists that are declared is not published yet.
    ///
    /// # Errors
    /// When the control plane cannot be asked, or a list cannot be signed.
    pub(crate) async fn plan_lists(&mut self) -> Result<ListsPlan, PublishError> {
        self.redial().await?;
        let DeclaredAdmission { tokens, revocations } = &self.declared;
        let (tokens, revocations) = (tokens.as_deref(), revocations.as_deref());
        let (signer, now) = (self.lists(), crate::clock::now());
        match signer.plan(tokens, revocations, Undeclared::Dropped, now).await {
            Err(ListError::NoReleaseKey) => {
                aside(&format!(
                    "warning: {}; what tokens.yaml and revocations.yaml changed is not published",
                    ListError::NoReleaseKey
                ));
                Ok(ListsPlan::default())
            }
            planned => Ok(planned?),
        }
    }

    /// Has lists count.
    ///
    /// # Errors
    /// When the control plane refuses them.
    pub(crate) async fn publish_lists(&mut self, plan: &ListsPlan) -> Result<ListsAdded, PublishError> {
        self.redial().await?;
        Ok(self.lists().publish(plan).await?)
    }

    /// A resident publisher outlives its connection.
    async fn redial(&mut self) -> Result<(), PublishError> {
        if self.operator.is_closed() {
            self.operator = Operator::dial(&self.credentials).await?;
        }
        Ok(())
    }

    /// The headers that are pointed to now, verified by a trust document.
    fn headers_by(&self, trust: &TrustDocument) -> Result<BTreeMap<Channel, Header>, PublishError> {
        let verified = self.head.headers.iter().map(|(channel, document)| {
            let header = header::verify(channel, document, trust)?;
            Ok((channel.clone(), header))
        });
        verified.collect()
    }

    /// Exactly this is published already: selection, channels, freshness, rollouts, required features
    /// and, if one is asked for, the label.
    fn is_published(&self, built: &Built, label: Option<&str>) -> Result<bool, PublishError> {
        if self.is_overtaken() || self.head.selection != Some(built.root()?) {
            return Ok(false);
        }
        // With the current key what another one signed is signed anew, so that the other can be retired.
        let trust = &self.head.trust;
        let previous = trust.release.previous.filter(|previous| self.signers.has(previous));
        let release = Slots { previous, ..trust.release.clone() };
        let Ok(mut headers) = self.headers_by(&TrustDocument { release, ..trust.clone() }) else {
            return Ok(false);
        };
        headers.retain(|_, header| Some(header.seq) == self.head.seq);
        let freshness: BTreeMap<Channel, u64> =
            headers.iter().map(|(channel, header)| (channel.clone(), header.freshness_secs)).collect();
        let labelled = label.is_none() || headers.values().all(|header| header.label.as_deref() == label);
        let requires = built.requires(FEATURES);
        let required = headers
            .values()
            .all(|header| header.requires == built.header_requires(header.channel.as_str(), &requires));
        let minimum = self.head.minimum_agent == built.fleet().minimum_agent;
        let rollouts = changed_rollouts(headers.values(), built).is_empty();
        Ok(labelled && required && minimum && rollouts && freshness == built.freshness_secs())
    }

    /// Nodes hold a release that the control plane does not have, and refuse its newest: the same content needs
    /// another number.
    fn is_overtaken(&self) -> bool {
        self.head.node_header.is_some()
    }

    /// Points the fleet to a release that was uploaded. A number that somebody else took meanwhile is
    /// replaced by the next one only where their release holds what this publisher compared with, or the
    /// same as its own.
    async fn commit(
        &mut self,
        root: Digest,
        signed: impl Fn(&Publisher, u64) -> Result<Commit, PublishError>,
    ) -> Result<u64, PublishError> {
        let harmless = [self.head.selection, Some(root)];
        for _ in 0..COMMIT_ATTEMPTS {
            let seq = self.next_seq();
            let commit = signed(self, seq)?;
            self.last.keep(seq, commit.headers.values());
            match self.operator.call(&api::COMMIT, commit.clone()).await {
                Ok(seq) => {
                    self.head.seq = Some(seq);
                    self.head.selection = Some(root);
                    self.head.headers.extend(commit.headers);
                    (self.head.node_header, self.head.went_back) = (None, None);
                    return Ok(seq);
                }
                Err(error) if error.is(Code::HeadMoved) => {
                    self.head = self.operator.call(&api::HEAD, Empty {}).await?;
                    if !harmless.contains(&self.head.selection) {
                        self.published = None;
                        return Err(PublishError::Overtaken(self.head.seq.unwrap_or(seq)));
                    }
                    tracing::info!(
                        seq,
                        "another release of this content was published meanwhile; numbering anew"
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(PublishError::Renumbered)
    }

    /// What the fleet is pointed to.
    pub(crate) fn head(&self) -> &HeadView {
        &self.head
    }

    /// Where it asks.
    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Whether the newest release is what this content would be, and nodes take it.
    pub(crate) fn points_to(&self, selection: &Digest) -> bool {
        self.head.selection == Some(*selection) && !self.is_overtaken()
    }

    /// What the operator is to be told of the trust documents of the control plane, where they went back.
    pub(crate) fn trust_warning(&self) -> Option<String> {
        let holders = self.head.trust_overtaken?;
        Some(format!("warning: {}", trust_overtaken(holders)))
    }

    /// By what secrets are sealed.
    pub(crate) fn sealing_signer(&self) -> &FleetSigner {
        &self.signers.first().key
    }

    /// What a channel is pointed to, and what that release names as its own fallbacks: the newest first.
    fn before(&self, channel: &Channel) -> Vec<Fallback> {
        let Some(document) = self.head.headers.get(channel) else { return Vec::new() };
        let Ok(header) = header::verify(channel, document, &self.head.trust) else { return Vec::new() };
        let now = Fallback { seq: header.seq, header: trust::signed::digest(document) };
        std::iter::once(now).chain(header.fallbacks).collect()
    }

    fn signed(
        &self,
        built: &Built,
        seq: u64,
        label: Option<String>,
        signatures: Signatures,
    ) -> Result<Commit, PublishError> {
        let stamp = Stamp {
            fleet: self.head.trust.fleet.clone(),
            seq,
            label,
            created: crate::clock::now(),
            before: self.head.headers.keys().map(|channel| (channel.clone(), self.before(channel))).collect(),
        };
        let mut headers = BTreeMap::new();
        for (channel, header) in release::headers(built, &stamp)? {
            headers.insert(channel, self.signers.sign(&header, &self.head.trust, signatures)?);
        }
        let fleet = built.fleet();
        let summary = ReleaseSummary {
            contact_secs: built.contact_secs(),
            runs: built.run_times(),
            nodes: fleet.exact.size(),
            patterns: fleet.patterns.len(),
            modules: fleet.modules.len(),
            by: None,
            minimum_agent: fleet.minimum_agent.clone(),
        };
        Ok(Commit { headers, expected_head: self.head.seq, summary })
    }
}

/// The channels for which a header says otherwise how a release reaches its nodes than a release that is built.
fn changed_rollouts<'h>(headers: impl Iterator<Item = &'h Header>, built: &Built) -> Vec<Channel> {
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

/// How many patterns came, went or get something else.
fn changed_patterns(old: &[PatternEntry], new: &[PatternEntry]) -> usize {
    let kept = new.iter().filter(|pattern| old.contains(pattern)).count();
    old.len().max(new.len()) - kept
}
