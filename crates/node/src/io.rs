//! The step's inputs and effects, as values.

use std::collections::BTreeSet;

use converge::run::UnknownTag;
use converge::{Desired, ResourceId, RunScope};
use model::exchange::{Answer, CheckIn, Signed, TraitReport};
use model::log::{Cursor, FactBody};
use model::policy::Policy;
use model::rollout::{RolloutEventBody, RolloutId};
use model::{
    Action, CertificateValidity, Digest, Hostname, Incarnation, Pause, RunReport, Timestamp, UnmadeRunCause,
};
use trust::TrustDocument;

use crate::freshness::FreshnessRecord;
use crate::healing::SuspectedDrift;
use crate::reboot::RebootMark;
use crate::renewal::RenewalProof;
use crate::rollout_part::{
    ActivationRequest, PreparedRelease, ReturnedRelease, RolloutPart, TrialReport, TrialStage,
};
use crate::state::{Adoption, LastRun, TrustRecord};

/// Who the node is; does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its hostname.
    pub hostname: Hostname,
    /// The incarnation of its log.
    pub incarnation: Incarnation,
    /// Whom it believed when it joined.
    pub trust: TrustDocument,
    /// When this program was built (IDN-11).
    pub built: Timestamp,
}

/// What the release that is held settles of how the node works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldSettings {
    /// The channel's settings.
    pub policy: Policy,
    /// The node's params say that it only observes.
    pub only_observes: bool,
}

/// What the shell found in the state directory at the start.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The release adopted last.
    pub adoption: Option<Adoption>,
    /// What it settles.
    pub settings: HeldSettings,
    /// How fresh it was; `None` where nothing was kept since it was adopted.
    pub freshness: Option<FreshnessRecord>,
    /// The last run.
    pub last_run: Option<LastRun>,
    /// Facts wait to be delivered.
    pub facts_pending: bool,
    /// A content of it is damaged or gone.
    pub content_missing: bool,
    /// Somebody paused the host.
    pub pause: Option<Pause>,
    /// The last reboot that was ordered.
    pub last_reboot: Option<RebootMark>,
    /// The newest trust document, if one was taken up since the node joined.
    pub trust: Option<TrustRecord>,
    /// The certificate that sessions are opened with; `None` where a proxy ends TLS.
    pub certificate: Option<CertificateValidity>,
    /// The rollout that the node takes part in.
    pub rollout: Option<RolloutPart>,
    /// Where the activation of its release stands.
    pub trial: TrialStage,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum NodeInput {
    /// Time passed.
    Tick,
    /// Traits were collected.
    Traits(ObservedTraits),
    /// The check-in under way goes without its traits, which are too large: its answer does not acknowledge them, and the
    /// next one carries them again (WIR-6).
    TraitsLeftOut,
    /// The control plane answered a check-in.
    Answered(Box<Answer>),
    /// A check-in failed; for people.
    Unreachable(String),
    /// Everything asked for with [`NodeEffect::Fetch`] is in the blob store.
    Fetched,
    /// Something asked for could not be fetched; for people.
    FetchFailed(String),
    /// A release that waits to be begun was read; for people, why it could not be.
    Prepared(Result<Box<PreparedRelease>, String>),
    /// Somebody at the host lets a content be tried again that it held back: what waits is read anew, where it was held back.
    QuarantineLifted,
    /// What was answered to a dispatch is in the log, with this number.
    DispatchReported(RolloutId, Cursor),
    /// What was to be answered to a dispatch could not be made durable: it is answered again.
    DispatchNotReported(RolloutId),
    /// Facts up to this are durable at the control plane, which said so outside of an answer.
    Delivered(Cursor),
    /// Where the activation of a release stands.
    Trial(TrialReport),
    /// The host is to switch to a release: adopt it and make a full run, then [`NodeEffect::Switched`].
    Switch(Box<Adoption>),
    /// A generation is to be confirmed: the control plane is to answer a check-in that is made from now on.
    TryConfirm,
    /// A contact is to follow a change that can cut the host off, or has followed it (CNV-11): no boot is ordered before.
    AwaitsContact(bool),
    /// The host is back on the generation before.
    Returned(Box<ReturnedRelease>),
    /// The adoption is durable, and settles this.
    Adopted(HeldSettings),
    /// The adoption could not be made durable; for people.
    AdoptFailed(String),
    /// A run ended.
    Ran(Box<RunReport>),
    /// A run could not be made.
    RunFailed(RunFailure),
    /// Contents of the release that is held turned out to be damaged or gone.
    ContentMissing,
    /// The newer trust document is durable.
    TrustSaved,
    /// The newer trust document could not be made durable; for people.
    TrustNotSaved(String),
    /// Who answers where the control plane should has a certificate of no CA that the node believes: a CA may have been
    /// replaced while it slept.
    ForeignServer,
    /// The trust documents after the one held, of whoever answers.
    TrustLinks(Vec<Signed>),
    /// Somebody joined the host anew, and its token names this trust document.
    TrustPinned(Box<TrustDocument>),
    /// The host could not be told to reboot; for people.
    RebootFailed(String),
    /// Someone at the host asks to check in and converge now.
    Nudge,
    /// Someone at the host asks for a run now: of what has one of these tags, or of all.
    RunNow(BTreeSet<String>),
    /// Someone at the host pauses it, or gives a pause another reason and end.
    Pause(Pause),
    /// Someone at the host ends the pause.
    Resume,
    /// A fact could not be made durable; enforcement goes on without it (LIF-10).
    NotAppended,
    /// Resources were perhaps changed out of band, or somebody is known who did.
    SuspectedDrift(SuspectedDrift),
    /// More facts wait than one check-in could carry.
    FactsWait,
    /// The control plane's clock, as its answer had it. A host's clock that is behind it locks the
    /// node out of nothing (IDN-11).
    ServerTime(Timestamp),
    /// The node has another certificate, durably, and sessions are opened with it from now on.
    Renewed(CertificateValidity),
    /// A request for another certificate failed; for people.
    RenewalFailed(String),
    /// The control plane refuses the node's certificate as one that has ended.
    CertificateEnded,
    /// A CA issued the node's certificate that counts no more by the trust document that is held: no session is opened
    /// with it.
    CertificateRejected,
    /// The control plane's own certificate has ended by the host's clock, so that clock may be ahead, and says nothing
    /// of the node's certificate (IDN-11).
    ServerCertificateEnded,
}

