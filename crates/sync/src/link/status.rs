//! Where a link stands, for people. "In sync" is said only of what was compared, or of a
//! replica that reached all that the other side is known to have.

use super::Link;
use super::outbox::Flow;
use super::types::{LinkStatus, Standing};
use crate::feed::Feed;
use crate::replica::Replica;

impl Link {
    /// Where both directions stand. Costs in proportion to what is behind.
    pub fn status(&self, feed: &Feed, replica: &Replica) -> LinkStatus {
        LinkStatus { ours: self.ours(feed), theirs: self.theirs(replica) }
    }

    fn ours(&self, feed: &Feed) -> Standing {
        match self.out.flow {
            Flow::Unknown => Standing::Connecting,
            Flow::Stuck | Flow::TrieResync => Standing::Resyncing,
            Flow::Open if self.out.refused_there > 0 => Standing::Diverged(format!(
                "{} objects are held otherwise there: refused, or kept until an operator confirms their removal",
                self.out.refused_there
            )),
            Flow::Open => {
                let from = self.out.acked.as_ref().filter(|cursor| cursor.incarnation == *feed.incarnation());
                match feed.count_after(from.map_or(0, |cursor| cursor.revision)) {
                    0 if self.out.is_through(feed) => Standing::InSync,
                    behind => Standing::Behind(behind.max(1)),
                }
            }
        }
    }

    fn theirs(&self, replica: &Replica) -> Standing {
        if self.peer.is_none() {
            return Standing::Connecting;
        }
        if let Some((kept, all)) = self.resync.kept {
            return Standing::Diverged(format!(
                "{kept} of {all} objects are gone at the source; an operator must confirm their removal"
            ));
        }
        if let Some((key, rejected)) = replica.rejected().first_key_value() {
            return Standing::Diverged(format!("{key}: {} ({})", rejected.message, rejected.code));
        }
        if replica.evicted() > 0 {
            return Standing::Diverged(format!("{} objects could not be taken", replica.evicted()));
        }
        if self.resync.is_busy() || (self.resync.is_wanted() && !self.resync.has_failed()) {
            return Standing::Resyncing;
        }
        if self.resync.has_failed() && !self.inbox.verified {
            return Standing::Diverged("resyncs do not make the sets equal".to_owned());
        }
        match self.inbox.under_way() {
            0 if self.inbox.verified => Standing::InSync,
            0 => self.by_numbers(replica),
            waiting => Standing::Behind(waiting),
        }
    }

    /// The replica against what the other side last said of its feed's end.
    fn by_numbers(&self, replica: &Replica) -> Standing {
        let incarnation = self.peer_incarnation();
        let at = match replica.cursor() {
            Some(cursor) if Some(&cursor.incarnation) == incarnation => cursor.revision,
            Some(_) => return Standing::Behind(1),
            None if replica.is_empty() => 0,
            None => return Standing::Behind(1),
        };
        match usize::try_from(self.peer_head.saturating_sub(at)) {
            Ok(0) => Standing::InSync,
            Ok(behind) => Standing::Behind(behind),
            Err(_) => Standing::Behind(usize::MAX),
        }
    }
}
