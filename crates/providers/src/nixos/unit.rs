//! The unit that switches, and the boot that a system asks for.

use std::time::{Duration, Instant};

use converge::JobFailure;
use converge::kinds::DEFAULT_FILE_MODE;
use converge::kinds::nixos::{BOOTED_PARTS, NixosSwitchUnit, SWITCH_UNIT_PROPERTIES, asks_for_boot};
use host::{End, FileWrite};
use model::{Digest, PathOwnership};
use trust::nix::StorePath;

use super::{LOOK_WITHIN, left, link};
use crate::Kinds;
use crate::kinds::text;
use crate::tools::ToolCall;

/// The unit of a switch.
const UNIT: &str = "muster-nixos-switch";
/// How often it is looked whether the switch of an agent of before has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// What was booted.
const BOOTED: &str = "/run/booted-system";
/// What says that the host must boot, and what asks for it, as Debian's packages say it.
const REBOOT: &str = "/run/reboot-required";
const REBOOT_BY: &str = "/run/reboot-required.pkgs";
const REBOOT_TEXT: &[u8] = b"*** System restart required ***\n";
/// The most bytes of what asks for a boot that are looked at.
const MAX_REBOOT_BY: u64 = 4096;

/// How the unit stands. While the very switch executes systemd anew nobody knows.
pub(super) fn state(kinds: &Kinds) -> Result<NixosSwitchUnit, String> {
    let properties = format!("--property={SWITCH_UNIT_PROPERTIES}");
    let asked = [&kinds.nix.tool("systemctl"), "show", &properties, UNIT];
    let shown = kinds.tool(ToolCall::new(&asked, LOOK_WITHIN))?;
    Ok(match shown.end {
        End::Exited(0) => NixosSwitchUnit::read(&String::from_utf8_lossy(&shown.stdout.bytes)),
        _ => NixosSwitchUnit::UnderWay,
    })
}

/// Waits until no switch is under way: one that an agent began which it restarted. Gives how it ended.
pub(super) fn await_end(kinds: &Kinds, deadline: Instant) -> Result<NixosSwitchUnit, String> {
    loop {
        let unit = state(kinds)?;
        if unit != NixosSwitchUnit::UnderWay {
            return Ok(unit);
        }
        if left(deadline).is_zero() || kinds.host.is_cancelled() {
            return Err("another switch of this host goes on and on".to_owned());
        }
        std::thread::sleep(LOOK_AGAIN.min(left(deadline)));
    }
}

/// Notice was taken of a failure: the next switch is another unit of this name.
pub(super) fn forget_failure(kinds: &Kinds) {
    let asked = [&kinds.nix.tool("systemctl"), "reset-failed", UNIT];
    if let Err(error) = kinds.tool(ToolCall::new(&asked, LOOK_WITHIN)) {
        tracing::warn!(error, "the failed unit of a switch stays until the next boot");
    }
}

/// Runs the system's own program for that, in a unit that outlives the agent, and waits for its end. One that fails stays,
/// so that the next agent knows of it where this one is restarted by it.
pub(super) fn switch(kinds: &Kinds, system: &StorePath, deadline: Instant) -> Result<(), JobFailure> {
    let unit = format!("--unit={UNIT}");
    // The unit is ended as well when time is up.
    let most = format!("--property=RuntimeMaxSec={}", left(deadline).as_secs().max(1));
    let description = format!("--description={system}");
    let program = format!("{system}/bin/switch-to-configuration");
    let run = [
        &kinds.nix.tool("systemd-run"),
        &unit,
        &most,
        &description,
        "--no-ask-password",
        "--quiet",
        "--service-type=exec",
        "--wait",
        &program,
        "switch",
    ];
    let switched = kinds.tool_succeeds(ToolCall::new(&run, left(deadline) + Duration::from_secs(5)));
    if switched.is_err() && !kinds.host.is_cancelled() {
        forget_failure(kinds);
    }
    switched
}

/// Asks for a boot where a system has another kernel, initrd or set of modules than the one that was booted,
/// and for none where it has not: as any package that needs one, so that windows and rollouts go by it.
pub(super) fn ask_for_boot(kinds: &Kinds, system: &StorePath) -> Result<(), String> {
    let (booted, system) = (link(kinds, BOOTED)?, Some(system.to_string()));
    let part = |name: &str| {
        let of = |system: &Option<String>| match system {
            Some(system) => link(kinds, &format!("{system}/{name}")),
            None => Ok(None),
        };
        Ok::<_, String>((of(&booted)?, of(&system)?))
    };
    let [kernel, initrd, modules] = BOOTED_PARTS.map(part);
    let asks = asks_for_boot(&[kernel?, initrd?, modules?]);
    let asked = kinds.host.read(REBOOT_BY, MAX_REBOOT_BY).map_err(text)?.unwrap_or_default();
    let is_ours = BOOTED_PARTS.iter().any(|part| asked == named(part));
    match asks {
        Some(part) if asked.is_empty() || is_ours => {
            put(kinds, REBOOT_BY, &named(part))?;
            put(kinds, REBOOT, REBOOT_TEXT)
        }
        None if is_ours => {
            kinds.host.remove_file(REBOOT).map_err(text)?;
            kinds.host.remove_file(REBOOT_BY).map(drop).map_err(text)
        }
        // Somebody else's word, or none.
        Some(_) | None => Ok(()),
    }
}

fn named(part: &str) -> Vec<u8> {
    format!("nixos-{part}\n").into_bytes()
}

fn put(kinds: &Kinds, path: &str, bytes: &[u8]) -> Result<(), String> {
    let write = FileWrite {
        content: &mut &*bytes,
        digest: Digest::of(bytes),
        ownership: PathOwnership::default(),
        default_mode: DEFAULT_FILE_MODE,
        backup: false,
        validate: None,
    };
    kinds.host.write(path, write).map_err(text)
}
