//! EXE-1: a first run of many packages, beside apt that installs the same ones on a host like it.

use figures::{Figure, Unit};
use serde_json::json;
use test_support::booted::{BootedHost, TestPackage, Testbed};

use crate::held::HeldAgent;
use crate::timing::{millis, quantile, timed};
use crate::{Sizes, agent_program, report};

/// Files of each package, so that unpacking is work.
const FILES: usize = 20;

pub fn measure(testbed: &Testbed, sizes: Sizes) {
    let names: Vec<String> = (0..sizes.packages).map(|number| format!("bench-{number:03}")).collect();
    let packages: Vec<TestPackage> = names.iter().map(|name| package(name)).collect();
    testbed.publish_packages(&packages);
    let [by_apt, by_agent] = testbed.boot_all(["apt-1", "agent-1"]);
    let mut agent = HeldAgent::install_program(&by_agent, &agent_program());
    let resources: Vec<_> =
        names.iter().map(|name| json!({"type": "package", "name": name, "attributes": {}})).collect();
    agent.holds(json!({"name": "app", "resources": resources}));
    let (mut apt, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..sizes.times {
        for host in [&by_apt, &by_agent] {
            purge(host, &names);
        }
        // In turn, so that both meet the same machine.
        apt.push(timed(by_apt.command(["sh", "-c", &install(&names)])));
        ours.push(timed(agent.command(&["apply", "--once"])));
    }
    let (apt, ours) = (quantile(&mut apt, 0.5), quantile(&mut ours, 0.5));
    let rows = vec![
        Figure::plain("apt", millis(apt), Unit::Millis),
        Figure::plain("the agent", millis(ours), Unit::Millis),
        Figure::at_most("the agent to apt", ours.as_secs_f64() / apt.as_secs_f64(), 1.2, Unit::Times),
    ];
    report::table("hosts, first", &format!("a first run of {} packages", names.len()), rows, sizes.scale);
}

fn package(name: &str) -> TestPackage {
    let file = |package: TestPackage, number: usize| {
        package.file(&format!("/usr/share/{name}/{number}"), &"content of a file\n".repeat(50))
    };
    (0..FILES).fold(TestPackage::new(name, "1.0"), file)
}

fn install(names: &[String]) -> String {
    format!("apt-get -q update && apt-get -q -y install {}", names.join(" "))
}

/// Neither the packages nor the lists of before are there.
fn purge(host: &BootedHost, names: &[String]) {
    host.sh(&format!("dpkg --purge {} 2>/dev/null; rm -rf /var/lib/apt/lists/*", names.join(" ")));
}
