//! `service` and `timer` on a host: their files, and what systemd is asked over the bus.
//!
//! ```text
//! observe   one question, and a look at each file of its own
//! set       session: stop, unmask, disable, files, enable, mask, one reload, start or restart
//!           -> settle: looked at until it stayed up, or did not
//! ```
//!
//! What is done in which order, and whether a unit is up, is decided in [`converge::kinds::unit`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use catalog::types::{DROP_IN_PREFIX, DROP_IN_TEXT, RunState, UnitSpec};
use converge::JobFailure;
use converge::kinds::unit::{self, LastChange, Settled, StartedUnit, UnitBefore, UnitChanges, UnitNow};
use host::{
    BusError, End, JobEnd, Program, SystemdSession, UnitDetails, UnitProperties, UnitVerb, monotonic,
};
use model::collect::CollectInserting;
use model::text::chain;
use model::{FailureCode, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{failure, output, text};
use crate::provider::{ChangeTurn, Notification, StateChange, StateProvider};

/// The mode of a folder of drop-ins.
const FOLDER_MODE: u32 = 0o755;
/// The most files that a folder of drop-ins is expected to have.
const MAX_DROP_INS: usize = 1000;
/// How often a unit is looked at while it settles.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many lines a failure quotes that the unit wrote itself.
const OWN_LINES: usize = 15;
/// How many lines a failure quotes that systemd wrote about the unit.
const SYSTEMD_LINES: usize = 5;
/// The most bytes of a line of the journal that a failure quotes: all of them and what else it says are
/// less than a report carries.
const MAX_LINE: usize = 160;
/// The most bytes of the journal, or of what a tool printed, that are read.
const MAX_JOURNAL: usize = 64 * 1024;
/// How long reading the journal, or checking an expression, may take.
const TOOL_TIMEOUT: Duration = Duration::from_secs(10);

impl StateProvider for UnitSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let here = UnitOnHost { spec: self, kinds };
        let properties = kinds.host.systemd().unit(&self.unit).map_err(|error| asked(&self.unit, error))?;
        let file_state = here.file_state(&properties)?;
        let now = UnitNow {
            load: &properties.load_state,
            active: &properties.active_state,
            sub: &properties.sub_state,
            file: &file_state,
            needs_reload: properties.needs_reload,
            flaps: here.flaps(&properties)?,
            files: here.own_files()?,
        };
        Ok(Some(unit::observed(self, &now)))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        unit::desired(self, now)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        let nothing = Fields::new();
        let changes = unit::changes(now.unwrap_or(&nothing), to);
        let here = UnitOnHost { spec: self, kinds };
        here.check_calendars(&changes)?;
        here.carry_out(&changes, Instant::now() + timeout).map(|()| None)
    }

    fn notified(
        &self,
        kinds: &Kinds,
        now: Option<&Fields>,
        to: Option<&Fields>,
        notification: &Notification,
    ) -> Result<Option<Fields>, String> {
        let (Some(now), Some(to)) = (now, to) else { return Ok(None) };
        let Some(again) = unit::notified(self, now, to, &notification.by) else { return Ok(None) };
        let properties = kinds.host.systemd().unit(&self.unit).map_err(|error| asked(&self.unit, error))?;
        // What started since has read what was changed.
        let up = properties.active_since.map(|since| monotonic().saturating_sub(since));
        let started_since = up.is_some_and(|up| up < notification.last.elapsed());
        Ok((!started_since || properties.needs_reload).then_some(again))
    }

    fn is_absent(&self, now: &Fields) -> bool {
        unit::is_absent(now)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Units
    }
}

/// A unit and the host that it is on.
struct UnitOnHost<'a> {
    spec: &'a UnitSpec,
    kinds: &'a Kinds,
}

