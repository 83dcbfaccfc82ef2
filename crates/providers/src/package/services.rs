//! `start_services: false`: a policy that keeps maintainer scripts from starting services, for the time
//! of a transaction.
//!
//! ```text
//! none there      -> ours -> removed
//! somebody's own  -> renamed aside -> ours -> renamed back
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
/// Their names in their directory.
const POLICY_NAME: &str = "policy-rc.d";
const KEPT_NAME: &str = "policy-rc.d.kept-by-muster";
/// Ours: nothing is started (101: not allowed).
const OURS: &str = "#!/bin/sh\n# Written by Muster for one transaction of packages.\nexit 101\n";
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
    if is_there(host, POLICY)? {
        host.rename(POLICY, KEPT_NAME).map_err(text)?;
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
    let ours = is_ours(host)?;
    if is_there(host, KEPT)? {
        // Killed before ours was written, or somebody wrote a new one since: theirs counts.
        return match ours || !is_there(host, POLICY)? {
            true => host.rename(KEPT, POLICY_NAME).map_err(text),
            false => host.remove_file(KEPT).map(drop).map_err(text),
        };
    }
    if ours {
        host.remove_file(POLICY).map_err(text)?;
    }
    Ok(())
}

/// A file or a link; what a link leads to does not matter.
fn is_there(host: &Host, path: &str) -> Result<bool, String> {
    Ok(host.look(path).map_err(text)? != PathState::Missing)
}

fn is_ours(host: &Host) -> Result<bool, String> {
    Ok(match host.look(POLICY).map_err(text)? {
        PathState::File { digest, .. } => digest == Digest::of(OURS.as_bytes()),
        _ => false,
    })
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
