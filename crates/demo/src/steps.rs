//! The demo's steps: each polls a condition until it is seen, or its time is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::Action;
use model::status::Overall;
use model::text::printable;
use server::Credentials;
use server::api::{self, History, NodeView};
use store::RunRecord;
use trust::token::KeySource;

use crate::agents::Agent;
use crate::board::Board;
use crate::dirs::DemoDir;
use crate::error::DemoError;
use cli::clock::now;
use cli::credentials::{self, MintFiles};
use cli::failure::Failure;
use cli::folder::RepoFolder;
use cli::operator::{Operator, OperatorCallError};
use cli::publish::Publisher;
use cli::run;
use cli::screen::Screen;
use cli::token::{self, MintError, MintRequest};

/// The nodes that are joined: two that converge, and one that only observes.
pub(super) const NODES: [&str; 3] = ["web-1.demo", "web-2.demo", OBSERVER];
/// Its group only observes, and its objects are its own.
pub(super) const OBSERVER: &str = "lab-1.demo";
/// Its file is edited behind the agent's back.
pub(super) const VICTIM: &str = "web-1.demo";
/// The file.
const MOTD: &str = "etc/motd";
/// How long a step may take until it is seen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Lines of what a command prints that are shown.
const SHOWN_LINES: usize = 24;
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(150);

/// A demo under way.
pub struct Demo<'a> {
    pub dirs: &'a DemoDir,
    pub program: &'a Path,
    pub board: Board,
    pub agents: Vec<Agent>,
}

