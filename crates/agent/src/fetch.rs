//! Fetching what an offered set needs: resumed by "what I have", verified by digest (DLT-4).

use std::collections::BTreeSet;

use model::Digest;
use model::object::{MAX_BLOB, blobs_named};
use tokio::sync::Mutex;
use wire::route;

use crate::session::{CallError, Session};
use crate::state::{Durable, StateError};

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
    durable: &Durable,
    session: &Mutex<Session>,
    contents: BTreeSet<Digest>,
    inline: Vec<String>,
) -> Result<(), FetchError> {
    for text in inline {
        let digest = Digest::of(text.as_bytes());
        if contents.contains(&digest) {
            durable.keep(text.as_bytes(), digest).map_err(|source| FetchError::Keep { digest, source })?;
        }
    }
    let mut blobs = BTreeSet::new();
    for digest in &contents {
        one(durable, session, *digest).await?;
        let read = durable.content(digest);
        let bytes = read.map_err(|source| FetchError::Keep { digest: *digest, source })?;
        blobs.extend(blobs_named(&bytes));
    }
    for digest in blobs {
        one(durable, session, digest).await?;
    }
    Ok(())
}

async fn one(durable: &Durable, session: &Mutex<Session>, digest: Digest) -> Result<(), FetchError> {
    let contents = durable.contents();
    if contents.has(&digest) {
        return Ok(());
    }
    let keep = |source| {
        let source = StateError::Spool { what: "keep a content", source };
        FetchError::Keep { digest, source }
    };
    let mut partial = contents.partial(&digest).map_err(keep)?;
    let path = route::BLOB.replace("{digest}", &digest.to_string());
    loop {
        let from = partial.offset();
        let got = session.lock().await.get_range(&path, from).await;
        let (bytes, total) = got.map_err(|source| FetchError::Get { digest, source })?;
        if bytes.is_empty() && from < total {
            return Err(FetchError::CutOff(digest));
        }
        partial.write(&bytes, MAX_BLOB).map_err(keep)?;
        if partial.offset() >= total {
            return contents.finish(&digest).map_err(keep);
        }
    }
}
