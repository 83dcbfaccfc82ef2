//! IDN-8: the control plane takes a link only if it leads on from the newest trust document, keeps it before it counts,
//! and hands nodes the links that they lack, a bounded number an answer, however many they slept through.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::exchange::{Answer, CheckIn, HeldTrust, Signed};
use server::api::{AddTrust, RunRequested, StatusView, TrustView};
use test_support::fleet::{Fleet, config, new_key, now, quiet, refuses};
use test_support::wait::until;
use trust::chain::{self, ChainHead, MAX_LINKS, MAX_VERSION, SlotChange, SlotName};
use trust::{PublicKey, SigningKey};
use wire::{Code, Problem, route};

async fn view(fleet: &Fleet) -> TrustView {
    fleet.operator().await.get("/v1/trust").await.unwrap()
}

async fn newest(fleet: &Fleet) -> ChainHead {
    let newest = view(fleet).await.versions.pop().unwrap();
    ChainHead { document: newest.document, digest: newest.digest }
}

fn rotation(head: &ChainHead, slot: SlotName, to: PublicKey, root: &SigningKey) -> Signed {
    let next = chain::next_version(head, slot, SlotChange::Rotate(to), None, now()).unwrap();
    chain::sign(&next, root).unwrap()
}

async fn add(fleet: &Fleet, link: Signed) -> Result<u64, Problem> {
    fleet.operator().await.post("/v1/trust", &AddTrust { link }).await
}

async fn rotate(fleet: &Fleet) {
    let link = rotation(&newest(fleet).await, SlotName::Release, new_key().public(), &fleet.root_key());
    add(fleet, link).await.unwrap();
}

#[tokio::test]
async fn a_link_must_lead_on() {
    let mut fleet = Fleet::start().await;
    let (head, root) = (newest(&fleet).await, fleet.root_key());
    let link = |to: &SigningKey| rotation(&head, SlotName::Release, to.public(), &root);
    let forged = rotation(&head, SlotName::Release, new_key().public(), &new_key());
    refuses(add(&fleet, forged).await, Code::TrustRefused);
    let mut later = chain::next_version(
        &head,
        SlotName::Release,
        SlotChange::Rotate(new_key().public()),
        None,
        now().plus(Duration::from_secs(3600)),
    )
    .unwrap();
    refuses(add(&fleet, chain::sign(&later, &root).unwrap()).await, Code::TrustRefused);
    later.version = 7;
    later.created = Some(now());
    refuses(add(&fleet, chain::sign(&later, &root).unwrap()).await, Code::TrustRefused);
    assert_eq!(view(&fleet).await.versions.len(), 1, "nothing of these counts");
    assert!(!fleet.dir.path().join("trust-links.json").exists());
    // Two operators at once: one of them starts anew.
    let (first, second) = (link(&new_key()), link(&new_key()));
    assert_eq!(add(&fleet, first.clone()).await.unwrap(), 2);
    refuses(add(&fleet, second).await, Code::TrustMoved);
    refuses(add(&fleet, first).await, Code::TrustMoved);
    // Tokens that are minted from here on name it.
    let newest = newest(&fleet).await;
    assert_eq!(fleet.enroll_info().trust, newest.digest);
    // It is there after a start.
    fleet.stop().await;
    fleet.start_again().await;
    assert_eq!(view(&fleet).await.versions.len(), 2);
}

