//! CNV-7, CNV-12: from an edit by hand to its repair, with thousands of managed files, and what the
//! daemon that watches them uses.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};
use test_support::programs::write;

use crate::daemon::Daemon;
use crate::figures::{millis, plain, quantile, row};
use crate::{PACKAGE, Sizes};

/// An edit that is not repaired within this is a failure, not a figure.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two looks at an edited file.
const PAUSE: Duration = Duration::from_millis(1);

pub fn measure(testbed: &Testbed, sizes: Sizes) {
    let mut fleet = BootedFleet::start(testbed);
    // As it is by default: what is repaired is repaired by events.
    write(
        &fleet.repo.join("fleet.yaml"),
        "format: 1\nname: e2e\nchannels:\n  slow: {contact: 1m, converge: 30m, jitter: 10%, freshness: 24h}\n\
         defaults: {channel: slow}\n",
    );
    fleet.module("app", &module(sizes.watched));
    let host = testbed.boot("many-1");
    if let Some(package) = std::env::var_os(PACKAGE) {
        host.install(&PathBuf::from(package));
    }
    fleet.publish();
    fleet.join(&host);
    fleet.until_converged(&host);
    println!("{} managed files", sizes.watched);
    edits(&host, sizes);
    idle(&host, sizes);
}

fn module(files: usize) -> String {
    let mut yaml = "resources:\n  - directory: /etc/bench\n".to_owned();
    for number in 0..files {
        let _ = writeln!(yaml, "  - file: {}\n    content: \"{}\"", path(number), right(number));
    }
    yaml
}

fn path(number: usize) -> String {
    format!("/etc/bench/{number:05}.conf")
}

fn right(number: usize) -> String {
    format!("setting = {number}")
}

fn edits(host: &BootedHost, sizes: Sizes) {
    let mut times = Vec::new();
    for edit in 0..sizes.edits {
        // Spread over all of them, each once.
        let number = edit * (sizes.watched / sizes.edits).max(1);
        let (file, right) = (host.path(&path(number)), right(number));
        fs::write(&file, "by hand\n").unwrap();
        let begun = Instant::now();
        while fs::read_to_string(&file).ok().as_deref() != Some(right.as_str()) {
            assert!(begun.elapsed() < LONGEST, "{} is not repaired", file.display());
            std::thread::sleep(PAUSE);
        }
        times.push(begun.elapsed());
    }
    plain("an edit by hand to its repair, p50", millis(quantile(&mut times, 0.5)), "ms");
    row("an edit by hand to its repair, p99", millis(quantile(&mut times, 0.99)), 2_000.0, "ms");
}

fn idle(host: &BootedHost, sizes: Sizes) {
    let daemon = Daemon::of(host);
    host.ok(["muster-agent", "apply"]);
    let share = daemon.idle_share(Duration::from_secs(sizes.idle_secs));
    let (now, most) = daemon.memory();
    row("processor of the idle daemon", share * 100.0, 0.1, "% of a core");
    plain("resident memory of the idle daemon", now, "MiB");
    row("resident memory at the peak", most, 30.0, "MiB");
    host.wait_until("it is still up", MINUTE, || {
        host.ok(["systemctl", "is-active", "muster-agent"]) == "active\n"
    });
}
