//! [`UnitSpec`]: what `service` and `timer` come to, a unit of systemd with the files that are its own.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Fields;

use super::{Ensure, ResourceSubject, StateSpec, service, timer};

/// Where units of this machine's administrator are.
pub const UNIT_FOLDER: &str = "/etc/systemd/system";
/// How the names of drop-ins begin that a resource wrote.
pub const DROP_IN_PREFIX: &str = "muster-";
/// The text that says whether a unit runs.
pub const RUN_TEXT: &str = "state";
/// The text that says whether a unit is enabled.
pub const ENABLED_TEXT: &str = "enabled";
/// The text that says whether a unit is masked.
pub const MASKED_TEXT: &str = "masked";
/// The text that says whether systemd has read the unit's files as they are.
pub const LOADED_TEXT: &str = "loaded";
/// What names of the texts of drop-ins begin with.
pub const DROP_IN_TEXT: &str = "drop_in ";

/// The longest name of a unit that systemd takes, in bytes.
const MAX_UNIT_NAME: usize = 255;
/// Types of units that a resource may be about. The others are made by the kernel or by programs.
const SUFFIXES: [&str; 8] = ["service", "socket", "timer", "mount", "automount", "swap", "path", "target"];

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSpec {
    /// Its full name, `nginx.service`.
    pub unit: String,
    /// Present, or absent: stopped, disabled, and without the files that are its own.
    pub ensure: Ensure,
    /// Whether it is to run; `None` leaves it as it is.
    pub run: Option<RunState>,
    /// Whether it is started with the machine; `None` leaves it as it is.
    pub enabled: Option<bool>,
    /// Whether nothing may start it; `None` leaves it as it is.
    pub masked: Option<bool>,
    /// What a notification does, where it runs.
    pub on_notify: NotifyAction,
    /// The files that are its own, by the names of the texts that they are.
    pub files: BTreeMap<String, UnitFile>,
    /// The folder of its drop-ins, where all that have [`DROP_IN_PREFIX`] are its own.
    pub drop_ins: Option<String>,
    /// Expressions that systemd must understand before anything is written.
    pub calendars: Vec<String>,
    /// The user that must be there before it.
    pub user: Option<String>,
    /// How long it is observed after a start; `None` goes by how the unit starts.
    pub settle: Option<Duration>,
    /// Where its file is, if the machine's administrator wrote it.
    pub path: String,
}

/// Whether a unit is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs, and stays up.
    Running,
    /// It does not.
    Stopped,
}

/// Whether resources of a type do something when they are notified, whatever they declare.
pub fn hears_notifications(kind: &str) -> bool {
    [&service::TYPE, &timer::TYPE].iter().any(|unit| unit.name == kind)
}

/// What a notification does with a unit that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyAction {
    /// It is restarted.
    Restart,
    /// It reads its configuration again where it can, else it is restarted.
    Reload,
}

impl NotifyAction {
    /// The text of an edit that says that it happens.
    pub fn text(self) -> &'static str {
        match self {
            NotifyAction::Restart => "restart",
            NotifyAction::Reload => "reload",
        }
    }
}

/// A file of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    /// Its path.
    pub path: String,
    /// What it holds; `None` for one that is to go.
    pub text: Option<String>,
}

impl UnitSpec {
    /// Where one of its own files is, by the name of its text.
    pub fn file_path(&self, text: &str) -> Option<String> {
        let drop_in = || {
            let name = text.strip_prefix(DROP_IN_TEXT)?;
            Some(format!("{}.d/{DROP_IN_PREFIX}{name}.conf", self.path))
        };
        self.files.get(text).map(|file| file.path.clone()).or_else(drop_in)
    }
}

impl StateSpec for UnitSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::new();
        let mut add = |name: &str, text: &str| {
            fields.insert(name.to_owned(), text.to_owned());
        };
        if let Some(run) = self.run {
            add(RUN_TEXT, if run == RunState::Running { "running" } else { "stopped" });
        }
        for (name, flag) in [(ENABLED_TEXT, self.enabled), (MASKED_TEXT, self.masked)] {
            if let Some(flag) = flag {
                add(name, if flag { "true" } else { "false" });
            }
        }
        for (name, file) in &self.files {
            add(name, file.text.as_deref().unwrap_or_default());
        }
        if !self.files.is_empty() {
            add(LOADED_TEXT, "true");
        }
        fields
    }

    fn needs(&self) -> Vec<&str> {
        vec![&self.path]
    }

    /// A package brings the units that are its own.
    fn after_types(&self) -> &'static [&'static str] {
        &["package"]
    }

    fn after(&self) -> Vec<ResourceSubject<'_>> {
        self.user.iter().map(|name| ResourceSubject::Named { kind: "user", name }).collect()
    }
}

/// The full name of a unit: `.service` where no other type is named.
///
/// # Errors
/// In words, with a way out, when it cannot name one unit.
pub(super) fn unit_name(name: &str) -> Result<String, String> {
    let (stem, suffix) = match name.rsplit_once('.') {
        Some((stem, suffix)) if SUFFIXES.contains(&suffix) => (stem, suffix),
        Some((_, suffix @ ("device" | "scope" | "slice"))) => {
            return Err(format!("`{name}`: a {suffix} is made by the system, and cannot be managed"));
        }
        _ => (name, "service"),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || ":_.-\\@".contains(c);
    if stem.is_empty() || stem.starts_with(['@', '.']) || !stem.chars().all(fits) {
        return Err(format!("`{name}` cannot be the name of a unit: it has letters, digits and :_.-\\@"));
    }
    if stem.ends_with('@') {
        return Err(format!("`{name}` is a template; name an instance of it, such as {stem}1.{suffix}"));
    }
    let unit = format!("{stem}.{suffix}");
    if unit.len() > MAX_UNIT_NAME {
        return Err(format!("a unit's name has at most {MAX_UNIT_NAME} bytes"));
    }
    Ok(unit)
}

/// A text as a unit file holds it.
pub(super) fn with_last_newline(text: &str) -> String {
    if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_unit() {
        let good = [
            ("nginx", "nginx.service"),
            ("nginx.service", "nginx.service"),
            ("apt-daily.timer", "apt-daily.timer"),
            ("openvpn@office", "openvpn@office.service"),
            ("org.example.app", "org.example.app.service"),
            ("srv-data.mount", "srv-data.mount"),
        ];
        for (name, unit) in good {
            assert_eq!(unit_name(name).as_deref(), Ok(unit));
        }
        let wrong = [
            ("openvpn@", "openvpn@1.service"),
            ("getty@.service", "getty@1.service"),
            ("", "cannot be the name"),
            ("a b", "cannot be the name"),
            ("../x", "cannot be the name"),
            ("a/b", "cannot be the name"),
            ("dev-sda.device", "made by the system"),
        ];
        for (name, says) in wrong {
            let why = unit_name(name).unwrap_err();
            assert!(why.contains(says), "{name}: {why}");
        }
        assert!(unit_name(&"x".repeat(300)).is_err());
    }
}
