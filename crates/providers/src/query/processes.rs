//! The processes of a host, without their arguments.

use std::cmp::Reverse;

use host::{Accounts, Host};
use model::sort::SortCompactly;
use model::text::chain;
use serde::Serialize;
use serde_json::Value;

use super::proc::{Proc, user};
use super::rows;

/// Clock ticks in a second, as the kernel counts towards programs on every machine that
/// the agent is built for.
const TICKS: u64 = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    pid: u32,
    ppid: u32,
    user: String,
    /// The name that the kernel shows: at most 15 bytes.
    name: String,
    /// The program's file, where the agent may see it.
    exe: Option<String>,
    state: String,
    threads: u32,
    rss_kib: u64,
    cpu_ms: u64,
}

pub(super) fn answer(host: &Host) -> Result<Value, String> {
    let proc = Proc::of(host);
    let accounts = host.accounts().map_err(|error| chain(&error))?;
    // One that ended meanwhile is none.
    let mut processes: Vec<Process> =
        proc.processes()?.into_iter().filter_map(|pid| process(&proc, &accounts, pid)).collect();
    // What takes most comes first, where not all fits.
    processes.sort_compactly_by_key(|process| (Reverse(process.rss_kib), process.pid));
    rows("processes", processes, 0)
}

/// Whether a process of this name runs: the name that the kernel shows, which is cut after 15
/// bytes, or the name of the program's file. One that has ended and waits for its parent is none.
pub(super) fn is_running(host: &Host, name: &str) -> Result<bool, String> {
    /// The longest name that the kernel shows, in bytes.
    const MAX_SHOWN: usize = 15;
    let proc = Proc::of(host);
    let shown = name.get(..MAX_SHOWN).unwrap_or(name);
    let is_named = |pid: u32| {
        let is_file = |exe: String| exe.rsplit('/').next() == Some(name);
        proc.name(pid).as_deref() == Some(shown) || proc.link(format!("{pid}/exe")).is_some_and(is_file)
    };
    let is_alive = |pid: u32| {
        let stat = proc.text(format!("{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().next());
        !matches!(state, Some("Z" | "X") | None)
    };
    Ok(proc.processes()?.into_iter().any(|pid| is_named(pid) && is_alive(pid)))
}

fn process(proc: &Proc, accounts: &Accounts, pid: u32) -> Option<Process> {
    let stat = proc.text(format!("{pid}/stat"))?;
    let status = proc.text(format!("{pid}/status"))?;
    // The name in parentheses may hold anything; what follows it is regular.
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let line = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let uid = line("Uid:").and_then(|uid| u32::try_from(uid).ok())?;
    Some(Process {
        pid,
        ppid: u32::try_from(number(1)?).ok()?,
        user: user(accounts, uid),
        name,
        exe: proc.link(format!("{pid}/exe")),
        state: (*fields.first()?).to_owned(),
        threads: u32::try_from(number(17)?).ok()?,
        // A kernel thread has none.
        rss_kib: line("VmRSS:").unwrap_or(0),
        cpu_ms: (number(11)? + number(12)?).saturating_mul(1000 / TICKS),
    })
}
