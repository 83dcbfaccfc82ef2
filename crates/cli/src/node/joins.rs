//! `muster node list --pending`, `approve` and `deny`: hosts that ask to join (ENR-9), and copies of nodes (IDN-10).

use model::JoinState;
use server::api;
use server::api::joins::{APPROVE_JOIN, DENY_JOIN, FORGET_JOIN, JOINS, JoinName, JoinView, RESOLVE_COPY};
use server::api::operation::Empty;

use crate::clock::{ago, now};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::{Mark, Screen};
use crate::table::table;

/// What is listed of a host that asks to join.
const COLUMNS: [&str; 7] = ["HOST", "STATE", "KEY", "FROM", "SINCE", "ASKED", "DECIDED"];

/// Lists the hosts that ask to join.
///
/// # Errors
/// When the control plane cannot be asked.
pub(super) async fn list(operator: &Operator, screen: Screen) -> Result<Exit, Failure> {
    let joins = operator.call(&JOINS, Empty {}).await?.joins;
    let text = || match joins.is_empty() {
        true => "no host asks to join\n".to_owned(),
        false => table(&COLUMNS, joins.iter().map(|join| row(join, screen))),
    };
    Ok(screen.result(&joins, text)?)
}

fn row(join: &JoinView, screen: Screen) -> [String; COLUMNS.len()] {
    let (mark, word) = match join.state {
        JoinState::Waiting => (Mark::Warn, "waits"),
        JoinState::Approved => (Mark::Good, "approved"),
        JoinState::Denied => (Mark::Dim, "denied"),
    };
    let group = if join.group { " (group token)" } else { "" };
    [
        format!("{}{group}", join.hostname),
        screen.mark(mark, word),
        join.fingerprint.clone(),
        join.address.clone(),
        format!("{} ago", ago(join.since, now())),
        format!("{} ago", ago(join.heard, now())),
        join.decided.as_ref().map(|decided| format!("by {}", decided.by)).unwrap_or_default(),
    ]
}

/// What is decided of a host that asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinChoice {
    /// It is let in.
    Approve,
    /// Its key is refused.
    Deny,
    /// Its key may ask anew.
    Forget,
}

/// Decides of a host that asks to join; the key that was shown when it was asked is the one that is meant.
///
/// # Errors
/// When none or several keys are meant, or the control plane refuses.
pub(super) async fn decide(
    operator: &Operator,
    name: &str,
    choice: JoinChoice,
    yes: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    let named = JoinName { join: name.to_owned(), fingerprint: None };
    let joins = operator.call(&JOINS, Empty {}).await?.joins;
    let means = |join: &&JoinView| {
        [join.hostname.as_str(), join.id.as_str(), join.fingerprint.as_str()].contains(&name)
    };
    let open: Vec<&JoinView> =
        joins.iter().filter(means).filter(|join| join.state != JoinState::Denied).collect();
    let meant = match open.as_slice() {
        [one] => Some(*one),
        [] => joins.iter().find(means),
        // The control plane's refusal names each.
        _ => None,
    };
    let asked = match meant {
        Some(join) => {
            let JoinView { hostname, fingerprint, address, .. } = join;
            let will = match choice {
                JoinChoice::Approve => {
                    "will join the fleet; compare the key with `muster-agent fingerprint` on it"
                }
                JoinChoice::Deny => "will be refused until it is forgotten",
                JoinChoice::Forget => "will be forgotten, and may ask anew",
            };
            screen.confirm(&format!("{hostname} from {address} with key {fingerprint} {will}"), yes)?;
            shown_one(join)
        }
        None => named,
    };
    let operation = match choice {
        JoinChoice::Approve => &APPROVE_JOIN,
        JoinChoice::Deny => &DENY_JOIN,
        JoinChoice::Forget => &FORGET_JOIN,
    };
    let decided = operator.call(operation, asked).await?;
    let text = || {
        let (hostname, key) = (&decided.hostname, &decided.fingerprint);
        match choice {
            JoinChoice::Approve => {
                format!("{hostname} is approved with key {key}; it joins when it asks again\n")
            }
            JoinChoice::Deny => format!("{hostname} is denied with key {key}\n"),
            JoinChoice::Forget => format!("key {key} of {hostname} is forgotten\n"),
        }
    };
    Ok(screen.result(&decided, text)?)
}

/// The join that was shown: this key under this hostname. A key that asks for another one meanwhile is not meant.
fn shown_one(join: &JoinView) -> JoinName {
    JoinName { join: join.hostname.to_string(), fingerprint: Some(join.fingerprint.clone()) }
}

/// Says that one host alone holds a node's key from now on.
///
/// # Errors
/// When there is no such node, or the control plane refuses.
pub(super) async fn resolve_copy(
    operator: &Operator,
    name: &str,
    yes: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    let node = operator.call(&api::NODE, name).await?;
    let hostname = &node.hostname;
    screen.confirm(
        &format!("{hostname} will get releases, actions and objects again; its copy must not run"),
        yes,
    )?;
    let node = operator.call(&RESOLVE_COPY, node.id.as_str()).await?;
    let text = || format!("{} is one host again; should its copy speak, it is noticed anew\n", node.hostname);
    Ok(screen.result(&node, text)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// ENR-9: an approval is of a key under a name; a host that renames itself while an operator looks is not approved.
    #[test]
    fn what_is_decided_is_the_key_under_the_name_that_was_shown() {
        let shown = JoinView {
            id: trust::SigningKey::from_seed(&[1; 32]).public().node_id(),
            hostname: "web-7".parse().unwrap(),
            fingerprint: "SHA256:a".to_owned(),
            address: "192.0.2.7".to_owned(),
            since: model::Timestamp(0),
            heard: model::Timestamp(0),
            state: JoinState::Waiting,
            decided: None,
            group: false,
        };
        let named = shown_one(&shown);
        assert_eq!((named.join.as_str(), named.fingerprint.as_deref()), ("web-7", Some("SHA256:a")));
    }
}
