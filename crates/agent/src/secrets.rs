//! Opening the secrets of the held release, in memory, before it is bound (SEC-1).
//!
//! What cannot be opened is no error of the set: what is made of it is blocked, by name and with the reason, and all
//! else converges. Nothing of a value is logged, kept on disk or told to anybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use lang::OpenedSecrets;
use model::{Hostname, Kind, Stub};
use node::Adoption;
use trust::sealing::{self, MAX_NODE_SECRETS, SealedSecret, SealingKey, SecretKeys};

use crate::render::chain;
use crate::state::{Durable, StateError};

/// Whether a release has secrets.
pub(crate) fn are_held(adoption: &Adoption) -> bool {
    adoption.objects.keys().any(|key| key.section.kind.as_str() == Kind::SECRET_REF)
}

/// Opens all secrets of a release.
///
/// # Errors
/// When a content of the release is not there.
pub(crate) fn open(
    adoption: &Adoption,
    durable: &Durable,
    hostname: &str,
) -> Result<OpenedSecrets, StateError> {
    let of = |kind: &'static str| {
        adoption.objects.iter().filter(move |(key, _)| key.section.kind.as_str() == kind)
    };
    let mut values = BTreeMap::new();
    if !are_held(adoption) {
        return Ok(OpenedSecrets::opened(values));
    }
    leave_no_core();
    let own = own_keys(of(Kind::SECRET_KEYS).next().map(|(_, stub)| stub), durable, hostname)?;
    for (key, stub) in of(Kind::SECRET_REF).take(MAX_NODE_SECRETS) {
        let content = durable.content(&stub.digest)?;
        let opened = match &own {
            Ok(own) => opened(&content, &key.name, own),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = &opened {
            // The run's report says so, in each run that it concerns.
            tracing::debug!(secret = %key.name, why, "a secret of the held release cannot be opened");
        }
        values.insert(key.name.to_string(), opened);
    }
    Ok(OpenedSecrets::opened(values))
}

/// What a node opens its secrets with.
struct OwnKeys {
    key: Arc<SealingKey>,
    node: Hostname,
    keys: Option<SecretKeys>,
}

fn own_keys(
    keys: Option<&Stub>,
    durable: &Durable,
    hostname: &str,
) -> Result<Result<OwnKeys, String>, StateError> {
    let content = keys.map(|stub| durable.content(&stub.digest)).transpose()?;
    let read = || {
        let key = durable.sealing_key().map_err(|error| chain(&error))?;
        let node = hostname.parse().map_err(|_| "this node's name is no hostname".to_owned())?;
        let keys = content.map(|content| model::canonical::parse::<SecretKeys>(&content)).transpose();
        let keys =
            keys.map_err(|error| format!("the release's keys for this node cannot be read: {error}"))?;
        Ok(OwnKeys { key, node, keys })
    };
    Ok(read())
}

fn opened(content: &[u8], name: &str, own: &OwnKeys) -> Result<zeroize::Zeroizing<Vec<u8>>, String> {
    let sealed: SealedSecret =
        model::canonical::parse(content).map_err(|error| format!("it cannot be read: {error}"))?;
    // The set's name for it is the signed one.
    if sealed.name != name {
        return Err("it is another secret under this name".to_owned());
    }
    sealing::open(&own.key, &own.node, &sealed, own.keys.as_ref()).map_err(|error| error.to_string())
}

/// From here on this process has secrets in its memory: nothing of it is written to a core file (SEC-3).
fn leave_no_core() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    // Where the kernel refuses, the other of the two still holds.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use trust::SigningKey;
    use trust::sealing::SecretSealer;

    use super::*;

    fn own(node: &str) -> (OwnKeys, Vec<u8>) {
        let key = SealingKey::from_secret(&[3; 32]).unwrap();
        let node: Hostname = node.parse().unwrap();
        let sealer = SecretSealer::of(&SigningKey::from_seed(&[7; 32]));
        let in_hand = sealer.seal("app/key", b"planted").unwrap();
        let wraps = [("app/key".to_owned(), in_hand.wrap(&node, &key.public()).unwrap())].into();
        let keys = SecretKeys { node: node.clone(), recipient: key.public(), wraps };
        let content = model::canonical::to_bytes(in_hand.sealed()).unwrap();
        (OwnKeys { key: Arc::new(key), node, keys: Some(keys) }, content)
    }

    /// SEC-1: a value stands under the name that the signed set has for it, and under no other.
    #[test]
    fn a_secret_is_opened_under_the_name_that_the_set_signs() {
        let (own, content) = own("web-1");
        assert_eq!(opened(&content, "app/key", &own).unwrap().as_slice(), b"planted");
        let other = opened(&content, "app/other", &own).unwrap_err();
        assert_eq!(other, "it is another secret under this name");
        assert!(opened(b"{}", "app/key", &own).unwrap_err().starts_with("it cannot be read"));
        let none = OwnKeys { keys: None, ..own };
        assert!(opened(&content, "app/key", &none).unwrap_err().contains("seals nothing for this node"));
    }
}
