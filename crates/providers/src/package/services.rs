//! `start_services: false`: a policy that keeps maintainer scripts from starting services, for the time
//! of a transaction.
//!
//! ```text
//! none there      -> ours -> removed
//! somebody's own  -> kept beside it -> ours -> put back
//! ```
//!
//! The agent may be killed at any point: what it leaves is known by its mark, and put back at the
//! beginning of the next run and of the next transaction.

use host::{FileWrite, Host};
use model::{Digest, PathOwnership, PathState};

use crate::kinds::text;

/// Whom `invoke-rc.d` and `deb-systemd-invoke` ask.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Where somebody's own policy is meanwhile.
const KEPT: &str = "/usr/sbin/policy-rc.d.kept-by-muster";
/// Ours: nothing is started (101: not allowed).
const OURS: &str = "#!/bin/sh\n# Written by Muster for one transaction of packages.\nexit 101\n";
/// The largest policy of somebody's own, in bytes.
const MAX_POLICY: u64 = 1024 * 1024;
const MODE: u32 = 0o755;

/// Services are kept from starting while it lives.
pub(super) struct Hindered<'a> {
    host: &'a Host,
}

impl Drop for Hindered<'_> {
    fn drop(&mut self) {
        if let Err(why) = put_back(self.host) {
            tracing::warn!(why, "services are still kept from starting");
        }
    }
}

/// Keeps services from starting.
///
/// # Errors
/// When the policy cannot be written.
pub(super) fn hinder(host: &Host) -> Result<Hindered<'_>, String> {
    put_back(host)?;
    if let PathState::File { mode, .. } = host.look(POLICY).map_err(text)?
        && let Some(own) = host.read(POLICY, MAX_POLICY).map_err(text)?
    {
        write(host, KEPT, &own, mode)?;
    }
    let hindered = Hindered { host };
    write(host, POLICY, OURS.as_bytes(), MODE)?;
    Ok(hindered)
}

/// Puts back what was there before, if ours is there; a crash may have left it.
///
/// # Errors
/// When it cannot be put back.
pub(super) fn put_back(host: &Host) -> Result<(), String> {
    let kept = match host.look(KEPT).map_err(text)? {
        PathState::File { mode, .. } => host.read(KEPT, MAX_POLICY).map_err(text)?.map(|own| (own, mode)),
        _ => None,
    };
    let is_ours = || -> Result<bool, String> {
        let there = host.read(POLICY, MAX_POLICY).map_err(text)?;
        Ok(there.is_some_and(|there| there == OURS.as_bytes()))
    };
    match kept {
        Some((own, mode)) => {
            // Killed before ours was written, or somebody wrote a new one since: theirs counts.
            if is_ours()? {
                write(host, POLICY, &own, mode)?;
            }
            host.remove_file(KEPT).map_err(text)?;
        }
        None if is_ours()? => drop(host.remove_file(POLICY).map_err(text)?),
        None => {}
    }
    Ok(())
}

fn write(host: &Host, path: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
    let write = FileWrite {
        content: &mut &bytes[..],
        digest: Digest::of(bytes),
        ownership: PathOwnership { mode: Some(mode), uid: None, gid: None },
        default_mode: MODE,
        backup: false,
        validate: None,
    };
    host.write(path, write).map_err(text)
}
