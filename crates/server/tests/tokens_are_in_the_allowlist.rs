//! ENR-3: a token is used only if the signed allowlist has its nonce, and no longer than the list says; a list is asked
//! for once one was published, and where the keys lie elsewhere always; a database that was wiped or went back reopens
//! nothing. WIR-4: a list that cannot be verified makes who depends on it wait.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use http::header;
use rusqlite::Connection;
use server::api::joins::JoinsView;
use test_support::fleet::lists::{allowlist, sign};
use test_support::fleet::{Fleet, body_of, call, new_key, now, plain, quiet, refused, refuses};
use trust::{group_token, token};
use wire::enroll::EnrollRequest;
use wire::{Code, route};

/// A token for a host with a nonce.
fn minted(fleet: &Fleet, host: &str, nonce: &str) -> String {
    let mut claims = fleet.claims(host);
    claims.nonce = nonce.to_owned();
    token::mint(&claims, &fleet.root_key()).unwrap()
}

#[tokio::test]
async fn a_list_that_was_published_is_asked_from_then_on() {
    let fleet = Fleet::start().await;
    // In lab posture nobody asks for one before.
    fleet.enroll(&minted(&fleet, "web-0", "zero"), "web-0", &new_key()).await.unwrap();
    let (one, two, later) =
        (minted(&fleet, "web-1", "one"), minted(&fleet, "web-2", "two"), now().plus(Duration::from_secs(60)));
    fleet.allow(1, &[("one", later)]).await.unwrap();
    let key = new_key();
    let problem = refuses(fleet.enroll(&two, "web-2", &key).await, Code::TokenNotListed);
    assert!(problem.detail.unwrap().contains("not in the allowlist, version 1"));
    fleet.enroll(&one, "web-1", &new_key()).await.unwrap();
    // Being refused burned nothing.
    fleet.allow(2, &[("two", later)]).await.unwrap();
    let answer = fleet.enroll(&two, "web-2", &key).await.unwrap();
    fleet.member("web-2", key, &answer).survives().await;
    // An empty list is a list.
    let three = minted(&fleet, "web-3", "three");
    fleet.allow(3, &[]).await.unwrap();
    refuses(fleet.enroll(&three, "web-3", &new_key()).await, Code::TokenNotListed);
    refuses(fleet.allow(2, &[("three", later)]).await, Code::ListOlder);
    refuses(fleet.enroll(&three, "web-3", &new_key()).await, Code::TokenNotListed);
}

#[tokio::test]
async fn the_list_narrows_a_token_and_never_widens_it() {
    let fleet = Fleet::start().await;
    let ended = minted(&fleet, "web-1", "ended");
    let over = {
        let mut claims = fleet.claims("web-2");
        claims.issued_at = now().minus(Duration::from_secs(7200));
        (claims.nonce, claims.expires_at) = ("over".to_owned(), now().minus(Duration::from_secs(61)));
        claims.expected_pubkey_fingerprint = Some(new_key().public().fingerprint());
        token::mint(&claims, &fleet.root_key()).unwrap()
    };
    let (past, later) = (now().minus(Duration::from_secs(61)), now().plus(Duration::from_secs(600)));
    fleet.allow(1, &[("ended", past), ("over", later)]).await.unwrap();
    let problem = refuses(fleet.enroll(&ended, "web-1", &new_key()).await, Code::TokenExpired);
    assert!(problem.detail.unwrap().contains("the allowlist lets the token count until"));
    refuses(fleet.enroll(&over, "web-2", &new_key()).await, Code::TokenExpired);
}

#[tokio::test]
async fn where_the_keys_lie_elsewhere_nobody_joins_without_a_list() {
    let fleet = Fleet::start().await;
    let (token, key, id) = (minted(&fleet, "web-1", "one"), fleet.release_key(), fleet.enroll_info().fleet);
    for file in ["root.key", "release.key"] {
        std::fs::remove_file(fleet.dir.path().join(file)).unwrap();
    }
    let problem = refuses(fleet.enroll(&token, "web-1", &new_key()).await, Code::TokenNotListed);
    assert!(problem.detail.unwrap().contains("no allowlist is published"));
    let list = allowlist(&id, 1, &[("one", now().plus(Duration::from_secs(60)))]);
    fleet.operator().await.add_allowlist(sign(&list, &key)).await.unwrap();
    fleet.enroll(&token, "web-1", &new_key()).await.unwrap();
}

