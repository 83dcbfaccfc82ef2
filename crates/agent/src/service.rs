//! The package's service, which runs the daemon where a person would have to start it else.

use std::path::Path;

use crate::machine::MachineOptions;

/// The service's name.
pub const SERVICE: &str = "muster-agent.service";
/// Where units are.
pub(crate) const UNITS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// Whether the service runs the daemon of these options once the host has joined: it is installed, and the
/// options are those of the unit.
pub fn runs(options: &MachineOptions) -> bool {
    options.state.is_none() && options.root.is_none() && is_installed()
}

/// systemd runs, and knows the service.
pub fn is_installed() -> bool {
    Path::new("/run/systemd/system").is_dir()
        && UNITS.iter().any(|units| Path::new(units).join(SERVICE).exists())
}

/// Where what the daemon logs is found.
pub fn journal() -> &'static str {
    if is_installed() { "journalctl -u muster-agent" } else { "what the daemon printed" }
}
