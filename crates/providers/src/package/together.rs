//! One transaction for several packages; what came of it is each package's own.
//!
//! ```text
//! wait for the lock -> finish what dpkg left -> refresh? -> who differs, by options
//!   each group: dry runs -> answers to questions -> apt-get -> purge
//! -> hold and marks -> look at each again
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::types::{PackageSpec, TransactionOptions};
use converge::kinds::Applied;
use converge::kinds::package::database::PackageDatabase;
use converge::kinds::package::transaction::{
    self, DryRun, DryRunAnswer, Leave, PackageRefusal, TransactionRules,
};
use converge::kinds::package::{self, PackageChange, PackageRequest};
use converge::kinds::state::difference;
use converge::{JobFailure, RunPurpose};
use host::End;
use model::{Edit, FailureCode, Fields};

use super::apt::{AptCommand, AptOutcome};
use super::{locks, services};
use crate::Kinds;
use crate::provider::StateProvider;

/// The most packages in the middle of something that are named.
const MAX_NAMED: usize = 10;

/// A package, and the state that it is to have.
pub(crate) struct PackageWish<'a> {
    pub(crate) spec: &'a PackageSpec,
    pub(crate) aim: Aim<'a>,
}

/// The state that a package is to have.
pub(crate) enum Aim<'a> {
    /// As it is declared.
    Declared,
    /// As it was before.
    State(Option<&'a Fields>),
}

impl PackageWish<'_> {
    fn desired(&self, kinds: &Kinds, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        match self.aim {
            Aim::Declared => self.spec.desired_here(kinds, now),
            Aim::State(to) => Ok(to.cloned()),
        }
    }

    /// How it differs from what it is to be.
    fn difference(&self, kinds: &Kinds) -> Result<Option<Edit<Fields>>, String> {
        let now = self.spec.observe(kinds)?;
        Ok(difference(now.as_ref(), self.desired(kinds, now.as_ref())?.as_ref()))
    }
}

/// A package that is to be changed.
struct Member<'a> {
    /// Which wish it is.
    at: usize,
    spec: &'a PackageSpec,
    change: PackageChange,
    edit: Edit<Fields>,
    group: TransactionGroup,
    /// Why it could not be changed.
    failed: Option<JobFailure>,
    /// What apt-get printed.
    said: Option<Arc<str>>,
}

impl Member<'_> {
    fn fail(&mut self, why: &JobFailure) {
        if self.failed.is_none() {
            self.failed = Some(why.clone());
        }
    }
}

/// What the members of one call of apt-get have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TransactionGroup {
    options: TransactionOptions,
    downgrade: bool,
}

impl TransactionGroup {
    /// What apt may do for these packages; what else is held is `choose`'s to watch.
    fn leave(&self, database: &PackageDatabase, members: &[&str]) -> Leave {
        let held = |name: &&str| database.find(database.printed(name)).is_some_and(|known| known.hold);
        Leave { downgrade: self.downgrade, change_held: members.iter().any(held) }
    }
}

