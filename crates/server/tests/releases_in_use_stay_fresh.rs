//! ROL-4, ROL-1: a beacon keeps the release fresh on which a rollout has nodes, beside the newest: nodes whose wave is
//! not open go on taking actions and objects. It is taken for no release that no rollout has in use, and the control
//! plane signs for both where it has the key.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;
use model::exchange::{Answer, CheckIn, HeldFreshness, Signed};
use model::rollout::RolloutTask;
use server::api::Beacons;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator, now, quiet, refuses};
use test_support::wait::until;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use trust::{Beacon, Header, RolloutTerms, SigningKey, signed};
use wire::{Code, Problem};

const HOUR: Duration = Duration::from_secs(3600);

/// `web-1`, then all others.
fn waves() -> Option<Arc<RolloutTerms>> {
    let wave = |name: &str, members| {
        let gate = GateTerms { soak_secs: 0, success: 100 };
        WaveTerms { name: name.to_owned(), members, not_before: None, gate }
    };
    let canary = WaveMembers::Where(lang::Selector::parse("web-1").unwrap());
    let waves = vec![wave("canary", canary), wave("rest", WaveMembers::Rest)];
    Some(Arc::new(RolloutTerms { waves, ..RolloutTerms::default() }))
}

/// A fleet whose releases 1 and 2 went to all nodes at once, and release 3 goes wave by wave. The freshness of each is 24 h.
struct Waiting {
    fleet: Fleet,
    operator: Operator,
    key: SigningKey,
    releases: [Made; 3],
    /// They hold release 2: `web-1` is asked to begin release 3, and the wave of `web-2` is not open.
    nodes: [RolloutNode; 2],
}

impl Waiting {
    /// The releases are so old. `beacon`: when one for release 2 was signed, while it was the newest.
    async fn start(ages: [Duration; 3], beacon: Option<Timestamp>) -> Waiting {
        let fleet = Fleet::start().await;
        let key = fleet.release_key();
        let made = |seq: u64, rollout| {
            let created = now().minus(ages[usize::try_from(seq).unwrap() - 1]);
            let mut plan = Plan { created, rollout, ..Plan::new(&fleet.enroll_info().fleet, seq) };
            for node in 1..=3 {
                plan = plan.node(&format!("web-{node}"), &[params(&format!("{seq}"))]);
            }
            make(&plan, &key)
        };
        let releases = [made(1, None), made(2, None), made(3, waves())];
        // Nothing is signed but what a test signs.
        std::fs::remove_file(fleet.dir.path().join("release.key")).unwrap();
        let mut operator = fleet.operator().await;
        operator.publish(&releases[0]).await.unwrap();
        operator.publish(&releases[1]).await.unwrap();
        let mut nodes = [fleet.node("web-1").await, fleet.node("web-2").await].map(RolloutNode::new);
        for node in &mut nodes {
            node.holds(&releases[1]);
            node.check_in(Vec::new(), 0).await.unwrap();
        }
        let mut waiting = Waiting { fleet, operator, key, releases, nodes };
        if let Some(at) = beacon {
            waiting.post(vec![waiting.beacon(2, at)]).await.unwrap();
        }
        waiting.operator.publish(&waiting.releases[2]).await.unwrap();
        waiting.nodes[0].until_asked().await;
        waiting
    }

    fn header(&self, seq: usize) -> Header {
        serde_json::from_str(&self.releases[seq - 1].header.payload).unwrap()
    }

    fn beacon(&self, seq: usize, at: Timestamp) -> Signed {
        let (header, digest) = (self.header(seq), signed::digest(&self.releases[seq - 1].header));
        let beacon =
            Beacon { fleet: header.fleet, channel: header.channel, seq: header.seq, header: digest, at };
        signed::sign(&beacon, &[&self.key]).unwrap()
    }

    async fn post(&mut self, beacons: Vec<Signed>) -> Result<usize, Problem> {
        self.operator.post("/v1/beacons", &Beacons { beacons }).await
    }

    /// What the node is answered whose wave is not open, and that knows this newest signature of what it holds.
    async fn waits(&self, signed_at: Timestamp) -> Answer {
        let node = &self.nodes[1];
        let freshness = Some(HeldFreshness { signed_at, not_fresh_since: None, stale_since: None });
        let message = CheckIn { held: node.held.clone(), freshness, ..quiet() };
        let answer = node.member.check_in(&message).await.unwrap();
        assert_eq!(answer.rollout.as_ref().map(|asked| asked.task), Some(RolloutTask::Hold));
        assert!(answer.offer.is_none(), "it holds what it is pointed to");
        answer
    }

    async fn restart(&mut self) {
        self.fleet.stop().await;
        self.fleet.start_again().await;
        self.operator = self.fleet.operator().await;
        for node in &mut self.nodes {
            node.member.url = self.fleet.url();
        }
    }
}

