//! [`LeftBehind`]: the keys and trust documents that a restore moved aside and that the backup does not have (IDN-8).

use std::fs;
use std::path::Path;

use model::text::shell_word;
use serde::Serialize;
use server::posture::{BEACON_KEY, CONTROL_PLANE_KEY, PREVIOUS_CA, RELEASE_KEY, ROOT_KEY, TRUST_LINKS};
use server::trust_chain::ChainDocuments;

/// The keys that a trust document names, and the certificate that goes with one of them.
const NAMED_KEYS: [&str; 7] =
    [ROOT_KEY, RELEASE_KEY, BEACON_KEY, CONTROL_PLANE_KEY, "node-ca.key", "node-ca.pem", PREVIOUS_CA];
/// The key of the CA of operators, which no trust document names: it goes with the operators in the database.
const OPERATOR_CA_KEY: &str = "operator-ca.key";

/// What of the directory that was moved aside is newer than the backup.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeftBehind {
    /// The newest trust document there, and the backup's, where that is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<TrustVersions>,
    /// Files of keys that the backup lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_keys: Vec<&'static str>,
    /// Files of keys of which the backup has others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_keys: Vec<&'static str>,
    /// Another CA certified operators there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    other_operator_ca: bool,
}

/// Versions of the trust document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct TrustVersions {
    aside: u64,
    restored: u64,
}

impl LeftBehind {
    /// Compares what was moved aside with what was restored. What cannot be read there is not newer: it may be why
    /// somebody restores.
    pub(super) fn of(aside: &Path, restored: &Path) -> LeftBehind {
        let version = |dir| ChainDocuments::read(dir).ok().map(|chain| chain.newest().document.version);
        let trust = match (version(aside), version(restored)) {
            (Some(aside), Some(restored)) if aside > restored => Some(TrustVersions { aside, restored }),
            _ => None,
        };
        let (mut missing_keys, mut other_keys) = (Vec::new(), Vec::new());
        let read = |name: &str| {
            [aside, restored].map(|dir: &Path| fs::read(dir.join(name)).map(zeroize::Zeroizing::new))
        };
        for name in NAMED_KEYS {
            let [there, here] = read(name);
            match (there, here) {
                (Ok(_), Err(_)) => missing_keys.push(name),
                (Ok(there), Ok(here)) if there != here => other_keys.push(name),
                _ => {}
            }
        }
        let [there, here] = read(OPERATOR_CA_KEY);
        let other_operator_ca = matches!((there, here), (Ok(there), Ok(here)) if there != here);
        LeftBehind { trust, missing_keys, other_keys, other_operator_ca }
    }

    pub(super) fn is_nothing(&self) -> bool {
        *self == LeftBehind::default()
    }

    /// For people: what it is, and what puts it back.
    pub(super) fn text(&self, aside: &Path, restored: &Path) -> String {
        let mut out = String::new();
        if let Some(TrustVersions { aside, restored }) = self.trust {
            out.push_str(&format!(
                "trust document {aside} is there, the backup has {restored}: nodes that hold a newer one follow no \
                 rotation of keys from this one, and may refuse releases of its keys\n"
            ));
        }
        if !self.missing_keys.is_empty() {
            out.push_str(&format!(
                "keys that the backup lacks are there: {}\n",
                self.missing_keys.join(", ")
            ));
        }
        if !self.other_keys.is_empty() {
            out.push_str(&format!(
                "other keys than the backup's are there: {}\n",
                self.other_keys.join(", ")
            ));
        }
        // Keys of another time go with the trust document of that time: without a newer one the backup's are as new
        // as those, or newer.
        let (links, other_keys) = match self.trust {
            Some(_) => (Some(TRUST_LINKS), self.other_keys.as_slice()),
            None => (None, [].as_slice()),
        };
        let files: Vec<String> = (links.iter().chain(&self.missing_keys).chain(other_keys))
            .map(|name| shell_word(&aside.join(name).display().to_string()).into_owned())
            .collect();
        if !files.is_empty() {
            out.push_str(&format!(
                "to keep them, before the control plane starts: cp -p {} {}\n",
                files.join(" "),
                shell_word(&restored.display().to_string())
            ));
        }
        if self.other_operator_ca {
            out.push_str(
                "another CA certified operators there: their certificates of it open nothing here. If the backup's was replaced \
                 because it was stolen, once the control plane runs: muster key rotate operator-authority --drop-previous\n",
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_the_backup_lacks_is_named_with_what_puts_it_back() {
        let temp = tempfile::tempdir().unwrap();
        let (aside, restored) = (temp.path().join("aside"), temp.path().join("restored"));
        for (dir, name, text) in [
            (&aside, RELEASE_KEY, "new"),
            (&restored, RELEASE_KEY, "old"),
            (&aside, ROOT_KEY, "same"),
            (&restored, ROOT_KEY, "same"),
            (&aside, BEACON_KEY, "only there"),
        ] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join(name), text).unwrap();
        }
        let found = LeftBehind::of(&aside, &restored);
        assert_eq!((&found.missing_keys[..], &found.other_keys[..]), (&[BEACON_KEY][..], &[RELEASE_KEY][..]));
        let text = found.text(&aside, &restored);
        let dir = temp.path().display();
        assert!(text.contains("other keys than the backup's are there: release.key\n"), "{text}");
        let copy = format!("cp -p {dir}/aside/beacon.key {dir}/restored\n");
        assert!(text.ends_with(&copy), "the other key is perhaps an older one: {text}");
        let newer = LeftBehind { trust: Some(TrustVersions { aside: 3, restored: 2 }), ..found };
        let text = newer.text(&aside, &restored);
        let files =
            ["trust-links.json", "beacon.key", "release.key"].map(|name| format!("{dir}/aside/{name}"));
        assert!(text.ends_with(&format!("cp -p {} {dir}/restored\n", files.join(" "))), "{text}");
        assert!(!text.contains("certified operators"), "{text}");
        let alone = LeftBehind { other_keys: vec![RELEASE_KEY], ..LeftBehind::default() };
        assert!(!alone.text(&aside, &restored).contains("cp "));
        assert!(LeftBehind::of(&restored, &restored).is_nothing());
    }

    /// IDN-8: after a change of the fleet's CA the files that go with the newer trust document are named with it.
    #[test]
    fn the_ca_of_a_newer_document_comes_from_what_was_moved_aside() {
        let temp = tempfile::tempdir().unwrap();
        let (aside, restored) = (temp.path().join("aside"), temp.path().join("restored"));
        for (dir, name, text) in [
            (&aside, "node-ca.key", "new"),
            (&aside, "node-ca.pem", "new"),
            (&aside, PREVIOUS_CA, "old"),
            (&aside, OPERATOR_CA_KEY, "new"),
            (&restored, "node-ca.key", "old"),
            (&restored, "node-ca.pem", "old"),
            (&restored, OPERATOR_CA_KEY, "old"),
        ] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join(name), text).unwrap();
        }
        let newer = Some(TrustVersions { aside: 3, restored: 2 });
        let found = LeftBehind { trust: newer, ..LeftBehind::of(&aside, &restored) };
        let text = found.text(&aside, &restored);
        for name in ["trust-links.json", "node-ca.previous", "node-ca.key", "node-ca.pem"] {
            assert!(text.contains(&format!("aside/{name} ")), "{name}: {text}");
        }
        assert!(!text.contains("operator-ca.key"), "it goes with the database: {text}");
        assert!(text.contains("rotate operator-authority --drop-previous"), "{text}");
    }
}
