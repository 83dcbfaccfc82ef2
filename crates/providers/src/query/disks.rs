//! File systems and how full they are.

use std::collections::BTreeMap;

use host::Host;
use model::text::chain;
use serde_json::{Value, json};

use super::proc::Proc;
use super::rows;

/// The most mounts that are looked at.
const MAX_MOUNTS: usize = 4096;
/// File systems that other machines serve, and those that mount when they are looked at:
/// asking them how full they are may take for ever.
const REMOTE: &[&str] = &["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "autofs", "virtiofs", "lustre"];

/// One line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Major and minor number: two mounts of one file system share them.
    number: String,
    pub(crate) point: String,
    kind: String,
    device: String,
}

impl Mount {
    /// Asking how full it is may take for ever.
    pub(crate) fn is_remote(&self) -> bool {
        REMOTE.contains(&self.kind.as_str()) || self.kind.starts_with("fuse")
    }
}

/// Each file system once, by the path of its shortest mount point.
///
/// # Errors
/// In words, when the kernel's table cannot be read.
pub(crate) fn mount_table(host: &Host) -> Result<Vec<Mount>, String> {
    // What is mounted where is said of the real root, and nothing of it is below another.
    if host.rooted() { Ok(vec![root()]) } else { Ok(mounts(&Proc::of(host).required("self/mountinfo")?)) }
}

pub(super) fn answer(host: &Host) -> Result<Value, String> {
    let mounts = mount_table(host)?;
    let unread = mounts.len().saturating_sub(MAX_MOUNTS);
    let disks: Vec<Value> =
        mounts.into_iter().take(MAX_MOUNTS).filter_map(|mount| look(host, mount)).collect();
    rows("disks", disks, unread)
}

fn root() -> Mount {
    let unknown = || "unknown".to_owned();
    Mount { number: String::new(), point: "/".to_owned(), kind: unknown(), device: unknown() }
}

fn look(host: &Host, mount: Mount) -> Option<Value> {
    let usage = if mount.is_remote() {
        Err("not asked: it may not answer".to_owned())
    } else {
        host.usage(&mount.point).map_err(|error| chain(&error))
    };
    let (usage, error) = match usage {
        // The kernel's own have no size.
        Ok(usage) if usage.total == 0 => return None,
        Ok(usage) => (Some(usage), None),
        Err(why) => (None, Some(why)),
    };
    Some(json!({
        "mount": mount.point,
        "device": mount.device,
        "type": mount.kind,
        "totalBytes": usage.map(|usage| usage.total),
        "freeBytes": usage.map(|usage| usage.free),
        "availableBytes": usage.map(|usage| usage.available),
        "inodes": usage.map(|usage| usage.inodes),
        "inodesFree": usage.map(|usage| usage.inodes_free),
        "error": error,
    }))
}

/// Each file system once, at the shortest of the places where it is mounted.
fn mounts(table: &str) -> Vec<Mount> {
    let mut found: BTreeMap<String, Mount> = BTreeMap::new();
    for mount in table.lines().filter_map(mount) {
        let known = found.entry(mount.number.clone()).or_insert_with(|| mount.clone());
        if mount.point.len() < known.point.len() {
            *known = mount;
        }
    }
    let mut mounts: Vec<Mount> = found.into_values().collect();
    mounts.sort_by(|a, b| a.point.cmp(&b.point));
    mounts
}

/// `id parent major:minor root point options [tags] - type device options`.
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    Some(Mount {
        number: (*left.get(2)?).to_owned(),
        point: unescaped(left.get(4)?),
        kind: right.next()?.to_owned(),
        device: unescaped(right.next()?),
    })
}

/// Spaces and the like stand as three octal digits.
fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
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
        let found: Vec<_> = mounts(table).into_iter().map(|m| (m.point, m.kind, m.device)).collect();
        let row = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(found, [row("/", "ext4", "/dev/sda1"), row("/mnt/my disk", "xfs", "/dev/sd\tb")]);
    }
}
