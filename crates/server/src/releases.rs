//! Releases: verified at the door, indexed, pointed to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use model::exchange::Signed;
use model::time::SLACK;
use model::{Channel, Digest, ReleaseVersion, Selection, Timestamp};
use plane::heads::Patterns;
use plane::node::DEFAULT_CONTACT_SECS;
use plane::{Head, Heads, NodeHeader};
use rollout::RolloutKey;
use store::audit::AuditSubject;
use store::{Release, ReleaseCommitError};
use trust::Header;
use trust::feature::{self, FEATURES};
use trust::signed::{self, Document, VerifyError};
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::api::{Commit, ReleaseSummary};
use crate::operator_port::OperatorCall;
use crate::state::{ControlPlane, now, run_to_completion};
use crate::{beacons, lists, posture};

/// Reads the signed lists and the heads from the store, verifies them and points the fleet to the heads. While that
/// fails, check-ins are refused with the reason (WIR-4).
pub(crate) async fn load(plane: &ControlPlane) -> Result<(), Problem> {
    // Who joins and who is revoked does not wait for the heads.
    let lists = lists::load(plane).await;
    load_with(plane, BTreeMap::new()).await.and(lists)
}

/// Selections that were read, with their patterns.
type ReadSelections = BTreeMap<Digest, (Arc<Selection>, Arc<Patterns>)>;

async fn load_with(plane: &ControlPlane, read: ReadSelections) -> Result<(), Problem> {
    // Else a slower one would point the fleet back.
    let _one = plane.loading.lock().await;
    let loaded = async {
        let heads = read_heads(plane, read).await?;
        // Before the fleet is pointed to them: a member of a rollout that begins is pointed by that at every moment.
        let needed = plane.rollouts.follow(plane, &heads).await?;
        with_earlier(plane, heads, needed).await
    };
    let loaded = loaded.await;
    {
        let mut not_ready = plane.not_ready.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(heads) => {
                *not_ready = None;
                plane.heads.send_replace(Arc::new(heads));
            }
            Err(problem) => {
                *not_ready = Some(problem.to_string());
                return Err(problem);
            }
        }
    }
    // After it: a member of a rollout that ends is pointed by the heads from then on.
    if let Err(problem) = plane.rollouts.end_replaced(plane).await {
        tracing::warn!(%problem, "rollouts that a release replaced are not ended yet");
    }
    Ok(())
}

/// The heads with the earlier releases that members of rollouts are pointed to.
async fn with_earlier(
    plane: &ControlPlane,
    mut heads: Heads,
    needed: BTreeSet<RolloutKey>,
) -> Result<Heads, Problem> {
    let known = plane.heads();
    for key in needed {
        if heads.release(&key).is_some() {
            continue;
        }
        let earlier = match known.release(&key) {
            Some(known) => Some(Head::clone(known)),
            None => earlier_head(plane, &key).await?,
        };
        if let Some(earlier) = earlier {
            heads.earlier.insert(key, Arc::new(beacons::with_stored(plane, earlier).await?));
        }
    }
    Ok(heads)
}

/// A release that a channel pointed to, without a beacon; `None` where it is not stored.
async fn earlier_head(plane: &ControlPlane, key: &RolloutKey) -> Result<Option<Head>, Problem> {
    let release = plane.store.release(key.seq).await.map_err(store_problem)?;
    let Some(signed) = release.as_ref().and_then(|release| release.headers.get(&key.channel)) else {
        return Ok(None);
    };
    let header = committed(plane, signed)?;
    let read = selection(plane, &header.selection).await?;
    Ok(Some(head_of(signed.clone(), header, release.as_ref(), read)))
}

/// A release as the nodes of its channel are pointed to it, without a beacon.
fn head_of(
    signed: Signed,
    header: Header,
    release: Option<&Release>,
    (selection, patterns): (Arc<Selection>, Arc<Patterns>),
) -> Head {
    let summary = release.map(summary_of).unwrap_or_default();
    Head {
        digest: signed::digest(&signed),
        signed_at: header.created,
        signed: Arc::new(signed),
        beacon: None,
        contact_secs: summary.contact_secs.get(&header.channel).copied().unwrap_or(DEFAULT_CONTACT_SECS),
        minimum_agent: summary.minimum_agent.as_deref().and_then(ReleaseVersion::parse),
        runs: summary.runs.get(&header.channel).copied(),
        selection,
        patterns,
        header,
    }
}

