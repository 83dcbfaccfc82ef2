//! One booted host.
//!
//! ```text
//! boot -> up -> reboot -> up        the same process tree outside, a new boot id inside
//!           \-> power_off / kill -> off -> power_on -> up
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use model::Digest;

use super::testbed::Testbed;
use super::{MINUTE, NAME, V4, V6, sweep};

/// The longest that a command in a host may take, in seconds.
const COMMAND_SECONDS: &str = "300";
/// Lines of the journal in a failure's text.
const JOURNAL_LINES: &str = "60";
/// Between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// A Debian host with systemd as PID 1. Killed when this goes.
pub struct BootedHost {
    name: String,
    number: u32,
    folder: PathBuf,
    power: Mutex<Option<Power>>,
    testbed: Testbed,
}

/// The processes of a host that is on.
struct Power {
    /// `unshare`, whose end is the end of every process of the host.
    supervisor: Child,
    /// The host's PID 1, as seen from outside.
    init: u32,
}

impl BootedHost {
    pub(super) fn boot(testbed: Testbed, name: &str, number: u32) -> BootedHost {
        let folder = testbed.folder().join("hosts").join(name);
        for part in ["up/etc", "root"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let etc = folder.join("up/etc");
        fs::write(etc.join("machine-id"), "").unwrap();
        fs::write(etc.join("hostname"), format!("{name}\n")).unwrap();
        let known =
            format!("127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost\n{V4} {NAME}\n{V6} {NAME}\n");
        fs::write(etc.join("hosts"), known).unwrap();
        let host = BootedHost { name: name.to_owned(), number, folder, power: Mutex::default(), testbed };
        host.power_on();
        let state = host.run(["systemctl", "is-system-running"]);
        if !state.status.success() {
            let failed = host.run(["systemctl", "--failed", "--no-legend", "--plain"]);
            panic!("{name} booted with failed units: {}", String::from_utf8_lossy(&failed.stdout));
        }
        host
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its IPv4 address.
    pub fn address(&self) -> String {
        format!("10.213.80.{}", 10 + self.number)
    }

    /// Runs a program as root, with a plain environment, for 5 minutes at most.
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        self.command(words).output().unwrap()
    }

    /// The command that runs a program in this host, for a test that gives it an input or lets it
    /// run on meanwhile.
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let init = self.init().unwrap_or_else(|| panic!("{} is off", self.name)).to_string();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", COMMAND_SECONDS, "nsenter", "--target", &init]);
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"]);
        command.args([
            "env",
            "-i",
            "-C",
            "/",
            "HOME=/root",
            "LANG=C.UTF-8",
            "DEBIAN_FRONTEND=noninteractive",
        ]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Runs a program, which must succeed; gives what it printed.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, words: impl IntoIterator<Item = S>) -> String {
        let words: Vec<S> = words.into_iter().collect();
        let output = self.run(&words);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {words:?}: {}\n{out}{err}", self.name, output.status);
        out.into_owned()
    }

    /// Runs a line of shell, which must succeed; gives what it printed.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        self.ok(["sh", "-c", line])
    }

