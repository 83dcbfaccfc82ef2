//! EXE-1: packages of one transaction are each right or told why not; nothing is removed that nobody
//! declared absent; lists are refreshed at most once a run; locks are waited for with their holder named;
//! an interrupted dpkg is repaired; services are kept from starting for the transaction alone.
//!
//! Over programs that do as apt-get and dpkg do, in a temporary directory; the real ones are asked on
//! booted hosts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::module::OnRemove;
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{LONG, Memory};
use converge::kinds::{Applied, Checked};
use converge::ledger::{LedgerEntry, Prior};
use converge::{JobDone, RunPurpose};
use host::{Host, HostOptions};
use model::Timestamp;
use providers::{Blobs, Kinds, PackageTools, ROOTED};
use rustix::process::{Flock, FlockType};
use serde_json::json;

/// `offers` holds `NAME VERSION [WORD...]`: `fails` (its postinst), `removes=X`, `depends=X`. `repository`
/// is what a refresh brings.
const APT_GET: &str = r#"#!/bin/sh
lab=LAB
echo "apt-get $*" >> $lab/log
sim= missing= cmd= purge=
while [ $# -gt 0 ]; do
  case $1 in
    -s) sim=1 ;;
    -o|-t) shift ;;
    install|remove|update) cmd=$1; shift; break ;;
  esac
  shift
done
if [ $cmd = update ]; then
  [ -e $lab/offline ] && { echo "E: Failed to fetch http://deb/ Could not resolve 'deb'" >&2; exit 100; }
  cp $lab/repository $lab/offers
  exit 0
fi
[ -z "$sim" ] && [ -e $lab/unfetchable ] && { rm $lab/unfetchable; echo "E: Failed to fetch http://deb/x" >&2; exit 100; }
plan=; rc=0
for t in "$@"; do
  case $cmd$t in
    remove*) plan="$plan Remv:${t%:amd64}" ; continue ;;
    *-) plan="$plan Remv:${t%-}" ; continue ;;
  esac
  n=${t%%=*}; v=
  [ "$n" != "$t" ] && v=${t#*=}
  line=$(awk -v n="$n" -v v="$v" '$1 == n && (v == "" || $2 == v) { line = $0 } END { print line }' $lab/offers)
  if [ -z "$line" ]; then
    if [ -n "$v" ]; then echo "E: Version '$v' for '$n' was not found" >&2; else echo "E: Unable to locate package $n" >&2; fi
    rc=100; continue
  fi
  set -- $line
  v=$2; shift 2; fails=
  for word in "$@"; do
    case $word in
      fails) fails=:fails ;;
      removes=*) plan="$plan Remv:${word#removes=}" ;;
      depends=*) echo "The following packages have unmet dependencies:"; echo " $n : Depends: ${word#depends=} but it is not installable"
        echo "E: Unable to correct problems, you have held broken packages." >&2; rc=100 ;;
    esac
  done
  plan="$plan Inst:$n:$v$fails"
done
[ $rc = 0 ] || exit $rc
for step in $plan; do
  IFS=:; set -- $step; unset IFS
  [ -n "$sim" ] && { echo "$1 $2 ($3 lab [all])"; continue; }
  awk -v n="$2" 'BEGIN { RS = ""; ORS = "\n\n" } $2 != n' $lab/var/lib/dpkg/status > $lab/new
  status="install ok installed"
  if [ $1 = Inst ]; then
    echo "Setting up $2 ($3) ..."
    if [ "$4" = fails ]; then
      status="install ok half-configured"; rc=100
      echo "the database of $2 is away"
      echo "dpkg: error processing package $2 (--configure):" >&2
      echo " installed $2 package post-installation script subprocess returned error exit status 3" >&2
    fi
    [ -e $lab/usr/sbin/policy-rc.d ] && echo "policy for $2" >> $lab/log
    printf 'Package: %s\nStatus: %s\nArchitecture: all\nVersion: %s\n\n' "$2" "$status" "$3" >> $lab/new
  else
    printf 'Package: %s\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n' "$2" >> $lab/new
  fi
  mv $lab/new $lab/var/lib/dpkg/status
