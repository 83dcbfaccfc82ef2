//! `service` and `timer`: what the words of systemd mean for a unit, what leads from one state to
//! another, and whether a unit that was started stays up.
//!
//! ```text
//! UnitNow (what systemd says, what its files hold) -> observed -> desired -> changes -> systemd
//!                                                                                 |
//!                                             settled: up, not yet, or why not <--+
//! ```
//!
//! Invariant: a unit of which nothing is declared but what it is already is left alone, also one whose
//! state has a word that this version does not know.

mod started;

use catalog::types::{
    DROP_IN_TEXT, ENABLED_TEXT, Ensure, LOADED_TEXT, MASKED_TEXT, NotifyAction, RUN_TEXT, RunState,
    StateSpec, UnitSpec,
};
use model::Fields;

pub use started::{SETTLE, Settled, StartedUnit, UnitBefore, observed_for, settle_time, settled};

const RUNNING: &str = "running";
const STOPPED: &str = "stopped";
/// There is no such unit.
const MISSING: &str = "missing";
/// systemd restarts it by itself, over and over.
const RESTARTING: &str = "restarting";
const STARTING: &str = "starting";
const TRUE: &str = "true";
const FALSE: &str = "false";

/// What systemd says of a unit, in its own words, and what the unit's own files hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitNow<'a> {
    /// `LoadState`.
    pub load: &'a str,
    /// `ActiveState`.
    pub active: &'a str,
    /// `SubState`.
    pub sub: &'a str,
    /// `UnitFileState`.
    pub file: &'a str,
    /// `NeedDaemonReload`.
    pub needs_reload: bool,
    /// It was restarted by systemd, and has been up for less time than it is observed.
    pub flaps: bool,
    /// What its own files hold, by the names of their texts; an empty text for one that is missing.
    pub files: Fields,
}

/// The state of a unit as named texts, in the words of the declaration.
pub fn observed(spec: &UnitSpec, now: &UnitNow<'_>) -> Fields {
    let mut fields = now.files.clone();
    let mut add = |name: &str, text: &str| {
        fields.insert(name.to_owned(), text.to_owned());
    };
    add(RUN_TEXT, run_text(spec, now));
    add(ENABLED_TEXT, enabled_text(spec, now.file));
    let masked = match now.file {
        "masked" => TRUE,
        "masked-runtime" => "until the machine stops",
        _ if now.load == "masked" => TRUE,
        _ => FALSE,
    };
    add(MASKED_TEXT, masked);
    add(LOADED_TEXT, if now.needs_reload { FALSE } else { TRUE });
    fields
}

fn run_text<'a>(spec: &UnitSpec, now: &UnitNow<'a>) -> &'a str {
    let to_run = spec.run == Some(RunState::Running);
    match now.active {
        "active" if now.flaps => RESTARTING,
        "active" | "reloading" | "refreshing" => RUNNING,
        "activating" if now.sub.starts_with("auto-restart") => RESTARTING,
        "activating" => STARTING,
        "deactivating" => "stopping",
        _ if !to_run => STOPPED,
        "failed" => "failed",
        _ if now.load == "not-found" => MISSING,
        _ => STOPPED,
    }
}

/// Whether it is enabled, as far as it can be: a unit that others start is as enabled as it gets.
fn enabled_text<'a>(spec: &UnitSpec, file: &'a str) -> &'a str {
    match (file, spec.enabled) {
        ("enabled", _) => TRUE,
        ("alias" | "indirect", Some(true)) => TRUE,
        ("enabled-runtime" | "static" | "generated" | "transient", Some(true)) => file,
        ("enabled-runtime" | "linked" | "linked-runtime", Some(false)) => file,
        _ => FALSE,
    }
}

/// Whether a unit is enabled because a link starts it, by systemd's word for the state of its file.
pub fn enabled_by_link(file: &str) -> bool {
    file == "enabled"
}

/// The state that a unit should have.
///
/// # Errors
/// In words, when it cannot have it: nothing that systemd could do would make it so.
pub fn desired(spec: &UnitSpec, now: Option<&Fields>) -> Result<Option<Fields>, String> {
    if spec.ensure() == Ensure::Absent {
        return Ok(None);
    }
    let mut to = spec.declared();
    let Some(now) = now else { return Ok(Some(to)) };
    for name in now.keys().filter(|name| name.starts_with(DROP_IN_TEXT) && spec.drop_ins.is_some()) {
        to.entry(name.clone()).or_default();
    }
    let is = |name: &str| now.get(name).map_or("", String::as_str);
    let masked = is(MASKED_TEXT) != FALSE && spec.masked.is_none();
    if masked && (spec.run == Some(RunState::Running) || spec.enabled == Some(true)) {
        return Err(format!(
            "{} is masked, so nothing can start it; `masked: false` takes the mask away",
            spec.unit
        ));
    }
    let installs =
        spec.files.values().filter_map(|file| file.text.as_deref()).any(|text| text.contains("[Install]"));
    if spec.enabled == Some(true) && !installs {
        cannot_be_enabled(&spec.unit, is(ENABLED_TEXT))?;
    }
    Ok(Some(to))
}

