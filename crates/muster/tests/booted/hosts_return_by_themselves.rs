//! ROL-7, ROL-10, ROL-12: a booted host goes back to its confirmed generation by itself, with the network down: the agent
//! killed, replaced by a program that ends at once, or gone with its unit; a reboot in mid-switch; a power cut at each
//! persistence point of a trial and of a return. It says so once there is a network again.
//!
//! The record is written here, as the daemon writes it; the switch to the generation on trial is the agent's own run.

use std::cell::RefCell;
use std::time::Duration;

use activation::{
    ActivationRecord, ActivationStage, ActivationTerms, BootTime, Generation, GenerationId, GenerationReturn,
    ProbeTopology, ReturnCause, Trial,
};
use agent::generations::{GenerationFiles, InstalledAgent, ReturnUnits, ReturnWatchdog};
use agent::state::{Durable, StateDir};
use model::Digest;
use node::Adoption;
use spool::{Disk, PeekedFile, StateFile};
use test_support::booted::{BootedFleet, BootedHost, MINUTE, Testbed};

const ONE: &str = "resources:\n  - file: /etc/hello\n    content: \"one\\n\"\n";
const TWO: &str = "resources:\n  - file: /etc/hello\n    content: \"two\\n\"\n  - file: /etc/extra\n    \
                   content: \"two\\n\"\n    on_remove: keep\n";
const STATE: &str = "/var/lib/muster";
const PROGRAM: &str = "/usr/bin/muster-agent";
const UNIT: &str = "/usr/lib/systemd/system/muster-agent.service";
const SECOND: Duration = Duration::from_secs(1);
/// The timer, a stop, a run of a debug build.
const BACK_WITHIN: Duration = Duration::from_secs(120);

/// A release as the host held it.
#[derive(Clone)]
struct HeldRelease {
    adoption: Adoption,
    contents: Vec<Vec<u8>>,
}

impl HeldRelease {
    fn read(host: &BootedHost) -> HeldRelease {
        let durable = durable(host);
        let adoption = durable.adoption().unwrap().unwrap();
        let contents = adoption.objects.values().map(|stub| durable.content(&stub.digest).unwrap()).collect();
        HeldRelease { adoption, contents }
    }

    fn id(&self) -> GenerationId {
        GenerationId(self.adoption.root)
    }

    fn keep(&self, durable: &Durable) {
        for bytes in &self.contents {
            durable.keep(bytes, Digest::of(bytes)).unwrap();
        }
    }
}

fn durable(host: &BootedHost) -> Durable {
    StateDir::at(&host.path(STATE), Disk::new()).open().unwrap()
}

/// The host's files of generations, seen from outside of it.
fn files(host: &BootedHost) -> GenerationFiles {
    let directories = vec![host.path("/etc/systemd/system/muster-agent.service.d")];
    let files = [UNIT, "/etc/systemd/system/muster-agent.service", "/etc/default/muster-agent"];
    let installed = InstalledAgent {
        program: host.path(PROGRAM),
        files: files.map(|file| host.path(file)).to_vec(),
        directories,
    };
    let units = ReturnUnits::at(&host.path("/etc/systemd/system"), &"/bin/true".as_ref(), &Disk::new());
    GenerationFiles::with(&host.path(STATE), &Disk::new(), installed, ReturnWatchdog::Units(units))
}

/// A host that is unplugged, with a confirmed release and one to try.
struct TriedHost<'a> {
    host: &'a BootedHost,
    one: HeldRelease,
    two: HeldRelease,
    program: Vec<u8>,
    boots: RefCell<Vec<String>>,
}

