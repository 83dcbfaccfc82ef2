//! Fetching what an offered set needs: resumed by "what I have", verified by digest (DLT-4).
//!
//! ```text
//! NodeEffect::Fetch -> want: no garbage -> contents, then the blobs that they name -> Storage
//! ```
//!
//! Requests share the session's connection with all others, and what came is written by the
//! storage thread: neither a slow content nor a slow disk holds anything else up.

use std::collections::BTreeSet;

use model::Digest;
use model::object::{MAX_BLOB, blobs_named};
use wire::route;

use crate::session::{CallError, NodeSession};
use crate::state::{Durable, StateError};
use crate::storage::Storage;

/// Why something could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The control plane did not give it.
    #[error("{digest} could not be fetched", digest = digest.short())]
    Get {
        /// What was asked for.
        digest: Digest,
        /// Why.
        #[source]
        source: CallError,
    },
    /// It could not be kept, or is not what it should be.
    #[error("{digest} could not be kept", digest = digest.short())]
    Keep {
        /// What was received.
        digest: Digest,
        /// Why.
        #[source]
        source: StateError,
    },
    /// The server sends nothing more, though more is missing.
    #[error("{} was cut off by the control plane", .0.short())]
    CutOff(Digest),
}

/// Makes sure that the blob store holds these contents and the blobs that they name.
///
/// # Errors
/// [`FetchError`]; what was fetched before it stays, so the next try goes on from there.
pub async fn all(
    storage: &Storage,
    session: &NodeSession,
    contents: BTreeSet<Digest>,
    inline: Vec<String>,
) -> Result<(), FetchError> {
    storage.durable().want(&contents);
    for text in inline {
        let digest = Digest::of(text.as_bytes());
        if contents.contains(&digest) {
            let keep = move |durable: &Durable| durable.keep(text.as_bytes(), digest);
            storage.run(keep).await.map_err(|source| FetchError::Keep { digest, source })?;
        }
    }
    let mut blobs = BTreeSet::new();
    for digest in contents {
        one(storage, session, digest).await?;
        let named = match storage.run(named_by(digest)).await {
            // It was damaged, and is set aside now that it was read.
            Err(StateError::Lost { .. }) => {
                one(storage, session, digest).await?;
                storage.run(named_by(digest)).await
            }
            read => read,
        };
        blobs.extend(named.map_err(|source| FetchError::Keep { digest, source })?);
    }
    for digest in blobs {
        one(storage, session, digest).await?;
    }
    Ok(())
}

/// Reads which blobs a content names.
fn named_by(
    digest: Digest,
) -> impl FnOnce(&Durable) -> Result<BTreeSet<Digest>, StateError> + Send + 'static {
    move |durable| durable.content(&digest).map(|bytes| blobs_named(&bytes))
}

async fn one(storage: &Storage, session: &NodeSession, digest: Digest) -> Result<(), FetchError> {
    let keep = |source| FetchError::Keep { digest, source };
    let begun = storage.run(move |durable| durable.partial_content(&digest)).await.map_err(keep)?;
    let Some(mut partial) = begun else { return Ok(()) };
    let path = route::BLOB.replace("{digest}", &digest.to_string());
    loop {
        let from = partial.offset();
        let got = session.get_range(&path, from).await;
        let (bytes, total) = got.map_err(|source| FetchError::Get { digest, source })?;
        if bytes.is_empty() && from < total {
            return Err(FetchError::CutOff(digest));
        }
        let write = move |durable: &Durable| {
            let written = partial.write(&bytes, MAX_BLOB);
            let whole = written.is_ok() && partial.offset() >= total;
            let kept = written.and_then(|()| if whole { durable.contents().finish(&digest) } else { Ok(()) });
            let kept = kept.map_err(|source| StateError::Spool { what: "keep a content", source });
            kept.map(|()| (!whole).then_some(partial))
        };
        match storage.run(write).await.map_err(keep)? {
            Some(unfinished) => partial = unfinished,
            None => return Ok(()),
        }
    }
}
