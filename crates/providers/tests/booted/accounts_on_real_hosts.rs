//! EXE-1: accounts on a real host: one that is made can be used, its rule holds, and one that is in use
//! is not removed but named with its processes.

use serde_json::json;
use test_support::booted::{MINUTE, Testbed};

use crate::TypesOn;

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl amy@laptop";

#[test]
fn a_user_with_a_key_and_a_rule_works_and_goes_when_nothing_runs_as_it() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("accounts-1");
    let types = TypesOn::new(&host);
    let passwd = host.read("/etc/passwd").unwrap();

    let group = types.made("group", "deployers", json!({"gid": 2000}));
    let user = types.made(
        "user",
        "deploy",
        json!({
            "uid": 2001, "group": "deployers", "groups": ["adm"], "shell": "/bin/bash", "locked": true,
            "password": "$6$salt$notARealHash", "expires": "2099-12-31", "password_max_days": 90,
        }),
    );
    assert_eq!(host.ok(["id", "-nG", "deploy"]), "deployers adm\n");
    assert!(host.ok(["passwd", "-S", "deploy"]).starts_with("deploy L "));
    assert!(host.ok(["chage", "-l", "deploy"]).contains("Dec 31, 2099"));
    types.made("ssh_key", "deploy: key", json!({"key": KEY, "user": "deploy", "options": ["no-pty"]}));
    let listed = host.ok(["stat", "-c", "%U %a", "/home/deploy/.ssh", "/home/deploy/.ssh/authorized_keys"]);
    assert_eq!(listed, "deploy 700\ndeploy 600\n");
    types.made(
        "sudo",
        "deployers",
        json!({"groups": ["deployers"], "commands": ["/usr/bin/id -u"], "runas": "root", "nopasswd": true}),
    );
    host.ok(["visudo", "-c"]);
    let as_deploy = |line: &str| host.run(["runuser", "-u", "deploy", "--", "sh", "-c", line]);
    assert_eq!(as_deploy("sudo -n /usr/bin/id -u").stdout, b"0\n");
    assert!(!as_deploy("sudo -n /usr/bin/id -g").status.success(), "only what is allowed");

    let unit = ["systemd-run", "--unit=busy", "--uid=deploy", "--property=Type=exec", "sleep", "600"];
    host.ok(unit);
    let absent = json!({"state": "absent", "remove_home": true});
    let refused = types.apply("user", "deploy", &absent).unwrap_err();
    assert!(refused.contains("currently used by process") && refused.contains("sleep ("), "{refused}");
    let moved = types.apply("user", "deploy", &json!({"uid": 2002})).unwrap_err();
    assert!(moved.contains("sleep ("), "{moved}");
    let primary = types.apply("group", "deployers", &json!({"state": "absent"})).unwrap_err();
    assert!(primary.contains("primary group of deploy"), "{primary}");
    host.ok(["systemctl", "stop", "busy"]);
    let gone = || !host.run(["pgrep", "-u", "deploy"]).status.success();
    host.wait_until("nothing runs as deploy", MINUTE, gone);

    types.undo("user", "deploy", json!({"remove_home": true}), &user);
    assert!(!host.path("/home/deploy").exists());
    types.undo("group", "deployers", json!({}), &group);
    assert_eq!(host.read("/etc/passwd").unwrap(), passwd);
}

#[test]
fn accounts_of_the_system_and_numbers_of_others_are_left_alone() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("accounts-2");
    let types = TypesOn::new(&host);
    let before = ["/etc/passwd", "/etc/group", "/etc/shadow"].map(|file| host.read(file).unwrap());
    for (kind, name, attributes, why) in [
        ("user", "root", json!({"state": "absent", "system": true}), "never removed"),
        ("user", "www-data", json!({"state": "absent"}), "system: true"),
        ("group", "adm", json!({"state": "absent"}), "system: true"),
        ("user", "amy", json!({"uid": 1}), "the user daemon"),
        ("group", "ops", json!({"gid": 4}), "the group adm"),
        ("user", "amy", json!({"groups": ["nosuch"]}), "no group `nosuch`"),
    ] {
        let note = types.check(kind, name, &attributes)["note"].to_string();
        assert!(note.contains(why), "a plan says it: {note}");
        let refused = types.apply(kind, name, &attributes).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(["/etc/passwd", "/etc/group", "/etc/shadow"].map(|file| host.read(file).unwrap()), before);
}
