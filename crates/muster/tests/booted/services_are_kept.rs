//! EXE-1: a service is brought to what is declared and stays so, is restarted once when it is notified,
//! and a unit that does not come up is told with its reason; a timer and a cron entry are what systemd
//! and cron read.

use model::Action;
use serde_json::json;
use test_support::booted::{BootedHost, Testbed};

use crate::held::{HeldAgent, changed, item};

/// A service that stays up.
const UNIT: &str = "[Unit]\nDescription=app\n[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n\
                    [Install]\nWantedBy=multi-user.target\n";

fn show(host: &BootedHost, unit: &str, property: &str) -> String {
    host.ok(["systemctl", "show", "--value", "-p", property, unit]).trim().to_owned()
}

fn main_pid(host: &BootedHost) -> String {
    show(host, "app.service", "MainPID")
}

#[test]
fn a_service_is_set_healed_notified_and_removed() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("web-1");
    let mut agent = HeldAgent::install(&host);
    let set = |nice: i32, config: &str, reload: bool| {
        json!({"name": "app", "resources": [
            {"type": "file", "name": "/etc/app.conf", "attributes": {"content": config}, "notify": ["app"]},
            {"type": "service", "name": "app", "on_remove": "delete", "attributes": {
                "unit": UNIT, "state": "running", "enabled": "true", "reload": reload.to_string(),
                "drop_in": {"nice": {"Service": {"Nice": nice.to_string()}}}}},
        ]})
    };
    let label = "service:app";
    agent.holds(set(5, "a = 1\n", false));
    assert_eq!(item(&agent.plan(), label).0, Action::WouldChange);
    assert_eq!(host.read("/etc/systemd/system/app.service"), None, "a plan writes nothing");
    changed(&agent.apply(), &["file:/etc/app.conf", label]);
    assert_eq!(show(&host, "app", "ActiveState"), "active");
    assert_eq!(host.ok(["systemctl", "is-enabled", "app"]), "enabled\n");
    assert_eq!(show(&host, "app", "NeedDaemonReload"), "no");
    let first = main_pid(&host);
    changed(&agent.apply(), &[]);
    changed(&agent.plan(), &[]);
    assert_eq!(main_pid(&host), first, "it was started after its notifier, and is not restarted");

    // Damage by hand.
    for damage in [
        "systemctl stop app",
        "systemctl disable app",
        "rm -r /etc/systemd/system/app.service.d",
        "echo '[Service]' > /etc/systemd/system/app.service && systemctl daemon-reload",
        "systemctl kill -s KILL app; systemctl reset-failed app",
    ] {
        host.sh(damage);
        changed(&agent.apply(), &[label]);
        changed(&agent.apply(), &[]);
        assert_eq!(show(&host, "app", "ActiveState"), "active", "{damage}");
        assert_eq!(host.ok(["systemctl", "is-enabled", "app"]), "enabled\n", "{damage}");
        assert_eq!(show(&host, "app", "NeedDaemonReload"), "no", "{damage}");
    }

    // A notification restarts it once; with `reload` its process stays.
    let before = main_pid(&host);
    agent.holds(set(5, "a = 2\n", false));
    changed(&agent.apply(), &["file:/etc/app.conf", label]);
    let after = main_pid(&host);
    assert_ne!(after, before);
    agent.holds(set(5, "a = 3\n", true));
    changed(&agent.apply(), &["file:/etc/app.conf", label]);
    assert_eq!(main_pid(&host), after);
    let journal = host.ok(["journalctl", "-u", "app", "-o", "cat"]);
    assert!(journal.contains("Reloaded app"), "{journal}");
    // What does not run is not started by a notification; it is started because it is to run.
    agent.holds(set(7, "a = 3\n", true));
    changed(&agent.apply(), &[label]);
    assert_ne!(main_pid(&host), after, "another drop-in counts only after a restart");
    assert_eq!(show(&host, "app", "Nice"), "7");

    // It leaves the set: stopped, disabled, without what was written.
    agent.holds(json!({"name": "app", "resources": []}));
    let report = agent.apply();
    assert_eq!(item(&report, label).0, Action::Deleted, "{:#?}", report.items);
    assert_eq!(show(&host, "app", "LoadState"), "not-found");
    for path in ["app.service", "app.service.d/muster-nice.conf", "multi-user.target.wants/app.service"] {
        assert_eq!(host.read(&format!("/etc/systemd/system/{path}")), None);
    }
    changed(&agent.apply(), &[]);
}

