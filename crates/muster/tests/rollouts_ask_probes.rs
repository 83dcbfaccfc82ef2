//! ROL-7: probes of real agents over HTTP and TCP, of a metric and of a command: what fails within its grace, or for less
//! than it has to go on failing, decides nothing; what goes on failing is returned from, and the rollout stops. What the
//! probe came to is said of the rollout and at the host.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use test_support::programs::text;
use test_support::programs::waves::{WaveFleet, fast};

/// What a service answers at `/health` and `/metrics`, and how often it was asked.
struct Answers {
    health: u16,
    load: f64,
    asked: usize,
}

/// A service that answers over HTTP for as long as the test runs.
struct Service {
    address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
}

impl Service {
    fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(Answers { health: 200, load: 1.0, asked: 0 }));
        let own = answers.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap_or_default();
                let asks_metrics = request[..read].starts_with(b"GET /metrics ");
                let mut answers = own.lock().unwrap();
                answers.asked += 1;
                let (status, body) = match asks_metrics {
                    true => (200, format!("# TYPE load gauge\nload_max 99\nload {}\n", answers.load)),
                    false => (answers.health, String::new()),
                };
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            }
        });
        Service { address, answers }
    }

    fn set(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().unwrap());
    }

    /// Waits until it was asked this many times more.
    fn asked(&self, times: usize) {
        let before = self.answers.lock().unwrap().asked;
        test_support::wait::until_blocking("the probe is asked", || {
            (self.answers.lock().unwrap().asked >= before + times).then_some(())
        });
    }
}

const ROLLOUT: &str = "rollouts:
  fast:
    waves: [{name: canary, nodes: [web-1], gate: {soak: 1s}}, {name: rest, gate: {soak: 1s}}]
    onFailure: rollback
    confirm: {window: 5m}
";

#[test]
fn over_http_and_of_a_metric_and_a_command() {
    let service = Service::start();
    let fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web")]);
    let address = service.address;

    // It fails in its grace, and passes when that is over.
    let http = |grace: &str| {
        format!(
            "{ROLLOUT}probes:\n  health: {{http: \"http://{address}/health\", every: 1s, timeout: 1s, grace: {grace}, \
             sustained: 4s}}\n"
        )
    };
    fleet.rollouts(&http("1h"));
    service.set(|answers| answers.health = 500);
    fleet.publish("second");
    fleet.until_says("web-1", "second");
    service.asked(2);
    assert_eq!(fleet.said("web-1"), "second", "nothing that fails in its grace counts");
    assert_eq!(fleet.count(&fleet.rollout("fast"), "Failed"), 0);
    service.set(|answers| answers.health = 200);
    fleet.until_through("fast");
    assert_eq!(fleet.said("web-2"), "second");

    // It fails without a grace, but not for long enough: nothing comes of that either.
    fleet.rollouts(&http("0s"));
    service.set(|answers| answers.health = 404);
    fleet.publish("third");
    fleet.until_says("web-1", "third");
    service.asked(1);
    service.set(|answers| answers.health = 200);
    fleet.until_through("fast");

    // It goes on failing.
    service.set(|answers| answers.health = 503);
    fleet.publish("fourth");
    let view = fleet.until_state("fast", "Reverted");
    fleet.until_says("web-1", "third");
    let why = "the probe health failed: it answers 503 Service Unavailable, not 200";
    fleet.until_explained("web-1", why);
    assert!(view["waiting"].to_string().contains(why), "{view:#}");
    for verb in [&["status"][..], &["why", "/etc/hello"]] {
        test_support::wait::until_blocking(&format!("{verb:?} says so"), || {
            text(&fleet.host("web-1").run(verb).stdout).contains(why).then_some(())
        });
    }
    assert_eq!(fleet.said("web-2"), "third", "{view:#}");

    // A metric over its bound, beside a command that passes.
    fleet.rollouts(&format!(
        "{ROLLOUT}probes:\n  load: {{metric: load, url: \"http://{address}/metrics\", atMost: 4.5, every: 1s, \
         timeout: 1s, grace: 0s, sustained: 2s}}\n  file: {{command: [/usr/bin/test, -e, /etc], every: 1s, timeout: 1s}}\n"
    ));
    service.set(|answers| answers.load = 4.6);
    fleet.publish("fifth");
    fleet.until_state("fast", "Reverted");
    fleet.until_says("web-1", "third");
    fleet.until_explained("web-1", "the probe load failed: load is 4.6, and its threshold is 4.5");
    service.set(|answers| answers.load = 4.5);
    fleet.publish("sixth");
    fleet.until_through("fast");
    assert_eq!((fleet.said("web-1"), fleet.said("web-2")), ("sixth".to_owned(), "sixth".to_owned()));

    // A command.
    fleet.rollouts(&format!(
        "{ROLLOUT}probes:\n  ready: {{command: [/bin/sh, -c, \"echo not yet >&2; test -e $MUSTER_ROOT/ready\"], every: 1s, \
         timeout: 1s, grace: 0s, sustained: 2s}}\n"
    ));
    fleet.publish("seventh");
    fleet.until_state("fast", "Reverted");
    let why = fleet.until_explained("web-1", "the probe ready failed: it exits with 1");
    assert!(!why.contains("not yet"), "what a command prints stays at its host: {why}");
    let log = fleet.agents[0].log();
    assert!(log.contains("printed=\"not yet\""), "{log}");
    for name in ["web-1", "web-2"] {
        fleet.mark(name, "/ready", true);
    }
    fleet.publish("eighth");
    fleet.until_through("fast");
}

