//! [`Kinds`]: check and apply, by resource type.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::module::CommandLine;
use catalog::types::{Ensure, Ownership, PackageSpec, Spec};
use converge::kinds::{AccountLookup, Applied, Checked, DEFAULT_FILE_MODE};
use converge::{JobDone, JobFailure, JobOutcome, Prior, RunPurpose};
use host::{
    Accounts, Cancel, End, FileWrite, FinishedCommand, Host, HostError, OWNERSHIP_NOTE, PathProblem, Program,
};
use lang::scope::Probe;
use model::delta::MAX_FIELD;
use model::report::MAX_TEXT;
use model::text::chain;
use model::{Digest, FailureCode, PathOwnership, PathState};

use crate::accounts::KeptAccounts;
use crate::nixos::NixTools;
use crate::package::{Aim, PackageWish, Packages};
use crate::provider::{
    ChangeTurn, ChangeTurns, Decided, Notification, PathProvider, Provider, StateProvider,
};
use crate::query;
use crate::tree::DigestCache;
use crate::undo::undo_note;
use crate::unit_links::UnitLinks;
use crate::{Blobs, custom, exec, state};

/// Why a resource was skipped on a host whose root is not `/` and where none may run.
pub const ROOTED: &str = "confined to a directory (--root)";
/// The largest file, in bytes, of which a part is managed.
pub(crate) const MAX_EDITED: u64 = 16 * 1024 * 1024;
/// How long the command of `command_succeeds` may run.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many bytes of each output of a command are kept to be shown.
pub(crate) const MAX_OUTPUT: usize = 256 * 1024;

/// The resource types over one host. Shared between threads; what several resources share is
/// changed in turns, all else may run side by side.
pub struct Kinds {
    pub(crate) host: Arc<Host>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) turns: Arc<ChangeTurns>,
    pub(crate) packages: Arc<Packages>,
    pub(crate) nix: Arc<NixTools>,
    pub(crate) account_files: Arc<KeptAccounts>,
    pub(crate) digests: Arc<DigestCache>,
    /// Of the run under way.
    purpose: Arc<Mutex<RunPurpose>>,
    pub(crate) unit_links: Arc<UnitLinks>,
}

impl Kinds {
    /// The types over a host, with a store for declared and for previous bytes.
    pub fn new(host: Arc<Host>, blobs: Arc<dyn Blobs>) -> Kinds {
        Kinds {
            host,
            blobs,
            turns: Arc::default(),
            packages: Arc::default(),
            nix: Arc::default(),
            account_files: Arc::default(),
            digests: Arc::default(),
            purpose: Arc::default(),
            unit_links: Arc::default(),
        }
    }

    /// The same types for one job: once the switch is used, they change nothing on the host.
    #[must_use]
    pub fn for_job(&self, switch: Cancel) -> Kinds {
        Kinds {
            host: Arc::new(self.host.for_job(switch)),
            blobs: Arc::clone(&self.blobs),
            turns: Arc::clone(&self.turns),
            packages: Arc::clone(&self.packages),
            nix: Arc::clone(&self.nix),
            account_files: Arc::clone(&self.account_files),
            digests: Arc::clone(&self.digests),
            purpose: Arc::clone(&self.purpose),
            unit_links: Arc::clone(&self.unit_links),
        }
    }

    /// A run begins: the lists of packages may be refreshed once more, and what an earlier one that was
    /// killed kept services from starting with is put back.
    pub fn begin_run(&self, purpose: RunPurpose) {
        *self.purpose.lock().unwrap_or_else(PoisonError::into_inner) = purpose;
        self.begin_package_run();
        self.unit_links.forget();
    }

