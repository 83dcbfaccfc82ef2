//! Whether a unit that was started stays up.

use std::time::Duration;

use catalog::types::UnitSpec;

use crate::RunPurpose;

/// How long a unit is observed after its start where nothing else is declared, and the unit does not
/// say itself when it has started.
pub const SETTLE: Duration = Duration::from_secs(2);
/// How long a unit is observed that a repair starts, and that had stayed up before: one that fails at once
/// shows it by then, and one that fails later is an event, whose repair observes it for the whole time.
pub const REPAIR_SETTLE: Duration = Duration::from_millis(200);

/// What systemd says of a unit before it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitBefore<'a> {
    /// `ActiveState`.
    pub active: &'a str,
    /// How long it was up the last time, or has been; `None` when systemd does not know.
    pub up: Option<Duration>,
    /// How long ago its last start began.
    pub starting: Option<Duration>,
}

impl UnitBefore<'_> {
    /// Nothing speaks against it: it did not fail, and was not down again before it would have counted as up.
    fn stayed_up(&self, settle: Duration) -> bool {
        !matches!(self.active, "failed" | "activating") && self.up.is_none_or(|up| up >= settle)
    }

    /// How long a start is waited for, of the `left` time limit: it counts from when the unit began to start.
    /// One that hung in an earlier run holds up no other resource again.
    pub fn start_limit(&self, left: Duration) -> Duration {
        match self.active {
            "activating" => left.saturating_sub(self.starting.unwrap_or_default()),
            _ => left,
        }
    }
}

/// What systemd says of a unit that was just started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartedUnit<'a> {
    /// `ActiveState`.
    pub active: &'a str,
    /// `SubState`.
    pub sub: &'a str,
    /// `ConditionResult`.
    pub conditions_met: bool,
    /// `Type`; empty where it is no service.
    pub start_type: &'a str,
    /// `RemainAfterExit`.
    pub remains: bool,
    /// `Result`.
    pub result: &'a str,
    /// `ExecMainStatus`, and whether it is a signal's number.
    pub main_status: i64,
    /// See `main_status`.
    pub main_signalled: bool,
    /// `NRestarts`.
    pub restarts: u64,
}

/// Whether a unit that was started is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It runs.
    Up,
    /// It is on its way.
    NotYet,
    /// It will not; in words, without its name.
    Down(String),
}

/// How long a unit is observed after its start: those that say themselves when they have started have
/// done so when systemd says that it is done.
pub fn settle_time(spec: &UnitSpec, start_type: &str) -> Duration {
    match start_type {
        "simple" | "exec" | "idle" => spec.settle.unwrap_or(SETTLE),
        _ => spec.settle.unwrap_or(Duration::ZERO),
    }
}

/// How long a unit is observed after this start. A repair brings back what was up, and others wait for its
/// end: [`REPAIR_SETTLE`] is enough unless the unit did not stay up, or its `settle` is declared.
pub fn observed_for(
    spec: &UnitSpec,
    start_type: &str,
    purpose: RunPurpose,
    before: UnitBefore<'_>,
) -> Duration {
    let settle = settle_time(spec, start_type);
    match purpose {
        RunPurpose::Repair if spec.settle.is_none() && before.stayed_up(settle) => settle.min(REPAIR_SETTLE),
        RunPurpose::Repair | RunPurpose::Converge => settle,
    }
}

/// Whether a unit that was started is up. `restarts_before` is how often systemd had restarted it by
/// itself when the start was done.
pub fn settled(unit: &StartedUnit<'_>, restarts_before: u64) -> Settled {
    const FLAPS: &str = "it ends soon after each start, and systemd restarts it over and over";
    let down = |what: &str| Settled::Down(format!("{what} ({})", how_it_ended(unit)));
    match unit.active {
        "failed" => down("it failed"),
        "activating" if unit.sub.starts_with("auto-restart") => down(FLAPS),
        // Once it runs again systemd says nothing of its end any more but in the journal.
        "active" | "activating" if unit.restarts > restarts_before && unit.result == "success" => {
            Settled::Down(FLAPS.to_owned())
        }
        _ if unit.restarts > restarts_before => down(FLAPS),
        "active" | "reloading" | "refreshing" => Settled::Up,
        "inactive" if !unit.conditions_met => Settled::Down(
            "systemd skipped it, because a condition of the unit is not met; `systemctl status` names it".to_owned(),
        ),
        "inactive" if unit.start_type == "oneshot" && !unit.remains => Settled::Down(
            "it ran to its end, and does not stay: it is `Type=oneshot`. Declare a `timer` or an `exec` for it, or \
             `RemainAfterExit=yes` in a `drop_in`"
                .to_owned(),
        ),
        "inactive" => down("it ended soon after its start"),
        _ => Settled::NotYet,
    }
}

/// How the main process ended.
fn how_it_ended(unit: &StartedUnit<'_>) -> String {
    let status = match (unit.main_status, unit.main_signalled) {
        (0, _) => String::new(),
        (status, true) => format!(", signal {status}"),
        (status, false) => format!(", exit status {status}{}", meaning(status)),
    };
    let result = if unit.result.is_empty() { "unknown" } else { unit.result };
    format!("result {result}{status}")
}

