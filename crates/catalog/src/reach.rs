//! [`reach_of`]: which resources can cut a host off from its control plane, or its people from the host (CNV-11).
//!
//! A run that would change one of them is guarded: it is followed by a contact, or undone. One table decides, over what
//! a resource writes, the units that it runs and the packages that it installs. What a command does is not known: a
//! command counts where its program is one that sets the network or the firewall.

use std::borrow::Cow;
use std::fmt;

use crate::module::CommandLine;
use crate::own_paths::normalized;
use crate::types::{PathRole, Spec};

/// What of the way to a host a resource touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
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

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Network => "the network",
            Reach::Firewall => "the firewall",
            Reach::Resolver => "the resolver",
            Reach::RemoteLogin => "sshd",
            Reach::Agent => "the agent",
        })
    }
}

/// Files, and directories with all that is below them.
const PATHS: &[(&str, Reach)] = &[
    ("/etc/network", Reach::Network),
    ("/etc/netplan", Reach::Network),
    ("/etc/systemd/network", Reach::Network),
    ("/etc/systemd/networkd.conf", Reach::Network),
    ("/etc/systemd/networkd.conf.d", Reach::Network),
    ("/etc/NetworkManager", Reach::Network),
    ("/etc/sysconfig/network", Reach::Network),
    ("/etc/sysconfig/network-scripts", Reach::Network),
    ("/etc/dhcp", Reach::Network),
    ("/etc/dhcpcd.conf", Reach::Network),
    ("/etc/wireguard", Reach::Network),
    ("/etc/iproute2", Reach::Network),
    ("/etc/nftables.conf", Reach::Firewall),
    ("/etc/nftables.d", Reach::Firewall),
    ("/etc/nftables", Reach::Firewall),
    ("/etc/sysconfig/nftables.conf", Reach::Firewall),
    ("/etc/iptables", Reach::Firewall),
    ("/etc/sysconfig/iptables", Reach::Firewall),
    ("/etc/sysconfig/ip6tables", Reach::Firewall),
    ("/etc/ufw", Reach::Firewall),
    ("/etc/default/ufw", Reach::Firewall),
    ("/etc/firewalld", Reach::Firewall),
    ("/etc/hosts.allow", Reach::Firewall),
    ("/etc/hosts.deny", Reach::Firewall),
    ("/etc/resolv.conf", Reach::Resolver),
    ("/etc/resolvconf", Reach::Resolver),
    ("/etc/resolvconf.conf", Reach::Resolver),
    ("/etc/systemd/resolved.conf", Reach::Resolver),
    ("/etc/systemd/resolved.conf.d", Reach::Resolver),
    ("/etc/nsswitch.conf", Reach::Resolver),
    ("/etc/hosts", Reach::Resolver),
    ("/etc/host.conf", Reach::Resolver),
    ("/etc/gai.conf", Reach::Resolver),
    ("/etc/ssh/sshd_config", Reach::RemoteLogin),
    ("/etc/ssh/sshd_config.d", Reach::RemoteLogin),
    ("/etc/default/ssh", Reach::RemoteLogin),
    ("/etc/pam.d/sshd", Reach::RemoteLogin),
    ("/root/.ssh", Reach::RemoteLogin),
    ("/usr/bin/muster-agent", Reach::Agent),
    ("/usr/local/bin/muster-agent", Reach::Agent),
    ("/etc/default/muster-agent", Reach::Agent),
    ("/etc/muster", Reach::Agent),
    ("/var/lib/muster", Reach::Agent),
];
/// Below [`PATHS`], and not counted: what an administrator says of the host.
const LEFT_OUT: &[&str] = &["/etc/muster/traits.d"];
/// What the names of units begin with.
const UNITS: &[(&str, Reach)] = &[
    ("networking", Reach::Network),
    ("systemd-networkd", Reach::Network),
    ("NetworkManager", Reach::Network),
    ("dhcpcd", Reach::Network),
    ("wg-quick@", Reach::Network),
    ("ifup@", Reach::Network),
    ("network", Reach::Network),
    ("nftables", Reach::Firewall),
    ("iptables", Reach::Firewall),
    ("ip6tables", Reach::Firewall),
    ("netfilter-persistent", Reach::Firewall),
    ("ufw", Reach::Firewall),
    ("firewalld", Reach::Firewall),
    ("systemd-resolved", Reach::Resolver),
    ("resolvconf", Reach::Resolver),
    ("ssh", Reach::RemoteLogin),
    ("sshd", Reach::RemoteLogin),
    ("muster-agent", Reach::Agent),
];
/// Packages.
const PACKAGES: &[(&str, Reach)] = &[
    ("ifupdown", Reach::Network),
    ("netplan.io", Reach::Network),
    ("network-manager", Reach::Network),
    ("isc-dhcp-client", Reach::Network),
    ("dhcpcd-base", Reach::Network),
    ("wireguard-tools", Reach::Network),
    ("iproute2", Reach::Network),
    ("nftables", Reach::Firewall),
    ("iptables", Reach::Firewall),
    ("iptables-persistent", Reach::Firewall),
    ("ufw", Reach::Firewall),
    ("firewalld", Reach::Firewall),
    ("systemd-resolved", Reach::Resolver),
    ("resolvconf", Reach::Resolver),
    ("openssh-server", Reach::RemoteLogin),
    ("muster-agent", Reach::Agent),
];
/// Programs that set the network or the firewall.
const PROGRAMS: &[(&str, Reach)] = &[
    ("ip", Reach::Network),
    ("ifup", Reach::Network),
    ("ifdown", Reach::Network),
    ("ifreload", Reach::Network),
    ("netplan", Reach::Network),
    ("networkctl", Reach::Network),
    ("nmcli", Reach::Network),
    ("nft", Reach::Firewall),
    ("iptables", Reach::Firewall),
    ("iptables-restore", Reach::Firewall),
    ("ip6tables", Reach::Firewall),
    ("ip6tables-restore", Reach::Firewall),
    ("ufw", Reach::Firewall),
    ("firewall-cmd", Reach::Firewall),
    ("resolvectl", Reach::Resolver),
];

