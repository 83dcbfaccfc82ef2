//! [`WriterWatch`]: which process writes in a directory, as the kernel names it (fanotify).
//!
//! ```text
//! directory handle and name told   every kind of change        (most file systems)
//! an open file told                writes alone                (those that give no handles)
//! ```
//!
//! Needs `CAP_SYS_ADMIN`; a container's filter of system calls may refuse it all the same
//! ([`WriterWatchError::Refused`]). A process may have ended before its program is looked up: then its number
//! is all. The number is that of the reader's PID namespace; there is none of a process outside of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use model::text::one_line;
use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

use crate::WatchLimit;

/// `FAN_REPORT_DIR_FID | FAN_REPORT_NAME` of the kernel.
const REPORT_NAMES: u32 = 0x0400 | 0x0800;
/// Room for events that are read at once, in bytes.
const EVENTS: usize = 8 * 1024;
/// The length of an event without what follows it, in bytes.
const EVENT: usize = 24;
/// The kind of record that has a directory's handle and a name.
const NAMED_RECORD: u8 = 2;
/// What of a record comes before its handle: kind, length, file system.
const RECORD: usize = 12;
/// How far a process's ancestors are looked up.
const MAX_ANCESTORS: usize = 32;
/// The longest command name or path of a program that is kept, in bytes.
const MAX_PROGRAM: usize = 120;

/// A process that wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritingProcess {
    /// Its number.
    pub pid: u32,
    /// Its command's name, and its program where that is named otherwise; `None` when it had ended. Its
    /// arguments are left out, as they may hold secrets.
    pub program: Option<String>,
    /// The unit of systemd that it belongs to.
    pub unit: Option<String>,
}

/// Who wrote, as far as the kernel says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenWriter {
    /// This process.
    Process(WritingProcess),
    /// One whose number the kernel hides: it is outside of this process's PID namespace, or this process has
    /// no privilege to know it.
    Hidden,
}

/// Why the kernel does not say who writes in a directory.
#[derive(Debug, thiserror::Error)]
pub enum WriterWatchError {
    /// Not to this process.
    #[error(
        "the kernel refuses fanotify to the agent: it needs CAP_SYS_ADMIN, and no filter of system calls \
         against it"
    )]
    Refused,
    /// It has no fanotify, or not for this file system.
    #[error("the kernel, or the file system, has no fanotify")]
    Unsupported(#[source] std::io::Error),
    /// A limit is reached.
    #[error("the kernel's limit {} is reached", .0.parameter())]
    Limit(WatchLimit),
}

impl From<Errno> for WriterWatchError {
    fn from(errno: Errno) -> WriterWatchError {
        match errno {
            Errno::EPERM | Errno::EACCES => WriterWatchError::Refused,
            Errno::EMFILE | Errno::ENFILE => WriterWatchError::Limit(WatchLimit::WriterGroups),
            Errno::ENOSPC => WriterWatchError::Limit(WatchLimit::WriterMarks),
            other => WriterWatchError::Unsupported(other.into()),
        }
    }
}

/// One directory, and who writes in it.
#[derive(Debug)]
pub struct WriterWatch {
    group: Fanotify,
    names: bool,
}

impl AsFd for WriterWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

impl WriterWatch {
    /// Watches an open directory.
    ///
    /// # Errors
    /// When the kernel does not, or not for this process.
    pub fn open(directory: &OwnedFd) -> Result<WriterWatch, WriterWatchError> {
        let all = MaskFlags::FAN_MODIFY
            | MaskFlags::FAN_CLOSE_WRITE
            | MaskFlags::FAN_ATTRIB
            | MaskFlags::FAN_CREATE
            | MaskFlags::FAN_DELETE
            | MaskFlags::FAN_MOVED_TO
            | MaskFlags::FAN_MOVED_FROM
            | MaskFlags::FAN_EVENT_ON_CHILD;
        if let Ok(group) = group(InitFlags::from_bits_retain(REPORT_NAMES))
            && mark(&group, all, directory).is_ok()
        {
            return Ok(WriterWatch { group, names: true });
        }
        let group = group(InitFlags::empty())?;
        let writes = MaskFlags::FAN_MODIFY | MaskFlags::FAN_CLOSE_WRITE | MaskFlags::FAN_EVENT_ON_CHILD;
        mark(&group, writes, directory)?;
        Ok(WriterWatch { group, names: false })
    }

