//! IDN-8: a control plane takes a release of a channel with a threshold only with signatures of so many signers. What it
//! pointed to before stays, over a start too; a list and a beacon go by the release key alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::exchange::Signed;
use server::api::{AddTrust, Commit, StatusView, TrustView};
use test_support::fleet::release::{CHANNEL, Made, Plan, make, params};
use test_support::fleet::{Fleet, new_key, now, quiet, refuses};
use trust::chain::{self, ChainHead};
use trust::{Beacon, ChannelThreshold, Header, SigningKey, signed};
use wire::Code;

fn made(fleet: &Fleet, seq: u64, content: &str) -> Made {
    let plan = Plan::new(&fleet.enroll_info().fleet, seq).node("web-1", &[params(content)]);
    make(&plan, &fleet.release_key())
}

/// The same release, signed by these.
fn signed_by(made: &Made, keys: &[&SigningKey]) -> Commit {
    let header: Header = serde_json::from_str(&made.header.payload).unwrap();
    let document: Signed = signed::sign(&header, keys).unwrap();
    Commit { headers: BTreeMap::from([(CHANNEL.parse().unwrap(), document)]), ..made.commit.clone() }
}

async fn ask_for(fleet: &Fleet, signatures: u32, keys: &[&SigningKey]) {
    let mut view: TrustView = fleet.operator().await.get("/v1/trust").await.unwrap();
    let newest = view.versions.pop().unwrap();
    let head = ChainHead { document: newest.document, digest: newest.digest };
    let threshold = ChannelThreshold { signatures, signers: keys.iter().map(|key| key.public()).collect() };
    let next = chain::next_threshold(&head, &CHANNEL.parse().unwrap(), Some(threshold), now()).unwrap();
    let link = chain::sign(&next, &fleet.root_key()).unwrap();
    fleet.operator().await.post::<_, u64>("/v1/trust", &AddTrust { link }).await.unwrap();
}

#[tokio::test]
async fn too_few_signatures_publish_nothing() {
    let mut fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let first = made(&fleet, 1, "first");
    fleet.operator().await.publish(&first).await.unwrap();
    let (a, b, stranger) = (new_key(), new_key(), new_key());
    ask_for(&fleet, 2, &[&a, &b]).await;
    let second = made(&fleet, 2, "second");
    let mut operator = fleet.operator().await;
    operator.upload(&second).await.unwrap();
    let release = fleet.release_key();
    for (keys, says) in [
        (&[&release][..], "it has 0 of the 2 signatures"),
        (&[&a], "it has 1 of the 2 signatures"),
        (&[&a, &a], "it has 1 of the 2 signatures"),
        (&[&a, &release, &stranger], "it has 1 of the 2 signatures"),
        (&[&stranger], "no trusted key signed it"),
    ] {
        let problem = refuses(operator.commit(&signed_by(&second, keys)).await, Code::ReleaseRefused);
        assert!(problem.detail.as_ref().unwrap().contains(says), "{problem}");
    }
    // What was enough before is pointed to still, and is shown as signed by too few now.
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(told.offer.unwrap().header, first.header);
    for _ in 0..2 {
        let status: StatusView = fleet.operator().await.get("/v1/status").await.unwrap();
        assert!(status.channels[0].seq == 1 && status.channels[0].signer_retired);
        fleet.stop().await;
        fleet.start_again().await;
    }
    // A beacon of the release key keeps fresh only what is pointed to.
    let header = signed::digest(&second.header);
    let beacon = Beacon {
        fleet: fleet.enroll_info().fleet,
        channel: CHANNEL.parse().unwrap(),
        seq: 2,
        header,
        at: now(),
    };
    let document = signed::sign(&beacon, &[&release]).unwrap();
    let mut operator = fleet.operator().await;
    let added =
        operator.post::<_, usize>("/v1/beacons", &server::api::Beacons { beacons: vec![document] }).await;
    refuses(added, Code::BeaconOtherRelease);
    let both = signed_by(&second, &[&a, &b]);
    assert_eq!(operator.commit(&both).await.unwrap(), 2);
    let node = test_support::fleet::Member { url: fleet.url(), ..node };
    let told = node.check_in(&quiet()).await.unwrap();
    assert_eq!(&told.offer.unwrap().header, both.headers.values().next().unwrap());
}
