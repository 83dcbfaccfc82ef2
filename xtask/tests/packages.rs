//! OPS-6, LIF-3: what both packages hold, as Debian's own tools read it: contents, modes, conffiles,
//! scripts, dependencies; that the same commit makes the same bytes; and that a purge takes all of
//! the state and no key that the agent did not make. Made of small programs in place of ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use xtask::dist::packages::{self, Release};
use xtask::dist::{BuildProfile, needs, package};
use xtask::root;

/// A program that stands for ours.
const PROGRAM: &str = "/bin/true";
const VERSION: &str = "1.2.3~test1";
const EPOCH: u64 = 1_795_219_200;
/// `systemd-analyze security` rates the control plane's unit no worse, in tenths.
const MAX_EXPOSURE: u32 = 12;

/// Both packages, made in a directory of their own.
struct MadePackages {
    dir: TempDir,
    packages: BTreeMap<&'static str, PathBuf>,
}

/// `None`, with the reason printed, where packages cannot be built.
fn made(profile: BuildProfile) -> Option<MadePackages> {
    if !package::can_build() || !Path::new(PROGRAM).exists() {
        println!("skipped: dpkg-deb, readelf, md5sum or {PROGRAM} is missing");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (binaries, manual, to) =
        (dir.path().join("binaries"), dir.path().join("manual"), dir.path().join("to"));
    for dir in [&binaries, &to] {
        fs::create_dir_all(dir).unwrap();
    }
    for program in ["muster", "muster-agent"] {
        fs::copy(PROGRAM, binaries.join(program)).unwrap();
        for (path, text) in [
            (format!("usr/share/man/man1/{program}.1"), ".TH x 1"),
            (format!("usr/share/bash-completion/completions/{program}"), "complete"),
        ] {
            let path = manual.join(program).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let date = "Sat, 21 Nov 2026 00:00:00 +0000".to_owned();
    let release = Release { version: VERSION.to_owned(), profile, epoch: EPOCH, date };
    let built = packages::make(&root(), &binaries, &manual, &release, &to).unwrap();
    let name = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        ["muster-agent", "muster"].into_iter().find(|known| name.starts_with(&format!("{known}_"))).unwrap()
    };
    let packages = built.into_iter().map(|path| (name(&path), path)).collect();
    Some(MadePackages { dir, packages })
}

impl MadePackages {
    /// What `dpkg-deb` says of a package.
    fn asked(&self, name: &str, option: &str, what: &[&str]) -> String {
        let package = &self.packages[name];
        let output = Command::new("dpkg-deb").arg(option).arg(package).args(what).env("TZ", "UTC").output();
        stdout(&output.unwrap())
    }

    fn field(&self, name: &str, field: &str) -> String {
        self.asked(name, "--field", &[field]).trim().to_owned()
    }

    /// A package's files below a directory, its control files in `DEBIAN`.
    fn unpacked(&self, name: &str) -> PathBuf {
        let tree = self.dir.path().join(format!("unpacked-{name}"));
        if !tree.exists() {
            let mut unpack = Command::new("dpkg-deb");
            stdout(&unpack.arg("--raw-extract").arg(&self.packages[name]).arg(&tree).output().unwrap());
        }
        tree
    }

    /// Mode and owner of each path, those of directories apart.
    fn contents(&self, name: &str) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let listed = self.asked(name, "--contents", &[]);
        let entries = listed.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[5].trim_start_matches("./").to_owned(), format!("{} {}", words[0], words[1]))
        });
        entries.partition(|(path, _)| !path.is_empty() && !path.ends_with('/'))
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn in_tree(tree: &Path, argv: &[&str]) -> String {
    stdout(&Command::new(argv[0]).args(&argv[1..]).current_dir(tree).output().unwrap())
}

