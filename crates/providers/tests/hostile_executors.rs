//! EXE-2: an executor that is not executable, not JSON, empty, oversized or endless, that
//! forks and stays, or that was replaced, is a clear failure of that resource alone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use catalog::types::{CustomSpec, Script, Spec};
use common::{LONG, Lab, lab, lab_with, shipped};
use converge::JobDone;
use converge::kinds::{Applied, Checked};
use host::HostOptions;
use lang::Value;
use model::Digest;
use providers::{ROOTED, custom};

fn ask(lab: &Lab, script: &str, timeout: Duration) -> Result<Applied, String> {
    let spec = Spec::Custom(shipped(lab, script));
    lab.kinds.apply("app", &spec, &Checked::unknown(), timeout).map_err(String::from)
}

fn failure(script: &str) -> String {
    ask(&lab(), script, LONG).unwrap_err()
}

#[test]
fn a_script_hears_its_request_and_its_answer_counts() {
    let lab = lab();
    let mut spec = shipped(
        &lab,
        "#!/bin/sh\ncat > $MUSTER_ROOT/request\necho '{\"changed\": true, \"more\": [1]}'\nexit 7\n",
    );
    spec.params =
        BTreeMap::from([("url".to_owned(), Value::from("http://x")), ("n".to_owned(), Value::Int(3))]);
    let spec = Spec::Custom(spec);
    let checked = lab.check(&spec);
    assert!(checked.unknown && checked.edit.is_none(), "only running it can say");
    let applied = lab.kinds.apply("app", &spec, &checked, LONG).unwrap();
    assert!(applied.changed, "the exit code does not matter");
    assert_eq!(
        lab.read("/request"),
        "{\"name\":\"app\",\"state\":\"present\",\"params\":{\"n\":3,\"url\":\"http://x\"}}\n"
    );
    let quiet = ask(&lab, "#!/bin/sh\necho '{}'\n", LONG).unwrap();
    assert_eq!((quiet.changed, quiet.edit), (false, None), "missing changed = false, missing error = empty");
    assert_eq!(failure("#!/bin/sh\necho '{\"changed\": true, \"error\": \"port closed\"}'\n"), "port closed");
}

#[test]
fn a_plan_starts_only_what_knows_dry_runs() {
    let lab = lab();
    let script = "#!/bin/sh\ncat > $MUSTER_ROOT/ran\necho '{\"changed\": true}'\n";
    let mut spec = shipped(&lab, script);
    let plan = |spec: &CustomSpec| match lab.kinds.check("app", &Spec::Custom(spec.clone()), LONG, true) {
        Ok(JobDone::Checked(checked)) => checked,
        other => panic!("{other:?}"),
    };
    assert!(plan(&spec).unknown);
    assert!(!lab.path("/ran").exists(), "it was not started");
    spec.dry_run = true;
    let planned = plan(&spec);
    assert!(!planned.unknown && planned.edit.is_some());
    assert_eq!(lab.read("/ran"), "{\"name\":\"app\",\"state\":\"present\",\"params\":{},\"dryRun\":true}\n");
    lab.kinds.apply("app", &Spec::Custom(spec), &Checked::unknown(), LONG).unwrap();
    assert!(lab.read("/ran").ends_with("\"dryRun\":false}\n"));
}

#[test]
fn answers_that_are_none_say_what_is_wrong() {
    assert_eq!(
        failure("#!/bin/sh\n"),
        r#"the script printed nothing; it must print JSON such as {"changed": false}"#
    );
    let not_json = failure("#!/bin/sh\necho hello; echo trouble >&2\n");
    assert!(not_json.starts_with("the script's reply is not JSON"), "{not_json}");
    assert!(
        not_json.contains(r#"it printed "hello\n""#) && not_json.ends_with("; its errors: trouble"),
        "{not_json}"
    );
    assert!(failure("#!/bin/sh\necho '[]'\n").contains("is not a JSON object"));
    assert!(failure("#!/bin/sh\necho '{\"changed\": \"yes\"}'\n").contains("not true or false"));
    assert!(failure("#!/bin/sh\necho '{\"error\": 1}'\n").contains("not a text"));
    assert!(failure("#!/bin/sh\necho '{} {}'\n").contains("not JSON"));
    assert!(failure("#!/bin/sh\nkill -9 $$\n").contains("was ended by signal 9"));
}

#[test]
fn a_gigabyte_of_output_costs_no_memory() {
    let before = peak_memory();
    let text = failure("#!/bin/sh\nhead -c 1000000000 /dev/zero\n");
    assert_eq!(text, "the script printed 1000000000 bytes; a reply has at most 1048576");
    let grown = peak_memory() - before;
    assert!(grown < 64 * 1024, "grew by {grown} KiB");
}

/// The most memory that this process had, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_endless_script_is_killed_with_its_children() {
    let lab = lab();
    let started = Instant::now();
    let script = "#!/bin/sh\nsleep 7751 &\necho '{\"changed\": true}'\nsleep 7752\n";
    let text = ask(&lab, script, Duration::from_millis(300)).unwrap_err();
    assert_eq!(text, "the script did not end within 0.3 s and was killed: {\"changed\": true}");
    assert!(started.elapsed() < Duration::from_secs(5));
    let endless = ask(&lab, "#!/bin/sh\nexec yes\n", Duration::from_millis(300)).unwrap_err();
    assert!(endless.starts_with("the script did not end within 0.3 s"), "{}", &endless[..200]);
}

