//! Debian hosts with systemd as PID 1, each on its own network, for tests of what an agent does to a
//! real machine. A test that uses them runs with `cargo xtask booted`; elsewhere it prints why it is
//! skipped ([`Unbootable`] says when it fails instead).
//!
//! ```text
//! Image      one debootstrapped tree and a folder of .deb files, built once, kept in CACHE
//! Testbed    of one test: its folder, its network, its row of the ledger
//!   BootedHost   an overlay on the image, systemd-nspawn in namespaces and a cgroup of its own
//!   BootedFleet  a real control plane on the bridge, a fleet repo, and hosts that join (feature
//!                `programs`)
//! ```
//!
//! ```ignore
//! #[test]
//! fn nginx_serves_what_its_fleet_declares() {
//!     let Some(testbed) = Testbed::open() else { return };
//!     let mut fleet = BootedFleet::start(&testbed);       // a control plane that hosts reach
//!     let web = testbed.boot("web-1");                    // testbed.boot_all(["web-1", "db-1"])
//!     web.ok(["apt-get", "update"]);                      // image.rs has the list of packages
//!     web.ok(["apt-get", "install", "-y", "nginx-light"]);
//!     fleet.join(&web);                                   // the agent's package, under its unit
//!     fleet.module("hello", "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n");
//!     fleet.publish_until_converged(&[&web]);
//!     web.write("/etc/hello", "by hand\n", 0o644);        // copy_in(file, path, mode) for programs
//!     web.wait_until("it is healed", MINUTE, || web.read("/etc/hello").as_deref() == Some("hello\n"));
//!     web.reboot();                                       // power_off, power_on, kill, unplug, plug_in
//!     assert_eq!(web.ok(["systemctl", "is-active", "nginx"]), "active\n");
//! }
//! ```
//! `TestPackage` makes packages (versions, conffiles, failing scripts, conflicts) and
//! [`Testbed::publish_packages`] the source that has them.
//!
//! Invariants: nothing of a host outlives the test, also when the test panics or is killed; what a
//! killed test left (cgroups, namespaces, folders) is removed by the next one. A host is its own
//! machine (machine-id, name, boot id, journal); it shares the kernel, and so its clock and its
//! sysctls outside of `net`, with the outer machine. A failure prints the end of the host's journal.
//!
//! What does not work in such a host: limits of memory and CPU, loop devices, kernel modules, a clock
//! of its own, a sysctl outside of `net` (read-only: the kernel refuses), and what a power cut does
//! to unsynchronized writes: [`BootedHost::kill`] ends every process, and the page cache survives.

mod commands;
#[cfg(feature = "programs")]
mod fleet;
mod host;
mod image;
mod ledger;
mod network;
mod packages;
mod sweep;
mod testbed;
mod unbootable;

use std::time::Duration;

#[cfg(feature = "programs")]
pub use fleet::{BootedFleet, JOIN, agent_package, plane_package, previous_agent_package};
pub use host::BootedHost;
pub use image::{CACHE, Image};
pub use network::{NAME, V4, V6};
pub use packages::TestPackage;
pub use testbed::{Testbed, skip};
pub use unbootable::Unbootable;

/// A deadline that no host of a working harness reaches.
pub const MINUTE: Duration = Duration::from_secs(60);
