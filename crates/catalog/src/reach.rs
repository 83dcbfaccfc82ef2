//! [`reach_of`]: which resources can cut a host off from its control plane, or its people from the host (CNV-11).
//!
//! A run that would change one of them is guarded: it is followed by a contact, or undone. One table decides, over what
//! a resource writes, the units that it runs and the packages that it installs. What a command does is not known: a
//! command counts by the programs that it starts ([`command_reach`]).

mod command;

use std::borrow::Cow;
use std::fmt;

pub use self::command::{command_reach, loads_files};
use crate::own_paths::normalized;
use crate::types::{PathRole, Spec};

/// What of the way to a host a resource touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WayIn {
    /// Addresses, routes and links.
    Network,
    /// The packet filter.
    Firewall,
    /// How names become addresses.
    Resolver,
    /// Logging in over SSH, as root.
    RemoteLogin,
    /// The agent's program, unit or settings.
    Agent,
}

impl fmt::Display for WayIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WayIn::Network => "the network",
            WayIn::Firewall => "the firewall",
            WayIn::Resolver => "the resolver",
            WayIn::RemoteLogin => "sshd",
            WayIn::Agent => "the agent",
        })
    }
}

/// Files, and directories with all that is below them.
const PATHS: &[(&str, WayIn)] = &[
    ("/etc/network", WayIn::Network),
    ("/etc/netplan", WayIn::Network),
    ("/etc/systemd/network", WayIn::Network),
    ("/etc/systemd/networkd.conf", WayIn::Network),
    ("/etc/systemd/networkd.conf.d", WayIn::Network),
    ("/etc/NetworkManager", WayIn::Network),
    ("/etc/sysconfig/network", WayIn::Network),
    ("/etc/sysconfig/network-scripts", WayIn::Network),
    ("/etc/dhcp", WayIn::Network),
    ("/etc/dhcpcd.conf", WayIn::Network),
    ("/etc/wireguard", WayIn::Network),
    ("/etc/iproute2", WayIn::Network),
    ("/etc/nftables.conf", WayIn::Firewall),
    ("/etc/nftables.d", WayIn::Firewall),
    ("/etc/nftables", WayIn::Firewall),
    ("/etc/sysconfig/nftables.conf", WayIn::Firewall),
    ("/etc/iptables", WayIn::Firewall),
    ("/etc/sysconfig/iptables", WayIn::Firewall),
    ("/etc/sysconfig/ip6tables", WayIn::Firewall),
    ("/etc/ufw", WayIn::Firewall),
    ("/etc/default/ufw", WayIn::Firewall),
    ("/etc/firewalld", WayIn::Firewall),
    ("/etc/hosts.allow", WayIn::Firewall),
    ("/etc/hosts.deny", WayIn::Firewall),
    ("/etc/resolv.conf", WayIn::Resolver),
    ("/etc/resolvconf", WayIn::Resolver),
    ("/etc/resolvconf.conf", WayIn::Resolver),
    ("/etc/systemd/resolved.conf", WayIn::Resolver),
    ("/etc/systemd/resolved.conf.d", WayIn::Resolver),
    ("/etc/nsswitch.conf", WayIn::Resolver),
    ("/etc/hosts", WayIn::Resolver),
    ("/etc/host.conf", WayIn::Resolver),
    ("/etc/gai.conf", WayIn::Resolver),
    ("/etc/ssh/sshd_config", WayIn::RemoteLogin),
    ("/etc/ssh/sshd_config.d", WayIn::RemoteLogin),
    ("/etc/default/ssh", WayIn::RemoteLogin),
    ("/etc/pam.d/sshd", WayIn::RemoteLogin),
    ("/root/.ssh", WayIn::RemoteLogin),
    ("/usr/bin/muster-agent", WayIn::Agent),
    ("/usr/local/bin/muster-agent", WayIn::Agent),
    ("/etc/default/muster-agent", WayIn::Agent),
    ("/etc/muster", WayIn::Agent),
    ("/var/lib/muster", WayIn::Agent),
];
/// Below [`PATHS`], and not counted: what an administrator says of the host.
const LEFT_OUT: &[&str] = &["/etc/muster/traits.d"];
/// What the names of units begin with.
const UNITS: &[(&str, WayIn)] = &[
    ("networking", WayIn::Network),
    ("systemd-networkd", WayIn::Network),
    ("NetworkManager", WayIn::Network),
    ("dhcpcd", WayIn::Network),
    ("wg-quick@", WayIn::Network),
    ("ifup@", WayIn::Network),
    ("network", WayIn::Network),
    ("nftables", WayIn::Firewall),
    ("iptables", WayIn::Firewall),
    ("ip6tables", WayIn::Firewall),
    ("netfilter-persistent", WayIn::Firewall),
    ("ufw", WayIn::Firewall),
    ("firewalld", WayIn::Firewall),
    ("systemd-resolved", WayIn::Resolver),
    ("resolvconf", WayIn::Resolver),
    ("ssh", WayIn::RemoteLogin),
    ("sshd", WayIn::RemoteLogin),
    ("muster-agent", WayIn::Agent),
];
/// Packages.
const PACKAGES: &[(&str, WayIn)] = &[
    ("ifupdown", WayIn::Network),
    ("netplan.io", WayIn::Network),
    ("network-manager", WayIn::Network),
    ("isc-dhcp-client", WayIn::Network),
    ("dhcpcd-base", WayIn::Network),
    ("wireguard-tools", WayIn::Network),
    ("iproute2", WayIn::Network),
    ("nftables", WayIn::Firewall),
    ("iptables", WayIn::Firewall),
    ("iptables-persistent", WayIn::Firewall),
    ("ufw", WayIn::Firewall),
    ("firewalld", WayIn::Firewall),
    ("systemd-resolved", WayIn::Resolver),
    ("resolvconf", WayIn::Resolver),
    ("openssh-server", WayIn::RemoteLogin),
    ("muster-agent", WayIn::Agent),
];
/// What of the way to the host a resource touches; nothing for one that cannot cut it off. sudo's rules are none: they
/// concern who is there already.
pub fn reach_of(spec: &Spec) -> Option<WayIn> {
    match spec {
        Spec::Unit(unit) => unit_reach(&unit.unit).or_else(|| paths_reach(spec)),
        Spec::Package(package) => {
            let name = package.name.split(':').next().unwrap_or_default();
            exact(PACKAGES, name)
        }
        Spec::SshKey(keys) if matches!(keys.user.as_str(), "root" | "0") => Some(WayIn::RemoteLogin),
        Spec::Sysctl(sysctl) => {
            let key: Cow<'_, str> = sysctl.key.replace('/', ".").into();
            key.starts_with("net.").then_some(WayIn::Network)
        }
        Spec::Exec(exec) => command_reach(&exec.command),
        spec => paths_reach(spec),
    }
}

