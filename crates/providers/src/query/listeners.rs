//! Listening sockets, and whose they are where the agent may see it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use host::Host;
use model::sort::SortCompactly;
use model::text::chain;
use serde::Serialize;
use serde_json::Value;

use super::proc::{Proc, user};
use super::rows;

/// The most descriptors of one process that are looked at.
const MAX_DESCRIPTORS: usize = 65_536;
/// Tables of the kernel, and the state in them that waits for anyone: LISTEN, and for UDP
/// an unconnected socket.
const TABLES: [(&str, &str, &str); 4] = [
    ("tcp", "net/tcp", "0A"),
    ("tcp", "net/tcp6", "0A"),
    ("udp", "net/udp", "07"),
    ("udp", "net/udp6", "07"),
];

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Listener {
    protocol: &'static str,
    port: u16,
    address: String,
    user: String,
    pid: Option<u32>,
    process: Option<String>,
}

/// One line of a table.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
}

pub(super) fn answer(host: &Host) -> Result<Value, String> {
    let proc = Proc::of(host);
    let accounts = host.accounts().map_err(|error| chain(&error))?;
    let owners = owners(&proc)?;
    let mut listeners = Vec::new();
    for (protocol, table, state) in TABLES {
        for socket in sockets(&table_text(&proc, table)?, state) {
            let owner = owners.get(&socket.inode);
            listeners.push(Listener {
                protocol,
                port: socket.port,
                address: socket.address.to_string(),
                user: user(&accounts, socket.uid),
                pid: owner.map(|(pid, _)| *pid),
                process: owner.map(|(_, name)| name.clone()),
            });
        }
    }
    listeners.sort_compactly();
    rows("listeners", listeners, 0)
}

/// The ports of a protocol (`tcp` or `udp`) that anything listens on, sorted.
///
/// # Errors
/// In words, when the kernel's table cannot be read.
pub(crate) fn listening_ports(host: &Host, protocol: &str) -> Result<BTreeSet<u16>, String> {
    let proc = Proc::of(host);
    let mut ports = BTreeSet::new();
    for (_, table, state) in TABLES.iter().filter(|(of, _, _)| *of == protocol) {
        ports.extend(sockets(&table_text(&proc, table)?, state).into_iter().map(|socket| socket.port));
    }
    Ok(ports)
}

/// A kernel without IPv6 has no table of it.
fn table_text(proc: &Proc, table: &str) -> Result<String, String> {
    if table.ends_with('6') { Ok(proc.text(table).unwrap_or_default()) } else { proc.required(table) }
}

/// The processes by the sockets that they hold; of several that share one the first.
fn owners(proc: &Proc) -> Result<BTreeMap<u64, (u32, String)>, String> {
    let mut owners = BTreeMap::new();
    for pid in proc.processes()? {
        let mut name = None;
        for fd in proc.names(format!("{pid}/fd"), MAX_DESCRIPTORS) {
            let target = proc.link(format!("{pid}/fd/{fd}")).unwrap_or_default();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            if let Some(inode) = inode.and_then(|inode| inode.parse().ok()) {
                let name = name.get_or_insert_with(|| proc.name(pid).unwrap_or_default());
                owners.entry(inode).or_insert_with(|| (pid, name.clone()));
            }
        }
    }
    Ok(owners)
}

fn sockets(table: &str, state: &str) -> Vec<Socket> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, found, _, _, _, uid, _, inode, ..] = fields.as_slice() else { return None };
        let (address, port) = local.split_once(':')?;
        if *found != state {
            return None;
        }
        Some(Socket {
            address: address_of(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            uid: uid.parse().ok()?,
            inode: inode.parse().ok()?,
        })
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// The kernel prints addresses as words in the machine's own order.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).into())
        }
        _ => None,
    }
}
