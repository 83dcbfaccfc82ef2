//! What an earlier release held, under another number, signed anew (ROL-4).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Digest;
use server::api::operation::Empty;
use server::api::{self, Commit, ReleaseSummary};
use store::Release;
use trust::release::MAX_FALLBACKS;
use trust::retired::{RetiredHeader, RetiredHeaderError, verify_retired};
use trust::rollout_terms::OnFailure;
use trust::signed::VerifyError;
use trust::{Header, RolloutTerms};

use super::super::error::PublishError;
use super::super::request::SigningRequest;
use super::super::signers::Signatures;
use super::Publisher;
use crate::header::{self, HeaderError};
use crate::lists::ListsPlan;

/// The headers of an earlier release.
#[derive(Debug, Default)]
pub(crate) struct EarlierHeaders {
    pub(crate) headers: Vec<Header>,
    /// That a retired key signed one of them, in words.
    pub(crate) retired: Option<String>,
}

/// What an earlier release is to be published as.
struct ReleaseAgain<'a> {
    release: &'a Release,
    headers: &'a [Header],
    /// What the new headers point to.
    selection: Digest,
    label: Option<String>,
}

impl Publisher {
    /// The headers of an earlier release, verified: all of its number and of one selection. One that a retired key
    /// signed counts as well: what it points to is signed anew.
    ///
    /// # Errors
    /// When one is not believed, or the chain of trust documents cannot be asked for.
    pub(crate) async fn headers_of(&self, release: &Release) -> Result<EarlierHeaders, PublishError> {
        let (seq, mut chain) = (release.seq, None);
        let mut found = EarlierHeaders::default();
        for (channel, document) in &release.headers {
            let header = match header::verify(channel, document, &self.head.trust) {
                Ok(header) => header,
                Err(HeaderError { source: VerifyError::RejectedBefore(limit), .. }) => {
                    return Err(PublishError::Rejected { seq, limit });
                }
                Err(HeaderError {
                    source: why @ (VerifyError::Untrusted | VerifyError::TooFew { .. }),
                    ..
                }) => {
                    if chain.is_none() {
                        chain = Some(self.operator.call(&api::TRUST, Empty {}).await?);
                    }
                    let Some(chain) = &chain else { continue };
                    let retired = verify_retired(document, &header::line_that_counts(chain));
                    let retired = retired.map_err(|error| match error {
                        RetiredHeaderError::NeverBelieved => PublishError::NeverBelieved { seq },
                        RetiredHeaderError::RejectedBefore(limit) => PublishError::Rejected { seq, limit },
                        RetiredHeaderError::SignedAfterDropped { .. } => {
                            PublishError::SignedAfterDropped { seq, source: error }
                        }
                    })?;
                    let RetiredHeader { header, key, version } = retired;
                    found.retired = Some(match why {
                        VerifyError::TooFew { .. } => format!(
                            "release {seq} was signed by {key}, which is fewer than channel {channel} asks for by \
                             now: trust document {version} was the last by which that was enough; its content is signed \
                             anew by as many"
                        ),
                        _ => format!(
                            "release {seq} was signed by release key {key}, which is retired: trust document {version} \
                             was the last to name it; its content is signed anew with the key of today"
                        ),
                    });
                    header
                }
                Err(error) => return Err(error.into()),
            };
            let same = header.seq == seq && header.selection == release.selection;
            if !same || header.channel != *channel || header.fleet != self.head.trust.fleet {
                return Err(PublishError::OtherHeader { channel: channel.clone(), seq });
            }
            found.headers.push(header);
        }
        Ok(found)
    }

    /// Points the fleet to what an earlier release held, under a number of its own. `selection` is that release's, or
    /// the same with other secrets, which the control plane has by now.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub(crate) async fn republish(
        &mut self,
        release: &Release,
        selection: Digest,
        label: Option<String>,
    ) -> Result<u64, PublishError> {
        self.redial().await?;
        let headers = self.headers_of(release).await?.headers;
        let signed = |publisher: &Publisher, seq| {
            let again = ReleaseAgain { release, headers: &headers, selection, label: label.clone() };
            publisher.signed_again(again, seq, Signatures::Enough)
        };
        let seq = self.commit(selection, signed).await?;
        self.published = None;
        Ok(seq)
    }

    /// As [`Publisher::republish`], for others to sign and to publish.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub(crate) async fn request_again(
        &mut self,
        release: &Release,
        selection: Digest,
        label: Option<String>,
    ) -> Result<SigningRequest, PublishError> {
        self.redial().await?;
        let headers = self.headers_of(release).await?.headers;
        let again = ReleaseAgain { release, headers: &headers, selection, label };
        let commit = self.signed_again(again, self.next_seq(), Signatures::AtHand)?;
        Ok(self.requested(commit, &ListsPlan::default()))
    }

    /// What an earlier release held, under another number.
    fn signed_again(
        &self,
        ReleaseAgain { release, headers, selection, label }: ReleaseAgain<'_>,
        seq: u64,
        signatures: Signatures,
    ) -> Result<Commit, PublishError> {
        let summary: ReleaseSummary = serde_json::from_value(release.summary.clone()).unwrap_or_default();
        let mut commit = Commit {
            headers: BTreeMap::new(),
            expected_head: self.head.seq,
            summary: ReleaseSummary { by: None, ..summary },
        };
        for old in headers {
            let (label, created) = (label.clone(), crate::clock::now());
            let again =
                |terms: &Arc<RolloutTerms>| Arc::new(RolloutTerms::clone(terms).signed_again(created));
            let rollout = old.rollout.as_ref().map(again);
            let goes_back = rollout.as_ref().is_some_and(|terms| terms.on_failure == OnFailure::Rollback);
            let mut fallbacks = if goes_back { self.before(&old.channel) } else { Vec::new() };
            fallbacks.truncate(MAX_FALLBACKS);
            let header = Header { seq, label, created, selection, fallbacks, rollout, ..old.clone() };
            let document = self.signers.sign(&header, &self.head.trust, signatures)?;
            commit.headers.insert(old.channel.clone(), document);
        }
        Ok(commit)
    }
}
