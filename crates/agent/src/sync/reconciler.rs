//! [`ObjectReconciler`]: the thread that owns the backend of the users' objects and writes both sets.
//!
//! ```text
//! link ----batch-----+                     +--> backend: apply, correct, request an operation
//! work ----operation-+
//! folder --changed---+--> Mailbox --> thread
//! release --policy---+                     +--> AgentSets: one durable write a batch, then the answer
//! ```
//!
//! Invariants: one thread applies the batches of links and reconciles what users change (managed:
//! it is put right; autonomous: it goes up), so that neither is taken for the other; what it
//! answers is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::reconcile::LastApplied;
use backends::{Backend, ListingProblem};
use bytes::Bytes;
use host::SpawnCompactly;
use model::collect::CollectInserting;
use model::condition::NodeProblem;
use model::replication::{Mode, SyncPolicy};
use model::{Kind, ObjectKey};
use sync::admission::REINCARNATION_INTERVAL;
use sync::backoff::Backoff;
use sync::frame::Op;
use sync::link::{ApplyBatch, ItemOutcome, NotDurable};
use sync::object;
use tokio::sync::{oneshot, watch};

use super::SyncContext;
use super::autonomous::Vanishing;
use super::mailbox::Mailbox;
use super::sets::OwnChange;
use super::view::watched;
use crate::render::chain;
use crate::state::StateError;

/// The thread looks at least so often what is due.
const LOOK: Duration = Duration::from_secs(60);
/// How often an approval is looked for while something is held back.
const HELD: Duration = Duration::from_secs(2);
/// How soon the backend is reconciled after objects came under another uid.
pub(super) const SOON: Duration = Duration::from_secs(1);
/// The stack of the threads here, in bytes.
const STACK: usize = 1024 * 1024;
/// An operator approved that vanished objects are deleted: a file in the state directory.
const APPROVED: &str = "approve-deletes";

/// Takes the Action objects that came, and those that are gone. Both may wait while it has much
/// to do.
pub trait ActionSink: Send + Sync {
    /// An action came or changed.
    fn put(&self, id: &str, content: Bytes);
    /// An action is gone.
    fn removed(&self, id: &str);
}

/// What links go by.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRules {
    /// Changes with everything that links go by.
    pub number: u64,
    /// What the held release says.
    pub policy: SyncPolicy,
}

/// The way to the thread, which ends with the last of them. Cheap to clone.
#[derive(Clone)]
pub struct ObjectReconciler {
    mailbox: Arc<MailboxCloser>,
    rules: watch::Receiver<LinkRules>,
}

/// Closes the mailbox with the last handle.
struct MailboxCloser(Arc<Mailbox>);

impl Drop for MailboxCloser {
    fn drop(&mut self) {
        self.0.post(|waiting| waiting.closed = true);
    }
}

pub(super) struct Reconciler {
    pub(super) context: Arc<SyncContext>,
    pub(super) policy: SyncPolicy,
    /// A policy that could not be gone by yet.
    pending: Option<SyncPolicy>,
    pub(super) kinds: BTreeSet<Kind>,
    pub(super) opened: OpenedBackend,
    /// All that the control plane wants is known: what else is marked may go (managed).
    pub(super) complete: bool,
    /// When the backend is reconciled without an event.
    reconcile_at: Option<Instant>,
    /// The waits before a reconciliation that failed is repeated.
    backoff: Backoff,
    /// When the own set began its incarnation anew.
    reincarnated: Option<Instant>,
    rules: watch::Sender<LinkRules>,
}

/// A backend, and what is known of its objects since it was opened.
#[derive(Default)]
pub(super) struct OpenedBackend {
    pub(super) backend: Option<Box<dyn Backend>>,
    /// Why there is none.
    pub(super) unusable: Option<String>,
    /// How it is called in problems.
    pub(super) name: String,
    /// What was put last. Not kept over a restart: what is found then is compared itself.
    pub(super) applied: BTreeMap<ObjectKey, LastApplied>,
    /// An object was found.
    pub(super) seen: bool,
    /// What is vanishing (autonomous).
    pub(super) vanishing: Vanishing,
    /// Vanished objects are held back (autonomous).
    pub(super) held: Option<NodeProblem>,
}