impl TriedHost<'_> {
    fn boot_id(&self) -> String {
        self.host.sh("cat /proc/sys/kernel/random/boot_id").trim().to_owned()
    }

    fn hello(&self) -> Option<String> {
        self.host.read("/etc/hello")
    }

    /// The agent is stopped on its confirmed generation, and what a trial begins with is there.
    fn arm(&self) -> ActivationRecord {
        let host = self.host;
        host.ok(["systemctl", "stop", "muster-agent"]);
        let files = files(host);
        let durable = durable(host);
        self.two.keep(&durable);
        let before = files.load(&durable, &agent::generations::boot_moment().unwrap()).unwrap().record;
        assert_eq!(before.confirmed.id, self.one.id());
        let target = files.keep(&durable, &self.two.adoption).unwrap();
        let record = ActivationRecord { under_way: self.trial(target, Stage::Armed), ..before };
        files.arm(&durable, &record).unwrap();
        self.translate();
        host.sh("systemctl daemon-reload && systemctl start muster-return.timer");
        record
    }

    /// What was written from outside names the paths of the host as it knows them.
    fn translate(&self) {
        let host = self.host;
        let outside = host.path("/").display().to_string();
        let outside = outside.trim_end_matches('/');
        let agent_file = host.path(&format!("{STATE}/generations/{}/agent.json", self.one.id().0));
        let agent: StateFile<serde_json::Value> = StateFile::new(&Disk::new(), agent_file, 0o600);
        let PeekedFile::Value(value) = agent.peek().unwrap() else { panic!("the agent is kept") };
        agent.store(&serde_json::from_str(&value.to_string().replace(outside, "")).unwrap()).unwrap();
        let service = "/etc/systemd/system/muster-return.service";
        host.write(service, host.read(service).unwrap().replace(outside, ""), 0o644);
        for (target, unit) in [("multi-user", "service"), ("timers", "timer")] {
            let unit = format!("/etc/systemd/system/muster-return.{unit}");
            let wants = format!("/etc/systemd/system/{target}.target.wants/");
            host.ok(["ln", "-sf", &unit, &wants]);
        }
    }

    fn trial(&self, target: Generation, stage: Stage) -> ActivationStage {
        let trial = Trial {
            target,
            boot: self.boot_id().parse().unwrap(),
            deadline: match stage {
                Stage::Armed => agent::generations::boot_moment().unwrap().at.plus(3600 * SECOND),
                // The machine is up for longer than that.
                Stage::Confirming => BootTime::BOOT,
            },
            switched: BootTime::BOOT,
            next_try: 0,
            deaths: 0,
            boots_left: 0,
            terms: ActivationTerms::default(),
            probes: ProbeTopology::default(),
        };
        match stage {
            Stage::Armed => ActivationStage::Armed(trial),
            Stage::Confirming => ActivationStage::Confirming(trial),
        }
    }

    /// The agent makes the host as the generation on trial has it, and is stopped again.
    fn switch(&self) {
        let host = self.host;
        files(host).leave().unwrap();
        durable(host).adopt(&self.two.adoption).unwrap();
        host.ok(["systemctl", "start", "muster-agent"]);
        host.wait_until("the release on trial is in place", MINUTE, || {
            host.read("/etc/extra").is_some() && self.hello().as_deref() == Some("two\n")
        });
        host.ok(["systemctl", "stop", "muster-agent"]);
        files(host).arrive(self.two.id()).unwrap();
    }

    /// A host whose generation on trial is to be confirmed, and whose time for it is over.
    fn try_two(&self) {
        let record = self.arm();
        files(self.host).persist(&record).unwrap();
        self.switch();
        let target = Generation { id: self.two.id(), seq: self.two.adoption.seq, bytes: 0 };
        let record = ActivationRecord { under_way: self.trial(target, Stage::Confirming), ..record };
        files(self.host).persist(&record).unwrap();
    }

    /// The host is on its confirmed generation, and its agent runs and keeps it so.
    #[track_caller]
    fn assert_comes_back(&self, when: &str) {
        let host = self.host;
        host.wait_until(&format!("{when}: the host is back"), BACK_WITHIN, || {
            let PeekedFile::Value(record) = files(host).peek().unwrap() else { return false };
            record.under_way == ActivationStage::Settled
                && host.read("/etc/systemd/system/muster-return.timer").is_none()
        });
        assert_eq!(self.hello().as_deref(), Some("one\n"), "{when}");
        assert_eq!(host.read("/etc/extra"), None, "{when}");
        assert_eq!(std::fs::read(host.path(PROGRAM)).unwrap(), self.program, "{when}");
        host.wait_until(&format!("{when}: the agent runs"), MINUTE, || {
            host.run(["systemctl", "is-active", "--quiet", "muster-agent"]).status.success()
        });
        host.write("/etc/hello", "by hand\n", 0o644);
        host.wait_until(&format!("{when}: the agent keeps the host"), MINUTE, || {
            self.hello().as_deref() == Some("one\n")
        });
        let failed = host.sh("systemctl --failed --no-legend --plain");
        assert_eq!(failed, "", "{when}");
        self.boots.borrow_mut().push(self.boot_id());
    }

    /// The power goes, and comes again.
    fn cut_power(&self) {
        self.host.kill();
        self.host.power_on();
    }
}

/// What a trial waits for.
#[derive(Clone, Copy)]
enum Stage {
    /// The end of its switch, which has an hour.
    Armed,
    /// To be confirmed, and its time is over.
    Confirming,
}

