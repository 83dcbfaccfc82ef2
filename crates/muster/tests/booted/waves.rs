//! [`BootedWaves`]: three booted hosts whose releases go to a canary first, and what holds after each.
//! [`play`] runs several of them side by side.

use std::path::Path;
use std::time::{Duration, Instant};

use activation::{ActivationRecord, ActivationStage, GenerationLimits};
use serde_json::Value;
use spool::{Disk, PeekedFile, StateFile};
use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};
use test_support::programs::write;

/// The agent's state on a host.
const STATE: &str = "/var/lib/muster";
const PROGRAM: &str = "/usr/bin/muster-agent";
/// What is kept of generations.
const GENERATIONS: &str = "/var/lib/muster/generations";
/// Of a generation's directory, whose name is its digest.
const DIGEST_LENGTH: usize = 64;
/// The shortest window that a release may say, what the watchdog leaves to an agent that lives, its timer, a stop and a
/// run of a debug build.
pub const BACK_WITHIN: Duration = Duration::from_secs(180);
/// Between two looks at a host that is about to be cut off.
const LOOK: Duration = Duration::from_millis(1);
/// A settled host keeps no program; adoptions and their objects are a few KiB each.
const MOST_KEPT: u64 = 1024 * 1024;

/// What every release makes of a host, beside what is bad in it.
pub fn hello(text: &str) -> String {
    format!("resources:\n  - file: /etc/hello\n    content: \"{text}\\n\"\n")
}

/// What happens on three hosts of its own.
pub struct WaveLine {
    /// How long the canary soaks before others get the release, as the fleet repo says it.
    pub soak: &'static str,
    /// The section `probes` of the fleet repo.
    pub probes: &'static str,
    /// What happens.
    pub play: fn(&mut BootedWaves),
}

/// Runs lines side by side; says why not, where hosts cannot be booted.
pub fn play<const N: usize>(lines: [WaveLine; N]) {
    let testbeds = lines.each_ref().map(|_| Testbed::open());
    std::thread::scope(|scope| {
        for (line, testbed) in lines.iter().zip(testbeds) {
            let Some(testbed) = testbed else { return };
            scope.spawn(move || (line.play)(&mut BootedWaves::start(&testbed, line)));
        }
    });
}

/// A control plane and three hosts, each on the confirmed release that says `hello`.
pub struct BootedWaves {
    pub fleet: BootedFleet,
    pub hosts: [BootedHost; 3],
    program: Vec<u8>,
    untouched: [String; 2],
    confirmed: String,
}

impl BootedWaves {
    /// Boots and joins the hosts, gives them a first release, and declares the waves of the later ones.
    fn start(testbed: &Testbed, line: &WaveLine) -> BootedWaves {
        let mut fleet = BootedFleet::start(testbed);
        let hosts = testbed.boot_all(["web-1", "web-2", "web-3"]);
        std::thread::scope(|scope| {
            for host in &hosts {
                scope.spawn(|| fleet.join(host));
            }
        });
        fleet.module("hello", &hello("first"));
        let [one, two, three] = &hosts;
        fleet.publish_until_converged(&[one, two, three]);
        declare(&fleet, line.soak, line.probes);
        let program = std::fs::read(one.path(PROGRAM)).unwrap();
        let untouched = [touched(two), touched(three)];
        BootedWaves { fleet, hosts, program, untouched, confirmed: "first\n".to_owned() }
    }

    /// The host that every release reaches first.
    pub fn canary(&self) -> &BootedHost {
        &self.hosts[0]
    }

    /// Declares other waves and probes for later releases.
    pub fn declare(&self, soak: &str, probes: &str) {
        declare(&self.fleet, soak, probes);
    }

    /// Adds a file to the module, for its resources to name as their source.
    pub fn add_file(&self, name: &str, from: &Path) {
        let files = self.fleet.repo.join("modules/hello/files");
        std::fs::create_dir_all(&files).unwrap();
        std::fs::copy(from, files.join(name)).unwrap();
    }

    /// Publishes a release in which the module has this text; gives its rollout's id.
    pub fn publish(&mut self, yaml: &str) -> String {
        self.fleet.module("hello", yaml);
        self.fleet.publish();
        self.rollout()["id"].as_str().unwrap().to_owned()
    }

    /// The channel's newest rollout.
    pub fn rollout(&self) -> Value {
        self.fleet.server.json(&["rollout", "show", "fast"])
    }

    /// The release stopped in its first wave, the canary is back on what it had and says why, and no other host changed.
    #[track_caller]
    pub fn assert_undone(&self, when: &str, rollout: &str, cause: &str) {
        let view = self.assert_reverted(when, rollout);
        let halt = view["halt"]["cause"].as_str().unwrap_or_default();
        assert!(halt.contains("wave canary") && halt.contains("web-1"), "{when}: {view:#}");
        let why = self.fleet.server.ok(&["rollout", "explain", "web-1"]);
        assert!(why.contains(cause), "{when}: {cause:?} is not in {why}");
    }