/// What of the way to the host a resource touches; nothing for one that cannot cut it off. sudo's rules are none: they
/// concern who is there already.
pub fn reach_of(spec: &Spec) -> Option<Reach> {
    match spec {
        Spec::Unit(unit) => unit_reach(&unit.unit).or_else(|| paths_reach(spec)),
        Spec::Package(package) => {
            let name = package.name.split(':').next().unwrap_or_default();
            exact(PACKAGES, name)
        }
        Spec::SshKey(keys) if matches!(keys.user.as_str(), "root" | "0") => Some(Reach::RemoteLogin),
        Spec::Sysctl(sysctl) => {
            let key: Cow<'_, str> = sysctl.key.replace('/', ".").into();
            key.starts_with("net.").then_some(Reach::Network)
        }
        Spec::Exec(exec) => match &exec.command {
            CommandLine::Argv(argv) => argv.first().and_then(|program| program_reach(program)),
            CommandLine::Shell(text) => text.split_whitespace().next().and_then(program_reach),
        },
        spec => paths_reach(spec),
    }
}

/// What of the way to a host lies at a path, or the path in: `/etc/netplan` and all below it.
pub fn path_reach(path: &str) -> Option<Reach> {
    let path = normalized(path);
    if LEFT_OUT.iter().any(|top| within(&path, top)) {
        return None;
    }
    let listed = PATHS.iter().find(|(top, _)| within(&path, top)).map(|(_, reach)| *reach);
    listed.or_else(|| unit_file_reach(&path))
}

fn paths_reach(spec: &Spec) -> Option<Reach> {
    spec.paths(&|_| None).find_map(|found| match found.role {
        PathRole::Written { .. } | PathRole::Directory(_) | PathRole::Contents => path_reach(&found.path),
        PathRole::Watched | PathRole::Probed => None,
    })
}

