//! What the tests on booted hosts rest on: a host boots with systemd as PID 1, keeps its disk and its
//! network over reboots and power cuts, reaches the control plane's address alone, and is gone with
//! its test.

use std::path::Path;

use test_support::booted::{BootedHost, CACHE, MINUTE, NAME, TestPackage, Testbed, V4};

fn pings(host: &BootedHost, address: &str) -> bool {
    // bash opens a TCP connection; a refusal is an answer of the address too.
    let line = format!("timeout 1 bash -c 'exec 3<>/dev/tcp/{address}/9' 2>&1 | grep -q refused");
    host.run(["bash", "-c", &line]).status.success()
}

#[test]
fn they_reboot_power_off_and_lose_power() {
    let Some(testbed) = Testbed::open() else { return };
    let [web, db] = testbed.boot_all(["web-1", "db-1"]);
    assert_eq!(web.ok(["ps", "-o", "comm=", "-p", "1"]), "systemd\n");
    let ids = [&web, &db].map(|host| host.read("/etc/machine-id").unwrap());
    assert!(ids[0].len() == 33 && ids[0] != ids[1], "{ids:?}");

    web.write("/var/lib/kept", "over everything\n", 0o600);
    let boot_id = || web.read("/proc/sys/kernel/random/boot_id").unwrap();
    let before = boot_id();
    web.reboot();
    assert_ne!(boot_id(), before);
    web.power_off();
    assert_eq!(web.read("/var/lib/kept").as_deref(), Some("over everything\n"), "readable while it is off");
    web.power_on();
    web.kill();
    web.power_on();
    assert_eq!(web.read("/var/lib/kept").as_deref(), Some("over everything\n"));
    assert_eq!(web.read("/etc/machine-id").unwrap(), ids[0]);
    let boots = web.ok(["journalctl", "--list-boots", "-q"]).lines().count();
    assert!(boots >= 3, "{boots} boots are in the journal");

    assert!(pings(&web, V4) && pings(&web, NAME), "the control plane's address answers");
    assert!(!pings(&web, &db.address()), "no other host does");
    web.unplug();
    assert!(!pings(&web, V4));
    web.plug_in();
    web.wait_until("the network is back", MINUTE, || pings(&web, V4));

    let folder = testbed.folder();
    drop((web, db, testbed));
    assert!(!folder.exists());
}

#[test]
fn packages_are_installed_from_folders() {
    let Some(testbed) = Testbed::open() else { return };
    let web = testbed.boot("web-1");
    let shop = |version: &str| TestPackage::new("shop", version).conffile("/etc/shop.conf", "port 80\n");
    testbed.publish_packages(&[
        shop("1.0"),
        shop("2.0"),
        TestPackage::new("broken", "1.0").script("postinst", "#!/bin/sh\nexit 3\n"),
        TestPackage::new("rival", "1.0").field("Conflicts", "shop").file("/usr/lib/rival", "here\n"),
    ]);
    web.ok(["apt-get", "update"]);
    web.ok(["apt-get", "install", "-y", "shop=1.0"]);
    web.write("/etc/shop.conf", "port 8080\n", 0o644);
    web.ok(["apt-get", "install", "-y", "shop"]);
    assert_eq!(
        web.read("/etc/shop.conf").as_deref(),
        Some("port 8080\n"),
        "a conffile is the administrator's"
    );
    assert_eq!(web.ok(["dpkg-query", "-f", "${Version}", "-W", "shop"]), "2.0");
    assert!(!web.run(["apt-get", "install", "-y", "broken"]).status.success());
    web.ok(["apt-get", "purge", "-y", "broken"]);
    web.ok(["apt-get", "install", "-y", "rival"]);
    assert!(
        !web.run(["dpkg-query", "-f", "${db:Status-Status}", "-W", "shop"]).stdout.starts_with(b"installed")
    );
    assert_eq!(web.read("/usr/lib/rival").as_deref(), Some("here\n"));
    web.ok(["apt-get", "install", "-y", "nginx-light"]);
    assert_eq!(web.ok(["systemctl", "is-active", "nginx"]), "active\n");
    assert!(!Path::new(CACHE).join("root/etc/nginx").exists(), "no host writes into the image");
}