impl UnitOnHost<'_> {
    /// Whether it was restarted by systemd and is not up for long enough to count.
    fn flaps(&self, properties: &UnitProperties) -> Result<bool, String> {
        let up = properties.active_since.map(|since| monotonic().saturating_sub(since));
        let young = up.filter(|up| *up < self.spec.settle.unwrap_or(unit::SETTLE));
        let Some(up) = young.filter(|_| self.spec.run == Some(RunState::Running)) else { return Ok(false) };
        let details = self
            .kinds
            .host
            .systemd()
            .details(&self.spec.unit)
            .map_err(|error| asked(&self.spec.unit, error))?;
        Ok(details.restarts > 0 && up < unit::settle_time(self.spec, &details.start_type))
    }

    /// Whether it is enabled. systemd remembers that until it reads its files again: where a link says
    /// otherwise it is asked to look.
    fn file_state(&self, properties: &UnitProperties) -> Result<String, String> {
        let known = properties.file_state.clone();
        let host = &self.kinds.host;
        let differs = || unit::enabled_by_link(&known) != self.kinds.unit_links.start(host, &properties.id);
        if self.spec.enabled.is_none() || known.is_empty() || !differs() {
            return Ok(known);
        }
        let now = host.systemd().file_state(&properties.id);
        Ok(now.map_err(|error| asked(&self.spec.unit, error))?.unwrap_or(known))
    }

    /// What its own files hold.
    fn own_files(&self) -> Result<Fields, String> {
        let mut paths: BTreeMap<String, String> =
            self.spec.files.iter().map(|(name, file)| (name.clone(), file.path.clone())).collect_inserting();
        if let Some(folder) = &self.spec.drop_ins {
            let names = self.kinds.host.names(folder, MAX_DROP_INS).map_err(text)?;
            for file in names.unwrap_or_default() {
                let name = file.strip_prefix(DROP_IN_PREFIX).and_then(|name| name.strip_suffix(".conf"));
                if let Some(name) = name {
                    paths.insert(format!("{DROP_IN_TEXT}{name}"), format!("{folder}/{file}"));
                }
            }
        }
        let read = |(name, path): (String, String)| match self.kinds.look(&path)? {
            PathState::Missing => Ok((name, String::new())),
            // A mask: it is told apart from the file, and taken away before one is written.
            PathState::Symlink { target } if target == "/dev/null" => Ok((name, String::new())),
            _ => self.kinds.text_file(&path).map(|held| (name, held.unwrap_or_default())),
        };
        paths.into_iter().map(read).try_collect_inserting()
    }

    /// Has systemd read each expression before anything is written.
    fn check_calendars(&self, changes: &UnitChanges) -> Result<(), String> {
        if changes.files.iter().all(|(_, text)| text.is_empty()) {
            return Ok(());
        }
        self.spec.calendars.iter().try_for_each(|expression| {
            let argv = ["systemd-analyze", "calendar", "--", expression];
            let finished = run(self.kinds, &argv, MAX_JOURNAL)?;
            match finished.end {
                End::Exited(0) => Ok(()),
                End::Exited(_) => {
                    let said = output(&finished).unwrap_or_default();
                    let said = said.lines().next().unwrap_or_default();
                    Err(format!("on_calendar: systemd does not understand `{expression}`: {said}"))
                }
                end => Err(format!("systemd-analyze {}", failure(end, &finished, TOOL_TIMEOUT))),
            }
        })
    }

    fn carry_out(&self, changes: &UnitChanges, deadline: Instant) -> Result<(), JobFailure> {
        let unit = &self.spec.unit;
        let refused = |what: &str| {
            let what = what.to_owned();
            move |error: BusError| format!("systemd does not {what} {unit}: {error}")
        };
        let mut session = self.kinds.host.systemd().session().map_err(refused("change"))?;
        if changes.stop {
            let stopped = session.job(UnitVerb::Stop, unit, left(deadline));
            match stopped.map_err(refused("stop"))? {
                JobEnd::Done | JobEnd::Skipped | JobEnd::Failed | JobEnd::Other(_) => {}
                JobEnd::TimedOut => return Err(self.down("it did not stop in time")),
                JobEnd::Dependency | JobEnd::Cancelled => {
                    return Err(format!("another job of systemd took the place of stopping {unit}").into());
                }
            }
        }
        if changes.unmask {
            session.unmask(unit).map_err(refused("unmask"))?;
        }
        if changes.disable {
            let name = own_name(&mut session, unit);
            session.disable(&name).map_err(refused("disable"))?;
        }
        self.write_files(&changes.files)?;
        if changes.enable {
            let name = own_name(&mut session, unit);
            session.enable(&name).map_err(refused("enable"))?;
        }
        if changes.mask {
            session.mask(unit).map_err(refused("mask"))?;
        }
        if changes.reload {
            session.reload().map_err(|error| format!("systemd does not read its files again: {error}"))?;
        }
        match changes.then {
            Some(last) => self.finish(&mut session, last, deadline),
            None => Ok(()),
        }
    }

    /// Writes and removes its own files, and folders of drop-ins that are empty then.
    fn write_files(&self, files: &[(String, String)]) -> Result<(), JobFailure> {
        for (name, content) in files {
            let path = self
                .spec
                .file_path(name)
                .ok_or_else(|| format!("`{name}` names no file of {}", self.spec.unit))?;
            let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
            if content.is_empty() {
                self.kinds.host.remove_file(&path).map_err(text)?;
                let empty =
                    self.kinds.host.names(folder, MAX_DROP_INS).is_ok_and(|names| names == Some(Vec::new()));
                if empty && folder.ends_with(".d") {
                    self.kinds.host.remove_directory(folder, false).map_err(text)?;
                }
                continue;
            }
            if self.kinds.look(folder)? == PathState::Missing {
                self.kinds
                    .host
                    .make_directory(folder, &PathOwnership::default(), FOLDER_MODE)
                    .map_err(text)?;
            }
            self.kinds.write_text(&path, content)?;
        }
        Ok(())
    }

    /// Starts or restarts it, and waits until it stayed up.
    fn finish(
        &self,
        session: &mut SystemdSession,
        last: LastChange,
        deadline: Instant,
    ) -> Result<(), JobFailure> {
        let properties = session.unit(&self.spec.unit).map_err(|error| asked(&self.spec.unit, error))?;
        match properties.load_state.as_str() {
            "not-found" => {
                return Err(format!(
                    "there is no unit {} on this host; declare the package that has it before this resource, or \
                     its `unit`",
                    self.spec.unit
                )
                .into());
            }
            "bad-setting" | "error" => {
                return Err(
                    format!("systemd cannot read {}: {}", self.spec.unit, properties.load_error).into()
                );
            }
            _ => {}
        }
        let (verb, what) = match last {
            LastChange::Start => (UnitVerb::Start, "start"),
            LastChange::Restart => (UnitVerb::TryRestart, "restart"),
            LastChange::Reload => (UnitVerb::ReloadOrTryRestart, "reload"),
        };
        let before = UnitBefore {
            active: &properties.active_state,
            up: properties.up(),
            starting: properties.starting(),
        };
        let limit = match last {
            LastChange::Start => before.start_limit(left(deadline)),
            LastChange::Restart | LastChange::Reload => left(deadline),
        };
        session.hold(&self.spec.unit).map_err(|error| asked(&self.spec.unit, error))?;
        match session.job(verb, &self.spec.unit, limit) {
            Ok(JobEnd::Done | JobEnd::Failed | JobEnd::TimedOut | JobEnd::Skipped | JobEnd::Other(_)) => {
                self.settle(before, deadline)
            }
            Ok(JobEnd::Dependency) => {
                Err(self.down(&format!("it could not {what}, because a unit that it needs failed")))
            }
            Ok(JobEnd::Cancelled) => {
                Err(format!("another job of systemd took the place of the {what} of {}", self.spec.unit)
                    .into())
            }
            Err(BusError::TimedOut { .. }) => {
                let now = session.unit(&self.spec.unit).unwrap_or_default();
                let why = match limit.as_secs() {
                    0 => "it has been starting for longer than its `timeout`".to_owned(),
                    limit => format!("it did not {what} within {limit} s"),
                };
                let still = format!("{why}, and still is {} ({})", now.active_state, now.sub_state);
                Err(self.down(&still))
            }
            Err(error) => Err(format!("systemd does not {what} {}: {error}", self.spec.unit).into()),
        }
    }

    /// Looks at it until it has been up for long enough. Others are not held up: no turn is held.
    fn settle(&self, before: UnitBefore<'_>, deadline: Instant) -> Result<(), JobFailure> {
        let systemd = self.kinds.host.systemd();
        let look = || -> Result<(UnitProperties, UnitDetails), String> {
            let properties = systemd.unit(&self.spec.unit).map_err(|error| asked(&self.spec.unit, error))?;
            let details = systemd.details(&self.spec.unit).map_err(|error| asked(&self.spec.unit, error))?;
            Ok((properties, details))
        };
        let (mut properties, mut details) = look()?;
        let restarts = details.restarts;
        let purpose = self.kinds.purpose();
        let until = Instant::now() + unit::observed_for(self.spec, &details.start_type, purpose, before);
        loop {
            let now = Instant::now();
            match unit::settled(&started(&properties, &details), restarts) {
                Settled::Down(why) => return Err(self.down(&why)),
                Settled::Up if now >= until => return Ok(()),
                Settled::NotYet if now >= deadline => {
                    let why = format!("it is still {} ({})", properties.active_state, properties.sub_state);
                    return Err(self.down(&why));
                }
                Settled::Up | Settled::NotYet => {}
            }
            if self.kinds.host.is_cancelled() {
                return Err("the agent is stopping".into());
            }
            std::thread::sleep(LOOK_EVERY);
            (properties, details) = look()?;
        }
    }

    /// Why it is not up: what systemd says of it, then what it said itself, then what else systemd
    /// wrote about it.
    fn down(&self, why: &str) -> JobFailure {
        let mut message = format!("{} is not up: {why}", self.spec.unit);
        let of_its_own = [format!("_SYSTEMD_UNIT={}", self.spec.unit)];
        let of_systemd = ["_PID=1".to_owned(), format!("UNIT={}", self.spec.unit)];
        for (title, matches, lines) in [
            ("its own last lines in the journal:", &of_its_own[..], OWN_LINES),
            ("systemd's last lines about it:", &of_systemd[..], SYSTEMD_LINES),
        ] {
            for line in self.journal(matches, lines).iter().enumerate() {
                match line {
                    (0, first) => message.push_str(&format!("\n{title}\n  {first}")),
                    (_, line) => message.push_str(&format!("\n  {line}")),
                }
            }
        }
        JobFailure::new(FailureCode::UnitDown, why, message)
    }

    /// The last lines of the journal of this boot that have these fields.
    fn journal(&self, matches: &[String], lines: usize) -> Vec<String> {
        let lines_word = lines.to_string();
        let mut argv =
            vec!["journalctl", "--boot", "--lines", &lines_word, "--output", "cat", "--no-pager", "--quiet"];
        argv.extend(matches.iter().map(String::as_str));
        let Ok(finished) = run(self.kinds, &argv, MAX_JOURNAL) else { return Vec::new() };
        // A line may be several: a message has as many as it likes.
        let text = String::from_utf8_lossy(&finished.stdout.bytes).into_owned();
        let mut last: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = last.split_off(last.len().saturating_sub(lines));
        last.into_iter().map(|line| line[..line.floor_char_boundary(MAX_LINE)].to_owned()).collect()
    }
}

