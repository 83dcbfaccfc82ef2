//! `mount`: a line of `/etc/fstab`, and whether its file system is mounted.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::{Ensure, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
    literal,
};

/// The table of file systems.
pub const FSTAB: &str = "/etc/fstab";
/// Seconds that a mount or an unmount may take where `timeout:` says nothing.
const TIMEOUT_SECS: u32 = 60;
/// The options that the kernel shows of every mount.
const FLAGS: [&str; 6] = ["ro", "rw", "nosuid", "nodev", "noexec", "noatime"];

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "mount",
    summary: "A mount point: its line in `/etc/fstab`, and what is mounted there, by the kernel's own list. The \
              directory is made if it is missing, and then goes with the mount (`on_remove`). A mount that hangs is killed after `timeout`, and holds up \
              nothing else.",
    short: Short::Path,
    attributes: &[
        Attribute::new(
            "state",
            FieldKind::Word(&["mounted", "present", "unmounted", "absent"]),
            "mounted",
            "`mounted`: now and at boot; `present`: the line alone; `unmounted`: the line, and not mounted now; \
             `absent`: neither",
        ),
        Attribute::new(
            "device",
            FieldKind::Line,
            "",
            "what is mounted: `/dev/sdb1`, `UUID=...`, `server:/export`, `tmpfs`; needed unless `absent`",
        ),
        Attribute::new("fstype", FieldKind::Line, "", "the type of file system; needed unless `absent`"),
        Attribute::new(
            "options",
            FieldKind::List,
            "defaults",
            "mount options, as a list or joined by commas",
        ),
        Attribute::new("dump", FieldKind::Int(0, 9), "0", "the fifth field, for dump(8)"),
        Attribute::new("pass", FieldKind::Int(0, 9), "0", "the sixth field: when fsck looks at it"),
    ],
    timeout_secs: TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- mount: /srv/scratch\n  device: tmpfs\n  fstype: tmpfs\n  options: [size=16m, nosuid, nodev]\n",
    manages: Manages::State,
    removal: &[],
    rules,
    bind,
};

/// `mount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSpec {
    /// The mount point.
    pub path: String,
    /// What is to be there.
    pub state: MountState,
    /// What is mounted; empty for what is absent.
    pub device: String,
    /// The type of file system; empty for what is absent.
    pub fstype: String,
    /// Options, joined by commas.
    pub options: String,
    /// The fifth field.
    pub dump: i64,
    /// The sixth field.
    pub pass: i64,
}

/// What is to be at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountState {
    /// A line, and the file system.
    Mounted,
    /// A line, whatever is mounted.
    Present,
    /// A line, and nothing mounted.
    Unmounted,
    /// Neither.
    Absent,
}

impl MountSpec {
    /// The declared options that the kernel shows of every mount.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.options.split(',').filter(|option| FLAGS.contains(option))
    }
}

impl StateSpec for MountSpec {
    fn ensure(&self) -> Ensure {
        if self.state == MountState::Absent { Ensure::Absent } else { Ensure::Present }
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::from([
            ("device".to_owned(), self.device.clone()),
            ("fstype".to_owned(), self.fstype.clone()),
            ("options".to_owned(), self.options.clone()),
            ("dump".to_owned(), self.dump.to_string()),
            ("pass".to_owned(), self.pass.to_string()),
        ]);
        match self.state {
            MountState::Mounted => {
                fields.insert("mounted".to_owned(), "yes".to_owned());
                fields.insert("flags".to_owned(), self.flags().collect::<Vec<_>>().join(","));
            }
            MountState::Unmounted => {
                fields.insert("mounted".to_owned(), "no".to_owned());
            }
            MountState::Present | MountState::Absent => {}
        }
        fields
    }

    fn needs(&self) -> Vec<&str> {
        vec![FSTAB]
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    for name in ["device", "fstype"].iter().filter(|_| !is_absent(attributes)) {
        if !attributes.contains_key(*name) {
            let help = "say what is mounted and as what, as in `device: tmpfs` and `fstype: tmpfs`";
            found.push(AttributeProblem::missing(None, format!("`mount` needs `{name}`"), help));
        }
    }
    if literal(attributes, "fstype") == Some("swap") {
        let message = "swap has no mount point".to_owned();
        found.push(AttributeProblem::value("fstype", message, "keep its line with the type `line`"));
    }
    for name in ["device", "fstype"] {
        if literal(attributes, name).is_some_and(|text| text.trim().is_empty() || text.starts_with('-')) {
            let message = "it cannot be empty or begin with `-`".to_owned();
            found.push(AttributeProblem::value(name, message, "write it as it stands in /etc/fstab"));
        }
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let options = given.list("options").unwrap_or_default().join(",");
    Ok(Spec::Mount(MountSpec {
        path: given.name(),
        state: match given.text("state").as_deref() {
            Some("present") => MountState::Present,
            Some("unmounted") => MountState::Unmounted,
            Some("absent") => MountState::Absent,
            _ => MountState::Mounted,
        },
        device: given.text_or_empty("device"),
        fstype: given.text_or_empty("fstype"),
        options: if options.is_empty() { "defaults".to_owned() } else { options },
        dump: given.int("dump").unwrap_or_default(),
        pass: given.int("pass").unwrap_or_default(),
    }))
}
