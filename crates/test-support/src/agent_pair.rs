//! A real control plane in this process, and a real agent as a process of its own beside it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use catalog::module::{Declared, Module, Params};
use model::object::ObjectKey;
use model::policy::Policy;
use model::replication::{Mode, ObjectOperation, SyncPolicy, TransportPolicy};
use model::work::Delegation;
use model::{Digest, Kind};
use serde_json::{Value, json};
use server::CertificateSettings;
use server::api::objects::{Apply, Mapping, ObjectResults, ObjectView, ObjectsView};
use server::api::work::{OutputView, TaskView};
use trust::token::{self, TlsTermination};

use crate::children::{program, without_proxies};
use crate::connect_proxy::HIDDEN;
use crate::fleet::proxy::Forwarder;
use crate::fleet::release::{Objects, Plan, make};
use crate::fleet::{Fleet, Operator};
use crate::wait::until;

/// The one node.
pub const NODE: &str = "web-1";

/// What the release says.
#[derive(Clone)]
pub struct Says {
    pub sync: Option<SyncPolicy>,
    pub policy: Policy,
    pub delegation: Option<Delegation>,
    /// Its leave to synchronize is one of a later version.
    pub unreadable: bool,
    /// What the host is to be.
    pub modules: Vec<Module>,
    /// Contents that they name.
    pub blobs: Vec<Vec<u8>>,
}

/// Objects of kind `Item`, in this mode and folder, over this transport; seconds for everything.
pub fn says(mode: Mode, folder: Option<&str>, transport: TransportPolicy) -> Says {
    let sync = SyncPolicy {
        mode,
        kinds: vec!["Project".to_owned(), "Item".to_owned()],
        folder: folder.map(str::to_owned),
        mismatch: Default::default(),
        max_delete_percent: SyncPolicy::MAX_DELETE_PERCENT,
        operations: Vec::new(),
    };
    let policy = Policy { contact_secs: 1, jitter_percent: 0, transport, ..Policy::default() };
    Says {
        sync: (mode != Mode::Off).then_some(sync),
        policy,
        delegation: None,
        unreadable: false,
        modules: Vec::new(),
        blobs: Vec::new(),
    }
}

impl Says {
    /// These commands may be run.
    pub fn delegating(mut self, commands: &[&[&str]]) -> Says {
        let commands = commands.iter().map(|one| one.iter().map(ToString::to_string).collect());
        let delegation = self.delegation.get_or_insert_default();
        delegation.commands.extend(commands);
        self
    }

    /// Operators may ask this of the node's objects.
    pub fn operating(mut self, operations: &[ObjectOperation]) -> Says {
        self.sync.as_mut().unwrap().operations.extend(operations);
        self
    }

    fn objects(&self) -> Objects {
        let params = Params {
            node: Declared { channel: "stable".to_owned(), ..Declared::default() },
            modules: self.modules.iter().map(|module| module.name.clone()).collect(),
            ..Params::default()
        };
        let bytes = |value: &Value| model::canonical::to_bytes(value).unwrap();
        let of = |kind: &str, name: &str, value: Value| (ObjectKey::of(kind, name), bytes(&value));
        let mut objects = vec![
            of(Kind::PARAMS, "node", serde_json::to_value(&params).unwrap()),
            of(Kind::POLICY, "channel", serde_json::to_value(&self.policy).unwrap()),
        ];
        if self.unreadable {
            objects.push(of(Kind::SYNC, "sync", json!({"mode": "of-a-later-version"})));
        } else {
            let sync = self.sync.iter();
            objects.extend(sync.map(|it| of(Kind::SYNC, "sync", serde_json::to_value(it).unwrap())));
        }
        let modules = self.modules.iter();
        objects.extend(modules.map(|it| of(Kind::MODULE, &it.name, serde_json::to_value(it).unwrap())));
        let delegations = self.delegation.iter();
        objects.extend(delegations.map(|it| of(Kind::DELEGATION, "d", serde_json::to_value(it).unwrap())));
        objects
    }
}