/// What of the way to a host lies at a path, or the path in: `/etc/netplan` and all below it.
pub fn path_reach(path: &str) -> Option<WayIn> {
    let path = normalized(path);
    if LEFT_OUT.iter().any(|top| within(&path, top)) {
        return None;
    }
    let listed = PATHS.iter().find(|(top, _)| within(&path, top)).map(|(_, reach)| *reach);
    listed.or_else(|| unit_file_reach(&path))
}

fn paths_reach(spec: &Spec) -> Option<WayIn> {
    spec.paths(&|_| None).find_map(|found| match found.role {
        PathRole::Written { .. } | PathRole::Directory(_) | PathRole::Contents | PathRole::Switched => {
            path_reach(&found.path)
        }
        PathRole::Watched | PathRole::Probed => None,
    })
}

/// A unit's own file, its drop-ins and its links below `*.wants`.
fn unit_file_reach(path: &str) -> Option<WayIn> {
    let folders = ["/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"];
    let below = folders.iter().find_map(|folder| path.strip_prefix(folder))?;
    below.split('/').find_map(|part| unit_reach(part.strip_suffix(".d").unwrap_or(part)))
}

fn unit_reach(unit: &str) -> Option<WayIn> {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let is = |name: &str| match name.ends_with('@') {
        true => stem.starts_with(name),
        false => stem == name,
    };
    UNITS.iter().find(|(name, _)| is(name)).map(|(_, reach)| *reach)
}

