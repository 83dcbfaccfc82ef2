//! [`Victim`]: a host with the real agent as a process, which joined a [`StolenControl`] and holds an honest release.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use agent::state::StateDir;
use bytes::Bytes;
use model::exchange::Offer;
use model::log::FactBody;
use model::policy::Policy;
use model::replication::{Mode, SyncPolicy, TransportPolicy};
use model::work::{ActionEvent, ActionOutcome, ActionSpec, Delegation, Order, QuerySpec, Work};
use model::{Kind, ObjectKey, Timestamp};
use serde_json::Value;
use spool::Disk;
use trust::signed;

use super::now;
use super::stage::{Commands, MadeOffer, OfferPlan, joined, make, plan};
use super::stolen::StolenControl;
use crate::agent_links::manifest;
use crate::children::{program, without_proxies};
use crate::wait::until;

/// Where its release lets objects be.
pub const FOLDER: &str = "/srv/manifests";
/// The command that its release delegates.
pub const DELEGATED: [&str; 3] = ["/bin/sh", "-c", "echo ran >> $MUSTER_ROOT/ran"];
/// The action that its release delegates, whose argument `word` is to fit `edge-*`.
pub const ACTION: &str = "say";

/// A host and its agent's process.
pub struct Victim {
    /// Whom it calls.
    pub control: StolenControl,
    /// The root of the host.
    pub root: PathBuf,
    state: PathBuf,
    daemon: Option<Child>,
    /// What runs the agent.
    prefix: Vec<String>,
    _dir: tempfile::TempDir,
}

/// A release that lets objects of the kind `Item` be in [`FOLDER`], and delegates little.
pub fn delegating(seq: u64, motd: &str) -> OfferPlan {
    let sync = SyncPolicy {
        mode: Mode::Managed,
        kinds: vec!["Item".to_owned()],
        folder: Some(FOLDER.to_owned()),
        mismatch: Default::default(),
        max_delete_percent: SyncPolicy::MAX_DELETE_PERCENT,
        operations: Vec::new(),
    };
    let say = ActionSpec {
        command: ["/bin/sh", "-c", "echo $0 >> $MUSTER_ROOT/ran", "{word}"].map(str::to_owned).into(),
        args: BTreeMap::from([("word".to_owned(), "edge-*".to_owned())]),
        timeout_secs: Some(30),
    };
    let delegation = Delegation {
        commands: vec![DELEGATED.map(str::to_owned).into()],
        actions: BTreeMap::from([(ACTION.to_owned(), say)]),
        queries: vec![QuerySpec::File { paths: vec!["/etc/motd".to_owned()] }],
        timeout_secs: None,
    };
    let policy = Policy {
        contact_secs: 1,
        jitter_percent: 0,
        converge_secs: 2,
        transport: TransportPolicy::Poll,
        ..Policy::default()
    };
    let objects = vec![
        (ObjectKey::of(Kind::SYNC, "sync"), model::canonical::to_bytes(&sync).unwrap()),
        (ObjectKey::of(Kind::DELEGATION, "few"), model::canonical::to_bytes(&delegation).unwrap()),
    ];
    OfferPlan { policy, objects, ..plan(seq, motd) }
}

impl Victim {
    /// A host that holds release 5 and is converged on it, and that is asked to open links.
    pub async fn start() -> Victim {
        Victim::holding(&delegating(5, "five\n")).await
    }