    pub(crate) fn purpose(&self) -> RunPurpose {
        *self.purpose.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Looks whether the host is as declared; writes nothing. `name` is the resource's,
    /// without module and type. Commands (guards, custom scripts) run for at most
    /// `timeout` each; in a `plan` no custom script runs that does not know dry runs.
    ///
    /// # Errors
    /// In words, when it could not be checked.
    pub fn check(&self, name: &str, spec: &Spec, timeout: Duration, plan: bool) -> JobOutcome {
        self.check_notified(name, spec, timeout, plan, None)
    }

    /// As [`Kinds::check`], of a resource that was notified.
    ///
    /// # Errors
    /// As [`Kinds::check`].
    pub fn check_notified(
        &self,
        name: &str,
        spec: &Spec,
        timeout: Duration,
        plan: bool,
        notification: Option<&Notification>,
    ) -> JobOutcome {
        let provider = Provider::of(spec);
        if !provider.works_here(self) {
            return Ok(JobDone::Skipped(ROOTED.to_owned()));
        }
        let checked = match provider {
            Provider::Path(provider) => return self.check_path(provider),
            Provider::State(provider) => state::check(self, provider, notification)?,
            Provider::Command(spec) => exec::check(self, spec, timeout)?,
            Provider::Script(spec) => custom::check(self, name, spec, timeout, plan)?,
        };
        Ok(JobDone::Checked(checked))
    }

    /// Makes the host as declared and reports what was changed. It looks again first; what
    /// has become right meanwhile is left alone. Commands run for at most `timeout` each.
    ///
    /// # Errors
    /// When it could not be done; what was there is as it was then, except for what a command did.
    pub fn apply(
        &self,
        name: &str,
        spec: &Spec,
        checked: &Checked,
        timeout: Duration,
    ) -> Result<Applied, JobFailure> {
        self.apply_notified(name, spec, checked, timeout, None)
    }

    /// As [`Kinds::apply`], of a resource that was notified.
    ///
    /// # Errors
    /// As [`Kinds::apply`].
    pub fn apply_notified(
        &self,
        name: &str,
        spec: &Spec,
        checked: &Checked,
        timeout: Duration,
        notification: Option<&Notification>,
    ) -> Result<Applied, JobFailure> {
        let provider = Provider::of(spec);
        if !provider.works_here(self) {
            return Err(format!("nothing of the machine is changed here: {ROOTED}").into());
        }
        match provider {
            Provider::Path(provider) => {
                let _turn = provider.turn().map(|turn| self.take_turn(spec, turn));
                self.apply_path(provider, timeout)
            }
            Provider::State(provider) => match spec {
                Spec::Package(spec) => self.apply_packages(&[spec], timeout).remove(0),
                _ => {
                    let _turn = self.take_turn(spec, provider.turn());
                    state::apply(self, provider, notification, timeout)
                }
            },
            Provider::Command(spec) => exec::apply(self, spec, checked, timeout),
            Provider::Script(spec) => custom::apply(self, name, spec, timeout),
        }
    }

    /// What is missing around a thing, as far as that can be looked at.
    pub fn missing_around(&self, spec: &Spec) -> Vec<String> {
        let Provider::State(provider) = Provider::of(spec) else { return Vec::new() };
        state::surroundings(self, provider).map(|around| around.missing).unwrap_or_default()
    }

    /// Makes several resources that are applied together as declared, as [`Kinds::apply`] does for one:
    /// a result for each. Commands run for at most the longest timeout.
    pub fn apply_together(
        &self,
        resources: &[(&str, &Spec, &Checked, Duration)],
    ) -> Vec<Result<Applied, JobFailure>> {
        let packages: Vec<&PackageSpec> = resources
            .iter()
            .filter_map(|(_, spec, _, _)| if let Spec::Package(spec) = spec { Some(spec) } else { None })
            .collect();
        if packages.len() < resources.len() {
            let each = resources.iter();
            return each
                .map(|(name, spec, checked, timeout)| self.apply(name, spec, checked, *timeout))
                .collect();
        }
        let timeout = resources.iter().map(|(_, _, _, timeout)| *timeout).max().unwrap_or_default();
        if packages.iter().any(|spec| !spec.works_here(self)) {
            let skipped = format!("nothing of the machine is changed here: {ROOTED}");
            return packages.iter().map(|_| Err(skipped.clone().into())).collect();
        }
        self.apply_packages(&packages, timeout)
    }

    fn apply_packages(&self, specs: &[&PackageSpec], timeout: Duration) -> Vec<Result<Applied, JobFailure>> {
        let _turn = self.turns.take(ChangeTurn::Packages);
        let wishes: Vec<PackageWish<'_>> =
            specs.iter().map(|spec| PackageWish { spec, aim: Aim::Declared }).collect();
        self.transact(&wishes, timeout)
    }

    /// Runs a module's verify command. Where no command may run there is nothing to ask,
    /// and nothing is refused.
    ///
    /// # Errors
    /// When it did not succeed.
    pub fn verify(&self, command: &CommandLine, timeout: Duration) -> Result<(), JobFailure> {
        if !self.host.exec_allowed() {
            tracing::debug!(reason = ROOTED, "verify skipped");
            return Ok(());
        }
        let command = host::Command::new(program(command), timeout, MAX_OUTPUT);
        let finished = self.host.run(&command).map_err(|error| chain(&error))?;
        match finished.end {
            End::Exited(0) => Ok(()),
            end => Err(because(end, "", failure(end, &finished, timeout))),
        }
    }

    /// Runs a guard of a resource (`only_if`, `not_if`) as root in `/`. Where no command may run
    /// its resource is skipped.
    ///
    /// # Errors
    /// In words, when it could not be started, or did not exit by itself within `timeout`.
    pub fn guard(&self, command: &CommandLine, timeout: Duration) -> JobOutcome {
        if !self.host.exec_allowed() {
            return Ok(JobDone::Skipped(ROOTED.to_owned()));
        }
        let command = host::Command::new(program(command), timeout, MAX_OUTPUT);
        let finished = self.host.run(&command).map_err(|error| chain(&error))?;
        match finished.end {
            End::Exited(code) => Ok(JobDone::Guarded(code == 0)),
            end => Err(because(end, "", failure(end, &finished, timeout))),
        }
    }

    /// Answers a node-side predicate (CFG-3). A path that the host cannot look at is one where
    /// nothing is seen; where no command may run, what waits for one is skipped.
    ///
    /// # Errors
    /// In words, when anything else cannot be told.
    pub fn answer(&self, probe: &Probe) -> JobOutcome {
        if matches!(probe, Probe::CommandSucceeds(_)) && !self.host.exec_allowed() {
            return Ok(JobDone::Skipped(ROOTED.to_owned()));
        }
        match (self.probe(probe), probe) {
            (Err(why), Probe::FileExists(_) | Probe::DirExists(_)) => {
                tracing::warn!(%probe, why, "the host cannot tell");
                Ok(JobDone::Probed(false))
            }
            (answer, _) => Ok(JobDone::Probed(answer?)),
        }
    }

    /// Asks the host about a node-side predicate; time and `changed` are not the host's to
    /// answer.
    ///
    /// # Errors
    /// In words, when the host does not show it.
    pub fn probe(&self, probe: &Probe) -> Result<bool, String> {
        match probe {
            Probe::FileExists(path) => self.host.exists(path).map_err(|error| chain(&error)),
            Probe::DirExists(path) => self.host.is_directory(path).map_err(|error| chain(&error)),
            Probe::CommandSucceeds(argv) => {
                let program = Program::Argv(argv.clone());
                let command = host::Command::new(program, PROBE_TIMEOUT, MAX_OUTPUT);
                let finished = self.host.run(&command).map_err(|error| chain(&error))?;
                match finished.end {
                    End::Exited(code) => Ok(code == 0),
                    end => Err(failure(end, &finished, PROBE_TIMEOUT)),
                }
            }
            Probe::ProcessRunning(name) => query::is_running(&self.host, name),
            Probe::PortListening(port) => query::is_listening(&self.host, *port),
            Probe::Changed(_) | Probe::HourRange { .. } | Probe::DayOfWeek { .. } | Probe::InWindow(_) => {
                Err(format!("`{probe}` is not a question about the host"))
            }
        }
    }

    /// Waits for the turn of a change: that of its file system, where that may not answer.
    pub(crate) fn take_turn(&self, spec: &Spec, turn: ChangeTurn) -> Option<MutexGuard<'_, ()>> {
        if turn == ChangeTurn::Files {
            let mounts = self.mounts_that_may_hang();
            let files = if mounts.is_empty() { Vec::new() } else { self.managed_files(spec) };
            let mount = files.iter().find_map(|file| self.mount_of_path(&mounts, &file.path));
            if let Some(mount) = mount {
                return Some(self.turns.take_at(&mount.path));
            }
        }
        self.turns.take(turn)
    }

