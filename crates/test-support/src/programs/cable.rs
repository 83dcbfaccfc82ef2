//! Two machines joined by a cable: network namespaces. Needs root and `ip`.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Prefix;

/// The control plane's addresses.
pub const V4: &str = "10.213.77.1";
pub const V6: &str = "fd00:213:77::1";

/// Two machines and a cable; taken away when this goes, whatever happened.
pub struct Cable {
    control: String,
    host: String,
}

impl Cable {
    /// Makes both; says why not, when that is not possible here.
    pub fn lay() -> Option<Cable> {
        let laid = Cable::try_lay();
        laid.inspect_err(|why| eprintln!("skipped: network namespaces cannot be made here: {why}")).ok()
    }

    fn try_lay() -> Result<Cable, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        static LAID: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), LAID.fetch_add(1, Ordering::Relaxed));
        let cable = Cable { control: format!("mu-c-{id}"), host: format!("mu-h-{id}") };
        for name in [&cable.control, &cable.host] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let (control, host) = (&cable.control, &cable.host);
        let peer = ["type", "veth", "peer", "name", "cable", "netns", host];
        ip(&[&["link", "add", "cable", "netns", control][..], &peer].concat())?;
        // Addresses stay while the cable is pulled, as those of a machine do.
        for (name, last) in [(control, 1), (host, 2)] {
            sh(name, "echo 1 > /proc/sys/net/ipv6/conf/cable/keep_addr_on_down")?;
            ip(&["-n", name, "addr", "add", &format!("10.213.77.{last}/24"), "dev", "cable"])?;
            ip(&["-n", name, "addr", "add", &format!("fd00:213:77::{last}/64"), "dev", "cable", "nodad"])?;
            ip(&["-n", name, "link", "set", "cable", "up"])?;
        }
        Ok(cable)
    }

    pub fn pull(&self) {
        ip(&["-n", &self.host, "link", "set", "cable", "down"]).unwrap();
    }

    pub fn plug_in(&self) {
        ip(&["-n", &self.host, "link", "set", "cable", "up"]).unwrap();
    }

    /// What runs on the control plane's machine.
    pub fn at_control(&self) -> Prefix {
        inside(&self.control)
    }

    /// What runs on the other machine.
    pub fn at_host(&self) -> Prefix {
        inside(&self.host)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in [&self.control, &self.host] {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn inside(name: &str) -> Prefix {
    ["ip", "netns", "exec", name].map(str::to_owned).to_vec()
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments))
}

fn sh(namespace: &str, script: &str) -> Result<(), String> {
    run(Command::new("ip").args(["netns", "exec", namespace, "sh", "-c", script]))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}")) }
}