    /// Gives the name of each entry of interest that somebody else wrote, and who did: as much as is read at
    /// once, so the descriptor stays readable while there is more. Does not wait.
    pub fn drain(&self, is_wanted: impl Fn(&str) -> bool, mut hear: impl FnMut(&str, &SeenWriter)) {
        let mut look_up = writer;
        let mut writers = WriterLookup { is_wanted, look_up: &mut look_up, known: BTreeMap::new() };
        if self.names {
            let mut buffer = [0; EVENTS];
            if let Ok(read @ 1..) = rustix::io::read(&self.group, &mut buffer) {
                named_events(&buffer[..read], &mut |name, pid| writers.tell(name, pid, &mut hear));
            }
            return;
        }
        for event in self.group.read_events().into_iter().flatten() {
            let Some(file) = event.fd() else { continue };
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
            if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                writers.tell(name, event.pid(), &mut hear);
            }
        }
    }
}

/// Who wrote what is of interest. Each process is looked up once, and none for other entries: that takes a
/// dozen reads, and a directory may be written all the time.
struct WriterLookup<'a, W, T> {
    is_wanted: W,
    look_up: &'a mut dyn FnMut(i32) -> Option<T>,
    known: BTreeMap<i32, Option<T>>,
}

impl<W: Fn(&str) -> bool, T> WriterLookup<'_, W, T> {
    fn tell(&mut self, name: &str, pid: i32, hear: &mut impl FnMut(&str, &T)) {
        if !(self.is_wanted)(name) {
            return;
        }
        if let Some(writer) = self.known.entry(pid).or_insert_with(|| (self.look_up)(pid)) {
            hear(name, writer);
        }
    }
}

/// Who a process is; `None` for this one and those that it started.
fn writer(pid: i32) -> Option<SeenWriter> {
    let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid != 0) else { return Some(SeenWriter::Hidden) };
    let (program, unit) = (program_of(pid), unit_of(pid));
    let mut above = Some(pid);
    for _ in 0..MAX_ANCESTORS {
        match above {
            Some(pid) if pid == std::process::id() => return None,
            Some(pid) => above = parent_of(pid),
            None => break,
        }
    }
    Some(SeenWriter::Process(WritingProcess { pid, program, unit }))
}

fn group(flags: InitFlags) -> Result<Fanotify, Errno> {
    let flags = flags | InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
    Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)
}

fn mark(group: &Fanotify, mask: MaskFlags, directory: &OwnedFd) -> Result<(), Errno> {
    let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_ONLYDIR;
    group.mark::<_, Path>(flags, mask, directory, None)
}

/// Reads events with names (fanotify(7)); what is cut off is left out.
fn named_events(mut bytes: &[u8], hear: &mut impl FnMut(&str, i32)) {
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let short = |bytes: &[u8], at: usize| -> Option<usize> {
        Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
    };
    while let Some(length) = number(bytes, 0).and_then(|length| usize::try_from(length).ok()) {
        let Some((event, rest)) = bytes.split_at_checked(length).filter(|_| length >= EVENT) else { return };
        bytes = rest;
        let pid = number(event, 20).map_or(0, u32::cast_signed);
        let mut record = event.get(short(event, 6).unwrap_or(EVENT)..).unwrap_or_default();
        while let Some(length) = short(record, 2).filter(|length| *length >= 4 && *length <= record.len()) {
            let (this, more) = record.split_at(length);
            record = more;
            if this.first() != Some(&NAMED_RECORD) {
                continue;
            }
            let handle = number(this, RECORD).and_then(|handle| usize::try_from(handle).ok()).unwrap_or(0);
            let name = this.get(RECORD + 8 + handle..).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name) {
                hear(name, pid);
            }
        }
    }
}

