//! ROL-4, CFG-1: a release is verified at the door: signature, fleet, channel, date, selection,
//! everything below it, and the head it was built on. What is refused points nobody anywhere,
//! and the release that nodes were pointed to before stays.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use model::chunk::TreeChunk;
use model::exchange::{CheckIn, HeldFreshness, HeldRelease, Signed};
use model::{Channel, Digest};
use server::api::{Beacons, Commit, TreeChunks, pack_contents};
use test_support::fleet::release::{CHANNEL, Made, Plan, make, module, params};
use test_support::fleet::{Fleet, Operator, new_key, now, quiet, refuses};
use trust::{Beacon, Header, signed};
use wire::{Code, Problem};

/// A fleet whose one node is pointed to release 1.
async fn fleet_at_release_1() -> (Fleet, test_support::fleet::Member, Made) {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("first")]);
    let made = make(&plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    (fleet, node, made)
}

fn second(fleet: &Fleet) -> Plan {
    Plan::new(&fleet.enroll_info().fleet, 2).node("web-1", &[params("second")])
}

/// The node is pointed to release 1, and release 2, made well, is taken after all.
async fn is_as_before(fleet: &Fleet, node: &test_support::fleet::Member, first: &Made) {
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(told.offer.unwrap().header, first.header, "the refused release points nobody");
    let made = make(&second(fleet), &fleet.release_key());
    assert_eq!(fleet.operator().await.publish(&made).await.unwrap(), 2);
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(told.offer.unwrap().header, made.header);
}

async fn refused_with(operator: &mut Operator, commit: &Commit, code: Code, says: &str) {
    let problem = refuses(operator.commit(commit).await, code);
    assert!(problem.detail.as_ref().unwrap().contains(says), "{problem}");
}

#[tokio::test]
async fn a_release_that_nobody_trusted_signed_is_refused() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let mut operator = fleet.operator().await;
    let good = make(&second(&fleet), &fleet.release_key());
    operator.upload(&good).await.unwrap();
    let with = |header: Signed| Commit {
        headers: BTreeMap::from([(CHANNEL.parse::<Channel>().unwrap(), header)]),
        ..good.commit.clone()
    };
    let unsigned = Signed { signatures: Vec::new(), ..good.header.clone() };
    refused_with(&mut operator, &with(unsigned), Code::ReleaseRefused, "it is not signed").await;
    for key in [new_key(), fleet.root_key()] {
        let other = make(&second(&fleet), &key);
        refused_with(&mut operator, &with(other.header), Code::ReleaseRefused, "no trusted key signed it")
            .await;
    }
    // One changed character of the payload, and of the signature.
    let text = good.header.payload.replace(r#""seq":2"#, r#""seq":3"#);
    assert_ne!(text, good.header.payload);
    let changed = Signed { payload: text, ..good.header.clone() };
    refused_with(&mut operator, &with(changed), Code::ReleaseRefused, "no trusted key").await;
    let mut changed = good.header.clone();
    let sig = changed.signatures[0].sig.clone();
    let first_char = if sig.starts_with('A') { 'B' } else { 'A' };
    changed.signatures[0].sig.replace_range(..1, &first_char.to_string());
    refused_with(&mut operator, &with(changed), Code::ReleaseRefused, "no trusted key").await;
    // A document of another sort, signed by the right key.
    let beacon = beacon(&fleet, &first, now());
    refused_with(&mut operator, &with(beacon), Code::ReleaseRefused, "no trusted key").await;
    // More signatures than are looked at.
    let mut many = good.header.clone();
    many.signatures = vec![many.signatures[0].clone(); 9];
    refused_with(&mut operator, &with(many), Code::ReleaseRefused, "too large").await;
    is_as_before(&fleet, &node, &first).await;
}

#[tokio::test]
async fn a_release_of_another_fleet_channel_or_time_is_refused() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let mut operator = fleet.operator().await;
    let key = fleet.release_key();
    let good = make(&second(&fleet), &key);
    operator.upload(&good).await.unwrap();
    let elsewhere = make(&Plan { fleet: "elsewhere-1".parse().unwrap(), ..second(&fleet) }, &key);
    refused_with(&mut operator, &elsewhere.commit, Code::ReleaseRefused, "another channel or fleet").await;
    let early = make(&Plan { created: now().plus(Duration::from_secs(120)), ..second(&fleet) }, &key);
    refused_with(&mut operator, &early.commit, Code::ReleaseRefused, "in the future").await;
    let canary: Channel = "canary".parse().unwrap();
    let misnamed =
        Commit { headers: BTreeMap::from([(canary.clone(), good.header.clone())]), ..good.commit.clone() };
    refused_with(&mut operator, &misnamed, Code::ReleaseRefused, "another channel or fleet").await;
    let none = Commit { headers: BTreeMap::new(), ..good.commit.clone() };
    refused_with(&mut operator, &none, Code::ReleaseRefused, "no header").await;
    // Two channels of one release must agree on its number and selection.
    let header: Header = serde_json::from_str(&good.header.payload).unwrap();
    for other in [
        Header { channel: canary.clone(), seq: 3, ..header.clone() },
        Header { channel: canary.clone(), selection: Digest::of(b"x"), ..header },
    ] {
        let mut two = good.commit.clone();
        two.headers.insert(canary.clone(), signed::sign(&other, &[&key]).unwrap());
        refused_with(&mut operator, &two, Code::ReleaseRefused, "disagree").await;
    }
    is_as_before(&fleet, &node, &first).await;
}

