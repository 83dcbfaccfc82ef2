//! The real programs as processes: a control plane, agents, and an operator who types.

pub mod cable;
pub mod one_host;
pub mod repo;
mod running;
pub mod waves;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::Value;

use crate::children::{program, without_proxies};
use crate::wait::until_blocking as until;

pub use one_host::OneHostFleet;
pub use running::Running;

/// Crates whose change makes the agent another program.
const AGENTS_CRATES: [&str; 15] = [
    "model",
    "lang",
    "trust",
    "catalog",
    "converge",
    "node",
    "wire",
    "spool",
    "net",
    "host",
    "providers",
    "agent",
    "sync",
    "backends",
    "streams",
];

/// The operator's program.
pub fn muster() -> PathBuf {
    program("muster")
}

/// The agent beside it; built if it is not there or older than its source.
pub fn muster_agent() -> PathBuf {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT
        .get_or_init(|| {
            let agent = muster().with_file_name("muster-agent");
            let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let built = std::fs::metadata(&agent).and_then(|data| data.modified()).ok();
            let sources =
                AGENTS_CRATES.iter().filter_map(|name| newest(&crates.join(name).join("src"))).max();
            if built.is_none() || built < sources {
                let mut command = Command::new(env!("CARGO"));
                command.args(["build", "--quiet", "--package", "agent", "--bin", "muster-agent"]);
                assert!(command.current_dir(crates).status().unwrap().success(), "the agent cannot be built");
            }
            agent
        })
        .clone()
}

/// When the newest file below a directory was changed.
fn newest(dir: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(dir).ok()?.filter_map(Result::ok);
    let times = entries.filter_map(|entry| match entry.file_type().ok()?.is_dir() {
        true => newest(&entry.path()),
        false => entry.metadata().ok()?.modified().ok(),
    });
    times.max()
}

/// What is put before a command, so that it runs somewhere else.
pub type Prefix = Vec<String>;

fn command(prefix: &Prefix, program: &Path) -> Command {
    let mut command = match prefix.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    for name in
        ["MUSTER_OPERATOR", "MUSTER_RELEASE_KEY", "MUSTER_STATE", "MUSTER_TOKEN", "MUSTER_LOG", "RUST_LOG"]
    {
        command.env_remove(name);
    }
    without_proxies(&mut command);
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

/// A control plane's machine.
pub struct Server {
    pub dir: PathBuf,
    /// Names and addresses that nodes call it by.
    names: Vec<String>,
    prefix: Prefix,
    listen: String,
    ports: Option<(u16, u16)>,
}

/// What a control plane says of a port that somebody else holds.
const PORT_IN_USE: &str = "Address already in use";

impl Server {
    pub fn new(dir: &Path, names: &[&str], listen: &str, prefix: &Prefix) -> Server {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let (dir, listen) = (dir.join("muster-data"), listen.to_owned());
        Server { dir, names, prefix: prefix.clone(), listen, ports: None }
    }

    /// Starts the control plane and waits until it answers; always at the same ports.
    pub fn start(&mut self) -> Running {
        let mut running = self.begin_server();
        until("the control plane answers", || {
            // While it was stopped another test may have been given its port, for as long as that needs it.
            if self.ports.is_some() && !running.is_there() && running.log().contains(PORT_IN_USE) {
                running = self.begin_server();
            }
            let output = self.muster(&["status", "--json"]);
            // Nodes that failed or diverged are an answer too.
            matches!(output.status.code(), Some(0 | 3)).then_some(())
        });
        let port = |file: &str, pointer: &str| {
            let text = std::fs::read_to_string(self.dir.join(file)).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            let url = value.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            url.rsplit(':').next().unwrap().parse().unwrap()
        };
        self.ports = Some((port("enroll.json", "/servers/0"), port("operator.json", "/url")));
        running
    }

    fn begin_server(&self) -> Running {
        let (nodes, operators) = self.ports.unwrap_or((0, 0));
        let mut command = command(&self.prefix, &muster());
        command.arg("server").arg("--data").arg(&self.dir).args(["--fleet", "e2e"]);
        command.args(["--listen", &format!("{}:{nodes}", self.listen)]);
        command.args(["--operator-listen", &format!("127.0.0.1:{operators}")]);
        for name in &self.names {
            command.args(["--name", name]);
        }
        Running::start(command, &self.dir.with_extension("log"))
    }

    /// A control plane over another directory, `muster-data` in this one, that stands in for this one at its addresses.
    pub fn in_its_place(&self, dir: &Path) -> Server {
        let (names, prefix) = (self.names.clone(), self.prefix.clone());
        Server { dir: dir.join("muster-data"), names, prefix, listen: self.listen.clone(), ports: self.ports }
    }

    /// What an operator types on this machine.
    pub fn muster(&self, arguments: &[&str]) -> Output {
        let mut command = command(&self.prefix, &muster());
        self.typed(&mut command, arguments).output().unwrap()
    }

    /// The same, which goes on meanwhile; what it prints is in files of this name.
    pub fn begin(&self, name: &str, arguments: &[&str]) -> Running {
        let mut command = command(&self.prefix, &muster());
        self.typed(&mut command, arguments);
        Running::start(command, &self.dir.with_file_name(format!("{name}.log")))
    }

    fn typed<'c>(&self, command: &'c mut Command, arguments: &[&str]) -> &'c mut Command {
        command.args(arguments).env("MUSTER_OPERATOR", self.dir.join("operator.json"))
    }

    /// The same, which must end well; gives what it printed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.muster(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {:?}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// The same, as JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.muster(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
    }

    /// A token for a host, in a file.
    pub fn token(&self, host: &str, file: &Path) {
        let printed = self.ok(&["token", "mint", host, "--data", self.dir.to_str().unwrap(), "--json"]);
        let minted: Value = serde_json::from_str(&printed).unwrap();
        std::fs::write(file, minted["token"].as_str().unwrap()).unwrap();
    }

    /// A node on all axes.
    pub fn node(&self, host: &str) -> Value {
        self.json(&["node", "show", host])
    }

    /// Waits until a node's state is this word.
    pub fn until_state(&self, host: &str, state: &str) {
        until(&format!("{host} is {state}"), || (self.node(host)["state"] == state).then_some(()));
    }

    /// Publishes a fleet repo.
    #[track_caller]
    pub fn publish(&self, repo: &Path) {
        self.ok(&["publish", "--repo", repo.to_str().unwrap(), "--yes"]);
    }
}

