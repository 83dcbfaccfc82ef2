//! Guarded runs (CNV-11): a run that changes what can cut the host off is followed by a contact with the control plane
//! within its window, or the host undoes those changes by itself.
//!
//! ```text
//! a change is about to be made -> admit_guarded(GuardSituation) -> GuardAdmission
//!     Joins            the guard is armed by this run: the change is written down and made
//!     GuardedByTrial   a release is on trial, whose way back undoes more
//!     Arms(GuardOrder) -> GuardedActivation::begin -> armed: record, agent kept, watchdog; then the change is made
//!     HeldBack(GuardHold)  it is not made
//! RunEnded, ContactTried, Undone, Tick -> GuardedActivation::handle -> GuardEffect: what the shell does
//! a process that starts, or the watchdog -> GuardedActivation::resume
//! ```
//!
//! [`GuardedActivation`] is [`Activation`](crate::Activation) over a second record: the run is the switch, there are no probes, and the
//! return undoes what the run changed. What is a guarded change's generation is its digest.
//!
//! Which stage an admission finds, and what comes of it (`tests/guarded_changes_are_admitted.rs` holds this table):
//!
//! A release counts while a watchdog would take the host back from it: not once it is confirmed, and not while it waits
//! for a boot.
//!
//! ```text
//! guard     release   what is known of the change    contact before    -> what is done
//! armed     any       any                            any               joins
//! up        any       any                            any               held back: a contact is to follow the one before
//! none      switched  any                            any               guarded by the trial (also in a return)
//! none      on trial  any                            any               held back: a contact is to follow the release
//! none      none      not resumed                    any               held back until the agent starts anew
//! none      none      undone for good                any               held back until the change is another one
//! none      none      undone without a contact       none since        held back until a contact
//! none      none      undone without a contact       since             armed, once the wait is over
//! none      none      a contact followed it before   offline           armed; an agent that lives keeps it
//! none      none      new                            offline           armed; the channel's `guard: {offline: ...}` decides
//! none      none      new                            in contact        armed; a contact must follow
//! ```
//!
//! Invariants:
//! - A host that was in contact keeps a change only where a contact followed it, over a connection made since.
//! - A change that was undone for want of a contact is made again at most [`MAX_GUARDED_TRIES`] times in all, each after
//!   a contact that came since it was undone.
//! - Undoing ends: what could not be undone is tried [`MAX_UNDO_TRIES`] times by one process, and then named.
//! - Where the agent itself was changed, only an agent that started since may confirm.

mod admit;
mod contact;
mod held_back;
mod step;

pub use self::admit::{
    GuardAdmission, GuardHold, GuardOrder, GuardSituation, ReleaseTrial, admit_guarded, admit_in_return,
};
pub use self::contact::{ContactAnswer, ContactHistory, OFFLINE_WINDOW};
pub use self::held_back::{
    GUARDED_RETRY_WAITS, HeldBackChange, HeldUntil, MAX_GUARDED_TRIES, guarded_cause, held_back, what_is_held,
};
pub use self::step::{FoundChanges, GuardEffect, GuardInput, GuardedActivation, MAX_UNDO_TRIES};
