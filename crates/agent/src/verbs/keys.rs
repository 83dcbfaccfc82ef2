//! The machine's keys, as operators compare them.

use std::process::ExitCode;

use serde::Serialize;
use trust::RecipientKey;
use trust::token::KeySource;

use super::{VerbFailure, print, show};
use crate::machine::MachineOptions;
use crate::state::StateDir;

pub(super) const IDENTITY_AFTER: &str = "\
Makes the keys where there are none yet, before or after joining. Compare the fingerprints with what
`muster token mint --fingerprint` and `muster secret trust` show.

Example:
  sudo muster-agent identity";

/// The keys of this machine, as the fleet's operators compare them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineIdentity {
    fingerprint: String,
    recipient: RecipientKey,
    recipient_fingerprint: String,
}

pub(super) fn identity(options: &MachineOptions, json: bool) -> Result<ExitCode, VerbFailure> {
    let state = options.state_dir();
    let dir = StateDir::create(&state)?;
    let source = dir.membership()?.map_or(KeySource::Own, |membership| membership.key);
    let key = crate::identity::key(source, &state, &options.root_dir())?;
    let recipient = crate::identity::sealing_key(&state)?.public();
    let shown = MachineIdentity {
        fingerprint: key.public().fingerprint(),
        recipient,
        recipient_fingerprint: recipient.fingerprint(),
    };
    show(json, &shown, || {
        let MachineIdentity { fingerprint, recipient, recipient_fingerprint } = &shown;
        format!("identity  {fingerprint}\nsecrets   {recipient}\n          {recipient_fingerprint}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the fingerprint of one of the keys that a host may prove itself with.
pub(super) fn fingerprint(options: &MachineOptions, source: KeySource) -> Result<ExitCode, VerbFailure> {
    let state = options.state_dir();
    StateDir::create(&state)?;
    let key = crate::identity::key(source, &state, &options.root_dir())?;
    print(&format!("{}\n", key.public().fingerprint()));
    Ok(ExitCode::SUCCESS)
}
