//! Tells open links that what their nodes are pointed to has changed, or that something was
//! pushed; so a node on a link checks in at once. Spread, so that a publish is no storm.

use std::sync::Arc;
use std::time::Duration;

use net::accept::stopped;
use streams::Order;
use sync::Frame;
use tokio::sync::watch;

use crate::state::ControlPlane;

/// Links told in one go.
const AT_ONCE: usize = 100;
/// The pause between two goes: 1,000 links a second.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs until the control plane stops.
pub(crate) async fn announce(plane: Arc<ControlPlane>, mut shutdown: watch::Receiver<bool>) {
    let mut heads = plane.heads.subscribe();
    loop {
        let pushed = plane.pushes.notified();
        tokio::select! {
            changed = heads.changed() => if changed.is_err() { return },
            () = pushed => {}
            () = stopped(&mut shutdown) => return,
        }
        tell(&plane).await;
    }
}

async fn tell(plane: &Arc<ControlPlane>) {
    let mut told = 0;
    for link in plane.hub.lights().links() {
        let Some(slot) = plane.index.get(&link.node) else { continue };
        let heads = plane.heads();
        let wanted = {
            let mut entry = slot.lock();
            let pointed = entry.node.pointed(&heads).map(|(head, entry)| (head.header.seq, entry.root));
            let held = entry.node.held.as_ref().map(|held| (held.seq, held.root));
            entry.node.push.is_some() || (pointed.is_some() && pointed != held)
        };
        if !wanted || !link.tell(Order::Say(Frame::StateUpdated)) {
            continue;
        }
        told += 1;
        if told % AT_ONCE == 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