impl ObjectReconciler {
    /// Starts the thread. `policy` is what the held release says; `None`: nothing.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn start(
        context: &Arc<SyncContext>,
        policy: Option<SyncPolicy>,
    ) -> Result<ObjectReconciler, StateError> {
        let mailbox = context.operations.mailbox();
        let (rules, current) = watch::channel(LinkRules { number: 0, policy: SyncPolicy::default() });
        let mut worker = Reconciler {
            context: context.clone(),
            policy: SyncPolicy::default(),
            pending: None,
            kinds: BTreeSet::new(),
            opened: OpenedBackend::default(),
            complete: false,
            reconcile_at: None,
            backoff: Backoff::new(0),
            reincarnated: None,
            rules,
        };
        let handle = ObjectReconciler { mailbox: Arc::new(MailboxCloser(mailbox.clone())), rules: current };
        handle.held(policy);
        let view = context.view.clone();
        let builder = std::thread::Builder::new().name("muster objects".to_owned()).stack_size(STACK);
        let thread = builder.spawn_compactly(move || {
            watched(&view, "objects", "objects are not synchronized", move || worker.run(&mailbox));
        });
        thread.map_err(StateError::Thread)?;
        Ok(handle)
    }

    /// What links go by; number 0 until that is known.
    pub fn rules(&self) -> watch::Receiver<LinkRules> {
        self.rules.clone()
    }

    /// Another release is held; `None`: it says nothing of synchronization.
    pub fn held(&self, policy: Option<SyncPolicy>) {
        self.mailbox.0.post(|waiting| waiting.policy = Some(policy.unwrap_or_default()));
    }

    /// An operator at the control plane approves that what vanished here is deleted.
    pub fn approve(&self) {
        self.mailbox.0.post(|waiting| waiting.approved = true);
    }

    /// Both sides compared what the control plane wants under rules of this number, and it is
    /// equal.
    pub fn equal(&self, of: u64) {
        self.mailbox.0.post(|waiting| waiting.in_sync = Some(of));
    }

    /// Applies a batch that came under rules of this number, and makes it durable.
    ///
    /// # Errors
    /// Nothing of it is durable.
    pub async fn apply(&self, batch: Arc<ApplyBatch>, of: u64) -> Result<Vec<ItemOutcome>, NotDurable> {
        let applied = self.run(move |reconciler| reconciler.batch(&batch, of)).await;
        let gone = || NotDurable("the agent's thread of objects has ended, or has too much to do".to_owned());
        applied.unwrap_or_else(|| Err(gone()))
    }

    /// Begins the own set in a new incarnation.
    ///
    /// # Errors
    /// How long it is until that may be done again.
    pub async fn reincarnate(&self) -> Result<(), Duration> {
        self.run(Reconciler::reincarnate).await.unwrap_or(Ok(()))
    }

    /// Has the thread do a job; `None` when it does not.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Reconciler) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, done) = oneshot::channel();
        // The link that waits for it may be gone.
        self.mailbox.0.run(move |reconciler| drop(answer.send(job(reconciler))));
        done.await.ok()
    }
}

/// An operator approves that what vanished is deleted. Good for one reconciliation.
///
/// # Errors
/// When it cannot be written.
pub fn approve(state: &Path) -> std::io::Result<()> {
    std::fs::write(state.join(APPROVED), b"")
}

impl Reconciler {
    fn run(&mut self, mailbox: &Mailbox) {
        loop {
            let wait =
                self.reconcile_at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let all = mailbox.next(wait.min(LOOK));
            if all.closed {
                // Jobs that are posted from now on are refused.
                return mailbox.post(|waiting| waiting.closed = true);
            }
            // First: batches of links under the one before are refused.
            if let Some(policy) = all.policy {
                self.switch(policy);
            }
            all.jobs.into_iter().for_each(|job| job(self));
            if all.approved {
                self.approved();
            }
            if let Some(rules) = all.in_sync {
                self.equal(rules);
            }
            if all.changed || self.reconcile_at.is_some_and(|at| Instant::now() >= at) {
                self.reconcile();
            }
        }
    }

