//! The package's service, which runs the daemon where a person would have to start it else.

use std::path::Path;

use crate::machine::MachineOptions;

/// The service's name.
pub const SERVICE: &str = "muster-agent.service";
/// Where packages put units.
const UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// Whether the service runs the daemon of these options once the host has joined: systemd runs, the
/// package is installed, and the options are those of the unit.
pub fn runs(options: &MachineOptions) -> bool {
    let of_the_unit = options.state.is_none() && options.root.is_none();
    of_the_unit
        && Path::new("/run/systemd/system").is_dir()
        && UNITS.iter().any(|units| Path::new(units).join(SERVICE).exists())
}
