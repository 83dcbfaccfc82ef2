//! Bind, module DAG, what to do next, triggers, reports.
//!
//! [`bind::bind`] turns a node's set into [`bind::Desired`]; [`run::Run`] says which job may
//! start next and takes in what came of it; [`ledger::Ledger`] remembers what was there
//! before; [`kinds`] decides, type by type, what differs; [`versions`] says which versions of
//! files are kept; [`kernel`] whether a newer kernel asks for a reboot. No host is touched here: a job is a value, and the shell that carries it
//! out hands back another.

pub mod bind;
pub mod condition;
pub mod declared_path;
pub mod graph;
pub mod guarded;
pub mod hanging;
pub mod id;
pub mod kernel;
pub mod kinds;
pub mod ledger;
mod packed_texts;
pub mod purpose;
pub mod run;
pub mod versions;
pub mod watch;

pub use bind::{BoundModule, BoundResource, BoundSource, Desired, bind};
pub use catalog::types::ResourceSubject;
pub use condition::{Condition, When};
pub use id::ResourceId;
pub use ledger::{Ledger, LedgerEntry, Prior};
pub use purpose::RunPurpose;
pub use run::{
    FinishedRun, Job, JobDone, JobFailure, JobId, JobOutcome, JobWork, Pending, Record, Run, RunMode,
    RunOptions, RunScope, TakeBack, TogetherMember, Undo,
};
pub use watch::{DirectoryInterest, HostLayout, WatchPlan};
