//! [`TimeWindow`]: when something may be done, by weekday and wall clock.
//!
//! ```text
//! fleet.yaml  nights: {days: [mon-fri], from: "22:00", to: "04:00", zone: Europe/Berlin}
//!   -> DeclaredWindow (texts, with the zone's rules) -> TimeWindow::read -> contains, next_start
//! ```
//!
//! A window belongs to the day on which it starts: with `to` at or before `from` it goes over
//! midnight, so `days: [fri]` from 22:00 to 04:00 ends on Saturday. The rules of a named zone
//! travel with the window as a POSIX TZ text, so that a node needs no time zone database and
//! says the same as the machine on which the release was made. Time is an argument, always.

use std::fmt;
use std::time::Duration;

use jiff::civil::{DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, ToSpan};
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The largest offset from UTC, in seconds.
const MAX_OFFSET_SECS: i32 = 14 * 3600;
/// The days of a week, as they are written.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Some days of the week; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weekdays(u8);

/// Whose wall clock is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClockZone {
    /// The host's.
    Local,
    /// That of places so many seconds east of UTC.
    Fixed(i32),
}

/// What a wall clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// 0 is Monday.
    weekday: u8,
    /// Minutes since midnight.
    minute: u16,
}

/// A window as the fleet repo declares it and as a release carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredWindow {
    /// Days, or ranges of days such as `mon-fri`; every day when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// `22:00`.
    pub from: String,
    /// `04:00`; `24:00` is the end of the day.
    pub to: String,
    /// `UTC`, an offset such as `+02:00`, or a name such as `Europe/Berlin`.
    pub zone: String,
    /// The rules of a zone that has a name, as a POSIX TZ text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

impl fmt::Display for DeclaredWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeclaredWindow { days, from, to, zone, rules: _ } = self;
        if !days.is_empty() {
            write!(f, "{} ", days.join(","))?;
        }
        write!(f, "{from}-{to} {zone}")
    }
}

/// When something may be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    days: Weekdays,
    from: u16,
    to: u16,
    zone: TimeZone,
}

/// A window, a day, a time or a zone that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadWindowError {
    /// No day of the week.
    #[error("`{0}` is no day of the week; write mon, tue, wed, thu, fri, sat, sun, or mon-fri")]
    Day(String),
    /// No day at all.
    #[error("there is no day in it")]
    NoDay,
    /// No time of the day.
    #[error("`{0}` is no time of the day; write one such as \"22:00\"")]
    Time(String),
    /// A zone that is not known.
    #[error("`{0}` is no time zone; write UTC, an offset such as \"+02:00\", or a name")]
    Zone(String),
    /// A zone with a name and no rules.
    #[error("the rules of the time zone `{0}` are not at hand")]
    NoRules(String),
}

impl Weekdays {
    /// Every day.
    pub const ALL: Weekdays = Weekdays(0x7f);

    /// Reads days and ranges of days; a range may go over the end of the week.
    ///
    /// # Errors
    /// A word that is no day, or no word at all.
    pub fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Weekdays, ReadWindowError> {
        let mut days = 0;
        for word in words {
            let unknown = || ReadWindowError::Day(word.to_owned());
            let number = |day: &str| DAYS.iter().position(|known| *known == day).ok_or_else(unknown);
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (mut day, last) = (number(first.trim())?, number(last.trim())?);
            while day != last {
                days |= 1 << day;
                day = (day + 1) % DAYS.len();
            }
            days |= 1 << last;
        }
        if days == 0 { Err(ReadWindowError::NoDay) } else { Ok(Weekdays(days)) }
    }

    fn has(self, weekday: u8) -> bool {
        self.0 & (1 << weekday) != 0
    }

    /// Whether a wall clock shows one of these days.
    pub fn contain(self, clock: WallClock) -> bool {
        self.has(clock.weekday)
    }
}

impl fmt::Display for Weekdays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = DAYS.iter().enumerate().filter(|(day, _)| self.0 & (1 << day) != 0);
        f.write_str(&named.map(|(_, name)| *name).collect::<Vec<_>>().join(","))
    }
}

impl ClockZone {
    /// Reads `local`, `UTC` or an offset such as `+02:00`.
    ///
    /// # Errors
    /// Any other text.
    pub fn read(text: &str) -> Result<ClockZone, ReadWindowError> {
        match text {
            "local" => Ok(ClockZone::Local),
            "UTC" => Ok(ClockZone::Fixed(0)),
            _ => offset(text).map(ClockZone::Fixed),
        }
    }
}

impl fmt::Display for ClockZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockZone::Local => f.write_str("local"),
            ClockZone::Fixed(0) => f.write_str("UTC"),
            ClockZone::Fixed(secs) => {
                let sign = if *secs < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", secs.abs() / 3600, secs.abs() % 3600 / 60)
            }
        }
    }
}

impl WallClock {
    /// What a wall clock shows so many seconds east of UTC.
    pub fn at(now: Timestamp, east_secs: i32) -> WallClock {
        let secs = now.secs().saturating_add(east_secs.into());
        // 1970-01-01 was a Thursday.
        let weekday = (secs.div_euclid(86_400) + 3).rem_euclid(7);
        let minute = secs.rem_euclid(86_400) / 60;
        WallClock { weekday: u8::try_from(weekday).unwrap_or(0), minute: u16::try_from(minute).unwrap_or(0) }
    }

