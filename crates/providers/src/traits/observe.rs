//! The collectors that read one or two files each.

use model::PathState;
use model::collect::CollectInserting;
use model::exchange::NODE_FEATURES;
use model::sort::SortCompactly;
use model::text::chain;
use std::collections::BTreeMap;
use std::io::Read;

use host::{Host, Kernel};
use lang::Value;

use super::TraitGroup;

/// The largest file, in bytes, that a trait is read from.
const MAX_SOURCE: u64 = 1024 * 1024;
/// The longest text, in bytes, of a trait.
const MAX_TEXT: usize = 256;
/// The most entries that a directory is read with.
const MAX_NAMES: usize = 65_536;
const UNKNOWN_ZONE: &str = "UTC";

/// `os`: the distribution from os-release, of the host root where it has one.
pub(super) fn os(host: &Host) -> Result<TraitGroup, String> {
    let mut release = None;
    for path in ["/etc/os-release", "/usr/lib/os-release"] {
        release = system(host, path)?;
        if release.is_some() {
            break;
        }
    }
    let fields = os_release(&release.ok_or("there is no os-release file")?);
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let kernel = Kernel::observe();
    let id = fields.get("ID").cloned().unwrap_or_else(|| "linux".to_owned());
    Ok(group([
        ("family", text(&family(&id, &field("ID_LIKE")))),
        ("distro", text(fields.get("NAME").unwrap_or(&id))),
        ("version", text(&field("VERSION_ID"))),
        ("codename", text(&field("VERSION_CODENAME"))),
        ("id", text(&id)),
        ("arch", text(&kernel.machine)),
        ("kernel", text(&kernel.release)),
    ]))
}

/// `hardware`: who made the machine, where firmware has it.
pub(super) fn hardware(host: &Host) -> Result<TraitGroup, String> {
    let machine = Kernel::observe().machine;
    let dmi = |name: &str| -> Result<Value, String> {
        Ok(text(system(host, &format!("/sys/class/dmi/id/{name}"))?.unwrap_or_default().trim()))
    };
    Ok(group([
        ("arch", text(&machine)),
        ("machine", text(&machine)),
        ("vendor", dmi("sys_vendor")?),
        ("model", dmi("product_name")?),
    ]))
}

/// `cpu`: logical processors, and the name of the first.
pub(super) fn cpu(host: &Host) -> Result<TraitGroup, String> {
    let info = required(host, "/proc/cpuinfo")?;
    let field = |line: &str, name: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    let count = info.lines().filter(|line| field(line, "processor").is_some()).count().max(1);
    let model = info.lines().find_map(|line| field(line, "model name").or_else(|| field(line, "Model")));
    Ok(group([("count", int(count as u64)), ("model", text(&model.unwrap_or_default()))]))
}

/// `memory`: main memory and swap space in MiB.
pub(super) fn memory(host: &Host) -> Result<TraitGroup, String> {
    let info = required(host, "/proc/meminfo")?;
    let mib = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
    };
    let total = mib("MemTotal:").ok_or("/proc/meminfo has no MemTotal")?;
    Ok(group([("total_mb", int(total)), ("swap_mb", int(mib("SwapTotal:").unwrap_or(0)))]))
}

/// `uptime`: seconds since boot, and which boot it was.
pub(super) fn uptime(host: &Host) -> Result<TraitGroup, String> {
    let uptime = required(host, "/proc/uptime")?;
    let seconds = uptime.split('.').next().and_then(|whole| whole.trim().parse::<u64>().ok());
    let boot = required(host, "/proc/sys/kernel/random/boot_id")?;
    Ok(group([
        ("seconds", int(seconds.ok_or("/proc/uptime is not a number")?)),
        ("boot_id", text(boot.trim())),
    ]))
}

/// `time`: the zone that `/etc/localtime` points to, else what `/etc/timezone` says.
pub(super) fn time(host: &Host) -> Result<TraitGroup, String> {
    let linked = match host.look("/etc/localtime") {
        Ok(PathState::Symlink { target }) => target.split_once("zoneinfo/").map(|(_, zone)| zone.to_owned()),
        Ok(_) | Err(_) => None,
    };
    let zone = match linked {
        Some(zone) => zone,
        None => etc(host, "/etc/timezone")?.map(|text| text.trim().to_owned()).unwrap_or_default(),
    };
    Ok(group([("timezone", text(if zone.is_empty() { UNKNOWN_ZONE } else { &zone }))]))
}