#[test]
fn each_package_holds_what_it_says_with_fixed_modes_and_owners() {
    let Some(made) = made(BuildProfile::Debug) else { return };
    let common = |name: &str| {
        vec![
            format!("etc/default/{name}"),
            format!("usr/bin/{name}"),
            format!("usr/lib/systemd/system/{name}.service"),
            format!("usr/lib/tmpfiles.d/{name}.conf"),
            format!("usr/share/bash-completion/completions/{name}"),
            format!("usr/share/doc/{name}/changelog.gz"),
            format!("usr/share/doc/{name}/copyright"),
            format!("usr/share/man/man1/{name}.1.gz"),
        ]
    };
    for (name, more) in [
        ("muster", "usr/lib/sysusers.d/muster.conf"),
        ("muster-agent", "usr/lib/systemd/system/muster-agent.path"),
    ] {
        let (files, directories) = made.contents(name);
        let mut expected = common(name);
        expected.push(more.to_owned());
        expected.sort();
        assert_eq!(files.keys().cloned().collect::<Vec<_>>(), expected);
        for (path, mode) in files {
            let expected = if path.starts_with("usr/bin/") { "-rwxr-xr-x" } else { "-rw-r--r--" };
            assert_eq!(mode, format!("{expected} root/root"), "{path}");
        }
        for (path, mode) in directories {
            assert_eq!(mode, "drwxr-xr-x root/root", "{path}");
        }
    }
}

#[test]
fn the_control_files_are_as_debian_wants_them() {
    let Some(made) = made(BuildProfile::Debug) else { return };
    let program = needs::of(Path::new(PROGRAM)).unwrap().join(", ");
    assert!(program.starts_with("libc6 (>= 2."), "{program}");
    for name in ["muster", "muster-agent"] {
        assert_eq!(made.field(name, "Package"), name);
        assert_eq!(made.field(name, "Version"), VERSION);
        assert_eq!(made.field(name, "Architecture"), package::architecture());
        assert!(made.field(name, "Depends").starts_with(&program), "{name}");
        assert!(made.field(name, "Installed-Size").parse::<u64>().unwrap() > 0);
        let description = made.field(name, "Description");
        assert!(description.contains("not to be shipped"), "{description}");
        let (synopsis, rest) = description.split_once('\n').unwrap();
        assert!(synopsis.len() <= 80 && !synopsis.ends_with('.'), "{synopsis}");
        assert!(rest.lines().all(|line| line.len() <= 81 && line.starts_with(' ')), "{rest}");
        // Kept on upgrades: all below /etc, and nothing else.
        assert_eq!(made.asked(name, "--info", &["conffiles"]), format!("/etc/default/{name}\n"));
        let tree = made.unpacked(name);
        in_tree(&tree, &["md5sum", "--check", "--strict", "DEBIAN/md5sums"]);
        let changelog = in_tree(&tree, &["gzip", "-dc", &format!("usr/share/doc/{name}/changelog.gz")]);
        assert!(changelog.starts_with(&format!("{name} ({VERSION}) unstable;")), "{changelog}");
        assert!(changelog.contains("\n  * "), "{changelog}");
        let long = |line: &&str| line.chars().count() > 80 && !line.starts_with(" -- ");
        assert_eq!(changelog.lines().find(long), None);
        assert!(changelog.ends_with(">  Sat, 21 Nov 2026 00:00:00 +0000\n"), "{changelog}");
    }
    assert!(made.field("muster", "Depends").contains("systemd-sysusers"));
    assert_eq!(made.field("muster", "Suggests"), "muster-agent");
}

#[test]
fn what_is_not_to_be_shipped_says_so() {
    for (profile, says_so) in [(BuildProfile::Shipped, false), (BuildProfile::Debug, true)] {
        let Some(made) = made(profile) else { return };
        assert_eq!(made.field("muster", "Description").contains("not to be shipped"), says_so);
    }
}

#[test]
fn the_same_commit_makes_the_same_bytes() {
    let (Some(one), Some(other)) = (made(BuildProfile::Shipped), made(BuildProfile::Shipped)) else { return };
    for (name, package) in &one.packages {
        assert!(fs::read(package).unwrap() == fs::read(&other.packages[name]).unwrap(), "{name} differs");
        assert!(one.asked(name, "--contents", &[]).lines().all(|line| line.contains(" 2026-11-21 00:00 ")));
    }
}

#[test]
fn the_scripts_can_be_read_and_name_every_unit() {
    let Some(made) = made(BuildProfile::Debug) else { return };
    for (name, units) in [
        ("muster", vec!["muster.service"]),
        ("muster-agent", vec!["muster-agent.service", "muster-agent.path"]),
    ] {
        let tree = made.unpacked(name);
        for script in ["postinst", "prerm", "postrm"] {
            let path = tree.join("DEBIAN").join(script);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
            stdout(&Command::new("sh").arg("-n").arg(&path).output().unwrap());
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{name} {script}");
            for unit in &units {
                assert!(text.contains(unit), "{name}: {script} forgets {unit}");
            }
        }
    }
}

