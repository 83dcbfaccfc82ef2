//! An agent on a booted host that holds a set and knows no control plane.

use std::path::Path;
use std::process::Command;

use catalog::module::Module;
use model::{Action, ResourceReport, RunReport};
use test_support::agent_state;
use test_support::booted::BootedHost;
use test_support::programs::muster_agent;

pub const AGENT: &str = "/usr/local/bin/muster-agent";
pub const STATE: &str = "/var/lib/held";

/// The agent's program on a host, with a membership of a fleet that is nowhere.
pub struct HeldAgent<'h> {
    host: &'h BootedHost,
    seq: u64,
}

impl<'h> HeldAgent<'h> {
    pub fn install(host: &'h BootedHost) -> HeldAgent<'h> {
        HeldAgent::install_program(host, &muster_agent())
    }

    /// The same with another build of the program.
    pub fn install_program(host: &'h BootedHost, program: &Path) -> HeldAgent<'h> {
        host.copy_in(program, AGENT, 0o755);
        agent_state::join(&host.path(STATE), Path::new("/"), false);
        HeldAgent { host, seq: 0 }
    }

    /// Adopts a set of one module, given in the form in which it travels.
    pub fn holds(&mut self, module: serde_json::Value) {
        let module: Module = serde_json::from_value(module).unwrap();
        self.seq += 1;
        agent_state::adopt(&self.host.path(STATE), self.seq, vec![module]);
    }

    /// One run.
    pub fn apply(&self) -> RunReport {
        self.run(&["apply", "--once"])
    }

    /// What a run would change.
    pub fn plan(&self) -> RunReport {
        self.run(&["plan"])
    }

    /// The command that does a verb.
    pub fn command(&self, verb: &[&str]) -> Command {
        self.host.command([&[AGENT, "--state", STATE, "--json"], verb].concat())
    }

    fn run(&self, verb: &[&str]) -> RunReport {
        let output = self.command(verb).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
    }
}

/// What a report says of a resource of module `app`; `Ok` where it says nothing.
pub fn item(report: &RunReport, label: &str) -> (Action, String) {
    let id = format!("app/{label}");
    let of = |item: &&ResourceReport| item.resource == id;
    let found = report.items.iter().find(of);
    found.map_or((Action::Ok, String::new()), |item| (item.action, item.reason.clone().unwrap_or_default()))
}

/// Asserts that a run changed these resources of module `app`, and that nothing failed.
#[track_caller]
pub fn changed(report: &RunReport, labels: &[&str]) {
    let mut found: Vec<&str> = report.items.iter().map(|item| item.resource.as_str()).collect();
    found.sort_unstable();
    let mut wanted: Vec<String> = labels.iter().map(|label| format!("app/{label}")).collect();
    wanted.sort_unstable();
    assert_eq!(report.counts.failed, 0, "{:#?}", report.items);
    assert_eq!(found, wanted, "{:#?}", report.items);
}