#[tokio::test]
async fn a_beacon_for_the_release_before_reaches_the_nodes_that_hold_it() {
    let mut waiting = Waiting::start([HOUR * 3, HOUR * 2, HOUR], None).await;
    let created = waiting.header(2).created;
    assert_eq!(waiting.waits(created).await.beacon, None);
    let at = now();
    let of_newest = waiting.beacon(3, at);
    assert_eq!(waiting.post(vec![of_newest]).await.unwrap(), 1);
    assert_eq!(waiting.waits(created).await.beacon, None, "that one is for another release");

    let good = waiting.beacon(2, at);
    assert_eq!(waiting.post(vec![good.clone()]).await.unwrap(), 1);
    assert_eq!(waiting.waits(created).await.beacon, Some(good.clone()));
    assert_eq!(waiting.waits(at).await.beacon, None, "it has that one");
    waiting.restart().await;
    assert_eq!(waiting.waits(created).await.beacon, Some(good.clone()), "it is kept");
    assert_eq!(waiting.operator.status().await.channels[0].signed_at, at, "so is that of the newest");

    // The newest counts, in whatever order they come.
    let second = Duration::from_secs(1);
    let newer = waiting.beacon(2, at.plus(second * 2));
    let both = vec![newer.clone(), waiting.beacon(2, at.plus(second))];
    refuses(waiting.post(both).await, Code::BeaconOlder);
    refuses(waiting.post(vec![good]).await, Code::BeaconOlder);
    assert_eq!(waiting.waits(at).await.beacon, Some(newer.clone()));
    // Who joins meanwhile gets it with the release.
    let late = RolloutNode::new(waiting.fleet.node("web-3").await);
    let (_, answer) = late.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    let offer = answer.offer.unwrap();
    assert_eq!((&offer.header, offer.beacon), (&waiting.releases[1].header, Some(newer)));
}

#[tokio::test]
async fn one_for_a_release_that_no_rollout_has_in_use_is_refused() {
    let mut waiting = Waiting::start([HOUR * 3, HOUR * 2, HOUR], None).await;
    let beacon = waiting.beacon(1, now());
    let problem = refuses(waiting.post(vec![beacon]).await, Code::BeaconOtherRelease);
    assert!(problem.help.unwrap().contains("no rollout has in use"));
    // Nor one that names another header for its number.
    let (header, of_first) = (waiting.header(2), signed::digest(&waiting.releases[0].header));
    let beacon = Beacon { fleet: header.fleet, channel: header.channel, seq: 2, header: of_first, at: now() };
    let beacon = signed::sign(&beacon, &[&waiting.key]).unwrap();
    refuses(waiting.post(vec![beacon]).await, Code::BeaconOtherRelease);
    assert_eq!(waiting.waits(waiting.header(2).created).await.beacon, None);
}

#[tokio::test]
async fn the_control_plane_signs_for_both_where_it_has_the_key() {
    // A quarter of the freshness of each is over.
    let mut waiting = Waiting::start([HOUR * 9, HOUR * 8, HOUR * 7], None).await;
    let created = waiting.header(2).created;
    let file = waiting.fleet.dir.path().join("release.key");
    std::fs::write(file, waiting.key.to_file().as_bytes()).unwrap();
    waiting.restart().await;
    let beacon = until("a beacon for release 2", async || waiting.waits(created).await.beacon).await;
    let beacon: Beacon = serde_json::from_str(&beacon.payload).unwrap();
    assert_eq!(beacon.seq, 2);
    let newest = waiting.operator.status().await.channels.remove(0);
    assert_eq!((newest.seq, newest.signed_at), (3, beacon.at));
}

/// A beacon that came while the release was the newest counts on: nodes that join are pointed to it in spite of its header.
#[tokio::test]
async fn a_publish_does_not_end_what_a_beacon_keeps_fresh() {
    let waiting = Waiting::start([HOUR * 40, HOUR * 30, HOUR], Some(now())).await;
    assert!(waiting.waits(waiting.header(2).created).await.beacon.is_some());
    let late = RolloutNode::new(waiting.fleet.node("web-3").await);
    let (_, answer) = late.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    let offer = answer.offer.expect("release 2 counts still");
    assert!(offer.header == waiting.releases[1].header && offer.beacon.is_some());
}

#[tokio::test]
async fn the_status_says_when_a_signature_is_due_and_how_it_is_made() {
    // Three quarters of the freshness of release 2 are over.
    let mut waiting = Waiting::start([HOUR * 30, HOUR * 19, HOUR], None).await;
    let channel = waiting.operator.status().await.channels.remove(0);
    let [due] = channel.earlier_due.as_slice() else { panic!("{:?}", channel.earlier_due) };
    assert_eq!((due.seq, due.signed_at), (2, waiting.header(2).created));
    let node = &waiting.nodes[1];
    let since = now();
    let freshness =
        Some(HeldFreshness { signed_at: due.signed_at, not_fresh_since: Some(since), stale_since: None });
    let message = CheckIn { held: node.held.clone(), freshness, ..quiet() };
    node.member.check_in(&message).await.unwrap();
    let causes = waiting.operator.status().await.causes;
    let steps: Vec<&str> = causes.iter().map(|cause| cause.next.as_str()).collect();
    assert!(steps.contains(&"`muster beacon --channel stable --release 2`"), "{causes:?}");

    let beacon = waiting.beacon(2, now());
    waiting.post(vec![beacon]).await.unwrap();
    assert!(waiting.operator.status().await.channels[0].earlier_due.is_empty());
}
