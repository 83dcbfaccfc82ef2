//! `mount`: lines of the fstab file, and the kernel's list of mounts.
//!
//! ```text
//! fstab, mountinfo -> observe -> fields -> steps -> Unmount, Mount, Remount, WriteTable
//! ```
//!
//! The line is written only after what it says was mounted: one that cannot be mounted would hold up
//! the next boot.

use catalog::types::{Ensure, MountSpec, StateSpec};
use model::{Edit, Fields};

/// File systems that may be on the other side of a network: nothing is looked at below them.
const REMOTE: [&str; 15] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "glusterfs",
    "afs",
    "autofs",
    "fuse",
    "lustre",
    "gfs2",
    "fuseblk",
    "virtiofs",
];
/// What `mounted` says.
const YES: &str = "yes";
const NO: &str = "no";

/// A mount, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMount {
    /// Where.
    pub path: String,
    /// The type of file system.
    pub fstype: String,
    /// What.
    pub source: String,
    /// Options of the mount. It is `ro` where its file system is.
    pub options: Vec<String>,
}

/// Something that is done to a mount point, in the order in which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountStep {
    /// What is mounted goes.
    Unmount,
    /// The directory is made if it is missing, and the file system is mounted.
    Mount {
        /// What.
        device: String,
        /// As what.
        fstype: String,
        /// How, joined by commas.
        options: String,
    },
    /// What is mounted gets other options.
    Remount {
        /// All of them, joined by commas.
        options: String,
    },
    /// The fstab file gets this content.
    WriteTable(String),
}

/// Reads `/proc/self/mountinfo`; lines that are none are left out. Of several mounts at one point the
/// last is on top.
pub fn kernel_mounts(mountinfo: &str) -> Vec<KernelMount> {
    mountinfo.lines().filter_map(kernel_mount).collect()
}

fn kernel_mount(line: &str) -> Option<KernelMount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let (path, own) = (before.get(4)?, before.get(5)?);
    let mut after = after.split(' ');
    let (fstype, source, rest) = (after.next()?, after.next()?, after.next().unwrap_or_default());
    let read_only = own.split(',').chain(rest.split(',')).any(|option| option == "ro");
    let other = own.split(',').filter(|option| !matches!(*option, "ro" | "rw"));
    let options = other.chain([if read_only { "ro" } else { "rw" }]).map(str::to_owned).collect();
    Some(KernelMount { path: unescaped(path), fstype: fstype.to_owned(), source: unescaped(source), options })
}

/// What is mounted at a point: the last one there.
pub fn mounted_at<'a>(mounts: &'a [KernelMount], path: &str) -> Option<&'a KernelMount> {
    mounts.iter().rev().find(|mount| mount.path == path)
}

/// Whether something is mounted on a mount point, or a look at the point may not be answered.
pub fn is_hidden(mounts: &[KernelMount], path: &str) -> bool {
    mounted_at(mounts, path).is_some() || is_remote(mounts, path)
}

/// Whether a path lies in a file system that may not answer.
pub fn is_remote(mounts: &[KernelMount], path: &str) -> bool {
    let above = |mount: &&KernelMount| {
        path == mount.path || path.starts_with(&format!("{}/", mount.path.trim_end_matches('/')))
    };
    let nearest = mounts.iter().filter(above).max_by_key(|mount| mount.path.len());
    nearest.is_some_and(KernelMount::may_hang)
}

impl KernelMount {
    /// Its file system may not answer.
    pub fn may_hang(&self) -> bool {
        let base = self.fstype.split('.').next().unwrap_or_default();
        REMOTE.contains(&base)
    }
}

/// What the table and the kernel say of the mount point; `None` when neither knows it. A mount without
/// a line has an empty `device`.
pub fn observe(spec: &MountSpec, table: &str, mount: Option<&KernelMount>) -> Option<Fields> {
    let line = table.lines().filter_map(TableLine::read).find(|line| line.path == spec.path);
    if line.is_none() && mount.is_none() {
        return None;
    }
    let as_listed = |mount| line.as_ref().is_some_and(|line| is_kind(&line.fstype, mount));
    let active = |flag: &&str| mount.is_some_and(|mount| mount.options.iter().any(|option| option == flag));
    let mounted = match mount {
        None => NO.to_owned(),
        Some(mount) if is_kind(&spec.fstype, mount) || as_listed(mount) => YES.to_owned(),
        Some(mount) => format!("{} of {}", mount.fstype, mount.source),
    };
    let line = line.unwrap_or_default();
    Some(Fields::from([
        ("device".to_owned(), line.device),
        ("fstype".to_owned(), line.fstype),
        ("options".to_owned(), line.options),
        ("dump".to_owned(), line.dump),
        ("pass".to_owned(), line.pass),
        ("mounted".to_owned(), mounted),
        ("flags".to_owned(), spec.flags().filter(active).collect::<Vec<_>>().join(",")),
    ]))
}