/// A unit's own file, its drop-ins and its links below `*.wants`.
fn unit_file_reach(path: &str) -> Option<Reach> {
    let folders = ["/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"];
    let below = folders.iter().find_map(|folder| path.strip_prefix(folder))?;
    below.split('/').find_map(|part| unit_reach(part.strip_suffix(".d").unwrap_or(part)))
}

fn unit_reach(unit: &str) -> Option<Reach> {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let is = |name: &str| match name.ends_with('@') {
        true => stem.starts_with(name),
        false => stem == name,
    };
    UNITS.iter().find(|(name, _)| is(name)).map(|(_, reach)| *reach)
}

fn program_reach(program: &str) -> Option<Reach> {
    exact(PROGRAMS, program.rsplit('/').next().unwrap_or(program))
}

fn exact(table: &[(&str, Reach)], name: &str) -> Option<Reach> {
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
            ("/etc/network/interfaces", Some(Reach::Network)),
            ("/etc/network/interfaces.d/eth0", Some(Reach::Network)),
            ("/etc/netplan", Some(Reach::Network)),
            ("/etc/netplan/50-cloud-init.yaml", Some(Reach::Network)),
            ("/etc//systemd/network/host0.network", Some(Reach::Network)),
            ("/etc/NetworkManager/system-connections/a", Some(Reach::Network)),
            ("/etc/networks", None),
            ("/etc/nftables.conf", Some(Reach::Firewall)),
            ("/etc/nftables.conf.bak", None),
            ("/etc/iptables/rules.v4", Some(Reach::Firewall)),
            ("/etc/ufw/user.rules", Some(Reach::Firewall)),
            ("/etc/resolv.conf", Some(Reach::Resolver)),
            ("/etc/hosts", Some(Reach::Resolver)),
            ("/etc/hostname", None),
            ("/etc/ssh/sshd_config", Some(Reach::RemoteLogin)),
            ("/etc/ssh/sshd_config.d/10-own.conf", Some(Reach::RemoteLogin)),
            ("/etc/ssh/ssh_config", None),
            ("/root/.ssh/authorized_keys", Some(Reach::RemoteLogin)),
            ("/home/a/.ssh/authorized_keys", None),
            ("/etc/sudoers.d/ops", None),
            ("/usr/bin/muster-agent", Some(Reach::Agent)),
            ("/etc/muster/traits.d/site.yaml", None),
            ("/etc/systemd/system/muster-agent.service.d/own.conf", Some(Reach::Agent)),
            ("/etc/systemd/system/ssh.service.d", Some(Reach::RemoteLogin)),
            ("/etc/systemd/system/ssh.socket.d/port.conf", Some(Reach::RemoteLogin)),
            ("/etc/systemd/system/multi-user.target.wants/nftables.service", Some(Reach::Firewall)),
            ("/etc/systemd/system/wg-quick@wg0.service", Some(Reach::Network)),
            ("/etc/systemd/system/nginx.service", None),
            ("/etc", None),
            ("/", None),
        ];
        for (path, reach) in table {
            assert_eq!(path_reach(path), reach, "{path}");
        }
    }

    #[test]
    fn units_and_programs_are_known_by_their_whole_name() {
        let units = [
            ("ssh.service", Some(Reach::RemoteLogin)),
            ("sshd.service", Some(Reach::RemoteLogin)),
            ("sshguard.service", None),
            ("systemd-networkd.service", Some(Reach::Network)),
            ("wg-quick@wg0.service", Some(Reach::Network)),
            ("nftables.service", Some(Reach::Firewall)),
            ("muster-agent.service", Some(Reach::Agent)),
            ("muster.service", None),
        ];
        for (unit, reach) in units {
            assert_eq!(unit_reach(unit), reach, "{unit}");
        }
        let programs = [
            ("/usr/sbin/nft", Some(Reach::Firewall)),
            ("ip", Some(Reach::Network)),
            ("/usr/bin/zip", None),
            ("/usr/sbin/netplan", Some(Reach::Network)),
        ];
        for (program, reach) in programs {
            assert_eq!(program_reach(program), reach, "{program}");
        }
    }
}