fn summary_of(release: &Release) -> ReleaseSummary {
    serde_json::from_value(release.summary.clone()).unwrap_or_default()
}

async fn read_heads(plane: &ControlPlane, mut selections: ReadSelections) -> Result<Heads, Problem> {
    let stored = plane.store.heads().await.map_err(store_problem)?;
    let mut channels = BTreeMap::new();
    let known = plane.heads();
    for head in stored {
        let header = committed(plane, &head.header)?;
        let in_use = known.channels.values().find(|h| h.header.selection == header.selection);
        let read = match (selections.get(&header.selection), in_use) {
            (Some(read), _) => read.clone(),
            (None, Some(head)) => (head.selection.clone(), head.patterns.clone()),
            (None, None) => selection(plane, &header.selection).await?,
        };
        selections.insert(header.selection, read.clone());
        let release = plane.store.release(head.seq).await.map_err(store_problem)?;
        let head = head_of(head.header, header, release.as_ref(), read);
        let head = beacons::with_stored(plane, head).await?;
        channels.insert(head.header.channel.clone(), Arc::new(head));
    }
    let node_header = node_header(plane).await?;
    Ok(Heads { version: known.version + 1, channels, earlier: BTreeMap::new(), node_header })
}

/// The header of nodes that is kept, verified.
async fn node_header(plane: &ControlPlane) -> Result<Option<NodeHeader>, Problem> {
    let Some(signed) = plane.store.node_header().await.map_err(store_problem)? else { return Ok(None) };
    match verified(plane, &signed) {
        Ok(header) => Ok(Some(NodeHeader { seq: header.seq, signed: Arc::new(signed) })),
        // The key that signed it may be retired by now. It is advice, and holds nothing up.
        Err(problem) => {
            tracing::warn!(%problem, "the header of a release that nodes held is not believed any more");
            Ok(None)
        }
    }
}

/// Keeps the header of a release that a node holds and that no release here has: another publish goes on above
/// its number (SCL-4).
pub(crate) async fn keep_node_header(plane: &ControlPlane, signed: Signed) -> Result<(), Problem> {
    let header = verified(plane, &signed)?;
    if header.fleet != plane.trust.fleet {
        return Err(Problem::new(Code::ReleaseRefused, "the header is of another fleet"));
    }
    let _one = plane.publishing.lock().await;
    if !plane.heads().lacks(header.seq, &signed::digest(&signed)) {
        return Ok(());
    }
    let fresh =
        posture::fresh_incarnation().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    plane.store.keep_node_header(header.seq, signed, &fresh, now()).await.map_err(store_problem)?;
    tracing::warn!(
        seq = header.seq,
        "a node holds a release that is not in this database, which went back to what it was before; the next \
         publish goes on above it"
    );
    load(plane).await
}

async fn selection(plane: &ControlPlane, root: &Digest) -> Result<(Arc<Selection>, Arc<Patterns>), Problem> {
    let heads = plane.heads();
    let newest = heads.channels.values().max_by_key(|head| head.header.seq);
    let known = newest.map(|head| &*head.selection);
    let read = plane.store.selection(root, known).await.map_err(store_problem)?;
    let selection = read.ok_or_else(|| Problem::new(Code::Incomplete, "the selection is missing"))?;
    let patterns =
        Patterns::read(&selection).map_err(|error| Problem::new(Code::ReleaseRefused, error.to_string()))?;
    Ok((Arc::new(selection), Arc::new(patterns)))
}

fn verified(plane: &ControlPlane, header: &Signed) -> Result<Header, Problem> {
    plane.trust.documents().newest().document.header(header).map_err(refused)
}

/// A header that was verified when it was committed: by keys that may have been retired since, or by fewer than its
/// channel asks for since.
pub(crate) fn committed(plane: &ControlPlane, header: &Signed) -> Result<Header, Problem> {
    let documents = plane.trust.documents();
    if let Err(error) = documents.newest().document.header(header) {
        tracing::warn!(%error, "what the fleet is pointed to is not signed as it must be by now; publish anew");
    }
    documents.verify_committed(header).map_err(refused)
}

