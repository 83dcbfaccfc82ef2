//! Nix binary caches: what a cache says of a path of the Nix store, and who signed that (ROL-9).
//!
//! ```text
//! HASH.narinfo  StorePath, References, NarHash, NarSize   signed: NarInfo::verified, by a pinned CacheKey
//!               URL, Compression, FileSize                not signed: where the archive lies, and how it is packed
//! ```
//!
//! Nothing that is not signed decides what is imported: an archive counts by its `NarHash` and `NarSize` alone.

mod base32;
mod cache_key;
mod closure_order;
mod export;
mod narinfo;
mod store_path;

pub use cache_key::{CacheKey, CacheKeyError};
pub use closure_order::{ClosureOrder, ClosureOrderError, MAX_CLOSURE_PATHS};
pub use narinfo::{MAX_NAR, MAX_NARINFO, NarCompression, NarInfo, NarInfoError};
pub use store_path::{
    MAX_SET_PATHS, MAX_STORE_NAME, STORE_DIR, StorePath, StorePathError, is_store_hash, store_paths_in,
};