#[tokio::test]
async fn a_release_whose_pieces_are_missing_is_refused() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let mut operator = fleet.operator().await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 2)
        .node("web-1", &[params("new"), module("one", "1", &[b"blob"]), module("two", "2", &[])]);
    let made = make(&Plan { blobs: vec![b"blob".to_vec()], ..plan }, &fleet.release_key());
    // Nothing of it was uploaded: another selection than any that is known here.
    refused_with(&mut operator, &made.commit, Code::Incomplete, "missing").await;
    // Chunks before their contents, and above chunks that are not there.
    let chunks = TreeChunks { chunks: made.chunks.clone() };
    let result: Result<usize, Problem> = operator.post("/v1/chunks", &chunks).await;
    refuses(result, Code::Incomplete);
    let some = made.contents.iter().filter(|bytes| bytes.as_slice() != b"blob").map(Vec::as_slice);
    let _: usize = operator.ask(http::Method::POST, "/v1/contents", pack_contents(some)).await.unwrap();
    let result: Result<usize, Problem> = operator.post("/v1/chunks", &chunks).await;
    refuses(result, Code::Incomplete);
    let _: usize =
        operator.ask(http::Method::POST, "/v1/contents", pack_contents([&b"blob"[..]])).await.unwrap();
    let top = TreeChunks { chunks: made.chunks.last().cloned().into_iter().collect() };
    let result: Result<usize, Problem> = operator.post("/v1/chunks", &top).await;
    refuses(result, Code::Incomplete);
    refused_with(&mut operator, &made.commit, Code::Incomplete, "missing").await;
    // A piece that is none, and a body that is not whole.
    let broken = TreeChunks {
        chunks: vec![TreeChunk::Bucket {
            kind: "Module".into(),
            namespace: String::new(),
            leaves: Vec::new(),
        }],
    };
    let result: Result<usize, Problem> = operator.post("/v1/chunks", &broken).await;
    refuses(result, Code::ReleaseRefused);
    let mut cut = pack_contents([&b"blob"[..]]);
    cut.pop();
    let result: Result<usize, Problem> = operator.ask(http::Method::POST, "/v1/contents", cut).await;
    refuses(result, Code::BadBody);
    is_as_before(&fleet, &node, &first).await;
}

#[tokio::test]
async fn a_pattern_that_cannot_be_read_refuses_the_release() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let mut plan = second(&fleet);
    plan.patterns = vec![("web-[".to_owned(), vec![params("x")])];
    let made = make(&plan, &fleet.release_key());
    let problem = refuses(fleet.operator().await.publish(&made).await, Code::ReleaseRefused);
    assert!(problem.detail.as_ref().unwrap().contains("web-["), "{problem}");
    is_as_before(&fleet, &node, &first).await;
}

#[tokio::test]
async fn a_release_built_on_an_older_head_is_refused() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let mut operator = fleet.operator().await;
    let key = fleet.release_key();
    operator.upload(&make(&second(&fleet), &key)).await.unwrap();
    for (seq, expected_head) in [(2, None), (2, Some(7)), (1, None), (1, Some(1)), (0, Some(1))] {
        let made = make(&Plan { seq, expected_head, ..second(&fleet) }, &key);
        refused_with(&mut operator, &made.commit, Code::HeadMoved, "").await;
    }
    is_as_before(&fleet, &node, &first).await;
    // The very same again is no mistake: its first answer may have been lost.
    assert_eq!(operator.commit(&first.commit).await.unwrap(), 1);
    let told = node.check_in(&quiet()).await.unwrap();
    let header: Header = serde_json::from_str(&told.offer.unwrap().header.payload).unwrap();
    assert_eq!(header.seq, 2, "and it does not point back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_publishers_at_once_one_wins() {
    let (fleet, node, _) = fleet_at_release_1().await;
    let mut publishers = tokio::task::JoinSet::new();
    for text in ["a", "b", "c", "d"] {
        let plan = Plan::new(&fleet.enroll_info().fleet, 2).node("web-1", &[params(text)]);
        let made = make(&plan, &fleet.release_key());
        let mut operator = fleet.operator().await;
        publishers.spawn(async move {
            operator.upload(&made).await.unwrap();
            (operator.commit(&made.commit).await, made)
        });
    }
    let (won, lost): (Vec<_>, Vec<_>) =
        publishers.join_all().await.into_iter().partition(|(done, _)| done.is_ok());
    assert_eq!((won.len(), lost.len()), (1, 3));
    for (result, _) in lost {
        refuses(result, Code::HeadMoved);
    }
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(told.offer.unwrap().header, won[0].1.header);
}