    fn check_path(&self, spec: &dyn PathProvider) -> JobOutcome {
        let decided = spec.decide(self)?;
        if spec.needs_command(&decided) && !self.host.exec_allowed() {
            return Ok(JobDone::Skipped(ROOTED.to_owned()));
        }
        let Decided { prior, edit, note, .. } = decided;
        let cannot_undo = edit.as_ref().and_then(|_| undo_note(&prior));
        let note = note.into_iter().chain(cannot_undo).reduce(|a, b| format!("{a}; {b}"));
        Ok(JobDone::Checked(Checked { edit, note, ..Checked::in_sync(Prior::Path(prior)) }))
    }

    fn apply_path(&self, spec: &dyn PathProvider, timeout: Duration) -> Result<Applied, JobFailure> {
        let decided = spec.decide(self)?;
        let changed = decided.edit.is_some();
        if changed {
            spec.act(self, &decided, timeout)?;
        }
        Ok(Applied { edit: decided.edit, changed, output: None })
    }

    /// What is at a path, and what mode and owners are wanted there, with a note.
    pub(crate) fn prior(
        &self,
        path: &str,
        ensure: Ensure,
        ownership: &Ownership,
    ) -> Result<(PathState, PathOwnership, Option<String>), String> {
        let prior = self.look(path)?;
        let (wanted, note) = match ensure {
            Ensure::Present => self.wanted(ownership)?,
            Ensure::Absent => Default::default(),
        };
        Ok((prior, wanted, note))
    }