/// The command's name, and the program where it is named otherwise: a script's interpreter. Whoever runs
/// it chooses both.
fn program_of(pid: u32) -> Option<String> {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let comm = comm.trim();
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = program.to_string_lossy();
    let mut text = match (program.is_empty(), name.starts_with(comm)) {
        (true, _) => comm.to_owned(),
        (false, true) => program.into_owned(),
        (false, false) => format!("{comm} ({program})"),
    };
    while text.len() > MAX_PROGRAM {
        text.pop();
    }
    Some(one_line(&text).into_owned())
}

/// The unit of systemd whose a process is, from the name of its control group.
fn unit_of(pid: u32) -> Option<String> {
    unit_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// The outermost unit: what lies below it (`user@1000.service/app.slice/...`, a container) was named by
/// whoever runs there.
fn unit_in(groups: &str) -> Option<String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let unit = path.split('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
    Some(one_line(unit).into_owned())
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_named_as_the_system_names_it() {
        let unit = |path: &str| unit_in(&format!("0::{path}\n"));
        assert_eq!(unit("/system.slice/cron.service"), Some("cron.service".to_owned()));
        let below = "/user.slice/user-1000.slice/user@1000.service/app.slice/cron.service";
        assert_eq!(unit(below), Some("user@1000.service".to_owned()));
        assert_eq!(unit("/system.slice/a\u{1b}[8m.service"), Some("a?[8m.service".to_owned()));
        assert_eq!(unit("/init"), None);
    }

    #[test]
    fn only_writers_of_interest_are_looked_up_and_each_once() {
        let mut looked_up = Vec::new();
        let mut look_up = |pid: i32| {
            looked_up.push(pid);
            (pid != 1).then_some(pid)
        };
        let is_wanted = |name: &str| name == "motd";
        let mut lookup = WriterLookup { is_wanted, look_up: &mut look_up, known: BTreeMap::new() };
        let mut heard = Vec::new();
        let mut hear = |name: &str, pid: &i32| heard.push((name.to_owned(), *pid));
        for _ in 0..1000 {
            for (name, pid) in [("foreign", 7), ("motd", 8), ("motd", 1), ("motd.swp", 9)] {
                lookup.tell(name, pid, &mut hear);
            }
        }
        assert_eq!(looked_up, [8, 1]);
        assert_eq!(heard.len(), 1000);
    }

    #[test]
    fn events_with_names_are_read_and_cut_ones_left_out() {
        let mut event = vec![0; EVENT];
        let name = b"motd\0\0\0\0";
        // Kind and length, file system, handle of eight bytes, name.
        let mut record = vec![NAMED_RECORD, 0, 0, 0];
        record.extend([0; 8]);
        record.extend(8u32.to_ne_bytes());
        record.extend([1; 4]);
        record.extend([7; 8]);
        record.extend(name);
        let length = u16::try_from(record.len()).unwrap();
        record[2..4].copy_from_slice(&length.to_ne_bytes());
        event[6..8].copy_from_slice(&24u16.to_ne_bytes());
        event[20..24].copy_from_slice(&42i32.to_ne_bytes());
        event.extend(&record);
        let length = u32::try_from(event.len()).unwrap();
        event[..4].copy_from_slice(&length.to_ne_bytes());
        let two = [event.clone(), event.clone()].concat();
        let heard = |bytes: &[u8]| {
            let mut heard = Vec::new();
            named_events(bytes, &mut |name, pid| heard.push((name.to_owned(), pid)));
            heard
        };
        let motd = ("motd".to_owned(), 42);
        assert_eq!(heard(&two), [motd.clone(), motd.clone()]);
        assert_eq!(heard(&two[..two.len() - 1]), [motd]);
        for cut in 0..event.len() {
            assert_eq!(heard(&event[..cut]), []);
        }
    }
}