    /// The same of one that was halted for any reason; gives how the rollout stands.
    #[track_caller]
    pub fn assert_reverted(&self, when: &str, rollout: &str) -> Value {
        let began = Instant::now();
        let is_told = |view: &Value| {
            view["state"] == "Reverted"
                || view["state"] == "Failed" && view["halt"]["goesBack"] == Value::Bool(false)
        };
        self.await_rollout(&format!("{when}: it says so"), is_told);
        let told = began.elapsed();
        self.canary().wait_until(&format!("{when}: nothing is under way"), MINUTE, || self.is_settled());
        assert_eq!(self.canary().read("/etc/hello").as_ref(), Some(&self.confirmed), "{when}");
        self.assert_keeps(when);
        let view = self.rollout();
        assert_eq!(view["id"], rollout, "{when}: {view:#}");
        let watched = self.fleet.server.muster(&["rollout", "watch", "fast"]);
        assert_eq!(watched.status.code(), Some(3), "{when}: it halted");
        // A fleet that is not as it should be is exit code 3.
        let status = self.fleet.server.muster(&["status"]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        let halt = view["halt"]["cause"].as_str().unwrap_or_default();
        assert!(!halt.is_empty() && status.contains(halt), "{when}: {halt:?} is not in {status}");
        for (host, before) in self.hosts[1..].iter().zip(&self.untouched) {
            assert_eq!(touched(host), *before, "{when}: {} changed", host.name());
        }
        eprintln!("{when}: told {:.1} s later", told.as_secs_f32());
        view
    }

    /// Waits until the rollout stands like that.
    #[track_caller]
    fn await_rollout(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        self.canary().wait_until(what, BACK_WITHIN, || is_so(&self.rollout()));
    }

    /// The release went through, on all hosts.
    #[track_caller]
    pub fn assert_confirmed(&mut self, when: &str, content: &str) {
        let began = Instant::now();
        self.confirmed = content.to_owned();
        self.await_rollout(&format!("{when}: it is through"), |view| view["state"] == "Terminal");
        for host in &self.hosts {
            assert_eq!(host.read("/etc/hello").as_deref(), Some(content), "{when}: {}", host.name());
        }
        self.canary().wait_until(&format!("{when}: nothing is under way"), MINUTE, || self.is_settled());
        self.assert_keeps(when);
        self.untouched = [touched(&self.hosts[1]), touched(&self.hosts[2])];
        eprintln!("{when}: confirmed {:.1} s later", began.elapsed().as_secs_f32());
    }

    /// Nothing is under way on the canary, and no watchdog is armed.
    fn is_settled(&self) -> bool {
        let canary = self.canary();
        record(canary).is_some_and(|record| record.under_way == ActivationStage::Settled)
            && canary.read("/etc/systemd/system/muster-return.timer").is_none()
    }

    /// The canary's agent is the installed one, runs, keeps the host as it was, and keeps no more than it may.
    fn assert_keeps(&self, when: &str) {
        let canary = self.canary();
        canary.wait_until(&format!("{when}: the agent runs"), MINUTE, || {
            canary.run(["systemctl", "is-active", "--quiet", "muster-agent"]).status.success()
        });
        assert_eq!(std::fs::read(canary.path(PROGRAM)).unwrap(), self.program, "{when}");
        let edit = "by hand\n";
        canary.write("/etc/hello", edit, 0o644);
        canary.wait_until(&format!("{when}: the agent keeps the host"), MINUTE, || {
            canary.read("/etc/hello").as_ref() == Some(&self.confirmed)
        });
        assert_eq!(canary.sh("systemctl --failed --no-legend --plain"), "", "{when}");
        let kept = self.generations().len();
        assert!(kept <= GenerationLimits::default().count, "{when}: {kept} generations are kept");
        let bytes = size(&canary.path(GENERATIONS));
        assert!(bytes <= MOST_KEPT, "{when}: {bytes} bytes of generations are kept");
    }

    /// The generations of which something is on the canary's disk, in order.
    pub fn generations(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.canary().path(GENERATIONS)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.len() == DIGEST_LENGTH).collect();
        names.sort();
        names
    }

    /// Waits until the canary's activation is at a moment, and cuts the power there.
    #[track_caller]
    pub fn cut_power_when(&self, moment: &str, is_reached: impl Fn(&BootedHost) -> bool) {
        self.until(moment, is_reached);
        self.canary().kill();
        self.canary().power_on();
    }

    /// Waits until the canary's activation is at a moment that may be short.
    #[track_caller]
    pub fn until(&self, moment: &str, is_reached: impl Fn(&BootedHost) -> bool) {
        let began = Instant::now();
        while !is_reached(self.canary()) {
            assert!(began.elapsed() < MINUTE, "not seen: {moment}: {:#}", self.rollout());
            std::thread::sleep(LOOK);
        }
    }
}

/// One host first, and the others after it was confirmed; what fails goes back.
fn declare(fleet: &BootedFleet, soak: &str, probes: &str) {
    let yaml = format!(
        "rollouts:\n  fast:\n    waves:\n      - {{name: canary, nodes: [web-1], gate: {{soak: {soak}}}}}\n      \
         - {{name: rest, gate: {{soak: 1s}}}}\n    onFailure: rollback\n    confirm: {{window: 1m}}\n{probes}"
    );
    write(&fleet.repo.join("rollouts.yaml"), &yaml);
}

/// The record of a host's activations, seen from outside of it.
pub fn record(host: &BootedHost) -> Option<ActivationRecord> {
    let file = host.path(&format!("{STATE}/activation.json"));
    let file: StateFile<ActivationRecord> = StateFile::new(&Disk::new(), file, 0o600);
    match file.peek() {
        Ok(PeekedFile::Value(record)) => Some(record),
        _ => None,
    }
}

/// A file of the agent's state.
pub fn state_file(host: &BootedHost, name: &str) -> Option<String> {
    host.read(&format!("{STATE}/{name}"))
}

/// What changes when a release touches a host: what it holds, the file that every release writes, the units.
fn touched(host: &BootedHost) -> String {
    host.sh(
        "stat -c '%n %i %Y %Z' /etc/hello /usr/bin/muster-agent /etc/systemd/system; ls /etc/systemd/system",
    )
}

fn size(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size(&entry.path()),
        _ => entry.metadata().map_or(0, |data| data.len()),
    };
    entries.map(of).sum()
}
