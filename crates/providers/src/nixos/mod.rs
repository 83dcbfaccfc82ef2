//! `nixos` on a host: the system that its profile leads to (ROL-9, ROL-10).
//!
//! ```text
//! /run/current-system -> STORE/HASH-NAME         what runs
//! /nix/var/nix/profiles/system -> system-N-link -> STORE/HASH-NAME     what the next boot runs
//!
//! set: closure into the store (closure) -> roots against garbage collection -> profile -> switch, in a unit of its own
//! ```
//!
//! Invariants:
//! - A system is named by its path in the store, never by the number of a generation.
//! - Nothing is switched before the whole closure is in the store. What is there needs no network: so does a return.
//! - The switch is a unit of systemd, as it may restart the agent. An agent that finds one under way waits for it, and one that
//!   finds that it failed says so, once.
//! - What is switched to and what ran before are kept from Nix's garbage collection, and nothing else is, once a switch to
//!   another system begins: one that is repeated does not know any more what ran before it.
//!
//! It is tested against programs that stand for those of Nix: `tests/nixos_switches_to_a_path.rs`.

mod closure;
mod source;
mod unit;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use catalog::types::{
    NIXOS_PROFILE_TEXT, NIXOS_RUNNING_TEXT, NIXOS_SWITCH_ENDED, NIXOS_SWITCH_TEXT, NixosSpec,
};
use converge::JobFailure;
use converge::kinds::nixos::NixosSwitchUnit;
use model::collect::CollectInserting;
use model::{Fields, PathOwnership, PathState};
use trust::nix::{STORE_DIR, StorePath};

pub use self::source::ClosureRelay;
use crate::Kinds;
use crate::kinds::text;
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};
use crate::tools::ToolCall;

/// What runs.
const RUNNING: &str = "/run/current-system";
/// The directory of profiles, and the profile of the system in it.
const PROFILES: &str = "/nix/var/nix/profiles";
const PROFILE: &str = "system";
/// What is kept from garbage collection for Muster.
const ROOTS: &str = "/nix/var/nix/gcroots/muster";
/// The most entries of that directory that are looked at.
const MAX_ROOTS: usize = 1000;
/// How long a tool that only looks may take.
const LOOK_WITHIN: Duration = Duration::from_secs(60);

/// How the closures of a host are fetched, and with which programs.
#[derive(Default)]
pub(crate) struct NixTools {
    /// Other programs than those of the machine.
    bin: Option<PathBuf>,
    /// Where archives lie until they are imported.
    staging: Option<PathBuf>,
    /// The control plane; not there before the agent has a session, and never for a local verb.
    relay: OnceLock<Arc<dyn ClosureRelay>>,
}

impl NixTools {
    fn tool(&self, name: &str) -> String {
        let bin = self.bin.as_deref().unwrap_or(Path::new("/run/current-system/sw/bin"));
        bin.join(name).display().to_string()
    }
}

impl Kinds {
    /// Archives of closures lie in this directory until they are imported; without one, no closure is fetched.
    #[must_use]
    pub fn staging_closures_in(mut self, directory: PathBuf) -> Kinds {
        self.nix =
            Arc::new(NixTools { staging: Some(directory), bin: self.nix.bin.clone(), ..NixTools::default() });
        self
    }

    /// With other programs than those of the machine's NixOS: for a host below another root.
    #[must_use]
    pub fn with_nix_tools(mut self, bin: PathBuf) -> Kinds {
        self.nix =
            Arc::new(NixTools { bin: Some(bin), staging: self.nix.staging.clone(), ..NixTools::default() });
        self
    }

    /// The control plane gives closures that no cache gives, from here on. The first one counts.
    pub fn relay_closures(&self, relay: Arc<dyn ClosureRelay>) {
        // Another one of the same agent would be the same.
        let _ = self.nix.relay.set(relay);
    }
}

