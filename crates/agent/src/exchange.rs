//! [`CheckInClient`]: check-ins, over the open stream or by a request of their own.
//!
//! ```text
//! node's check-in  --> what `join` wrote is taken up first;
//!                  --> stream, when it is open and free ----+--> DaemonEvent::Answered
//!                  |-> else a request of its own -----------+
//!                  \-> to confirm a release: a request over a connection of its own
//! delivery of facts -> stream, when it is open and free -------> DaemonEvent::Flushed
//! ```
//!
//! Invariants: nothing here waits for the disk or for another exchange; the facts that go are
//! durable; each answer comes with how far facts were acknowledged when it was asked for, so that
//! answers may overtake one another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::exchange::{Answer, CheckIn, Signed};
use model::log::Cursor;
use model::{AgentCapabilities, AgentInstance, Digest, Hostname, Timestamp};
use node::{CheckInOmissions, CheckInWay, NodeInput, TooLarge, Witness};
use tokio::sync::{Semaphore, watch};
use trust::RecipientKey;
use trust::seen::Seen;
use wire::{Code, Problem, route};

use crate::capabilities;
use crate::contact::ContactFailure;
use crate::events::{DaemonEvent, DaemonHandle};
use crate::membership::MembershipFile;
use crate::rejoin::{RejoinFollower, SessionPlace};
use crate::render::chain;
use crate::session::{CallError, NodeSession};
use crate::storage::Storage;
use crate::sync::Synchronization;

/// How often one check-in is made smaller: by then a single fact is left of as many as it may carry, and is left out.
const MAX_SHORTER: usize = 16;

/// The most addresses of the control plane that one try to confirm goes through.
const MAX_ADDRESSES: usize = 8;
/// How long a check-in may go on that a try to confirm waits for.
const HURRIED_WITHIN: Duration = Duration::from_secs(2);

/// Who speaks in check-ins.
pub struct AgentIntroduction {
    /// Which start of the agent (IDN-10).
    pub instance: AgentInstance,
    /// What it is and can do (ENR-5); `None` while that is read.
    pub capabilities: watch::Receiver<Option<AgentCapabilities>>,
    /// The host that it is on.
    pub hostname: Hostname,
    /// The key that secrets are sealed for; `None` where it cannot be read.
    pub recipient: Option<RecipientKey>,
}

/// The way of check-ins.
pub struct CheckInClient {
    session: Arc<NodeSession>,
    member: Arc<MembershipFile>,
    rejoin: RejoinFollower,
    sync: Arc<Synchronization>,
    storage: Storage,
    daemon: DaemonHandle,
    /// A link answers one check-in at a time; who finds it taken does not wait.
    stream: Semaphore,
    introduction: AgentIntroduction,
    /// What the agent is and can do was said, and is known.
    introduced: AtomicBool,
    /// The control plane says that another host holds the node's key.
    copied: AtomicBool,
    /// The check-in under way is to end soon.
    hurry: watch::Sender<()>,
    /// Locked for moments only.
    witness: Mutex<Witness>,
    /// Locked for moments only.
    left_out: Mutex<CheckInOmissions>,
}

impl CheckInClient {
    /// Check-ins over the stream of `sync` when there is one, else by this session.
    pub fn new(
        session: Arc<NodeSession>,
        member: Arc<MembershipFile>,
        rejoin: RejoinFollower,
        sync: Arc<Synchronization>,
        storage: Storage,
        daemon: DaemonHandle,
        introduction: AgentIntroduction,
    ) -> CheckInClient {
        let (stream, witness) = (Semaphore::new(1), Mutex::default());
        let left_out = Mutex::default();
        let (introduced, copied) = (AtomicBool::new(false), AtomicBool::new(false));
        CheckInClient {
            session,
            member,
            rejoin,
            sync,
            storage,
            daemon,
            stream,
            introduction,
            introduced,
            copied,
            hurry: watch::Sender::new(()),
            witness,
            left_out,
        }
    }

    /// Puts the facts that wait into a check-in, and the `seen` document if it says something new;
    /// says how far facts are acknowledged.
    fn load(&self, message: &mut CheckIn, newest: Option<(Digest, u64)>) -> u64 {
        let waiting = self.storage.facts();
        if let Some((header, seq)) = newest {
            let log_head = Cursor { incarnation: waiting.incarnation.clone(), seq: waiting.last };
            message.seen = self.witnessed(header, seq, log_head);
        }
        // The log may have begun a new incarnation since the start.
        message.incarnation = waiting.incarnation;
        message.facts = waiting.facts;
        message.acked = Some(waiting.acked);
        message.instance = Some(self.introduction.instance.clone());
        let now = self.session.server_time();
        self.left_out().take_from(message, now);
        waiting.acked
    }

