//! [`Provider`]: which code looks at and changes a resource of a type.
//!
//! ```text
//! Spec -> Provider::of -> Path     look at the path, write it (`PathProvider`)
//!                         State    observe, compare, set, observe again (`StateProvider`)
//!                         Command  guards, then run it
//!                         Script   ask it
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use catalog::types::{CustomSpec, ExecSpec, Spec, StateSpec};
use converge::JobFailure;
use converge::kinds::state;
use model::{Edit, Fields, PathOwnership, PathState};

use crate::Kinds;

/// How the resources of a type are looked at and changed.
pub(crate) enum Provider<'a> {
    /// All that it manages is at one path.
    Path(&'a dyn PathProvider),
    /// It is a thing of the host with a state.
    State(&'a dyn StateProvider),
    /// It is a command.
    Command(&'a ExecSpec),
    /// It is a script.
    Script(&'a CustomSpec),
}

impl<'a> Provider<'a> {
    pub(crate) fn of(spec: &'a Spec) -> Provider<'a> {
        match spec {
            Spec::File(spec) => Provider::Path(spec),
            Spec::Directory(spec) => Provider::Path(spec),
            Spec::Tree(spec) => Provider::State(spec),
            Spec::Download(spec) => Provider::Path(spec),
            Spec::Archive(spec) => Provider::State(spec),
            Spec::Image(spec) => Provider::State(spec),
            Spec::Symlink(spec) => Provider::Path(spec),
            Spec::Line(spec) => Provider::Path(spec),
            Spec::Exec(spec) => Provider::Command(spec),
            Spec::Custom(spec) => Provider::Script(spec),
            Spec::Host(spec) => Provider::State(spec),
            Spec::Repository(spec) => Provider::State(spec),
            Spec::Package(spec) => Provider::State(spec),
            Spec::User(spec) => Provider::State(spec),
            Spec::Group(spec) => Provider::State(spec),
            Spec::SshKey(spec) => Provider::State(spec),
            Spec::Unit(spec) => Provider::State(spec),
            Spec::Sudo(spec) => Provider::State(spec),
            Spec::Sysctl(spec) => Provider::State(spec),
            Spec::Mount(spec) => Provider::State(spec),
            Spec::Hostname(spec) => Provider::State(spec),
            Spec::Block(spec) => Provider::State(spec),
            Spec::Ini(spec) => Provider::State(spec),
            Spec::Json(spec) => Provider::State(spec),
            Spec::Switch(spec) => Provider::State(spec),
            Spec::Nixos(spec) => Provider::State(spec),
        }
    }

    /// Whether it can look at and change this host: what only works on the machine that the agent runs
    /// on does not below another root, unless commands may run there.
    pub(crate) fn works_here(&self, kinds: &Kinds) -> bool {
        match self {
            Provider::Path(_) => true,
            Provider::State(provider) => provider.works_here(kinds),
            Provider::Command(_) | Provider::Script(_) => kinds.host.exec_allowed(),
        }
    }
}

/// A resource type whose whole state is at one path.
pub(crate) trait PathProvider {
    /// Looks what is there and what would change.
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String>;

    /// Whether changing it starts a command.
    fn needs_command(&self, _: &Decided) -> bool {
        false
    }

    /// What it shares with other resources while it changes something.
    fn turn(&self) -> Option<ChangeTurn> {
        None
    }

    /// Makes the change.
    fn act(&self, kinds: &Kinds, decided: &Decided, timeout: Duration) -> Result<(), JobFailure>;
}

/// What a look at a path came to.
pub(crate) struct Decided {
    pub(crate) prior: PathState,
    pub(crate) wanted: PathOwnership,
    pub(crate) edit: Option<Edit<Fields>>,
    pub(crate) note: Option<String>,
    /// The whole content to be written, where it follows from what is there.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Default for Decided {
    fn default() -> Decided {
        let (prior, wanted) = (PathState::Missing, PathOwnership::default());
        Decided { prior, wanted, edit: None, note: None, bytes: None }
    }
}

/// A change of a thing from one state to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateChange<'a> {
    /// The state that it has, just observed; `None` when there is no such thing.
    pub(crate) now: Option<&'a Fields>,
    /// The state that it gets: what this does not name stays as it is. `None` when it goes.
    pub(crate) to: Option<&'a Fields>,
    /// How long that may take.
    pub(crate) timeout: Duration,
}

/// A resource type that is a thing of the host with a state. To apply it, to remove it and to put
/// back what was there before are one operation: [`StateProvider::set`] to another state.
pub(crate) trait StateProvider: StateSpec {
    /// What the host has now, as texts by the names of the type's attributes; `None` when there is
    /// no such thing. It holds every text that [`StateSpec::declared`] may name, and no secret.
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String>;

    /// The state that it should have, given the one that it has. It calls a pure function of
    /// [`converge::kinds`] where more counts than equal texts.
    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String>;

    /// Brings the thing from one state to another. Gives what a command printed, for the report.
    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure>;

    /// Refuses an edit that would break what is not declared, in words that say what is in the way. A
    /// resource that comes before it may still clear the way, so a check gives them as a note.
    fn refuse(&self, _: &Kinds, _: &Edit<Fields>) -> Result<(), String> {
        Ok(())
    }

    /// The state that it should have when it was notified, where `to` is the one that it should have
    /// anyway: something that is done once is a text that no state has. `None` when it has nothing to
    /// do with it.
    fn notified(
        &self,
        _: &Kinds,
        _now: Option<&Fields>,
        _to: Option<&Fields>,
        _: &Notification,
    ) -> Result<Option<Fields>, String> {
        Ok(None)
    }

    /// Whether a state counts as one in which the thing is not there: it belongs to somebody else, and
    /// nothing of the resource is left in it.
    fn is_absent(&self, _: &Fields) -> bool {
        false
    }

    /// Brings it from the state `now`, just observed, to the one without it. `before` is what the ledger
    /// knows of the state before Muster changed it.
    fn remove(
        &self,
        kinds: &Kinds,
        now: Option<&Fields>,
        _before: Option<&Fields>,
        timeout: Duration,
    ) -> Result<(), JobFailure> {
        self.set(kinds, StateChange { now, to: None, timeout }).map(drop)
    }

    /// The files and directories that it lies in and that [`StateProvider::set`] makes where they are
    /// missing, the innermost first. A look at them does not hang.
    fn surroundings(&self, _: &Kinds) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    /// Whether such a file holds nothing but what the thing may leave behind.
    fn leaves_nothing(&self, bytes: &[u8]) -> bool {
        bytes.is_empty()
    }

    /// What it shares with other resources while it looks and changes something.
    fn turn(&self) -> ChangeTurn;

    /// What a plan and a report show of an edit: all of it, unless it may be very long.
    fn shown(&self, edit: Edit<Fields>) -> Edit<Fields> {
        edit
    }

    /// It can look at and change the tree below another root.
    fn works_below_root(&self) -> bool {
        false
    }

    /// See [`Provider::works_here`].
    fn works_here(&self, kinds: &Kinds) -> bool {
        self.works_below_root() || kinds.host.exec_allowed()
    }

    /// As [`StateProvider::desired`], where the host has more to say than what the thing is now.
    fn desired_here(&self, _: &Kinds, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        self.desired(now)
    }

    /// Whether only applying it can say if it is as declared, although nothing differs.
    fn unsure(&self, _: &Kinds) -> Result<bool, String> {
        Ok(false)
    }

    /// What an operator should know of its surroundings, when something differs.
    fn remark(&self, _: &Kinds) -> Option<String> {
        None
    }

    /// What an operator should know before this edit: what cannot be undone.
    fn note(&self, _: &Edit<Fields>) -> Option<String> {
        None
    }
}

/// That others changed which notify a resource.
#[derive(Clone, Debug)]
pub struct Notification {
    /// Who, for reports.
    pub by: String,
    /// When the last of them had changed.
    pub last: Instant,
}

/// The default of [`StateProvider::desired`]: as declared.
pub(crate) fn as_declared(spec: &dyn StateSpec) -> Result<Option<Fields>, String> {
    Ok(state::desired(spec))
}

/// What resources of several modules share: each must see what the other wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeTurn {
    /// Files of which a part is edited.
    Files,
    /// The databases of users and groups.
    Accounts,
    /// The package manager.
    Packages,
    /// Nothing: the service manager orders what it is asked for itself, and a unit that starts slowly
    /// holds no other up; what a pair of commands switches is that pair's alone.
    Units,
    /// Nothing: what an archive or an image holds is in a directory of its own, and to fetch it takes long.
    Archive,
}

/// The turns of one host.
#[derive(Debug, Default)]
pub(crate) struct ChangeTurns {
    files: Mutex<()>,
    accounts: Mutex<()>,
    packages: Mutex<()>,
    /// Files of file systems that may not answer, by their mount points: who waits there for ever holds
    /// up nobody elsewhere. Two of them may share one, which costs their resources their time at worst.
    hanging: [Mutex<()>; 16],
}

impl ChangeTurns {
    /// Waits for the turn, and holds it until the guard is dropped.
    pub(crate) fn take(&self, turn: ChangeTurn) -> Option<MutexGuard<'_, ()>> {
        let turn = match turn {
            ChangeTurn::Files => &self.files,
            ChangeTurn::Accounts => &self.accounts,
            ChangeTurn::Packages => &self.packages,
            ChangeTurn::Units | ChangeTurn::Archive => return None,
        };
        Some(turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`ChangeTurns::take`], of files of a file system that may not answer.
    pub(crate) fn take_at(&self, point: &str) -> MutexGuard<'_, ()> {
        let number = point.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let turn = &self.hanging[number % self.hanging.len()];
        turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