#[test]
fn a_child_that_stays_does_not_hold_the_answer() {
    let started = Instant::now();
    let applied = ask(&lab(), "#!/bin/sh\nsleep 7761 &\necho '{\"changed\": true}'\n", LONG).unwrap();
    assert!(applied.changed);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_script_that_closes_its_input_may_still_answer() {
    let lab = lab();
    let mut spec = shipped(&lab, "#!/bin/sh\nexec <&-\nsleep 0.05\necho '{\"changed\": true}'\n");
    spec.params = BTreeMap::from([("big".to_owned(), Value::from("x".repeat(500_000)))]);
    assert!(lab.kinds.apply("app", &Spec::Custom(spec), &Checked::unknown(), LONG).unwrap().changed);
}

#[test]
fn a_shipped_script_must_be_what_the_release_pinned() {
    let lab = lab();
    let spec = shipped(&lab, "#!/bin/sh\necho '{}'\n");
    let Script::Shipped { digest, .. } = spec.script else { unreachable!() };
    lab.blobs.corrupt(digest, b"#!/bin/sh\ntouch $MUSTER_ROOT/owned\necho '{}'\n");
    let text = lab.kinds.apply("app", &Spec::Custom(spec), &Checked::unknown(), LONG).unwrap_err().message;
    assert!(text.starts_with("the script executors/it.sh was not started: its hash is"), "{text}");
    assert!(!lab.path("/owned").exists());
    let text = ask(&lab, "echo '{}'\n", LONG).unwrap_err();
    assert_eq!(
        text,
        "the script executors/it.sh: it is not executable: it has no `#!` line and is no program"
    );
    assert!(ask(&lab, "#!/no/such/interpreter\n", LONG).unwrap_err().contains("cannot start `it.sh`"));
}

#[test]
fn a_script_on_the_host_must_be_executable_and_unchanged() {
    let lab = lab();
    let good = "#!/bin/sh\necho '{\"changed\": true}'\n";
    let spec = Spec::Custom(CustomSpec {
        script: Script::Host { path: "/opt/check".to_owned(), digest: Digest::of(good.as_bytes()) },
        state: "present".to_owned(),
        params: BTreeMap::new(),
        dry_run: false,
    });
    let run = || lab.kinds.apply("app", &spec, &Checked::unknown(), LONG).map_err(String::from);
    assert_eq!(run().unwrap_err(), "the script /opt/check does not exist");
    lab.write("/opt/check", good.as_bytes());
    assert_eq!(run().unwrap_err(), "the script /opt/check is not executable; set its mode, for example 0755");
    fs::set_permissions(lab.path("/opt/check"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(run().unwrap().changed);
    fs::write(lab.path("/opt/check"), "#!/bin/sh\ntouch $MUSTER_ROOT/owned\necho '{}'\n").unwrap();
    assert!(run().unwrap_err().contains("it is pinned to"));
    assert!(!lab.path("/owned").exists());
    fs::remove_file(lab.path("/opt/check")).unwrap();
    std::os::unix::fs::symlink("/bin/true", lab.path("/opt/check")).unwrap();
    assert!(run().unwrap_err().contains("it is a symlink"));
}

/// What was verified is what runs: a script that replaces itself while it runs is read on
/// from memory.
#[test]
fn a_script_replaced_while_it_runs_changes_nothing() {
    let lab = lab();
    let script = "#!/bin/sh\nprintf '#!/bin/sh\\necho replaced' > $MUSTER_ROOT/opt/check\nsleep 0.05\necho '{\"changed\": true}'\n";
    lab.write("/opt/check", script.as_bytes());
    fs::set_permissions(lab.path("/opt/check"), fs::Permissions::from_mode(0o755)).unwrap();
    let spec = Spec::Custom(CustomSpec {
        script: Script::Host { path: "/opt/check".to_owned(), digest: Digest::of(script.as_bytes()) },
        state: "present".to_owned(),
        params: BTreeMap::new(),
        dry_run: false,
    });
    assert!(lab.kinds.apply("app", &spec, &Checked::unknown(), LONG).unwrap().changed);
    assert!(lab.kinds.apply("app", &spec, &Checked::unknown(), LONG).is_err(), "the next run sees it");
}

#[test]
fn under_a_root_nothing_runs_unless_allowed() {
    let lab = lab_with(HostOptions::default());
    let custom = Spec::Custom(shipped(&lab, "#!/bin/sh\necho '{}'\n"));
    let exec = Spec::Exec(common::exec("true"));
    let mut validated = common::file("/f", "x");
    validated.validate = Some(catalog::module::CommandLine::Shell("true".to_owned()));
    for spec in [custom, exec, Spec::File(validated)] {
        let outcome = lab.kinds.check("app", &spec, LONG, false);
        assert_eq!(outcome, Ok(JobDone::Skipped(ROOTED.to_owned())));
        assert!(lab.kinds.apply("app", &spec, &Checked::unknown(), LONG).is_err());
    }
    assert!(!lab.path("/f").exists());
}

#[test]
fn a_script_can_be_tried_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("it.sh");
    let script = "#!/bin/sh\ncat >&2\necho '{\"changed\": true}'\n";
    fs::write(&path, script).unwrap();
    let request = br#"{"name":"a","state":"present","params":{}}"#;
    let rooted = host::Host::open(dir.path(), host::HostOptions::default()).unwrap();
    assert!(custom::test_script(&rooted, &path, request, LONG).unwrap_err().contains("--allow-exec"));
    let whole = host::Host::open(std::path::Path::new("/"), host::HostOptions::default()).unwrap();
    assert!(custom::test_script(&whole, &path, request, LONG).unwrap_err().contains("is not executable"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let test = custom::test_script(&whole, &path, request, LONG).unwrap();
    assert!(test.reply.unwrap().changed);
    assert_eq!(test.stderr.as_bytes(), request);
    assert_eq!(test.digest, Digest::of(script.as_bytes()));
}