fn exact(table: &[(&str, WayIn)], name: &str) -> Option<WayIn> {
    table.iter().find(|(known, _)| *known == name).map(|(_, reach)| *reach)
}

fn within(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CNV-11: what can cut a host off, and what cannot.
    #[test]
    fn paths_are_known_by_what_they_are_of() {
        let table = [
            ("/etc/network/interfaces", Some(WayIn::Network)),
            ("/etc/network/interfaces.d/eth0", Some(WayIn::Network)),
            ("/etc/netplan", Some(WayIn::Network)),
            ("/etc/netplan/50-cloud-init.yaml", Some(WayIn::Network)),
            ("/etc//systemd/network/host0.network", Some(WayIn::Network)),
            ("/etc/NetworkManager/system-connections/a", Some(WayIn::Network)),
            ("/etc/networks", None),
            ("/etc/nftables.conf", Some(WayIn::Firewall)),
            ("/etc/nftables.conf.bak", None),
            ("/etc/iptables/rules.v4", Some(WayIn::Firewall)),
            ("/etc/ufw/user.rules", Some(WayIn::Firewall)),
            ("/etc/resolv.conf", Some(WayIn::Resolver)),
            ("/etc/hosts", Some(WayIn::Resolver)),
            ("/etc/hostname", None),
            ("/etc/ssh/sshd_config", Some(WayIn::RemoteLogin)),
            ("/etc/ssh/sshd_config.d/10-own.conf", Some(WayIn::RemoteLogin)),
            ("/etc/ssh/ssh_config", None),
            ("/root/.ssh/authorized_keys", Some(WayIn::RemoteLogin)),
            ("/home/a/.ssh/authorized_keys", None),
            ("/etc/sudoers.d/ops", None),
            ("/usr/bin/muster-agent", Some(WayIn::Agent)),
            ("/etc/muster/traits.d/site.yaml", None),
            ("/etc/systemd/system/muster-agent.service.d/own.conf", Some(WayIn::Agent)),
            ("/etc/systemd/system/ssh.service.d", Some(WayIn::RemoteLogin)),
            ("/etc/systemd/system/ssh.socket.d/port.conf", Some(WayIn::RemoteLogin)),
            ("/etc/systemd/system/multi-user.target.wants/nftables.service", Some(WayIn::Firewall)),
            ("/etc/systemd/system/wg-quick@wg0.service", Some(WayIn::Network)),
            ("/etc/systemd/system/nginx.service", None),
            ("/etc", None),
            ("/", None),
        ];
        for (path, reach) in table {
            assert_eq!(path_reach(path), reach, "{path}");
        }
    }

    #[test]
    fn units_are_known_by_their_whole_name() {
        let units = [
            ("ssh.service", Some(WayIn::RemoteLogin)),
            ("sshd.service", Some(WayIn::RemoteLogin)),
            ("sshguard.service", None),
            ("systemd-networkd.service", Some(WayIn::Network)),
            ("wg-quick@wg0.service", Some(WayIn::Network)),
            ("nftables.service", Some(WayIn::Firewall)),
            ("muster-agent.service", Some(WayIn::Agent)),
            ("muster.service", None),
        ];
        for (unit, reach) in units {
            assert_eq!(unit_reach(unit), reach, "{unit}");
        }
    }
}
