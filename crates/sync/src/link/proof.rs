//! What a link takes of a feed whose changes are proven, and how it proves its own (IDN-9).
//!
//! ```text
//! event ---> proof of (node, incarnation, revision, object) --> newer than what is here? --> inbox
//! sections -> proof of (node, incarnation, revision, root, challenge) --> trie --> orphans may go
//! ```
//!
//! A proof says that the control plane made the change once, not that it is the newest. So a change counts only
//! beyond what the replica has: beyond its cursor, beyond the object that is here, and a put beyond the deletes of
//! its pass, of which nothing is left here to compare with. A change of another incarnation counts only after a
//! proof of that incarnation's head which names a challenge of this side; and what a comparison finds gone, goes,
//! because every node of the trie leads to that head.

use std::sync::Arc;

use bytes::Bytes;
use model::set::root_of_sections;
use model::{Digest, Incarnation, ObjectKey, SectionKey, Stub, Timestamp};
use trust::feed_proof::{
    FeedOwner, FeedSigner, FeedVerifier, ProvenChange, ProvenHead, UnprovenError, VerifiedGroup,
};

use super::outbox::is_delete_rank;
use super::{Cx, Link};
use crate::cursor::FeedCursor;
use crate::feed::ObjectState;
use crate::frame::{CloseReason, Event, Op, ResyncRequest};
use crate::mode::Role;

/// How soon a link may come again that ended for want of a proof, in seconds.
const UNPROVEN_AGAIN: u64 = 20;

/// What proves the control plane's feed to a node.
#[derive(Clone, Debug, Default)]
pub enum FeedProofs {
    /// Nothing: the fleet's trust document names no key for it.
    #[default]
    Unsigned,
    /// The control plane's end: changes have their proofs in the store, heads are signed here.
    Made(FeedProver),
    /// The node's end: what is not proven is not taken.
    Required(Arc<FeedVerifier>),
}

/// Signs where a feed stands.
#[derive(Clone, Debug)]
pub struct FeedProver {
    /// The control plane's key.
    pub signer: Arc<FeedSigner>,
    /// Whose feed it is.
    pub owner: FeedOwner,
}

impl FeedProver {
    /// The leaf of a change of the feed, which a signature covers.
    pub fn leaf(&self, incarnation: &Incarnation, rev: u64, key: &ObjectKey, state: &ObjectState) -> Digest {
        let (uid, digest) = match state {
            ObjectState::Live { stub, .. } => (&stub.uid, Some(&stub.digest)),
            ObjectState::Deleted { uid } => (uid, None),
        };
        ProvenChange { incarnation, rev, key, uid, digest }.leaf(&self.owner)
    }
}

/// What a proven change is to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeAge {
    /// It is newer than what is here.
    Newer,
    /// It is not: it counts as received.
    Known,
}

/// What was proven on the link.
#[derive(Debug, Default)]
pub(super) struct ProvenFeed {
    /// The group that was verified last.
    group: Option<VerifiedGroup>,
    /// Puts up to this revision were sent before the deletes that came last.
    deleted: u64,
}

impl Link {
    pub(super) fn requires_proofs(&self) -> bool {
        matches!(self.config.proofs, FeedProofs::Required(_))
    }

    /// Whether what is loaded has proofs, also of deletes.
    pub(super) fn signs(&self) -> bool {
        matches!(self.config.proofs, FeedProofs::Made(_))
    }

    /// Proofs are required, and the other side has nothing that would prove what is gone.
    pub(super) fn lacks_proofs(&self) -> bool {
        self.requires_proofs() && !self.both.trie_resync
    }

    /// Whether changes of this incarnation are taken as they come. A proven replica changes its incarnation only by
    /// a proof of the new one's head.
    pub(super) fn takes_changes_of(&self, incarnation: &Incarnation, cx: &Cx<'_>) -> bool {
        match self.requires_proofs() {
            true => cx.replica.incarnation().is_none_or(|here| here == incarnation),
            false => cx.replica.is_of(incarnation),
        }
    }

    /// The other side's feed is of this incarnation.
    pub(super) fn meets_incarnation(&mut self, incarnation: &Incarnation, cx: &mut Cx<'_>) {
        if self.takes_changes_of(incarnation, cx) {
            cx.replica.begin_incarnation(incarnation);
        } else if self.requires_proofs() {
            self.want_resync(cx);
        }
    }

    /// The link begins where the replica stands: in the deletes of a pass no put of that pass is new.
    pub(super) fn proven_stands_at(&mut self, cx: &Cx<'_>) {
        let pass = cx.replica.cursor().and_then(|cursor| cursor.position().pass);
        let in_deletes = pass.filter(|pass| is_delete_rank(pass.rank, &self.config.kinds));
        self.proven.deleted = in_deletes.map_or(0, |pass| pass.to);
    }

