//! A node's end of a link: opened over gRPC as an agent opens it, and running.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::replication::Mode;
use model::{Incarnation, Kind};
use net::ServerUrl;
use net::Signal;
use net::client::Client;
use streams::open::StreamDialer;
use streams::task::{Ended, LinkHandle, commands, link_time, run_link};
use streams::{LinkCommand, LinkHandler, TransportError};
use sync::Role;
use sync::backoff::{LinkEnd, ReconnectPolicy};
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

/// Waits as an agent does whose stream was refused with a time to come back; any other error is one.
async fn come_back(reconnect: &mut ReconnectPolicy, error: BenchError) -> Result<(), BenchError> {
    let again = retry_after(&*error).ok_or(error)?;
    let now = link_time();
    reconnect.ended(now, LinkEnd::Refused, Some(again));
    tokio::time::sleep(reconnect.not_before().since(now)).await;
    Ok(())
}

/// How long the control plane said to stay away.
pub(super) fn retry_after(error: &(dyn std::error::Error + 'static)) -> Option<Duration> {
    match error.downcast_ref::<TransportError>() {
        Some(TransportError::Problem(problem)) => problem.retry_after_secs.map(Duration::from_secs),
        _ => None,
    }
}

/// Opens a link as an agent does: the control plane admits so many a second, and who is refused comes back. Gives
/// how often it was refused. Waits are spread by the seed.
async fn admitted(
    node: &BenchNode,
    url: &ServerUrl,
    mode: Mode,
    handler: &Arc<MemoryLinkHandler>,
    seed: u64,
) -> Result<(Linked, usize), BenchError> {
    let (mut reconnect, mut refused) = (ReconnectPolicy::new(seed), 0);
    loop {
        match link(node, url, mode, handler, handler.head()).await {
            Ok(opened) => return Ok((opened, refused)),
            Err(error) => come_back(&mut reconnect, error).await?,
        }
        refused += 1;
    }
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
            let (opened, _) = admitted(&node, &url, mode, &handler, number as u64).await?;
            Ok::<_, BenchError>((opened, handler))
        });
        peers.extend(wait_for(&mut tasks, DIALS - 1).await?);
    }
    peers.extend(wait_for(&mut tasks, 0).await?);
    Ok(peers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::{checkin, fleet};

    /// As many links of one node as the control plane lets it open at once after a rest.
    const AT_ONCE: usize = 30;

    /// SYN-13: a control plane that says `busy` is opened a link to again, after the time that it named.
    #[tokio::test]
    async fn a_node_that_is_told_busy_comes_back() {
        let stage = Stage::fill(1, &[Mode::Managed]).await.unwrap();
        let server = fleet::served(stage.path()).await.unwrap();
        let url = checkin::url_of(stage.path()).unwrap();
        let handler = Arc::new(MemoryLinkHandler::new(incarnation(0).unwrap()));
        let mut refused = 0;
        for _ in 0..2 * AT_ONCE {
            let (linked, times) = admitted(&stage.nodes[0], &url, Mode::Managed, &handler, 0).await.unwrap();
            linked.stop().await.unwrap();
            refused = times;
            if refused > 0 {
                break;
            }
        }
        assert!(refused > 0, "the control plane refused none of {} links", 2 * AT_ONCE);
        server.stop().await;
    }
}
