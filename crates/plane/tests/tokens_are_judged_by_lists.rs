//! ENR-3, IDN-6: what lists say of tokens and nodes, as tables.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;
use plane::NodeState;
use plane::lists::{
    AllowlistRule, AllowlistState, FleetLists, JoinCredential, KeptList, RevocationChange, TokenListRefusal,
    TokenRules,
};
use trust::lists::{Revocation, RevocationSet, SignedList, TokenAllowlist};
use trust::{SigningKey, signed};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn secs(secs: i64) -> Timestamp {
    Timestamp(NOW.0 + secs * 1000)
}

fn kept<L: SignedList>(list: L) -> KeptList<L> {
    let document = Arc::new(signed::sign(&list, &[&SigningKey::from_seed(&[1; 32])]).unwrap());
    KeptList { list, document }
}

fn allowlist(tokens: &[(&str, Timestamp)]) -> AllowlistState {
    let tokens = tokens.iter().map(|(nonce, until)| ((*nonce).to_owned(), *until)).collect();
    let list = TokenAllowlist { fleet: "acme-1".parse().unwrap(), seq: 3, at: NOW, tokens };
    AllowlistState::Published(kept(list))
}

fn revoked(host: &str, not_before: Timestamp) -> FleetLists {
    let revoked = BTreeMap::from([(host.parse().unwrap(), Revocation { not_before, why: None })]);
    let set = RevocationSet { fleet: "acme-1".parse().unwrap(), seq: 1, at: NOW, revoked };
    FleetLists { revocations: Some(kept(set)), ..FleetLists::default() }
}

fn judge(
    lists: &FleetLists,
    nonce: &str,
    issued_at: Timestamp,
    rules: TokenRules,
) -> Result<(), TokenListRefusal> {
    let token = JoinCredential::Token { nonce, issued_at };
    lists.judge_join(&"web-1".parse().unwrap(), token, rules, NOW)
}

#[test]
fn a_token_is_used_only_as_far_as_the_list_lets_it() {
    let lists = |allowlist| FleetLists { allowlist, revocations: None };
    let rules = |allowlist| TokenRules { allowlist, known_from: secs(-100) };
    let (once, always) = (rules(AllowlistRule::OncePublished), rules(AllowlistRule::Always));
    let judge = |lists: &FleetLists, rules| judge(lists, "n", secs(-10), rules);
    let none = FleetLists::default();
    assert_eq!(judge(&none, once), Ok(()));
    assert_eq!(judge(&none, always), Err(TokenListRefusal::NoList));
    for rules in [once, always] {
        assert_eq!(judge(&lists(allowlist(&[("n", secs(60))])), rules), Ok(()));
        let other = lists(allowlist(&[("m", secs(60))]));
        assert_eq!(judge(&other, rules), Err(TokenListRefusal::NotListed { seq: 3 }));
        assert_eq!(judge(&lists(allowlist(&[])), rules), Err(TokenListRefusal::NotListed { seq: 3 }));
        // The list narrows, with the slack of every deadline (IDN-7).
        assert_eq!(judge(&lists(allowlist(&[("n", secs(-60))])), rules), Ok(()));
        let ended = lists(allowlist(&[("n", secs(-61))]));
        assert_eq!(judge(&ended, rules), Err(TokenListRefusal::Ended { until: secs(-61), now: NOW }));
        assert_eq!(judge(&lists(AllowlistState::Rejected), rules), Err(TokenListRefusal::ListRejected));
    }
    // Of a token of before nobody knows here whether it was used: also one that is listed.
    let known_from = secs(-10).plus(Duration::from_millis(1));
    let late = TokenRules { known_from, ..once };
    let outdated = Err(TokenListRefusal::Outdated { issued: secs(-10), known_from });
    assert_eq!(judge(&none, late), outdated);
    let at_once = TokenRules { known_from: secs(-10), ..once };
    assert_eq!(judge(&none, at_once), Ok(()), "of then it is known");
    assert_eq!(judge(&lists(allowlist(&[("n", secs(60))])), late), outdated);
}

/// Whoever records a node says by which lists it was judged.
#[test]
fn each_list_has_its_number() {
    let numbers = |lists: &FleetLists| (lists.allowlist_seq(), lists.revocations_seq());
    assert_eq!(numbers(&FleetLists::default()), (0, 0));
    let mut both = FleetLists { allowlist: allowlist(&[]), ..revoked("web-1", NOW) };
    both.revocations.as_mut().unwrap().list.seq = 5;
    assert_eq!(numbers(&both), (3, 5));
    assert_eq!(numbers(&FleetLists { allowlist: AllowlistState::Rejected, ..both }), (0, 5));
}

#[test]
fn what_was_issued_before_a_revocation_counts_no_more() {
    let rules = TokenRules { allowlist: AllowlistRule::OncePublished, known_from: secs(-1000) };
    let lists = revoked("web-1", secs(-50));
    let judge = |issued| judge(&lists, "n", issued, rules);
    assert!(matches!(judge(secs(-51)), Err(TokenListRefusal::Revoked { .. })));
    assert_eq!(judge(secs(-50)), Ok(()));
    // So it is with an approval, which needs no list; a declared key does not say since when it is declared.
    let always = TokenRules { allowlist: AllowlistRule::Always, ..rules };
    let by = |host: &str, credential| lists.judge_join(&host.parse().unwrap(), credential, always, NOW);
    let approved = |at| by("web-1", JoinCredential::Approval { at });
    assert!(matches!(approved(secs(-51)), Err(TokenListRefusal::Revoked { .. })));
    assert_eq!(approved(secs(-50)), Ok(()));
    assert!(matches!(by("web-1", JoinCredential::DeclaredKey), Err(TokenListRefusal::Revoked { .. })));
    assert_eq!(by("web-2", JoinCredential::DeclaredKey), Ok(()));

    let key = SigningKey::from_seed(&[2; 32]).public();
    let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, secs(-51));
    assert_eq!(node.judge_revocation(&revoked("web-2", NOW)), RevocationChange::Same);
    assert_eq!(node.judge_revocation(&lists), RevocationChange::Revoked);
    assert_eq!(node.judge_revocation(&lists), RevocationChange::Same);
    assert_eq!(node.status(&Default::default(), NOW).overall().to_string(), "revoked");
    // A renewal does not save it; a token of after does.
    let issuer = plane::renewal::CertificateIssuer::of(&node.key);
    node.certified(model::CertificateValidity::starting(NOW, Duration::from_secs(60)), issuer);
    assert_eq!(node.judge_revocation(&lists), RevocationChange::Same);
    node.enrolled_at = secs(-49);
    assert_eq!(node.judge_revocation(&lists), RevocationChange::Other);
    assert!(node.revoked.is_none());
}
