//! `disks` and `mounts`: what the machine stores on.

use host::Host;
use lang::Value;

use super::TraitGroup;
use super::observe::{group, int, names_in, system, text};
use crate::query::disks::file_systems;

/// The most disks, and the most mount points, that are a trait.
const MAX_LISTED: usize = 256;
/// Block devices that are no disks.
const NO_DISKS: &[&str] = &["loop", "ram", "zram", "dm-", "sr", "fd", "md"];
/// The size of a sector in what the kernel prints, in bytes.
const SECTOR: u64 = 512;
/// From this share of its space on, in percent, a file system counts as nearly full.
const NEARLY_FULL: u64 = 90;

/// `disks`: names and size together.
pub(super) fn disks(host: &Host) -> Result<TraitGroup, String> {
    let all = names_in(host, "/sys/block")?;
    let disks: Vec<String> =
        all.into_iter().filter(|name| !NO_DISKS.iter().any(|other| name.starts_with(other))).collect();
    let mut sectors = 0_u64;
    for disk in &disks {
        let size = system(host, &format!("/sys/block/{disk}/size"))?.unwrap_or_default();
        sectors = sectors.saturating_add(size.trim().parse().unwrap_or(0));
    }
    let names = disks.iter().take(MAX_LISTED).map(|name| text(name)).collect();
    Ok(group([
        ("names", Value::List(names)),
        ("total_mb", int(sectors.saturating_mul(SECTOR) / (1024 * 1024))),
    ]))
}

/// `mounts`: where file systems with files are mounted, and which are nearly full. Those that another
/// machine serves are not asked how full they are: they may not answer.
pub(super) fn mounts(host: &Host) -> Result<TraitGroup, String> {
    let mounts = file_systems(host)?;
    let (mut points, mut full, mut remote) = (Vec::new(), Vec::new(), Vec::new());
    for mount in mounts.iter().take(MAX_LISTED) {
        if mount.may_hang() {
            remote.push(text(&mount.path));
            continue;
        }
        let Ok(usage) = host.usage(&mount.path) else { continue };
        if usage.total == 0 {
            continue;
        }
        points.push(text(&mount.path));
        let used = usage.total.saturating_sub(usage.free);
        let room = used.saturating_add(usage.available).max(1);
        if used.saturating_mul(100) / room >= NEARLY_FULL {
            full.push(text(&mount.path));
        }
    }
    Ok(group([
        ("points", Value::List(points)),
        ("remote", Value::List(remote)),
        ("nearly_full", Value::List(full)),
    ]))
}
