//! LIF-1, SYN-10: tasks, status and synchronization go by one rule: three contacts that were promised and missed are
//! `unreachable`, ten `offline`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, heads, holding, node};
use model::Timestamp;
use model::status::{Contact, contact_of};
use plane::node::DEFAULT_CONTACT_SECS;
use plane::work::Reach;
use plane::{Heads, NodeState};

/// What a node without a channel is promised, in seconds.
const PROMISED: u64 = plane::node::UNASSIGNED_CONTACT_SECS;
/// By how much a contact may be late, for that and for one of an hour, in seconds.
const SLACK: u64 = 10;
const LONGEST_SLACK: u64 = model::time::SLACK.as_secs();

#[test]
fn missed_contacts_mean_the_same_for_tasks_and_status() {
    let heads = heads(1, vec![]);
    let mut node = node("web-1");
    node.check_in(holding(None), &heads, CREATED);
    missed_since(CREATED, PROMISED, &mut node, &heads);
}

/// One that enrolled and never called is silent since it enrolled: it is not taken for a node that is reached.
#[test]
fn who_never_called_is_silent_since_it_enrolled() {
    missed_since(CREATED, DEFAULT_CONTACT_SECS, &mut node("web-1"), &heads(1, vec![]));
}

fn missed_since(heard: Timestamp, promised: u64, node: &mut NodeState, heads: &Heads) {
    let slack = promised.clamp(SLACK, LONGEST_SLACK);
    let (three, ten) = (3 * promised + slack, 10 * promised + slack);
    for (secs, contact, reach) in [
        (0, Contact::Online, Reach::Promotable { within_secs: promised }),
        (2, Contact::Online, Reach::Promotable { within_secs: promised - 2 }),
        (three - 1, Contact::Online, Reach::Promotable { within_secs: 0 }),
        (three, Contact::Unreachable, Reach::Unreachable),
        (ten - 1, Contact::Unreachable, Reach::Unreachable),
        (ten, Contact::Offline, Reach::Offline),
    ] {
        let now = heard.plus(Duration::from_secs(secs));
        assert_eq!(node.status(heads, now).contact, contact, "{secs}");
        assert_eq!(Reach::by_contact(node.silent_since(), node.promised, now), reach, "{secs}");
    }
}

/// A short contact is not one that may be late for many others: the slack is another contact, at least ten seconds and
/// at most a minute.
#[test]
fn the_slack_goes_by_the_contact() {
    for (promised, slack) in
        [(1, SLACK), (3, SLACK), (10, 10), (30, 30), (60, LONGEST_SLACK), (3600, LONGEST_SLACK)]
    {
        let at = |secs| {
            let now = CREATED.plus(Duration::from_secs(secs));
            contact_of(CREATED, Duration::from_secs(promised), now)
        };
        let (three, ten) = (3 * promised + slack, 10 * promised + slack);
        let seen = [at(three - 1), at(three), at(ten - 1), at(ten)];
        let want = [Contact::Online, Contact::Unreachable, Contact::Unreachable, Contact::Offline];
        assert_eq!(seen, want, "{promised}");
    }
}
