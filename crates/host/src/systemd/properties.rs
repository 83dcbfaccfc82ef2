//! What systemd says of a unit, in its own words.

use std::time::Duration;

use crate::dbus::BusValue;

/// What every unit has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitProperties {
    /// Its own name: another than the one that was asked for when that is an alias.
    pub id: String,
    /// `loaded`, `not-found`, `masked`, `bad-setting`, `error`.
    pub load_state: String,
    /// Why it could not be loaded; empty when it was.
    pub load_error: String,
    /// `active`, `inactive`, `failed`, `activating`, `deactivating`, `reloading`.
    pub active_state: String,
    /// The state in the words of its type: `running`, `exited`, `auto-restart`.
    pub sub_state: String,
    /// `enabled`, `disabled`, `static`, `masked` and others; empty when it has no file.
    pub file_state: String,
    /// Its files were changed since systemd read them.
    pub needs_reload: bool,
    /// It can be told to read its configuration again.
    pub can_reload: bool,
    /// Its conditions were met when it was started last.
    pub conditions_met: bool,
    /// Its file; empty when it has none.
    pub fragment_path: String,
    /// What a generator made it from; empty when none did.
    pub source_path: String,
    /// Files that add to it.
    pub drop_in_paths: Vec<String>,
    /// A job is at work on it.
    pub has_job: bool,
    /// When it became active last, counted from the start of the machine; `None` when it never did.
    pub active_since: Option<Duration>,
    /// When it ceased to be active last, counted as `active_since`.
    pub active_until: Option<Duration>,
    /// When it ceased to be inactive last, counted as `active_since`: its start began.
    pub starting_since: Option<Duration>,
}

/// What a unit has as one of its type; what a type does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitDetails {
    /// When it counts as started: `simple`, `oneshot`, `notify`.
    pub start_type: String,
    /// It counts as running when its process has ended.
    pub remains: bool,
    /// `success`, or how it failed: `exit-code`, `signal`, `timeout`, `start-limit-hit`.
    pub result: String,
    /// How its main process ended: an exit code or a signal's number.
    pub main_status: i64,
    /// The main process was ended by a signal.
    pub main_signalled: bool,
    /// The main process; 0 when there is none.
    pub main_pid: u64,
    /// How often systemd restarted it by itself since it was last started on purpose.
    pub restarts: u64,
    /// How long systemd lets it start; `None` when without limit.
    pub start_timeout: Option<Duration>,
}

impl UnitProperties {
    pub(super) fn read(entries: &BusValue) -> UnitProperties {
        let text = |name: &str| text(entries, name);
        let flag = |name: &str| entries.entry(name).and_then(BusValue::flag).unwrap_or_default();
        let error = entries.entry("LoadError").map(BusValue::items).unwrap_or_default();
        let drop_ins = entries.entry("DropInPaths").map(BusValue::items).unwrap_or_default();
        let job = entries.entry("Job").map(BusValue::items).unwrap_or_default();
        UnitProperties {
            id: text("Id"),
            load_state: text("LoadState"),
            load_error: error.get(1).and_then(BusValue::text).unwrap_or_default().to_owned(),
            active_state: text("ActiveState"),
            sub_state: text("SubState"),
            file_state: text("UnitFileState"),
            needs_reload: flag("NeedDaemonReload"),
            can_reload: flag("CanReload"),
            conditions_met: flag("ConditionResult"),
            fragment_path: text("FragmentPath"),
            source_path: text("SourcePath"),
            drop_in_paths: drop_ins.iter().filter_map(BusValue::text).map(str::to_owned).collect(),
            has_job: job.first().and_then(BusValue::uint).is_some_and(|id| id != 0),
            active_since: instant(entries, "ActiveEnterTimestampMonotonic"),
            active_until: instant(entries, "ActiveExitTimestampMonotonic"),
            starting_since: instant(entries, "InactiveExitTimestampMonotonic"),
        }
    }

    /// How long it has been active, or was the last time; `None` when that is not known.
    pub fn up(&self) -> Option<Duration> {
        let since = self.active_since?;
        let until = self.active_until.filter(|until| *until >= since);
        until.unwrap_or_else(super::monotonic).checked_sub(since)
    }

    /// How long ago its last start began; `None` when it was never started.
    pub fn starting(&self) -> Option<Duration> {
        super::monotonic().checked_sub(self.starting_since?)
    }
}

impl UnitDetails {
    pub(super) fn read(entries: &BusValue) -> UnitDetails {
        /// `CLD_EXITED` of waitid: the status is an exit code.
        const EXITED: i64 = 1;
        let int = |name: &str| entries.entry(name).and_then(BusValue::int).unwrap_or_default();
        UnitDetails {
            start_type: text(entries, "Type"),
            remains: entries.entry("RemainAfterExit").and_then(BusValue::flag).unwrap_or_default(),
            result: text(entries, "Result"),
            main_status: int("ExecMainStatus"),
            main_signalled: !matches!(int("ExecMainCode"), 0 | EXITED),
            main_pid: number(entries, "MainPID").unwrap_or_default(),
            restarts: number(entries, "NRestarts").unwrap_or_default(),
            start_timeout: number(entries, "TimeoutStartUSec")
                .filter(|limit| *limit != u64::MAX)
                .map(Duration::from_micros),
        }
    }
}

fn text(entries: &BusValue, name: &str) -> String {
    entries.entry(name).and_then(BusValue::text).unwrap_or_default().to_owned()
}

/// A time since the machine started; 0 stands for never.
fn instant(entries: &BusValue, name: &str) -> Option<Duration> {
    number(entries, name).filter(|at| *at != 0).map(Duration::from_micros)
}

fn number(entries: &BusValue, name: &str) -> Option<u64> {
    entries.entry(name).and_then(BusValue::uint)
}
