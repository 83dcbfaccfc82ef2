//! The number of the next release, and what the publisher remembers of the last one.
//!
//! ```text
//! newest release of the control plane --+
//! header that nodes hold, verified -----+--> highest --+1--> the next release
//! last header signed with this key -----+        ^
//! data went back, and nobody outside it knows ---+ + SKIPPED
//! ```
//!
//! Invariant: no number is signed twice for two releases, also after the control plane was restored from a
//! backup (SCL-4): nodes would find two different headers of one number.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use model::FleetId;
use model::exchange::Signed;
use server::api::HeadView;
use server::posture::DATABASE;
use spool::Disk;
use trust::{Header, PublicKey, Slots, signed};

/// So many numbers are passed over where nobody knows which were given.
const SKIPPED: u64 = 1_000_000;
/// The longest header that is read, in bytes. One with all of its fallbacks has a few KiB.
const MAX_HEADER: u64 = 64 * 1024;
/// What is added to the name of the key's file.
pub(crate) const SUFFIX: &str = "last";

/// The last header that was signed with a key, in a file beside the key.
pub(super) struct LastSigned {
    path: PathBuf,
    key: Slots,
    fleet: FleetId,
    /// It lies in a control plane's directory, and goes back with it.
    beside_database: bool,
    seq: Option<u64>,
}

/// The number of the next release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NextNumber {
    pub(super) seq: u64,
    /// Why it is not the one after the newest release of the control plane.
    pub(super) gap: Option<String>,
}

impl LastSigned {
    /// Reads what is kept beside a key. What cannot be read or believed counts as nothing, and is said.
    pub(super) fn beside(key_file: &Path, key: PublicKey, fleet: &FleetId) -> LastSigned {
        let mut name = key_file.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(SUFFIX);
        let path = key_file.with_file_name(name);
        let beside_database = key_file.with_file_name(DATABASE).exists();
        let key = Slots::of(key);
        let mut last = LastSigned { path, key, fleet: fleet.clone(), beside_database, seq: None };
        last.seq = last.read();
        last
    }

