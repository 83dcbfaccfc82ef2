//! A host in memory that carries out jobs, can fail where told, and can be killed at any
//! point; and short forms for modules and runs.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use catalog::module::{CommandLine, Module, OnRemove, Params};
use catalog::types::{Ensure, FileContent, FileSpec, Spec};
use converge::bind::Inputs;
use converge::kinds::{Applied, Checked, Surroundings, custom, exec};
use converge::{
    BoundResource, Desired, FinishedRun, JobDone, JobOutcome, JobWork, Ledger, Pending, Prior, Record,
    ResourceId, Run, RunMode, RunOptions, RunScope, TakeBack, bind,
};
use lang::{Probe, Value};
use model::{Action, Digest, Edit, Fields, PathState, RunReport, Timestamp};
use serde_json::json;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File(String),
    Directory,
    Symlink(String),
}

/// What is on disk beside the host's own state, and survives a kill.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub ledger: Ledger,
    pub pending: Pending,
    pub blobs: BTreeMap<Digest, String>,
    generation: u64,
}

/// What a command of this host prints when it fails.
pub const PRINTED: &str = "it is hunter2";

/// Killed.
#[derive(Debug, PartialEq, Eq)]
pub struct Killed;

#[derive(Clone, Debug, Default)]
pub struct Host {
    pub nodes: BTreeMap<String, Node>,
    /// Packages that are installed.
    pub packages: BTreeSet<String>,
    /// Packages that come with another one, by that one.
    pub drags: BTreeMap<String, String>,
    pub disk: Disk,
    /// `apply ID`, `run COMMAND`, `verify M`, `undo M`, `remove ID`, in order.
    pub log: Vec<String>,
    /// Paths that cannot be written and commands (as text) that fail.
    pub broken: BTreeSet<String>,
    /// `check ID`, `apply ID`: who notified the resource, as its last job said.
    pub notified: BTreeMap<String, Vec<String>>,
    /// No command runs here.
    pub rooted: bool,
    /// Points at which it may be killed before it is.
    pub lives: Option<u32>,
}

impl Host {
    pub fn file(&self, path: &str) -> Option<&str> {
        match self.nodes.get(path)? {
            Node::File(text) => Some(text),
            Node::Directory | Node::Symlink(_) => None,
        }
    }

    pub fn write(&mut self, path: &str, text: &str) {
        self.nodes.insert(path.into(), Node::File(text.into()));
    }

    /// How often a line stands in the log.
    pub fn count(&self, line: &str) -> usize {
        self.log.iter().filter(|logged| *logged == line).count()
    }

    fn tick(&mut self) -> Result<(), Killed> {
        match &mut self.lives {
            None => Ok(()),
            Some(0) => Err(Killed),
            Some(lives) => {
                *lives -= 1;
                Ok(())
            }
        }
    }