#[tokio::test]
async fn a_database_that_was_wiped_reopens_nothing() {
    let mut fleet = Fleet::start().await;
    let (used, unused) = (minted(&fleet, "web-1", "used"), minted(&fleet, "web-2", "unused"));
    let later = now().plus(Duration::from_secs(600));
    let tokens = [("used", later), ("unused", later)];
    fleet.allow(4, &tokens).await.unwrap();
    let key = new_key();
    let answer = fleet.enroll(&used, "web-1", &key).await.unwrap();
    fleet.member("web-1", key, &answer).survives().await;
    fleet.stop().await;
    for file in std::fs::read_dir(fleet.dir.path()).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("muster.db") {
            std::fs::remove_file(path).unwrap();
        }
    }
    fleet.start_again().await;
    for list in [None, Some(5)] {
        if let Some(seq) = list {
            fleet.allow(seq, &tokens).await.unwrap();
        }
        for (token, host) in [(&used, "web-1"), (&unused, "web-2")] {
            let problem = refuses(fleet.enroll(token, host, &new_key()).await, Code::TokenOutdated);
            assert!(problem.detail.unwrap().contains("knows of tokens from"));
        }
    }
    let new = minted(&fleet, "web-1", "new");
    fleet.allow(6, &[("new", later)]).await.unwrap();
    fleet.enroll(&new, "web-1", &new_key()).await.unwrap();
}

#[tokio::test]
async fn a_copy_of_before_reopens_nothing() {
    let mut fleet = Fleet::start().await;
    fleet.stop().await;
    let before = fleet.backup();
    fleet.start_again().await;
    let (token, key) = (minted(&fleet, "web-1", "one"), new_key());
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    fleet.member("web-1", key, &answer).survives().await;
    fleet.stop().await;
    fleet.restore(&before);
    fleet.start_again().await;
    refuses(fleet.enroll(&token, "web-1", &new_key()).await, Code::TokenOutdated);
}

#[tokio::test]
async fn who_depends_on_a_list_that_cannot_be_verified_waits() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let token = minted(&fleet, "web-2", "two");
    let later = now().plus(Duration::from_secs(600));
    fleet.allow(1, &[("two", later)]).await.unwrap();
    fleet.stop().await;
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    let changed = database
        .execute("UPDATE signed_list SET document = replace(document, '\"two\\\"', '\"too\\\"')", [])
        .unwrap();
    assert_eq!(changed, 1);
    drop(database);
    fleet.start_again().await;
    node.url = fleet.url();
    let csr_pem = net::issue::node_request(&new_key(), &"web-2".parse().unwrap()).unwrap();
    let message = EnrollRequest { token: Some(token.clone()), hostname: "web-2".to_owned(), csr_pem };
    let request = plain(&fleet.url(), route::ENROLL, body_of(&message));
    let response = call(&mut fleet.anonymous().await, request).await;
    let problem = refused(&response, Code::NotReady);
    assert!(problem.detail.unwrap().contains("no trusted key signed it"));
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    // Whether a node is revoked is not known either.
    refuses(node.check_in(&quiet()).await, Code::NotReady);
    assert!(fleet.operator().await.status().await.not_ready.unwrap().contains("signed lists"));
    // A list of a higher number puts it right.
    fleet.allow(2, &[("two", later)]).await.unwrap();
    fleet.enroll(&token, "web-2", &new_key()).await.unwrap();
    node.survives().await;
}

/// A group token that the list does not have keeps nobody waiting either: an operator who approved one would let in whom
/// the list shuts out.
#[tokio::test]
async fn hosts_of_a_group_that_is_not_listed_do_not_wait() {
    let fleet = Fleet::start().await;
    let mut claims = fleet.group_claims("web-*", 2);
    claims.nonce = "group".to_owned();
    let token = group_token::mint(&claims, &fleet.root_key()).unwrap();
    fleet.allow(1, &[]).await.unwrap();
    let key = new_key();
    refuses(fleet.enroll(&token, "web-1", &key).await, Code::TokenNotListed);
    let waiting: JoinsView = fleet.operator().await.get("/v1/joins").await.unwrap();
    assert!(waiting.joins.is_empty(), "{waiting:?}");
    fleet.allow(2, &[("group", now().plus(Duration::from_secs(60)))]).await.unwrap();
    refuses(fleet.enroll(&token, "web-1", &key).await, Code::JoinPending);
}
