//! EXE-1: packages with the real apt: many in one transaction, who is to blame alone, a repository that
//! is new, a lock that is held, dpkg killed in the middle, a service that is not to start.

use serde_json::json;
use test_support::booted::{MINUTE, TestPackage, Testbed};

use crate::TypesOn;

const UNIT: &str = "[Service]\nExecStart=/bin/sleep infinity\n";
const START: &str = "#!/bin/sh\nsystemctl daemon-reload\ndeb-systemd-invoke start sleeper.service\n";
/// Its script waits until it may go on.
const SLOW: &str = "#!/bin/sh\n[ -e /run/fast ] || sleep 600\n";

#[test]
fn packages_are_each_right_or_told_why_not() {
    let Some(testbed) = Testbed::open() else { return };
    testbed.publish_packages(&[
        TestPackage::new("shop", "1.0").conffile("/etc/shop.conf", "port 80\n"),
        TestPackage::new("shop", "2.0").conffile("/etc/shop.conf", "port 8080\n"),
        TestPackage::new("rival", "1.0").field("Conflicts", "shop"),
        TestPackage::new("broken", "1.0").script("postinst", "#!/bin/sh\necho no database\nexit 3\n"),
        TestPackage::new("needy", "1.0").field("Depends", "nothere"),
        TestPackage::new("sleeper", "1.0")
            .file("/lib/systemd/system/sleeper.service", UNIT)
            .script("postinst", START),
        TestPackage::new("slow", "1.0").script("postinst", SLOW),
    ]);
    let host = testbed.boot("packages-1");
    let types = TypesOn::new(&host);

    // The lists of the image do not know these packages: they are refreshed, once.
    let done = types.packages(json!({
        "shop": {"version": "1.*"},
        "broken": {},
        "needy": {},
        "nope": {},
        "sleeper": {"start_services": false},
    }));
    assert_eq!((&done["shop"], &done["sleeper"]), (&json!("changed"), &json!("changed")), "{done:#}");
    assert_eq!(done["nope"], "Unable to locate package nope");
    let said = |name: &str| done[name].as_str().unwrap().to_owned();
    assert!(said("needy").contains("needy : Depends: nothere"), "{done:#}");
    assert!(said("broken").contains("no database") && said("broken").contains("exit status 3"), "{done:#}");
    assert!(!host.run(["systemctl", "is-active", "sleeper"]).status.success());
    assert!(!host.path("/usr/sbin/policy-rc.d").exists());

    // Nobody declared shop absent; what was changed by hand stays.
    let alone = types.packages(json!({"rival": {}}));
    assert!(
        alone["rival"].as_str().unwrap().starts_with("it would remove shop, which nobody declared absent"),
        "{alone:#}"
    );
    host.write("/etc/shop.conf", "port 81\n", 0o644);
    let done = types.packages(
        json!({"rival": {}, "shop": {"state": "latest", "hold": true}, "broken": {"state": "absent"}}),
    );
    assert_eq!((&done["shop"], &done["broken"]), (&json!("changed"), &json!("changed")), "{done:#}");
    assert!(done["rival"].as_str().unwrap().contains("shop"), "{done:#}");
    assert_eq!(host.read("/etc/shop.conf").as_deref(), Some("port 81\n"));
    assert_eq!(host.ok(["apt-mark", "showhold"]), "shop\n");

    // Somebody else installs, and is named; then dpkg is killed, and the next run repairs.
    host.ok(["systemd-run", "--unit=by-hand", "apt-get", "-y", "install", "slow"]);
    // One question, which may fail: while dpkg writes its database anew, it knows the package and then not.
    let state = || host.run(["dpkg-query", "-W", "-f=${db:Status-Status}", "slow"]).stdout;
    host.wait_until("slow is being configured", MINUTE, || state() == b"half-configured");
    let busy = types.packages(json!({"rival": {"lock_timeout": "1s"}}));
    assert!(busy["rival"].as_str().unwrap().starts_with("dpkg lock held by apt-get (pid "), "{busy:#}");
    host.ok(["systemctl", "kill", "--signal=KILL", "by-hand"]);
    host.wait_until("apt-get is gone", MINUTE, || !host.run(["pgrep", "-x", "apt-get"]).status.success());
    host.write("/run/fast", "", 0o644);
    let done = types.packages(json!({"slow": {}, "shop": {"state": "absent", "purge": true, "hold": false}}));
    assert_eq!(done, json!({"slow": "ok", "shop": "changed"}));
    assert!(!host.path("/etc/shop.conf").exists());
    assert_eq!(host.ok(["dpkg", "--audit"]), "");

    // A second run changes nothing.
    let wanted = json!({"slow": {}, "shop": {"state": "absent", "purge": true}, "sleeper": {}});
    assert_eq!(types.packages(wanted), json!({"slow": "ok", "shop": "ok", "sleeper": "ok"}));

    // A repository that is new is asked at once.
    host.ok([
        "sh",
        "-c",
        "mkdir -p /srv/own && mv /etc/apt/sources.list /srv/own/list && cp /srv/packages/test/* /srv/own/",
    ]);
    host.ok(["sh", "-c", "apt-get update && rm -f /var/lib/apt/periodic/update-success-stamp"]);
    let repository = json!({"uris": "file:/srv/own", "suites": "./", "trusted": true, "priority": 600});
    let before = types.made("repository", "own", repository.clone());
    assert_eq!(types.packages(json!({"rival": {}}))["rival"], "changed");
    types.undo("repository", "own", json!({}), &before);
    assert!(!host.path("/etc/apt/sources.list.d/own.sources").exists());
}