/// A control plane with one joined agent.
pub struct Pair {
    pub fleet: Fleet,
    pub operator: Operator,
    pub dir: PathBuf,
    seq: u64,
    /// What is put before the agent's program, so that it runs somewhere else.
    prefix: Vec<String>,
    /// As which user it runs.
    user: Option<u32>,
    proxy: Option<Forwarder>,
    _temp: tempfile::TempDir,
}

impl Pair {
    /// A fleet whose release says this, and a host that joined it. No daemon runs yet.
    pub async fn new(says: &Says) -> Pair {
        Pair::reaching(says, TlsTermination::ControlPlane).await
    }

    /// The same, whose control plane certifies in this way.
    pub async fn certified(says: &Says, certificates: CertificateSettings) -> Pair {
        Pair::of(Fleet::certifying(certificates).await, says, TlsTermination::ControlPlane).await
    }

    /// The same, whose host reaches the control plane so.
    pub async fn reaching(says: &Says, through: TlsTermination) -> Pair {
        Pair::of(Fleet::start().await, says, through).await
    }

    /// The same, whose host knows the control plane by a name that only this proxy resolves. Nobody has joined yet:
    /// the second value is the token.
    pub async fn hidden(says: &Says, certificates: CertificateSettings) -> (Pair, String) {
        let fleet = Fleet::called(&[HIDDEN], certificates).await;
        let mut claims = fleet.claims(NODE);
        let port = fleet.url().authority().rsplit_once(':').unwrap().1.to_owned();
        claims.servers = vec![format!("https://{HIDDEN}:{port}")];
        let token = token::mint(&claims, &fleet.root_key()).unwrap();
        (Pair::unjoined(fleet, says, TlsTermination::ControlPlane).await, token)
    }

    async fn of(fleet: Fleet, says: &Says, through: TlsTermination) -> Pair {
        let pair = Pair::unjoined(fleet, says, through).await;
        let token = match &pair.proxy {
            None => pair.fleet.token(NODE),
            Some(proxy) => {
                let printed = tokio::task::block_in_place(|| pair.agent(&["fingerprint"]));
                let fingerprint = String::from_utf8(printed.stdout).unwrap().trim().to_owned();
                proxy.token(&pair.fleet, NODE, fingerprint)
            }
        };
        let joined = tokio::task::block_in_place(|| pair.agent(&["join", "--token", &token]));
        assert!(joined.status.success(), "{joined:?}");
        pair
    }

