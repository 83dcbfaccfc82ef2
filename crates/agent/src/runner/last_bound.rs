//! [`LastBound`]: what stays in memory of the set that was bound last.

use converge::Desired;
use converge::bind::TraitUses;
use lang::Value;
use model::Digest;
use node::ReadTraits;

/// The most memory of a bound set that stays from run to run, as it is estimated: of some 1,000 files. A daemon has
/// 15 MiB in all while nothing is to be done.
const KEPT_BYTES: usize = 2 * 1024 * 1024;

/// What stays of the set that was bound last.
pub(super) struct LastBound {
    root: Digest,
    /// What it reads: as that is in its expressions, it is the same each time.
    uses: TraitUses,
    kept: Option<KeptSet>,
}

/// A bound set, and what it was bound to. Bound to the same again it is the same.
struct KeptSet {
    traits: Value,
    desired: Desired,
}

impl LastBound {
    /// Of a release, of which nothing else stays.
    pub(super) fn new(root: Digest, uses: TraitUses) -> LastBound {
        LastBound { root, uses, kept: None }
    }

    /// Keeps the set that it was bound to, where it is small. Not for one that was made of secrets: they stay
    /// in memory for no longer than they are needed.
    pub(super) fn keeping(self, desired: &Desired, traits: &Value) -> LastBound {
        let is_small = desired.estimated_bytes().is_some_and(|bytes| bytes <= KEPT_BYTES);
        let kept = is_small.then(|| KeptSet { traits: self.uses.select(traits), desired: desired.clone() });
        LastBound { kept, ..self }
    }

    /// Whether it is of this release.
    pub(super) fn is_of(&self, root: Digest) -> bool {
        self.root == root
    }

    /// What the release reads.
    pub(super) fn uses(&self) -> &TraitUses {
        &self.uses
    }

    /// What binding the release would come to, where it stayed.
    pub(super) fn again(&self, root: Digest, traits: &Value) -> Option<Desired> {
        let kept = self.kept.as_ref().filter(|_| self.is_of(root))?;
        (kept.traits == self.uses.select(traits)).then(|| kept.desired.clone())
    }

    /// The traits that it reads, those that change by themselves left out.
    pub(super) fn read_traits(&self, traits: &Value) -> ReadTraits {
        let read = self.uses.select(&providers::traits::stable(traits));
        let digest = model::canonical::to_bytes(&read).map_or(Digest::ZERO, |bytes| Digest::of(&bytes));
        ReadTraits { root: self.root, digest }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;
    use std::sync::Arc;

    use catalog::module::{Module, Params};
    use converge::bind::{Inputs, bind};
    use lang::OpenedSecrets;

    use super::*;

    const ROOT: Digest = Digest::ZERO;

    fn traits(release: &str, load: i64) -> Value {
        serde_json::from_value(serde_json::json!({"os": {"release": release}, "load": {"one": load}}))
            .unwrap()
    }

    /// A set of so many files, which read the release of the host's system.
    fn kept(files: usize, content: &str) -> LastBound {
        let file = |number: usize| {
            serde_json::json!({
                "type": "file", "name": format!("/etc/{number}"),
                "attributes": {"content": format!("${{{{ traits.os.release }}}} {content}")},
            })
        };
        let resources: Vec<_> = (0..files).map(file).collect();
        let module: Module =
            serde_json::from_value(serde_json::json!({"name": "m", "resources": resources})).unwrap();
        let modules = BTreeMap::from([("m".to_owned(), Arc::new(module))]);
        let params: Params =
            serde_json::from_value(serde_json::json!({"node": {"channel": "stable"}, "modules": ["m"]}))
                .unwrap();
        let observed = traits("12", 1);
        let from = Inputs {
            modules: &modules,
            params: &params,
            hostname: Some("host"),
            traits: Some(&observed),
            own_paths: &[],
            secrets: OpenedSecrets::SEALED,
        };
        let desired = bind(&from);
        assert_eq!(desired.resources().count(), files);
        LastBound::new(ROOT, TraitUses::of(&from)).keeping(&desired, &observed)
    }

    /// TRT-2: what a set is bound to is what it reads, and a release is bound anew.
    #[test]
    fn a_set_stays_until_what_it_reads_changes() {
        let last = kept(3, "");
        assert!(last.again(ROOT, &traits("12", 1)).is_some());
        assert!(last.again(ROOT, &traits("12", 7)).is_some(), "it reads no load");
        assert!(last.again(ROOT, &traits("13", 1)).is_none());
        assert!(last.again(Digest::of(b"other"), &traits("12", 1)).is_none());
    }

    /// CNV-12: what stays in memory is bounded, whatever it is made of.
    #[test]
    fn a_large_set_does_not_stay() {
        let stays = |files, content: &str| kept(files, content).again(ROOT, &traits("12", 1)).is_some();
        assert!(stays(1000, "setting = 1") && !stays(4000, "setting = 1"));
        let text = "x".repeat(KEPT_BYTES / 4);
        assert!(stays(3, &text) && !stays(4, &text));
    }
}
