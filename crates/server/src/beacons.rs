//! Beacons: verified at the door, kept by release, renewed where a key for them lies beside the control plane (ROL-4).
//!
//! They are for the releases that nodes are pointed to: the newest of each channel, and the earlier ones that rollouts
//! have in use ([`plane::Heads::earlier`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::exchange::Signed;
use model::time::SLACK;
use model::{Channel, Timestamp};
use plane::Head;
use rollout::RolloutKey;
use store::Store;
use trust::beacon::{self, BeaconSubject};
use trust::freshness::Freshness;
use trust::{Beacon, BeaconRefusal, Header, SigningKey, signed};
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::releases;
use crate::state::{ControlPlane, now};

/// The beacon that is stored for a release of a channel. The key that signed it may be retired by now: the release is as
/// fresh as its header then.
pub(crate) async fn stored(
    plane: &ControlPlane,
    channel: &Channel,
    seq: u64,
) -> Result<Option<(Beacon, Signed)>, Problem> {
    let Some(document) = plane.store.beacon(channel, seq).await.map_err(store_problem)? else {
        return Ok(None);
    };
    match beacon::open(&document, &plane.trust.documents().newest().document) {
        Ok(beacon) => Ok(Some((beacon, document))),
        Err(refusal) => {
            tracing::warn!(%channel, seq, %refusal, "a stored beacon is not believed any more");
            Ok(None)
        }
    }
}

/// A release with the beacon that is stored for it, whatever it had before.
pub(crate) async fn with_stored(plane: &ControlPlane, head: Head) -> Result<Head, Problem> {
    let stored = stored(plane, &head.header.channel, head.header.seq).await?;
    let signed_at = Freshness::of(&head.header, stored.as_ref().map(|(beacon, _)| beacon)).signed_at;
    Ok(Head { beacon: stored.map(|(_, document)| Arc::new(document)), signed_at, ..head })
}

/// Keeps beacons and lets the releases that nodes are pointed to carry them. One that is refused keeps none of the
/// others out that came before it, and lowers nothing; one that is known already is kept as it is.
pub(crate) async fn add(plane: &ControlPlane, store: &Store, beacons: Vec<Signed>) -> Result<(), Problem> {
    let _one = plane.publishing.lock().await;
    let mut newest = BTreeMap::new();
    let added = keep(plane, store, beacons, &mut newest).await;
    if !newest.is_empty() {
        releases::load(plane).await?;
    }
    added
}

/// `kept`: when those were signed that are kept.
async fn keep(
    plane: &ControlPlane,
    store: &Store,
    beacons: Vec<Signed>,
    kept: &mut BTreeMap<RolloutKey, Timestamp>,
) -> Result<(), Problem> {
    let heads = plane.heads();
    for document in beacons {
        let beacon = beacon::open(&document, &plane.trust.documents().newest().document).map_err(refused)?;
        let Some(newest) = heads.channels.get(&beacon.channel) else {
            let detail = format!("nothing is published in channel {}", beacon.channel);
            return Err(Problem::new(Code::BeaconOtherChannel, detail));
        };
        let key = RolloutKey { channel: beacon.channel.clone(), seq: beacon.seq };
        // One for a release that nobody is pointed to is for another release than the newest.
        let head = heads.release(&key).unwrap_or(newest);
        let subject =
            BeaconSubject { channel: &head.header.channel, seq: head.header.seq, header: &head.digest };
        // Every node would refuse one from the future, and the release with it.
        beacon::check(&beacon, subject, now()).map_err(refused)?;
        let known = kept.get(&key).copied().unwrap_or(head.signed_at);
        if beacon::is_newer(&beacon, known).map_err(refused)? {
            store.put_beacon(&key.channel, key.seq, document, beacon.at).await.map_err(store_problem)?;
            kept.insert(key, beacon.at);
        }
    }
    Ok(())
}