    /// A text file of the host; none when it is not there. Also of a host that is off.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read(self.path(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes a file into the host, which is on, with the directories above it.
    #[track_caller]
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>, mode: u32) {
        let file = self.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Copies a file of the outer machine into the host, which is on.
    #[track_caller]
    pub fn copy_in(&self, file: &Path, path: &str, mode: u32) {
        self.write(path, fs::read(file).unwrap(), mode);
    }

    /// Where a path of the host lies outside; symbolic links in it are followed as outside, so name
    /// a path of which none is a link. Of a host that is off: what it has changed.
    pub fn path(&self, path: &str) -> PathBuf {
        let root = match self.init() {
            Some(init) => PathBuf::from(format!("/proc/{init}/root")),
            None => self.folder.join("up"),
        };
        root.join(path.trim_start_matches('/'))
    }

    /// Polls until a condition holds; fails after `deadline`.
    #[track_caller]
    pub fn wait_until(&self, what: &str, deadline: Duration, holds: impl FnMut() -> bool) {
        assert!(self.seen_within(deadline, holds), "{}: not seen in {deadline:?}: {what}", self.name);
    }

    /// Polls until a condition holds; whether it did so before the deadline.
    pub(super) fn seen_within(&self, deadline: Duration, mut holds: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        while !holds() {
            if begun.elapsed() > deadline {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// Reboots by systemd, and waits until the host is up again.
    #[track_caller]
    pub fn reboot(&self) {
        self.until_rebooted(|| {
            self.ok(["systemctl", "reboot"]);
        });
    }

    /// Does what makes the host reboot, and waits until it went down and is up again.
    #[track_caller]
    pub fn until_rebooted(&self, cause: impl FnOnce()) {
        let before = self.init();
        cause();
        self.wait_until("it went down", MINUTE, || self.find_init().is_some_and(|init| Some(init) != before));
        self.until_up();
    }

    /// Powers off by systemd, and waits until every process is gone.
    #[track_caller]
    pub fn power_off(&self) {
        self.ok(["systemctl", "poweroff"]);
        let mut power = self.power.lock().unwrap();
        let mut on = power.take().expect("it is on");
        let begun = Instant::now();
        while on.supervisor.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < MINUTE, "{} does not power off", self.name);
            std::thread::sleep(PAUSE);
        }
    }

    /// Pulls the power plug: every process ends at once, and none is asked.
    pub fn kill(&self) {
        let Some(mut on) = self.power.lock().unwrap().take() else { return };
        let _ = on.supervisor.kill();
        let _ = on.supervisor.wait();
        let begun = Instant::now();
        while Path::new(&format!("/proc/{}", on.init)).exists() && begun.elapsed() < MINUTE {
            std::thread::sleep(PAUSE);
        }
    }

    /// Switches it on again, with the disk that it had.
    #[track_caller]
    pub fn power_on(&self) {
        let uuid = Digest::of(format!("{}/{}", self.testbed.id(), self.name).as_bytes()).to_string();
        let uuid: String = uuid.chars().filter(char::is_ascii_hexdigit).take(32).collect();
        let image = self.testbed.image();
        let cgroup = format!("{}-{}", sweep::cgroup(self.testbed.id()), self.number);
        let mut command = Command::new("sh");
        command.arg("-c").arg(include_str!("power.sh")).arg("sh").arg(&self.folder);
        command.args([&self.name, &uuid, &self.testbed.network().host(self.number)]);
        command.arg(image.root()).arg(cgroup);
        command.arg(format!("--bind-ro={}:/srv/packages/debian", image.packages().display()));
        command.arg(format!("--bind-ro={}:/srv/packages/test", self.testbed.packages().display()));
        let errors = File::options().create(true).append(true).open(self.folder.join("console.log")).unwrap();
        // Its input is a pipe that ends with this process, however that ends.
        let supervisor = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        *self.power.lock().unwrap() = Some(Power { supervisor, init: 0 });
        self.until_up();
    }

    /// Pulls the network cable.
    pub fn unplug(&self) {
        self.testbed.network().plug(self.number, false).unwrap();
    }

    /// Plugs the network cable in again.
    pub fn plug_in(&self) {
        self.testbed.network().plug(self.number, true).unwrap();
    }

    /// Lets this many bytes more reach the host, and drops the rest: whatever comes is cut in its middle.
    pub fn lose_after(&self, bytes: u64) {
        self.testbed.network().lose_after(self.number, bytes).unwrap();
    }

    /// Whether anything was lost since [`BootedHost::lose_after`].
    pub fn has_lost(&self) -> bool {
        self.testbed.network().has_lost(self.number).unwrap()
    }

    /// Lets everything reach the host again.
    pub fn lose_nothing(&self) {
        self.testbed.network().lose_nothing(self.number).unwrap();
    }

    /// The end of its journal; of its console where there is none.
    pub fn journal(&self) -> String {
        let output = self.init().map(|_| self.run(["journalctl", "--no-pager", "-n", JOURNAL_LINES]));
        match output {
            Some(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            _ => fs::read_to_string(self.folder.join("console.log")).unwrap_or_default(),
        }
    }

    fn init(&self) -> Option<u32> {
        self.power.lock().unwrap().as_ref().map(|power| power.init).filter(|init| *init != 0)
    }

    /// Waits until systemd has started what it starts.
    #[track_caller]
    fn until_up(&self) {
        self.wait_until("it boots", MINUTE, || {
            let Some(init) = self.find_init() else { return false };
            if let Some(power) = self.power.lock().unwrap().as_mut() {
                power.init = init;
            }
            let state = self.run(["systemctl", "is-system-running"]).stdout;
            ["running\n", "degraded\n"].iter().any(|up| state == up.as_bytes())
        });
    }

    /// The host's PID 1: below the supervisor the only process that is the first of a PID namespace
    /// two levels down (the supervisor's own, then the host's).
    fn find_init(&self) -> Option<u32> {
        let mut power = self.power.lock().unwrap();
        let supervisor = &mut power.as_mut()?.supervisor;
        if let Some(status) = supervisor.try_wait().unwrap() {
            let console = fs::read_to_string(self.folder.join("console.log")).unwrap_or_default();
            panic!("{} does not run: {status}\n{console}", self.name);
        }
        let processes = Process::all();
        let own = processes.iter().find(|process| process.pid == supervisor.id())?.level;
        let mut family = vec![supervisor.id()];
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            family.extend(processes.iter().filter(|child| child.parent == parent).map(|child| child.pid));
            next += 1;
        }
        let is_init = |process: &&Process| process.level == own + 2 && process.is_first;
        processes.iter().filter(is_init).map(|process| process.pid).find(|pid| family.contains(pid))
    }
}

impl Drop for BootedHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the journal of {}\n{}", self.name, self.journal());
        }
        self.kill();
    }
}

/// What `/proc/PID/status` says of a process.
struct Process {
    pid: u32,
    parent: u32,
    /// How many PID namespaces it is in.
    level: usize,
    /// It is PID 1 of the innermost.
    is_first: bool,
}

impl Process {
    fn all() -> Vec<Process> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn read(pid: u32) -> Option<Process> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let numbers: Vec<&str> = field("NSpid:")?.split_whitespace().collect();
        Some(Process {
            pid,
            parent: field("PPid:")?.trim().parse().ok()?,
            level: numbers.len(),
            is_first: numbers.last() == Some(&"1"),
        })
    }
}
