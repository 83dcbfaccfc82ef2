//! TRT-1: collectors run in parallel, each with timeout and TTL, failures reported and not
//! fatal. TRT-2: what changes by itself does not make traits travel.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use catalog::traits::TRAITS;
use host::{Host, HostOptions};
use lang::Value;
use model::Timestamp;
use model::exchange::NODE_FEATURES;
use providers::traits::{self, Collector, Collectors, EXTERNAL, ObserveFailure, VOLATILE};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn host(root: &Path) -> Arc<Host> {
    Arc::new(Host::open(root, HostOptions::default()).unwrap())
}

#[test]
fn every_declared_trait_is_observed_and_no_other() {
    let collected = traits::collect(&host(Path::new("/")), "1.2.3", NOW);
    assert!(collected.failures.is_empty(), "{:?}", collected.failures);
    let Value::Map(groups) = &collected.traits else { panic!() };
    let observed: BTreeMap<&str, Vec<(&str, &str)>> = groups
        .iter()
        .map(|(group, traits)| {
            let Value::Map(traits) = traits else { panic!() };
            (group.as_str(), traits.iter().map(|(name, value)| (name.as_str(), value.type_name())).collect())
        })
        .collect();
    let mut declared: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for one in TRAITS.iter() {
        declared.entry(one.group).or_default().push((one.name, one.kind));
    }
    declared.values_mut().for_each(|traits| traits.sort());
    // What an administrator added here is not declared.
    let observed: BTreeMap<_, _> = observed.into_iter().filter(|(group, _)| *group != "external").collect();
    assert_eq!(observed, declared);
    for path in VOLATILE {
        let path = &path.join(".");
        assert!(collected.traits.path(path).is_some(), "{path}");
        assert!(traits::stable(&collected.traits).path(path).is_none(), "{path}");
    }
    assert!(collected.traits.path("memory.total_mb").unwrap().as_int().unwrap() > 0);
    assert!(collected.traits.path("cpu.count").unwrap().as_int().unwrap() > 0);
}

#[test]
fn a_root_speaks_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "usr/lib/os-release",
        "ID=ubuntu\nID_LIKE=debian\nNAME=Ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n",
    );
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    std::os::unix::fs::symlink("../usr/lib/os-release", dir.path().join("etc/os-release")).unwrap();
    std::os::unix::fs::symlink("/usr/share/zoneinfo/Europe/Paris", dir.path().join("etc/localtime")).unwrap();
    write("etc/hostname", "edge-7\n");
    write("etc/hosts", "127.0.0.1 localhost\n10.0.0.7 edge-7.example.com edge-7 # it\n");
    write("proc/meminfo", "MemTotal:        2048000 kB\nSwapTotal:       1024 kB\n");
    write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast\nprocessor\t: 1\nmodel name\t: Fast\n");
    write("run/reboot-required", "*** System restart required ***\n");
    write("run/reboot-required.pkgs", "linux-base\nlibc6\n\nlibc6\n");
    let collected = traits::collect(&host(dir.path()), "1.2.3", NOW);
    assert!(collected.failures.is_empty(), "{:?}", collected.failures);
    let text = |path: &str| collected.traits.path(path).unwrap().to_string();
    assert_eq!((text("os.family").as_str(), text("os.id").as_str()), ("debian", "ubuntu"));
    assert_eq!((text("os.version").as_str(), text("os.codename").as_str()), ("24.04", "noble"));
    assert_eq!(
        (text("network.hostname").as_str(), text("network.fqdn").as_str()),
        ("edge-7", "edge-7.example.com")
    );
    assert_eq!((text("memory.total_mb").as_str(), text("memory.swap_mb").as_str()), ("2000", "1"));
    assert_eq!((text("cpu.count").as_str(), text("cpu.model").as_str()), ("2", "Fast"));
    assert_eq!(text("time.timezone"), "Europe/Paris");
    assert_eq!(text("kernel.reboot_required"), "true");
    let asked = ["libc6", "linux-base"].map(|name| lang::Value::Str(name.to_owned()));
    assert_eq!(collected.traits.path("kernel.reboot_packages"), Some(&lang::Value::List(asked.to_vec())));
    assert_eq!((text("agent.version").as_str(), text("agent.rooted").as_str()), ("1.2.3", "true"));
    assert_eq!(text("kernel.newer"), "", "a root directory boots nothing");
    let features = NODE_FEATURES.iter().map(|name| lang::Value::Str((*name).to_owned())).collect();
    assert_eq!(collected.traits.path("agent.features"), Some(&lang::Value::List(features)));
}

fn collector(
    name: &'static str,
    ttl: u64,
    observe: impl Fn(&Host) -> Result<traits::TraitGroup, String> + Send + Sync + 'static,
) -> Collector {
    Collector {
        name,
        ttl: Duration::from_secs(ttl),
        timeout: Duration::from_millis(200),
        observe: Arc::new(move |host: &Host| observe(host).map_err(ObserveFailure::from)),
    }
}

fn one(value: i64) -> traits::TraitGroup {
    BTreeMap::from([("value".to_owned(), Value::Int(value))])
}

