//! Windows: by weekday and wall clock, over midnight, over the days on which clocks change.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::Timestamp;
use model::window::{
    ClockZone, DeclaredWindow, ReadWindowError, TimeWindow, WallClock, Weekdays, east_of, rules_of,
};

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn declared(days: &[&str], from: &str, to: &str, zone: &str) -> DeclaredWindow {
    DeclaredWindow {
        days: days.iter().map(|day| (*day).to_owned()).collect(),
        from: from.to_owned(),
        to: to.to_owned(),
        zone: zone.to_owned(),
        rules: zone.contains('/').then(|| BERLIN.to_owned()),
    }
}

fn window(days: &[&str], from: &str, to: &str, zone: &str) -> TimeWindow {
    TimeWindow::read(&declared(days, from, to, zone)).unwrap()
}

#[test]
fn a_window_contains_what_its_clock_shows() {
    /// Days, from, to, zone; an instant; whether it is in.
    type WindowCase<'a> = (&'a [&'a str], &'a str, &'a str, &'a str, &'a str, bool);
    // 2026-11-23 is a Monday.
    let cases: &[WindowCase<'_>] = &[
        (&["mon"], "08:00", "17:00", "UTC", "2026-11-23T08:00:00Z", true),
        (&["mon"], "08:00", "17:00", "UTC", "2026-11-23T07:59:59Z", false),
        (&["mon"], "08:00", "17:00", "UTC", "2026-11-23T17:00:00Z", false),
        (&["mon"], "08:00", "17:00", "UTC", "2026-11-24T09:00:00Z", false),
        (&[], "08:00", "17:00", "UTC", "2026-11-28T09:00:00Z", true),
        // Over midnight: the day is the one of the start.
        (&["mon-fri"], "22:00", "04:00", "UTC", "2026-11-23T03:00:00Z", false),
        (&["mon-fri"], "22:00", "04:00", "UTC", "2026-11-23T22:00:00Z", true),
        (&["mon-fri"], "22:00", "04:00", "UTC", "2026-11-28T03:59:59Z", true),
        (&["mon-fri"], "22:00", "04:00", "UTC", "2026-11-28T04:00:00Z", false),
        (&["mon-fri"], "22:00", "04:00", "UTC", "2026-11-28T22:00:00Z", false),
        (&["sun"], "22:00", "04:00", "UTC", "2026-11-23T03:00:00Z", true),
        // A whole day, and the end of one.
        (&["sat"], "00:00", "00:00", "UTC", "2026-11-28T23:59:59Z", true),
        (&["sat"], "00:00", "00:00", "UTC", "2026-11-29T00:00:00Z", false),
        (&["sat"], "12:00", "24:00", "UTC", "2026-11-28T23:59:00Z", true),
        (&["sat"], "12:00", "24:00", "UTC", "2026-11-29T00:00:00Z", false),
        // Other clocks: 23:00 on Monday in UTC is Tuesday in Berlin.
        (&["tue"], "00:00", "01:00", "+01:00", "2026-11-23T23:30:00Z", true),
        (&["tue"], "00:00", "01:00", "Europe/Berlin", "2026-11-23T23:30:00Z", true),
        (&["mon"], "20:00", "21:00", "-03:30", "2026-11-23T23:45:00Z", true),
        // In summer Berlin is two hours ahead.
        (&[], "08:00", "09:00", "Europe/Berlin", "2026-07-01T06:30:00Z", true),
        (&[], "08:00", "09:00", "Europe/Berlin", "2026-11-23T07:30:00Z", true),
        (&[], "08:00", "09:00", "Europe/Berlin", "2026-11-23T06:30:00Z", false),
    ];
    for (days, from, to, zone, now, expected) in cases {
        let found = window(days, from, to, zone).contains(at(now));
        assert_eq!(found, *expected, "{days:?} {from}-{to} {zone} at {now}");
    }
}

#[test]
fn the_next_start_is_the_next_one_at_or_after_now() {
    let cases: &[(&[&str], &str, &str, &str, &str)] = &[
        (&["mon-fri"], "22:00", "UTC", "2026-11-23T10:00:00Z", "2026-11-23T22:00:00Z"),
        (&["mon-fri"], "22:00", "UTC", "2026-11-23T22:00:00Z", "2026-11-23T22:00:00Z"),
        (&["mon-fri"], "22:00", "UTC", "2026-11-27T22:00:01Z", "2026-11-30T22:00:00Z"),
        (&["mon"], "00:00", "UTC", "2026-11-23T00:00:01Z", "2026-11-30T00:00:00Z"),
        (&[], "02:30", "Europe/Berlin", "2026-11-23T12:00:00Z", "2026-11-24T01:30:00Z"),
        // 02:30 does not exist on 2027-03-28 and comes twice on 2026-10-25, first in summer time.
        (&[], "02:30", "Europe/Berlin", "2027-03-27T12:00:00Z", "2027-03-28T01:30:00Z"),
        (&[], "02:30", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        (&["tue"], "00:30", "+14:00", "2026-11-23T10:00:00Z", "2026-11-23T10:30:00Z"),
    ];
    for (days, from, zone, now, expected) in cases {
        let found = window(days, from, "05:00", zone).next_start(at(now));
        assert_eq!(found, Some(at(expected)), "{days:?} {from} {zone} at {now}");
    }
    assert_eq!(window(&[], "02:30", "05:00", "UTC").next_start(Timestamp(i64::MAX)), None);
}

#[test]
fn an_open_window_says_when_it_opened_and_how_long_it_is_open() {
    let cases: &[(&str, &str, &str, &str, Option<&str>)] = &[
        ("22:00", "04:00", "UTC", "2026-11-23T21:59:59Z", None),
        ("22:00", "04:00", "UTC", "2026-11-23T22:00:00Z", Some("2026-11-23T22:00:00Z")),
        ("22:00", "04:00", "UTC", "2026-11-24T03:59:59Z", Some("2026-11-23T22:00:00Z")),
        ("22:00", "04:00", "UTC", "2026-11-24T04:00:00Z", None),
        ("05:00", "05:00", "UTC", "2026-11-24T04:59:59Z", Some("2026-11-23T05:00:00Z")),
        ("05:00", "05:00", "UTC", "2026-11-24T05:00:00Z", Some("2026-11-24T05:00:00Z")),
        // The clocks are set back at 01:00 UTC, and the window is open for an hour more.
        ("02:30", "04:00", "Europe/Berlin", "2026-10-25T01:30:00Z", Some("2026-10-25T00:30:00Z")),
        ("02:30", "04:00", "Europe/Berlin", "2026-10-25T02:30:00Z", None),
    ];
    for (from, to, zone, now, expected) in cases {
        let found = window(&[], from, to, zone).opened(at(now));
        assert_eq!(found, expected.map(at), "{from}-{to} {zone} at {now}");
    }
    let hours = |from, to| window(&[], from, to, "UTC").length().as_secs() / 3600;
    assert_eq!([hours("22:00", "04:00"), hours("08:00", "17:00"), hours("05:00", "05:00")], [6, 9, 24]);
    assert_eq!(hours("08:00", "24:00"), 16);
}

#[test]
fn what_cannot_be_read_is_named() {
    let wrong =
        |days: &[&str], from, to, zone| TimeWindow::read(&declared(days, from, to, zone)).unwrap_err();
    assert_eq!(wrong(&["mo"], "22:00", "04:00", "UTC"), ReadWindowError::Day("mo".into()));
    assert_eq!(wrong(&["mon-"], "22:00", "04:00", "UTC"), ReadWindowError::Day("mon-".into()));
    for time in ["22", "24:01", "1:00", "22:60", "+1:00", "", "22:0x", "24:00"] {
        assert_eq!(wrong(&[], time, "04:00", "UTC"), ReadWindowError::Time(time.into()));
    }
    for zone in ["+15:00", "-14:01", "+2", "-", "+02:00:00"] {
        assert_eq!(wrong(&[], "22:00", "04:00", zone), ReadWindowError::Zone(zone.into()));
    }
    assert_eq!(wrong(&[], "22:00", "04:00", "CET"), ReadWindowError::NoRules("CET".into()));
    assert_eq!(Weekdays::read([]), Err(ReadWindowError::NoDay));
}

#[test]
fn days_may_go_over_the_end_of_the_week() {
    assert_eq!(Weekdays::read(["fri-mon"]).unwrap().to_string(), "mon,fri,sat,sun");
    assert_eq!(Weekdays::read(["sat", "sun"]).unwrap().to_string(), "sat,sun");
    assert_eq!(Weekdays::ALL.to_string(), "mon,tue,wed,thu,fri,sat,sun");
}

#[test]
fn hours_are_those_of_the_clock_that_is_meant() {
    let clock = WallClock::at(at("2026-11-23T22:30:00Z"), 3600);
    assert!(clock.is_between(23, 24) && clock.is_between(22, 4) && !clock.is_between(0, 23));
    assert!(clock.is_between(0, 0), "a whole day");
    assert!(Weekdays::read(["mon"]).unwrap().contain(clock));
    assert!(Weekdays::read(["tue"]).unwrap().contain(WallClock::at(at("2026-11-23T22:30:00Z"), 7200)));
    // The first hour counts and the last does not; over midnight both ends do so.
    let at_hour = |hour: u8| WallClock::at(at(&format!("2026-11-23T{hour:02}:00:00Z")), 0);
    let between =
        |from, to| -> Vec<u8> { (0..24).filter(|hour| at_hour(*hour).is_between(from, to)).collect() };
    assert_eq!(between(8, 10), [8, 9]);
    assert_eq!(between(22, 2), [0, 1, 22, 23]);
    assert_eq!(between(5, 5).len(), 24);
    // Before 1970.
    assert!(WallClock::at(at("1969-12-31T23:00:00Z"), 0).is_between(23, 24));
    for zone in ["local", "UTC", "+05:30", "-03:30"] {
        assert_eq!(ClockZone::read(zone).unwrap().to_string(), zone);
    }
    assert!(ClockZone::read("Europe/Berlin").is_err());
}

#[test]
fn compiled_zones_are_read() {
    // The smallest file of version 2: no transition, one type, and the rules.
    let block = || {
        let mut bytes = b"TZif2".to_vec();
        bytes.extend([0; 15]);
        for count in [0u32, 0, 0, 0, 1, 4] {
            bytes.extend(count.to_be_bytes());
        }
        bytes.extend(3600i32.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(b"CET\0");
        bytes
    };
    let mut file = block();
    file.extend(block());
    file.extend(b"\nCET-1CEST,M3.5.0,M10.5.0/3\n");
    assert_eq!(rules_of(&file).as_deref(), Some(BERLIN));
    assert_eq!(east_of(&file, at("2026-07-01T00:00:00Z")), Some(7200));
    assert_eq!(east_of(&file, at("2026-11-23T00:00:00Z")), Some(3600));
    for broken in [&b""[..], b"\n", b"\n\n", b"TZif2", b"\nnonsense\n"] {
        assert_eq!((rules_of(broken), east_of(broken, Timestamp(0))), (None, None), "{broken:?}");
    }
}
