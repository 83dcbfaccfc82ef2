//! EXE-1: systemd is asked over a bus that restarts, lies or is not there; each time the answer
//! is the right one or a clear failure, within its limit.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::{BusError, Host, HostOptions, JobEnd, UnitEvent, UnitVerb};

const SYSTEMD: &str = ":1.1";
const ANYONE: &str = ":1.66";

/// What the bus does when it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Answers,
    /// Hangs up when it is asked for properties.
    HangsUp,
    /// Sends what is no message.
    Babbles,
    /// Has a stranger say that the job is done, and never ends it.
    Forged,
    /// A stranger sends more than fits, before each answer.
    Flooded,
    /// Lets nobody in.
    Refuses,
}

struct FakeBus {
    mood: Arc<Mutex<Mood>>,
    opened: Arc<AtomicU32>,
}

impl FakeBus {
    fn listen(root: &Path) -> FakeBus {
        std::fs::create_dir_all(root.join("run/dbus")).unwrap();
        let listener = UnixListener::bind(root.join("run/dbus/system_bus_socket")).unwrap();
        let bus = FakeBus { mood: Arc::new(Mutex::new(Mood::Answers)), opened: Arc::default() };
        let (mood, opened) = (Arc::clone(&bus.mood), Arc::clone(&bus.opened));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                opened.fetch_add(1, Ordering::Relaxed);
                let mood = Arc::clone(&mood);
                std::thread::spawn(move || serve(stream.unwrap(), &mood));
            }
        });
        bus
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }
}

/// One connection, to its end.
fn serve(stream: UnixStream, mood: &Mutex<Mood>) {
    let mut out = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mood = || *mood.lock().unwrap();
    if reader.read_line(&mut line).is_err() || mood() == Mood::Refuses {
        let _ = out.write_all(b"REJECTED EXTERNAL\r\n");
        return;
    }
    let _ = out.write_all(b"OK 0123456789abcdef\r\n");
    line.clear();
    let _ = reader.read_line(&mut line);
    let mut fixed = [0; 16];
    while reader.read_exact(&mut fixed).is_ok() {
        let number = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap());
        let fields = (number(12) as usize).next_multiple_of(8);
        let mut rest = vec![0; fields + number(4) as usize];
        reader.read_exact(&mut rest).unwrap();
        let asks = |member: &str| rest.windows(member.len()).any(|window| window == member.as_bytes());
        let serial = number(8);
        let answer = if asks("GetNameOwner") {
            Message::to(serial, "s").text(SYSTEMD)
        } else if asks("GetAll") && mood() == Mood::HangsUp {
            return;
        } else if asks("GetAll") && mood() == Mood::Babbles {
            out.write_all(&[0xff; 64]).unwrap();
            continue;
        } else if asks("GetAll") {
            Message::to(serial, "a{sv}").entries(&[("Id", "app.service"), ("ActiveState", "active")])
        } else if asks("StartUnit") {
            Message::to(serial, "o").text("/org/freedesktop/systemd1/job/7")
        } else if asks("StopUnit") {
            Message::error(serial, "org.freedesktop.systemd1.NoSuchUnit").text("Unit app.service not loaded.")
        } else {
            Message::to(serial, "")
        };
        if mood() == Mood::Flooded {
            let huge = Message::signal(ANYONE, "Huge", "s").text(&"x".repeat(2 << 20)).bytes();
            let large = Message::signal(ANYONE, "Large", "s").text(&"x".repeat(900 << 10)).bytes();
            [huge, large.clone(), large.clone(), large.clone(), large.clone(), large]
                .iter()
                .for_each(|signal| drop(out.write_all(signal)));
        }
        let _ = out.write_all(&answer.bytes());
        if asks("StartUnit") {
            let removed = |sender, result| {
                Message::signal(sender, "JobRemoved", "uoss")
                    .number(7)
                    .text("/org/freedesktop/systemd1/job/7")
                    .text("app.service")
                    .text(result)
            };
            let _ = out.write_all(&removed(ANYONE, "done").bytes());
            if mood() != Mood::Forged {
                let _ = out.write_all(&removed(SYSTEMD, "failed").bytes());
            }
        } else if asks("Subscribe") {
            let _ = out.write_all(&Message::signal(SYSTEMD, "UnitFilesChanged", "").bytes());
            let _ = out.write_all(&Message::signal(SYSTEMD, "PropertiesChanged", "").bytes());
        }
    }
}

/// A message of the bus, laid out by hand.
struct Message {
    kind: u8,
    fields: Vec<u8>,
    body: Vec<u8>,
}

impl Message {
    fn new(kind: u8) -> Message {
        Message { kind, fields: Vec::new(), body: Vec::new() }
    }

    fn to(serial: u32, signature: &str) -> Message {
        Message::new(2).serial(serial).signature(signature)
    }

    fn error(serial: u32, name: &str) -> Message {
        Message::new(3).serial(serial).field(4, b's', name).signature("s")
    }

    fn signal(sender: &str, member: &str, signature: &str) -> Message {
        let path = "/org/freedesktop/systemd1/unit/app_2eservice";
        let message = Message::new(4).field(1, b'o', path).field(2, b's', "org.freedesktop.systemd1.Manager");
        message.field(3, b's', member).field(7, b's', sender).signature(signature)
    }

    fn serial(mut self, serial: u32) -> Message {
        align(&mut self.fields, 8);
        self.fields.extend([5, 1, b'u', 0]);
        self.fields.extend(serial.to_le_bytes());
        self
    }

