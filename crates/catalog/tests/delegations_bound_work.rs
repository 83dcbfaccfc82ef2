//! OPS-2, LIF-5: work is allowed only as a delegation says it: whatever a hostile control
//! plane puts into a command, an argument or a path is refused, with a reason that repeats no
//! argument.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use catalog::delegation::{NotDelegated, Permitted, allows, permits, show, split};
use model::work::{Delegation, MAX_ARGS, MAX_TIMEOUT_SECS, Work};

fn delegation(json: &str) -> Delegation {
    serde_json::from_str(json).unwrap()
}

/// A delegation of these commands, each in the short form.
fn commands(texts: &[&str]) -> Vec<Delegation> {
    let commands = texts.iter().map(|text| split(text).unwrap()).collect();
    vec![Delegation { commands, ..Delegation::default() }]
}

fn run(argv: &[&str]) -> Work {
    Work::Command { argv: argv.iter().map(|word| (*word).to_owned()).collect() }
}

fn act(name: &str, args: &[(&str, &str)]) -> Work {
    let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Work::Action { name: name.to_owned(), args }
}

fn ask(what: &str, path: Option<&str>) -> Work {
    Work::Query { what: what.to_owned(), path: path.map(str::to_owned) }
}

#[test]
fn commands_argument_by_argument() {
    let held = commands(&[
        "/usr/bin/uptime",
        "/usr/bin/journalctl -u *",
        "/usr/local/bin/deploy **",
        "/bin/cat /var/log/*/app.log",
        "/opt/app/bin/* status",
        "/bin/tar -C /srv/** --file=*",
        "/bin/echo 'two words' ?",
        "/bin/sed -*",
        "/bin/printf ''",
        "/bin/rm -r /srv/data/* /srv/tmp/**",
        "/usr/bin/curl *://**",
    ]);
    let allowed: &[&[&str]] = &[
        &["/usr/bin/uptime"],
        &["/usr/bin/journalctl", "-u", "nginx.service"],
        &["/usr/bin/journalctl", "-u", "a b; rm -rf $HOME `x` | y > z"],
        &["/usr/local/bin/deploy"],
        &["/usr/local/bin/deploy", "--force", "../x", "", "/etc"],
        &["/bin/cat", "/var/log/web/app.log"],
        &["/opt/app/bin/ctl", "status"],
        &["/bin/tar", "-C", "/srv/a/b", "--file=x"],
        &["/bin/tar", "-C", "/srv/a..b/c...", "--file="],
        &["/bin/echo", "two words", "é"],
        &["/bin/sed", "--expression"],
        &["/bin/printf", ""],
        &["/bin/rm", "-r", "/srv/data/a", "/srv/tmp/a/b"],
        &["/usr/bin/curl", "https://example.com/a"],
    ];
    for argv in allowed {
        let permitted = allows(&held, &run(argv)).unwrap_or_else(|why| panic!("{argv:?}: {why}"));
        assert_eq!(permitted.argv, *argv, "as it is, word by word");
    }
    let refused: &[&[&str]] = &[
        &[],
        &[""],
        &["uptime"],
        &["./uptime"],
        &["/usr/bin/uptime", "-p"],
        &["/usr/bin/uptime", ""],
        &["/usr/bin//uptime"],
        &["/usr/bin/./uptime"],
        &["/usr/bin/../bin/uptime"],
        &["/usr/bin/uptime/"],
        &["/usr/bin/uptime\n"],
        &["/usr/bin/uptime\0"],
        &["/usr/bin/uptime\u{1b}[2J"],
        &["/USR/bin/uptime"],
        &["/usr/bin/journalctl"],
        &["/usr/bin/journalctl", "-u"],
        &["/usr/bin/journalctl", "-u", ""],
        &["/usr/bin/journalctl", "-u", "-o"],
        &["/usr/bin/journalctl", "-u", "--vacuum-time=1s"],
        &["/usr/bin/journalctl", "-u", "-"],
        &["/usr/bin/journalctl", "-u", "a/b"],
        &["/usr/bin/journalctl", "-u", "a\nb"],
        &["/usr/bin/journalctl", "-u", "a\0b"],
        &["/usr/bin/journalctl", "-u", "a\tb"],
        &["/usr/bin/journalctl", "-u", "nginx", "--rotate"],
        &["/usr/bin/journalctl", "--unit", "nginx"],
        &["/usr/local/bin/deploy", "a\nb"],
        &["/usr/local/bin/deploy", "a\0b"],
        &["/bin/cat", "/var/log/../app.log"],
        &["/bin/cat", "/var/log/a/b/app.log"],
        &["/bin/cat", "/var/log//app.log"],
        &["/opt/app/bin/../../../bin/sh", "status"],
        &["/opt/app/bin/x/y", "status"],
        &["/opt/app/bin/", "status"],
        &["/bin/tar", "-C", "/srv/../etc", "--file=x"],
        &["/bin/tar", "-C", "/srv/a/..", "--file=x"],
        &["/bin/tar", "-C", "/srv/a", "--file=.."],
        &["/bin/tar", "-C", "/srv/a", "--file=/etc/shadow"],
        &["/bin/echo", "two", "words"],
        &["/bin/echo", "two words", ""],
        &["/bin/echo", "two words", "/"],
        &["/bin/echo", "two words", "-"],
        &["/bin/sed", "expression"],
        &["/bin/rm", "-r", "/srv/data/", "/srv/tmp/a"],
        &["/bin/rm", "-r", "/srv/data/.", "/srv/tmp/a"],
        &["/bin/rm", "-r", "/srv/data/a", "/srv/tmp/"],
        &["/bin/rm", "-r", "/srv/data/a", "/srv/tmp//"],
        &["/bin/rm", "-r", "/srv/data/a", "/srv/tmp/./"],
        &["/usr/bin/curl", "https://example.com//a"],
    ];
    for argv in refused {
        assert!(allows(&held, &run(argv)).is_err(), "{argv:?} is allowed");
    }
}

