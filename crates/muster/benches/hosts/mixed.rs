//! CNV-1, SCL-1: a run that finds a mixed host right, beside the peers that can do it.

use serde_json::{Value, json};
use test_support::booted::{BootedHost, Testbed};

use crate::figures::{millis, plain, quantile, row, timed};
use crate::held::HeldAgent;
use crate::peers;
use crate::{Sizes, agent_program};

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

    fn module(&self) -> Value {
        let mut resources = vec![json!({"type": "directory", "name": "/etc/bench", "attributes": {}})];
        resources.extend(self.files.iter().map(|(path, content)| {
            json!({"type": "file", "name": path, "attributes": {"content": content, "mode": "0644"}})
        }));
        let named = |kind: &str, name: &String, attributes: Value| json!({"type": kind, "name": name, "attributes": attributes});
        resources.extend(self.packages.iter().map(|name| named("package", name, json!({}))));
        resources.extend(self.units.iter().map(|name| {
            named("service", name, json!({"unit": UNIT, "state": "running", "enabled": "true"}))
        }));
        resources.extend(self.users.iter().map(|name| named("user", name, json!({"shell": "/bin/sh"}))));
        json!({"name": "app", "resources": resources})
    }
}

pub fn measure(testbed: &Testbed, sizes: Sizes) {
    let host = testbed.boot("mixed-1");
    let mixed = MixedHost::of(&host, sizes);
    println!(
        "a mixed host: {} files, {} packages, {} units, {} users",
        mixed.files.len(),
        mixed.packages.len(),
        mixed.units.len(),
        mixed.users.len()
    );
    let mut agent = HeldAgent::install_program(&host, &agent_program());
    agent.holds(mixed.module());
    let first = agent.apply();
    assert_eq!(first.counts.failed, 0, "{:#?}", first.items);
    let second = agent.apply();
    assert_eq!((second.counts.changed, second.counts.failed), (0, 0), "{:#?}", second.items);
    let mut ours: Vec<_> =
        (0..sizes.times.max(3)).map(|_| timed(agent.command(&["apply", "--once"]))).collect();
    let ours = quantile(&mut ours, 0.5);
    plain("muster-agent apply --once, a no-op from cold", millis(ours), "ms");
    let peers = peers::measure(&host, &mixed, sizes.times);
    match peers.into_iter().min() {
        Some(best) => {
            row("the no-op to the best of the peers", ours.as_secs_f64() / best.as_secs_f64(), 0.1, "times")
        }
        None => println!("no peer could be installed: nothing to compare with in this run"),
    }
}
