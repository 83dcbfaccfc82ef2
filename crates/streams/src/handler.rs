//! [`LinkHandler`]: what lies behind a link at one end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::ObjectKey;
use sync::admission::Permits;
use sync::link::{ApplyBatch, ItemOutcome, Link, NotDurable, Note};
use sync::replica::Replica;
use sync::{Feed, Frame, LoadedChange};

/// Contents cannot be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("contents of objects cannot be read now")]
pub struct LoadError;

/// The sets of a node and what happens with what comes. One link at a time has it.
#[async_trait]
pub trait LinkHandler: Send + Sync + 'static {
    /// Works on both sets, alone.
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T
    where
        Self: Sized;

    /// Objects of the own feed as they are now, each wanted at a change or newer, in their order; `None` where there
    /// is none.
    ///
    /// # Errors
    /// When they cannot be read now; the link ends, and the next one begins before them.
    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<LoadedChange>>, LoadError>;

    /// Applies a batch and makes it durable ([`ApplyBatch::write`]); one outcome for each item.
    ///
    /// # Errors
    /// Nothing of it is durable.
    async fn apply(&self, batch: Arc<ApplyBatch>) -> Result<Vec<ItemOutcome>, NotDurable>;

    /// Where the permits for resyncs come from; `None`: none is needed, as at the node, which has one link.
    fn permits(&self) -> Option<&dyn Permits> {
        None
    }

    /// Takes a frame that is not the link's own; what is returned is said back. Two at most
    /// are worked on at once; while there are two nothing is read: whoever says more than it may is
    /// held back by waiting here.
    async fn received(&self, frame: Frame) -> Option<Frame>;

    /// Something to count or to show.
    fn note(&self, note: &Note);

    /// The link went on: where it stands, for status and metrics.
    fn progress(&self, link: &Link);

    /// Begins the own feed in a new incarnation, durably: a lot of work on the other side's word alone.
    ///
    /// # Errors
    /// How long the other side is to stay away, when the last time was not long ago.
    async fn reincarnate(&self) -> Result<(), Duration>;
}
