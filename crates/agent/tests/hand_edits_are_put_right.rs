//! CNV-7: what is changed by hand below a managed root is put right at once by events, without a run of
//! everything; what fights is backed off, and its process is named by status and doctor; a directory that
//! is moved away and made again is watched again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::module::DeclaredResource;
use serde_json::{Value, json};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{file, module, resource};
use test_support::wait::until_blocking;

fn directory(path: &str) -> DeclaredResource {
    resource("directory", path, &[("mode", "0755".into())])
}

fn host(resources: Vec<DeclaredResource>) -> LocalHost {
    let mut base = module("base");
    base.resources = resources;
    let mut host = LocalHost::new(vec![base]);
    host.start();
    until_blocking("the host is watched", || {
        (host.json(&["status"])["daemon"]["watch"]["resources"].as_u64()? > 0).then_some(())
    });
    host
}

fn is_right(host: &LocalHost, path: &str, text: &str) -> Option<()> {
    (host.read(path).as_deref() == Some(text)).then_some(())
}

/// When the last run over everything began.
fn last_full_run(host: &LocalHost) -> Value {
    host.json(&["status"])["lastRun"]["started"].clone()
}

#[test]
fn content_mode_deletion_and_replacement_are_put_right_without_a_full_run() {
    let host =
        host(vec![directory("/etc/app"), file("/etc/app/conf", "right\n"), file("/etc/motd", "hello\n")]);
    let before = last_full_run(&host);
    host.write("etc/motd", "by hand\n");
    until_blocking("content is put right", || is_right(&host, "etc/motd", "hello\n"));

    std::fs::remove_file(host.root().join("etc/app/conf")).unwrap();
    until_blocking("a deleted file is made again", || is_right(&host, "etc/app/conf", "right\n"));

    let app = host.root().join("etc/app");
    std::fs::set_permissions(&app, std::fs::Permissions::from_mode(0o777)).unwrap();
    until_blocking("a mode is put right", || {
        (app.metadata().unwrap().permissions().mode() & 0o7777 == 0o755).then_some(())
    });

    // What an editor does: another file takes the name.
    host.write("etc/app/.new", "by hand\n");
    std::fs::rename(app.join(".new"), app.join("conf")).unwrap();
    until_blocking("a replaced file is put right", || is_right(&host, "etc/app/conf", "right\n"));

    // The whole directory is moved away: what is at its path is another one.
    std::fs::rename(&app, host.root().join("etc/away")).unwrap();
    until_blocking("a directory is made again", || is_right(&host, "etc/app/conf", "right\n"));
    host.write("etc/app/conf", "by hand\n");
    until_blocking("and watched again", || is_right(&host, "etc/app/conf", "right\n"));
    assert_eq!(last_full_run(&host), before, "a run over everything put it right");

    let status = printed(&host.agent(&["status"])).1;
    assert!(status.contains("watched        3 resources"), "{status}");
    let log = host.log();
    assert!(log.contains("was changed out of band"), "{log}");
}

#[test]
fn two_paths_to_one_directory_are_watched_for_both() {
    let mut base = module("base");
    // Of `/etc/link` only the entry `sub` is of interest, of `/etc/app` what is in its files.
    base.resources = vec![
        file("/etc/app/conf", "right\n"),
        file("/etc/link/sub/conf", "right\n"),
        file("/etc/motd", "hello\n"),
    ];
    let mut host = LocalHost::new(vec![base]);
    std::fs::create_dir_all(host.root().join("etc/app/sub")).unwrap();
    std::os::unix::fs::symlink("app", host.root().join("etc/link")).unwrap();
    host.start();
    until_blocking("both files are made", || {
        is_right(&host, "etc/app/conf", "right\n")
            .and_then(|()| is_right(&host, "etc/app/sub/conf", "right\n"))
    });
    let before = until_blocking("the first run has ended", || {
        Some(last_full_run(&host)).filter(|began| began.is_string())
    });
    // What a run writes is looked at once more, a second later. One resource is looked at once a second: after
    // these repairs all of that is over, and only an event leads to a look.
    for _ in 0..3 {
        host.write("etc/motd", "by hand\n");
        until_blocking("another file is put right", || is_right(&host, "etc/motd", "hello\n"));
    }
    host.write("etc/app/conf", "by hand\n");
    until_blocking("what is in a file is put right", || is_right(&host, "etc/app/conf", "right\n"));
    host.write("etc/app/sub/conf", "by hand\n");
    until_blocking("behind the link too", || is_right(&host, "etc/app/sub/conf", "right\n"));
    assert_eq!(last_full_run(&host), before, "a run over everything put it right");
}

