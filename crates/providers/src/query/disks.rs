//! File systems and how full they are.

use std::collections::BTreeMap;

use converge::kinds::mount::{KernelMount, kernel_mounts};
use host::Host;
use model::sort::SortCompactly;
use model::text::chain;
use serde_json::{Value, json};

use super::rows;

/// The most mounts that are looked at.
const MAX_MOUNTS: usize = 4096;
/// Each file system once, by the path of its shortest mount point.
///
/// # Errors
/// In words, when the kernel's table cannot be read.
pub(crate) fn file_systems(host: &Host) -> Result<Vec<KernelMount>, String> {
    // What is mounted where is said of the real root, and nothing of it is below another.
    if host.rooted() {
        return Ok(vec![root()]);
    }
    let table = host.mount_table().map_err(|error| format!("cannot read the table of mounts: {error}"))?;
    Ok(mounts(&table))
}

pub(super) fn answer(host: &Host) -> Result<Value, String> {
    let mounts = file_systems(host)?;
    let unread = mounts.len().saturating_sub(MAX_MOUNTS);
    let disks: Vec<Value> =
        mounts.into_iter().take(MAX_MOUNTS).filter_map(|mount| look(host, mount)).collect();
    rows("disks", disks, unread)
}

fn root() -> KernelMount {
    let unknown = || "unknown".to_owned();
    KernelMount { path: "/".to_owned(), fstype: unknown(), source: unknown(), options: Vec::new() }
}

fn look(host: &Host, mount: KernelMount) -> Option<Value> {
    let usage = if mount.may_hang() {
        Err("not asked: it may not answer".to_owned())
    } else {
        host.usage(&mount.path).map_err(|error| chain(&error))
    };
    let (usage, error) = match usage {
        // The kernel's own have no size.
        Ok(usage) if usage.total == 0 => return None,
        Ok(usage) => (Some(usage), None),
        Err(why) => (None, Some(why)),
    };
    Some(json!({
        "mount": mount.path,
        "device": mount.source,
        "type": mount.fstype,
        "totalBytes": usage.map(|usage| usage.total),
        "freeBytes": usage.map(|usage| usage.free),
        "availableBytes": usage.map(|usage| usage.available),
        "inodes": usage.map(|usage| usage.inodes),
        "inodesFree": usage.map(|usage| usage.inodes_free),
        "error": error,
    }))
}

/// Each file system once, at the shortest of the places where it is mounted: two mounts of one share the
/// major and minor number of its device.
fn mounts(table: &str) -> Vec<KernelMount> {
    let mut found: BTreeMap<&str, KernelMount> = BTreeMap::new();
    for line in table.lines() {
        let (Some(number), Some(mount)) = (line.split(' ').nth(2), kernel_mounts(line).pop()) else {
            continue;
        };
        let known = found.entry(number).or_insert_with(|| mount.clone());
        if mount.path.len() < known.path.len() {
            *known = mount;
        }
    }
    let mut mounts: Vec<KernelMount> = found.into_values().collect();
    mounts.sort_compactly_by(|a, b| a.path.cmp(&b.path));
    mounts
}

#[cfg(test)]
mod tests {
    use super::mounts;

    #[test]
    fn each_file_system_is_told_once() {
        let table = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     30 22 8:1 /srv /srv/bind rw - ext4 /dev/sda1 rw\n\
                     31 22 8:2 / /mnt/my\\040disk rw master:2 - xfs /dev/sd\\011b rw\n\
                     garbage\n";
        let found: Vec<_> = mounts(table).into_iter().map(|m| (m.path, m.fstype, m.source)).collect();
        let row = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(found, [row("/", "ext4", "/dev/sda1"), row("/mnt/my disk", "xfs", "/dev/sd\tb")]);
    }
}