    fn read(&self) -> Option<u64> {
        let mut text = Vec::new();
        // A text that was cut is no header.
        let file = std::fs::File::open(&self.path);
        match file.and_then(|file| file.take(MAX_HEADER).read_to_end(&mut text)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "the last header that was signed cannot be read");
                return None;
            }
            Ok(_) => {}
        }
        let seq = serde_json::from_slice::<Signed>(&text).ok().and_then(|kept| self.number_of(&kept));
        if seq.is_none() {
            tracing::warn!(file = %self.path.display(), "this is no header of this fleet signed with this key");
        }
        seq
    }

    fn number_of(&self, kept: &Signed) -> Option<u64> {
        let header: Header = signed::verify(kept, &self.key).ok()?;
        (header.fleet == self.fleet).then_some(header.seq)
    }

    /// Keeps a header before anybody gets it. Where that cannot be done the publish goes on: only a control plane
    /// that was restored needs it.
    pub(super) fn keep<'h>(&mut self, seq: u64, headers: impl IntoIterator<Item = &'h Signed>) {
        self.seq = Some(seq);
        // With several signers one of the others may have signed some alone.
        let Some(header) = headers.into_iter().find(|header| self.number_of(header).is_some()) else {
            return;
        };
        let Ok(text) = serde_json::to_vec(header) else { return };
        if let Err(error) = spool::atomic::write_file(&Disk::new(), &self.path, &text, 0o600) {
            tracing::warn!(
                file = %self.path.display(),
                %error,
                "the last header that was signed cannot be kept beside the key"
            );
        }
    }

    /// The number of the next release over what the control plane says of the newest.
    pub(super) fn next(&self, head: &HeadView) -> NextNumber {
        let newest = head.seq.unwrap_or(0);
        let held = head.node_header.as_ref().and_then(|held| {
            let header = head.trust.header(held).ok()?;
            (header.fleet == head.trust.fleet).then_some(header.seq)
        });
        let own = self.seq;
        let highest = newest.max(held.unwrap_or(0)).max(own.unwrap_or(0));
        // What lies beside the database went back with it, unless it says more than the database does. Where the
        // database has a higher number, somebody else signs too, and what that one signed last is not known here.
        let remembers = own.is_some_and(|own| own > newest || own == newest && !self.beside_database);
        if head.went_back.is_some() && !remembers {
            return NextNumber {
                seq: highest + SKIPPED + 1,
                gap: Some(format!(
                    "the control plane's data went back to what it was before, and the last number given is \
                     known to nobody here: {SKIPPED} numbers above release {highest} are passed over"
                )),
            };
        }
        let by = match (held, own) {
            _ if highest == newest => None,
            (Some(held), _) if held == highest => Some(format!("release {held}, which nodes hold")),
            _ => Some(format!("release {highest}, the last one that was signed with this key")),
        };
        NextNumber { seq: highest + 1, gap: by.map(|by| format!("the number goes on above {by}")) }
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use server::api::HeadView;
    use store::{DatabaseIncarnation, IncarnationCause};
    use trust::{Header, SigningKey, Slots, TrustDocument, signed};

    use super::{LastSigned, SKIPPED};

    fn key() -> SigningKey {
        SigningKey::from_seed(&[1; 32])
    }

    fn header(seq: u64, fleet: &str, key: &SigningKey) -> model::exchange::Signed {
        let header = Header {
            fleet: fleet.parse().unwrap(),
            channel: "stable".parse().unwrap(),
            seq,
            label: None,
            created: Timestamp(1),
            freshness_secs: 1,
            selection: model::Digest::ZERO,
            fallbacks: Vec::new(),
            requires: Vec::new(),
            rollout: None,
        };
        signed::sign(&header, &[key]).unwrap()
    }

    fn head(seq: Option<u64>, held: Option<u64>, went_back: bool) -> HeadView {
        let (fleet, slots) = ("acme-1".parse().unwrap(), Slots::of(key().public()));
        let id = "d1".parse().unwrap();
        let incarnation = DatabaseIncarnation::begun(id, IncarnationCause::Restored, Timestamp(1));
        HeadView {
            trust: TrustDocument::first(fleet, slots.clone(), slots),
            seq,
            selection: None,
            headers: Default::default(),
            node_header: held.map(|seq| header(seq, "acme-1", &key())),
            went_back: went_back.then_some(incarnation),
            minimum_agent: None,
            trust_overtaken: None,
        }
    }

    fn kept(dir: &std::path::Path) -> LastSigned {
        LastSigned::beside(&dir.join("release.key"), key().public(), &"acme-1".parse().unwrap())
    }

    #[test]
    fn the_next_number_is_above_all_that_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let number = |head: HeadView| {
            let next = kept(dir.path()).next(&head);
            (next.seq, next.gap.is_some())
        };
        assert_eq!(number(head(None, None, false)), (1, false));
        assert_eq!(number(head(Some(20), None, false)), (21, false));
        assert_eq!(number(head(Some(20), Some(21), false)), (22, true));
        let skipped = 20 + SKIPPED + 1;
        assert_eq!(number(head(Some(20), None, true)), (skipped, true), "nobody knows which were given");
        assert_eq!(number(head(Some(20), Some(23), true)), (skipped + 3, true));
        kept(dir.path()).keep(24, [&header(24, "acme-1", &key())]);
        assert_eq!(number(head(Some(20), Some(21), true)), (25, true), "the publisher knows");
        assert_eq!(number(head(Some(24), None, false)), (25, false));
        // Beside the database it may have gone back too, unless it is ahead of it.
        std::fs::write(dir.path().join("muster.db"), "x").unwrap();
        assert_eq!(number(head(Some(24), None, true)), (24 + SKIPPED + 1, true));
        assert_eq!(number(head(Some(20), None, true)), (25, true));
        // Of another fleet, key, or no header at all.
        for text in [
            serde_json::to_string(&header(90, "other-1", &key())).unwrap(),
            serde_json::to_string(&header(90, "acme-1", &SigningKey::from_seed(&[2; 32]))).unwrap(),
            "{".to_owned(),
            // Of a text without end the beginning is read.
            " ".repeat(1 << 20) + &serde_json::to_string(&header(90, "acme-1", &key())).unwrap(),
        ] {
            std::fs::write(dir.path().join("release.key.last"), text).unwrap();
            assert_eq!(number(head(Some(20), None, false)), (21, false));
        }
    }

    #[test]
    fn a_header_of_nodes_that_nobody_signed_moves_no_number() {
        let dir = tempfile::tempdir().unwrap();
        let forged = header(90, "acme-1", &SigningKey::from_seed(&[2; 32]));
        let head = HeadView { node_header: Some(forged), ..head(Some(20), None, false) };
        assert_eq!(kept(dir.path()).next(&head).seq, 21);
    }
}