    pub(crate) fn look(&self, path: &str) -> Result<PathState, String> {
        self.host.look(path).map_err(text)
    }

    /// PathOwnership ownership in numbers, and a note where owner and group are not enforced.
    pub(crate) fn wanted(&self, ownership: &Ownership) -> Result<(PathOwnership, Option<String>), String> {
        let mut wanted = PathOwnership { mode: ownership.mode, uid: None, gid: None };
        if ownership.owner.is_none() && ownership.group.is_none() {
            return Ok((wanted, None));
        }
        if !self.host.enforces_ownership() {
            return Ok((wanted, Some(OWNERSHIP_NOTE.to_owned())));
        }
        if let Some(owner) = &ownership.owner {
            let uid = self.account(|accounts| accounts.uid(owner))?;
            wanted.uid = Some(uid.ok_or_else(|| format!("there is no user `{owner}` on the host"))?);
        }
        if let Some(group) = &ownership.group {
            let gid = self.account(|accounts| accounts.gid(group))?;
            wanted.gid = Some(gid.ok_or_else(|| format!("there is no group `{group}` on the host"))?);
        }
        Ok((wanted, None))
    }

    /// Looks an account up; one that is missing is looked for again, because a resource
    /// of this run may have made it.
    fn account(&self, find: impl Fn(&Accounts) -> Option<u32>) -> Result<Option<u32>, String> {
        let known = self.host.accounts().map_err(text)?;
        if let Some(number) = find(&known) {
            return Ok(Some(number));
        }
        let known = self.host.accounts_now().map_err(text)?;
        Ok(find(&known))
    }

