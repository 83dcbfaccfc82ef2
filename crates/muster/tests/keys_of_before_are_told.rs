//! ROL-4, IDN-8, SCL-4: what an earlier key signed can be gone back to, unless its signatures of then are rejected; and a
//! restore over newer keys and trust documents says so, as does the control plane that runs on what is older.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::one_host::{OneHostFleet, publish};
use test_support::programs::{text, write_repo};
use test_support::wait::until_blocking as until;

#[test]
fn a_release_of_a_retired_key_is_gone_back_to() {
    let fleet = OneHostFleet::start();
    let OneHostFleet { server, host, repo, .. } = &fleet;
    fleet.greets("one");
    server.ok(&["key", "rotate", "release"]);
    fleet.greets("two");
    server.ok(&["key", "retire", "release"]);
    let shown = server.muster(&["release", "rollback", "1", "--dry-run"]);
    assert_eq!(shown.status.code(), Some(2), "{}", text(&shown.stderr));
    let said = text(&shown.stderr);
    assert!(
        said.contains("release 1 was signed by release key ") && said.contains("which is retired"),
        "{said}"
    );
    let done = server.muster(&["release", "rollback", "1", "--yes"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    host.until_read("/etc/hello", "one web-1\n");

    // A key that may have been stolen: what it signed before that was known counts no more.
    server.ok(&["key", "rotate", "release"]);
    fleet.greets("three");
    let now = model::Timestamp(
        i64::try_from(
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(),
        )
        .unwrap(),
    );
    server.ok(&["key", "rotate", "release", "--drop-previous", "--reject-before", &now.to_string()]);
    let status = || text(&server.muster(&["status"]).stdout);
    let retired = "channel fast: what signed release 4 is not enough any more (a key was retired";
    until("the status says that the release is to be signed anew", || {
        status().contains(retired).then_some(())
    });
    let refused = server.muster(&["release", "rollback", "1", "--yes"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("release 1 was signed at a time") && said.contains("muster key show"), "{said}");
    assert!(!said.contains("header for channel"), "{said}");
    publish(server, repo, "four");
    assert!(!status().contains("was retired"), "{}", status());
}

#[test]
fn a_restore_over_newer_keys_says_so() {
    let OneHostFleet { agent: _agent, control, host, mut server, repo, temp } = OneHostFleet::start();
    publish(&server, &repo, "one");
    let backup = temp.path().join("fleet.backup");
    let (file, data) = (backup.to_str().unwrap(), server.dir.to_str().unwrap().to_owned());
    server.ok(&["backup", "--data", &data, file]);
    server.ok(&["key", "rotate", "release"]);
    publish(&server, &repo, "two");
    host.until_read("/etc/hello", "two web-1\n");
    control.kill();

    let restored = server.muster(&["restore", file, "--data", &data, "--replace"]);
    let said = text(&restored.stdout);
    assert!(restored.status.success(), "{said}{}", text(&restored.stderr));
    assert!(said.contains("trust document 2 is there, the backup has 1"), "{said}");
    assert!(said.contains("other keys than the backup's are there: release.key"), "{said}");
    let copy =
        said.lines().find_map(|line| line.split_once("starts: ")).unwrap_or_else(|| panic!("{said}")).1;

    let control = server.start();
    until("the control plane says that its trust documents went back", || {
        let status = server.json(&["status"]);
        (status["trustOvertaken"]["version"] == 2 && status["trustOvertaken"]["nodes"] == 1).then_some(())
    });
    let told = "1 node says that it holds trust document 2, which is not in the control plane's data";
    let shown = text(&server.muster(&["status"]).stdout);
    assert!(shown.contains(told) && shown.contains("put trust-links.json"), "{shown}");
    write_repo(&repo, "three");
    let published = server.muster(&["publish", "--repo", repo.to_str().unwrap(), "--yes"]);
    assert!(text(&published.stderr).contains(&format!("warning: {told}")), "{}", text(&published.stderr));
    control.kill();

    // What it says is to be typed is enough.
    assert!(std::process::Command::new("sh").args(["-ec", copy]).status().unwrap().success(), "{copy}");
    let _control = server.start();
    until("it has them again", || {
        let status = server.json(&["status"]);
        (status.get("trustOvertaken").is_none() && status["nodes"] == 1).then_some(())
    });
    publish(&server, &repo, "four");
    host.until_read("/etc/hello", "four web-1\n");
}