/// A port that accepts connections, and that refuses them once nobody listens.
#[test]
fn over_tcp() {
    let fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web")]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    fleet.rollouts(&format!(
        "{ROLLOUT}probes:\n  port: {{tcp: \"{address}\", every: 1s, timeout: 1s, grace: 0s, sustained: 2s}}\n"
    ));
    fleet.publish("second");
    fleet.until_through("fast");
    assert_eq!((fleet.said("web-1"), fleet.said("web-2")), ("second".to_owned(), "second".to_owned()));

    drop(listener);
    fleet.publish("third");
    let view = fleet.until_state("fast", "Reverted");
    fleet.until_says("web-1", "second");
    fleet.until_explained("web-1", &format!("the probe port failed: {address}: "));
    let log = fleet.agents[0].log();
    assert!(log.contains(&format!("a probe: {address}: ")), "{log}");
    assert_eq!(fleet.said("web-2"), "second", "{view:#}");
}

/// What a probe that never ends or prints without end comes to: the node ends it in its time, says why, and is back.
#[test]
fn one_that_never_ends_and_one_that_prints_a_gigabyte() {
    let fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web")]);
    let probe = |command: &str| {
        format!(
            "{ROLLOUT}probes:\n  odd: {{command: {command}, every: 2s, timeout: 2s, grace: 0s, sustained: 1s}}\n"
        )
    };
    for (said, command, why) in [
        (
            "endless",
            "[/bin/sh, -c, \"trap '' TERM; while :; do sleep 1000; done\"]",
            "it did not end in its time",
        ),
        ("long", "[/usr/bin/head, -c, \"1000000000\", /dev/zero]", "it gave more than"),
    ] {
        fleet.rollouts(&probe(command));
        fleet.publish(said);
        let view = fleet.until_state("fast", "Reverted");
        fleet.until_says("web-1", "first");
        fleet.until_explained("web-1", &format!("the probe odd failed: {why}"));
        let log = fleet.agents[0].log();
        assert!(log.contains(&format!("a probe: {why}")), "{log}");
        assert_eq!(fleet.said("web-2"), "first", "{view:#}");
    }
}

/// What a service does with whoever connects to it.
#[derive(Clone, Copy)]
enum Misbehaviour {
    /// It reads the request, and says nothing.
    Silent,
    /// It says so for ever.
    Repeats { head: &'static str, line: &'static str },
}

/// Serves like that; counts the connections that the other side ended, and the most bytes that one of them took.
fn misbehaves(how: Misbehaviour) -> (SocketAddr, Arc<(AtomicU64, AtomicU64)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counted = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let own = counted.clone();
    let serve = move |mut stream: TcpStream| {
        let mut taken = 0;
        let mut request = [0; 1024];
        if let Misbehaviour::Repeats { head, line } = how {
            let _ = stream.read(&mut request);
            let lines = line.repeat(1000);
            let mut next = head.as_bytes();
            while let Ok(written) = stream.write(next) {
                taken += written as u64;
                next = lines.as_bytes();
            }
        }
        // Until the other side ends it.
        while stream.read(&mut request).is_ok_and(|read| read > 0) {}
        own.0.fetch_add(1, Ordering::Relaxed);
        own.1.fetch_max(taken, Ordering::Relaxed);
    };
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    (address, counted)
}

/// What a probe over HTTP comes to whose service says nothing, or never stops: it ends in its time, takes no more than it
/// may, and fails.
#[test]
fn over_http_of_what_never_answers_and_what_never_ends() {
    /// What the buffers of both ends of a connection hold, and the probe takes.
    const MOST_TAKEN: u64 = 32 << 20;
    let fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web")]);
    let repeats = |head, line| Misbehaviour::Repeats { head, line };
    let (http, metric) = ("http: \"http://ADDRESS/\"", "metric: load, url: \"http://ADDRESS/\", atMost: 4.5");
    let body = repeats("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", "load 1\n");
    let head = repeats("HTTP/1.1 200 OK\r\n", "x-load: 1\r\n");
    for (said, what, how, why) in [
        ("silent", http, Misbehaviour::Silent, "it did not end in its time"),
        ("silent-metric", metric, Misbehaviour::Silent, "it did not end in its time"),
        ("endless", http, body, "it gave more than"),
        ("endless-metric", metric, body, "it gave more than"),
        ("endless-head", http, head, "no answer of HTTP"),
    ] {
        let (address, counted) = misbehaves(how);
        let what = what.replace("ADDRESS", &address.to_string());
        fleet.rollouts(&format!(
            "{ROLLOUT}probes:\n  odd: {{{what}, every: 2s, timeout: 2s, grace: 0s, sustained: 1s}}\n"
        ));
        fleet.publish(said);
        let view = fleet.until_state("fast", "Reverted");
        fleet.until_says("web-1", "first");
        let told = fleet.until_explained("web-1", "the probe odd failed: ");
        assert!(told.contains(why), "{said}: {told}");
        assert_eq!(fleet.said("web-2"), "first", "{view:#}");
        let taken = test_support::wait::until_blocking("the probe ends its connections", || {
            (counted.0.load(Ordering::Relaxed) > 0).then(|| counted.1.load(Ordering::Relaxed))
        });
        assert!(taken < MOST_TAKEN, "{said}: {taken} bytes");
    }
}