fn unplugged<'a>(fleet: &mut BootedFleet, host: &'a BootedHost) -> TriedHost<'a> {
    fleet.join(host);
    fleet.module("hello", TWO);
    fleet.publish_until_converged(&[host]);
    host.ok(["systemctl", "stop", "muster-agent"]);
    let two = HeldRelease::read(host);
    host.ok(["systemctl", "start", "muster-agent"]);
    fleet.module("hello", ONE);
    fleet.publish_until_converged(&[host]);
    host.unplug();
    host.ok(["systemctl", "stop", "muster-agent"]);
    let one = HeldRelease::read(host);
    // What `keep` left of the first release is not what this test is about.
    host.ok(["rm", "-f", "/etc/extra"]);
    host.ok(["systemctl", "start", "muster-agent"]);
    let program = std::fs::read(host.path(PROGRAM)).unwrap();
    TriedHost { host, one, two, program, boots: RefCell::default() }
}

#[test]
fn whatever_became_of_the_agent() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    let tried = unplugged(&mut fleet, &web);

    tried.try_two();
    tried.assert_comes_back("with the agent stopped and the network down");

    tried.try_two();
    web.copy_in("/bin/false".as_ref(), PROGRAM, 0o755);
    web.ok(["systemctl", "start", "--no-block", "muster-agent"]);
    tried.assert_comes_back("with the agent replaced by a program that ends at once");

    tried.try_two();
    web.ok(["rm", UNIT, PROGRAM]);
    web.write(
        "/etc/systemd/system/muster-agent.service.d/broken.conf",
        "[Service]\nExecStartPre=/bin/false\n",
        0o644,
    );
    web.ok(["systemctl", "daemon-reload"]);
    tried.assert_comes_back("with the program and its unit deleted");
    assert_eq!(web.read("/etc/systemd/system/muster-agent.service.d/broken.conf"), None);

    // Nothing of it was lost: who has a network again says it.
    web.plug_in();
    web.wait_until("the returns are told", MINUTE, || {
        let facts = fleet.server.ok(&["node", "facts", "web-1", "--limit", "500"]);
        facts.contains("took this host from generation")
    });
}

#[test]
fn whenever_it_went_down() {
    let Some(testbed) = Testbed::open() else { return };
    let mut fleet = BootedFleet::start(&testbed);
    let web = testbed.boot("web-1");
    let tried = unplugged(&mut fleet, &web);
    let files = || files(&web);

    let record = tried.arm();
    files().persist(&record).unwrap();
    files().leave().unwrap();
    durable(&web).adopt(&tried.two.adoption).unwrap();
    web.write("/etc/hello", "two\n", 0o644);
    web.reboot();
    tried.assert_comes_back("after a reboot in mid-switch");

    tried.arm();
    tried.cut_power();
    tried.assert_comes_back("after a power cut: armed, and the record not written");

    let record = tried.arm();
    files().persist(&record).unwrap();
    tried.cut_power();
    tried.assert_comes_back("after a power cut: the record written, nothing switched");

    let record = tried.arm();
    files().persist(&record).unwrap();
    files().leave().unwrap();
    tried.cut_power();
    tried.assert_comes_back("after a power cut: the mark taken away");

    let record = tried.arm();
    files().persist(&record).unwrap();
    tried.switch();
    tried.cut_power();
    tried.assert_comes_back("after a power cut: switched, and that not recorded");

    tried.try_two();
    tried.cut_power();
    tried.assert_comes_back("after a power cut: to be confirmed");

    let record = tried.arm();
    files().persist(&record).unwrap();
    tried.switch();
    // It would look in the middle of what follows, and not only after the boot.
    web.ok(["systemctl", "stop", "muster-return.timer"]);
    let returning = ActivationStage::Returning(GenerationReturn {
        from: Generation { id: tried.two.id(), seq: tried.two.adoption.seq, bytes: 0 },
        cause: ReturnCause::NotConfirmed,
        boot: tried.boot_id().parse().unwrap(),
        deadline: agent::generations::boot_moment().unwrap().at.plus(3600 * SECOND),
    });
    files().persist(&ActivationRecord { under_way: returning, ..record }).unwrap();
    files().leave().unwrap();
    durable(&web)
        .adopt(&Adoption { floor: tried.two.adoption.floor.clone(), ..tried.one.adoption.clone() })
        .unwrap();
    tried.cut_power();
    tried.assert_comes_back("after a power cut: in the middle of a return");
    assert_eq!(
        tried.boots.borrow().iter().collect::<std::collections::BTreeSet<_>>().len(),
        7,
        "each was a boot"
    );
}