fn refused(refusal: BeaconRefusal) -> Problem {
    let code = match refusal {
        BeaconRefusal::Signature(_) => Code::BeaconSignature,
        BeaconRefusal::Malformed(_) => Code::BeaconMalformed,
        BeaconRefusal::OtherFleet { .. } => Code::BeaconOtherFleet,
        BeaconRefusal::OtherChannel { .. } => Code::BeaconOtherChannel,
        BeaconRefusal::OtherRelease { .. } => Code::BeaconOtherRelease,
        BeaconRefusal::Future { .. } => Code::BeaconFuture,
        BeaconRefusal::Older { .. } => Code::BeaconOlder,
    };
    Problem::new(code, format!("the beacon is refused: {refusal}"))
}

/// Signs beacons for releases that nodes are pointed to, once a quarter of their freshness is spent. Only where a key for
/// it lies beside the control plane (lab posture); elsewhere `muster beacon` does it. None is signed for a time that the
/// newest signature makes unlikely: a clock that is ahead must not date the fleet (IDN-11).
pub(crate) async fn renew(plane: &ControlPlane, key: &SigningKey) -> Result<(), Problem> {
    let at = now();
    let (mut due, mut unlikely) = (Vec::new(), Ok(()));
    let documents = plane.trust.documents();
    let trust = &documents.newest().document;
    // A release of a key that counts no more, or of too few, is not vouched for.
    let counts = |head: &Head| trust.header(&head.signed).is_ok();
    let heads = plane.heads();
    let newest = heads.newest_signature().unwrap_or_default();
    let due_now = heads.served().filter(|head| at > head.freshness().renews_at() && counts(head));
    for head in due_now {
        if let Err(problem) = is_likely(&head.header, newest, at) {
            unlikely = Err(problem);
            continue;
        }
        let beacon = Beacon {
            fleet: head.header.fleet.clone(),
            channel: head.header.channel.clone(),
            seq: head.header.seq,
            header: head.digest,
            at,
        };
        due.push(signed::sign(&beacon, &[key]).map_err(|_| Code::Internal)?);
        tracing::info!(channel = %beacon.channel, seq = beacon.seq, "signing a beacon: the release still counts");
    }
    if !due.is_empty() {
        add(plane, &plane.store, due).await?;
    }
    unlikely
}

/// Whether the clock may be right that says this: it is at most one freshness past the newest signature that is known.
fn is_likely(header: &Header, newest: Timestamp, at: Timestamp) -> Result<(), Problem> {
    if at <= newest.plus(header.freshness()).plus(SLACK) {
        return Ok(());
    }
    let (channel, seq) = (&header.channel, header.seq);
    let detail = format!(
        "no beacon is signed for release {seq} in channel {channel}: by this clock it is {at}, which is past the \
         freshness of the newest signature, of {newest}; set the clock if it is wrong, else publish, or sign one with \
         `muster beacon`"
    );
    Err(Problem::new(Code::BeaconFuture, detail))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use model::Digest;

    use super::*;

    /// IDN-11: a control plane whose clock is far ahead signs no beacon there, and says so.
    #[test]
    fn no_beacon_is_signed_far_past_the_newest_signature() {
        let (newest, fresh) = (Timestamp::from_secs(1_800_000_000), Duration::from_secs(86_400));
        let header = Header {
            fleet: "acme-1".parse().unwrap(),
            channel: "main".parse().unwrap(),
            seq: 7,
            label: None,
            created: newest,
            selection: Digest::ZERO,
            freshness_secs: fresh.as_secs(),
            fallbacks: vec![],
            requires: vec![],
            rollout: None,
        };
        let edge = newest.plus(fresh).plus(SLACK);
        is_likely(&header, newest, edge).unwrap();
        let problem = is_likely(&header, newest, edge.plus(Duration::from_millis(1))).unwrap_err();
        assert_eq!(problem.code, Code::BeaconFuture.as_str());
        assert!(
            problem.to_string().contains("no beacon is signed for release 7 in channel main"),
            "{problem}"
        );
        is_likely(&header, edge, edge.plus(fresh)).unwrap();
    }
}