    fn field(mut self, code: u8, kind: u8, text: &str) -> Message {
        align(&mut self.fields, 8);
        self.fields.extend([code, 1, kind, 0]);
        put_text(&mut self.fields, text);
        self
    }

    fn signature(mut self, signature: &str) -> Message {
        if !signature.is_empty() {
            align(&mut self.fields, 8);
            self.fields.extend([8, 1, b'g', 0, u8::try_from(signature.len()).unwrap()]);
            self.fields.extend(signature.as_bytes());
            self.fields.push(0);
        }
        self
    }

    fn text(mut self, text: &str) -> Message {
        put_text(&mut self.body, text);
        self
    }

    fn number(mut self, number: u32) -> Message {
        align(&mut self.body, 4);
        self.body.extend(number.to_le_bytes());
        self
    }

    fn entries(mut self, entries: &[(&str, &str)]) -> Message {
        self.body.extend([0; 8]);
        for (key, value) in entries {
            align(&mut self.body, 8);
            put_text(&mut self.body, key);
            self.body.extend([1, b's', 0]);
            put_text(&mut self.body, value);
        }
        let length = u32::try_from(self.body.len() - 8).unwrap();
        self.body[..4].copy_from_slice(&length.to_le_bytes());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![b'l', self.kind, 1, 1];
        for number in [self.body.len(), 9, self.fields.len()] {
            out.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        out.extend(&self.fields);
        align(&mut out, 8);
        out.extend(&self.body);
        out
    }
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    align(bytes, 4);
    bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn host(root: &Path) -> Host {
    Host::open(root, HostOptions { allow_exec: true, ..HostOptions::default() }).unwrap()
}

#[test]
fn without_a_bus_the_failure_says_where_to_look() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    for error in [
        host.systemd().unit("app.service").map(drop).unwrap_err(),
        host.systemd().session().map(drop).unwrap_err(),
        host.systemd().watch().map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, BusError::Connect { .. }), "{error}");
        assert!(error.to_string().contains("dbus.socket"), "{error}");
    }
    let bus = FakeBus::listen(dir.path());
    bus.set(Mood::Refuses);
    let refused = host.systemd().unit("app.service").unwrap_err();
    assert!(matches!(refused, BusError::Refused(_)), "{refused}");
}

#[test]
fn a_question_is_asked_again_when_the_bus_was_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let (host, bus) = (host(dir.path()), FakeBus::listen(dir.path()));
    let ask = || host.systemd().unit("app.service");
    assert_eq!(ask().unwrap().active_state, "active");
    assert_eq!(ask().unwrap().id, "app.service");
    assert_eq!(bus.opened.load(Ordering::Relaxed), 1, "one connection serves all questions");
    bus.set(Mood::HangsUp);
    assert!(matches!(ask().unwrap_err(), BusError::Lost(_)));
    assert_eq!(bus.opened.load(Ordering::Relaxed), 2, "the old one was given up for one other");
    bus.set(Mood::Answers);
    assert!(ask().is_ok());
    bus.set(Mood::Babbles);
    assert!(matches!(ask().unwrap_err(), BusError::Malformed(_)));
    bus.set(Mood::Answers);
    assert!(ask().is_ok());
}

#[test]
fn only_systemd_says_that_a_job_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (host, bus) = (host(dir.path()), FakeBus::listen(dir.path()));
    let mut session = host.systemd().session().unwrap();
    let ended = session.job(UnitVerb::Start, "app.service", Duration::from_secs(60)).unwrap();
    assert_eq!(ended, JobEnd::Failed, "not what a stranger said before");
    let refused = session.job(UnitVerb::Stop, "app.service", Duration::from_secs(60)).unwrap_err();
    assert!(matches!(&refused, BusError::Failed { name, .. } if name.ends_with("NoSuchUnit")), "{refused}");
    bus.set(Mood::Forged);
    let begun = Instant::now();
    let late = session.job(UnitVerb::Start, "app.service", Duration::from_millis(300)).unwrap_err();
    assert!(matches!(late, BusError::TimedOut { .. }), "{late}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn what_strangers_send_is_read_past() {
    let dir = tempfile::tempdir().unwrap();
    let (host, bus) = (host(dir.path()), FakeBus::listen(dir.path()));
    bus.set(Mood::Flooded);
    assert_eq!(host.systemd().unit("app.service").unwrap().active_state, "active");
    let mut watch = host.systemd().watch().unwrap();
    assert_eq!(watch.next_event(Duration::from_secs(60)).unwrap(), Some(UnitEvent::Files));
}

#[test]
fn a_job_whose_end_was_not_heard_is_found_to_be_over() {
    let dir = tempfile::tempdir().unwrap();
    let (host, bus) = (host(dir.path()), FakeBus::listen(dir.path()));
    bus.set(Mood::Forged);
    let mut session = host.systemd().session().unwrap();
    let ended = session.job(UnitVerb::Start, "app.service", Duration::from_secs(60)).unwrap();
    assert!(matches!(ended, JobEnd::Other(_)), "{ended:?}");
}

#[test]
fn what_changes_is_heard() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _bus) = (host(dir.path()), FakeBus::listen(dir.path()));
    let mut watch = host.systemd().watch().unwrap();
    let mut next = || watch.next_event(Duration::from_secs(60)).unwrap();
    assert_eq!(next(), Some(UnitEvent::Files));
    assert_eq!(next(), Some(UnitEvent::State("app.service".to_owned())));
    assert_eq!(watch.next_event(Duration::from_millis(20)).unwrap(), None);
}
