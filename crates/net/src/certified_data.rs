//! [`CertifiedData`]: what a node's certificate says of the node besides who it is (IDN-2): its channel and the labels that
//! the release declared when it was issued.
//!
//! It is data for people and for other programs that see the certificate, and old by as much as the certificate is.
//! Nothing here or in the control plane is allowed by it: who a node is, is its key, and what it may do, the release says.
//! [`crate::identity::read`], which all authorization begins with, does not even read it.

use std::collections::BTreeMap;

use model::Channel;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use wire::percent;

use crate::certificate::Certificate;

/// What names follow that say a channel or a label.
const CHANNEL_URI: &str = "muster:channel:";
const LABEL_URI: &str = "muster:label:";
/// The most labels in one certificate.
pub const MAX_CERTIFIED_LABELS: usize = 16;
/// The most bytes of all names that say labels: a certificate travels with each new connection.
pub const MAX_CERTIFIED_BYTES: usize = 512;

/// What a certificate says of its node besides who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertifiedData {
    /// The channel that the release gave the node to.
    pub channel: Option<Channel>,
    /// Labels that the release declared of the node, with their values as text.
    pub labels: BTreeMap<String, String>,
}

impl CertifiedData {
    /// The names that say it, in their order: the channel, then labels by name, as many as
    /// [`MAX_CERTIFIED_LABELS`] and [`MAX_CERTIFIED_BYTES`] let in; the others are left out.
    pub(crate) fn names(&self) -> Vec<String> {
        let channel = self.channel.iter().map(|channel| format!("{CHANNEL_URI}{channel}"));
        let label = |(name, value): (&String, &String)| {
            let encoded = percent::encode_component;
            format!("{LABEL_URI}{}={}", encoded(name), encoded(value))
        };
        let mut bytes = 0;
        let mut fits = |name: &String| {
            let fits = bytes + name.len() <= MAX_CERTIFIED_BYTES;
            bytes += if fits { name.len() } else { 0 };
            fits
        };
        let labels = self.labels.iter().map(label).filter(|name| fits(name)).take(MAX_CERTIFIED_LABELS);
        channel.chain(labels).collect()
    }

    /// Reads what the first certificate of a PEM text says; nothing of what is no such name.
    pub fn read(pem: &[u8]) -> CertifiedData {
        let mut data = CertifiedData::default();
        let Ok(der) = CertificateDer::from_pem_slice(pem) else { return data };
        let uris = Certificate::read(&der).and_then(|certificate| certificate.uris()).unwrap_or_default();
        for uri in uris.into_iter().take(2 + MAX_CERTIFIED_LABELS) {
            if let Some(channel) = uri.strip_prefix(CHANNEL_URI) {
                data.channel = channel.parse().ok();
            } else if let Some((name, value)) = uri.strip_prefix(LABEL_URI).and_then(|it| it.split_once('='))
            {
                data.labels.insert(percent::decode(name), percent::decode(value));
            }
        }
        data
    }
}
