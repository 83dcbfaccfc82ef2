//! SCL-3: a control plane that is told to stop does so at once, also while a node's connection
//! is open, while every place is taken, and with what was acknowledged on disk.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use test_support::fleet::Fleet;
use test_support::wait::eventually;

/// Less than the bound within which connections may end by themselves.
const PROMPT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_stop_does_not_wait_for_idle_connections() {
    let mut fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let idle = node.dial().await;
    let begun = Instant::now();
    fleet.stop().await;
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    eventually("the connection is over", || idle.is_closed()).await;
    fleet.start_again().await;
    assert_eq!(fleet.operator().await.status().await.nodes, 1);
}

#[tokio::test]
async fn a_stop_is_heard_while_every_place_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let config = server::Config { connections: 1, ..test_support::fleet::config(dir.path(), 0, 0) };
    let running = server::start(config).await.unwrap();
    // A connection that says nothing takes the one place there is.
    let taken = tokio::net::TcpStream::connect(running.node_urls[0].authority()).await.unwrap();
    let waiting = tokio::net::TcpStream::connect(running.node_urls[0].authority()).await.unwrap();
    let begun = Instant::now();
    let stopped = tokio::time::timeout(Duration::from_secs(20), running.stop()).await;
    assert!(stopped.is_ok(), "it never stopped");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    drop((taken, waiting));
}