fn cannot_be_enabled(unit: &str, state: &str) -> Result<(), String> {
    match state {
        "static" => Err(format!(
            "{unit} cannot be enabled: its file has no [Install] section, because other units start it; drop \
             `enabled`, or add the section in a `drop_in`"
        )),
        "generated" => Err(format!(
            "{unit} cannot be enabled: a generator makes it when the machine starts (from /etc/fstab, or a \
             script in /etc/init.d); enable it there"
        )),
        "transient" => Err(format!("{unit} cannot be enabled: a program made it, and it goes when it stops")),
        _ => Ok(()),
    }
}

/// Whether a unit is as one that left the set leaves the host: it neither runs nor starts with the
/// machine, and none of its own files is there.
pub fn is_absent(now: &Fields) -> bool {
    let is = |name: &str| now.get(name).map_or("", String::as_str);
    matches!(is(RUN_TEXT), STOPPED | MISSING | "failed" | "")
        && is(ENABLED_TEXT) != TRUE
        && files(now).all(|(_, text)| text.is_empty())
}

/// Its own files, by the names of their texts.
pub fn files(fields: &Fields) -> impl Iterator<Item = (&str, &str)> {
    let other = [RUN_TEXT, ENABLED_TEXT, MASKED_TEXT, LOADED_TEXT, "restart", "reload"];
    fields
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .filter(move |(name, _)| !other.contains(name))
}

/// The state that a unit should have when it was notified: one that runs is restarted, or reads its
/// configuration again, once. One that starts anyway, is to stop, or does not run is left at that.
pub fn notified(spec: &UnitSpec, now: &Fields, to: &Fields, by: &str) -> Option<Fields> {
    let runs = now.get(RUN_TEXT).is_some_and(|state| state == RUNNING);
    let stays = to.get(RUN_TEXT).is_none_or(|state| state == RUNNING);
    if !runs || !stays || to.get(MASKED_TEXT).is_some_and(|masked| masked == TRUE) {
        return None;
    }
    let mut to = to.clone();
    to.insert(spec.on_notify.text().to_owned(), format!("notified by {by}"));
    Some(to)
}

/// What is done with a unit, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitChanges {
    /// It is stopped.
    pub stop: bool,
    /// Its mask goes.
    pub unmask: bool,
    /// It is disabled, before its file may go.
    pub disable: bool,
    /// Its files are written; an empty text removes one. By the names of their texts.
    pub files: Vec<(String, String)>,
    /// It is enabled.
    pub enable: bool,
    /// It is masked.
    pub mask: bool,
    /// systemd reads all files again, once for all of the above.
    pub reload: bool,
    /// What comes last.
    pub then: Option<LastChange>,
}

/// What is done with a unit when its files are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastChange {
    /// It is started.
    Start,
    /// It is restarted if it runs.
    Restart,
    /// It reads its configuration again, or is restarted, if it runs.
    Reload,
}