/// Why a run could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// The sort of cause.
    pub cause: UnmadeRunCause,
    /// Why, for people.
    pub reason: String,
}

impl RunFailure {
    /// One that the agent can do nothing about.
    pub fn other(reason: impl Into<String>) -> RunFailure {
        RunFailure { cause: UnmadeRunCause::Other, reason: reason.into() }
    }
}

/// Traits as they were collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTraits {
    /// All of them.
    pub report: TraitReport,
    /// Those that the held set reads; `None` while nobody looked, and then all count.
    pub read: Option<ReadTraits>,
}

/// The traits that a set reads: others may change without anything to converge anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTraits {
    /// The root of the set.
    pub root: Digest,
    /// The digest of their values.
    pub digest: Digest,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEffect {
    /// Collect traits, then [`NodeInput::Traits`].
    CollectTraits,
    /// Send a check-in with the facts that wait, then [`NodeInput::Answered`] or
    /// [`NodeInput::Unreachable`].
    CheckIn(Box<CheckIn>, CheckInWay),
    /// The check-in under way holds up a try to confirm: one that is not answered soon is given up. Its connection may be
    /// one that a switch has cut.
    HurryCheckIn,
    /// Keep the contents that came with the offer if they are among these, fetch the other
    /// ones, then [`NodeInput::Fetched`].
    Fetch {
        /// Contents that the blob store must hold.
        contents: BTreeSet<Digest>,
        /// Contents that came inside the answer.
        inline: Vec<String>,
    },
    /// Make the adoption durable, then [`NodeInput::Adopted`].
    Adopt(Box<Adoption>),
    /// Read what of a release decides when and how it is activated, then [`NodeInput::Prepared`].
    Prepare(Box<Adoption>),
    /// Append an answer to a dispatch to the log, with its number among the events of its rollout, then
    /// [`NodeInput::DispatchReported`] or [`NodeInput::DispatchNotReported`].
    ReportDispatch(RolloutId, RolloutEventBody),
    /// Activate a release (ROL-7); [`NodeInput::Trial`] follows, and says that it heard this request.
    Activate(Box<ActivationRequest>),
    /// A release that nothing holds back comes while another one waits for a boot, which is given up.
    Supersede(Box<Adoption>),
    /// The switch ended; or why it failed, for people.
    Switched(Result<(), String>),
    /// No run is under way, and none begins until [`NodeInput::Returned`].
    HostIsFree,
    /// The control plane answered the try to confirm; or why it did not, for people.
    ConfirmTried(Result<(), String>),
    /// The control plane asks to go back from the generation with this root, as its signed terms allow.
    GoBack(Digest),
    /// The rollout of the generation with this root is at its end.
    RolloutEnded(Digest),
    /// The control plane knows nothing of what was said of the rollout: it is said again.
    RestateRollout(Digest),
    /// A release that nothing holds back was adopted, by the root of the set: it is the confirmed generation.
    AdoptedAtOnce(Digest),
    /// Bind and converge, then [`NodeInput::Ran`].
    Run(RunOrder),
    /// Append a fact to the log; if that fails, [`NodeInput::NotAppended`].
    Append(FactBody),
    /// Everything up to this is durable at the control plane.
    Ack(Cursor),
    /// Remember the last run.
    SaveRun(LastRun),
    /// Have this count for what the control plane asks for, unless another release is held by now, and make it
    /// durable.
    SaveFreshness(FreshnessRecord),
    /// Remember that the host is paused, or that it is not.
    SavePause(Option<Pause>),
    /// Remember this, append [`RebootMark::fact`], then reboot the host; or [`NodeInput::RebootFailed`].
    Reboot(RebootMark),
    /// Make the mark of the last reboot durable as it is now.
    SaveReboot(RebootMark),
    /// Make the newest trust document durable, then [`NodeInput::TrustSaved`] or [`NodeInput::TrustNotSaved`].
    SaveTrust(Box<TrustRecord>),
    /// Ask whoever answers for the trust documents after the one with this digest, then [`NodeInput::TrustLinks`], if
    /// there are any.
    FetchTrustLinks(Digest),
    /// Find out who changes these resources, and nobody else; then [`NodeInput::SuspectedDrift`].
    WatchCulprits(BTreeSet<ResourceId>),
    /// Ask for another certificate, then [`NodeInput::Renewed`] or [`NodeInput::RenewalFailed`].
    Renew(RenewalProof),
    /// Say so in the journal.
    Warn(String),
}