    /// Judges an event by its proof and by what is here.
    pub(super) fn judge(&mut self, event: &Event, cx: &Cx<'_>) -> Result<ChangeAge, UnprovenError> {
        let FeedProofs::Required(verifier) = &self.config.proofs else { return Ok(ChangeAge::Newer) };
        let Some(incarnation) = &self.peer_incarnation else { return Ok(ChangeAge::Known) };
        let (uid, digest) = match &event.op {
            Op::Put { stub, .. } => (&stub.uid, Some(&stub.digest)),
            Op::Delete { uid } => (uid, None),
        };
        let answer = event.seq == 0;
        if answer && digest.is_none() && event.proof.is_none() {
            // The source has nothing under the name. That takes nothing away here.
            return Ok(ChangeAge::Known);
        }
        let change = ProvenChange { incarnation, rev: event.rev, key: &event.key, uid, digest };
        verifier.verify_change(&change, event.proof.as_deref(), &mut self.proven.group)?;
        if answer {
            // Who asked knows what it may be: a restored source gives out revisions twice.
            return Ok(ChangeAge::Newer);
        }
        let here = cx.replica.get(&event.key).map_or(0, |(_, rev)| rev);
        let cursor = cx.replica.cursor().filter(|cursor| cursor.incarnation == *incarnation);
        let mut known = here.max(cursor.map_or(0, |cursor| cursor.revision));
        match digest {
            Some(_) => known = known.max(self.proven.deleted),
            None => self.proven.deleted = self.proven.deleted.max(event.rev),
        }
        Ok(if event.rev > known { ChangeAge::Newer } else { ChangeAge::Known })
    }

    /// Something came without a proof that counts: nothing of it is taken, and the link ends.
    pub(super) fn unproven(&mut self, key: &ObjectKey, why: UnprovenError, cx: &mut Cx<'_>) {
        let message = format!("{key} is not the control plane's word: {why}");
        self.go_away(CloseReason::UNPROVEN, &message, Some(UNPROVEN_AGAIN), cx);
    }

    /// The same of a set that is compared with.
    pub(super) fn unproven_set(&mut self, why: UnprovenError, cx: &mut Cx<'_>) {
        let message = format!("the set to compare with is not the control plane's word: {why}");
        self.go_away(CloseReason::UNPROVEN, &message, Some(UNPROVEN_AGAIN), cx);
    }

    /// What was asked for is not at the source, as far as anything proves.
    pub(super) fn not_there(&mut self, key: &ObjectKey) {
        self.resync.is_not_there(key);
    }

    /// How a resync begins.
    pub(super) fn sections_request(&mut self, now: Timestamp) -> ResyncRequest {
        if !self.requires_proofs() {
            return ResyncRequest::Sections;
        }
        // One process has a random name and asks once in a millisecond.
        let challenge = format!("{}.{}", self.config.instance, now.0);
        self.resync.challenge.clone_from(&challenge);
        ResyncRequest::ProvenSections { challenge }
    }

    /// Whether the sections are those of the control plane's set of now.
    pub(super) fn proves_sections(
        &self,
        cursor: &FeedCursor,
        sections: &[(SectionKey, Digest)],
        proof: Option<&Bytes>,
    ) -> Result<(), UnprovenError> {
        let FeedProofs::Required(verifier) = &self.config.proofs else { return Ok(()) };
        if !sections.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(UnprovenError::Malformed);
        }
        let root = root_of_sections(sections.iter().map(|(key, root)| (key, *root)));
        let FeedCursor { incarnation, revision, .. } = cursor;
        let challenge = &self.resync.challenge;
        let head = ProvenHead { incarnation, revision: *revision, root: &root, challenge };
        verifier.verify_head(&head, proof.map(|proof| &proof[..]))
    }

    /// Proves where the own feed stands, to the node that asks.
    pub(super) fn prove_head(&self, challenge: &str, cx: &mut Cx<'_>) -> Option<Bytes> {
        let FeedProofs::Made(FeedProver { signer, owner }) = &self.config.proofs else { return None };
        let (root, revision) = (cx.feed.root(), cx.feed.head());
        let head = ProvenHead { incarnation: cx.feed.incarnation(), revision, root: &root, challenge };
        debug_assert!(self.config.role == Role::Principal);
        Some(signer.sign_head(owner, &head).into())
    }
}

/// Whether an answer is older than the comparison that asked for it: what changed since has a later revision, and
/// all else is as it was found.
pub(super) fn is_older(event: &Event, compared_at: u64, found: Option<&Stub>) -> bool {
    event.rev <= compared_at && event.op.stub() != found
}