    /// Carries out one job; every point at which a process may die is a `tick`.
    fn work(&mut self, work: JobWork) -> Result<JobOutcome, Killed> {
        self.tick()?;
        let outcome = match work {
            JobWork::Probe(Probe::FileExists(path)) => Ok(JobDone::Probed(self.nodes.contains_key(&path))),
            JobWork::Probe(Probe::DirExists(path)) => {
                Ok(JobDone::Probed(self.nodes.get(&path) == Some(&Node::Directory)))
            }
            JobWork::Probe(Probe::CommandSucceeds(_)) if self.rooted => Ok(JobDone::Skipped("rooted".into())),
            JobWork::Probe(Probe::CommandSucceeds(argv)) => {
                let text = argv.join(" ");
                match self.broken.contains(&text) {
                    true => Err(format!("{text} cannot be started").into()),
                    false => Ok(JobDone::Probed(text == "true")),
                }
            }
            JobWork::Probe(Probe::ProcessRunning(name)) => Ok(JobDone::Probed(name == "nginx")),
            JobWork::Probe(Probe::PortListening(port)) => Ok(JobDone::Probed(port == 80)),
            JobWork::Probe(probe) => panic!("the run answers {probe} itself"),
            JobWork::Guard { guard, .. } => {
                let text = exec::command_text(&guard.command);
                self.log.push(format!("ask {text}"));
                match text.strip_prefix("test -e ") {
                    Some(path) => Ok(JobDone::Guarded(self.nodes.contains_key(path))),
                    None if self.broken.contains(&text) => Err(format!("{text} cannot be started").into()),
                    None => Ok(JobDone::Guarded(text == "true")),
                }
            }
            JobWork::Wait { delay } => {
                self.log.push(format!("wait {} s", delay.as_secs()));
                Ok(JobDone::Waited)
            }
            JobWork::Check { resource, plan, notified } => {
                self.hears("check", &resource, &notified);
                self.check(&resource, plan)
            }
            JobWork::Apply { resource, checked, record, notified } => {
                self.hears("apply", &resource, &notified);
                self.persist(record)?;
                self.tick()?;
                self.apply(&resource, &checked)
            }
            JobWork::ApplyTogether { members, record } => {
                self.persist(record)?;
                assert!(members.len() > 1, "one alone is applied by itself");
                let names: Vec<&str> = members.iter().map(|member| member.resource.name.as_str()).collect();
                self.log.push(format!("together {}", names.join(" ")));
                let mut results = Vec::new();
                for member in members {
                    self.tick()?;
                    results.push(self.apply(&member.resource, &member.checked).map(|done| match done {
                        JobDone::Applied(applied) => applied,
                        other => panic!("{other:?}"),
                    }));
                }
                Ok(JobDone::AppliedTogether(results))
            }
            JobWork::Verify { module, command, .. } => {
                self.log.push(format!("verify {module}"));
                self.command(&command).map(|()| JobDone::Verified).map_err(Into::into)
            }
            JobWork::Undo { module, undo } => {
                self.log.push(format!("undo {module}"));
                let mut result = Ok(());
                for undo in undo {
                    self.tick()?;
                    result = result.and(match &undo.prior {
                        Prior::State(before) => self.put_package_back(&undo.path, before.is_some()),
                        Prior::Path(before) => self.restore(&undo.path, before),
                    });
                }
                result.map(|()| JobDone::Undone).map_err(Into::into)
            }
            JobWork::Remove { id, entry, how } => {
                self.log.push(format!("remove {id}"));
                let before = self.nodes.clone();
                let result = match how {
                    _ if self.broken.contains(&entry.path) => Err(PRINTED.to_owned()),
                    OnRemove::Delete => self.restore(&entry.path, &PathState::Missing),
                    _ => self.restore(&entry.path, at_path(&entry.prior)),
                };
                result.map(|()| JobDone::Removed(self.nodes != before)).map_err(Into::into)
            }
            JobWork::Persist { record } => {
                self.persist(record)?;
                Ok(JobDone::Persisted)
            }
        };
        self.tick()?;
        Ok(outcome)
    }

    fn hears(&mut self, job: &str, resource: &BoundResource, notified: &BTreeSet<ResourceId>) {
        let by = notified.iter().map(ToString::to_string).collect();
        self.notified.insert(format!("{job} {}", resource.id), by);
    }

    fn persist(&mut self, record: Record) -> Result<(), Killed> {
        if let Some(path) = &record.keep {
            let text = self.file(path).expect("what is to be kept is a file").to_owned();
            self.disk.blobs.insert(Digest::of(text.as_bytes()), text);
            self.tick()?;
        }
        for (id, entry) in record.put {
            self.disk.ledger.entries.insert(id, entry);
            self.tick()?;
        }
        if let Some(pending) = record.pending.filter(|_| record.generation > self.disk.generation) {
            self.disk.generation = record.generation;
            self.disk.pending = pending;
        }
        for id in record.remove {
            self.tick()?;
            self.disk.ledger.entries.remove(&id);
        }
        Ok(())
    }

    fn prior(&self, path: &str) -> PathState {
        match self.nodes.get(path) {
            None => PathState::Missing,
            Some(Node::File(text)) => PathState::File {
                digest: Digest::of(text.as_bytes()),
                size: text.len() as u64,
                mode: 0o644,
                uid: 0,
                gid: 0,
            },
            Some(Node::Directory) => PathState::Directory { mode: 0o755, uid: 0, gid: 0, empty: true },
            Some(Node::Symlink(target)) => PathState::Symlink { target: target.clone() },
        }
    }