/// How a check-in reaches the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckInWay {
    /// As it is quickest: over what is open already.
    AnyConnection,
    /// Over a connection that is dialled for it, with the name resolved anew: it shows that the host can be reached
    /// from where it is now. What was open before a switch outlives a firewall that refuses any other (ROL-7).
    NewConnection,
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrder {
    /// The release bound.
    pub seq: u64,
    /// The root of the set bound.
    pub root: Digest,
    /// What is bound differs from what the last run bound, so changes are intended.
    pub intended: bool,
    /// Resources that the last run left otherwise than declared because something failed.
    pub unfinished: Vec<String>,
    /// The host is paused: the run only observes, and its report says why.
    pub pause: Option<Pause>,
    /// Which resources it is about.
    pub scope: RunScope,
    /// The tags of an operator's request that it carries out. Of those the report names the ones that no
    /// resource has: a request goes to many nodes, and means those of them that have the tag.
    pub requested_tags: BTreeSet<String>,
}

impl RunOrder {
    /// Whether what a run changed was intended: the host was not as declared before anybody touched it, as the
    /// release is new to it, or the run before failed at just this (CNV-3).
    pub fn intends(&self, report: &RunReport) -> bool {
        let changes = |action| matches!(action, Action::Changed | Action::Deleted);
        let mut changed = report.items.iter().filter(|item| changes(item.action)).peekable();
        let finishes =
            changed.peek().is_some() && changed.all(|item| self.unfinished.contains(&item.resource));
        self.intended || finishes
    }

    /// Refuses a tag of the scope that no resource has, unless an operator requested it.
    ///
    /// # Errors
    /// The first such tag.
    pub fn check(&self, desired: &Desired) -> Result<(), UnknownTag> {
        if self.requested_tags.is_empty() { self.scope.check(desired) } else { Ok(()) }
    }

    /// The requested tags that no resource of the node has.
    pub fn unknown_tags(&self, desired: &Desired) -> Vec<String> {
        if self.requested_tags.is_empty() {
            return Vec::new();
        }
        let known = desired.tags();
        self.requested_tags.iter().filter(|tag| !known.contains(tag.as_str())).cloned().collect()
    }
}
