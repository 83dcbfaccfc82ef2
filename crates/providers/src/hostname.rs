//! `hostname` on a host: by hostnamed where it answers, and by the file and the kernel in any case.

use std::time::Duration;

use catalog::types::{HOSTNAME, HostnameSpec, MACHINE_INFO};
use converge::JobFailure;
use converge::kinds::hostname;
use host::Kernel;
use model::{Edit, Fields};

use crate::Kinds;
use crate::kinds::text;
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};
use crate::tools::ToolCall;

/// What talks to hostnamed.
const HOSTNAMECTL: &str = "/usr/bin/hostnamectl";
/// How long hostnamed may take; what it does not do is done without it.
const HOSTNAMED_TIMEOUT: Duration = Duration::from_secs(10);

impl StateProvider for HostnameSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let name = hostname::name_in(&kinds.text_file(HOSTNAME)?.unwrap_or_default());
        // Below a root that is not the machine's, the machine keeps its name.
        let in_kernel = if kinds.host.rooted() { name.clone() } else { Kernel::observe().hostname };
        let pretty = hostname::pretty_in(&kinds.text_file(MACHINE_INFO)?.unwrap_or_default());
        Ok(Some(Fields::from([
            ("hostname".to_owned(), name),
            ("in_kernel".to_owned(), in_kernel),
            ("pretty".to_owned(), pretty),
        ])))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { to, timeout, .. } = change;
        let Some(to) = to else { return Ok(None) };
        // Programs that listen to hostnamed hear of the change. Whatever it did or did not do is seen next.
        let told = tell_hostnamed(kinds, to, timeout.min(HOSTNAMED_TIMEOUT));
        let now = self.observe(kinds)?.unwrap_or_default();
        let differs = |name: &str| to.get(name).filter(|wanted| now.get(name) != Some(*wanted));
        if let Some(name) = differs("hostname") {
            match name.is_empty() {
                true => kinds.host.remove_file(HOSTNAME).map(drop).map_err(text)?,
                false => kinds.write_text(HOSTNAME, &format!("{name}\n"))?,
            }
        }
        if let Some(name) = differs("in_kernel").filter(|_| !kinds.host.rooted()) {
            Kernel::set_hostname(name)
                .map_err(|error| format!("the kernel refuses the name {name}: {error}"))?;
        }
        if let Some(pretty) = differs("pretty") {
            let file = kinds.text_file(MACHINE_INFO)?.unwrap_or_default();
            match hostname::with_pretty(&file, pretty) {
                new if new.is_empty() => kinds.host.remove_file(MACHINE_INFO).map(drop).map_err(text)?,
                new => kinds.write_text(MACHINE_INFO, &new)?,
            }
        }
        Ok(told.err())
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    fn works_below_root(&self) -> bool {
        true
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        hostname::note(edit)
    }
}

fn tell_hostnamed(kinds: &Kinds, to: &Fields, timeout: Duration) -> Result<(), String> {
    let there = |path: &str| kinds.host.exists(path).unwrap_or(false);
    if kinds.host.rooted() || !there("/run/systemd/system") || !there(HOSTNAMECTL) {
        return Ok(());
    }
    for (option, field) in [("--static", "hostname"), ("--pretty", "pretty")] {
        if let Some(name) = to.get(field) {
            let argv = [HOSTNAMECTL, "--no-ask-password", option, "set-hostname", "--", name];
            kinds.tool_succeeds(ToolCall::new(&argv, timeout))?;
        }
    }
    Ok(())
}