    /// Names for numbers; numbers where the accounts cannot be read.
    pub(crate) fn names(&self) -> AccountNames {
        AccountNames(self.host.accounts().unwrap_or_default())
    }

    /// Makes something where a directory may be: that is set aside first, comes back when the rest fails,
    /// and is gone when it is done.
    pub(crate) fn in_place_of(
        &self,
        path: &str,
        prior: &PathState,
        make: impl FnOnce() -> Result<(), JobFailure>,
    ) -> Result<(), JobFailure> {
        if !matches!(prior, PathState::Directory { .. }) {
            return make();
        }
        let directory = self.host.set_aside(path).map_err(fault)?;
        if let Err(why) = make() {
            self.host.bring_back(path).map_err(|error| format!("{why}; {}", text(error)))?;
            return Err(why);
        }
        self.host.discard_aside(path, directory).map_err(fault)
    }

    /// A file's bytes where they are short enough to be shown.
    pub(crate) fn shown_file(&self, path: &str, prior: &PathState) -> Option<Vec<u8>> {
        match prior {
            PathState::File { size, .. } if *size <= MAX_FIELD as u64 => {
                self.host.read(path, MAX_FIELD as u64).ok().flatten()
            }
            _ => None,
        }
    }

    /// A blob's bytes where they are at hand and short enough to be shown.
    pub(crate) fn shown_blob(&self, digest: &Digest, size: u64) -> Option<Vec<u8>> {
        if size > MAX_FIELD as u64 {
            return None;
        }
        let mut bytes = Vec::new();
        self.blobs.open(digest).ok()?.take(MAX_FIELD as u64).read_to_end(&mut bytes).ok()?;
        (Digest::of(&bytes) == *digest).then_some(bytes)
    }

    /// The text of a file of which a part is managed; `None` when there is no file.
    ///
    /// # Errors
    /// In words, when it cannot be read, is over [`MAX_EDITED`] bytes, is no file, or no UTF-8.
    pub(crate) fn text_file(&self, path: &str) -> Result<Option<String>, String> {
        match self.look(path)? {
            PathState::Missing => return Ok(None),
            PathState::File { .. } => {}
            other => {
                return Err(format!("{path} is not a regular file ({}); it is left alone", other.what()));
            }
        }
        let bytes = self.host.read(path, MAX_EDITED).map_err(text)?.unwrap_or_default();
        let utf8 =
            String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8 text; it is left alone"))?;
        Ok(Some(utf8))
    }

    /// Replaces a file of which a part is managed, as a whole; its mode and owners stay. A new one
    /// gets [`DEFAULT_FILE_MODE`].
    ///
    /// # Errors
    /// When it cannot be written; the file is as it was then.
    pub(crate) fn write_text(&self, path: &str, new: &str) -> Result<(), JobFailure> {
        let write = FileWrite {
            content: &mut new.as_bytes(),
            digest: Digest::of(new.as_bytes()),
            ownership: PathOwnership::default(),
            default_mode: DEFAULT_FILE_MODE,
            backup: false,
            validate: None,
        };
        self.host.write(path, write).map_err(fault)
    }

    /// Replaces a file as a whole, with its mode and owners: what a version of it was.
    ///
    /// # Errors
    /// In words, when it cannot be written; the file is as it was then.
    pub fn write_file(
        &self,
        path: &str,
        content: &mut dyn Read,
        digest: Digest,
        ownership: PathOwnership,
    ) -> Result<(), String> {
        let _turn = self.turns.take(ChangeTurn::Files);
        let default_mode = DEFAULT_FILE_MODE;
        let write = FileWrite { content, digest, ownership, default_mode, backup: false, validate: None };
        self.host.write(path, write).map_err(text)
    }

