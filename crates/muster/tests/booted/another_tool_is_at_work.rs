//! CNV-1, CNV-3, CNV-7: another configuration tool rewrites what Muster manages, again and again: the node
//! says so, what else is declared stays as it is, nothing that only the other tool declares is lost, and
//! once the other tool stops the host converges by itself.

use test_support::booted::{BootedFleet, MINUTE, Testbed};

const MODULE: &str = "
resources:
  - file: /etc/shared.conf
    content: \"port 8080\\n\"
    mode: \"0640\"
  - ini: /etc/shared.ini
    section: server
    key: port
    value: 8080
    create: true
  - line: 192.0.2.7 ours
    path: /etc/hosts
  - file: /etc/alone.conf
    content: \"nobody else writes it\\n\"
";

/// What such a tool does: it writes whole files, at once.
const OTHER: &str = "#!/bin/sh\nwhile :; do\n\
    printf 'port 9090\\n' > /etc/.new && mv /etc/.new /etc/shared.conf\n\
    printf '[server]\\nport = 9090\\nname = theirs\\n' > /etc/.new && mv /etc/.new /etc/shared.ini\n\
    sleep 0.3\ndone\n";

#[test]
fn and_the_node_says_so_and_loses_nothing() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    fleet.join(&web);
    fleet.module("shared", MODULE);
    fleet.publish_until_converged(&[&web]);
    let hosts = web.read("/etc/hosts").unwrap();

    web.write("/usr/local/bin/other-tool", OTHER, 0o755);
    web.ok(["systemd-run", "--unit=other-tool", "/usr/local/bin/other-tool"]);
    // Three corrective runs in a row are told first; what fights is named once the node knows it.
    web.wait_until("the status names the fight and its process", MINUTE, || {
        let status = String::from_utf8_lossy(&fleet.server.muster(&["status"]).stdout).into_owned();
        let mut lines = status.lines().filter(|line| line.contains("diverged") && line.contains("web-1"));
        lines
            .any(|line| line.contains("is changed again and again by") && line.contains("other-tool.service"))
    });
    // Repairs by events are runs over what was touched alone.
    web.wait_until("a run tells of the drift", MINUTE, || {
        let run = fleet.server.ok(&["run", "show", "web-1"]);
        assert!(!run.contains("alone.conf"), "{run}");
        run.contains("shared/file:/etc/shared.conf") && run.contains("drift")
    });

    // Each reads what is there whole: no half files, no lost lines, nothing beside them changed.
    let ini = web.read("/etc/shared.ini").unwrap();
    assert!(ini.contains("name = theirs"), "{ini}");
    assert_eq!(web.read("/etc/alone.conf").as_deref(), Some("nobody else writes it\n"));
    assert_eq!(web.read("/etc/hosts").unwrap(), hosts);
    web.write("/etc/alone.conf", "by hand\n", 0o644);
    web.wait_until("what is ours alone is healed all the same", MINUTE, || {
        web.read("/etc/alone.conf").as_deref() == Some("nobody else writes it\n")
    });

    // The node forgives after ten quiet minutes; what is declared is right before.
    web.ok(["systemctl", "stop", "other-tool"]);
    web.wait_until("it is as declared", MINUTE, || {
        web.read("/etc/shared.conf").as_deref() == Some("port 8080\n")
            && web.read("/etc/shared.ini").is_some_and(|ini| ini.contains("port = 8080"))
    });
    let ini = web.read("/etc/shared.ini").unwrap();
    assert!(ini.contains("name = theirs"), "what only the other tool declares stays: {ini}");
    assert_eq!(web.ok(["stat", "-c", "%a", "/etc/shared.conf"]), "640\n");
    let left = web.sh("ls -A /etc | grep -i muster | grep -v '^muster$' || true");
    assert_eq!(left, "", "no temporary file stays");
}