#[test]
fn a_handler_restarts_what_runs_and_restore_brings_the_state_before_back() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("web-1");
    let mut agent = HeldAgent::install(&host);
    host.write("/usr/lib/systemd/system/app.service", UNIT, 0o644);
    host.sh("systemctl daemon-reload");
    let set = |config: &str| {
        json!({"name": "app",
            "resources": [
                {"type": "service", "name": "app", "on_remove": "restore", "attributes": {"state": "running"}},
                {"type": "file", "name": "/etc/app.conf", "attributes": {"content": config}, "notify": ["again"]},
            ],
            "handlers": [{"type": "service", "name": "app", "id": "again", "attributes": {}}],
        })
    };
    // Started before its file was written: the handler restarts it.
    agent.holds(set("a = 1\n"));
    let handler = "service:app (handler)";
    changed(&agent.apply(), &["service:app", "file:/etc/app.conf", handler]);
    let first = main_pid(&host);
    changed(&agent.apply(), &[]);
    agent.holds(set("a = 2\n"));
    changed(&agent.apply(), &["file:/etc/app.conf", handler]);
    assert_ne!(main_pid(&host), first);
    agent.holds(json!({"name": "app", "resources": []}));
    assert_eq!(item(&agent.apply(), "service:app").0, Action::Restored);
    assert_eq!(show(&host, "app", "ActiveState"), "inactive");
    assert!(host.read("/usr/lib/systemd/system/app.service").is_some(), "it is not ours");
    // A handler of a service that does not run does nothing.
    agent.holds(json!({"name": "app",
        "resources": [{"type": "file", "name": "/etc/app.conf", "attributes": {"content": "a = 3\n"}, "notify": ["app"]}],
        "handlers": [{"type": "service", "name": "app", "attributes": {"reload": "true"}}],
    }));
    changed(&agent.apply(), &["file:/etc/app.conf"]);
    assert_eq!(show(&host, "app", "ActiveState"), "inactive");

    // A mask is seen, set and taken away.
    let app = |attributes: serde_json::Value| json!({"name": "app", "resources": [{"type": "service", "name": "app", "attributes": attributes}]});
    host.sh("systemctl mask app");
    agent.holds(app(json!({"state": "running"})));
    let (action, reason) = item(&agent.apply(), "service:app");
    assert_eq!(action, Action::Failed);
    assert!(reason.contains("masked: false"), "{reason}");
    agent.holds(app(json!({"state": "running", "masked": "false"})));
    changed(&agent.apply(), &["service:app"]);
    assert_eq!(show(&host, "app", "ActiveState"), "active");
    agent.holds(app(json!({"state": "stopped", "masked": "true"})));
    changed(&agent.apply(), &["service:app"]);
    changed(&agent.apply(), &[]);
    assert_eq!(
        (show(&host, "app", "LoadState"), show(&host, "app", "ActiveState")),
        ("masked".into(), "inactive".into())
    );
    // What is not there is stopped and disabled as it is.
    let gone = json!({"state": "stopped", "enabled": "false"});
    agent.holds(
        json!({"name": "app", "resources": [{"type": "service", "name": "telnetd", "attributes": gone}]}),
    );
    changed(&agent.apply(), &[]);
}

#[test]
fn a_unit_that_does_not_come_up_is_told_with_its_reason() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("web-1");
    let mut agent = HeldAgent::install(&host);
    let unit = |lines: &str| format!("[Service]\n{lines}\n");
    let service = |name: &str, more: serde_json::Value| {
        let mut attributes = json!({"state": "running"});
        attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"type": "service", "name": name, "attributes": attributes})
    };
    let mut late = service("late", json!({"unit": unit("Type=notify\nExecStart=/bin/sleep infinity")}));
    late["timeout"] = json!(3);
    agent.holds(json!({"name": "app", "resources": [
        service("flaps", json!({
            "unit": unit("ExecStart=/bin/sh -c 'echo the port is taken; exit 3'\nRestart=always\nRestartSec=200ms")})),
        service("slowly", json!({
            "unit": unit("ExecStart=/bin/sh -c 'sleep 1; echo gave up; exit 4'\nRestart=always\nRestartSec=100ms")})),
        service("hangs", json!({"unit": unit("Type=notify\nTimeoutStartSec=2\nExecStart=/bin/sleep infinity")})),
        late,
        service("once", json!({"unit": unit("Type=oneshot\nExecStart=/bin/true")})),
        service("nothing", json!({"unit": unit("ExecStart=/nowhere/program")})),
        service("broken", json!({"unit": unit("Nice=5")})),
        service("missing", json!({})),
        service("unmet", json!({"unit": format!("[Unit]\nConditionPathExists=/nowhere\n{}", unit("ExecStart=/bin/sleep 9"))})),
        service("getty@", json!({})),
        json!({"type": "service", "name": "dbus", "attributes": {"enabled": "true"}}),
    ]}));
    let report = agent.apply();
    let says = [
        ("flaps", &["over and over", "exit status 3", "the port is taken"][..]),
        // Where it is looked at as it runs again, only the journal says how it ended: `status=4/NOPERMISSION`.
        ("slowly", &["over and over", "status", "4", "gave up"]),
        ("hangs", &["it failed", "result timeout"]),
        ("late", &["did not start within", "still is activating"]),
        ("once", &["Type=oneshot", "timer"]),
        ("nothing", &["its program cannot be executed"]),
        ("broken", &["cannot read broken.service"]),
        ("missing", &["there is no unit missing.service", "package"]),
        ("unmet", &["condition of the unit is not met"]),
        ("getty@", &["is a template", "getty@1.service"]),
        ("dbus", &["[Install]"]),
    ];
    for (name, parts) in says {
        let (action, reason) = item(&report, &format!("service:{name}"));
        assert_eq!(action, Action::Failed, "{name}");
        for part in parts {
            assert!(reason.contains(part), "{name}: {reason}");
        }
    }
    // One that flaps is no better at the next run, and a start that goes on is not waited for again.
    let report = agent.apply();
    assert_eq!(item(&report, "service:flaps").0, Action::Failed);
    let (action, reason) = item(&report, "service:late");
    assert_eq!(action, Action::Failed);
    assert!(reason.contains("for longer than its `timeout`, and still is activating"), "{reason}");
    // Another unit file takes its place all the same.
    agent.holds(json!({"name": "app", "resources": [
        service("late", json!({"unit": unit("ExecStart=/bin/sleep infinity")})),
    ]}));
    changed(&agent.apply(), &["service:late"]);

    // Without the bus only these fail, and they come back with it.
    agent.holds(json!({"name": "app", "resources": [
        service("cron-like", json!({"unit": unit("ExecStart=/bin/sleep infinity")})),
        {"type": "file", "name": "/etc/after.conf", "attributes": {"content": "x\n"}},
    ]}));
    host.sh("systemctl stop dbus.socket dbus.service");
    let report = agent.apply();
    let (action, reason) = item(&report, "service:cron-like");
    assert_eq!(action, Action::Failed);
    assert!(reason.contains("dbus.socket"), "{reason}");
    assert_eq!(item(&report, "file:/etc/after.conf").0, Action::Changed);
    host.sh("systemctl start dbus.socket dbus.service");
    changed(&agent.apply(), &["service:cron-like"]);
}