#[tokio::test]
async fn a_sleeper_is_given_what_it_lacks_piece_by_piece() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut held = newest(&fleet).await;
    for _ in 0..MAX_LINKS + 3 {
        rotate(&fleet).await;
    }
    let last = newest(&fleet).await;
    let mut told: Option<HeldTrust> = None;
    for pieces in [MAX_LINKS, 3, 0] {
        let answer: Answer = node.check_in(&CheckIn { trust: told.clone(), ..quiet() }).await.unwrap();
        assert_eq!(answer.trust_links.len(), pieces);
        let walk = chain::walk(&held, &answer.trust_links);
        assert_eq!(walk.stopped, None);
        held = walk.head;
        told = Some(held.held());
    }
    assert_eq!(held, last);
    // Who holds which is counted, and shown of one node.
    let holding = view(&fleet).await.holding;
    assert_eq!((holding.len(), holding[0].version, holding[0].nodes), (1, last.document.version, 1));
    let shown = fleet.operator().await.node("web-1").await;
    assert_eq!((shown.trust_version, shown.refused_trust), (Some(last.document.version), None));
    // A long poll is answered when there is a newer one, and not again for a node that does not follow it.
    let asks = CheckIn { trust: told, ..quiet() };
    let waits = format!("{}?wait=60", route::CHECKIN);
    let poll = node.post::<_, Answer>(&waits, &asks);
    let (answer, ()) = tokio::join!(poll, rotate(&fleet));
    assert_eq!(answer.unwrap().trust_links.len(), 1);
    let request = async {
        let mut operator = fleet.operator().await;
        let request = serde_json::json!({"nodes": ["web-1"]});
        operator.post::<_, RunRequested>("/v1/run-requests", &request).await.unwrap()
    };
    let (answer, _) = tokio::join!(node.post::<_, Answer>(&waits, &asks), request);
    assert!(answer.unwrap().run_request.is_some(), "it waited, as the node was told of the link before");
}

#[tokio::test]
async fn one_that_does_not_follow_is_told_apart() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    rotate(&fleet).await;
    let says = |version: u64, refused: Option<&str>| {
        let digest = model::Digest::of(b"of another chain");
        let refused = refused.map(str::to_owned);
        CheckIn { trust: Some(HeldTrust { version, digest, refused, authority: None }), ..quiet() }
    };
    // Whether it is of another chain or ahead of this one, it is given a link, and finds out.
    for version in [1, 2, 7] {
        let answer = node.check_in(&says(version, None)).await.unwrap();
        assert_eq!(answer.trust_links.len(), 1, "{version}");
    }
    for (code, cause, next) in [
        ("trust-forged", "does not follow newer ones (trust-forged)", "`muster token mint web-1`"),
        (
            "trust-older",
            "which this control plane's data does not have",
            "put trust-links.json of a newer backup",
        ),
        ("\u{1b}[31mlong", "(", "`muster token mint web-1`"),
    ] {
        node.check_in(&says(7, Some(code))).await.unwrap();
        let status: StatusView = fleet.operator().await.status().await;
        let line = status.causes.iter().find(|line| line.cause.contains("trust document 7")).unwrap();
        assert!(line.cause.contains(cause) && line.next.contains(next), "{line:?}");
        assert!(!line.cause.contains('\u{1b}'), "{line:?}");
        // The control plane's own data went back, whatever the node says of it.
        let overtaken = status.trust_overtaken.map(|holders| (holders.version, holders.nodes));
        assert_eq!(overtaken, Some((7, 1)));
    }
    // A version that cannot be is nobody's.
    for version in [MAX_VERSION + 1, u64::MAX] {
        node.check_in(&says(version, None)).await.unwrap();
        let status = fleet.operator().await.status().await;
        assert!(status.trust_overtaken.is_none(), "{version}: {status:?}");
    }
    node.check_in(&quiet()).await.unwrap();
    let status: StatusView = fleet.operator().await.status().await;
    assert!(!status.causes.iter().any(|line| line.cause.contains("trust document")), "{status:?}");
    assert!(status.trust_overtaken.is_none(), "{status:?}");
}

/// A file that is gone is no chain without links: the one before counts on, and the status says so until it is back.
#[tokio::test]
async fn links_that_are_gone_are_told_and_the_chain_counts_on() {
    let fleet = Fleet::start().await;
    rotate(&fleet).await;
    let (path, last) = (fleet.dir.path().join("trust-links.json"), newest(&fleet).await);
    let links = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let why =
        until("the status says so", async || fleet.operator().await.status().await.trust_unusable).await;
    assert!(why.contains("trust-links.json is gone: put it back"), "{why}");
    // An operator who would lead the chain on is told of the file, not of the database.
    let link = rotation(&last, SlotName::Release, new_key().public(), &fleet.root_key());
    refuses(add(&fleet, link).await, Code::TrustUnreadable);
    assert_eq!(newest(&fleet).await, last);
    std::fs::write(&path, links).unwrap();
    let is_back = async || fleet.operator().await.status().await.trust_unusable.is_none().then_some(());
    until("it is over", is_back).await;
    assert_eq!(newest(&fleet).await, last);
}

