//! ROL-4: going back is a new release of what an earlier one held, shown and asked for first; its number is above
//! all before, and nodes take it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::{OneHostFleet, Server, text};

#[test]
fn what_an_earlier_release_held_is_published_again() {
    let fleet = OneHostFleet::start();
    fleet.greets("one");
    fleet.greets("two");
    let OneHostFleet { server, host, repo, .. } = &fleet;
    let seq = |server: &Server| server.json(&["status"])["seq"].clone();

    let shown = server.muster(&["release", "rollback", "1", "--dry-run"]);
    let said = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(2), "{said}{}", text(&shown.stderr));
    assert!(said.contains("r2 -> what r1 held   1 nodes: 0 same, 1 change"), "{said}");
    assert!(said.contains("-two web-1") && said.contains("+one web-1"), "{said}");
    let unasked = server.muster(&["release", "rollback", "1"]);
    assert_eq!(unasked.status.code(), Some(5), "{}", text(&unasked.stderr));
    assert!(text(&unasked.stdout).contains("+one web-1"), "what would change comes first");
    let unknown = server.muster(&["release", "rollback", "7", "--yes"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("release 7 is not kept"), "{}", text(&unknown.stderr));
    assert_eq!(seq(server), 2, "nothing was published");

    let done = server.json(&["release", "rollback", "1", "--yes"]);
    assert_eq!(
        (&done["seq"], &done["contentOf"], &done["changes"]["change"]),
        (&3.into(), &1.into(), &1.into())
    );
    host.until_read("/etc/hello", "one web-1\n");
    server.until_state("web-1", "converged");
    let kept = server.json(&["release", "show", "3"]);
    assert_eq!(kept["ref"], "rollback-1", "{kept}");
    let again = server.json(&["release", "rollback", "1", "--yes"]);
    assert_eq!((&again["seq"], &again["unchanged"]), (&3.into(), &true.into()));
    // The fleet repo is published over it as over any other release.
    server.publish(repo);
    host.until_read("/etc/hello", "two web-1\n");
    assert_eq!(seq(server), 4);
}