    fn witnessed(&self, header: Digest, seq: u64, log_head: Cursor) -> Option<Signed> {
        let signer = self.session.signer();
        let seen = Seen {
            node: signer.node().clone(),
            header,
            seq,
            log_head,
            at: signer.server_time(),
            acked: None,
        };
        match self.witness().next(seen, |seen| signer.sign_seen(seen)) {
            Ok(document) => document,
            Err(error) => {
                tracing::warn!(%error, "what the node has seen cannot be signed");
                None
            }
        }
    }

    fn witness(&self) -> MutexGuard<'_, Witness> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left_out(&self) -> MutexGuard<'_, CheckInOmissions> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a check-in smaller that was refused as too large; whether it is another one now.
    async fn make_smaller(&self, message: &mut CheckIn, problem: &Problem) -> bool {
        let what = match &problem.code {
            code if code == Code::FactTooLarge.as_str() => TooLarge::Fact,
            code if code == Code::BodyTooLarge.as_str() => TooLarge::CheckIn,
            _ => return false,
        };
        let omission = {
            let (mut left_out, now) = (self.left_out(), self.session.server_time());
            let omission = left_out.refused(message, what, now);
            left_out.take_from(message, now);
            omission
        };
        let Some(omission) = omission else { return false };
        let text = format!("{omission}: the control plane refuses it as too large ({problem})");
        tracing::warn!("{}", model::text::one_line(&text));
        self.daemon.send(DaemonEvent::LeftOut(Some(text))).await;
        true
    }

    async fn by_request(&self, message: &mut CheckIn, way: CheckInWay) -> Result<Answer, CallError> {
        match way {
            CheckInWay::AnyConnection => self.by_request_of(&self.session, message).await,
            CheckInWay::NewConnection => {
                let session = self.session.beside();
                let first = session.destination().url;
                // The release may have cut off one of the control plane's addresses alone.
                for _ in 1..MAX_ADDRESSES {
                    match self.by_request_of(&session, message).await {
                        Err(CallError::Reach(error)) if session.destination().url != first => {
                            tracing::debug!(error = %chain(&error), "the next address is tried");
                        }
                        answer => return answer,
                    }
                }
                self.by_request_of(&session, message).await
            }
        }
    }

    /// Checks in by a request; made smaller as long as the control plane refuses it as too large.
    async fn by_request_of(&self, session: &NodeSession, message: &mut CheckIn) -> Result<Answer, CallError> {
        for _ in 0..MAX_SHORTER {
            match session.post(route::CHECKIN, message).await {
                Err(CallError::Refused(problem)) if self.make_smaller(message, &problem).await => {}
                answer => return answer,
            }
        }
        session.post(route::CHECKIN, message).await
    }

    /// Checks in over the stream; `None`: there is none that is free, or no answer came.
    async fn over_stream(&self, message: &CheckIn) -> Option<Answer> {
        let _turn = self.stream.try_acquire().ok()?;
        if !self.sync.links.is_open() {
            return None;
        }
        let answer = self.sync.links.check_in(message.clone()).await?;
        self.answered(message, &answer, self.session.signer().time_on_link(&answer)).await;
        Some(answer)
    }

    /// Takes out of an answer what counts before the rest of it: offers and reboots are judged by the control
    /// plane's clock, where the answer tells it.
    async fn answered(&self, message: &CheckIn, answer: &Answer, server_time: Option<Timestamp>) {
        self.witness().answered(message.seen.as_ref(), answer.want_seen);
        if message.capabilities.is_some() || answer.want_capabilities {
            self.introduced.store(!answer.want_capabilities, Ordering::Relaxed);
        }
        self.note_copied(answer.identity_copied).await;
        let all_is_taken = self.left_out().taken(answer.acked.as_ref().map_or(0, |acked| acked.seq));
        if all_is_taken {
            self.daemon.send(DaemonEvent::LeftOut(None)).await;
        }
        if let Some(time) = server_time {
            self.daemon.send(DaemonEvent::Input(NodeInput::ServerTime(time))).await;
        }
    }

    /// What the agent is and can do, unless that was said.
    async fn introduce(&self, message: &mut CheckIn) {
        if self.introduced.load(Ordering::Relaxed) {
            return;
        }
        let mut capabilities = self.introduction.capabilities.clone();
        let read = tokio::time::timeout(capabilities::WITHIN, capabilities.wait_for(Option::is_some)).await;
        let capabilities = read.ok().and_then(Result::ok).and_then(|read| read.clone());
        message.capabilities = capabilities.map(|capabilities| {
            Box::new(AgentCapabilities { sealing_key: self.sealing_key(), ..capabilities })
        });
    }

