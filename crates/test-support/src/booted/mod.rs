//! Debian hosts with systemd as PID 1, each on its own network, for tests of what an agent does to a
//! real machine. A test that uses them runs with `cargo xtask booted`; elsewhere it prints why it is
//! skipped ([`Unbootable`] says when it fails instead).
//!
//! ```text
//! Image      one debootstrapped tree and a folder of .deb files, built once, kept in CACHE
//! Testbed    of one test: its folder, its network, its row of the ledger
//!   BootedHost   an overlay on the image, systemd-nspawn in namespaces and a cgroup of its own
//!   Server       the real `muster server` in the namespace of the bridge (feature `programs`)
//! ```
//!
//! ```ignore
//! #[test]
//! fn a_service_is_started_and_stays_so() {
//!     let Some(testbed) = Testbed::open() else { return };
//!     let web = testbed.boot("web-1");                    // or testbed.boot_all(["web-1", "db-1"])
//!     web.ok(["apt-get", "update"]);                      // Debian packages: image.rs has the list
//!     web.ok(["apt-get", "install", "-y", "nginx-light"]);
//!     assert_eq!(web.ok(["systemctl", "is-active", "nginx"]), "active\n");
//!     web.write("/etc/motd", "hello\n", 0o644);           // copy_in(file, path, mode) for programs
//!     web.reboot();                                       // power_off, power_on, kill, unplug, plug_in
//!     web.wait_until("nginx is back", MINUTE, || web.run(["systemctl", "is-active", "nginx"]).status.success());
//!     assert_eq!(web.read("/etc/motd").as_deref(), Some("hello\n"));
//!     let mut server = testbed.server();                  // the control plane that hosts reach
//!     let _running = server.start();
//! }
//! ```
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
mod host;
mod image;
mod ledger;
mod network;
mod sweep;
mod testbed;
mod unbootable;

use std::time::Duration;

pub use host::BootedHost;
pub use image::{CACHE, Image};
pub use network::{NAME, V4, V6};
pub use testbed::Testbed;
pub use unbootable::Unbootable;

/// A deadline that no host of a working harness reaches.
pub const MINUTE: Duration = Duration::from_secs(60);