/// OPS-6: an agent that does not handle SIGUSR1 would end in the middle of the installation that it runs.
#[test]
fn only_an_agent_that_knows_the_signal_is_sent_it() {
    let Some(made) = made(BuildProfile::Debug) else { return };
    let script = fs::read_to_string(made.unpacked("muster-agent").join("DEBIAN/postinst")).unwrap();
    let (functions, _) = script.split_once("\ncase \"$1\" in").unwrap();
    for (knows, agent) in [(true, "trap : USR1; echo; read x"), (false, "trap : TERM INT HUP; echo; read x")]
    {
        let mut command = Command::new("sh");
        let mut agent =
            command.args(["-c", agent]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Its handlers are set.
        agent.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let ask = format!("{functions}\nsystemctl() {{ echo {}; }}\nrestarts_by_signal\n", agent.id());
        let asked = Command::new("sh").args(["-c", &ask]).status().unwrap();
        drop(agent.stdin.take());
        agent.wait().unwrap();
        assert_eq!(asked.success(), knows);
    }
}

/// Runs a package's `postrm` over a tree that stands for a host.
fn postrm(made: &MadePackages, name: &str, action: &str, host: &Path) {
    let script = made.unpacked(name).join("DEBIAN/postrm");
    let ran = Command::new("sh").arg(script).arg(action).env("DPKG_ROOT", host).output().unwrap();
    stdout(&ran);
}

#[test]
fn a_purge_takes_the_state_and_no_other_key() {
    let Some(made) = made(BuildProfile::Debug) else { return };
    for (name, state) in [("muster", "var/lib/muster-server"), ("muster-agent", "var/lib/muster")] {
        let host = tempfile::tempdir().unwrap();
        let (own, others) = (
            [format!("{state}/a.key"), format!("{state}/earlier-1/log/1.segment")],
            ["etc/ssh/ssh_host_ed25519_key", "var/lib/muster-other/key", "srv/managed"],
        );
        for path in own.iter().map(String::as_str).chain(others) {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        for keeps in ["remove", "upgrade", "failed-upgrade", "disappear"] {
            postrm(&made, name, keeps, host.path());
            assert!(
                own.iter().all(|path| host.path().join(path).exists()),
                "{name}: {keeps} takes the state"
            );
        }
        postrm(&made, name, "purge", host.path());
        assert!(!host.path().join(state).exists(), "{name}: the state outlives a purge");
        assert!(others.iter().all(|path| host.path().join(path).exists()), "{name}: a purge takes too much");
        // A purge that was cut off is tried again.
        postrm(&made, name, "purge", host.path());
    }
}

#[test]
fn systemd_reads_the_units_and_rates_the_control_plane_s() {
    let Some(made) = made(BuildProfile::Debug) else { return };
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: there is no systemd-analyze here");
        return;
    }
    let analyze = |tree: &Path, args: &[&str]| {
        let mut analyze = Command::new("systemd-analyze");
        analyze.arg(format!("--root={}", tree.display())).args(args).output().unwrap()
    };
    for (name, units) in [
        ("muster", vec!["muster.service"]),
        ("muster-agent", vec!["muster-agent.service", "muster-agent.path"]),
    ] {
        let tree = made.unpacked(name);
        // What every system has.
        for target in ["sysinit", "basic", "shutdown"] {
            fs::write(tree.join(format!("usr/lib/systemd/system/{target}.target")), "[Unit]\n").unwrap();
        }
        fs::create_dir(tree.join("bin")).unwrap();
        fs::copy(PROGRAM, tree.join("bin/kill")).unwrap();
        let verified = analyze(&tree, &[&["verify", "--man=no"], units.as_slice()].concat());
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && said.is_empty(), "{name}: {said}");
        if name == "muster" {
            let threshold = format!("--threshold={MAX_EXPOSURE}");
            let rated = analyze(&tree, &["--offline=true", &threshold, "security", "muster.service"]);
            assert!(rated.status.success(), "{}", String::from_utf8_lossy(&rated.stdout));
        }
    }
}