impl Kinds {
    /// Brings packages to where they are to be; the caller holds the turn. One result for each wish.
    pub(crate) fn transact(
        &self,
        wishes: &[PackageWish<'_>],
        timeout: Duration,
    ) -> Vec<Result<Applied, JobFailure>> {
        let deadline = Instant::now() + timeout;
        let unchanged = || Ok(Applied { edit: None, changed: false, output: None });
        match self.prepare_transaction(wishes, deadline) {
            Err(why) => wishes.iter().map(|_| Err(why.clone())).collect(),
            Ok(()) => {
                let mut results: Vec<Result<Applied, JobFailure>> =
                    wishes.iter().map(|_| unchanged()).collect();
                let mut members = Vec::new();
                for (at, wish) in wishes.iter().enumerate() {
                    match self.member(at, wish) {
                        Ok(member) => members.extend(member),
                        Err(why) => results[at] = Err(why.into()),
                    }
                }
                self.change_packages(&mut members, deadline);
                for member in members {
                    let at = member.at;
                    results[at] = self.result(&wishes[at], member);
                }
                results
            }
        }
    }

    /// Nobody else uses the package manager, dpkg is not in the middle of something, the lists are new
    /// enough.
    fn prepare_transaction(&self, wishes: &[PackageWish<'_>], deadline: Instant) -> Result<(), JobFailure> {
        let waits = wishes.iter().map(|wish| self.lock_timeout(wish.spec));
        locks::wait(&self.host, waits.max().unwrap_or_default())?;
        services::put_back(&self.host)?;
        self.finish_interrupted(wishes, deadline)?;
        let mut refresh = false;
        for wish in wishes {
            refresh |= self.needs_lists(wish)?;
        }
        if refresh {
            self.refresh_lists()?;
        }
        Ok(())
    }

    fn needs_lists(&self, wish: &PackageWish<'_>) -> Result<bool, String> {
        let now = wish.spec.observe(self)?;
        let asks = wish.spec.unsure(self)? || {
            let to = wish.desired(self, now.as_ref());
            // A mistake is told where its package is.
            let change = to.and_then(|to| package::change(wish.spec, now.as_ref(), to.as_ref()));
            change.is_ok_and(|change| matches!(change.request, Some(PackageRequest::Install(_))))
        };
        Ok(asks && self.lists_are_old(wish.spec.cache_valid)?)
    }

    /// Lets dpkg finish what it was interrupted in, once.
    fn finish_interrupted(&self, wishes: &[PackageWish<'_>], deadline: Instant) -> Result<(), JobFailure> {
        let database = self.package_database()?;
        if !database.unfinished && database.in_the_middle().is_empty() {
            return Ok(());
        }
        tracing::info!(packages = ?database.in_the_middle(), "dpkg was interrupted; it is asked to finish");
        let arguments = ["--force-confdef", "--force-confold", "--configure", "-a"].map(str::to_owned);
        let _hindered = wishes
            .iter()
            .any(|wish| !wish.spec.options.start_services)
            .then(|| services::hinder(&self.host))
            .transpose()?;
        let outcome = self.run_apt(AptCommand {
            timeout: left(deadline),
            ..AptCommand::new(self.packages.tools().dpkg, arguments)
        })?;
        let database = self.package_database()?;
        let open = database.in_the_middle();
        // What apt can still mend (a package that was unpacked in part) is its to try.
        if !database.unfinished || outcome.succeeded() {
            return Ok(());
        }
        let named: Vec<String> =
            open.iter().take(MAX_NAMED).map(|(name, word)| format!("{name} ({word})")).collect();
        let said = transaction::failure(open.first().map_or("", |(name, _)| name), &outcome.output);
        let left = if named.is_empty() { "its last changes".to_owned() } else { named.join(", ") };
        Err(JobFailure::new(
            FailureCode::PackagesInterrupted,
            &left,
            format!(
                "dpkg was interrupted, and `dpkg --configure -a` does not finish; left are {left}: {said}"
            ),
        ))
    }

    /// What is to be done for a wish; `None` where it is as it is to be.
    fn member<'a>(&self, at: usize, wish: &PackageWish<'a>) -> Result<Option<Member<'a>>, String> {
        let now = wish.spec.observe(self)?;
        let to = wish.desired(self, now.as_ref())?;
        let Some(edit) = difference(now.as_ref(), to.as_ref()) else { return Ok(None) };
        let change = package::change(wish.spec, now.as_ref(), to.as_ref())?;
        // These differ between packages of one transaction.
        let options =
            TransactionOptions { purge: false, lock_timeout: Duration::ZERO, ..wish.spec.options.clone() };
        let downgrade = package::may_downgrade(wish.spec) || matches!(wish.aim, Aim::State(_));
        let group = TransactionGroup { options, downgrade };
        Ok(Some(Member { at, spec: wish.spec, change, edit, group, failed: None, said: None }))
    }

    fn change_packages(&self, members: &mut [Member<'_>], deadline: Instant) {
        let mut groups: Vec<TransactionGroup> = Vec::new();
        for member in members.iter().filter(|member| member.change.request.is_some()) {
            if !groups.contains(&member.group) {
                groups.push(member.group.clone());
            }
        }
        for group in groups {
            let of_it = |member: &&mut Member<'_>| member.group == group && member.change.request.is_some();
            let mut together: Vec<&mut Member<'_>> = members.iter_mut().filter(of_it).collect();
            if let Err(why) = self.change_group(&group, &mut together, deadline).map_err(JobFailure::from) {
                together.iter_mut().for_each(|member| member.fail(&why));
            }
        }
        if let Err(why) = self.set_marks(members).map_err(JobFailure::from) {
            let marked =
                members.iter_mut().filter(|member| member.change.hold.or(member.change.auto).is_some());
            marked.for_each(|member| member.fail(&why));
        }
    }

    /// One call of apt-get for those that it agrees to; who fails says why.
    fn change_group(
        &self,
        group: &TransactionGroup,
        members: &mut [&mut Member<'_>],
        deadline: Instant,
    ) -> Result<(), String> {
        self.agree(group, members)?;
        let mut unanswered = false;
        for member in members.iter_mut().filter(|member| member.failed.is_none()) {
            member.failed = self.answer_questions(member.spec).err().map(JobFailure::from);
            unanswered |= member.failed.is_some();
        }
        if unanswered {
            self.agree(group, members)?;
        }
        if members.iter().all(|member| member.failed.is_some()) {
            return Ok(());
        }
        let hindered = (!group.options.start_services).then(|| services::hinder(&self.host)).transpose()?;
        let output = self.install(group, members, deadline)?;
        drop(hindered);
        let output: Arc<str> = output.into();
        members.iter_mut().for_each(|member| member.said = Some(Arc::clone(&output)));
        let going: Vec<&Member<'_>> =
            members.iter().map(|member| &**member).filter(|member| member.failed.is_none()).collect();
        self.purge(&going, deadline)
    }

    /// Has apt judge those that have not failed, as one transaction; whom it refuses says why.
    fn agree(&self, group: &TransactionGroup, members: &mut [&mut Member<'_>]) -> Result<(), String> {
        let mut refused = self.choose(group, members)?;
        let unknown = refused.iter().any(|(_, refusal)| matches!(refusal, PackageRefusal::Unknown(_)));
        if unknown && !self.refreshed_since_sources()? {
            self.refresh_lists()?;
            refused = self.choose(group, members)?;
        }
        for (at, refusal) in refused {
            let stale =
                matches!(refusal, PackageRefusal::Unknown(_)).then(|| self.refresh_failure()).flatten();
            let words = [Some(refusal.words().to_owned()), stale];
            let code = match refusal {
                PackageRefusal::Unknown(_) => FailureCode::PackageUnknown,
                PackageRefusal::Impossible(_) => FailureCode::PackageRefused,
            };
            let message = words.into_iter().flatten().collect::<Vec<_>>().join("; ");
            members[at].failed = Some(JobFailure::new(code, refusal.words(), message));
        }
        Ok(())
    }

    /// Runs the transaction; archives that cannot be had are left out of a second try, which is judged
    /// as the first was: other lists may bring another plan.
    fn install(
        &self,
        group: &TransactionGroup,
        members: &mut [&mut Member<'_>],
        deadline: Instant,
    ) -> Result<String, String> {
        let mut outcome = self.run_group(group, members, &[], deadline)?;
        if !outcome.succeeded() && transaction::could_not_fetch(&outcome.output) {
            if !self.refreshed_since_sources()? {
                self.refresh_lists()?;
            }
            self.agree(group, members)?;
            if members.iter().any(|member| member.failed.is_none()) {
                let again = self.run_group(group, members, &["--fix-missing"], deadline)?;
                outcome.output.push_str(&again.output);
            }
        }
        if !outcome.succeeded() {
            self.configure_unpacked(group, &mut outcome.output, deadline)?;
        }
        Ok(outcome.output)
    }

    /// Where one package of a transaction cannot be unpacked, apt-get leaves the others unpacked: they are
    /// configured, so that they are as declared whatever became of that one.
    fn configure_unpacked(
        &self,
        group: &TransactionGroup,
        output: &mut String,
        deadline: Instant,
    ) -> Result<(), String> {
        let database = self.package_database()?;
        let unpacked = database.in_the_middle().into_iter().filter(|(_, word)| *word == "unpacked");
        let names: Vec<String> = unpacked.map(|(name, _)| name.to_owned()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let conffiles = if group.options.replace_conffiles { "--force-confnew" } else { "--force-confold" };
        let options = ["--force-confdef", conffiles, "--configure"].map(str::to_owned);
        let configured = self.run_apt(AptCommand {
            timeout: left(deadline),
            replace_conffiles: group.options.replace_conffiles,
            ..AptCommand::new(self.packages.tools().dpkg, options.into_iter().chain(names))
        })?;
        output.push_str(&configured.output);
        Ok(())
    }

    /// One call of apt-get for those that have not failed.
    /// How long it is waited until nobody else uses the package manager: not at all in a repair, until whose
    /// end nothing else is repaired.
    fn lock_timeout(&self, spec: &PackageSpec) -> Duration {
        match self.purpose() {
            RunPurpose::Converge => spec.options.lock_timeout,
            RunPurpose::Repair => Duration::ZERO,
        }
    }

    fn run_group(
        &self,
        group: &TransactionGroup,
        members: &[&mut Member<'_>],
        also: &[&str],
        deadline: Instant,
    ) -> Result<AptOutcome, String> {
        let database = self.package_database()?;
        let going: Vec<&Member<'_>> =
            members.iter().map(|member| &**member).filter(|member| member.failed.is_none()).collect();
        let requests = requests(going.iter().copied());
        let names: Vec<&str> = requests.iter().map(|(name, _)| *name).collect();
        let leave = group.leave(&database, &names);
        let lock_secs = going.iter().map(|member| self.lock_timeout(member.spec).as_secs()).max();
        let arguments =
            transaction::arguments(&group.options, leave, lock_secs.unwrap_or_default(), &requests);
        // What the dry run agreed to removes nothing, so nothing may be removed.
        let removes = group.options.allow_removals
            || requests.iter().any(|(_, request)| **request == PackageRequest::Remove);
        let kept = (!removes).then_some("--no-remove");
        let also = kept.into_iter().chain(also.iter().copied()).map(str::to_owned);
        self.run_apt(AptCommand {
            timeout: left(deadline),
            replace_conffiles: group.options.replace_conffiles,
            ..AptCommand::new(self.packages.tools().apt_get, also.chain(arguments))
        })
    }

    /// Removes the configuration of what is gone and declared to be purged.
    fn purge(&self, going: &[&Member<'_>], deadline: Instant) -> Result<(), String> {
        let database = self.package_database()?;
        let left_over =
            |name: &str| database.find(name).is_some_and(|known| known.status.word() == "config-files");
        let names: Vec<String> = going
            .iter()
            .filter(|member| member.spec.options.purge && member.failed.is_none())
            .filter(|member| {
                member.change.request == Some(PackageRequest::Remove) && left_over(&member.spec.name)
            })
            .map(|member| member.spec.name.clone())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let arguments = ["--purge".to_owned()].into_iter().chain(names);
        let command =
            AptCommand { timeout: left(deadline), ..AptCommand::new(self.packages.tools().dpkg, arguments) };
        // What is left is seen when each is looked at again.
        self.run_apt(command).map(drop)
    }

    /// Whom apt refuses of those that have not failed, by their place among all, and why.
    fn choose(
        &self,
        group: &TransactionGroup,
        members: &[&mut Member<'_>],
    ) -> Result<Vec<(usize, PackageRefusal)>, String> {
        let (places, members): (Vec<usize>, Vec<&Member<'_>>) =
            (0..).zip(members).filter(|(_, m)| m.failed.is_none()).map(|(at, m)| (at, &**m)).unzip();
        let names: Vec<&str> = members.iter().map(|member| member.spec.name.as_str()).collect();
        let database = self.package_database()?;
        let held = |name: &str| database.find(database.printed(name)).is_some_and(|known| known.hold);
        let mut dry_run = |some: &[usize]| -> DryRunAnswer {
            let requests = requests(some.iter().map(|at| members[*at]));
            let names: Vec<&str> = requests.iter().map(|(name, _)| *name).collect();
            let leave = group.leave(&database, &names);
            let arguments = transaction::arguments(&group.options, leave, 0, &requests);
            let simulated = ["-s".to_owned()].into_iter().chain(arguments);
            let finished = self.ask_apt(AptCommand::new(self.packages.tools().apt_get, simulated))?;
            if finished.stdout.total > finished.stdout.bytes.len() as u64 {
                return Err(
                    "apt-get says more of what it would do than is read; declare fewer packages".to_owned()
                );
            }
            let stdout = String::from_utf8_lossy(&finished.stdout.bytes);
            Ok(match finished.end {
                End::Exited(0) => Ok(transaction::dry_run(&stdout)),
                End::Exited(_) => {
                    Err(transaction::words(&stdout, &String::from_utf8_lossy(&finished.stderr.bytes)))
                }
                end => Err(crate::kinds::failure(end, &finished, super::apt::QUESTION_TIMEOUT)),
            })
        };
        let judge = |some: &[usize], plan: &DryRun| {
            let of = |wanted: &dyn Fn(&PackageChange) -> bool, name: &str| {
                let same = |at: &usize| database.printed(names[*at]) == database.printed(name);
                some.iter().any(|at| same(at) && wanted(&members[*at].change))
            };
            let rules = TransactionRules {
                declared: &|name| of(&|_| true, name),
                absent: &|name| of(&|change| change.request == Some(PackageRequest::Remove), name),
                held: &held,
                removals: group.options.allow_removals,
            };
            rules.refuse(plan)
        };
        let refused = transaction::choose(&names, &mut dry_run, &judge)?.refused;
        Ok(refused.into_iter().map(|(at, refusal)| (places[at], refusal)).collect())
    }

    /// Gives debconf the answers of a package; they are in no argument and no error.
    fn answer_questions(&self, spec: &PackageSpec) -> Result<(), String> {
        if spec.responses.is_empty() {
            return Ok(());
        }
        let (package, _) = spec.name.split_once(':').unwrap_or((&spec.name, ""));
        let lines: String = spec.responses.iter().map(|response| format!("{package} {response}\n")).collect();
        let command =
            AptCommand { stdin: lines.into_bytes(), ..AptCommand::new(self.packages.tools().debconf, []) };
        let finished = self.ask_apt(command)?;
        match finished.end {
            End::Exited(0) => Ok(()),
            End::Exited(code) => Err(format!("responses: debconf-set-selections exited with {code}")),
            _ => Err("responses: debconf-set-selections did not end by itself".to_owned()),
        }
    }

    /// Sets what upgrades pass by, and what counts as wanted for itself.
    fn set_marks(&self, members: &[Member<'_>]) -> Result<(), String> {
        let tools = self.packages.tools();
        let database = self.package_database()?;
        let there =
            |member: &&Member<'_>| database.find(&member.spec.name).is_some() && member.failed.is_none();
        let held = members.iter().filter(there).filter_map(|member| {
            let word = if member.change.hold? { "hold" } else { "install" };
            Some(format!("{} {word}\n", member.spec.name))
        });
        let selections: String = held.collect();
        if !selections.is_empty() {
            let arguments = ["--set-selections".to_owned()];
            let command =
                AptCommand { stdin: selections.into_bytes(), ..AptCommand::new(tools.dpkg, arguments) };
            self.must_apt("dpkg --set-selections", command)?;
        }
        for (auto, word) in [(false, "manual"), (true, "auto")] {
            let marked = members.iter().filter(there).filter(|member| member.change.auto == Some(auto));
            // What apt-get was asked to install is marked already.
            let marked = marked.filter(|member| database.is_auto(&member.spec.name) != auto);
            let names: Vec<String> = marked.map(|member| member.spec.name.clone()).collect();
            if !names.is_empty() {
                let arguments = [word.to_owned()].into_iter().chain(names);
                self.must_apt("apt-mark", AptCommand::new(tools.apt_mark.clone(), arguments))?;
            }
        }
        Ok(())
    }

    fn result(&self, wish: &PackageWish<'_>, member: Member<'_>) -> Result<Applied, JobFailure> {
        if let Some(why) = member.failed {
            return Err(why);
        }
        match wish.difference(self)? {
            None => Ok(Applied { edit: Some(member.edit), changed: true, output: self.refresh_failure() }),
            Some(left) => {
                let said = member.said.map(|said| transaction::failure(&wish.spec.name, &said));
                let differs = format!("it still differs: {}", crate::state::summary(&left));
                let code = said.as_deref().map_or(FailureCode::PackageFailed, failed_by);
                let full = (code == FailureCode::DiskFull).then(|| format!("the disk is full; {differs}"));
                let first = full.unwrap_or(differs);
                let message = [first].into_iter().chain(said).collect::<Vec<_>>().join("\n");
                Err(JobFailure::new(code, "", message))
            }
        }
    }
}

/// What other hosts may share of a package that is not as it should be after the transaction.
fn failed_by(said: &str) -> FailureCode {
    match transaction::lacks_space(said) {
        true => FailureCode::DiskFull,
        false => FailureCode::PackageFailed,
    }
}

fn requests<'a>(members: impl Iterator<Item = &'a Member<'a>>) -> Vec<(&'a str, &'a PackageRequest)> {
    members.filter_map(|member| Some((member.spec.name.as_str(), member.change.request.as_ref()?))).collect()
}

/// What is left of the time.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1))
}
