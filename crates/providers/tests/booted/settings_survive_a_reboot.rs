//! EXE-1: a kernel parameter, a mount and a name are there at once and after a reboot; what the kernel
//! refuses, what hangs and what is in use is told and leaves nothing behind.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::booted::{MINUTE, Testbed};

use crate::TypesOn;

#[test]
fn a_parameter_a_mount_and_a_name_are_there_at_once_and_after_a_reboot() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("settings-1");
    let types = TypesOn::new(&host);
    let resources = [
        ("sysctl", "net.ipv4.conf.all.accept_redirects", json!({"value": 0})),
        ("sysctl", "net.ipv4.ip_local_port_range", json!({"value": "20000 60000"})),
        (
            "mount",
            "/srv/my scratch",
            json!({"device": "tmpfs", "fstype": "tmpfs", "options": ["size=1m", "nosuid"]}),
        ),
        ("hostname", "web.example.com", json!({"pretty": "Web \"1\" of Amy's"})),
    ];
    let made: Vec<Value> =
        resources.iter().map(|(kind, name, with)| types.made(kind, name, with.clone())).collect();
    assert_eq!(host.ok(["hostnamectl", "--static"]), "web.example.com\n");
    assert_eq!(host.ok(["hostnamectl", "--pretty"]), "Web \"1\" of Amy's\n");
    assert_eq!(host.ok(["uname", "-n"]), "web.example.com\n");
    assert_eq!(host.ok(["cat", "/proc/sys/net/ipv4/ip_local_port_range"]), "20000\t60000\n");
    host.reboot();
    for (kind, name, attributes) in &resources {
        let checked = types.check(kind, name, attributes);
        assert_eq!(checked["edit"], Value::Null, "{kind} {name} after a reboot");
    }
    for ((kind, name, attributes), prior) in resources.iter().zip(&made) {
        let kept = if *kind == "sysctl" { json!({}) } else { attributes.clone() };
        let kept = if *kind == "hostname" { json!({}) } else { kept };
        types.undo(kind, name, if *kind == "mount" { json!({}) } else { kept }, prior);
        assert_ne!(types.check(kind, name, attributes)["edit"], Value::Null, "{kind} {name} is undone");
    }
    assert!(!host.ok(["cat", "/proc/mounts"]).contains("scratch"));
    assert!(!host.read("/etc/fstab").unwrap_or_default().contains("scratch"));
    assert_eq!(host.ok(["uname", "-n"]), "settings-1\n");
    assert!(!host.path("/etc/sysctl.d/60-muster.conf").exists());
}

#[test]
fn what_is_mounted_is_changed_in_place_and_goes_when_nothing_uses_it() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("settings-2");
    let types = TypesOn::new(&host);
    let with = |options: &str| json!({"device": "tmpfs", "fstype": "tmpfs", "options": options});
    types.made("mount", "/srv/data", with("size=1m"));
    host.write("/srv/data/kept", "x", 0o644);
    types.made("mount", "/srv/data", with("size=1m,noexec,ro"));
    assert!(host.ok(["cat", "/proc/mounts"]).contains("/srv/data tmpfs ro,noexec"));
    assert_eq!(host.read("/srv/data/kept").as_deref(), Some("x"), "it was not mounted anew");
    host.ok(["mount", "-o", "remount,rw", "/srv/data"]);
    types.made("mount", "/srv/data", with("size=1m,noexec,ro"));

    host.ok(["systemd-run", "--unit=user", "--property=WorkingDirectory=/srv/data", "sleep", "600"]);
    let refused = types.apply("mount", "/srv/data", &json!({"state": "absent"})).unwrap_err();
    assert!(refused.contains("busy") && refused.contains("sleep ("), "{refused}");
    host.ok(["systemctl", "stop", "user"]);
    types.made("mount", "/srv/data", json!({"state": "absent"}));
    assert!(!host.ok(["cat", "/proc/mounts", "/etc/fstab"]).contains("/srv/data"));
}

#[test]
fn a_mount_point_that_was_made_goes_with_its_mount() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("settings-4");
    let types = TypesOn::new(&host);
    let tmpfs = json!({"device": "tmpfs", "fstype": "tmpfs"});
    host.ok(["mkdir", "/mnt/theirs"]);
    for (path, made) in [("/mnt/ours", json!(["/mnt/ours"])), ("/mnt/theirs", json!([]))] {
        let missing = types.check("mount", path, &tmpfs)["surroundings"]["missing"].clone();
        assert_eq!(missing, made, "{path}");
        let prior = types.made("mount", path, tmpfs.clone());
        types.undo_made("mount", path, json!({}), &prior, &made);
    }
    let mounts = host.ok(["cat", "/proc/mounts"]);
    assert!(!mounts.contains(" /mnt/"), "{mounts}");
    assert_eq!(host.ok(["ls", "/mnt"]), "theirs\n");
    // What is not mounted leaves no directory.
    let missing = types.apply("mount", "/mnt/x", &json!({"device": "/dev/nosuch", "fstype": "ext4"}));
    assert!(missing.unwrap_err().contains("mount exited with"));
    assert_eq!(host.ok(["ls", "/mnt"]), "theirs\n");
}

#[test]
fn what_hangs_or_is_refused_is_told_and_leaves_nothing_behind() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("settings-3");
    let types = TypesOn::new(&host);
    // What `mount` starts for a file system of this type never ends.
    host.write("/usr/sbin/mount.hang", "#!/bin/sh\nsleep 600\n", 0o755);
    let table = host.read("/etc/fstab");
    let begun = Instant::now();
    let hung = types.apply("mount", "/srv/hung", &json!({"device": "nas:/x", "fstype": "hang"})).unwrap_err();
    assert!(hung.contains("mount did not end within 5 s and was killed"), "{hung}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(host.read("/etc/fstab"), table, "no line that would hold up the next boot");
    let ended = || host.run(["pgrep", "-x", "mount.hang"]).stdout.is_empty();
    host.wait_until("what it started has ended", MINUTE, ended);

    let missing =
        types.apply("mount", "/srv/x", &json!({"device": "/dev/nosuch", "fstype": "ext4"})).unwrap_err();
    assert!(missing.contains("mount exited with"), "{missing}");
    assert_eq!(host.read("/etc/fstab"), table);

    for (key, value) in [("net.ipv4.tcp_fin_timeout", "soon"), ("kernel.pid_max", "1")] {
        let refused = types.apply("sysctl", key, &json!({"value": value})).unwrap_err();
        assert!(refused.contains("Invalid argument") || refused.contains("read-only"), "{refused}");
    }
    assert!(!host.path("/etc/sysctl.d/60-muster.conf").exists());

    // Without D-Bus the name is set all the same.
    host.ok(["systemctl", "stop", "dbus.socket", "dbus.service", "systemd-hostnamed"]);
    types.made("hostname", "alone", json!({}));
    assert_eq!(host.ok(["uname", "-n"]), "alone\n");
}
