//! The operators' verbs, `muster server` among them, and what they share.
//!
//! A verb is a module with its arguments and a `run` that gives an [`exit::Exit`]; the program
//! that puts verbs into one command line is the crate `muster`. Results go to standard output
//! through [`screen::Screen`], logs and questions to standard error. Three modules serve other
//! programs too: [`publish::Publisher`], [`operator::Operator`], [`credentials`].

pub mod audit;
mod authority;
pub mod backup;
pub mod beacon;
pub mod bound;
pub mod check;
mod child;
pub mod clock;
pub mod closure;
pub mod connect;
pub mod credentials;
pub mod diff;
pub mod exit;
pub mod explain;
pub mod failure;
pub mod folder;
pub mod header;
pub mod key;
mod listing;
mod lists;
pub mod logs;
pub mod next_step;
pub mod node;
pub mod object;
pub mod observed;
pub mod operator;
pub mod operators;
pub mod prove;
pub mod proxy;
pub mod publish;
pub mod query;
pub mod rehearse;
pub mod release;
pub mod remote;
pub mod render;
pub mod rollout;
pub mod run;
pub mod screen;
pub mod secret;
pub mod server;
pub mod sign;
pub mod signer;
pub mod status;
pub mod table;
pub mod task;
pub mod token;
pub mod verify;
pub mod whom;
pub mod workflow;