/// A host with its agent.
pub struct Host {
    pub name: String,
    pub dir: PathBuf,
    prefix: Prefix,
    commands: bool,
}

impl Host {
    pub fn new(dir: &Path, name: &str, prefix: &Prefix) -> Host {
        let dir = dir.join(name);
        std::fs::create_dir_all(dir.join("root/etc")).unwrap();
        Host { name: name.to_owned(), dir, prefix: prefix.clone(), commands: false }
    }

    /// The same, whose agent may run commands.
    pub fn with_commands(self) -> Host {
        Host { commands: true, ..self }
    }

    pub fn token_file(&self) -> PathBuf {
        self.dir.join("token")
    }

    fn agent(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.prefix, &muster_agent());
        command.arg("--state").arg(self.dir.join("state")).arg("--root").arg(self.dir.join("root"));
        command.args(self.commands.then_some("--allow-exec")).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.agent(arguments).output().unwrap()
    }

    /// Joins with the token in its file.
    #[track_caller]
    pub fn join(&self) {
        let output = self.run(&["join", "--token-file", self.token_file().to_str().unwrap()]);
        assert!(output.status.success(), "{}: {}", self.name, text(&output.stderr));
    }

    /// Starts the daemon.
    pub fn start(&self) -> Running {
        Running::start(self.agent(&["daemon"]), &self.dir.join("agent.log"))
    }

    /// Where a path of the host lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.join("root").join(path.trim_start_matches('/'))
    }

    /// A file of the host; empty when it is not there.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Changes a file behind the agent's back.
    pub fn edit(&self, path: &str, content: &str) {
        std::fs::write(self.path(path), content).unwrap();
    }

    /// Waits until a file has a content.
    pub fn until_read(&self, path: &str, content: &str) {
        until(&format!("{path} of {} is {content:?}", self.name), || {
            (self.read(path) == content).then_some(())
        });
    }
}

/// A fleet repo whose hosts `web-*` get a file that says `greeting` and their name. Seconds
/// for everything, so that a test is soon over.
pub fn write_repo(dir: &Path, greeting: &str) {
    let files = [
        (
            "fleet.yaml",
            "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h}\n\
             defaults: {channel: fast}\n"
                .to_owned(),
        ),
        ("nodes.yaml", "nodes:\n  - match: [\"web-*\"]\n    modules: [hello]\n".to_owned()),
        (
            "modules/hello/module.yaml",
            format!(
                "resources:\n  - file: /etc/hello\n    content: \"{greeting} ${{{{ node.hostname }}}}\\n\"\n    \
                 mode: \"0640\"\n"
            ),
        ),
    ];
    for (path, text) in files {
        write(&dir.join(path), &text);
    }
}

/// Writes a file, with the directories above it.
pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