#[test]
fn long_commands_and_arguments_are_refused() {
    let held = commands(&["/bin/x **"]);
    let with = |count: usize, length: usize| {
        let mut argv = vec!["/bin/x".to_owned()];
        argv.resize(count, "a".repeat(length));
        allows(&held, &Work::Command { argv })
    };
    assert!(with(MAX_ARGS, 4096).is_ok());
    assert_eq!(with(MAX_ARGS + 1, 1), Err(NotDelegated::TooMany));
    assert!(matches!(with(2, 4097), Err(NotDelegated::Text { position: 1, .. })));
}

const RESTART: &str = r#"{"actions": {
    "restart": {"command": ["/usr/bin/systemctl", "restart", "{unit}"], "args": {"unit": "web-*"}, "timeoutSecs": 60},
    "verbose": {"command": ["/bin/x", "{level}", "{level}"], "args": {"level": "-v*"}},
    "copy": {"command": ["/bin/cp", "{from}", "/srv/in"], "args": {"from": "/srv/out/**"}},
    "fixed": {"command": ["/bin/true", "*", "{"]}
}, "timeoutSecs": 600}"#;

#[test]
fn actions_fill_in_what_fits() {
    let held = [delegation(RESTART)];
    let unit = |value: &str| allows(&held, &act("restart", &[("unit", value)]));
    assert_eq!(
        unit("web-1.service").unwrap(),
        Permitted {
            argv: ["/usr/bin/systemctl", "restart", "web-1.service"].map(str::to_owned).into(),
            path: None,
            timeout_secs: 60,
            by: 0
        }
    );
    let hostile =
        ["", "-web-1", "--root=/tmp", "db-1", "web-1\n", "web-\0", "web-/x", "web-1/..", "Web-1", " web-1"];
    for value in hostile {
        let why = unit(value).expect_err(value);
        assert!(matches!(why, NotDelegated::Argument { .. }), "{value:?}: {why}");
    }
    // One argument stays one, whatever a shell would make of it.
    assert_eq!(unit("web-1 --force; reboot").unwrap().argv[2], "web-1 --force; reboot");
    assert!(allows(&held, &act("verbose", &[("level", "-vv")])).is_ok(), "the pattern begins with -");
    assert!(allows(&held, &act("verbose", &[("level", "--all")])).is_err());
    for (path, fits) in [
        ("/srv/out/a/b", true),
        ("/srv/out/../../etc/shadow", false),
        ("/srv/out/..", false),
        ("/etc/x", false),
    ] {
        assert_eq!(allows(&held, &act("copy", &[("from", path)])).is_ok(), fits, "{path}");
    }
    let fixed = allows(&held, &act("fixed", &[])).unwrap();
    assert_eq!(fixed.argv, ["/bin/true", "*", "{"]);
    assert_eq!(fixed.timeout_secs, 600, "the delegation's, where the action has none");
}