/// Nor is a file of fewer links a chain that goes on: keys that were retired would count again.
#[tokio::test]
async fn links_that_are_fewer_are_told_and_the_chain_counts_on() {
    let fleet = Fleet::start().await;
    let path = fleet.dir.path().join("trust-links.json");
    rotate(&fleet).await;
    let one = std::fs::read(&path).unwrap();
    rotate(&fleet).await;
    let (two, last) = (std::fs::read(&path).unwrap(), newest(&fleet).await);
    for (fewer, version) in [(one, 2), (br#"{"links":[]}"#.to_vec(), 1)] {
        std::fs::write(&path, fewer).unwrap();
        let says = format!("ends at version {version}, and version 3 counts: put the newer file back");
        let is_told = async || {
            let why = fleet.operator().await.status().await.trust_unusable?;
            why.contains(&says).then_some(())
        };
        until(&says, is_told).await;
        assert_eq!(newest(&fleet).await, last);
        assert_eq!(fleet.enroll_info().trust, last.digest);
    }
    std::fs::write(&path, two).unwrap();
    let is_back = async || fleet.operator().await.status().await.trust_unusable.is_none().then_some(());
    until("it is over", is_back).await;
}

/// What a restart would forget is remembered beside the links: it does not start without them, and says so.
#[tokio::test]
async fn a_start_without_the_links_is_refused() {
    let mut fleet = Fleet::start().await;
    let path = fleet.dir.path().join("trust-links.json");
    rotate(&fleet).await;
    let (links, last) = (std::fs::read(&path).unwrap(), newest(&fleet).await);
    fleet.stop().await;
    for without in [None, Some(br#"{"links":[]}"#)] {
        match without {
            None => std::fs::remove_file(&path).unwrap(),
            Some(empty) => std::fs::write(&path, empty).unwrap(),
        }
        let Err(error) = server::start(config(fleet.dir.path(), 0, 0)).await else { panic!("it starts") };
        let said = model::text::chain(&error);
        assert!(said.contains("trust-links.json") && said.contains("links of it are gone"), "{said}");
    }
    std::fs::write(&path, links).unwrap();
    fleet.start_again().await;
    assert_eq!(newest(&fleet).await, last);
}

/// A slot file that somebody was writing when the machine lost power, or a copy that was cut off.
#[tokio::test]
async fn links_that_are_half_written_are_told_and_the_chain_counts_on() {
    let mut fleet = Fleet::start().await;
    rotate(&fleet).await;
    let (path, last) = (fleet.dir.path().join("trust-links.json"), newest(&fleet).await);
    let links = std::fs::read(&path).unwrap();
    for half in [&links[..links.len() / 2], &links[..0]] {
        std::fs::write(&path, half).unwrap();
        let why =
            until("the status says so", async || fleet.operator().await.status().await.trust_unusable).await;
        assert!(why.contains("trust-links.json"), "{why}");
        assert_eq!(newest(&fleet).await, last);
        fleet.node(&format!("web-{}", half.len())).await.survives().await;
        std::fs::write(&path, &links).unwrap();
        let is_back = async || fleet.operator().await.status().await.trust_unusable.is_none().then_some(());
        until("it is over", is_back).await;
    }
    // It is not started over: keys that were dropped would count again.
    fleet.stop().await;
    std::fs::write(&path, &links[..links.len() / 2]).unwrap();
    let Err(error) = server::start(config(fleet.dir.path(), 0, 0)).await else { panic!("it starts") };
    let said = model::text::chain(&error);
    assert!(said.contains("trust-links.json"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), &links[..links.len() / 2], "it is left as it is");
    std::fs::write(&path, &links).unwrap();
    fleet.start_again().await;
    assert_eq!(newest(&fleet).await, last);
}