fn refused(error: VerifyError) -> Problem {
    Problem::new(Code::ReleaseRefused, format!("the {} is refused: {error}", Header::TYPE))
}

/// Commits a release and points the channels to it, also when the publisher hangs up in the
/// middle: a release that is stored is one that nodes are pointed to.
pub(crate) async fn commit(call: OperatorCall, sent: Commit) -> Result<u64, Problem> {
    run_to_completion(async move { commit_whole(&call, sent).await }).await
}

/// Every header verified, all of one number and selection, everything below it stored; then
/// the channels point to it.
async fn commit_whole(call: &OperatorCall, commit: Commit) -> Result<u64, Problem> {
    let OperatorCall { plane, by, .. } = call;
    let _one = plane.publishing.lock().await;
    let first = check(plane, &commit)?;
    if let Some(held) = plane.heads().node_header.as_ref().filter(|held| held.seq >= first.seq) {
        // Nodes would refuse it, and find two headers of one number.
        return Err(Problem::new(Code::HeadMoved, format!("nodes hold release {}", held.seq)));
    }
    // Refused before it is stored if a pattern cannot be read.
    let read = selection(plane, &first.selection).await?;
    let summary = ReleaseSummary { by: Some(by.to_owned()), ..commit.summary };
    let release = Release {
        seq: first.seq,
        ref_label: first.label.clone().unwrap_or_default(),
        created: first.created,
        selection: first.selection,
        headers: commit.headers,
        summary: serde_json::to_value(summary).map_err(|_| Code::Internal)?,
    };
    let what = format!("release {} to {} channels", first.seq, release.headers.len());
    call.recording(AuditSubject::of(what))
        .commit_release(release, commit.expected_head)
        .await
        .map_err(commit_problem)?;
    load_with(plane, [(first.selection, read)].into()).await?;
    tracing::info!(seq = first.seq, by, "a release was published");
    Ok(first.seq)
}

/// Verifies the headers of a release, which must agree; gives one of them.
fn check(plane: &ControlPlane, commit: &Commit) -> Result<Header, Problem> {
    let refused = |why: &str| Problem::new(Code::ReleaseRefused, why.to_owned());
    let mut first: Option<Header> = None;
    for (channel, document) in &commit.headers {
        let header = verified(plane, document)?;
        if header.channel != *channel || header.fleet != plane.trust.fleet {
            return Err(refused("a header is of another channel or fleet"));
        }
        header
            .check_rollout()
            .map_err(|error| refused(&format!("the rollout of channel {channel}: {error}")))?;
        if let Some(missing) = feature::missing(&header.requires, FEATURES) {
            let detail =
                format!("release {} requires {missing}, which this control plane does not have", header.seq);
            return Err(Problem::new(Code::FeatureMissing, detail));
        }
        let now = now();
        if header.created > now.plus(SLACK) {
            return Err(refused(&in_the_future("a header", header.created, now)));
        }
        match &first {
            Some(first) if first.seq != header.seq || first.selection != header.selection => {
                return Err(refused("the headers disagree on number or selection"));
            }
            Some(_) => {}
            None => first = Some(header),
        }
    }
    first.ok_or_else(|| refused("there is no header"))
}

fn in_the_future(what: &str, at: Timestamp, now: Timestamp) -> String {
    let beside = at.beside(now);
    format!(
        "{what} is dated {at}, in the future: the clock of who signed it is {beside} the control plane's ({now}); \
         set the one that is wrong"
    )
}

fn commit_problem(error: ReleaseCommitError) -> Problem {
    match error {
        ReleaseCommitError::HeadMoved { .. } => Problem::new(Code::HeadMoved, error.to_string()),
        ReleaseCommitError::NotComplete { .. } => Problem::new(Code::Incomplete, error.to_string()),
        ReleaseCommitError::NoHeader => Problem::new(Code::ReleaseRefused, error.to_string()),
        ReleaseCommitError::Store(error) => store_problem(error),
    }
}

/// The signed headers by channel.
pub(crate) fn headers(heads: &Heads) -> BTreeMap<Channel, Signed> {
    heads.channels.iter().map(|(channel, head)| (channel.clone(), (*head.signed).clone())).collect()
}