    /// For which key the node's secrets are sealed, under its identity.
    fn sealing_key(&self) -> Option<Signed> {
        let AgentIntroduction { hostname, recipient, .. } = &self.introduction;
        match self.session.signer().sign_sealing_key(hostname.clone(), (*recipient)?) {
            Ok(statement) => Some(statement),
            Err(error) => {
                tracing::warn!(%error, "for which key secrets are sealed cannot be signed");
                None
            }
        }
    }

    /// Another host holds the node's key, or no more, as the control plane says.
    async fn note_copied(&self, copied: bool) {
        if self.copied.swap(copied, Ordering::Relaxed) == copied {
            return;
        }
        match copied {
            true => tracing::error!(
                "another host holds this node's key: until an operator decides no releases, actions or objects come"
            ),
            false => tracing::info!("this host alone holds the node's key again"),
        }
        self.daemon.send(DaemonEvent::IdentityCopied(copied)).await;
    }

    /// The node does not take traits for acknowledged that went not along; they are tried again by its next check-ins.
    async fn tell_traits_left_out(&self, had_traits: bool, sent: &CheckIn) {
        if had_traits && sent.traits.is_none() {
            self.daemon.send(DaemonEvent::Input(NodeInput::TraitsLeftOut)).await;
        }
    }

    /// Checks in for the node, and reports the outcome to the daemon.
    pub async fn check_in(&self, mut message: CheckIn, way: CheckInWay, newest: Option<(Digest, u64)>) {
        let mut hurried = self.hurry.subscribe();
        let has_traits = message.traits.is_some();
        if !has_traits {
            self.left_out().traits_are_said();
        }
        let acked_before = self.load(&mut message, newest);
        self.introduce(&mut message).await;
        let given_up = async {
            // The sender is this client's own.
            let _ = hurried.changed().await;
            tokio::time::sleep(HURRIED_WITHIN).await;
        };
        let event = tokio::select! {
            event = self.asked(message, way, has_traits, acked_before) => event,
            () = given_up => {
                // What comes next goes another way.
                self.session.next_url();
                let text = "no answer came, and a release waits to be confirmed".to_owned();
                DaemonEvent::NotAnswered(ContactFailure::unanswered(text))
            }
        };
        self.daemon.send(event).await;
    }

    /// A check-in that is under way is given up unless it is answered soon: another one waits for it.
    pub fn hurry(&self) {
        self.hurry.send_replace(());
    }

    /// Asks, and says what came of it.
    async fn asked(
        &self,
        mut message: CheckIn,
        way: CheckInWay,
        has_traits: bool,
        acked_before: u64,
    ) -> DaemonEvent {
        let place = self.rejoin.look().await;
        // A link that is open leads to the control plane before.
        if way == CheckInWay::AnyConnection
            && place == SessionPlace::Same
            && let Some(answer) = self.over_stream(&message).await
        {
            self.tell_traits_left_out(has_traits, &message).await;
            return DaemonEvent::Answered { answer: Box::new(answer), acked_before };
        }
        match self.by_request(&mut message, way).await {
            Ok(answer) => {
                self.sync.links.reached();
                // The time with which the request was signed was judged and accepted.
                self.answered(&message, &answer, Some(self.session.server_time())).await;
                self.tell_traits_left_out(has_traits, &message).await;
                DaemonEvent::Answered { answer: Box::new(answer), acked_before }
            }
            Err(error) => {
                let ended = self.member.certificate_has_ended(self.session.server_time());
                DaemonEvent::NotAnswered(ContactFailure::of(
                    &error,
                    ended,
                    self.session.signer().tls_termination,
                ))
            }
        }
    }

    /// Delivers the facts that wait over the open stream, and reports to the daemon how far they
    /// came. `message` says the rest.
    pub async fn flush(&self, mut message: CheckIn, newest: Option<(Digest, u64)>) {
        let acked_before = self.load(&mut message, newest);
        let nothing = message.facts.is_empty();
        let answer = if nothing { None } else { self.over_stream(&message).await };
        let event = match answer {
            Some(answer) => {
                let contact = answer.offer.is_some()
                    || answer.run_request.is_some()
                    || answer.tagged_run.is_some()
                    || answer.want_traits
                    || answer.beacon.is_some()
                    || !answer.trust_links.is_empty()
                    || answer.renew_certificate;
                DaemonEvent::Flushed { acked: answer.acked, acked_before, contact }
            }
            // The node's own check-in carries them.
            None => DaemonEvent::Flushed { acked: None, acked_before, contact: !nothing },
        };
        self.daemon.send(event).await;
    }
}
