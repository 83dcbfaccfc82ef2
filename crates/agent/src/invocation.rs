//! Commands that people are told to type: with the options that this process was called with, so that
//! they act on the same host.

use std::path::PathBuf;
use std::sync::OnceLock;

use model::invocation::AgentInvocation;
use model::text::shell_word;

use crate::machine::MachineOptions;
use crate::service;

/// The options of this process that choose the host, as they are typed; empty for the whole host.
static OPTIONS: OnceLock<String> = OnceLock::new();

/// Remembers how this process was called. Before it, commands carry no options.
pub fn remember(options: &MachineOptions) {
    let option = |name: &str, dir: &Option<PathBuf>| {
        dir.as_deref()
            .map(|dir| format!(" --{name} {}", shell_word(&dir.display().to_string())))
            .unwrap_or_default()
    };
    let typed = option("state", &options.state) + &option("root", &options.root);
    // The first call counts: a process is called once.
    let _ = OPTIONS.set(typed);
}

/// A verb of this program, as it is to be typed for this host.
pub fn command(verb: &str) -> String {
    format!("muster-agent{} {verb}", options())
}

/// What starts the daemon of this host: its service, where there is one.
pub fn start_daemon() -> String {
    match options() {
        "" if service::is_installed() => "systemctl start muster-agent".to_owned(),
        _ => command("daemon"),
    }
}

/// What starts a daemon of this host anew that does not answer as it should.
pub fn restart_daemon() -> String {
    match options() {
        "" if service::is_installed() => "systemctl restart muster-agent".to_owned(),
        _ => format!("end it, then {}", command("daemon")),
    }
}

/// How a daemon that does not answer is made to: one that was stopped goes on, any other starts anew.
pub fn continue_daemon() -> String {
    format!("where it was stopped: kill -CONT its process; else {}", restart_daemon())
}

/// How this agent is called, as operators hear of it.
pub fn of_this_host() -> AgentInvocation {
    let of_the_unit = options().is_empty() && service::is_installed();
    let service = of_the_unit.then(|| service::SERVICE.to_owned());
    AgentInvocation { command: format!("muster-agent{}", options()), service }
}

fn options() -> &'static str {
    OPTIONS.get().map_or("", String::as_str)
}
