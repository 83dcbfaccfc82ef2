//! A control plane that was broken into: it points at what it should not.

use model::exchange::Offer;
use model::{Edit, Hostname, Stub};
use plane::{Head, SetBase, SetWanted};
use trust::SigningKey;
use trust::adopt::takes;
use trust::signed::sign;

use crate::chance::Chance;
use crate::control::ControlPlane;
use crate::publisher::{Publisher, entry_in};

/// An offer that no node may take, or one that is odd and does no harm; with its name.
pub(crate) fn offer(
    control: &ControlPlane,
    publisher: &Publisher,
    hostname: &Hostname,
    chance: &mut Chance,
) -> Option<(&'static str, Offer)> {
    let (head, _) = publisher.expected(hostname)?;
    let mut offer = honest(control, publisher, &head, hostname)?;
    let name = match chance.below(8) {
        0 => {
            offer.header.signatures.clear();
            "hostile: unsigned"
        }
        1 => {
            let forged = trust::Header { seq: head.header.seq + 1000, ..head.header.clone() };
            offer.header = sign(&forged, &[&SigningKey::from_seed(&[9; 32])]).ok()?;
            "hostile: another key"
        }
        2 => {
            let at = chance.below(offer.header.payload.len());
            let mut bytes = offer.header.payload.into_bytes();
            bytes[at] ^= 1 << chance.below(7);
            offer.header.payload = String::from_utf8(bytes).ok()?;
            "hostile: a flipped bit"
        }
        3 => {
            let other = "edge-other".parse().ok()?;
            let theirs = honest(control, publisher, &head, &other)?;
            offer = Offer { header: offer.header, ..theirs };
            "hostile: another node's proof"
        }
        4 => {
            for edit in offer.set.as_mut()?.delta.edits.values_mut() {
                *edit = Edit::Add { to: Stub::of(b"evil") };
            }
            "hostile: other contents"
        }
        5 => {
            for edit in offer.set.as_mut()?.delta.edits.values_mut() {
                let to = edit.to().cloned()?;
                *edit = Edit::Add { to: Stub { size: to.size + 1, ..to } };
            }
            "hostile: wrong sizes"
        }
        _ => {
            let old: Vec<_> =
                publisher.signed.values().filter(|old| old.header.seq < head.header.seq).collect();
            let old = if old.is_empty() { return None } else { old[chance.below(old.len())].clone() };
            offer = honest(control, publisher, &old, hostname)?;
            "hostile: an older release"
        }
    };
    Some((name, offer))
}

/// A release as it would be offered, whole; `None` when it has nothing for the hostname.
fn honest(control: &ControlPlane, publisher: &Publisher, head: &Head, hostname: &Hostname) -> Option<Offer> {
    let entry = entry_in(head, hostname)?;
    let first = head.selection.first(hostname.as_str(), &takes);
    let proof = head.selection.prove(hostname.as_str(), first).ok()?;
    let set = control.set_offer(SetWanted { base: SetBase::Nothing, target: entry.root }, publisher);
    let (header, beacon) = ((*head.signed).clone(), head.beacon.as_deref().cloned());
    Some(Offer { header, beacon, entry, proof, set: Some(set) })
}