#[test]
fn a_timer_runs_its_command_and_a_cron_entry_is_a_file_of_root() {
    let Some(testbed) = Testbed::open() else { return };
    let host = testbed.boot("web-1");
    host.sh("mkdir -p /etc/cron.d && useradd -m backup-user");
    let mut agent = HeldAgent::install(&host);
    let set = |calendar: &str| {
        json!({"name": "app", "resources": [
            {"type": "timer", "name": "backup", "attributes": {
                "on_calendar": calendar, "persistent": "true", "randomized_delay": "5m", "user": "backup-user",
                "cwd": "/tmp", "environment": {"NAME": "it's 100% \"a b\" $HOME"},
                "command": ["/bin/sh", "-c", "printf '%s|%s|%s' \"$NAME\" \"$(id -un)\" \"$PWD\" > /tmp/out"]}},
            {"type": "cron", "name": "tidy", "attributes": {
                "minute": "30", "hour": "2", "command": "date +%F > /tmp/day", "environment": {"MAILTO": ""}}},
        ]})
    };
    agent.holds(set("*-*-* 02:61:00"));
    let (action, reason) = item(&agent.apply(), "timer:backup");
    assert_eq!(action, Action::Failed);
    assert!(reason.contains("systemd does not understand `*-*-* 02:61:00`"), "{reason}");
    assert_eq!(host.read("/etc/systemd/system/backup.timer"), None, "it is checked before it counts");

    agent.holds(set("*-*-* 02:30:00"));
    changed(&agent.apply(), &["timer:backup"]);
    changed(&agent.apply(), &[]);
    assert!(host.ok(["systemctl", "list-timers"]).contains("backup.timer"));
    assert_eq!(host.ok(["systemctl", "is-enabled", "backup.timer"]), "enabled\n");
    host.ok(["systemctl", "start", "backup.service"]);
    assert_eq!(host.read("/tmp/out").unwrap(), "it's 100% \"a b\" $HOME|backup-user|/tmp");
    assert_eq!(
        host.read("/etc/cron.d/tidy").unwrap(),
        "# Kept by Muster: cron `tidy`\nMAILTO=\"\"\n30 2 * * * root date +\\%F > /tmp/day\n"
    );
    assert_eq!(host.ok(["stat", "-c", "%a %U", "/etc/cron.d/tidy"]), "644 root\n");
    host.sh("systemctl stop backup.timer; echo '# 5' >> /etc/cron.d/tidy");
    changed(&agent.apply(), &["timer:backup", "cron:tidy"]);

    agent.holds(json!({"name": "app", "resources": []}));
    let report = agent.apply();
    assert_eq!(item(&report, "timer:backup").0, Action::Deleted, "{:#?}", report.items);
    assert_eq!(item(&report, "cron:tidy").0, Action::Deleted, "{:#?}", report.items);
    for path in ["/etc/cron.d/tidy", "/etc/systemd/system/backup.timer", "/etc/systemd/system/backup.service"]
    {
        assert_eq!(host.read(path), None);
    }
    changed(&agent.apply(), &[]);
}