/// `agent`: the agent itself.
pub(super) fn agent(host: &Host, version: &str) -> TraitGroup {
    let features = NODE_FEATURES.iter().copied().map(text).collect();
    group([
        ("version", text(version)),
        ("rooted", Value::Bool(host.rooted())),
        ("features", Value::List(features)),
    ])
}

/// A file below the host root.
pub(super) fn etc(host: &Host, path: &str) -> Result<Option<String>, String> {
    let bytes = host.read_followed(path, MAX_SOURCE).map_err(|error| chain(&error))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// A file that the system writes: below the host root where it has one, else the real
/// host's, because a root directory seldom has a kernel of its own.
pub(super) fn system(host: &Host, path: &str) -> Result<Option<String>, String> {
    if host.rooted()
        && let Some(text) = etc(host, path)?
    {
        return Ok(Some(text));
    }
    let failed = |error: std::io::Error| format!("cannot read {path}: {error}");
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

pub(super) fn required(host: &Host, path: &str) -> Result<String, String> {
    system(host, path)?.ok_or_else(|| format!("{path} does not exist"))
}

/// The names in a directory of the system, sorted; none where there is no such directory.
pub(super) fn names_in(host: &Host, path: &str) -> Result<Vec<String>, String> {
    let below = host.names(path, MAX_NAMES).map_err(|error| chain(&error))?;
    let mut names = match below {
        Some(names) => names,
        // A root directory seldom has a kernel of its own.
        None if host.rooted() && path.starts_with("/sys/") => real_names(path),
        None => Vec::new(),
    };
    names.sort_compactly();
    Ok(names)
}

fn real_names(path: &str) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten();
    entries.take(MAX_NAMES).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Named traits as a group.
pub(super) fn group<const N: usize>(traits: [(&str, Value); N]) -> TraitGroup {
    traits.into_iter().map(|(name, value)| (name.to_owned(), value)).collect_inserting()
}

/// A trait's text, bounded.
pub(super) fn text(text: &str) -> Value {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Value::Str(text[..end].to_owned())
}

pub(super) fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(lang::value::MAX_INT).min(lang::value::MAX_INT))
}

/// `NAME=value` lines, values bare or quoted as in a shell.
fn os_release(text: &str) -> BTreeMap<String, String> {
    let unquoted = |value: &str| {
        let value = value.trim();
        let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
        let inner = within('"').or_else(|| within('\'')).unwrap_or(value);
        inner.replace(r"\$", "$").replace(r#"\""#, "\"").replace(r"\`", "`").replace(r"\\", r"\")
    };
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), unquoted(value)))
        .collect_inserting()
}

/// The family of distributions: the first known name among the id and those it is like.
fn family(id: &str, like: &str) -> String {
    let known = |name: &str| match name {
        "debian" | "ubuntu" | "raspbian" => Some("debian"),
        "rhel" | "fedora" | "centos" | "rocky" | "almalinux" | "ol" | "amzn" => Some("redhat"),
        "suse" | "opensuse" | "sles" | "opensuse-leap" | "opensuse-tumbleweed" => Some("suse"),
        "arch" | "archlinux" | "manjaro" => Some("arch"),
        "alpine" => Some("alpine"),
        "gentoo" => Some("gentoo"),
        "nixos" => Some("nixos"),
        _ => None,
    };
    let names = std::iter::once(id).chain(like.split_ascii_whitespace());
    names.filter_map(known).next().unwrap_or(id).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::{family, os_release};

    #[test]
    fn reads_os_release_as_a_shell_would() {
        let text = "NAME=\"Debian GNU/Linux\"\n# comment\nVERSION_ID='13'\nID=debian\nODD=\"a \\\"b\\\" \\$c\"\nQ=\"\n";
        let fields = os_release(text);
        assert_eq!(fields["NAME"], "Debian GNU/Linux");
        assert_eq!(fields["VERSION_ID"], "13");
        assert_eq!(fields["ODD"], "a \"b\" $c");
        assert_eq!(fields["Q"], "\"");
    }

    #[test]
    fn families_follow_id_then_likeness() {
        assert_eq!(family("linuxmint", "ubuntu debian"), "debian");
        assert_eq!(family("rocky", "rhel centos fedora"), "redhat");
        assert_eq!(family("void", ""), "void");
    }
}