fn beacon(fleet: &Fleet, made: &Made, at: model::Timestamp) -> Signed {
    let header: Header = serde_json::from_str(&made.header.payload).unwrap();
    let header_digest = signed::digest(&made.header);
    let beacon =
        Beacon { fleet: header.fleet, channel: header.channel, seq: header.seq, header: header_digest, at };
    signed::sign(&beacon, &[&fleet.release_key()]).unwrap()
}

#[tokio::test]
async fn a_beacon_is_verified_too() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let mut operator = fleet.operator().await;
    let mut post = async |beacon: Signed| -> Result<usize, Problem> {
        operator.post("/v1/beacons", &Beacons { beacons: vec![beacon] }).await
    };
    let good = beacon(&fleet, &first, now());
    let changed = |change: &dyn Fn(Beacon) -> Beacon| {
        let beacon: Beacon = serde_json::from_str(&good.payload).unwrap();
        signed::sign(&change(beacon), &[&fleet.release_key()]).unwrap()
    };
    let other = make(&second(&fleet), &fleet.release_key());
    let of_rival = changed(&|beacon| Beacon { fleet: "rival-1".parse().unwrap(), ..beacon });
    let of_lab = changed(&|beacon| Beacon { channel: "lab".parse().unwrap(), ..beacon });
    let by_root =
        signed::sign(&serde_json::from_str::<Beacon>(&good.payload).unwrap(), &[&fleet.root_key()]).unwrap();
    let large = Signed { payload: "x".repeat(signed::MAX_DOCUMENT + 1), ..good.clone() };
    for (what, beacon, code) in [
        ("unsigned", Signed { signatures: Vec::new(), ..good.clone() }, Code::BeaconSignature),
        ("a header", first.header.clone(), Code::BeaconSignature),
        ("of another key", by_root, Code::BeaconSignature),
        ("too large", large, Code::BeaconMalformed),
        // One of the future would make every node refuse the release.
        ("early", beacon(&fleet, &first, now().plus(Duration::from_secs(120))), Code::BeaconFuture),
        ("of another release", beacon(&fleet, &other, now()), Code::BeaconOtherRelease),
        ("of another fleet", of_rival, Code::BeaconOtherFleet),
        ("of a channel that is nowhere", of_lab, Code::BeaconOtherChannel),
    ] {
        let problem = refuses(post(beacon).await, code);
        assert!(problem.detail.is_some_and(|detail| detail.len() > 20), "{what}");
        assert!(node.check_in(&quiet()).await.unwrap().offer.unwrap().beacon.is_none(), "{what}");
    }
    assert_eq!(post(good.clone()).await.unwrap(), 1);
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(told.offer.unwrap().beacon, Some(good.clone()));
    assert_eq!(post(good.clone()).await.unwrap(), 1, "the answer to the first was lost");
    // An older one does not take its place.
    refuses(post(beacon(&fleet, &first, now().minus(Duration::from_secs(600)))).await, Code::BeaconOlder);
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(told.offer.unwrap().beacon, Some(good));
    is_as_before(&fleet, &node, &first).await;
}

/// A node that holds the release gets a beacon alone, until it says that it has it.
#[tokio::test]
async fn a_newer_beacon_is_sent_until_the_node_has_it() {
    let (fleet, node, first) = fleet_at_release_1().await;
    let offer = node.check_in(&quiet()).await.unwrap().offer.unwrap();
    let header: Header = serde_json::from_str(&first.header.payload).unwrap();
    let held = HeldRelease {
        channel: header.channel,
        seq: header.seq,
        header: signed::digest(&first.header),
        root: offer.entry.root,
    };
    let says = |signed_at| {
        let freshness = Some(HeldFreshness { signed_at, not_fresh_since: None, stale_since: None });
        CheckIn { held: Some(held.clone()), freshness, ..quiet() }
    };
    let told = node.check_in(&says(header.created)).await.unwrap();
    assert_eq!((told.offer, told.beacon), (None, None));
    let at = now();
    let good = beacon(&fleet, &first, at);
    let sent = Beacons { beacons: vec![good.clone()] };
    assert_eq!(fleet.operator().await.post::<_, usize>("/v1/beacons", &sent).await.unwrap(), 1);
    let told = node.check_in(&says(header.created)).await.unwrap();
    assert_eq!((told.offer, told.beacon), (None, Some(good)));
    let told = node.check_in(&says(at)).await.unwrap();
    assert_eq!((told.offer, told.beacon), (None, None), "it has that one");
    let told = node.check_in(&CheckIn { held: Some(held), ..quiet() }).await.unwrap();
    assert_eq!(told.beacon, None, "an agent of before does not know what it is");
}