#[test]
fn what_fights_is_backed_off_and_its_process_is_named() {
    let host = host(vec![file("/etc/motd", "hello\n")]);
    let stop = AtomicBool::new(false);
    let contended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            // It watches for the correction, as a tool that fights does.
            while !stop.load(Ordering::Relaxed) && std::time::Instant::now() < end {
                if host.read("etc/motd").as_deref() == Some("hello\n") {
                    host.write("etc/motd", "mine\n");
                }
                std::thread::yield_now();
            }
        });
        let contended = until_blocking("the fight is noticed, and named", || {
            let contended = host.json(&["status"])["daemon"]["watch"]["contended"][0].clone();
            let named = match is_root() {
                true => contended["culprit"]["pid"].is_u64(),
                // The kernel names others to root alone.
                false => contended["culpritUnknown"] == "refused",
            };
            (contended.is_object() && named).then_some(contended)
        });
        stop.store(true, Ordering::Relaxed);
        contended
    });
    assert_eq!(contended["resource"], "base/file:/etc/motd");
    let (_, doctor) = printed(&host.agent(&["doctor"]));
    let (_, why) = printed(&host.agent(&["why", "/etc/motd"]));
    for text in [doctor, why] {
        assert!(text.to_lowercase().contains("contended"), "{text}");
        assert!(!is_root() || text.contains(&format!("pid {}", std::process::id())), "{text}");
    }
    until_blocking("it is put right at the end", || is_right(&host, "etc/motd", "hello\n"));
    assert_ne!(contended["corrections"], json!(0));
}

#[test]
fn lost_events_lead_to_one_look_at_everything_that_is_counted() {
    let host = host(vec![file("/etc/motd", "hello\n"), file("/etc/issue", "issue\n")]);
    let pid = i32::try_from(host.json(&["status"])["daemon"]["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // Coming and going are events that the kernel does not merge.
    let other = host.root().join("etc/other");
    for _ in 0..queue / 2 + 1 {
        std::fs::write(&other, "x").unwrap();
        std::fs::remove_file(&other).unwrap();
    }
    host.write("etc/motd", "by hand\n");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    until_blocking("what was changed while events were lost is put right", || {
        is_right(&host, "etc/motd", "hello\n")
    });
    // The file is right before its run has ended.
    let scans = || host.json(&["status"])["daemon"]["watch"]["scans"].clone();
    until_blocking("the look is counted", || (scans() == 1).then_some(()));
    host.write("etc/issue", "by hand\n");
    until_blocking("and events count again", || is_right(&host, "etc/issue", "issue\n"));
    assert_eq!(host.json(&["status"])["daemon"]["watch"]["scans"], 1);
}

#[test]
fn a_limit_of_the_kernel_is_named_with_the_line_that_raises_it() {
    let paths = (0..10).map(|n| format!("/etc/app{n}/conf"));
    let mut base = module("base");
    for path in paths {
        base.resources.push(directory(path.trim_end_matches("/conf")));
        base.resources.push(file(&path, "right\n"));
    }
    let host = LocalHost::new(vec![base]);
    // A user namespace has a limit of its own.
    let daemon = host.command(&["daemon"]);
    let mut command = std::process::Command::new("unshare");
    let limited = "echo 4 > /proc/sys/user/max_inotify_watches && exec \"$0\" \"$@\"";
    command.args(["-Ur", "sh", "-c", limited]).arg(daemon.get_program()).args(daemon.get_args());
    let log = host.dir.join("limited.log");
    let mut limited = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let seen = until_blocking("the limit is told", || {
        if limited.try_wait().unwrap().is_some() {
            eprintln!("skipped: no user namespace here: {}", std::fs::read_to_string(&log).unwrap());
            return Some(Value::Null);
        }
        let output = host.agent(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        let watch = status["daemon"]["watch"].clone();
        (watch["unwatched"].as_u64()? > 0).then_some(watch)
    });
    if !seen.is_null() {
        assert_eq!(seen["limit"], "fs.inotify.max_user_watches", "{seen:#}");
        let doctor = printed(&host.agent(&["doctor"])).1;
        assert!(doctor.contains("sysctl fs.inotify.max_user_watches="), "{doctor}");
        let (_, applied) = printed(&host.agent(&["apply"]));
        assert_eq!(host.read("etc/app9/conf").as_deref(), Some("right\n"), "{applied}");
        // A directory that cannot be watched counts once, however often it comes and goes.
        let watch = || host.json(&["status"])["daemon"]["watch"].clone();
        let before = watch()["unwatched"].clone();
        for _ in 0..5 {
            std::fs::remove_dir_all(host.root().join("etc/app9")).unwrap();
            host.agent(&["apply"]);
            assert_eq!(host.read("etc/app9/conf").as_deref(), Some("right\n"));
        }
        let after = watch()["unwatched"].clone();
        assert!(after.as_u64() <= before.as_u64(), "the same directory was counted again: {before}, {after}");
        // What doctor says helps, without a restart.
        let pid = limited.id().to_string();
        let raised = std::process::Command::new("nsenter")
            .args(["--user", "--target", &pid, "sh", "-c", "echo 1000 > /proc/sys/user/max_inotify_watches"])
            .output()
            .unwrap();
        assert!(raised.status.success(), "{}", String::from_utf8_lossy(&raised.stderr));
        host.agent(&["apply"]);
        let watch = watch();
        assert_eq!((&watch["unwatched"], &watch["limit"]), (&json!(0), &Value::Null), "{watch:#}");
        host.write("etc/app9/conf", "by hand\n");
        until_blocking("it is healed by its events again", || is_right(&host, "etc/app9/conf", "right\n"));
    }
    limited.kill().unwrap();
    limited.wait().unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
