//! CNV-1, CNV-12, SCL-1: what the daemon of a mixed host uses, and a run that finds the host right beside the
//! peers that can do it.

use std::time::Duration;

use figures::{Figure, Unit};
use model::RunReport;
use serde_json::json;
use test_support::booted::{BootedFleet, BootedHost, Testbed};

use crate::timing::{millis, quantile, timed};
use crate::{Sizes, daemon, peers, report};

/// What a mixed host has.
pub struct MixedHost {
    pub files: Vec<(String, String)>,
    pub packages: Vec<String>,
    pub units: Vec<String>,
    pub users: Vec<String>,
}

/// A service that stays up and does nothing.
const UNIT: &str = "[Unit]\nDescription=bench\n[Service]\nExecStart=/bin/sleep infinity\n\
                    [Install]\nWantedBy=multi-user.target\n";

impl MixedHost {
    /// Its packages are ones that the host has.
    fn of(host: &BootedHost, sizes: Sizes) -> MixedHost {
        let numbered = |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect();
        let installed = host.ok(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"]);
        let installed = installed.lines().filter_map(|line| line.strip_prefix("installed "));
        MixedHost {
            files: (0..sizes.files)
                .map(|number| (format!("/etc/bench/{number:04}.conf"), format!("setting = {number}\n")))
                .collect(),
            packages: installed.take(sizes.packages).map(str::to_owned).collect(),
            units: numbered(sizes.units, &|number| format!("bench-{number:02}")),
            users: numbered(sizes.users, &|number| format!("bench{number:02}")),
        }
    }

    /// Its module in the fleet repo: YAML reads JSON.
    fn module(&self) -> String {
        let files = self.files.iter();
        let files = files.map(|(path, content)| json!({"file": path, "content": content, "mode": "0644"}));
        let packages = self.packages.iter().map(|name| json!({"package": name}));
        let units = self.units.iter();
        let units =
            units.map(|name| json!({"service": name, "unit": UNIT, "state": "running", "enabled": true}));
        let users = self.users.iter().map(|name| json!({"type": "user", "name": name, "shell": "/bin/sh"}));
        let mut resources = vec![json!({"directory": "/etc/bench"})];
        resources.extend(files.chain(packages).chain(units).chain(users));
        json!({ "resources": resources }).to_string()
    }
}

pub fn measure(testbed: &Testbed, sizes: Sizes) {
    let mut fleet = BootedFleet::start(testbed);
    let host = testbed.boot("mixed-1");
    let mixed = MixedHost::of(&host, sizes);
    let title = format!(
        "a mixed host of {} files, {} packages, {} units, {} users",
        mixed.files.len(),
        mixed.packages.len(),
        mixed.units.len(),
        mixed.users.len()
    );
    daemon::converge(&mut fleet, &host, &mixed.module());
    let mut rows = daemon::measure(&host, sizes);
    host.ok(["systemctl", "stop", "muster-agent"]);
    let apply = ["muster-agent", "--json", "apply", "--once"];
    let report: RunReport = serde_json::from_str(&host.ok(apply)).unwrap();
    assert_eq!((report.counts.changed, report.counts.failed), (0, 0), "{:#?}", report.items);
    let mut ours: Vec<_> = (0..sizes.times.max(3)).map(|_| timed(host.command(apply))).collect();
    let ours = quantile(&mut ours, 0.5);
    rows.push(Figure::plain("apply --once, a no-op from cold", millis(ours), Unit::Millis));
    let peers = peers::measure(&host, &mixed, sizes.times);
    let ratio = |peer: Duration| ours.as_secs_f64() / peer.as_secs_f64();
    for peer in &peers {
        rows.push(Figure::plain(peer.name, millis(peer.median), Unit::Millis));
        rows.push(Figure::plain(format!("the no-op to {}", peer.name), ratio(peer.median), Unit::Times));
    }
    match peers.iter().map(|peer| peer.median).min() {
        Some(best) => rows.push(Figure::at_most("the no-op to the best peer", ratio(best), 0.1, Unit::Times)),
        None => println!("no peer could be installed: nothing to compare with in this run"),
    }
    report::table("hosts, mixed", &title, rows, sizes.scale);
}