    fn restore(&mut self, path: &str, prior: &PathState) -> Result<(), String> {
        let node = match prior {
            PathState::Missing => {
                self.nodes.remove(path);
                return Ok(());
            }
            PathState::File { digest, .. } => {
                Node::File(self.disk.blobs.get(digest).ok_or("no such blob")?.clone())
            }
            PathState::Directory { .. } => Node::Directory,
            PathState::Symlink { target } => Node::Symlink(target.clone()),
            PathState::Other { what } => return Err(format!("cannot make {what}")),
        };
        self.nodes.insert(path.into(), node);
        Ok(())
    }

    fn put_package_back(&mut self, name: &str, before: bool) -> Result<(), String> {
        match before {
            true => self.packages.insert(name.to_owned()),
            false => self.packages.remove(name),
        };
        Ok(())
    }

    fn check(&mut self, resource: &BoundResource, plan: bool) -> JobOutcome {
        let checked = match resource.spec.as_ref().expect("only what is bound is checked") {
            Spec::Exec(_) | Spec::Custom(_) if self.rooted => return Ok(JobDone::Skipped("rooted".into())),
            Spec::Exec(spec) => {
                let created = spec.creates.as_ref().map(|path| self.nodes.contains_key(path));
                let guards = exec::Guards { created, ..exec::Guards::default() };
                Checked { edit: exec::assess(spec, &guards), ..Checked::in_sync(Checked::NOTHING) }
            }
            Spec::Custom(spec) if plan && spec.dry_run => {
                Checked { edit: Some(custom::edit(spec)), ..Checked::in_sync(Checked::NOTHING) }
            }
            Spec::Custom(_) => Checked::unknown(),
            Spec::Package(spec) => {
                let fields = Fields::from([("status".to_owned(), "installed".to_owned())]);
                match self.packages.contains(&spec.name) {
                    true => Checked::in_sync(Prior::State(Some(fields))),
                    false => Checked::differs(Prior::State(None), Edit::Add { to: fields }),
                }
            }
            Spec::Block(spec) => {
                let path = spec.file.path.clone();
                let fields = Fields::from([("content".to_owned(), spec.name.clone())]);
                match self.file(&path) {
                    Some(text) if text.lines().any(|line| line == spec.name) => {
                        Checked::in_sync(Prior::State(Some(fields)))
                    }
                    there => {
                        let (missing, there) = match there {
                            None => (vec![path], vec![]),
                            Some(_) => (vec![], vec![path]),
                        };
                        let surroundings = Surroundings { missing, there };
                        Checked {
                            surroundings,
                            ..Checked::differs(Prior::State(None), Edit::Add { to: fields })
                        }
                    }
                }
            }
            Spec::Line(spec) => match self.file(&spec.path) {
                None => return Err(format!("{} is missing", spec.path).into()),
                Some(text) if text.lines().any(|line| line == spec.line) => {
                    Checked::in_sync(Prior::Path(self.prior(&spec.path)))
                }
                Some(_) => Checked::differs(
                    Prior::Path(self.prior(&spec.path)),
                    edit(&self.prior(&spec.path), Some(&spec.line)),
                ),
            },
            spec => {
                let (path, wanted) = wanted(spec);
                let prior = self.prior(&path);
                refuse_other_kinds(spec, &prior)?;
                match self.nodes.get(&path) == wanted.as_ref() {
                    true => Checked::in_sync(Prior::Path(prior)),
                    false => Checked::differs(
                        Prior::Path(prior.clone()),
                        edit(&prior, wanted.as_ref().map(|_| "new")),
                    ),
                }
            }
        };
        Ok(JobDone::Checked(checked))
    }