    /// Goes by another policy. What was put into a folder stays there as it is.
    fn switch(&mut self, policy: SyncPolicy) {
        let first = self.rules.borrow().number == 0;
        if !first && policy == self.policy {
            return;
        }
        let entered = self.enter_mode(policy.mode);
        if self.kept(entered).is_none() {
            // Until then the old rules hold; before the first there are no links.
            self.pending = Some(policy);
            return self.reconcile_again();
        }
        self.problem("objects", None);
        let old = std::mem::replace(&mut self.policy, policy.clone());
        self.kinds = policy.kinds.iter().map(|kind| Kind::new(kind)).collect_inserting();
        if first || (old.mode, &old.folder, &old.kinds) != (policy.mode, &policy.folder, &policy.kinds) {
            self.open_backend();
        }
        self.context.view.set(|view| (view.mode, view.folder) = (policy.mode, policy.folder.clone()));
        let same = !first && old.is_same_for_links(&policy);
        self.rules.send_modify(|rules| {
            rules.number += u64::from(!same);
            rules.policy = policy;
        });
        if self.opened.unusable.is_none() {
            self.reconcile();
        }
    }

    /// The sets of another mode are others: both begin anew (SYN-5).
    fn enter_mode(&mut self, mode: Mode) -> Result<(), StateError> {
        if self.context.durable.kept_mode()? == mode {
            return Ok(());
        }
        let actions = self.context.sets.actions()?;
        self.context.sets.begin_anew()?;
        self.complete = false;
        self.context.durable.keep_mode(mode)?;
        // They come again; what was begun is remembered by its mark.
        actions.iter().for_each(|(id, _)| self.context.actions.removed(id));
        tracing::info!(mode = catalog::sync::mode_word(mode), "synchronization begins in this mode");
        Ok(())
    }

