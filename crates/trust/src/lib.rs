//! What is signed and who may sign it: keys, signed documents, release headers, tokens, freshness.
//!
//! Nothing a control plane says is believed for itself. [`adopt`] holds the one function
//! that decides whether a node may adopt what it is pointed to; it runs before anything
//! else looks at an offer. Time is an argument: [`clock`] says what time trust goes by.

pub mod adopt;
pub mod beacon;
pub mod chain;
pub mod clock;
pub mod declared_key;
pub mod document;
pub mod equivocation;
pub mod feature;
pub mod feed_proof;
pub mod freshness;
pub mod group_token;
pub mod key;
pub mod lists;
mod next_version;
pub mod nix;
pub mod probe_evidence;
pub mod provenance;
pub mod release;
pub mod retired;
pub mod rollout_terms;
pub mod sealing;
pub mod seen;
pub mod signed;
pub mod threshold;
pub mod token;

pub use adopt::{Adopted, Floor, Refusal};
pub use beacon::BeaconRefusal;
pub use chain::{ChainError, ChainHead};
pub use document::{Slots, TrustDocument};
pub use feed_proof::{FeedOwner, FeedSigner, FeedVerifier};
pub use freshness::Freshness;
pub use key::{KeyAlgorithm, PublicKey, SigningKey};
pub use lists::{ListName, ListRefusal, Revocation, RevocationSet, SignedList, TokenAllowlist};
pub use probe_evidence::{ProbeEvidence, ProbeEvidenceError};
pub use release::{Beacon, Header};
pub use rollout_terms::RolloutTerms;
pub use sealing::{RecipientKey, SealingKey};
pub use threshold::{ChannelThreshold, HeaderSigners};
