//! [`Recipients`]: the keys that a fleet's secrets are sealed for, and where each comes from (SEC-1).
//!
//! ```text
//! recipients.yaml                             the fleet repo's word, before any other
//! nodes.yaml: key of a node --verifies--> what the node signed, relayed by the control plane
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{FleetId, Hostname};
use resolve::Fleet;
use resolve::secrets::{AwaitedStatements, SecretNeeds, StatedRecipients};
use server::api;
use server::api::operation::Empty;
use server::api::sealing::{MAX_SEALING_KEYS, SEALING_KEYS, SealingKeysOf};
use trust::RecipientKey;
use wire::Code;

use crate::connect::Connect;
use crate::failure::Failure;
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{aside, plural};

/// Who is a recipient by what it signed itself, as far as the control plane was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Recipients {
    stated: StatedRecipients,
    /// Nodes whose statements count, and which the control plane could not be asked for.
    unasked: BTreeSet<Hostname>,
}

/// The control plane that relays what nodes say.
#[derive(Clone, Copy)]
pub struct StatementRelay<'c> {
    /// Where it is asked.
    pub operator: &'c Operator,
    /// Its fleet.
    pub fleet: &'c FleetId,
}

/// How a node stands with what is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecipientStanding {
    /// The fleet repo names its recipient key.
    Named,
    /// The node signed for its recipient key, with the key that the fleet repo declares.
    Stated,
    /// It may have signed for one: the control plane was not asked.
    Unasked,
    /// It has none.
    None,
}

impl Recipients {
    /// Those of a fleet repo. Where statements count, the control plane is asked for them; one that cannot be asked is
    /// told, and is no failure.
    pub(super) async fn of(fleet: &Fleet, needs: &SecretNeeds, connect: &Connect) -> Recipients {
        let awaited = AwaitedStatements::needing(fleet, needs);
        if awaited.is_empty() {
            return Recipients::default();
        }
        match ask(connect, &awaited).await {
            Ok(stated) => {
                tell_refused(&stated);
                Recipients { stated, unasked: BTreeSet::new() }
            }
            Err(failure) => {
                aside(&format!(
                    "note: what {} signed for is not known, as the control plane cannot be asked\n{}",
                    plural(awaited.nodes().count(), "node"),
                    failure.text().trim_end()
                ));
                Recipients { unasked: awaited.nodes().cloned().collect(), ..Recipients::default() }
            }
        }
    }

    /// How a node stands.
    pub(super) fn standing(&self, fleet: &Fleet, node: &str) -> RecipientStanding {
        if fleet.recipients().contains_key(node) {
            RecipientStanding::Named
        } else if self.stated.keys.contains_key(node) {
            RecipientStanding::Stated
        } else if self.unasked.iter().any(|unasked| unasked.as_str() == node) {
            RecipientStanding::Unasked
        } else {
            RecipientStanding::None
        }
    }
}

async fn ask(connect: &Connect, awaited: &AwaitedStatements) -> Result<StatedRecipients, Failure> {
    let operator = connect.dial().await?;
    let head = operator.call(&api::HEAD, Empty {}).await?;
    Ok(stated(StatementRelay { operator: &operator, fleet: &head.trust.fleet }, awaited).await?)
}

/// Asks a control plane for statements, and takes those that count. One of before relays none.
///
/// # Errors
/// When it does not answer.
pub(crate) async fn stated(
    StatementRelay { operator, fleet }: StatementRelay<'_>,
    awaited: &AwaitedStatements,
) -> Result<StatedRecipients, OperatorCallError> {
    let mut all = StatedRecipients::default();
    let nodes: Vec<Hostname> = awaited.nodes().cloned().collect();
    for nodes in nodes.chunks(MAX_SEALING_KEYS) {
        let relayed = match operator.call(&SEALING_KEYS, SealingKeysOf { nodes: nodes.to_vec() }).await {
            Ok(relayed) => relayed,
            Err(error) if error.is(Code::NotFound) => break,
            Err(error) => return Err(error),
        };
        let StatedRecipients { keys, refused } = awaited.take(fleet, &relayed.statements);
        all.keys.extend(keys);
        all.refused.extend(refused);
    }
    Ok(all)
}

/// The recipient keys of a fleet: those that its repo names, and those that nodes signed for.
pub(crate) fn keys_of<'f>(
    fleet: &'f Fleet,
    stated: &StatedRecipients,
) -> Cow<'f, BTreeMap<Arc<str>, RecipientKey>> {
    if stated.keys.is_empty() {
        return Cow::Borrowed(fleet.recipients());
    }
    let mut all = stated.keys.clone();
    all.extend(fleet.recipients().iter().map(|(name, key)| (name.clone(), *key)));
    Cow::Owned(all)
}

/// The most statements that are told of.
const NAMED: usize = 5;

/// Tells of statements that make nobody a recipient.
pub(crate) fn tell_refused(stated: &StatedRecipients) {
    for (node, why) in stated.refused.iter().take(NAMED) {
        aside(&format!(
            "warning: nothing is sealed for the key that {node} is said to have signed for: {why}"
        ));
    }
    let more = stated.refused.len().saturating_sub(NAMED);
    if more > 0 {
        aside(&format!("warning: the same of {} more", plural(more, "node")));
    }
}
