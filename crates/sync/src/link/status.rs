//! How both sets of a link stand, as [`model::condition`] has it for everybody.
//!
//! ```text
//! own feed --> replica there     feed_condition():    compared there, acknowledged, and nothing rejected
//! feed there --> own replica     replica_condition(): compared, or all received that is known of
//! ```
//!
//! Invariants: a set is in sync here only when nothing of it is under way, rejected or kept back;
//! the own set only if the other side compared it on this link. When, and with which instance, is the
//! evidence that the shell adds after [`super::Note::InSync`].

use model::condition::{Difference, Evidence, Rejection, SetCondition, SyncCause};

use super::Link;
use super::outbox::Flow;
use crate::feed::Feed;
use crate::mode::Role;
use crate::replica::Replica;

impl Link {
    /// How both sets stand; `compared` is the last comparison on this link.
    pub fn cause(&self, feed: &Feed, replica: &Replica, compared: Option<Evidence>) -> SyncCause {
        let (of_feed, of_replica) = (self.feed_condition(feed), self.replica_condition(replica));
        match self.config.role {
            Role::Principal => SyncCause::of_link(of_feed, of_replica, compared),
            Role::Agent => SyncCause::of_link(of_replica, of_feed, compared),
        }
    }

    /// Nothing moves before somebody changes something: both sets are in sync, or differ and stay so.
    pub fn is_settled(&self, feed: &Feed, replica: &Replica) -> bool {
        let (of_feed, of_replica) = (self.feed_condition(feed), self.replica_condition(replica));
        let differs = |set: &SetCondition| matches!(set, SetCondition::OutOfSync(_));
        let settled = differs(&of_feed)
            || differs(&of_replica)
            || (&of_feed, &of_replica) == (&SetCondition::InSync, &SetCondition::InSync);
        settled && self.in_flight() == 0 && self.under_way() == 0
    }

    /// How the own set and the other side's replica of it stand.
    pub fn feed_condition(&self, feed: &Feed) -> SetCondition {
        match self.out.flow {
            Flow::Unknown => SetCondition::Connecting,
            Flow::Stuck => SetCondition::Comparing,
            Flow::Open if self.server.is_serving() => SetCondition::Comparing,
            Flow::Open => {
                if let Some(objects) = self.out.refused_there.filter(|objects| *objects > 0) {
                    return SetCondition::OutOfSync(Difference::HeldOtherwise { objects });
                }
                let from = self.out.acked.as_ref().filter(|cursor| cursor.incarnation == *feed.incarnation());
                // Counting the objects in between would cost what is behind.
                match feed.head().saturating_sub(from.map_or(0, |cursor| cursor.revision)) {
                    0 if self.out.is_fully_acknowledged(feed) && self.out.compared => SetCondition::InSync,
                    0 if self.out.is_fully_acknowledged(feed) => SetCondition::Comparing,
                    behind => SetCondition::Behind(behind.max(1)),
                }
            }
        }
    }

    /// How the other side's set and the own replica of it stand.
    pub fn replica_condition(&self, replica: &Replica) -> SetCondition {
        if !self.has_met() {
            return SetCondition::Connecting;
        }
        if let Some(difference) = self.difference(replica) {
            return SetCondition::OutOfSync(difference);
        }
        if self.resync.is_busy() || (self.resync.is_wanted() && !self.resync.has_failed()) {
            return SetCondition::Comparing;
        }
        if self.resync.has_failed() && !self.inbox.verified {
            return SetCondition::OutOfSync(Difference::ResyncWithoutEffect);
        }
        match self.inbox.under_way() {
            0 if self.inbox.verified => SetCondition::InSync,
            0 => self.by_numbers(replica),
            waiting => SetCondition::Behind(waiting as u64),
        }
    }

    /// What the own replica has otherwise than the other side, as far as the reason is known.
    fn difference(&self, replica: &Replica) -> Option<Difference> {
        if let Some((kept, all)) = self.resync.kept {
            return Some(Difference::DeletionsUnconfirmed { kept: kept as u64, of: all as u64 });
        }
        if let Some((key, rejected)) = replica.rejected().first_key_value() {
            return Some(Difference::Rejected {
                object: key.clone(),
                rejection: Rejection::new(&rejected.code, &rejected.message),
                others: replica.refused().saturating_sub(1),
            });
        }
        let evicted = replica.evicted();
        (evicted > 0).then_some(Difference::NoRoom { objects: evicted })
    }

    /// The replica against what the other side last said of its feed's end.
    fn by_numbers(&self, replica: &Replica) -> SetCondition {
        let incarnation = self.peer_incarnation.as_ref();
        let at = match replica.cursor() {
            Some(cursor) if Some(&cursor.incarnation) == incarnation => cursor.revision,
            Some(_) => return SetCondition::Behind(1),
            None if replica.is_empty() => 0,
            None => return SetCondition::Behind(1),
        };
        match self.peer_head.saturating_sub(at) {
            0 => SetCondition::InSync,
            behind => SetCondition::Behind(behind),
        }
    }
}
