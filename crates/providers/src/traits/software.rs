//! `packages`, `services`, `users`, `listeners` and `certificates`: what was put on the machine.

use std::collections::BTreeSet;

use host::Host;
use lang::Value;
use model::Timestamp;
use model::sort::SortCompactly;
use model::text::chain;

use super::TraitGroup;
use super::observe::{etc, group, int, names_in, text};
use crate::query::listeners::listening_ports;

/// The most names of users, units, packages or ports that are a trait.
const MAX_LISTED: usize = 256;
/// The database of dpkg, and the most bytes of it that are read.
const DPKG_STATUS: (&str, u64) = ("/var/lib/dpkg/status", 64 * 1024 * 1024);
/// Other package managers by the path that only they have.
const OTHER_MANAGERS: &[(&str, &str)] = &[
    ("/lib/apk/db/installed", "apk"),
    ("/var/lib/pacman/local", "pacman"),
    ("/usr/bin/dnf", "dnf"),
    ("/usr/bin/zypper", "zypper"),
];
/// Where administrators say which units start at boot.
const UNITS: &str = "/etc/systemd/system";
/// The numbers of accounts of people.
const PEOPLE: std::ops::Range<u32> = 1000..60_000;
/// From this port on the kernel gives ports to whoever asks for any.
const EPHEMERAL: u16 = 32_768;
/// Where servers have their certificates: directories, and below the first those of each name.
const CERTIFICATES: &[&str] =
    &["/etc/letsencrypt/live", "/etc/ssl", "/etc/ssl/local", "/etc/nginx/tls", "/etc/nginx/ssl"];
/// The most certificates that are read.
const MAX_CERTIFICATES: usize = 512;
/// The largest file, in bytes, that is read as a certificate.
const MAX_CERTIFICATE: u64 = 64 * 1024;

/// `packages`: how many there are, and which are held back.
pub(super) fn packages(host: &Host) -> Result<TraitGroup, String> {
    let (path, limit) = DPKG_STATUS;
    let status = host.read_followed(path, limit).map_err(|error| chain(&error))?;
    let (manager, count, held) = match status {
        Some(status) => {
            let (count, held) = dpkg(&String::from_utf8_lossy(&status));
            ("apt", count, held)
        }
        None => {
            let is_there = |(path, _): &&(&str, &str)| host.exists(path).unwrap_or(false);
            (OTHER_MANAGERS.iter().find(is_there).map_or("", |(_, name)| name), 0, Vec::new())
        }
    };
    Ok(group([
        ("manager", text(manager)),
        ("count", int(count)),
        ("held", Value::List(held.iter().take(MAX_LISTED).map(|name| text(name)).collect())),
    ]))
}

/// Installed packages in the status file of dpkg, and those of them that are held.
fn dpkg(status: &str) -> (u64, Vec<String>) {
    let (mut count, mut held, mut name) = (0, Vec::new(), "");
    for line in status.lines() {
        if let Some(package) = line.strip_prefix("Package: ") {
            name = package;
        } else if let Some(state) = line.strip_prefix("Status: ")
            && state.ends_with(" installed")
        {
            count += 1;
            if state.starts_with("hold ") {
                held.push(name.to_owned());
            }
        }
    }
    held.sort_compactly();
    (count, held)
}

/// `services`: what starts them, and which units an administrator has start at boot.
pub(super) fn services(host: &Host) -> Result<TraitGroup, String> {
    let runs = |path: &str| host.exists(path).unwrap_or(false);
    let manager = if runs("/run/systemd/system") {
        "systemd"
    } else if runs("/run/openrc") {
        "openrc"
    } else if runs("/run/runit") || runs("/etc/runit/runsvdir") {
        "runit"
    } else {
        ""
    };
    let mut enabled = BTreeSet::new();
    for directory in names_in(host, UNITS)?.iter().filter(|name| name.ends_with(".wants")) {
        let units = names_in(host, &format!("{UNITS}/{directory}"))?;
        enabled.extend(units.into_iter().filter(|unit| unit.ends_with(".service")));
    }
    let enabled = enabled.iter().take(MAX_LISTED).map(|unit| text(unit)).collect();
    Ok(group([("manager", text(manager)), ("enabled", Value::List(enabled))]))
}

/// `users`: the accounts of people.
pub(super) fn users(host: &Host) -> Result<TraitGroup, String> {
    let passwd = etc(host, "/etc/passwd")?.unwrap_or_default();
    let mut people: Vec<&str> = passwd
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
            PEOPLE.contains(&uid).then_some(name)
        })
        .collect();
    people.sort_compactly();
    let count = int(people.len() as u64);
    let names = people.into_iter().take(MAX_LISTED).map(text).collect();
    Ok(group([("count", count), ("names", Value::List(names))]))
}

/// `listeners`: the ports that anything listens on.
pub(super) fn listeners(host: &Host) -> Result<TraitGroup, String> {
    let listed = |ports: BTreeSet<u16>| {
        Value::List(ports.into_iter().take(MAX_LISTED).map(|port| int(u64::from(port))).collect())
    };
    // Whoever asks over UDP holds such a port for a moment.
    let mut udp = listening_ports(host, "udp")?;
    udp.retain(|port| *port < EPHEMERAL);
    Ok(group([("tcp", listed(listening_ports(host, "tcp")?)), ("udp", listed(udp))]))
}

/// `certificates`: those of servers in the usual places, and the one that ends first.
pub(super) fn certificates(host: &Host) -> Result<TraitGroup, String> {
    let mut found: Vec<(Timestamp, String)> = Vec::new();
    for path in certificate_paths(host)?.into_iter().take(MAX_CERTIFICATES) {
        // A directory, a device, a file that is too large: no certificate.
        let Ok(Some(bytes)) = host.read_followed(&path, MAX_CERTIFICATE) else { continue };
        // The first one in a file is the server's own.
        found.extend(net::identity::validity(&bytes).map(|validity| (validity.until, path)));
    }
    found.sort_compactly();
    let (end, path) = match found.first() {
        Some((end, path)) => (end.to_string(), path.as_str()),
        None => (String::new(), ""),
    };
    Ok(group([("count", int(found.len() as u64)), ("first_end", text(&end)), ("first_path", text(path))]))
}

fn certificate_paths(host: &Host) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for (number, directory) in CERTIFICATES.iter().enumerate() {
        for name in names_in(host, directory)? {
            if number == 0 {
                paths.push(format!("{directory}/{name}/cert.pem"));
            } else if name.ends_with(".pem") || name.ends_with(".crt") {
                paths.push(format!("{directory}/{name}"));
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::dpkg;

    #[test]
    fn only_what_is_installed_counts() {
        let status = "Package: a\nStatus: install ok installed\n\nPackage: b\nStatus: hold ok installed\n\n\
                      Package: c\nStatus: deinstall ok config-files\n";
        assert_eq!(dpkg(status), (2, vec!["b".to_owned()]));
    }
}