    /// The same with another release.
    pub async fn holding(plan: &OfferPlan) -> Victim {
        let control = StolenControl::start(Mode::Managed, &["Item"]).await;
        {
            let mut play = control.stage.play();
            (play.next_checkin_secs, play.stream_requested) = (Some(1), true);
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let (state, root) = (at.join("state"), at.join("root"));
        for made in ["etc", FOLDER.trim_start_matches('/')] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        joined(control.url(), control.ca(), &state, &root, Commands::Allowed);
        let mut victim = Victim { control, root, state, daemon: None, prefix: Vec::new(), _dir: dir };
        victim.begin();
        victim.adopts(plan).await;
        victim
    }

    /// Starts the agent.
    pub fn begin(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = self.command();
        command.arg("daemon").env("MUSTER_LOG", "info").env("NO_COLOR", "1");
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
    }

    /// Starts it anew with file systems of its own, which [`Victim::mounts`] changes: that needs root.
    pub fn isolate_mounts(&mut self) {
        self.kill();
        self.prefix = ["unshare", "--mount"].map(str::to_owned).to_vec();
        self.begin();
    }

    /// Runs this in the file systems that its agent sees.
    #[track_caller]
    pub fn mounts(&self, script: &str) {
        let pid = self.pid().to_string();
        let inside = ["--target", &pid, "--mount", "sh", "-ec", script];
        assert!(Command::new("nsenter").args(inside).status().unwrap().success(), "{script}");
    }

    /// Kills the agent.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    fn command(&self) -> Command {
        let mut command = match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program("muster-agent"));
                command
            }
            None => Command::new(program("muster-agent")),
        };
        command.arg("--state").arg(&self.state).arg("--root").arg(&self.root).arg("--allow-exec");
        without_proxies(&mut command);
        command
    }

    /// What a verb at its host prints and ends with.
    pub fn agent(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// What `muster-agent status --json` prints.
    pub fn status(&self) -> Value {
        let output = self.agent(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn log_path(&self) -> PathBuf {
        self.state.with_extension("log")
    }

    /// What its agent logged.
    pub fn log(&self) -> Vec<u8> {
        std::fs::read(self.log_path()).unwrap()
    }

    /// Its state directory.
    pub fn state(&self) -> StateDir {
        StateDir::at(&self.state, Disk::new())
    }

    /// The most memory that its agent ever had, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// Makes it check in and converge at once.
    pub fn nudge(&self) {
        let pid = rustix::process::Pid::from_child(self.daemon.as_ref().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    /// The agent runs.
    #[track_caller]
    pub fn is_alive(&mut self) {
        let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
        assert!(ended.is_none(), "the agent ended: {ended:?}");
    }

    /// What a file of the host says; nothing where there is none.
    pub fn file(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path.trim_start_matches('/'))).unwrap_or_default()
    }

    /// Every file, directory and link of the host, with what it says.
    pub fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        // Above the root too: what leads out of it would lie beside it.
        gather(self.root.parent().unwrap(), &[self.state.clone(), self.log_path()], &mut found);
        found
    }

    /// So many more check-ins are answered.
    pub async fn contacts(&self, more: usize) {
        let wanted = self.control.stage.play().check_ins + more;
        until("more check-ins", async || (self.control.stage.play().check_ins >= wanted).then_some(())).await;
    }

    /// An honest offer of this plan is made from now on.
    pub fn offer(&self, plan: &OfferPlan) -> MadeOffer {
        let made = make(plan);
        let mut play = self.control.stage.play();
        play.contents.extend(made.contents.clone());
        play.offer = Some(made.offer.clone());
        made
    }

    /// What is offered is adopted and converged on.
    pub async fn adopts(&self, plan: &OfferPlan) {
        let header = signed::digest(&self.offer(plan).offer.header);
        until(&format!("release {} is adopted and converged on", plan.seq), async || {
            let held = self.control.stage.play().held.as_ref().is_some_and(|held| held.header == header);
            (held && self.file("/etc/motd") == plan.motd).then_some(())
        })
        .await;
    }

    /// What is offered is refused by this code, and what was held stays.
    pub async fn refuses(&self, offer: Offer, code: &str) {
        let (last, held) = (self.control.stage.last(), self.control.stage.play().held.clone());
        self.control.stage.play().offer = Some(offer);
        until(&format!("it is refused: {code}"), async || {
            self.refusals(last).contains(&code.to_owned()).then_some(())
        })
        .await;
        self.contacts(2).await;
        assert_eq!(self.control.stage.play().held, held, "{code}: it holds what it held");
    }

    /// The codes of what was refused after a fact.
    pub fn refusals(&self, after: u64) -> Vec<String> {
        let play = self.control.stage.play();
        let new = play.facts.range(after + 1..);
        let refused = new.filter_map(|(_, fact)| match &fact.body {
            FactBody::Refused { code, .. } => Some(code.clone()),
            _ => None,
        });
        refused.collect()
    }

    /// The control plane wants an object to be so.
    pub fn put(&self, key: &ObjectKey, content: Bytes) {
        self.control.feed.put(key.clone(), &format!("uid of {key}"), content, now().0);
    }

    /// All that the control plane said so far was taken or refused: an object that it says last is there.
    pub async fn settles(&self, name: &str) {
        let key: ObjectKey = format!("Item/web/{name}").parse().unwrap();
        self.put(&key, manifest(name, "it came last"));
        let path = format!("{FOLDER}/item/web/{name}.yaml");
        until("what came last is there", async || (!self.file(&path).is_empty()).then_some(())).await;
    }

    /// The control plane asks for a piece of work under this name.
    pub fn order(&self, id: &str, work: Work) {
        let expires = Timestamp(now().0 + 3_600_000);
        let order =
            Order { task: "t".to_owned(), work, timeout_secs: 60, expires, cancel: false, release: None };
        self.put(&ObjectKey::of(Kind::ACTION, id), serde_json::to_vec(&order).unwrap().into());
    }

    /// How the piece of work of this name ended.
    pub async fn outcome(&self, id: &str) -> ActionOutcome {
        until(&format!("{id} is over"), async || self.outcomes(id).into_iter().next()).await
    }

    /// How it ended, as often as that was said.
    pub fn outcomes(&self, id: &str) -> Vec<ActionOutcome> {
        let play = self.control.stage.play();
        let ended = play.facts.values().filter_map(|fact| match &fact.body {
            FactBody::Action(said) if said.id == id => match &said.event {
                ActionEvent::Ended { outcome, .. } => Some(outcome.clone()),
                _ => None,
            },
            _ => None,
        });
        ended.collect()
    }

    /// While the agent is not running: as if the freshness of what it holds had ended an hour ago.
    pub fn end_freshness(&self) {
        assert!(self.daemon.is_none());
        let durable = self.state().open().unwrap();
        let adoption = durable.adoption().unwrap().unwrap();
        let mut record = durable.freshness(&adoption).unwrap();
        record.not_fresh_since = Some(Timestamp(now().0 - 3_600_000));
        durable.save_freshness(&record).unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("--- the agent's log\n{}", String::from_utf8_lossy(&log[..log.len().min(16 * 1024)]));
        }
    }
}

/// The delegated command.
pub fn delegated() -> Work {
    Work::Command { argv: DELEGATED.map(str::to_owned).into() }
}

fn gather(at: &Path, own: &[PathBuf], found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if own.contains(&path) {
            continue;
        }
        if kind.is_dir() {
            found.insert(path.clone(), Vec::new());
            gather(&path, own, found);
        } else if kind.is_symlink() {
            found.insert(
                path.clone(),
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            );
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
        }
    }
}