impl StateProvider for NixosSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let running = link(kinds, RUNNING)?;
        let profile = match link(kinds, &format!("{PROFILES}/{PROFILE}"))? {
            // `system-42-link`, beside it.
            Some(next) if !next.contains('/') => link(kinds, &format!("{PROFILES}/{next}"))?,
            other => other,
        };
        if running.is_none() && profile.is_none() {
            return Ok(None);
        }
        let texts = [(NIXOS_RUNNING_TEXT, running), (NIXOS_PROFILE_TEXT, profile)];
        let text = |(name, path): (&str, Option<String>)| (name.to_owned(), path.unwrap_or_default());
        let mut found: Fields = texts.into_iter().map(text).collect_inserting();
        let switch = match unit::state(kinds)? {
            NixosSwitchUnit::UnderWay => "under way".to_owned(),
            failed => match failed.failure_of(&self.closure.to_string()) {
                Some(why) => format!("failed: {why}"),
                None => NIXOS_SWITCH_ENDED.to_owned(),
            },
        };
        found.insert(NIXOS_SWITCH_TEXT.to_owned(), switch);
        Ok(Some(found))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        let Some(now) = now else {
            return Err(format!("this host runs no NixOS: {RUNNING} leads nowhere").into());
        };
        let system = to.and_then(|to| to.get(NIXOS_RUNNING_TEXT)).ok_or("a NixOS host has a system")?;
        let system: StorePath = system.parse().map_err(|error| format!("{error}"))?;
        let deadline = Instant::now() + timeout;
        let unit = unit::await_end(kinds, deadline)?;
        if let Some(why) = unit.failure_of(&system.to_string()) {
            let why = format!("the switch to {system} outlived the agent that began it, and failed: {why}");
            unit::forget_failure(kinds);
            return Err(why.into());
        }
        if unit != NixosSwitchUnit::Ended {
            unit::forget_failure(kinds);
        }
        let now = &self.observe(kinds)?.unwrap_or_else(|| now.clone());
        if to.is_some_and(|to| to.iter().all(|(name, text)| now.get(name) == Some(text))) {
            // It was that switch.
            return Ok(None);
        }
        if !closure::is_valid(kinds, &system)? {
            if system != self.closure {
                return Err(format!("{system}, which ran before, is no more in the store").into());
            }
            closure::fetch(kinds, self, deadline)?;
        }
        let running = now.get(NIXOS_RUNNING_TEXT).and_then(|path| path.parse::<StorePath>().ok());
        keep(kinds, &[Some(&system), running.as_ref()].into_iter().flatten().collect_inserting())?;
        let profile = format!("{PROFILES}/{PROFILE}");
        let set = [&kinds.nix.tool("nix-env"), "-p", &profile, "--set", &system.to_string()];
        kinds.tool_succeeds(ToolCall::new(&set, left(deadline)))?;
        // Before, as the agent may not be there any more when it ends.
        unit::ask_for_boot(kinds, &system)?;
        unit::switch(kinds, &system, deadline)?;
        Ok(None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Units
    }

    fn note(&self, _: &model::Edit<Fields>) -> Option<String> {
        Some("a changed kernel takes effect at the next boot, which it asks for".to_owned())
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Where a link points to; nothing where there is none.
fn link(kinds: &Kinds, path: &str) -> Result<Option<String>, String> {
    match kinds.look(path)? {
        PathState::Symlink { target } => Ok(Some(target)),
        PathState::Missing => Ok(None),
        _ => Err(format!("{path} is no symbolic link, as NixOS has it")),
    }
}

/// Keeps these from Nix's garbage collection, and nothing else where there are two.
fn keep(kinds: &Kinds, systems: &BTreeSet<&StorePath>) -> Result<(), String> {
    if !kinds.host.is_directory(ROOTS).map_err(text)? {
        kinds.host.make_directory(ROOTS, &PathOwnership::default(), 0o755).map_err(text)?;
    }
    for system in systems {
        let root = format!("{ROOTS}/{}", system.name());
        kinds.host.make_symlink(&root, &format!("{STORE_DIR}/{}", system.name())).map_err(text)?;
    }
    if systems.len() < 2 {
        // The system runs already: its switch was cut off or failed, and a root that is here may be that of the way back.
        return Ok(());
    }
    for name in kinds.host.names(ROOTS, MAX_ROOTS).map_err(text)?.unwrap_or_default() {
        let is_ours = StorePath::of_name(&name).is_ok_and(|path| !systems.contains(&path));
        if is_ours {
            kinds.host.remove_file(&format!("{ROOTS}/{name}")).map_err(text)?;
        }
    }
    Ok(())
}