    fn apply(&mut self, resource: &BoundResource, checked: &Checked) -> JobOutcome {
        self.log.push(format!("apply {}", resource.id));
        let result = match resource.spec.as_ref().expect("only what is bound is applied") {
            Spec::Exec(spec) => self.command(&spec.command),
            Spec::Custom(spec) => {
                self.log.push(format!("custom {}", resource.name));
                match spec.params.get("answer").and_then(Value::as_str) {
                    Some("same") => {
                        return Ok(JobDone::Applied(Applied { edit: None, changed: false, output: None }));
                    }
                    Some("fail") => Err("the script said no".to_owned()),
                    _ => Ok(()),
                }
            }
            Spec::Package(spec)
                if self.broken.contains(&spec.name) && !self.packages.contains(&spec.name) =>
            {
                Err(format!("{} cannot be installed", spec.name))
            }
            Spec::Package(spec) => {
                let new = self.packages.insert(spec.name.clone());
                if new {
                    self.packages.extend(self.drags.get(&spec.name).cloned());
                }
                let edit = checked.edit.clone().filter(|_| new);
                return Ok(JobDone::Applied(Applied { edit, changed: new, output: None }));
            }
            Spec::Line(spec) if self.broken.contains(&spec.path) => Err(PRINTED.to_owned()),
            Spec::Block(spec) => {
                let text = self.file(&spec.file.path).unwrap_or_default().to_owned();
                self.write(&spec.file.path, &format!("{text}{}\n", spec.name));
                Ok(())
            }
            Spec::Line(spec) => {
                let text = self.file(&spec.path).unwrap_or_default().to_owned();
                self.write(&spec.path, &format!("{text}{}\n", spec.line));
                Ok(())
            }
            spec => {
                let (path, wanted) = wanted(spec);
                if self.broken.contains(&path) {
                    Err(format!("{path}: read-only"))
                } else {
                    match wanted {
                        Some(node) => drop(self.nodes.insert(path, node)),
                        None => drop(self.nodes.remove(&path)),
                    }
                    Ok(())
                }
            }
        };
        result?;
        Ok(JobDone::Applied(Applied { edit: checked.edit.clone(), changed: true, output: None }))
    }

    fn command(&mut self, command: &CommandLine) -> Result<(), String> {
        let text = exec::command_text(command);
        self.log.push(format!("run {text}"));
        if self.broken.contains(&text) {
            return Err(format!("{text} failed"));
        }
        if let Some(path) = text.strip_prefix("touch ") {
            self.write(path, "");
        }
        Ok(())
    }
}

/// A host leaves what is of another kind alone, unless it may be replaced.
fn refuse_other_kinds(spec: &Spec, prior: &PathState) -> Result<(), String> {
    let replaced = match (spec, prior) {
        (Spec::Directory(spec), PathState::File { .. } | PathState::Symlink { .. }) => {
            spec.in_the_way.replaces()
        }
        (Spec::File(spec), PathState::Directory { empty, .. }) => spec.in_the_way.replaces_directory(*empty),
        (Spec::Symlink(spec), PathState::Directory { empty, .. }) => {
            spec.in_the_way.replaces_directory(*empty)
        }
        _ => true,
    };
    if replaced { Ok(()) } else { Err("something of another kind is in the way".to_owned()) }
}

fn wanted(spec: &Spec) -> (String, Option<Node>) {
    let (path, ensure, node) = match spec {
        Spec::File(spec) => (&spec.path, spec.ensure, Node::File(text(spec))),
        Spec::Directory(spec) => (&spec.path, spec.ensure, Node::Directory),
        Spec::Symlink(spec) => (&spec.path, spec.ensure, Node::Symlink(spec.target.clone())),
        _ => panic!("not a path"),
    };
    (path.clone(), (ensure == Ensure::Present).then_some(node))
}

pub fn text(spec: &FileSpec) -> String {
    match &spec.content {
        Some(FileContent::Text { text, .. }) => text.to_string(),
        Some(FileContent::Bytes { .. } | FileContent::Blob { .. }) => "blob".into(),
        None => String::new(),
    }
}

fn at_path(prior: &Prior) -> &PathState {
    match prior {
        Prior::Path(state) => state,
        Prior::State(_) => panic!("this host has paths alone"),
    }
}

fn edit(prior: &PathState, wanted: Option<&str>) -> Edit<Fields> {
    let fields = |text: &str| Fields::from([("content".to_owned(), text.to_owned())]);
    match (prior, wanted) {
        (PathState::Missing, wanted) => Edit::Add { to: fields(wanted.unwrap_or_default()) },
        (_, Some(wanted)) => Edit::Change { from: fields("old"), to: fields(wanted) },
        (_, None) => Edit::Remove { from: fields("old") },
    }
}

/// A set: modules as JSON, in the order in which a node names them.
#[derive(Clone, Debug, Default)]
pub struct Set {
    pub modules: BTreeMap<String, Arc<Module>>,
    pub params: Params,
    pub traits: Traits,
}

/// What a node observes; a Debian unless said otherwise.
#[derive(Clone, Debug)]
pub struct Traits(pub Value);

impl Default for Traits {
    fn default() -> Traits {
        Traits(serde_json::from_value(json!({"os": {"family": "debian"}})).unwrap())
    }
}

