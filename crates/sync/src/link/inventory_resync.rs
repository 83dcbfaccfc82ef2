//! The requests of the resync that the source document describes, for peers without the trie resync
//! (SYN-6).
//!
//! ```text
//! Listing --pong--> Fetching* --> orphans taken, Done
//!  what is there     every object that is here, or was listed
//!  (each part: requests, a ping as barrier, answers, its pong)
//! ```
//!
//! The stages, and what is fetched when, are those of [`super::resync`]; here are the frames. The
//! inventory's checksum is answered by a list of names when it differs; then `request-update` asks for
//! every object with the checksum of what is here, so that names alone are not trusted. A ping after each
//! part is a barrier: its pong says that all answers to the part were sent. Parts are numbered, so that
//! a part that is asked for again on the next link counts as answered once.

use model::{Digest, Kind, ObjectKey, SectionKey};

use super::resync::Phase;
use super::{Cx, Link};
use crate::frame::{Frame, Interop, InventoryItem, Ping, PingOrder, Pong};
use crate::interop;

/// A resource's name as the source document has it.
pub(super) fn resource(key: &ObjectKey, uid: &str, checksum: Option<Digest>) -> InventoryItem {
    InventoryItem {
        name: key.name.to_string(),
        namespace: key.section.namespace.to_string(),
        uid: uid.to_owned(),
        kind: key.section.kind.to_string(),
        checksum,
    }
}

/// The key of a resource.
pub(super) fn key_of(resource: &InventoryItem) -> ObjectKey {
    let section =
        SectionKey { kind: Kind::new(&resource.kind), namespace: resource.namespace.as_str().into() };
    ObjectKey { section, name: resource.name.as_str().into() }
}

impl Link {
    /// Asks for the names of what is there.
    pub(super) fn request_list(&mut self, cx: &mut Cx<'_>) {
        let here = cx.replica.objects().map(|(key, stub)| (key, &*stub.uid));
        let checksum = interop::inventory_checksum(here);
        self.request_part(vec![Interop::RequestList { checksum }], cx);
    }

    /// Asks for objects, each if it differs.
    pub(super) fn request_updates(&mut self, keys: &[ObjectKey], cx: &mut Cx<'_>) {
        let update = |key: &ObjectKey| {
            let here = cx.replica.received(key);
            let uid = here.map_or("", |stub| &*stub.uid);
            Interop::RequestUpdate(resource(key, uid, here.map(|stub| stub.digest)))
        };
        let requests = keys.iter().map(update).collect();
        self.request_part(requests, cx);
    }

    /// Sends requests, and asks for a sign that all of them were answered.
    fn request_part(&mut self, requests: Vec<Interop>, cx: &mut Cx<'_>) {
        self.resync.asked_at = Some(cx.now);
        self.resync.frames += requests.len() as u64 + 1;
        self.counters.resync_frames += requests.len() as u64;
        for request in requests {
            cx.send(Frame::Interop(Box::new(request)));
        }
        let (number, head) = (self.resync.parts + 1, cx.feed.head());
        cx.send(Frame::Ping(Ping { number, head, order: PingOrder::Barrier }));
    }

    /// The source has one like this.
    pub(super) fn listed(&mut self, resource: &InventoryItem, cx: &mut Cx<'_>) {
        let Some(Phase::Listing(names)) = self.resync.phase() else { return };
        names.insert(key_of(resource));
        if names.len() > cx.replica.len() + self.config.limits.replica.objects {
            return self.too_many(cx);
        }
        self.resync.is_answered(cx.now);
    }

    /// All answers to a part were sent.
    pub(super) fn ponged(&mut self, pong: Pong) {
        if pong.number == self.resync.parts + 1 && self.resync.asked_at.is_some() {
            self.resync.parts += 1;
            self.all_answered();
        }
    }
}