/// Why a question was not answered.
fn asked(unit: &str, error: BusError) -> String {
    format!("systemd does not say how {unit} is: {error}")
}

/// What is left of a time limit.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The name by which systemd enables and disables a unit: it refuses to by an alias.
fn own_name(session: &mut SystemdSession, unit: &str) -> String {
    let own = session.unit(unit).map(|properties| properties.id);
    own.ok().filter(|id| !id.is_empty()).unwrap_or_else(|| unit.to_owned())
}

fn started<'a>(properties: &'a UnitProperties, details: &'a UnitDetails) -> StartedUnit<'a> {
    StartedUnit {
        active: &properties.active_state,
        sub: &properties.sub_state,
        conditions_met: properties.conditions_met,
        start_type: &details.start_type,
        remains: details.remains,
        result: &details.result,
        main_status: details.main_status,
        main_signalled: details.main_signalled,
        restarts: details.restarts,
    }
}

/// Runs one of systemd's own tools, in plain words.
fn run(kinds: &Kinds, argv: &[&str], limit: usize) -> Result<host::FinishedCommand, String> {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let env = BTreeMap::from([("LC_ALL".to_owned(), "C".to_owned())]);
    let command = host::Command { env, ..host::Command::new(Program::Argv(argv), TOOL_TIMEOUT, limit) };
    kinds.host.run(&command).map_err(|error| chain(&error))
}