#[test]
fn what_was_seen_counts_until_its_time_is_over() {
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let mut collectors = Collectors::with(vec![collector("n", 60, move |_| {
        Ok(one(counter.fetch_add(1, Ordering::Relaxed) as i64))
    })]);
    let host = host(Path::new("/"));
    let mut at =
        |secs: i64| collectors.collect(&host, Timestamp::from_secs(secs)).traits.path("n.value").cloned();
    assert_eq!(at(1000), Some(Value::Int(0)));
    assert_eq!(at(1059), Some(Value::Int(0)));
    assert_eq!(at(1060), Some(Value::Int(1)));
    assert_eq!(at(900), Some(Value::Int(2)), "a clock set back does not keep it for ever");
}

#[test]
fn failing_and_hanging_collectors_cost_their_own_group() {
    let gate = Arc::new((Mutex::new(true), Condvar::new()));
    let (fails, hangs) = (Arc::new(AtomicU64::new(0)), Arc::clone(&gate));
    let started = Arc::new(AtomicU64::new(0));
    let starts = Arc::clone(&started);
    let mut collectors = Collectors::with(vec![
        collector("fails", 0, move |_| match fails.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(one(1)),
            _ => Err("no disk".to_owned()),
        }),
        collector("hangs", 0, move |_| {
            starts.fetch_add(1, Ordering::Relaxed);
            let (closed, opened) = &*hangs;
            let _open = opened.wait_while(closed.lock().unwrap(), |closed| *closed).unwrap();
            Ok(one(2))
        }),
        collector("dies", 0, |_| panic!("in a collector")),
        collector("works", 0, |_| Ok(one(3))),
    ]);
    let host = host(Path::new("/"));
    let began = Instant::now();
    let first = collectors.collect(&host, NOW);
    assert!(began.elapsed() < Duration::from_secs(5));
    let named = |collected: &traits::Collected| collected.failures.keys().copied().collect::<Vec<_>>();
    assert_eq!(named(&first), ["dies", "hangs"]);
    assert_eq!(first.traits.path("works.value"), Some(&Value::Int(3)));
    assert_eq!(first.traits.path("hangs"), None);
    let second = collectors.collect(&host, NOW);
    assert_eq!(named(&second), ["dies", "fails", "hangs"]);
    assert_eq!(second.traits.path("fails.value"), Some(&Value::Int(1)), "the last good observation goes on");
    assert_eq!(started.load(Ordering::Relaxed), 1, "no second thread for one that hangs");
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    let until = Instant::now() + Duration::from_secs(10);
    while collectors.collect(&host, NOW).traits.path("hangs.value") != Some(&Value::Int(2)) {
        assert!(Instant::now() < until, "it recovers");
    }
}

#[test]
fn external_facts_come_from_files_and_programs_of_the_agents_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, mode: u32, text: &str| {
        let path = dir.path().join(EXTERNAL.trim_start_matches('/')).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    write("rack.json", 0o644, r#"{"row": "r7", "slots": [1, 2], "powered": true}"#);
    write("site.txt", 0o644, "# where\ncity = Lyon\n\nfloor=2\n");
    write("asset", 0o755, "#!/bin/sh\necho '{\"tag\": \"A-1\"}'\n");
    write("lines", 0o755, "#!/bin/sh\necho owner=retail\n");
    write("open.json", 0o666, r#"{"role": "database"}"#);
    write("broken.json", 0o644, "{");
    write("list.json", 0o644, "[1]");
    write("notes.md", 0o644, "no fact");
    write("bad-name.json", 0o644, "{}");
    write("fails", 0o755, "#!/bin/sh\necho no >&2\nexit 3\n");
    write("long", 0o755, "#!/bin/sh\nhead -c 70000 /dev/zero\n");
    let options = HostOptions { allow_exec: true, ..HostOptions::default() };
    let host = Arc::new(Host::open(dir.path(), options).unwrap());
    let collected = traits::collect(&host, "1.2.3", NOW);
    let external = collected.traits.path("external").unwrap();
    let Value::Map(sources) = external else { panic!("{external:?}") };
    assert_eq!(external.path("asset.tag").unwrap().to_string(), "A-1");
    assert_eq!(external.path("lines.owner").unwrap().to_string(), "retail");
    assert_eq!(external.path("rack.row").unwrap().to_string(), "r7");
    assert_eq!(external.path("rack.slots").unwrap().type_name(), "list");
    assert_eq!(external.path("site.city").unwrap().to_string(), "Lyon");
    assert_eq!(external.path("site.floor").unwrap().to_string(), "2");
    for refused in ["open", "broken", "list", "notes", "fails", "long"] {
        assert!(!sources.contains_key(refused), "{refused}");
    }
    let why = &collected.failures["external"];
    for told in [
        "open.json: somebody other than root may write it",
        "broken.json: ",
        "list.json: an object is needed, and this is a list",
        "notes.md: it is no .json, no .txt and no program",
        "fails: exited with 3: no",
        "long: it printed more than",
        "bad-name.json: `bad-name` cannot be named in an expression",
    ] {
        assert!(why.contains(told), "{told}: {why}");
    }
}