#[test]
fn actions_take_all_of_their_arguments_and_no_other() {
    let held = [delegation(RESTART)];
    let why = |work: &Work| allows(&held, work).unwrap_err();
    assert!(matches!(why(&act("reload", &[])), NotDelegated::Action(name) if name == "reload"));
    assert!(
        matches!(why(&act("restart", &[])), NotDelegated::Missing { argument, .. } if argument == "unit")
    );
    assert!(matches!(
        why(&act("restart", &[("unit", "web-1"), ("user", "root")])),
        NotDelegated::Unknown { argument, .. } if argument == "user"
    ));
    assert!(matches!(why(&run(&["/usr/bin/systemctl", "restart", "web-1"])), NotDelegated::Program(_)));
}

#[test]
fn a_broken_action_of_a_release_is_never_run() {
    for command in [r#"["systemctl"]"#, r#"["{unit}"]"#, r#"["/bin/*"]"#, r#"["/bin/x", "{user}"]"#, "[]"] {
        let json = format!(r#"{{"actions": {{"x": {{"command": {command}, "args": {{"unit": "*"}}}}}}}}"#);
        let why = allows(&[delegation(&json)], &act("x", &[("unit", "a")])).unwrap_err();
        assert!(matches!(why, NotDelegated::Broken(_)), "{command}: {why}");
    }
}

#[test]
fn files_by_their_tidy_path() {
    let held = [delegation(
        r#"{"queries": [{"what": "file", "paths": ["/etc/*", "/var/log/app/**", "/srv/one", "relative/*", "/a/../**"]}]}"#,
    )];
    let read = |path: &str| allows(&held, &ask("file", Some(path))).map(|permitted| permitted.path.unwrap());
    for (path, tidy) in [
        ("/etc/hosts", "/etc/hosts"),
        ("/etc//./hosts/", "/etc/hosts"),
        ("//etc/.hidden", "/etc/.hidden"),
        ("/var/log/app/a/b/c.log", "/var/log/app/a/b/c.log"),
        ("/srv/one", "/srv/one"),
    ] {
        assert_eq!(read(path).as_deref(), Ok(tidy));
    }
    let refused = [
        "",
        "/",
        "etc/hosts",
        "relative/x",
        "/etc",
        "/etc/",
        "/etc/ssl/key",
        "/etc/..",
        "/etc/../root/.ssh/id",
        "/var/log/app/../../../etc/shadow",
        "/var/log/app/x/..",
        "/etc/hosts\0",
        "/etc/ho\nsts",
        "/srv/one/two",
        "/srv/onetwo",
        "/a/b",
        "/root/x",
        "-/etc/hosts",
    ];
    let all = [delegation(r#"{"queries": [{"what": "file", "paths": ["/*", "/**"]}]}"#)];
    assert!(allows(&all, &ask("file", Some("/"))).is_err());
    for path in refused {
        assert!(read(path).is_err(), "{path:?} is allowed");
    }
    assert_eq!(allows(&held, &ask("file", None)), Err(NotDelegated::Path));
}

#[test]
fn queries_by_their_word() {
    let held = [delegation(r#"{"queries": [{"what": "traits"}, {"what": "disks"}], "timeoutSecs": 5}"#)];
    assert_eq!(allows(&held, &ask("disks", None)).unwrap().timeout_secs, 5);
    for what in ["processes", "listeners", "", "Traits", "traits ", "all"] {
        assert!(matches!(allows(&held, &ask(what, None)), Err(NotDelegated::Query(_))), "{what}");
    }
    assert_eq!(allows(&held, &ask("traits", Some("/etc/shadow"))), Err(NotDelegated::Path));
    assert!(allows(&held, &ask("file", Some("/etc/hosts"))).is_err());
}

#[test]
fn several_count_together_and_the_longest_time_holds() {
    assert_eq!(allows(&[], &run(&["/bin/a"])), Err(NotDelegated::Nothing));
    let of = |secs: Option<u64>, command: &str| Delegation {
        timeout_secs: secs,
        ..commands(&[command]).remove(0)
    };
    let held = [of(Some(10), "/bin/a"), of(Some(20), "/bin/a"), of(None, "/bin/b"), of(Some(20), "/bin/a")];
    let found = |argv| allows(&held, &run(argv)).map(|permitted| (permitted.by, permitted.timeout_secs));
    assert_eq!(found(&["/bin/a"]), Ok((1, 20)));
    assert_eq!(found(&["/bin/b"]), Ok((2, MAX_TIMEOUT_SECS)));
    let wild = [of(Some(u64::MAX), "/bin/a")];
    assert_eq!(allows(&wild, &run(&["/bin/a"])).unwrap().timeout_secs, MAX_TIMEOUT_SECS);
    assert_eq!(found(&["/bin/c"]), Err(NotDelegated::Program("/bin/c".into())));
    assert_eq!(found(&["/bin/a", "x"]), Err(NotDelegated::Arguments("/bin/a".into())));
}

#[test]
fn refusals_repeat_no_argument() {
    let held = [delegation(RESTART), commands(&["/bin/a -u *"]).remove(0)];
    let secret = "hunter2";
    let works = [
        act("restart", &[("unit", secret)]),
        act("restart", &[("unit", "web-hunter2\n")]),
        run(&["/bin/a", secret]),
        run(&["/bin/b", secret]),
        run(&["/bin/a", "hunter2\0"]),
    ];
    for work in works {
        let why = allows(&held, &work).unwrap_err();
        assert!(!format!("{why} {why:?}").contains(secret), "{why:?}");
    }
    let long = allows(&held, &run(&[&format!("/{}", "x".repeat(4000))])).unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
}

#[test]
fn a_text_is_split_at_spaces_and_quotes_hold_together() {
    let words = |text: &str| split(text).unwrap();
    for (text, wanted) in [
        ("/bin/a b  c\t d", &["/bin/a", "b", "c", "d"][..]),
        ("/bin/a 'b c' \"d 'e\"", &["/bin/a", "b c", "d 'e"]),
        ("/bin/a x'y z'w ''", &["/bin/a", "xy zw", ""]),
        ("/bin/a $x `y` \\n *", &["/bin/a", "$x", "`y`", "\\n", "*"]),
    ] {
        assert_eq!(words(text), wanted, "{text}");
        assert_eq!(words(&show(&words(text))), wanted, "shown and read again: {text}");
    }
    let nasty = ["/bin/a", "", "'", "\"", "'\"", "a b", "it's \"so\""].map(str::to_owned);
    assert_eq!(words(&show(&nasty)), nasty);
    for text in ["", "  ", "/bin/a 'b", "/bin/a \"b'"] {
        assert!(split(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_allowed_reads_item_by_item() {
    let mut held = delegation(RESTART);
    held.commands = vec![split("/bin/a 'b c' **").unwrap()];
    held.queries =
        delegation(r#"{"queries": [{"what": "traits"}, {"what": "file", "paths": ["/etc/*"]}]}"#).queries;
    let items = permits(&held);
    let names: Vec<&str> = items.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "action copy",
            "action fixed",
            "action restart",
            "action verbose",
            "ask for traits",
            "read /etc/*",
            "run /bin/a 'b c' **"
        ]
    );
    let restart: BTreeMap<&str, &str> =
        items["action restart"].iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(
        restart,
        [("command", "/usr/bin/systemctl restart {unit}"), ("timeout", "1m"), ("{unit}", "web-*")].into()
    );
    assert_eq!(items["read /etc/*"]["timeout"], "10m");
}