done
exit $rc
"#;

/// `--configure -a` finishes what is not named in `stuck`; `--purge`, `--set-selections`.
const DPKG: &str = r#"#!/bin/sh
lab=LAB
echo "dpkg $*" >> $lab/log
status=$lab/var/lib/dpkg/status
case "$*" in
  *--configure*)
    rm -f $lab/var/lib/dpkg/updates/*
    [ -e $lab/stuck ] && { mkdir -p $lab/var/lib/dpkg/updates; cp $status $lab/var/lib/dpkg/updates/0000
      echo "dpkg: error processing package bad (--configure):"; echo " it is stuck"; exit 1; }
    sed -i 's/half-configured/installed/' $status ;;
  --purge*) shift; for n in "$@"; do
    awk -v n="$n" 'BEGIN { RS = ""; ORS = "\n\n" } $2 != n' $status > $lab/new; mv $lab/new $status; done ;;
  --set-selections) while read n want; do
    awk -v n="$n" -v w="$want" 'BEGIN { RS = ""; ORS = "\n\n" } { if ($2 == n) sub("Status: [a-z]+", "Status: " w); print }' $status > $lab/new
    mv $lab/new $status; done ;;
esac
"#;

const OTHER: &str = "#!/bin/sh\necho \"$(basename $0) $*\" >> LAB/log\ncat > LAB/stdin\n";

struct PackageLab {
    dir: tempfile::TempDir,
    kinds: Kinds,
}

fn lab(offers: &str) -> PackageLab {
    let dir = tempfile::tempdir().unwrap();
    for below in
        ["var/lib/dpkg/updates", "var/lib/apt/lists", "var/lib/apt/periodic", "tools", "usr/sbin", "etc/apt"]
    {
        fs::create_dir_all(dir.path().join(below)).unwrap();
    }
    let script = |name: &str, text: &str| {
        let path = dir.path().join("tools").join(name);
        fs::write(&path, text.replace("LAB", &dir.path().display().to_string())).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("apt-get", APT_GET);
    script("dpkg", DPKG);
    ["apt-cache", "apt-mark", "debconf-set-selections"].into_iter().for_each(|name| script(name, OTHER));
    let options = HostOptions { allow_exec: true, ..HostOptions::default() };
    let host = Arc::new(Host::open(dir.path(), options).unwrap());
    let blobs = Arc::new(Memory::default()) as Arc<dyn Blobs>;
    let kinds =
        Kinds::new(host, blobs).with_package_tools(PackageTools::in_directory(&dir.path().join("tools")));
    let lab = PackageLab { dir, kinds };
    lab.write("offers", offers);
    lab.write("repository", offers);
    lab.write(
        "var/lib/dpkg/status",
        "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21\n\n",
    );
    lab.write("var/lib/apt/periodic/update-success-stamp", "");
    lab
}

impl PackageLab {
    fn path(&self, below: &str) -> std::path::PathBuf {
        self.dir.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        fs::write(self.path(below), text).unwrap();
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// How often a program was called with these words.
    fn calls(&self, program: &str, words: &[&str]) -> usize {
        let has = |line: &&String| {
            line.starts_with(program) && words.iter().all(|word| line.split(' ').any(|own| own == *word))
        };
        self.log().iter().filter(has).count()
    }

    fn transactions(&self) -> usize {
        self.calls("apt-get", &["install"]) + self.calls("apt-get", &["remove"])
            - self.calls("apt-get", &["-s"])
    }

    fn check(&self, spec: &Spec) -> Result<Checked, String> {
        match self.kinds.check("name", spec, LONG, false)? {
            JobDone::Checked(checked) => Ok(checked),
            other => panic!("{other:?}"),
        }
    }

    fn apply(&self, specs: &[Spec]) -> Vec<Result<Applied, String>> {
        self.kinds.begin_run(RunPurpose::Converge);
        let checked: Vec<Checked> = specs.iter().map(|spec| self.check(spec).unwrap()).collect();
        let all: Vec<_> =
            specs.iter().zip(&checked).map(|(spec, checked)| ("name", spec, checked, LONG)).collect();
        let results = self.kinds.apply_together(&all).into_iter();
        results.map(|result| result.map_err(String::from)).collect()
    }
}

fn package(name: &str, attributes: serde_json::Value) -> Spec {
    let attributes = serde_json::from_value(attributes).unwrap();
    bind("package", name, &attributes, &BindContext { files: &BTreeMap::new(), rendered: None }).unwrap()
}

fn plain(names: &[&str]) -> Vec<Spec> {
    names.iter().map(|name| package(name, json!({}))).collect()
}

fn words(results: &[Result<Applied, String>]) -> Vec<String> {
    let word = |result: &Result<Applied, String>| match result {
        Ok(applied) if applied.changed => "changed".to_owned(),
        Ok(_) => "ok".to_owned(),
        Err(why) => why.clone(),
    };
    results.iter().map(word).collect()
}

#[test]
fn many_packages_are_one_call_and_then_nothing() {
    let lab = lab("alpha 1\nbeta 1\ngamma 2\n");
    let specs = plain(&["alpha", "beta", "gamma"]);
    assert_eq!(words(&lab.apply(&specs)), ["changed"; 3]);
    assert_eq!((lab.transactions(), lab.calls("apt-get", &["-s"])), (1, 1), "{:?}", lab.log());
    assert_eq!(lab.calls("apt-get", &["update"]), 0);
    for spec in &specs {
        assert!(lab.check(spec).unwrap().edit.is_none());
    }
    let before = lab.log();
    assert_eq!(words(&lab.apply(&specs)), ["ok"; 3]);
    assert_eq!(lab.log(), before);
}

#[test]
fn who_is_to_blame_fails_alone_and_in_apts_words() {
    let lab =
        lab("alpha 1\nbroken 1 depends=nothere\nrival 1 removes=dpkg\npinned 1\nomega 1\nsick 1 fails\n");
    let mut specs = plain(&["alpha", "nope", "broken", "rival", "sick", "omega"]);
    specs.push(package("pinned", json!({"version": "9"})));
    let said = words(&lab.apply(&specs));
    assert_eq!((said[0].as_str(), said[5].as_str()), ("changed", "changed"), "{said:?}");
    assert_eq!(said[1], "Unable to locate package nope");
    assert!(said[2].contains("broken : Depends: nothere but it is not installable"), "{}", said[2]);
    assert!(said[3].starts_with("it would remove dpkg, which nobody declared absent"), "{}", said[3]);
    assert!(
        said[4].contains("the database of sick is away") && said[4].contains("exit status 3"),
        "{}",
        said[4]
    );
    assert_eq!(said[6], "Version '9' for 'pinned' was not found");
    assert_eq!(lab.transactions(), 1);
    // One that is not known is looked for in new lists, once.
    assert_eq!(lab.calls("apt-get", &["update"]), 1);
}

#[test]
fn a_removal_that_is_declared_or_allowed_is_made() {
    let lab = lab("alpha 1\nrival 1 removes=alpha\n");
    lab.apply(&plain(&["alpha"]));
    let rival = package("rival", json!({"allow_removals": true}));
    assert_eq!(words(&lab.apply(&[rival])), ["changed"]);
    let gone = package("rival", json!({"state": "absent", "purge": true}));
    let checked = lab.check(&gone).unwrap();
    assert_eq!(checked.note.as_deref(), Some("cannot be undone: its configuration is removed too"));
    assert_eq!(words(&lab.apply(std::slice::from_ref(&gone))), ["changed"]);
    assert_eq!(lab.calls("dpkg", &["--purge", "rival"]), 1);
    assert!(lab.check(&gone).unwrap().edit.is_none());
    // What is left of alpha is its configuration, and nobody asked for that.
    let kept = package("alpha", json!({"state": "absent"}));
    assert!(lab.check(&kept).unwrap().edit.is_none());
}

#[test]
fn a_hold_is_kept_and_taken_over() {
    let lab = lab("alpha 1\nalpha 2\n");
    let held = package("alpha", json!({"version": "1", "hold": true}));
    assert_eq!(words(&lab.apply(std::slice::from_ref(&held))), ["changed"]);
    assert!(lab.check(&held).unwrap().edit.is_none());
    let newer = package("alpha", json!({"version": "2"}));
    let said = words(&lab.apply(&[newer]));
    assert!(said[0].contains("alpha is held at 1 (apt-mark hold)"), "{said:?}");
    let ours = package("alpha", json!({"version": "2", "hold": false}));
    assert_eq!(words(&lab.apply(&[ours])), ["changed"]);
    let back = package("alpha", json!({"version": "1"}));
    assert!(lab.check(&back).unwrap_err().contains("`allow_downgrade: true` goes down"));
    let down = package("alpha", json!({"version": "1", "allow_downgrade": true}));
    assert_eq!(words(&lab.apply(&[down])), ["changed"]);
}

#[test]
fn a_package_that_leaves_goes_with_our_hold_and_stays_with_that_of_another() {
    for (hold, goes) in [(json!({"hold": true}), true), (json!({}), false)] {
        let lab = lab("alpha 1\n");
        assert_eq!(words(&lab.apply(&[package("alpha", json!({"hold": true}))])), ["changed"]);
        let entry = LedgerEntry {
            kind: "package".to_owned(),
            path: "alpha".to_owned(),
            prior: Prior::State(None),
            kept: false,
            on_remove: OnRemove::Delete,
            at: Timestamp(0),
            sensitive: false,
            // What the declaration said, as the ledger keeps it.
            attributes: serde_json::from_value(hold).unwrap(),
            made: Vec::new(),
            generation: None,
        };
        match lab.kinds.remove(&entry, OnRemove::Delete) {
            Ok(removed) => assert!(removed && goes),
            Err(why) => {
                assert!(
                    !goes && why.contains("alpha is held at 1 (apt-mark hold), so it is not removed"),
                    "{why}"
                );
                assert!(why.contains("`apt-mark unhold alpha` releases it"), "{why}");
            }
        }
    }
    assert!(catalog::schema::find("package").unwrap().removal.contains(&"hold"));
}

#[test]
fn lists_are_refreshed_at_most_once_a_run_and_a_failure_is_told() {
    let lab = lab("alpha 1\n");
    lab.write("repository", "alpha 1\nnew 1\n");
    assert_eq!(
        words(&lab.apply(&plain(&["alpha", "new", "nope"]))),
        ["changed", "changed", "Unable to locate package nope"]
    );
    assert_eq!(lab.calls("apt-get", &["update"]), 1);
    // Another module of the same run: the lists are new enough.
    let other = package("nope", json!({}));
    let checked = lab.check(&other).unwrap();
    assert!(lab.kinds.apply("nope", &other, &checked, LONG).is_err());
    assert_eq!(lab.calls("apt-get", &["update"]), 1);
    // A repository was changed: they are old, and offline that is told and fails nobody who is known.
    lab.write("offline", "");
    lab.write("etc/apt/sources.list", "deb http://deb/ x main\n");
    lab.write("offers", "alpha 1\nnew 1\nmore 1\n");
    let results = lab.apply(&plain(&["more", "nope"]));
    let said = words(&results);
    assert_eq!(said[0], "changed");
    assert!(
        said[1].contains(
            "Unable to locate package nope; the lists of packages could not be refreshed: E: Failed to fetch"
        ),
        "{said:?}"
    );
    assert!(results[0].as_ref().unwrap().output.as_ref().unwrap().contains("could not be refreshed"));
    assert_eq!(lab.calls("apt-get", &["update"]), 2);
}

#[test]
fn a_lock_is_waited_for_and_its_holder_named() {
    let lab = lab("alpha 1\n");
    let path = lab.path("var/lib/dpkg/lock-frontend");
    fs::write(&path, "").unwrap();
    let held = package("alpha", json!({"lock_timeout": "1s"}));
    // A lock of this process is none that is in its own way: another one holds it.
    let mut holder = hold(&path);
    let said = words(&lab.apply(std::slice::from_ref(&held)));
    let expected = format!("dpkg lock held by perl (pid {}), waited 1 s", holder.id());
    assert_eq!(said, [expected]);
    assert_eq!(lab.transactions(), 0);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(words(&lab.apply(&[held])), ["changed"]);
}

#[test]
fn a_repair_waits_for_no_lock() {
    let lab = lab("alpha 1\n");
    let path = lab.path("var/lib/dpkg/lock-frontend");
    fs::write(&path, "").unwrap();
    let held = package("alpha", json!({"lock_timeout": "5s"}));
    let mut holder = hold(&path);
    lab.kinds.begin_run(RunPurpose::Repair);
    let checked = lab.check(&held).unwrap();
    let results = lab.kinds.apply_together(&[("name", &held, &checked, LONG)]);
    let said: Vec<String> = results.into_iter().map(|result| result.unwrap_err().into()).collect();
    assert_eq!(said, [format!("dpkg lock held by perl (pid {}), waited 0 s", holder.id())]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(words(&lab.apply(&[held])), ["changed"], "another run makes it");
}

/// A process that holds a lock, once it does.
fn hold(path: &Path) -> std::process::Child {
    let script = "use Fcntl; open(my $f, '+<', $ARGV[0]) or die; \
        my $l = pack('s s l! l! i', F_WRLCK, 0, 0, 0, 0); fcntl($f, F_SETLK, $l) or die $!; $|=1; print \"held\\n\"; sleep 60";
    let mut child = std::process::Command::new("perl")
        .args(["-e", script])
        .arg(path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0u8; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    let file = fs::File::open(path).unwrap();
    assert!(rustix::process::fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).unwrap().is_some());
    child
}

#[test]
fn an_interrupted_dpkg_is_finished_first_or_told() {
    let lab = lab("alpha 1\nsick 1 fails\n");
    assert!(words(&lab.apply(&plain(&["sick"])))[0].contains("exit status 3"));
    assert_eq!(
        lab.check(&plain(&["sick"])[0]).unwrap().edit.unwrap().from().unwrap()["status"],
        "half-configured"
    );
    // The next run repairs: dpkg finishes, and nothing is left to install.
    assert_eq!(words(&lab.apply(&plain(&["sick", "alpha"]))), ["ok", "changed"]);
    assert_eq!(lab.calls("dpkg", &["--configure", "-a"]), 1);

    lab.write(
        "var/lib/dpkg/updates/0001",
        "Package: bad\nStatus: install ok unpacked\nArchitecture: all\nVersion: 1\n",
    );
    lab.write("stuck", "");
    let gone = package("alpha", json!({"state": "absent"}));
    let said = words(&lab.apply(&[gone]));
    assert!(
        said[0].starts_with("dpkg was interrupted, and `dpkg --configure -a` does not finish"),
        "{said:?}"
    );
    assert!(said[0].contains("it is stuck"), "{said:?}");
}

#[test]
fn services_are_kept_from_starting_for_the_transaction_alone() {
    let lab = lab("alpha 1\nbeta 1\n");
    let policy = lab.path("usr/sbin/policy-rc.d");
    fs::write(&policy, "#!/bin/sh\nexit 104\n").unwrap();
    let quiet = package("alpha", json!({"start_services": false}));
    let mut specs = vec![quiet];
    specs.extend(plain(&["beta"]));
    fs::remove_file(&policy).unwrap();
    assert_eq!(words(&lab.apply(&specs)), ["changed", "changed"]);
    assert_eq!((lab.calls("policy", &["alpha"]), lab.calls("policy", &["beta"])), (1, 0), "{:?}", lab.log());
    assert!(!policy.exists());
    // Somebody's own may be a link of the alternatives.
    std::os::unix::fs::symlink("/etc/alternatives/policy-rc.d", &policy).unwrap();
    let again = package("beta", json!({"state": "absent", "start_services": false}));
    assert_eq!(words(&lab.apply(&[again])), ["changed"]);
    assert_eq!(fs::read_link(&policy).unwrap(), Path::new("/etc/alternatives/policy-rc.d"));
    fs::remove_file(&policy).unwrap();
    // Killed in between: ours is there, and somebody's own beside it.
    fs::write(&policy, "#!/bin/sh\n# Written by Muster for one transaction of packages.\nexit 101\n")
        .unwrap();
    lab.write("usr/sbin/policy-rc.d.kept-by-muster", "#!/bin/sh\nexit 104\n");
    lab.kinds.begin_run(RunPurpose::Converge);
    assert_eq!(fs::read_to_string(&policy).unwrap(), "#!/bin/sh\nexit 104\n");
    assert!(!lab.path("usr/sbin/policy-rc.d.kept-by-muster").exists());
}

#[test]
fn new_lists_after_a_failed_fetch_are_judged_again() {
    let lab = lab("alpha 1\nrival 1\n");
    lab.write("repository", "alpha 1\nrival 1 removes=dpkg\n");
    lab.write("unfetchable", "");
    let said = words(&lab.apply(&plain(&["alpha", "rival"])));
    assert_eq!(said[0], "changed", "{:?}", lab.log());
    assert!(said[1].starts_with("it would remove dpkg, which nobody declared absent"), "{said:?}");
    assert_eq!(lab.calls("apt-get", &["--no-remove"]), 2, "{:?}", lab.log());
    assert!(
        fs::read_to_string(lab.path("var/lib/dpkg/status"))
            .unwrap()
            .contains("Package: dpkg\nStatus: install")
    );
}

#[test]
fn the_hosts_own_architecture_may_be_named() {
    let lab = lab("");
    let status = fs::read_to_string(lab.path("var/lib/dpkg/status")).unwrap();
    let foo = "Package: foo\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n";
    lab.write("var/lib/dpkg/status", &format!("{status}{foo}"));
    let said = words(&lab.apply(&[package("foo:amd64", json!({"state": "absent"}))]));
    assert!(!said[0].contains("nobody declared absent"), "{said:?}");
    assert_eq!(lab.transactions(), 1, "{:?}", lab.log());
}

#[test]
fn answers_go_to_debconf_and_nowhere_else() {
    let lab = lab("alpha 1\n");
    let spec = package("alpha", json!({"responses": ["alpha/secret password hunter2"]}));
    let checked = lab.check(&spec).unwrap();
    assert!(!format!("{checked:?}").contains("hunter2"));
    let results = lab.apply(&[spec]);
    assert_eq!(words(&results), ["changed"]);
    assert_eq!(fs::read_to_string(lab.path("stdin")).unwrap(), "alpha alpha/secret password hunter2\n");
    assert!(!format!("{results:?}{:?}", lab.log()).contains("hunter2"));
}

#[test]
fn a_package_that_left_the_set_goes_or_is_put_back() {
    let lab = lab("alpha 1\nalpha 2\n");
    lab.apply(&[package("alpha", json!({"version": "1"}))]);
    let newer = package("alpha", json!({"version": "2"}));
    let prior = lab.check(&newer).unwrap().prior;
    assert_eq!(words(&lab.apply(&[newer])), ["changed"]);
    let entry = LedgerEntry {
        kind: "package".to_owned(),
        path: "alpha".to_owned(),
        prior,
        kept: false,
        on_remove: OnRemove::Restore,
        at: Timestamp(0),
        sensitive: false,
        attributes: BTreeMap::new(),
        made: Vec::new(),
        generation: None,
    };
    assert!(matches!(&entry.prior, Prior::State(Some(before)) if before["version"] == "1"));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Restore), Ok(true));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Restore), Ok(false));
    assert!(lab.check(&package("alpha", json!({"version": "1"}))).unwrap().edit.is_none());
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(false));
}

#[test]
fn below_another_root_the_machines_programs_are_not_used() {
    let lab = lab("");
    let options = HostOptions { allow_exec: true, ..HostOptions::default() };
    let host = Arc::new(Host::open(lab.dir.path(), options).unwrap());
    let kinds = Kinds::new(host, Arc::new(Memory::default()) as Arc<dyn Blobs>);
    let spec = package("alpha", json!({}));
    assert_eq!(kinds.check("alpha", &spec, LONG, false), Ok(JobDone::Skipped(ROOTED.to_owned())));
    assert!(kinds.apply("alpha", &spec, &Checked::unknown(), Duration::from_secs(1)).is_err());
}