/// Whether a mount may be of the type that a line names. One that names none, or whose driver has
/// another name than its line, may be anything.
fn is_kind(fstype: &str, mount: &KernelMount) -> bool {
    let base = |name: &str| name.split('.').next().unwrap_or_default().trim_end_matches('4').to_owned();
    let anything = ["", "auto", "none", "ntfs", "ntfs-3g", "vfat", "bind"].contains(&fstype);
    let by_driver = mount.fstype.starts_with("fuse") || mount.fstype == "autofs";
    anything || by_driver || base(fstype) == base(&mount.fstype)
}

/// Why an edit is refused, if it is: something else is mounted there, and it is not known what for.
pub fn refuse(edit: &Edit<Fields>) -> Option<String> {
    let other = edit.from()?.get("mounted").filter(|mounted| !matches!(mounted.as_str(), YES | NO))?;
    edit.to()?.get("mounted").filter(|wanted| *wanted == YES)?;
    Some(format!("something else is mounted there: {other}; unmount it, or declare another path"))
}

/// The state that it should have.
pub fn desired(spec: &MountSpec) -> Option<Fields> {
    (spec.ensure() == Ensure::Present).then(|| spec.declared())
}

/// The steps that lead from `now` to `to`.
pub fn steps(spec: &MountSpec, table: &str, now: Option<&Fields>, to: Option<&Fields>) -> Vec<MountStep> {
    let of =
        |name: &str| to.and_then(|to| to.get(name)).or_else(|| now?.get(name)).cloned().unwrap_or_default();
    let differs = |name: &str| {
        to.and_then(|to| to.get(name)).is_some_and(|text| now.and_then(|it| it.get(name)) != Some(text))
    };
    let is_mounted = now.and_then(|now| now.get("mounted")).is_some_and(|text| text != NO);
    let wanted = match to {
        None => Some(NO),
        Some(to) => to.get("mounted").map(|text| if text == YES { YES } else { NO }),
    };
    let had_line = now.and_then(|now| now.get("device")).is_some_and(|device| !device.is_empty());
    // A state without a device is that of a mount point without a line: what is mounted stays so.
    let names_one = to.and_then(|to| to.get("device")).is_none_or(|device| !device.is_empty());
    let another = had_line && names_one && (differs("device") || differs("fstype"));
    let mut steps = Vec::new();
    if is_mounted && (wanted == Some(NO) || (wanted == Some(YES) && another)) {
        steps.push(MountStep::Unmount);
    }
    if wanted == Some(YES) {
        if !is_mounted || another {
            let (device, fstype, options) = (of("device"), of("fstype"), of("options"));
            steps.push(MountStep::Mount { device, fstype, options });
        } else if (differs("options") && had_line) || differs("flags") {
            steps.push(MountStep::Remount { options: of("options") });
        }
    }
    let line = to.map(|_| TableLine {
        device: of("device"),
        path: spec.path.clone(),
        fstype: of("fstype"),
        options: of("options"),
        dump: of("dump"),
        pass: of("pass"),
    });
    let new = edit(&spec.path, table, line.filter(|line| !line.device.is_empty()));
    if new != table {
        steps.push(MountStep::WriteTable(new));
    }
    steps
}

/// The table with this line for the mount point, or without any. A line that says the same is kept as
/// it is written, and so is every other one.
fn edit(path: &str, table: &str, line: Option<TableLine>) -> String {
    let mut wanted = line;
    let mut out = String::with_capacity(table.len() + 128);
    for line in table.split_inclusive('\n') {
        match TableLine::read(line) {
            Some(there) if there.path == path => match wanted.take() {
                Some(new) if new == there => out.push_str(line),
                Some(new) => out.push_str(&new.written()),
                None => {}
            },
            Some(_) | None => out.push_str(line),
        }
    }
    if let Some(new) = wanted {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&new.written());
    }
    out
}

/// A line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TableLine {
    device: String,
    path: String,
    fstype: String,
    options: String,
    dump: String,
    pass: String,
}

