//! `network`: names, addresses and interfaces, from what the kernel prints.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use host::{Host, Kernel};
use lang::Value;

use super::TraitGroup;
use super::observe::{etc, group, names_in, system, text};

/// The most addresses, and the most interfaces, that are reported.
const MAX_LISTED: usize = 256;
/// Flags in `if_inet6` of addresses that come and go: temporary, deprecated, tentative.
const PASSING: u32 = 0x01 | 0x20 | 0x40;

/// Observes the network.
pub(super) fn observe(host: &Host) -> Result<TraitGroup, String> {
    let hostname = hostname(host)?;
    let fqdn = fqdn(host, &hostname)?;
    let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
    if let Some(table) = system(host, "/proc/net/fib_trie")? {
        addresses.extend(ipv4(&table).map(IpAddr::V4));
    }
    if let Some(table) = system(host, "/proc/net/if_inet6")? {
        addresses.extend(ipv6(&table).map(IpAddr::V6));
    }
    let addresses = addresses.iter().take(MAX_LISTED).map(|address| Value::Str(address.to_string()));
    Ok(group([
        ("hostname", text(&hostname)),
        ("fqdn", text(&fqdn)),
        ("addresses", Value::List(addresses.collect())),
        ("interfaces", Value::List(interfaces(host)?)),
    ]))
}

/// A host root may name its host; else the kernel does.
fn hostname(host: &Host) -> Result<String, String> {
    let named = if host.rooted() { etc(host, "/etc/hostname")? } else { None };
    let named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    Ok(named.unwrap_or_else(|| Kernel::observe().hostname))
}

/// The name with a domain that the hosts file has for the host's name; else the name.
fn fqdn(host: &Host, hostname: &str) -> Result<String, String> {
    if hostname.contains('.') {
        return Ok(hostname.to_owned());
    }
    let hosts = etc(host, "/etc/hosts")?.unwrap_or_default();
    let named = hosts.lines().find_map(|line| {
        let names: Vec<&str> = line.split('#').next()?.split_ascii_whitespace().skip(1).collect();
        let full =
            names.iter().find(|name| name.split_once('.').is_some_and(|(first, _)| first == hostname))?;
        names.contains(&hostname).then(|| (*full).to_owned())
    });
    Ok(named.unwrap_or_else(|| hostname.to_owned()))
}

fn interfaces(host: &Host) -> Result<Vec<Value>, String> {
    let names = names_in(host, "/sys/class/net")?;
    // One end of a container's cable comes and goes with the container.
    let lasting = |name: &String| name != "lo" && !name.starts_with("veth");
    Ok(names.iter().filter(|name| lasting(name)).take(MAX_LISTED).map(|name| text(name)).collect())
}

/// The host's own addresses in the kernel's routing trie: each is a leaf `/32 host LOCAL`.
fn ipv4(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    table.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
            return None;
        }
        let own = line.starts_with("/32 host LOCAL");
        last.filter(|address| own && !address.is_loopback() && !address.is_link_local())
    })
}

/// Lasting addresses with a scope beyond the link.
fn ipv6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [digits, _, _, scope, flags, _] = fields.as_slice() else { return None };
        let address = Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?);
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let beyond = !matches!(*scope, "10" | "20");
        (beyond && flags & PASSING == 0).then_some(address)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::{ipv4, ipv6};

    #[test]
    fn reads_own_addresses_from_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(ipv4(trie).map(|a| a.to_string()).collect::<Vec<_>>(), ["10.0.0.7"]);
        let inet6 = "00000000000000000000000000000001 01 80 10 80       lo\n20010db8000000000000000000000001 02 40 00 80     eth0\n20010db80000000000000000000000ff 02 40 00 01     eth0\nfe800000000000000000000000000001 02 40 20 80     eth0\n";
        assert_eq!(ipv6(inet6).map(|a| a.to_string()).collect::<Vec<_>>(), ["2001:db8::1"]);
    }
}
