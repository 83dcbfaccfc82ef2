//! A node's end of a link: opened over gRPC as an agent opens it, and running.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::replication::Mode;
use model::{Incarnation, Kind};
use net::ServerUrl;
use net::Signal;
use net::client::Client;
use streams::open::StreamDialer;
use streams::task::{Ended, LinkHandle, commands, run_link};
use streams::{LinkCommand, LinkHandler};
use sync::Role;
use sync::link::LinkConfig;
use test_support::memory::MemoryLinkHandler;
use tokio::task::{JoinHandle, JoinSet};

use super::stage::Stage;
use crate::fleet::{BenchNode, ITEM};
use crate::{BenchError, wait_for};

/// Links opened at once.
pub(super) const DIALS: usize = 32;

/// How many links were opened: each has a name of its own.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// A link under way.
pub(super) struct Linked {
    pub(super) commands: LinkHandle,
    pub(super) ended: JoinHandle<Ended>,
    /// The connection that carries it.
    pub(super) client: Client,
}

impl Linked {
    /// Ends it in order.
    pub(super) async fn stop(self) -> Result<Ended, BenchError> {
        // One that ended by itself takes no commands.
        let _ = self.commands.send(LinkCommand::Shutdown).await;
        Ok(self.ended.await?)
    }

    /// Bytes that went over the connection, both ways, TLS included.
    pub(super) fn bytes(&self) -> u64 {
        let traffic = &self.client.traffic;
        traffic.up.load(Ordering::Relaxed) + traffic.down.load(Ordering::Relaxed)
    }
}

/// An incarnation of a feed, by number.
pub(super) fn incarnation(number: usize) -> Result<Incarnation, BenchError> {
    Ok(format!("n{number}").parse()?)
}

/// Dials, opens a link and drives it.
pub(super) async fn link<S: LinkHandler>(
    node: &BenchNode,
    url: &ServerUrl,
    mode: Mode,
    handler: &Arc<S>,
    feed: Arc<Signal>,
) -> Result<Linked, BenchError> {
    let mut client = Client::dial(url, node.tls.clone()).await?;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("bench-{}", LINKS.fetch_add(1, Ordering::Relaxed));
    let dialer = StreamDialer { hostname: &node.hostname, version, link: &name };
    let ends = dialer.grpc(&mut client).await?;
    let config = LinkConfig::new(Role::Agent, mode, "bench", vec![Kind::new(ITEM)]);
    let (commands, taken) = commands();
    let ended = tokio::spawn(run_link(config, handler.clone(), ends, Vec::new(), feed, taken));
    Ok(Linked { commands, ended, client })
}

/// A link, and the sets at its end here.
pub(super) type Peer = (Linked, Arc<MemoryLinkHandler>);

/// Opens links of nodes, by number.
pub(super) async fn peers(
    stage: &Stage,
    url: &ServerUrl,
    nodes: impl IntoIterator<Item = usize>,
) -> Result<Vec<Peer>, BenchError> {
    let (mut peers, mut tasks) = (Vec::new(), JoinSet::new());
    for number in nodes {
        let (node, url, mode) = (stage.nodes[number].clone(), url.clone(), stage.mode(number));
        tasks.spawn(async move {
            let handler = Arc::new(MemoryLinkHandler::new(incarnation(number)?));
            Ok::<_, BenchError>((link(&node, &url, mode, &handler, handler.head()).await?, handler))
        });
        peers.extend(wait_for(&mut tasks, DIALS - 1).await?);
    }
    peers.extend(wait_for(&mut tasks, 0).await?);
    Ok(peers)
}