impl Demo<'_> {
    /// Shows everything.
    pub async fn show(&mut self, fleet: Option<&Path>) -> Result<(), Failure> {
        let began = Instant::now();
        self.dirs.copy_fleet(fleet)?;
        let path = self.dirs.control().join("operator.json");
        let (_, credentials) = credentials::operator(Some(&path))?;
        let operator = Operator::dial(&credentials).await?;
        self.board.say(&format!("muster demo in {}\n", self.dirs.dir().display()))?;
        self.board.done("a control plane serves on loopback, in lab posture", began.elapsed())?;
        self.join(&operator).await?;
        let step = "the fleet repo was checked, signed and published";
        self.publish_as(step, credentials.clone()).await?;
        self.converge(&operator).await?;
        self.observe(&operator).await?;
        self.heal(&operator).await?;
        self.objects_down(&operator).await?;
        self.objects_up(&operator).await?;
        self.task(&operator).await?;
        self.query(&operator).await?;
        self.bad_release(&operator, credentials).await
    }

    async fn join(&mut self, operator: &Operator) -> Result<(), Failure> {
        let began = Instant::now();
        let (root, info) = MintFiles::of_dir(&self.dirs.control()).read()?;
        for name in NODES {
            let request = MintRequest {
                hostname: name.parse().map_err(MintError::Hostname)?,
                fingerprint: None,
                valid: Duration::from_secs(600),
                key: KeySource::Own,
                proxies: Vec::new(),
                replaces: None,
            };
            let token = token::mint(&request, &info, &root, now())?;
            let host = self.dirs.host(name)?;
            self.agents.push(Agent::join(self.program, name, host, &token).await?);
        }
        let step = "three hosts joined, each with its own token";
        let seen = |nodes: &[NodeView]| nodes.len() == NODES.len();
        self.until(operator, step, seen).await?;
        Ok(self.board.done(step, began.elapsed())?)
    }

    /// Publishes the fleet repo as it is.
    pub(super) async fn publish_as(&mut self, step: &str, credentials: Credentials) -> Result<(), Failure> {
        let began = Instant::now();
        let operator = self.dirs.control().join("operator.json");
        let key = credentials::release_key(None, &operator)?;
        let mut publisher = Publisher::connect(credentials, [key]).await?;
        let prepared = publisher.take(RepoFolder::open(&self.dirs.fleet())?.scan()?).await?;
        let changed = publisher.compare(&prepared).await?;
        let published = publisher.publish(&prepared, Some("demo".to_owned()), changed).await?;
        let step = format!("{step} as release {}", published.seq);
        Ok(self.board.done(&step, began.elapsed())?)
    }

    async fn converge(&mut self, operator: &Operator) -> Result<(), Failure> {
        let began = Instant::now();
        for agent in &mut self.agents {
            agent.start(self.program)?;
        }
        let step = "two nodes converged, each to its own set";
        let converged = |nodes: &[NodeView]| {
            nodes
                .iter()
                .filter(|node| node.hostname.as_str() != OBSERVER)
                .all(|node| node.state == Overall::Converged)
        };
        self.until(operator, step, converged).await?;
        let set = |name: &str| self.root_of(name).map(|root| root.join("etc/nginx/conf.d/demo.conf"));
        for name in [NODES[0], NODES[1]] {
            let site = set(name).and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
            if !site.contains(name) {
                let so_far = format!("{name} says that it converged, and its nginx site is not there");
                return Err(DemoError::not_seen(step, so_far).into());
            }
        }
        let zone = self.root_of(VICTIM).and_then(|root| fs::read_to_string(root.join("etc/timezone")).ok());
        if zone.is_none() {
            let so_far = format!("the custom executor of {VICTIM} left no etc/timezone");
            return Err(DemoError::not_seen(step, so_far).into());
        }
        self.board.done(step, began.elapsed())?;
        Ok(self.board.done("a custom executor ran and set the time zone", Duration::ZERO)?)
    }

    async fn observe(&mut self, operator: &Operator) -> Result<(), Failure> {
        let began = Instant::now();
        let step = format!("{OBSERVER} only observes: it says what would change, and nothing was changed");
        let observing = |nodes: &[NodeView]| {
            nodes.iter().any(|node| node.hostname.as_str() == OBSERVER && node.state == Overall::WouldChange)
        };
        self.until(operator, &step, observing).await?;
        if self.root_of(OBSERVER).is_some_and(|root| root.join(MOTD).exists()) {
            let so_far = format!("{OBSERVER} has an {MOTD}, and should have touched nothing");
            return Err(DemoError::not_seen(&step, so_far).into());
        }
        self.board.done(&step, began.elapsed())?;
        self.show_run(operator, OBSERVER, |_| true).await
    }

    /// Edits a managed file behind the agent's back and sees it put right, and reported.
    async fn heal(&mut self, operator: &Operator) -> Result<(), Failure> {
        let Some(motd) = self.root_of(VICTIM).map(|root| root.join(MOTD)) else { return Ok(()) };
        let good = fs::read_to_string(&motd).map_err(DemoError::using(&motd))?;
        self.board.say(&format!("\n    echo 'somebody was here' > {}", motd.display()))?;
        let began = Instant::now();
        fs::write(&motd, "somebody was here\n").map_err(DemoError::using(&motd))?;
        let step = format!("{VICTIM} put {MOTD} right by itself");
        let healed = |_: &[NodeView]| fs::read_to_string(&motd).is_ok_and(|text| text == good);
        self.until(operator, &step, healed).await?;
        self.board.done(&step, began.elapsed())?;
        let began = Instant::now();
        let step = "the control plane knows the run that put it right";
        let known = async |_: &mut Board| {
            let runs = runs(operator, VICTIM).await?;
            let so_far = format!("{} runs of {VICTIM} are known", runs.len());
            Ok(if runs.iter().any(is_healing) { Ok(()) } else { Err(so_far) })
        };
        self.see(step, known).await?;
        self.board.done(step, began.elapsed())?;
        self.show_run(operator, VICTIM, is_healing).await
    }

    /// Prints the newest run of a node that is meant.
    async fn show_run(
        &mut self,
        operator: &Operator,
        name: &str,
        meant: impl Fn(&RunRecord) -> bool,
    ) -> Result<(), Failure> {
        let runs = runs(operator, name).await?;
        let Some(found) = runs.iter().find(|found| meant(found)) else { return Ok(()) };
        let text = run::show(found, name, None, Screen::of_process(false));
        self.shown(&format!("muster run show {name}"), &text)
    }

    pub(super) fn root_of(&self, name: &str) -> Option<PathBuf> {
        self.agents.iter().find(|agent| agent.name == name).map(|agent| agent.dirs.root.clone())
    }

    /// Polls until something is seen: what it is, or what was seen instead so far.
    pub(super) async fn see<T>(
        &mut self,
        step: &str,
        look: impl AsyncFn(&mut Board) -> Result<Result<T, String>, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let so_far = match look(&mut self.board).await? {
                Ok(seen) => return Ok(seen),
                Err(so_far) => so_far,
            };
            if let Some(agent) = self.agents.iter_mut().find_map(|it| it.ended().map(|_| &it.name)) {
                return Err(DemoError::not_seen(step, format!("the agent of {agent} has ended")).into());
            }
            if Instant::now() >= deadline {
                return Err(DemoError::not_seen(step, so_far).into());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Shows what a command prints.
    pub(super) fn shown(&mut self, command: &str, printed: &str) -> Result<(), Failure> {
        // Parts of it come from nodes.
        let indented: String = printable(printed)
            .lines()
            .take(SHOWN_LINES)
            .map(|line| format!("    {line}").trim_end().to_owned() + "\n")
            .collect();
        Ok(self.board.say(&format!("\n    $ {command}\n{indented}"))?)
    }

    /// Polls the nodes, and shows them, until the condition holds.
    async fn until(
        &mut self,
        operator: &Operator,
        step: &str,
        seen: impl Fn(&[NodeView]) -> bool,
    ) -> Result<(), Failure> {
        let look = async |board: &mut Board| {
            let nodes = operator.all(&api::NODES, None).await?;
            board.nodes(&nodes)?;
            Ok(if seen(&nodes) { Ok(()) } else { Err(states(&nodes)) })
        };
        self.see(step, look).await
    }

    /// What to try next, with this demo's paths.
    pub fn next_steps(&self) -> String {
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("muster"));
        let (muster, agent) = (own.display(), self.program.display());
        let (control, fleet) = (self.dirs.control(), self.dirs.fleet());
        let (control, fleet) = (control.display(), fleet.display());
        let host = self.dirs.dir().join("hosts").join(VICTIM);
        let (host, objects) = (host.display(), self.dirs.manifests());
        let objects = objects.display();
        format!(
            "\nTry next:\n\
             \x20 export MUSTER_OPERATOR={control}/operator.json\n\
             \x20 {muster} status\n\
             \x20 {muster} node show {VICTIM}\n\
             \x20 {muster} run list\n\
             \x20 {muster} render {VICTIM} --repo {fleet}\n\
             \n\
             \x20 edit {fleet}/modules/base/templates/motd.j2, then\n\
             \x20 {muster} check {fleet}\n\
             \x20 {muster} diff --repo {fleet}\n\
             \x20 {muster} publish --repo {fleet}\n\
             \n\
             \x20 echo oops > {host}/root/etc/motd\n\
             \x20 cat {host}/root/etc/motd\n\
             \x20 {agent} --state {host}/state --root {host}/root status\n\
             \n\
             \x20 edit {objects}/shop.yaml, then\n\
             \x20 {muster} object diff -f {objects}\n\
             \x20 {muster} object apply -f {objects}\n\
             \x20 {muster} object status\n\
             \x20 {muster} task run '**' -- /usr/bin/uptime\n\
             \x20 {muster} query '**' processes\n\
             \n\
             \x20 {muster} help posture\n"
        )
    }
}

/// The newest runs of a node.
async fn runs(operator: &Operator, name: &str) -> Result<Vec<RunRecord>, OperatorCallError> {
    let asked = History { node: Some(name.to_owned()), before: None, limit: 20.into() };
    operator.call(&api::RUNS, asked).await
}

/// A run that put the edited file right, without the set having changed.
fn is_healing(run: &RunRecord) -> bool {
    let healed = |item: &model::ResourceReport| {
        item.action == Action::Changed && item.resource.ends_with("file:/etc/motd")
    };
    !run.report.intended && run.report.items.iter().any(healed)
}

fn states(nodes: &[NodeView]) -> String {
    let one = |node: &NodeView| match &node.cause {
        Some(cause) => format!("{} is {} ({cause})", node.hostname, node.state),
        None => format!("{} is {}", node.hostname, node.state),
    };
    nodes.iter().map(one).collect::<Vec<_>>().join(", ")
}