    /// Applies a batch, then makes it durable in one write; then actions may begin.
    fn batch(&mut self, batch: &ApplyBatch, of: u64) -> Result<Vec<ItemOutcome>, NotDurable> {
        if self.rules.borrow().number != of {
            return Err(NotDurable("the release says otherwise by now".to_owned()));
        }
        let fresh = self.context.delegations.is_fresh();
        let outcomes: Vec<ItemOutcome> = batch.items.iter().map(|item| self.item_if(fresh, item)).collect();
        if let Err(error) = self.context.sets.write(batch.write(&outcomes)) {
            let why = chain(&error);
            // What was put into the backend just now is wanted, and not known to be.
            self.complete = false;
            self.problem("objects", Some(why.clone()));
            return Err(NotDurable(why));
        }
        self.problem("objects", None);
        for (item, _) in
            batch.items.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == ItemOutcome::Done)
        {
            self.accepted(item);
        }
        Ok(outcomes)
    }

    /// It is durable now.
    fn accepted(&mut self, item: &sync::link::ApplyItem) {
        let key = &item.key;
        self.problem(&format!("object {key}"), None);
        let action = key.section.kind.as_str() == Kind::ACTION;
        match (&item.change, action) {
            (Op::Put { content, .. }, true) => self.context.actions.put(&key.name, content.clone()),
            (Op::Delete { .. }, true) => self.context.actions.removed(&key.name),
            (Op::Put { .. }, false) => {}
            (Op::Delete { .. }, false) => {
                self.opened.applied.remove(key);
                self.own(vec![OwnChange::Remove(object::status_key(key))]);
            }
        }
    }

    /// Lists the backend, and does what follows in the node's mode.
    fn reconcile(&mut self) {
        self.reconcile_at = None;
        if let Some(policy) = self.pending.take() {
            return self.switch(policy);
        }
        if self.opened.unusable.is_some() {
            self.open_backend();
        }
        let Some(backend) = &mut self.opened.backend else { return };
        let (kinds, mut listing) = (&self.kinds, backend.list());
        listing.objects.retain(|found| kinds.contains(&found.key.section.kind));
        self.show(&listing.problems);
        let done = match self.policy.mode {
            Mode::Managed => self.reconcile_managed(&listing),
            Mode::Autonomous => self.reconcile_autonomous(&listing),
            Mode::Off => true,
        };
        let problem = self.opened.held.clone().or_else(|| self.unreadable(&listing));
        self.report(problem);
        if done {
            self.backoff.succeeded();
        } else {
            self.reconcile_again();
        }
        if self.opened.held.is_some() {
            self.reconcile_within(HELD);
        }
    }

    pub(super) fn reconcile_again(&mut self) {
        let wait = self.backoff.failed(None);
        self.reconcile_within(wait);
    }

    pub(super) fn reconcile_within(&mut self, wait: Duration) {
        let Some(at) = Instant::now().checked_add(wait) else { return };
        self.reconcile_at = Some(self.reconcile_at.map_or(at, |other| other.min(at)));
    }

    /// Shows the problems of the backend, and none of it besides; each is logged once.
    pub(super) fn show(&self, problems: &[ListingProblem]) {
        let name = &self.opened.name;
        let shown = |problem: &ListingProblem| {
            let line = problem.line.map_or(String::new(), |line| format!(":{line}"));
            let within = if problem.path.is_empty() { "" } else { "/" };
            let subject = format!("{name}{within}{}{line}", problem.path);
            (subject, format!("{} ({})", problem.message, problem.code))
        };
        let now: BTreeMap<String, String> = problems.iter().map(shown).collect_inserting();
        let is_of_backend = |subject: &String| {
            subject.strip_prefix(name).is_some_and(|within| within.is_empty() || within.starts_with('/'))
        };
        for subject in self.context.view.shown().problems.into_keys().filter(is_of_backend) {
            if !now.contains_key(&subject) {
                self.problem(&subject, None);
            }
        }
        now.into_iter().for_each(|(subject, text)| self.problem(&subject, Some(text)));
    }

    pub(super) fn problem(&self, subject: &str, problem: Option<String>) {
        let text = problem.clone().unwrap_or_default();
        if self.context.view.problem(subject, problem) && !text.is_empty() {
            tracing::warn!(subject, problem = text, "a problem of synchronized objects");
        }
    }

    /// The result of work on the sets; a failure is shown.
    pub(super) fn kept<T>(&self, result: Result<T, StateError>) -> Option<T> {
        result.inspect_err(|error| self.problem("objects", Some(chain(error)))).ok()
    }

    /// Changes the own set; says whether that went well.
    pub(super) fn own(&self, own: Vec<OwnChange>) -> bool {
        self.kept(self.context.sets.change(own)).is_some()
    }

    /// Whether an operator approved that what vanished is deleted.
    pub(super) fn is_approved(&self) -> bool {
        self.context.durable.path().join(APPROVED).exists()
    }

    /// The approval was used.
    pub(super) fn approval_used(&self) {
        if let Err(error) = std::fs::remove_file(self.context.durable.path().join(APPROVED)) {
            tracing::debug!(%error, "the approval cannot be removed");
        }
    }

    /// Nothing is wanted that is not known here. What a link under other rules compared is another
    /// set: in another mode all of the backend would be taken for nobody's.
    fn equal(&mut self, of: u64) {
        if self.rules.borrow().number == of && !std::mem::replace(&mut self.complete, true) {
            self.reconcile_within(SOON);
        }
    }

    fn approved(&mut self) {
        if self.opened.held.is_none() {
            return;
        }
        tracing::info!("an operator approved the deletion of what vanished");
        match approve(self.context.durable.path()) {
            Ok(()) => self.reconcile(),
            Err(error) => self.problem("objects", Some(format!("an approval cannot be kept: {error}"))),
        }
    }

    fn reincarnate(&mut self) -> Result<(), Duration> {
        let left = self.reincarnated.and_then(|at| REINCARNATION_INTERVAL.checked_sub(at.elapsed()));
        left.map_or(Ok(()), Err)?;
        self.reincarnated = self.kept(self.context.sets.reincarnate()).map(|()| Instant::now());
        // What did not come along is put again.
        self.reconcile();
        Ok(())
    }
}
