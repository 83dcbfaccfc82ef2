//! Whom the node believes, and how that changes: link by link, durable before it counts (IDN-8).

use model::exchange::{HeldTrust, Signed};
use model::log::FactBody;
use model::{Digest, Timestamp};
use trust::chain::{self, ChainError, ChainHead};
use trust::document::TrustDocument;

use super::Node;
use crate::io::NodeEffect;
use crate::state::TrustRecord;

/// The trust document that the node holds, and the newer one on its way.
#[derive(Debug)]
pub(super) struct HeldChain {
    /// The digest of the document that the token named.
    pinned: Digest,
    head: ChainHead,
    /// What is kept of the head; `None` while it is the one that the token named.
    record: Option<TrustRecord>,
    /// It is being made durable.
    saving: Option<NextHead>,
    /// What was held when the last check-in was made: links lead on from there.
    asked_from: Option<Digest>,
    /// Why the links of the last answer that had some were not followed.
    refused: Option<ChainError>,
}

/// Who hands links on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkBearer {
    /// The control plane, over a connection that is believed.
    ControlPlane,
    /// Whoever answers.
    Anybody,
}

/// A newer document on its way.
#[derive(Debug)]
struct NextHead {
    head: ChainHead,
    record: TrustRecord,
}

impl HeldChain {
    pub(super) fn restored(pinned: &TrustDocument, record: Option<TrustRecord>) -> HeldChain {
        let first = ChainHead::of(pinned.clone());
        let record = record.filter(|record| record.pinned == first.digest);
        let newest = record.and_then(|record| Some((ChainHead::read(&record.link).ok()?, record)));
        let pinned = first.digest;
        let (head, record) = newest.map_or((first, None), |(head, record)| (head, Some(record)));
        HeldChain { pinned, head, record, saving: None, asked_from: None, refused: None }
    }

    pub(super) fn document(&self) -> &TrustDocument {
        &self.head.document
    }

    pub(super) fn is_changing(&self) -> bool {
        self.saving.is_some()
    }

    /// What the check-in that is made now says: links lead on from there.
    pub(super) fn asks(&mut self) -> Option<HeldTrust> {
        self.asked_from = Some(self.head.digest);
        self.held()
    }

    fn held(&self) -> Option<HeldTrust> {
        let refused = self.refused.as_ref().map(|error| error.code().to_owned());
        let says_more = self.head.document.version > 1 || refused.is_some();
        says_more.then(|| HeldTrust { refused, ..self.head.held() })
    }
}

impl Node {
    /// Whom a host believes that joined with one document and recorded another since.
    pub fn trusted(pinned: &TrustDocument, record: Option<TrustRecord>) -> TrustDocument {
        HeldChain::restored(pinned, record).head.document
    }

    /// What check-ins say of the trust document that is held.
    pub fn held_trust(&self) -> Option<HeldTrust> {
        self.chain.held()
    }

    /// Whom the node believes.
    pub fn trust(&self) -> &TrustDocument {
        self.chain.document()
    }

    /// What is kept of whom the node believes; `None` while it is what the token named.
    pub fn trust_record(&self) -> Option<&TrustRecord> {
        self.chain.record.as_ref()
    }

    /// Why the node does not follow the newer trust documents that it was given.
    pub fn refused_trust(&self) -> Option<&ChainError> {
        self.chain.refused.as_ref()
    }

    pub(super) fn on_links(
        &mut self,
        links: &[Signed],
        by: LinkBearer,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        if self.chain.is_changing() || self.chain.asked_from != Some(self.chain.head.digest) {
            return;
        }
        let walk = chain::walk(&self.chain.head, links);
        let stopped = match by {
            LinkBearer::ControlPlane => walk.stopped,
            // What of a stranger's links leads nowhere is the fleet's own refusal only where a root key signed that it
            // cannot be read here. All else the stranger could have put together.
            LinkBearer::Anybody => walk.stopped.filter(|error| {
                let is_unreadable = matches!(error, ChainError::Malformed { .. });
                is_unreadable && links.get(walk.followed).is_some_and(|link| walk.head.is_signed(link))
            }),
        };
        if by == LinkBearer::Anybody && stopped.is_none() && walk.followed == 0 {
            return;
        }
        let known = std::mem::replace(&mut self.chain.refused, stopped.clone());
        if let Some(error) = stopped.filter(|error| known.as_ref() != Some(error)) {
            let (code, message) = (error.code().to_owned(), error.to_string());
            effects.push(NodeEffect::Warn(format!("a newer trust document is refused: {message}")));
            self.append(FactBody::Refused { code, message }, now, effects);
        }
        if let Some(link) = walk.followed.checked_sub(1).and_then(|last| links.get(last)) {
            let record = TrustRecord { pinned: self.chain.pinned, link: link.clone() };
            self.chain.saving = Some(NextHead { head: walk.head, record: record.clone() });
            effects.push(NodeEffect::SaveTrust(Box::new(record)));
        }
    }

    /// Whoever it is may hand the links on: each is verified by the one before it.
    pub(super) fn on_foreign_server(&mut self, effects: &mut Vec<NodeEffect>) {
        if !self.chain.is_changing() {
            self.chain.asked_from = Some(self.chain.head.digest);
            effects.push(NodeEffect::FetchTrustLinks(self.chain.head.digest));
        }
    }

    /// There may be more links, and the offer waits.
    pub(super) fn on_trust_saved(&mut self, now: Timestamp) {
        if let Some(NextHead { head, record }) = self.chain.saving.take() {
            (self.chain.head, self.chain.record) = (head, Some(record));
            self.refused = None;
            self.hurry(now);
        }
    }

    /// The next answer has the links again.
    pub(super) fn on_trust_not_saved(&mut self, why: &str, effects: &mut Vec<NodeEffect>) {
        self.chain.saving = None;
        effects.push(NodeEffect::Warn(format!("the newer trust document could not be kept: {why}")));
    }

    pub(super) fn on_trust_pinned(&mut self, document: &TrustDocument, now: Timestamp) {
        self.chain = HeldChain::restored(document, None);
        self.refused = None;
        self.hurry(now);
    }
}
