//! [`AgentInvocation`]: how the agent of a host is called there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest command or service, in bytes.
const MAX_TEXT: usize = 300;

/// How the agent of a host runs there, by its own word: next steps name only what exists on that host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentInvocation {
    /// The program with the options that choose the host, as people type it there.
    pub command: String,
    /// The service that runs the daemon; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

impl Default for AgentInvocation {
    /// What exists wherever the program is installed.
    fn default() -> AgentInvocation {
        AgentInvocation { command: "muster-agent".to_owned(), service: None }
    }
}

impl AgentInvocation {
    /// What operators may be told to type: nothing but the program, its options and plain paths, as a node
    /// says it.
    pub fn is_plain(&self) -> bool {
        let plain = |text: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b" /._-=@".contains(&byte);
            text.len() <= MAX_TEXT && text.bytes().all(allowed)
        };
        let (program, options) = self.command.split_once(' ').unwrap_or((&self.command, ""));
        program == "muster-agent"
            && plain(options)
            && self.service.as_deref().is_none_or(|service| plain(service) && !service.contains(' '))
    }

    /// A verb of the agent, as it is typed on that host.
    pub fn verb(&self, verb: &str) -> String {
        format!("{} {verb}", self.command)
    }

    /// What starts an agent that does not run.
    pub fn start(&self) -> String {
        match &self.service {
            Some(service) => format!("systemctl start {}", service.trim_end_matches(".service")),
            None => self.verb("daemon"),
        }
    }

    /// What looks at an agent that is silent.
    pub fn inspect(&self) -> String {
        match &self.service {
            Some(service) => format!("systemctl status {}", service.trim_end_matches(".service")),
            None => self.verb("doctor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_plain_is_repeated() {
        let of = |command: &str, service: Option<&str>| AgentInvocation {
            command: command.to_owned(),
            service: service.map(str::to_owned),
        };
        for (command, service, plain) in [
            ("muster-agent", Some("muster-agent.service"), true),
            ("muster-agent --state /srv/a/state --root /srv/a/root", None, true),
            ("muster-agent; rm -rf /", None, false),
            ("sh -c id", None, false),
            ("muster-agent --state $(id)", None, false),
            ("muster-agent", Some("x; id"), false),
            ("muster-agent --state /a\n", None, false),
        ] {
            assert_eq!(of(command, service).is_plain(), plain, "{command} {service:?}");
        }
        assert_eq!(
            of("muster-agent", Some("muster-agent.service")).inspect(),
            "systemctl status muster-agent"
        );
        assert_eq!(of("muster-agent --root /r", None).inspect(), "muster-agent --root /r doctor");
    }
}