    /// Whether the clock is between two hours, the second one excluded; over midnight where the
    /// first is not before the second.
    pub fn is_between(self, from_hour: u8, to_hour: u8) -> bool {
        let (from, to) = (u16::from(from_hour) * 60, u16::from(to_hour) * 60);
        if from < to { (from..to).contains(&self.minute) } else { self.minute >= from || self.minute < to }
    }
}

impl TimeWindow {
    /// Reads a declared window.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub fn read(declared: &DeclaredWindow) -> Result<TimeWindow, ReadWindowError> {
        let days = match declared.days.as_slice() {
            [] => Weekdays::ALL,
            days => Weekdays::read(days.iter().map(String::as_str))?,
        };
        let (from, to) = (minute(&declared.from)?, minute(&declared.to)?);
        if from == 24 * 60 {
            return Err(ReadWindowError::Time(declared.from.clone()));
        }
        let zone = match (declared.zone.as_str(), &declared.rules) {
            ("UTC", _) => TimeZone::UTC,
            (text, _) if text.starts_with(['+', '-']) => fixed(offset(text)?),
            (name, Some(rules)) => {
                TimeZone::posix(rules).map_err(|_| ReadWindowError::Zone(name.to_owned()))?
            }
            (name, None) => return Err(ReadWindowError::NoRules(name.to_owned())),
        };
        Ok(TimeWindow { days, from, to, zone })
    }

    /// Whether an instant lies in it. The start does, the end does not.
    pub fn contains(&self, now: Timestamp) -> bool {
        let clock = WallClock::at(now, self.east_secs(now));
        let before = (clock.weekday + 6) % 7;
        if self.from < self.to {
            self.days.has(clock.weekday) && (self.from..self.to).contains(&clock.minute)
        } else {
            (self.days.has(clock.weekday) && clock.minute >= self.from)
                || (self.days.has(before) && clock.minute < self.to)
        }
    }

    /// When it opened that is open at an instant; `None` when it is closed, or the clocks were set back
    /// since it opened and nobody can say.
    pub fn opened(&self, now: Timestamp) -> Option<Timestamp> {
        let before = Timestamp(now.0.saturating_sub(self.length().as_millis().try_into().ok()?));
        self.next_start(Timestamp(before.0.saturating_add(1)))
            .filter(|start| *start <= now && self.contains(now))
    }

    /// How long it is open, by the wall clock.
    pub fn length(&self) -> Duration {
        let over_midnight = if self.from < self.to { 0 } else { 24 * 60 };
        Duration::from_secs(u64::from(self.to + over_midnight - self.from) * 60)
    }

    /// When it starts next, at or after an instant; `None` beyond the years that a clock knows.
    /// A start that the clocks jump over is at the jump.
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let instant = jiff::Timestamp::from_millisecond(now.0).ok()?;
        let today = self.zone.to_datetime(instant).date();
        let time = Time::new(i8::try_from(self.from / 60).ok()?, i8::try_from(self.from % 60).ok()?, 0, 0);
        let time = time.ok()?;
        // From the day before: it may start late there where the clocks were set back.
        (-1..=8).find_map(|days: i64| {
            let span: Span = days.days();
            let date = today.checked_add(span).ok()?;
            let weekday = u8::try_from(date.weekday().to_monday_zero_offset()).ok()?;
            if !self.days.has(weekday) {
                return None;
            }
            let start = self.zone.to_timestamp(DateTime::from_parts(date, time)).ok()?;
            let start = Timestamp(start.as_millisecond());
            (start >= now).then_some(start)
        })
    }

    fn east_secs(&self, now: Timestamp) -> i32 {
        let instant = jiff::Timestamp::from_millisecond(now.0);
        instant.map_or(0, |instant| self.zone.to_offset(instant).seconds())
    }
}

/// The rules of a time zone as a POSIX TZ text, from its compiled file: what the file says of
/// all years to come.
pub fn rules_of(tzif: &[u8]) -> Option<String> {
    let body = tzif.strip_suffix(b"\n")?;
    let start = body.iter().rposition(|byte| *byte == b'\n')? + 1;
    let rules = std::str::from_utf8(body.get(start..)?).ok()?;
    TimeZone::posix(rules).is_ok().then(|| rules.to_owned())
}

/// How many seconds east of UTC a zone is at an instant, from its compiled file.
pub fn east_of(tzif: &[u8], now: Timestamp) -> Option<i32> {
    let zone = TimeZone::tzif("", tzif).ok()?;
    let instant = jiff::Timestamp::from_millisecond(now.0).ok()?;
    Some(zone.to_offset(instant).seconds())
}

fn fixed(secs: i32) -> TimeZone {
    Offset::from_seconds(secs).map_or(TimeZone::UTC, TimeZone::fixed)
}

/// `+02:00` in seconds.
fn offset(text: &str) -> Result<i32, ReadWindowError> {
    let unknown = || ReadWindowError::Zone(text.to_owned());
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(unknown()),
    };
    let minutes = minute(rest).map_err(|_| unknown())?;
    let secs = i32::from(minutes) * 60;
    if secs > MAX_OFFSET_SECS { Err(unknown()) } else { Ok(sign * secs) }
}

/// `22:00` in minutes since midnight, at most 24:00.
fn minute(text: &str) -> Result<u16, ReadWindowError> {
    let wrong = || ReadWindowError::Time(text.to_owned());
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, most: u16| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| plain && *number <= most).ok_or_else(wrong)
    };
    let at = number(hours, 24)? * 60 + number(minutes, 59)?;
    if at > 24 * 60 { Err(wrong()) } else { Ok(at) }
}
