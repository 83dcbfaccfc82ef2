//! CNV-7, CNV-12: from an edit by hand to its repair, with thousands of managed files, and what the
//! daemon that watches them uses.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use figures::{Figure, Unit};
use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};

use crate::Sizes;
use crate::daemon;
use crate::report;
use crate::timing::{millis, quantile};

/// An edit that is not repaired within this is a failure, not a figure.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two looks at an edited file.
const PAUSE: Duration = Duration::from_millis(1);

pub fn measure(testbed: &Testbed, sizes: Sizes) {
    let mut fleet = BootedFleet::start(testbed);
    let host = testbed.boot("many-1");
    daemon::converge(&mut fleet, &host, &module(sizes.watched));
    let mut rows = edits(&host, sizes);
    rows.extend(daemon::measure(&host, sizes));
    host.wait_until("it is still up", MINUTE, || {
        host.ok(["systemctl", "is-active", "muster-agent"]) == "active\n"
    });
    let title = format!("a host of {} managed files, {} edits by hand", sizes.watched, sizes.edits);
    report::table("hosts, repair", &title, rows, sizes.scale);
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

fn edits(host: &BootedHost, sizes: Sizes) -> Vec<Figure> {
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
    let p50 = millis(quantile(&mut times, 0.5));
    let p99 = millis(quantile(&mut times, 0.99));
    vec![
        Figure::plain("an edit by hand to its repair, p50", p50, Unit::Millis),
        Figure::at_most("an edit by hand to its repair, p99", p99, 2_000.0, Unit::Millis),
    ]
}