pub fn set(modules: serde_json::Value) -> Set {
    let modules: Vec<Module> = serde_json::from_value(modules).unwrap();
    let mut set = Set::default();
    set.params.modules = modules.iter().map(|module| module.name.clone()).collect();
    set.modules = modules.into_iter().map(|module| (module.name.clone(), Arc::new(module))).collect();
    set
}

impl Set {
    pub fn bind(&self) -> Desired {
        let inputs = Inputs {
            modules: &self.modules,
            params: &self.params,
            hostname: Some("web-1"),
            traits: Some(&self.traits.0),
            own_paths: &[],
            secrets: lang::OpenedSecrets::SEALED,
        };
        bind(&inputs)
    }

    /// One module renamed, dropped or changed.
    pub fn edit(&mut self, module: &str, change: impl FnOnce(&mut Module)) {
        change(Arc::make_mut(self.modules.get_mut(module).unwrap()));
    }
}

pub fn options() -> RunOptions {
    RunOptions {
        max_parallel: 4,
        seq: 1,
        root: Digest::ZERO,
        intended: true,
        started: Timestamp(0),
        scope: RunScope::All,
        east_secs: 0,
        taken_back: TakeBack::Nothing,
    }
}

/// A run to its end or its death; jobs that are out at once are answered in an order that
/// `seed` chooses.
pub fn drive(host: &mut Host, desired: &Desired, mode: RunMode, seed: u64) -> Result<FinishedRun, Killed> {
    drive_in(host, desired, mode, seed, RunScope::All)
}

/// The same within a scope.
pub fn drive_in(
    host: &mut Host,
    desired: &Desired,
    mode: RunMode,
    seed: u64,
    scope: RunScope,
) -> Result<FinishedRun, Killed> {
    drive_by(host, desired, mode, seed, RunOptions { scope, ..options() })
}

/// The same by these options.
pub fn drive_by(
    host: &mut Host,
    desired: &Desired,
    mode: RunMode,
    mut seed: u64,
    options: RunOptions,
) -> Result<FinishedRun, Killed> {
    host.disk.generation = 0;
    let mut run =
        Run::new(desired.clone(), host.disk.ledger.clone(), host.disk.pending.clone(), mode, options);
    let mut out = VecDeque::new();
    let mut now = Timestamp(0);
    loop {
        now.0 += 10;
        out.extend(run.ready(now));
        if out.is_empty() {
            let finished = run.finish().expect("a run without jobs is over");
            assert!(run.finish().is_none(), "a run ends once");
            return Ok(finished);
        }
        let picked = (seed % out.len() as u64) as usize;
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407) >> 1;
        let job = out.remove(picked).unwrap();
        let outcome = host.work(job.what)?;
        run.done(job.id, outcome, now);
    }
}

/// A run that is not killed; what it leaves is what is on disk.
pub fn apply(host: &mut Host, set: &Set) -> RunReport {
    let finished = drive(host, &set.bind(), RunMode::Apply, 0).unwrap();
    assert_eq!(finished.ledger, host.disk.ledger);
    assert_eq!(finished.pending, host.disk.pending);
    finished.report
}

/// A plan; it touches nothing.
pub fn plan(host: &mut Host, set: &Set) -> RunReport {
    let before = (host.nodes.clone(), host.disk.ledger.clone(), host.disk.pending.clone(), host.log.clone());
    let finished = drive(host, &set.bind(), RunMode::Plan, 0).unwrap();
    assert_eq!(
        before,
        (host.nodes.clone(), host.disk.ledger.clone(), host.disk.pending.clone(), host.log.clone())
    );
    finished.report
}

/// The items as `resource action: reason`.
pub fn lines(report: &RunReport) -> Vec<String> {
    let line = |item: &model::ResourceReport| {
        let action = serde_json::to_value(item.action).unwrap();
        let reason = item.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{} {}{reason}", item.resource, action.as_str().unwrap())
    };
    report.items.iter().map(line).collect()
}

/// The action about a resource; `Ok` when the report does not name it.
pub fn action(report: &RunReport, resource: &str) -> Action {
    report.items.iter().find(|item| item.resource == resource).map_or(Action::Ok, |item| item.action)
}

pub fn id(text: &str) -> ResourceId {
    ResourceId::from(text)
}
