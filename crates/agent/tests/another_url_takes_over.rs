//! WIR-7: a node that knows several URLs of its control plane goes on over another one when the one that it used answers no
//! more, without a restart and without a word of anybody.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agent::state::StateDir;
use model::replication::{Mode, TransportPolicy};
use net::ServerUrl;
use test_support::agent_local::printed;
use test_support::agent_pair::{NODE, Pair, says};
use test_support::fleet;
use test_support::wait::until;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A way to the control plane that passes bytes on until it is dropped: then it is gone with all its connections.
pub(crate) struct Way {
    pub(crate) url: ServerUrl,
    /// Where it leads to; nowhere while there is none.
    there: watch::Sender<Option<String>>,
    /// Says how many connections there were.
    used: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Way {
    pub(crate) async fn to(there: &ServerUrl) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (count, used) = watch::channel(0);
        let (there, leads) = watch::channel(Some(there.authority()));
        let task = tokio::spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                count.send_modify(|used| *used += 1);
                let Some(there) = leads.borrow().clone() else { continue };
                passing.spawn(async move {
                    let mut far = TcpStream::connect(there).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
        Way { url, there, used, task }
    }

    /// New connections lead there from now on.
    pub(crate) fn lead(&self, there: Option<&ServerUrl>) {
        self.there.send_replace(there.map(ServerUrl::authority));
    }

    fn used(&self) -> usize {
        *self.used.borrow()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_one_that_was_used_answers_no_more() {
    let mut pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Poll)).await;
    let (first, second) = (Way::to(&pair.fleet.url()).await, Way::to(&pair.fleet.url()).await);
    let state = StateDir::create(&pair.state()).unwrap();
    let mut member = state.membership().unwrap().unwrap();
    member.servers = vec![first.url.clone(), second.url.clone()];
    state.save_membership(&member).unwrap();
    drop(state);
    let _daemon = pair.daemon();
    until("it calls over the first", async || pair.operator.node(NODE).await.held).await;
    assert!(first.used() > 0);
    assert_eq!(second.used(), 0, "in order of preference");
    drop(first);
    let since = fleet::now();
    until("it calls over the second", async || {
        let heard = pair.operator.node(NODE).await.last_seen? > since;
        (heard && second.used() > 0).then_some(())
    })
    .await;
    // What was published meanwhile comes too, and people see which way it goes.
    pair.publish(&says(Mode::Off, None, TransportPolicy::Poll)).await;
    until("the next release", async || {
        pair.operator.node(NODE).await.held.filter(|held| held.seq == 2).map(drop)
    })
    .await;
    let (code, text) = printed(&pair.agent(&["status"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&second.url.authority()), "{text}");
}