    /// Opens a declared blob.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Box<dyn Read>, String> {
        self.blobs.open(digest).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("the blob {} has not arrived yet", digest.short()),
            _ => format!("cannot open the blob {}: {error}", digest.short()),
        })
    }
}

/// Names of users and groups from the host's accounts.
pub(crate) struct AccountNames(Arc<Accounts>);

impl AccountLookup for AccountNames {
    fn user(&self, uid: u32) -> String {
        self.0.user_name(uid).map_or_else(|| uid.to_string(), str::to_owned)
    }

    fn group(&self, gid: u32) -> String {
        self.0.group_name(gid).map_or_else(|| gid.to_string(), str::to_owned)
    }
}

/// What to know before a directory is replaced.
pub(crate) fn replaced_note(prior: &PathState) -> Option<String> {
    let full = matches!(prior, PathState::Directory { empty: false, .. });
    full.then(|| "cannot be undone: what is inside the directory is removed for good".to_owned())
}

/// A host's error as one line.
pub(crate) fn text(error: HostError) -> String {
    chain(&error)
}

/// A host's error as a failure: what other hosts may share of it.
pub(crate) fn fault(error: HostError) -> JobFailure {
    let (code, detail) = match &error.source {
        PathProblem::NoSpace | PathProblem::Quota => (FailureCode::DiskFull, ""),
        PathProblem::ReadOnly => (FailureCode::ReadOnly, ""),
        PathProblem::Invalid(_) => (FailureCode::CommandFailed, "validate"),
        _ => return text(error).into(),
    };
    JobFailure::new(code, detail, text(error))
}

/// A command's end as a failure: `what` names the command where several may have ended so, and
/// `message` says it for people.
pub(crate) fn because(end: End, what: &str, message: String) -> JobFailure {
    let (code, how) = match end {
        End::Exited(status) => (FailureCode::CommandFailed, format!("exit status {status}")),
        End::Signaled(signal) => (FailureCode::CommandFailed, format!("signal {signal}")),
        End::TimedOut => (FailureCode::CommandTimedOut, String::new()),
        End::Cancelled => return message.into(),
    };
    JobFailure::new(code, format!("{what} {how}").trim(), message)
}

/// A declared command as a program.
pub(crate) fn program(command: &CommandLine) -> Program {
    match command {
        CommandLine::Argv(argv) => Program::Argv(argv.clone()),
        CommandLine::Shell(text) => Program::Shell(text.clone()),
    }
}

/// The end of a command in words, unless it exited with 0.
pub(crate) fn succeeded(finished: &FinishedCommand, timeout: Duration) -> Result<(), String> {
    match finished.end {
        End::Exited(0) => Ok(()),
        end => Err(failure(end, finished, timeout)),
    }
}

/// Why a command failed, with the end of what it printed.
pub(crate) fn failure(end: End, finished: &FinishedCommand, timeout: Duration) -> String {
    let what = match end {
        End::Exited(code) => format!("exited with {code}"),
        End::Signaled(signal) => format!("was ended by signal {signal}"),
        End::TimedOut => format!("did not end within {} s and was killed", timeout.as_secs_f32()),
        End::Cancelled => "was ended because the agent is stopping".to_owned(),
    };
    match output(finished) {
        Some(output) => format!("{what}: {output}"),
        None => what,
    }
}

/// The end of what a command printed, errors before output, at most [`MAX_TEXT`] bytes.
pub(crate) fn output(finished: &FinishedCommand) -> Option<String> {
    let printed = |output: &host::ProcessOutput| {
        let text = String::from_utf8_lossy(&output.bytes);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let text = printed(&finished.stderr).or_else(|| printed(&finished.stdout))?;
    let from = text.len().saturating_sub(MAX_TEXT);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    Some(text[from..].to_owned())
}
