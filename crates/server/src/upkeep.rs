//! What the control plane does by itself: flush contacts, renew beacons, prune.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::accept::stopped;
use net::admission::{KNOWN_FOR, MAX_KNOWN};
use net::prefix_journal::PrefixJournal;
use store::{KnownPrefix, Retention};
use tokio::sync::watch;

use crate::answer::chain;
use crate::refresh::refresh_declared;
use crate::state::{ControlPlane, now};

/// How often contacts are persisted (CNV-4).
const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// How often beacons are looked at, and heads that could not be read are read again.
const BEACONS_EVERY: Duration = Duration::from_secs(30);
/// How often history beyond its bounds is taken away.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// How often hosts that ask to join no more are looked for.
const JOINS_EVERY: Duration = Duration::from_secs(600);
/// How often the totals of the fleet are brought up to date though nobody asks.
const REFRESH_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether the file of trust documents changed.
const TRUST_EVERY: Duration = Duration::from_secs(2);
/// The most contacts persisted in one batch.
const BATCH: usize = 1000;

/// Runs until `shutdown` becomes true; then persists what waits.
pub(crate) async fn run(
    plane: Arc<ControlPlane>,
    journal: PrefixJournal,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut flush_every = tokio::time::interval(FLUSH_EVERY);
    let mut beacons = tokio::time::interval(BEACONS_EVERY);
    let mut prune = tokio::time::interval(PRUNE_EVERY);
    prune.reset();
    let mut joins = tokio::time::interval(JOINS_EVERY);
    let mut refresh_every = tokio::time::interval(REFRESH_EVERY);
    let mut trust_every = tokio::time::interval(TRUST_EVERY);
    let mut heads = plane.heads.subscribe();
    loop {
        tokio::select! {
            _ = flush_every.tick() => flush(&plane, &journal).await,
            _ = refresh_every.tick() => refresh_declared(&plane).await,
            Ok(()) = heads.changed() => refresh_declared(&plane).await,
            _ = trust_every.tick() => read_trust(&plane).await,
            _ = beacons.tick() => renew(&plane).await,
            _ = joins.tick() => crate::joins::forget_lapsed(&plane).await,
            _ = prune.tick() => {
                crate::closures::sweep(&plane).await;
                // Which may take minutes.
                tokio::spawn(crate::closures::scrub(plane.clone()));
                match plane.store.prune(now(), Retention::default()).await {
                Ok(pruned) => tracing::debug!(?pruned, "pruned"),
                Err(error) => tracing::warn!(error = %chain(&error), "cannot prune"),
                }
            }
            () = stopped(&mut shutdown) => return flush(&plane, &journal).await,
        }
    }
}

async fn flush(plane: &ControlPlane, journal: &PrefixJournal) {
    if let Err(error) = plane.hub.flush().await {
        // The node says it again with its next link.
        tracing::warn!(error = %chain(&error), "how far nodes are could not be persisted");
    }
    let touches = plane.index.take_touches();
    for batch in touches.chunks(BATCH) {
        if let Err(error) = plane.store.touch(batch.to_vec()).await {
            // A contact lost here costs nothing: the next one says it again.
            tracing::warn!(error = %chain(&error), "contacts could not be persisted");
        }
    }
    keep_prefixes(plane, journal).await;
}

async fn keep_prefixes(plane: &ControlPlane, journal: &PrefixJournal) {
    let (authenticated, now) = (journal.take(Instant::now()), now());
    if authenticated.is_empty() {
        return;
    }
    let known = authenticated
        .into_iter()
        .map(|(prefix, ago)| KnownPrefix { prefix: prefix.to_string(), authenticated: now.minus(ago) });
    let kept = plane.store.keep_prefixes(known.collect(), now.minus(KNOWN_FOR), MAX_KNOWN).await;
    if let Err(error) = kept {
        // Whoever of them authenticates in an hour is kept then.
        tracing::warn!(error = %chain(&error), "address prefixes could not be persisted");
    }
}

/// Takes up trust documents that somebody put into the directory.
async fn read_trust(plane: &ControlPlane) {
    match plane.trust.read_again().await {
        Ok(false) => {}
        Ok(true) => {
            if let Err(problem) = crate::releases::load(plane).await {
                tracing::error!(%problem, "the signed artifacts cannot be loaded; check-ins are refused");
            }
        }
        Err(error) => {
            tracing::error!(error = %chain(&error), "the trust documents cannot be read; those before count on");
        }
    }
    // The key is put in place after the document that names it.
    plane.follow_own_keys();
}

async fn renew(plane: &ControlPlane) {
    if plane.not_ready().is_some()
        && let Err(problem) = crate::releases::load(plane).await
    {
        tracing::error!(%problem, "the signed artifacts cannot be loaded; check-ins are refused");
        return;
    }
    // As it is now: keys are rotated while the control plane runs.
    match plane.trust.beacon_key() {
        Ok(Some(key)) => {
            if let Err(problem) = crate::beacons::renew(plane, &key).await {
                tracing::warn!(%problem, "beacons could not be renewed");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(error = %chain(&error), "the key that signs beacons cannot be read"),
    }
    // Say once in a while that the store does not write, also when nobody calls.
    let health = plane.store.health();
    if let (false, Some(error)) = (health.writable, health.last_error) {
        tracing::warn!(error, "the store cannot be written");
    }
}
