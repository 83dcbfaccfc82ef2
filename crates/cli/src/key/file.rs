//! Key files: made, read, and put in place of the one before.

use std::fs;
use std::path::{Path, PathBuf};

use server::posture::{self, BEACON_KEY, CONTROL_PLANE_KEY, RELEASE_KEY, ROOT_KEY};
use spool::Disk;
use spool::atomic::{Existing, WholeFile};
use trust::chain::SlotName;
use trust::sealing::age::{self, ScryptWork};
use trust::{KeyAlgorithm, PublicKey, RecipientKey, SigningKey, TrustDocument};
use zeroize::Zeroizing;

use super::FleetKeyError;
use crate::publish::number::SUFFIX as LAST;
use crate::signer;

/// The work of a passphrase: 256 MiB, about a second.
const SCRYPT_LOG_N: u8 = 18;
/// What is added to the name of a key that does not count yet.
const NEXT: &str = "next";
/// What is added to the name of the key before.
const PREVIOUS: &str = "previous";

/// How the private half lies in a file.
pub(super) enum KeyProtection {
    /// As it is, for its owner alone to read (0600).
    Plain,
    /// In an age file for these recipients.
    Recipients(Vec<RecipientKey>),
    /// In an age file for the passphrase in the first line of a file.
    Passphrase(PathBuf),
}

impl KeyProtection {
    fn protect(&self, text: Zeroizing<String>) -> Result<Zeroizing<String>, FleetKeyError> {
        let seed = || posture::random::<32>().map(Zeroizing::new).map_err(FleetKeyError::Random);
        let file = match self {
            KeyProtection::Plain => return Ok(text),
            KeyProtection::Recipients(recipients) => {
                age::encrypt(text.as_bytes(), recipients, &*seed()?).map_err(FleetKeyError::Encrypt)?
            }
            KeyProtection::Passphrase(path) => {
                let passphrase = signer::read_passphrase(path)?;
                let stretch = |work: &ScryptWork| Ok(signer::stretch(&passphrase, work)?);
                age::encrypt_for_passphrase::<FleetKeyError>(
                    text.as_bytes(),
                    SCRYPT_LOG_N,
                    &*seed()?,
                    stretch,
                )?
            }
        };
        Ok(Zeroizing::new(age::armor(&file)))
    }
}

/// Makes a key in a file that is not there yet.
pub(super) fn make(
    path: &Path,
    algorithm: KeyAlgorithm,
    protection: &KeyProtection,
) -> Result<PublicKey, FleetKeyError> {
    if path.exists() {
        return Err(FleetKeyError::Exists(path.to_owned()));
    }
    let key = loop {
        let secret = zeroize::Zeroizing::new(posture::random().map_err(FleetKeyError::Random)?);
        // All but a few of the numbers are a scalar of the curve.
        if let Ok(key) = SigningKey::from_secret(algorithm, &secret) {
            break key;
        }
    };
    let file = WholeFile { existing: Existing::Keep, ..WholeFile::new(path, 0o600) };
    let written = file.write(&Disk::new(), protection.protect(key.to_file())?.as_bytes());
    written.map_err(|source| FleetKeyError::Write { path: path.to_owned(), source })?;
    Ok(key.public())
}

/// Reads a key file of a control plane's directory; `None` when there is none.
fn read(path: &Path) -> Result<Option<SigningKey>, FleetKeyError> {
    posture::read_key(path).map_err(FleetKeyError::Key)
}

/// Where the key of a slot lies in a control plane's directory, in lab posture.
pub(super) struct LabKey {
    path: PathBuf,
    slot: SlotName,
}

impl LabKey {
    /// `None` for the keys of CAs, which the control plane makes and puts in place itself.
    pub(super) fn of(dir: &Path, slot: SlotName) -> Option<LabKey> {
        let name = match slot {
            SlotName::CertificateAuthority => return None,
            SlotName::Release => RELEASE_KEY,
            SlotName::Beacon => BEACON_KEY,
            SlotName::ControlPlane => CONTROL_PLANE_KEY,
            SlotName::Root => ROOT_KEY,
        };
        Some(LabKey { path: dir.join(name), slot })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(suffix);
        name.into()
    }

    /// Makes the key that is to count next, or finds the one that an earlier attempt made.
    pub(super) fn stage(&self, document: &TrustDocument) -> Result<SigningKey, FleetKeyError> {
        let lies_here = match self.slot.of(document) {
            Some(slots) => read(&self.path)?.is_some_and(|key| key.public() == slots.current),
            // The fleet's first key of that use.
            None => true,
        };
        if lies_here { self.stage_anew(document) } else { Err(FleetKeyError::NoNewKey(self.slot.as_str())) }
    }

    /// As [`LabKey::stage`], also where the key before is lost.
    pub(super) fn stage_anew(&self, document: &TrustDocument) -> Result<SigningKey, FleetKeyError> {
        let next = self.beside(NEXT);
        if !next.exists() {
            let slots = self.slot.of(document).unwrap_or(&document.release);
            make(&next, slots.current.algorithm(), &KeyProtection::Plain)?;
        }
        read(&next)?.ok_or(FleetKeyError::NotAKey(next))
    }

    /// Puts the staged key in the place of the one before, which stays beside it, once it is what counts.
    pub(super) fn put_in_place(&self, document: &TrustDocument) -> Result<(), FleetKeyError> {
        let next = self.beside(NEXT);
        let current = self.slot.of(document).map(|slots| slots.current);
        let counts = read(&next)?.is_some_and(|key| Some(key.public()) == current);
        if !counts {
            return Ok(());
        }
        if self.path.exists() {
            fs::rename(&self.path, self.beside(PREVIOUS)).map_err(FleetKeyError::InPlace)?;
        }
        // The last header that it signed, which is none of the new key's.
        let last = self.beside(LAST);
        if last.exists() {
            fs::rename(&last, self.beside(&format!("{PREVIOUS}.{LAST}"))).map_err(FleetKeyError::InPlace)?;
        }
        fs::rename(&next, &self.path).map_err(FleetKeyError::InPlace)
    }
}
