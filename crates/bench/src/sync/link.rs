//! A node's end of a link: opened over gRPC as an agent opens it, and running.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::replication::Mode;
use model::{Incarnation, Kind};
use net::ServerUrl;
use net::client::Client;
use streams::open::StreamDialer;
use streams::task::{Ended, LinkHandle, orders, run_link};
use streams::{LinkCommand, LinkHandler};
use sync::Role;
use sync::link::LinkConfig;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::BenchError;
use crate::fleet::{BenchNode, ITEM};

/// How many links were opened: each has a name of its own.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// A link under way.
pub(super) struct Linked {
    pub(super) orders: LinkHandle,
    pub(super) ended: JoinHandle<Ended>,
    /// The connection that carries it.
    pub(super) client: Client,
}

impl Linked {
    /// Ends it in order.
    pub(super) async fn stop(self) -> Result<Ended, BenchError> {
        // One that ended by itself takes no orders.
        let _ = self.orders.tell_in_turn(LinkCommand::Shutdown).await;
        Ok(self.ended.await?)
    }

    /// Bytes that went over the connection, both ways, TLS included.
    pub(super) fn bytes(&self) -> u64 {
        let traffic = &self.client.traffic;
        traffic.up.load(Ordering::Relaxed) + traffic.down.load(Ordering::Relaxed)
    }
}

/// A incarnation of a feed, by number.
pub(super) fn incarnation(number: usize) -> Result<Incarnation, BenchError> {
    Ok(format!("n{number}").parse()?)
}

/// Dials, opens a link and drives it.
pub(super) async fn link<S: LinkHandler>(
    node: &BenchNode,
    url: &ServerUrl,
    mode: Mode,
    handler: &Arc<S>,
    feed: watch::Receiver<u64>,
) -> Result<Linked, BenchError> {
    let mut client = Client::dial(url, node.tls.clone()).await?;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("bench-{}", LINKS.fetch_add(1, Ordering::Relaxed));
    let dialer = StreamDialer { hostname: &node.hostname, version, link: &name };
    let ends = dialer.grpc(&mut client).await?;
    let config = LinkConfig::new(Role::Agent, mode, "bench", vec![Kind::new(ITEM)]);
    let (orders, taken) = orders();
    let ended = tokio::spawn(run_link(config, handler.clone(), ends, Vec::new(), feed, taken));
    Ok(Linked { orders, ended, client })
}