/// What systemd means by the exit statuses that it makes itself.
fn meaning(status: i64) -> &'static str {
    match status {
        200 => ": its working directory cannot be entered",
        203 => ": its program cannot be executed",
        216 => ": its group does not exist",
        217 => ": its user does not exist",
        226 => ": its namespace cannot be set up",
        238..=242 => ": one of its directories cannot be made",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::schema::{BindContext, bind};
    use catalog::types::Spec;
    use std::collections::BTreeMap;

    fn spec(json: serde_json::Value) -> UnitSpec {
        let attributes = serde_json::from_value(json).unwrap();
        let context = BindContext { files: &BTreeMap::new(), rendered: None };
        match bind("service", "app", &attributes, &context).unwrap() {
            Spec::Unit(spec) => spec,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_unit_is_up_when_it_stays_up() {
        let up = StartedUnit {
            active: "active",
            conditions_met: true,
            start_type: "simple",
            ..StartedUnit::default()
        };
        assert_eq!(settled(&up, 0), Settled::Up);
        let with = |change: &dyn Fn(&mut StartedUnit<'static>)| {
            let mut unit = up.clone();
            change(&mut unit);
            match settled(&unit, 0) {
                Settled::Down(why) => why,
                other => format!("{other:?}"),
            }
        };
        assert_eq!(with(&|unit| unit.active = "activating"), "NotYet");
        let flaps = with(&|unit| {
            (unit.active, unit.sub, unit.result, unit.main_status) =
                ("activating", "auto-restart", "exit-code", 203);
        });
        assert!(flaps.contains("over and over (result exit-code, exit status 203: its program"), "{flaps}");
        assert!(with(&|unit| unit.restarts = 1).contains("over and over (result unknown)"));
        let runs_again = with(&|unit| (unit.restarts, unit.result) = (1, "success"));
        assert!(runs_again.ends_with("over and over"), "it has no result yet: {runs_again}");
        let killed = with(&|unit| {
            (unit.active, unit.result, unit.main_status, unit.main_signalled) = ("failed", "signal", 9, true);
        });
        assert!(killed.contains("it failed (result signal, signal 9)"), "{killed}");
        assert!(
            with(&|unit| (unit.active, unit.start_type) = ("inactive", "oneshot")).contains("Type=oneshot")
        );
        assert!(with(&|unit| (unit.active, unit.conditions_met) = ("inactive", false)).contains("condition"));
        assert!(with(&|unit| unit.active = "inactive").contains("ended soon after"));
        let declared = spec(serde_json::json!({"settle": "5s"}));
        assert_eq!(settle_time(&declared, "notify"), Duration::from_secs(5));
        assert_eq!(settle_time(&spec(serde_json::json!({})), "notify"), Duration::ZERO);
        assert_eq!(settle_time(&spec(serde_json::json!({})), "simple"), SETTLE);
    }

    #[test]
    fn a_start_that_hangs_is_waited_for_once() {
        let (limit, part) = (Duration::from_secs(300), Duration::from_secs(40));
        let before = |active, starting| UnitBefore { active, up: None, starting };
        assert_eq!(before("activating", Some(part)).start_limit(limit), limit - part);
        assert_eq!(before("activating", Some(limit * 2)).start_limit(limit), Duration::ZERO);
        assert_eq!(before("activating", None).start_limit(limit), limit);
        // What began then is over.
        assert_eq!(before("inactive", Some(limit * 2)).start_limit(limit), limit);
    }

    #[test]
    fn a_repair_is_brief_for_what_had_stayed_up() {
        let (usual, declared) = (spec(serde_json::json!({})), spec(serde_json::json!({"settle": "5s"})));
        let five = Duration::from_secs(5);
        let before = |active, up| UnitBefore { active, up, starting: None };
        let (long, short) = (Some(SETTLE), SETTLE.checked_sub(Duration::from_millis(1)));
        let table = [
            (&usual, "simple", before("inactive", long), REPAIR_SETTLE),
            (&usual, "simple", before("active", long), REPAIR_SETTLE),
            (&usual, "simple", before("inactive", None), REPAIR_SETTLE),
            (&usual, "notify", before("inactive", long), Duration::ZERO),
            (&usual, "simple", before("inactive", short), SETTLE),
            (&usual, "simple", before("failed", long), SETTLE),
            (&usual, "simple", before("activating", long), SETTLE),
            (&declared, "simple", before("inactive", long), five),
        ];
        for (spec, start_type, before, wanted) in table {
            let repair = observed_for(spec, start_type, RunPurpose::Repair, before);
            assert_eq!(repair, wanted, "{start_type} {before:?}");
            let converge = observed_for(spec, start_type, RunPurpose::Converge, before);
            assert_eq!(converge, settle_time(spec, start_type), "{start_type} {before:?}");
        }
    }
}
