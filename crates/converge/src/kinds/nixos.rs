//! `nixos`: how the unit of a switch stands, and whether a system asks for a boot (ROL-10).

/// How the unit of a switch stands. It outlives the agent that began it, and one that failed is known until its failure was
/// taken notice of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NixosSwitchUnit {
    /// It runs, or nobody knows.
    UnderWay,
    /// There is none, or it ended well.
    Ended,
    /// It failed.
    Failed {
        /// The system that was switched to: the unit's description.
        system: String,
        /// What systemd says of it.
        why: String,
    },
}

/// What is asked of systemd (`systemctl show --property=`).
pub const SWITCH_UNIT_PROPERTIES: &str = "ActiveState,Result,ExecMainStatus,Description";

impl NixosSwitchUnit {
    /// Reads what `systemctl show` prints of these properties.
    pub fn read(printed: &str) -> NixosSwitchUnit {
        let value = |name: &str| {
            printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
        };
        match value("ActiveState") {
            "inactive" => NixosSwitchUnit::Ended,
            "failed" => {
                let why = match (value("Result"), value("ExecMainStatus")) {
                    ("exit-code", status) => format!("it exited with {status}"),
                    ("timeout", _) => "it did not end in its time".to_owned(),
                    (result, _) => format!("systemd says {result}"),
                };
                NixosSwitchUnit::Failed { system: value("Description").to_owned(), why }
            }
            // `activating`, `active`, `deactivating`; nothing while systemd executes itself anew.
            _ => NixosSwitchUnit::UnderWay,
        }
    }

    /// Why the switch to a system failed, if that is what it did.
    pub fn failure_of(&self, wanted: &str) -> Option<&str> {
        match self {
            NixosSwitchUnit::Failed { system, why } if system == wanted => Some(why),
            _ => None,
        }
    }
}

/// The parts of a system that only a boot changes, as links in its directory.
pub const BOOTED_PARTS: [&str; 3] = ["kernel", "initrd", "kernel-modules"];

/// Which part of a system asks for a boot: it is another one than that of the system that was booted. Each is where its
/// link leads to; what is not known asks for nothing.
pub fn asks_for_boot(parts: &[(Option<String>, Option<String>); BOOTED_PARTS.len()]) -> Option<&'static str> {
    let differs = |(booted, now): &(Option<String>, Option<String>)| {
        booted.as_ref().zip(now.as_ref()).is_some_and(|(booted, now)| booted != now)
    };
    BOOTED_PARTS.into_iter().zip(parts).find(|(_, part)| differs(part)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_read_as_systemd_shows_it() {
        let shown = |state: &str, result: &str, status: u8| {
            let system = "/nix/store/abc-nixos-system";
            NixosSwitchUnit::read(&format!(
                "Result={result}\nExecMainStatus={status}\nDescription={system}\nActiveState={state}\n"
            ))
        };
        assert_eq!(shown("inactive", "success", 0), NixosSwitchUnit::Ended);
        for state in ["active", "activating", "deactivating", "reloading", ""] {
            assert_eq!(shown(state, "success", 0), NixosSwitchUnit::UnderWay, "{state}");
        }
        assert_eq!(NixosSwitchUnit::read(""), NixosSwitchUnit::UnderWay, "it executes itself anew");
        let failed = shown("failed", "exit-code", 4);
        assert_eq!(failed.failure_of("/nix/store/abc-nixos-system"), Some("it exited with 4"));
        assert_eq!(failed.failure_of("/nix/store/other"), None);
        let failed = shown("failed", "timeout", 0);
        assert_eq!(failed.failure_of("/nix/store/abc-nixos-system"), Some("it did not end in its time"));
        let failed = shown("failed", "signal", 9);
        assert_eq!(failed.failure_of("/nix/store/abc-nixos-system"), Some("systemd says signal"));
    }

    #[test]
    fn only_what_is_known_to_differ_asks_for_a_boot() {
        let text = |text: &str| Some(text.to_owned());
        let same = || (text("a"), text("a"));
        assert_eq!(asks_for_boot(&[same(), same(), same()]), None);
        assert_eq!(asks_for_boot(&[same(), same(), (text("a"), text("b"))]), Some("kernel-modules"));
        assert_eq!(asks_for_boot(&[(text("a"), text("b")), same(), (text("a"), text("b"))]), Some("kernel"));
        // A container has no kernel of its own.
        assert_eq!(asks_for_boot(&[(None, text("b")), (text("a"), None), (None, None)]), None);
    }
}