/// What leads from one state to another; `None` is what [`is_absent`] says. What `to` does not name stays.
pub fn changes(now: &Fields, to: Option<&Fields>) -> UnitChanges {
    let is = |name: &str| now.get(name).map_or("", String::as_str);
    let wanted = |name: &str| match to {
        Some(to) => to.get(name).map(String::as_str),
        None => match name {
            RUN_TEXT => Some(STOPPED),
            ENABLED_TEXT => Some(FALSE),
            _ => None,
        },
    };
    let runs = !matches!(is(RUN_TEXT), STOPPED | MISSING | "failed" | "");
    let mut changes = UnitChanges {
        stop: matches!(wanted(RUN_TEXT), Some(STOPPED | MISSING | "failed")) && runs,
        unmask: wanted(MASKED_TEXT) == Some(FALSE) && is(MASKED_TEXT) != FALSE,
        disable: wanted(ENABLED_TEXT) == Some(FALSE) && is(ENABLED_TEXT) != FALSE,
        files: Vec::new(),
        enable: wanted(ENABLED_TEXT) == Some(TRUE) && is(ENABLED_TEXT) != TRUE,
        mask: wanted(MASKED_TEXT) == Some(TRUE) && is(MASKED_TEXT) != TRUE,
        reload: false,
        then: None,
    };
    let gone = files(now).map(|(name, _)| (name, "")).filter(|_| to.is_none());
    let written = to.into_iter().flat_map(files);
    for (name, text) in gone.chain(written).filter(|(name, text)| is(name) != *text) {
        changes.files.push((name.to_owned(), text.to_owned()));
    }
    // Links of systemd are files as well: it does not see new ones by itself.
    let links = changes.unmask || changes.disable || changes.enable || changes.mask;
    let outdated = is(LOADED_TEXT) == FALSE;
    changes.reload = links || outdated || !changes.files.is_empty();
    let other_files = !changes.files.is_empty() || (outdated && wanted(LOADED_TEXT).is_some());
    changes.then = match wanted(RUN_TEXT) {
        Some(STOPPED | MISSING | "failed") => None,
        // Another start would wait for the one that goes on by the files of before.
        Some(_) if is(RUN_TEXT) == STARTING && other_files => Some(LastChange::Restart),
        Some(_) if is(RUN_TEXT) != RUNNING => Some(LastChange::Start),
        _ if !runs || changes.mask => None,
        _ if other_files || wanted(NotifyAction::Restart.text()).is_some() => Some(LastChange::Restart),
        _ if wanted(NotifyAction::Reload.text()).is_some() => Some(LastChange::Reload),
        _ => None,
    };
    changes
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

    fn now<'a>(active: &'a str, sub: &'a str, file: &'a str) -> UnitNow<'a> {
        UnitNow { load: "loaded", active, sub, file, ..UnitNow::default() }
    }

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_words_of_systemd_are_read_as_what_is_declared() {
        let (run, stop) =
            (spec(serde_json::json!({"state": "running"})), spec(serde_json::json!({"state": "stopped"})));
        let table = [
            (&run, "active", "running", RUNNING),
            (&run, "active", "exited", RUNNING),
            (&run, "reloading", "reload", RUNNING),
            (&run, "activating", "auto-restart", RESTARTING),
            (&run, "activating", "start-pre", "starting"),
            (&run, "failed", "failed", "failed"),
            (&run, "inactive", "dead", STOPPED),
            (&run, "a word of later", "x", STOPPED),
            (&stop, "failed", "failed", STOPPED),
            (&stop, "activating", "auto-restart", RESTARTING),
            (&stop, "deactivating", "stop-sigterm", "stopping"),
        ];
        for (spec, active, sub, text) in table {
            assert_eq!(observed(spec, &now(active, sub, "enabled"))[RUN_TEXT], text, "{active} {sub}");
        }
        let missing = UnitNow { load: "not-found", active: "inactive", ..UnitNow::default() };
        assert_eq!(observed(&run, &missing)[RUN_TEXT], MISSING);
        assert_eq!(observed(&stop, &missing)[RUN_TEXT], STOPPED);
        let flaps = UnitNow { flaps: true, ..now("active", "running", "enabled") };
        assert_eq!(observed(&run, &flaps)[RUN_TEXT], RESTARTING);
    }

    #[test]
    fn what_enabled_means_depends_on_the_file() {
        let table = [
            ("enabled", TRUE, TRUE, TRUE),
            ("disabled", FALSE, FALSE, FALSE),
            ("static", FALSE, "static", FALSE),
            ("indirect", FALSE, TRUE, FALSE),
            ("alias", FALSE, TRUE, FALSE),
            ("generated", FALSE, "generated", FALSE),
            ("linked", FALSE, FALSE, "linked"),
            ("enabled-runtime", FALSE, "enabled-runtime", "enabled-runtime"),
            ("masked", FALSE, FALSE, FALSE),
            ("", FALSE, FALSE, FALSE),
        ];
        let (yes, no) =
            (spec(serde_json::json!({"enabled": true})), spec(serde_json::json!({"enabled": false})));
        let none = spec(serde_json::json!({}));
        for (file, left, on, off) in table {
            assert_eq!(enabled_text(&yes, file), on, "{file}");
            assert_eq!(enabled_text(&no, file), off, "{file}");
            let text = enabled_text(&none, file);
            assert_eq!(text, if file == "enabled" { TRUE } else { left }, "{file}");
        }
        for (file, says) in
            [("static", "[Install]"), ("generated", "generator"), ("transient", "it goes when")]
        {
            let why = desired(&yes, Some(&observed(&yes, &now("active", "running", file)))).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        let installs = spec(serde_json::json!({
            "enabled": true, "drop_in": {"boot": {"Install": {"WantedBy": "multi-user.target"}}}
        }));
        assert!(desired(&installs, Some(&observed(&installs, &now("active", "running", "static")))).is_ok());
        let masked =
            desired(&spec(serde_json::json!({"state": "running"})), Some(&fields(&[(MASKED_TEXT, TRUE)])));
        assert!(masked.unwrap_err().contains("masked: false"));
    }

    #[test]
    fn changes_come_in_an_order_in_which_each_finds_what_it_needs() {
        let stopped =
            fields(&[(RUN_TEXT, STOPPED), (ENABLED_TEXT, FALSE), (MASKED_TEXT, FALSE), (LOADED_TEXT, TRUE)]);
        let running =
            fields(&[(RUN_TEXT, RUNNING), (ENABLED_TEXT, TRUE), (MASKED_TEXT, FALSE), (LOADED_TEXT, TRUE)]);
        let with = |base: &Fields, more: &[(&str, &str)]| {
            let mut all = base.clone();
            all.extend(fields(more));
            all
        };
        let none = UnitChanges::default();
        let start = Some(LastChange::Start);
        let drop_in = || vec![("drop_in a".to_owned(), "[Service]\n".to_owned())];
        let table = [
            (stopped.clone(), fields(&[(RUN_TEXT, RUNNING)]), UnitChanges { then: start, ..none.clone() }),
            (
                stopped.clone(),
                fields(&[(RUN_TEXT, RUNNING), (ENABLED_TEXT, TRUE)]),
                UnitChanges { enable: true, reload: true, then: start, ..none.clone() },
            ),
            (running.clone(), fields(&[(RUN_TEXT, STOPPED)]), UnitChanges { stop: true, ..none.clone() }),
            (
                running.clone(),
                fields(&[(RUN_TEXT, STOPPED), (MASKED_TEXT, TRUE)]),
                UnitChanges { stop: true, mask: true, reload: true, ..none.clone() },
            ),
            (
                with(&running, &[("drop_in a", "")]),
                fields(&[(RUN_TEXT, RUNNING), ("drop_in a", "[Service]\n")]),
                UnitChanges {
                    files: drop_in(),
                    reload: true,
                    then: Some(LastChange::Restart),
                    ..none.clone()
                },
            ),
            (
                with(&stopped, &[("drop_in a", "")]),
                fields(&[("drop_in a", "[Service]\n")]),
                UnitChanges { files: drop_in(), reload: true, ..none.clone() },
            ),
            (
                running.clone(),
                fields(&[("reload", "x")]),
                UnitChanges { then: Some(LastChange::Reload), ..none.clone() },
            ),
            (
                with(&running, &[(LOADED_TEXT, FALSE)]),
                fields(&[("restart", "x")]),
                UnitChanges { reload: true, then: Some(LastChange::Restart), ..none.clone() },
            ),
            (
                with(&running, &[(RUN_TEXT, STARTING)]),
                fields(&[(RUN_TEXT, RUNNING), ("drop_in a", "[Service]\n")]),
                UnitChanges {
                    files: drop_in(),
                    reload: true,
                    then: Some(LastChange::Restart),
                    ..none.clone()
                },
            ),
            (
                with(&running, &[(RUN_TEXT, RESTARTING)]),
                fields(&[(RUN_TEXT, STOPPED)]),
                UnitChanges { stop: true, ..none.clone() },
            ),
            (running.clone(), running.clone(), none.clone()),
        ];
        for (from, to, wanted) in table {
            assert_eq!(changes(&from, Some(&to)), wanted, "{from:?} -> {to:?}");
        }
        let owned = with(&running, &[("unit", "[Unit]\n"), ("drop_in a", "[Service]\n")]);
        let gone = changes(&owned, None);
        assert!(gone.stop && gone.disable && gone.reload && gone.then.is_none(), "{gone:?}");
        assert_eq!(gone.files, [("drop_in a".to_owned(), String::new()), ("unit".to_owned(), String::new())]);
        assert!(!is_absent(&owned) && is_absent(&with(&stopped, &[("unit", "")])));
    }

    #[test]
    fn a_notification_restarts_what_runs_and_nothing_else() {
        let spec = spec(serde_json::json!({"reload": true}));
        let running = fields(&[(RUN_TEXT, RUNNING)]);
        let to = notified(&spec, &running, &Fields::new(), "app/file:/etc/app").unwrap();
        assert_eq!(to, fields(&[("reload", "notified by app/file:/etc/app")]));
        let stop = fields(&[(RUN_TEXT, STOPPED)]);
        assert_eq!(notified(&spec, &running, &stop, "x"), None);
        for state in [STOPPED, "failed", RESTARTING, STARTING] {
            assert_eq!(notified(&spec, &fields(&[(RUN_TEXT, state)]), &running, "x"), None, "{state}");
        }
    }

    #[test]
    fn drop_ins_of_an_earlier_declaration_go() {
        let spec = spec(serde_json::json!({"drop_in": {"a": "[Service]\nNice=5"}}));
        let now = fields(&[("drop_in a", "[Service]\nNice=5\n"), ("drop_in old", "[Service]\n")]);
        let to = desired(&spec, Some(&now)).unwrap().unwrap();
        assert_eq!(changes(&now, Some(&to)).files, [("drop_in old".to_owned(), String::new())]);
    }
}
