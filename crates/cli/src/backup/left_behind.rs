//! [`LeftBehind`]: the keys and trust documents that a restore moved aside and that the backup does not have (IDN-8).

use std::fs;
use std::path::Path;

use model::text::shell_word;
use serde::Serialize;
use server::posture::{BEACON_KEY, RELEASE_KEY, ROOT_KEY, TRUST_LINKS};
use server::trust_chain::ChainDocuments;

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
        for name in [ROOT_KEY, RELEASE_KEY, BEACON_KEY] {
            let there = fs::read(aside.join(name)).map(zeroize::Zeroizing::new);
            let here = fs::read(restored.join(name)).map(zeroize::Zeroizing::new);
            match (there, here) {
                (Ok(_), Err(_)) => missing_keys.push(name),
                (Ok(there), Ok(here)) if there != here => other_keys.push(name),
                _ => {}
            }
        }
        LeftBehind { trust, missing_keys, other_keys }
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
        let alone = LeftBehind { other_keys: vec![RELEASE_KEY], ..LeftBehind::default() };
        assert!(!alone.text(&aside, &restored).contains("cp "));
        assert!(LeftBehind::of(&restored, &restored).is_nothing());
    }
}