impl TableLine {
    fn read(line: &str) -> Option<TableLine> {
        // Nothing but blanks and tabs is between fields.
        let line = line.trim_matches([' ', '\t', '\n']);
        if line.starts_with('#') {
            return None;
        }
        let mut fields = line.split([' ', '\t']).filter(|field| !field.is_empty());
        let (device, path, fstype) = (fields.next()?, fields.next()?, fields.next()?);
        let path = unescaped(path);
        let mut or = |default: &str| fields.next().unwrap_or(default).to_owned();
        Some(TableLine {
            device: unescaped(device),
            path: if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path },
            fstype: fstype.to_owned(),
            options: unescaped(&or("defaults")),
            dump: or("0"),
            pass: or("0"),
        })
    }

    fn written(&self) -> String {
        let texts = [&self.device, &self.path, &self.fstype, &self.options].map(|text| escaped(text));
        format!("{} {} {}\n", texts.join(" "), self.dump, self.pass)
    }
}

/// A field with its white space, control characters, backslashes and `#` in octal.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() || matches!(c, '#' | '\\') {
            let mut bytes = [0; 4];
            out.extend(c.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:03o}")));
        } else {
            out.push(c);
        }
    }
    out
}

fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|_| *byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(decoded) => {
                out.push(decoded);
                rest = &after[3..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::types::MountState;

    const TABLE: &str = "# static\nUUID=aa  /   ext4\terrors=remount-ro 0 1\n/dev/sdb1 /srv/my\\040data ext4 defaults\n\
                         tmpfs /tmp tmpfs nosuid 0 0";
    const INFO: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                        30 22 0:30 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1024k\n\
                        31 22 0:31 / /mnt/n rw - nfs4 server:/x rw\n\
                        32 22 8:17 / /srv/my\\040data rw - ext4 /dev/sdb1 rw\nbroken\n";

    fn spec(path: &str, state: MountState, options: &str) -> MountSpec {
        MountSpec {
            path: path.to_owned(),
            state,
            device: "tmpfs".to_owned(),
            fstype: "tmpfs".to_owned(),
            options: options.to_owned(),
            dump: 0,
            pass: 0,
        }
    }

    /// The steps that make it as declared.
    fn made(spec: &MountSpec) -> Vec<MountStep> {
        let mounts = kernel_mounts(INFO);
        let now = observe(spec, TABLE, mounted_at(&mounts, &spec.path));
        let to = desired(spec);
        if super::super::state::difference(now.as_ref(), to.as_ref()).is_none() {
            return Vec::new();
        }
        steps(spec, TABLE, now.as_ref(), to.as_ref())
    }

    #[test]
    fn a_new_one_is_mounted_before_its_line_is_written() {
        let new = made(&spec("/srv/a b", MountState::Mounted, "size=1m"));
        let mount = MountStep::Mount {
            device: "tmpfs".to_owned(),
            fstype: "tmpfs".to_owned(),
            options: "size=1m".to_owned(),
        };
        let table = format!("{TABLE}\ntmpfs /srv/a\\040b tmpfs size=1m 0 0\n");
        assert_eq!(new, [mount, MountStep::WriteTable(table)]);
    }

    #[test]
    fn what_was_mounted_without_a_line_stays_mounted_when_its_line_goes() {
        let state = |device: &str, fstype: &str| {
            let fields = [("device", device), ("fstype", fstype), ("mounted", YES)];
            fields.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
        };
        let (now, before): (Fields, Fields) = (state("tmpfs", "tmpfs"), state("", ""));
        let spec = spec("/tmp", MountState::Mounted, "nosuid");
        let table = TABLE.replace("tmpfs /tmp tmpfs nosuid 0 0", "");
        assert_eq!(steps(&spec, TABLE, Some(&now), Some(&before)), [MountStep::WriteTable(table)]);
    }

    #[test]
    fn a_line_is_read_as_it_is_written_whatever_is_in_a_path() {
        for path in ["/a b", "/a\u{a0}b", "/a\u{b}b", "/a#b", "/a\\b", "/ä"] {
            let line = TableLine { device: "x".to_owned(), path: path.to_owned(), ..TableLine::default() };
            let line = TableLine { fstype: "ext4".to_owned(), options: "ro".to_owned(), ..line };
            let line = TableLine { dump: "0".to_owned(), pass: "2".to_owned(), ..line };
            assert_eq!(TableLine::read(&line.written()), Some(line));
        }
    }

    #[test]
    fn other_options_are_a_remount_and_other_lines_are_kept() {
        assert_eq!(made(&spec("/tmp", MountState::Mounted, "nosuid")), []);
        let table = TABLE.replace("tmpfs /tmp tmpfs nosuid 0 0", "tmpfs /tmp tmpfs nosuid,noexec 0 0\n");
        let remount = MountStep::Remount { options: "nosuid,noexec".to_owned() };
        let steps = made(&spec("/tmp", MountState::Mounted, "nosuid,noexec"));
        assert_eq!(steps, [remount, MountStep::WriteTable(table.clone())]);
        assert_eq!(made(&spec("/tmp", MountState::Present, "nosuid,noexec")), [MountStep::WriteTable(table)]);
    }

    #[test]
    fn what_is_to_go_is_unmounted_first() {
        let without = TABLE.replace("tmpfs /tmp tmpfs nosuid 0 0", "");
        let gone = made(&spec("/tmp", MountState::Absent, ""));
        assert_eq!(gone, [MountStep::Unmount, MountStep::WriteTable(without)]);
        assert_eq!(made(&spec("/tmp", MountState::Unmounted, "nosuid")), [MountStep::Unmount]);
        assert_eq!(made(&spec("/nosuch", MountState::Absent, "")), []);
        let spaced = MountSpec { path: "/srv/my data".to_owned(), ..spec("", MountState::Absent, "") };
        let table = TABLE.replace("/dev/sdb1 /srv/my\\040data ext4 defaults\n", "");
        assert_eq!(made(&spaced), [MountStep::Unmount, MountStep::WriteTable(table)]);
    }

    #[test]
    fn another_device_is_mounted_in_its_place() {
        let other =
            MountSpec { path: "/srv/my data".to_owned(), ..spec("", MountState::Mounted, "defaults") };
        let steps = made(&other);
        assert!(matches!(
            steps.as_slice(),
            [MountStep::Unmount, MountStep::Mount { .. }, MountStep::WriteTable(_)]
        ));
    }

    #[test]
    fn something_else_that_is_mounted_is_told_and_nothing_is_mounted_over_it() {
        let mounts = kernel_mounts(INFO);
        let seen = |fstype: &str, state: MountState| {
            let spec = MountSpec { fstype: fstype.to_owned(), ..spec("/mnt/n", state, "rw") };
            let now = observe(&spec, "", mounted_at(&mounts, &spec.path)).unwrap();
            let edit = super::super::state::difference(Some(&now), desired(&spec).as_ref()).unwrap();
            (now["mounted"].clone(), refuse(&edit))
        };
        // Drivers have other names than the lines that ask for them.
        for fstype in ["nfs", "nfs4", "auto", "none"] {
            assert_eq!(seen(fstype, MountState::Mounted), (YES.to_owned(), None), "{fstype}");
        }
        let (mounted, refused) = seen("ext4", MountState::Mounted);
        assert_eq!(mounted, "nfs4 of server:/x");
        assert!(refused.unwrap().contains("something else is mounted there: nfs4 of server:/x"));
        for state in [MountState::Present, MountState::Unmounted] {
            assert_eq!(seen("ext4", state).1, None, "{state:?}: nothing is mounted");
        }
    }

    #[test]
    fn a_flag_that_the_kernel_lost_is_a_remount() {
        let table = TABLE.replace("tmpfs /tmp tmpfs nosuid 0 0", "tmpfs /tmp tmpfs nosuid,noexec 0 0");
        let spec = spec("/tmp", MountState::Mounted, "nosuid,noexec");
        let now = observe(&spec, &table, mounted_at(&kernel_mounts(INFO), "/tmp"));
        assert_eq!(now.as_ref().unwrap()["flags"], "nosuid");
        let remount = MountStep::Remount { options: "nosuid,noexec".to_owned() };
        assert_eq!(steps(&spec, &table, now.as_ref(), desired(&spec).as_ref()), [remount]);
    }

    #[test]
    fn what_is_below_a_remote_file_system_is_not_looked_at() {
        let mounts = kernel_mounts(INFO);
        assert!(is_remote(&mounts, "/mnt/n/deep") && is_remote(&mounts, "/mnt/n"));
        assert!(!is_remote(&mounts, "/mnt/nearby") && !is_remote(&mounts, "/tmp/x"));
        // What is mounted hides its mount point, whatever it is.
        assert!(is_hidden(&mounts, "/mnt/n/deep") && is_hidden(&mounts, "/tmp"));
        assert!(!is_hidden(&mounts, "/mnt/nearby") && !is_hidden(&mounts, "/tmp/x"));
    }
}
