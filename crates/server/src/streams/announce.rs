//! Notifies open links that what their nodes are pointed to has changed, or that an operator
//! requested a run; so a node on a link checks in at once. Links that go on by an older release's rules
//! are ended after a while. Spread, so that a publish is no storm.

use std::sync::Arc;
use std::time::Duration;

use net::accept::stopped;
use streams::LinkCommand;
use sync::Frame;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::hub::NodeLink;
use crate::objects;
use crate::state::ControlPlane;

/// Links notified in one go.
const AT_ONCE: usize = 100;
/// The pause between two goes: 1,000 links a second.
const PAUSE: Duration = Duration::from_millis(100);

/// How long links go on by the rules of a release that their nodes are no longer pointed to:
/// most nodes have adopted the new one by then, and have begun links of their own.
const RULES_WITHIN: Duration = Duration::from_secs(10);

/// What is done with links.
#[derive(Clone, Copy)]
enum Visit {
    Notify,
    EnforceRules,
}

/// Runs until the control plane stops.
pub(crate) async fn announce(plane: Arc<ControlPlane>, mut shutdown: watch::Receiver<bool>) {
    let mut heads = plane.heads.subscribe();
    let mut rules_due: Option<Instant> = None;
    loop {
        let requested = plane.run_requested.notified();
        let visit = tokio::select! {
            changed = heads.changed() => match changed {
                Ok(()) => {
                    rules_due.get_or_insert_with(|| Instant::now() + RULES_WITHIN);
                    Visit::Notify
                }
                Err(_) => return,
            },
            () = requested => Visit::Notify,
            () = tokio::time::sleep_until(rules_due.unwrap_or_else(Instant::now)), if rules_due.is_some() => {
                rules_due = None;
                Visit::EnforceRules
            }
            () = stopped(&mut shutdown) => return,
        };
        let mut visited = 0;
        for link in plane.hub.sync_index().links() {
            let done = match visit {
                Visit::Notify => notify(&plane, &link),
                Visit::EnforceRules => enforce_rules(&plane, &link).await,
            };
            visited += usize::from(done);
            if done && visited % AT_ONCE == 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Ends the link when its rules are not those of the release that its node is pointed to.
async fn enforce_rules(plane: &ControlPlane, link: &NodeLink) -> bool {
    let (Some(slot), Some(rules)) = (plane.index.get(&link.node), link.rules.get()) else { return false };
    match objects::policy(plane, &slot).await {
        Ok(now) if now.is_same_for_links(rules) => false,
        Ok(_) => {
            link.end("rules", "the node's release says otherwise of synchronization by now");
            true
        }
        Err(error) => {
            tracing::warn!(node = %link.node, %error, "what the release grants cannot be read");
            false
        }
    }
}

/// Has the node check in when it is pointed to something else than it holds, or is to run.
fn notify(plane: &ControlPlane, link: &NodeLink) -> bool {
    let Some(slot) = plane.index.get(&link.node) else { return false };
    let heads = plane.heads();
    let mut entry = slot.lock();
    let pointed = entry.node.pointed(&heads).map(|(head, entry)| (head.header.seq, entry.root));
    let held = entry.node.held.as_ref().map(|held| (held.seq, held.root));
    let wanted = entry.node.awaits_request() || (pointed.is_some() && pointed != held);
    wanted && link.commands.try_send(LinkCommand::Send(Box::new(Frame::StateUpdated)))
}
