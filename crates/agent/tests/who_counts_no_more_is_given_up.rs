//! IDN-8: an agent that heard of other CAs keeps the open connection where whoever is there is believed still, and gives it
//! up where a CA counts no more: the thief of a CA would keep it open for ever, and be believed on it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use agent::membership::{BelievedAnew, MembershipFile};
use model::Timestamp;
use net::issue::Ca;
use test_support::scripted::stage::{Commands, ROOT, joined, trust};
use test_support::scripted::victim::Victim;
use test_support::scripted::{key, now};
use test_support::wait::until;
use trust::Slots;
use trust::chain::{ChainHead, SlotChange, SlotName, next_version, sign};

fn ca() -> Ca {
    Ca::generate("a CA", now()).unwrap().0
}

/// What becomes of the open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// The same CAs are believed.
    Untouched,
    /// It is replaced once another one is made.
    GoesOn,
    /// It is given up at once.
    GivenUp,
}

#[test]
fn by_whom_it_believes_before_and_afterwards() {
    let (first, second) = (ca(), ca());
    let of = |current: &Ca, previous: Option<&Ca>, reject_before: Option<Timestamp>| {
        Some(Slots { current: *current.key(), previous: previous.map(|ca| *ca.key()), reject_before })
    };
    let limit = Some(now());
    let (own, moved, both) =
        (of(&first, None, None), of(&second, None, None), of(&second, Some(&first), None));
    let rows = [
        // From the certificate that it joined with.
        (None, None, Open::Untouched),
        (None, own.clone(), Open::GoesOn),
        (None, both.clone(), Open::GoesOn),
        (None, moved.clone(), Open::GivenUp),
        (None, of(&first, None, limit), Open::GivenUp),
        // From keys that a document names.
        (own.clone(), own.clone(), Open::Untouched),
        (own.clone(), both.clone(), Open::GoesOn),
        (own.clone(), moved.clone(), Open::GivenUp),
        (own.clone(), of(&second, Some(&first), limit), Open::GivenUp),
        (own.clone(), None, Open::GivenUp),
        (both.clone(), moved.clone(), Open::GivenUp),
        (moved.clone(), both, Open::GoesOn),
    ];
    for (before, now, open) in rows {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("state");
        let url = "https://127.0.0.1:1".parse().unwrap();
        joined(url, &first, &state, temp.path(), Commands::Refused);
        let mut member =
            agent::state::StateDir::at(&state, spool::Disk::new()).membership().unwrap().unwrap();
        member.trust.certificate_authority = before.clone();
        let file = MembershipFile::of(&state, member, Arc::new(key(1)));
        let found = match file.believe(now.as_ref()).unwrap() {
            None => Open::Untouched,
            Some(BelievedAnew::More(_)) => Open::GoesOn,
            Some(BelievedAnew::Less(_)) => Open::GivenUp,
        };
        assert_eq!(found, open, "{before:?} -> {now:?}");
        assert!(file.believe(now.as_ref()).unwrap().is_none(), "once");
    }
}

/// The control plane that is there holds the CA that was dropped, and hands the document on that says so.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_on_it_any_more() {
    let mut victim = Victim::start().await;
    let mut head = ChainHead::of(trust());
    head.document.certificate_authority = Some(Slots::of(*victim.control.ca().key()));
    let change = SlotChange::Replace(*ca().key());
    let next = next_version(&head, SlotName::CertificateAuthority, change, None, now()).unwrap();
    let link = sign(&next, &key(ROOT)).unwrap();
    victim.control.stage.play().twist = Some(Arc::new(move |answer| answer.trust_links = vec![link.clone()]));
    let logged = |what: &str| String::from_utf8_lossy(&victim.log()).matches(what).count();
    let refusals = || logged("is not this fleet's control plane");
    until("it finds nobody whom it believes", async || (refusals() > 0).then_some(())).await;
    assert!(logged("believed by the CAs of the newer trust document") > 0);
    let (contacts, refused) = (victim.control.stage.play().check_ins, refusals());
    until("it tries again", async || (refusals() > refused + 1).then_some(())).await;
    assert_eq!(victim.control.stage.play().check_ins, contacts, "who is believed no more hears nothing");
    assert_eq!(victim.file("/etc/motd"), "five\n");
    victim.is_alive();
}