    async fn unjoined(fleet: Fleet, says: &Says, through: TlsTermination) -> Pair {
        let operator = fleet.operator().await;
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("root/etc")).unwrap();
        let proxy = match through {
            TlsTermination::ControlPlane => None,
            TlsTermination::Proxy => Some(Forwarder::start(&fleet).await),
        };
        let mut pair =
            Pair { fleet, operator, dir, seq: 0, prefix: Vec::new(), user: None, proxy, _temp: temp };
        pair.publish(says).await;
        pair
    }

    /// The next release.
    pub async fn publish(&mut self, says: &Says) {
        self.seq += 1;
        let mut plan = Plan::new(&self.fleet.enroll_info().fleet, self.seq).node(NODE, &says.objects());
        plan.contact_secs = says.policy.contact_secs;
        plan.blobs.clone_from(&says.blobs);
        self.operator.publish(&make(&plan, &self.fleet.release_key())).await.unwrap();
    }

    /// From now on the agent runs in a mount namespace of its own, which ends with it.
    pub fn isolate_mounts(&mut self) {
        self.prefix = ["unshare", "--mount"].map(str::to_owned).to_vec();
    }

    /// From now on the agent runs as a user whom permissions bind, not as root.
    pub fn give_up_root(&mut self) {
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.dir, open).unwrap();
        let given = Command::new("chown").args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(&self.dir).status();
        assert!(given.unwrap().success());
        self.user = Some(NOBODY);
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// What [`Pair::agent`] runs.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_at(&self.state(), arguments)
    }

    /// The same, with another state directory.
    pub fn command_at(&self, state: &Path, arguments: &[&str]) -> Command {
        let mut command = match self.prefix.split_first() {
            None => Command::new(program("muster-agent")),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program("muster-agent"));
                command
            }
        };
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command.arg("--state").arg(state).arg("--root").arg(self.root()).arg("--allow-exec");
        command.args(arguments).stdin(Stdio::null());
        without_proxies(&mut command);
        command
    }

    pub fn agent(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn daemon(&self) -> Daemon {
        self.daemon_at(&self.state())
    }

    /// A daemon with another state directory.
    pub fn daemon_at(&self, state: &Path) -> Daemon {
        let log = state.with_extension("log");
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.command_at(state, &["daemon"]);
        command.env("MUSTER_LOG", "debug").env("NO_COLOR", "1");
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Daemon { child: command.spawn().unwrap(), log }
    }

    /// What `muster-agent status --json` says of synchronization.
    pub fn status(&self) -> Value {
        let output = self.agent(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["sync"].clone()
    }

    pub async fn apply(&mut self, manifests: Vec<Value>) -> ObjectResults {
        let node = Some(NODE.to_owned());
        let apply = Apply { manifests, node, mapping: Mapping::Namespace, dry_run: false, trace: None };
        self.operator.post("/v1/objects", &apply).await.unwrap()
    }

    pub async fn objects(&mut self) -> Vec<ObjectView> {
        let page: ObjectsView = self.operator.get("/v1/objects?match=web-1&limit=1000").await.unwrap();
        page.objects
    }

    /// One object with what it says and its status.
    pub async fn object(&mut self, name: &str) -> Option<ObjectView> {
        self.operator.get(&format!("/v1/objects/{NODE}/Item/web/{name}")).await.ok()
    }

    /// Says that one host alone holds the node's key from now on.
    pub async fn resolve_copy(&mut self) {
        let _: Value =
            self.operator.post(&format!("/v1/nodes/{NODE}/resolve-copy"), &json!({})).await.unwrap();
    }

    pub async fn delete(&mut self, name: &str) {
        let asked = json!({"objects": [{"node": NODE, "kind": "Item", "namespace": "web", "name": name}]});
        let _: Value = self.operator.post("/v1/objects-delete", &asked).await.unwrap();
    }

    /// Begins to run a command on the node.
    pub async fn begin(&mut self, argv: &[&str]) -> TaskView {
        self.begin_work(json!({"kind": "command", "argv": argv})).await
    }

    pub async fn begin_work(&mut self, work: Value) -> TaskView {
        let task = json!({"selector": NODE, "work": work, "timeoutSecs": 60, "waitSecs": 600});
        self.operator.post("/v1/tasks", &task).await.unwrap()
    }

    pub async fn task_over(&mut self, id: &str) -> TaskView {
        let path = format!("/v1/tasks/{id}");
        until("the task is over", async || {
            let task: TaskView = self.operator.get(&path).await.unwrap();
            task.finished.is_some().then_some(task)
        })
        .await
    }

    /// What the task's node said of its outcome.
    pub async fn outcome(&mut self, id: &str) -> Value {
        let nodes: Value = self.operator.get(&format!("/v1/tasks/{id}/nodes")).await.unwrap();
        nodes["nodes"][0]["outcome"].clone()
    }

    pub async fn output(&mut self, id: &str) -> String {
        let path = format!("/v1/tasks/{id}/output/{NODE}");
        let pieces: Vec<OutputView> = self.operator.get(&path).await.unwrap_or_default();
        pieces.iter().map(|piece| piece.text.as_str()).collect()
    }
}

/// A manifest of kind `Item`.
pub fn item(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": name}, "spec": {"text": text},
    })
}

/// The daemon; killed when it goes.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell_to_end(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Asks it to end and waits.
    pub async fn end(mut self) -> ExitStatus {
        self.tell_to_end();
        let child = &mut self.child;
        until("the agent ends", async || child.try_wait().unwrap()).await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// The manifest files below a folder, by their names.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// The digest of a text, to name what differs.
pub fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}
