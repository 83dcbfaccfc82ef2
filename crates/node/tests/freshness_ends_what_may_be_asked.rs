//! ROL-4, IDN-11, CNV-4: freshness ends what the control plane may ask for, never what the node keeps. Only a newer
//! signature makes fresh again: no answer without one, no restart, and no clock that is set back.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, FRESH, Release, START, answer, facts, offering, release_key, report, run_of, warnings};
use model::exchange::{Answer, Signed};
use model::log::FactBody;
use model::time::SLACK;
use model::work::{ActionEvent, ActionFact, ActionOutcome, ActionRefusal, Order, RefusalCode, Work};
use model::{Digest, Timestamp};
use node::work::{RestoredWork, WorkEffect, WorkInput, WorkMachine, WorkPermit, WorkTime, check_fresh};
use node::{FreshnessRecord, HeldSettings, NodeEffect, NodeInput, Restored};
use proptest::prelude::*;
use trust::signed::{digest, sign};
use trust::{Beacon, SigningKey};

const HOUR: Duration = Duration::from_secs(3600);

/// The last moment at which a release of [`START`] is fresh.
fn edge() -> Timestamp {
    START.plus(FRESH).plus(SLACK)
}

fn beacon_at(release: &Release, at: Timestamp) -> Beacon {
    let header = digest(&sign(&release.header, &[&release_key()]).unwrap());
    let (fleet, channel) = (release.header.fleet.clone(), release.header.channel.clone());
    Beacon { fleet, channel, seq: release.header.seq, header, at }
}

fn signed(beacon: &Beacon) -> Signed {
    sign(beacon, &[&release_key()]).unwrap()
}

fn with_beacon(beacon: Signed) -> Answer {
    Answer { beacon: Some(beacon), ..answer() }
}

/// The last freshness that was to be made durable.
fn saved(effects: &[NodeEffect]) -> Option<&FreshnessRecord> {
    effects.iter().rev().find_map(|effect| match effect {
        NodeEffect::SaveFreshness(record) => Some(record),
        _ => None,
    })
}

/// Whether facts say that it is not fresh, and that it is stale; in their order.
fn said(effects: &[NodeEffect]) -> Vec<(bool, bool)> {
    let said = facts(effects).into_iter().filter_map(|fact| match fact {
        FactBody::Freshness { not_fresh_since, stale_since, .. } => {
            Some((not_fresh_since.is_some(), stale_since.is_some()))
        }
        _ => None,
    });
    said.collect()
}

fn is_fresh(bench: &Bench) -> bool {
    bench.node.freshness().unwrap().not_fresh_since.is_none()
}

/// A node with its actions, as its shell puts both together: all is delegated, and what counts of the freshness is
/// what was made durable.
struct Host {
    bench: Bench,
    work: WorkMachine,
    asked: u32,
}

impl Host {
    fn holding(release: &Release) -> Host {
        let bench = Bench::holding(release);
        let restored = RestoredWork { held_seq: release.header.seq, ..RestoredWork::default() };
        let at = WorkTime { now: START, trusted: START };
        let allows = |_: &Work| Ok(WorkPermit { permitted: (), timeout_secs: 10 });
        let (work, _) = WorkMachine::new(restored, at, &allows);
        Host { bench, work, asked: 0 }
    }

    fn until(&self) -> Timestamp {
        let kept = saved(&self.bench.freshness);
        FreshnessRecord::restored(self.bench.node.adoption().unwrap(), kept).fresh_until()
    }

    /// Asks for an action now; how it is refused, or `None` when it begins.
    fn ask(&mut self) -> Option<RefusalCode> {
        self.asked += 1;
        let (now, until) = (self.bench.now, self.until());
        let at = WorkTime { now, trusted: now };
        let order = Order {
            task: "t".into(),
            work: Work::Command { argv: vec!["/bin/true".into()] },
            timeout_secs: 10,
            expires: now.plus(HOUR),
            cancel: false,
            release: Some(self.bench.node.adoption().unwrap().seq),
        };
        let allows = |_: &Work| -> Result<WorkPermit<()>, ActionRefusal> {
            check_fresh(until, at)?;
            Ok(WorkPermit { permitted: (), timeout_secs: 10 })
        };
        let id = format!("a{}", self.asked);
        let effects = self.work.handle(WorkInput::Put { id: id.clone(), order: Ok(order) }, at, &allows);
        match &effects[..] {
            [WorkEffect::Begin { .. }] => {
                let begun = self.work.handle(WorkInput::Begun { id: id.clone() }, at, &allows);
                assert!(matches!(begun[..], [WorkEffect::Execute { .. }]), "{begun:?}");
                let (outcome, duration_ms) = (ActionOutcome::Exited { code: 0 }, 1);
                self.work.handle(WorkInput::Ended { id: id.clone(), outcome, duration_ms }, at, &allows);
                self.work.handle(WorkInput::Kept { id }, at, &allows);
                None
            }
            [
                WorkEffect::End {
                    fact: ActionFact { event: ActionEvent::Ended { outcome, .. }, .. }, ..
                },
            ] => {
                let ActionOutcome::Refused { code, .. } = outcome else { panic!("{outcome:?}") };
                Some(*code)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The attack (finding C5): release 2 withdraws what release 1 delegates, and the control plane keeps it back.
#[test]
fn a_control_plane_that_withholds_spends_a_delegation_within_freshness_alone() {
    let mut host = Host::holding(&Release::new(1, START, &["delegates"]));
    while host.bench.now < START.plus(FRESH * 4) {
        if run_of(&host.bench.exchange(answer())).is_some() {
            host.bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
        let want = (host.bench.now > edge()).then_some(RefusalCode::NotFresh);
        assert_eq!(host.ask(), want, "at {} of {}", host.bench.now, edge());
    }
    assert!(host.asked > 500 && host.bench.runs > 500, "{}: it converges on as ever", host.bench.runs);
    let told = said(&host.bench.freshness);
    assert_eq!(told, [(false, true), (true, true)], "each once");
    let check_in = host.bench.check_in();
    assert_eq!(check_in.freshness.unwrap().not_fresh_since, Some(edge()));
}

#[test]
fn it_ends_at_its_edge_is_told_once_and_wakes_the_node() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.now = edge();
    bench.give(NodeInput::Tick);
    assert!(is_fresh(&bench), "the slack counts as fresh");
    assert!(bench.node.next_deadline().unwrap().0 <= edge().plus(Duration::from_millis(1)));
    let effects = bench.pass(Duration::from_millis(1));
    assert_eq!(said(&effects), [(true, true)]);
    assert!(warnings(&effects).iter().any(|text| text.starts_with("not fresh: ")), "{effects:?}");
    assert_eq!(saved(&effects).unwrap().fresh_until(), Timestamp(i64::MIN));
    assert_eq!(said(&bench.pass(HOUR)), [], "once");
}

#[test]
fn a_newer_beacon_makes_fresh_again_and_each_is_kept() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    bench.now = START.plus(HOUR * 20);
    let beacon = signed(&beacon_at(&release, bench.now));
    let at = bench.now;
    let effects = bench.exchange(with_beacon(beacon.clone()));
    let kept = saved(&effects).expect("durable").clone();
    assert_eq!((kept.freshness.signed_at, kept.newest_signature), (at, at));
    assert_eq!(bench.check_in().freshness.unwrap().signed_at, at, "the control plane need not send it again");
    let effects = bench.give(NodeInput::Answered(Box::new(with_beacon(beacon))));
    assert_eq!((saved(&effects), facts(&effects).len()), (None, 0), "the same again is nothing");
    bench.now = at.plus(FRESH).plus(SLACK);
    bench.give(NodeInput::Tick);
    assert!(is_fresh(&bench));
    bench.pass(Duration::from_millis(1));
    assert!(!is_fresh(&bench));
    let effects = bench.exchange(with_beacon(signed(&beacon_at(&release, bench.now))));
    assert_eq!(said(&effects), [(false, false)], "over, and told");
    assert!(is_fresh(&bench));
}

#[test]
fn a_newer_release_makes_fresh_again_and_the_same_one_does_not() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    bench.now = edge().plus(HOUR);
    bench.give(NodeInput::Tick);
    assert!(!is_fresh(&bench));
    // Its clock is set back to when the release was fresh, and all of it comes again.
    bench.now = START.plus(HOUR);
    bench.adopt(&release);
    assert!(!is_fresh(&bench), "the same signature, by a clock that was set back");
    let newer = Release::new(2, START.plus(HOUR), &["b"]);
    let held = bench.node.adoption().map(node::Adoption::set);
    bench.exchange(offering(newer.offer(held.as_ref())));
    bench.give(NodeInput::Fetched);
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(said(&effects), [(false, false)]);
    assert!(is_fresh(&bench));
}

#[test]
fn a_restart_and_a_clock_that_is_set_back_leave_it_not_fresh() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    let early = Restored { adoption: bench.node.adoption().cloned(), ..Restored::default() };
    bench.now = edge().plus(HOUR);
    let effects = bench.give(NodeInput::Tick);
    let kept = saved(&effects).unwrap().clone();
    bench.now = START;
    bench.give(NodeInput::Tick);
    assert!(!is_fresh(&bench));
    for (what, freshness, now, want) in [
        ("kept", Some(kept.clone()), edge().plus(HOUR), false),
        ("kept, and the clock set back", Some(kept), START, false),
        ("not kept, and late", None, edge().plus(HOUR), false),
        ("not kept, and within", None, START.plus(HOUR), true),
    ] {
        let mut bench = Bench::restored_at(Restored { freshness, ..early.clone() }, now);
        bench.give(NodeInput::Tick);
        assert_eq!(is_fresh(&bench), want, "{what}");
    }
}

#[test]
fn what_is_kept_of_another_release_raises_the_time_alone() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    let adoption = bench.node.adoption().cloned();
    bench.now = edge().plus(HOUR);
    let effects = bench.give(NodeInput::Tick);
    let other = FreshnessRecord {
        header: Digest::of(b"another"),
        newest_signature: START.plus(FRESH * 2),
        ..saved(&effects).unwrap().clone()
    };
    let mut bench = Bench::restored_at(
        Restored { adoption, freshness: Some(other), ..Restored::default() },
        START.plus(HOUR),
    );
    bench.give(NodeInput::Tick);
    let held = bench.node.freshness().unwrap();
    assert_eq!(held.signed_at, START);
    assert!(held.not_fresh_since.is_some(), "the newest signature is the time that trust goes by");
}

#[test]
fn bad_beacons_are_named_once_and_change_nothing() {
    let release = Release::new(7, START, &["a"]);
    let good = |at| beacon_at(&release, at);
    let at = START.plus(HOUR * 2);
    let broken = {
        let mut document = signed(&good(at));
        document.payload.push(' ');
        document
    };
    let mut unsigned = signed(&good(at));
    unsigned.signatures.clear();
    let mut large = unsigned.clone();
    large.payload = "x".repeat(trust::signed::MAX_DOCUMENT + 1);
    large.signatures = signed(&good(at)).signatures;
    let other = |beacon: Beacon| signed(&beacon);
    for (what, document, want) in [
        ("of the future", other(good(START.plus(HOUR * 30))), "beacon-future"),
        (
            "of another channel",
            other(Beacon { channel: "lab".parse().unwrap(), ..good(at) }),
            "beacon-other-channel",
        ),
        (
            "of another fleet",
            other(Beacon { fleet: "rival-1".parse().unwrap(), ..good(at) }),
            "beacon-other-fleet",
        ),
        ("of another header", other(Beacon { header: Digest::of(b"x"), ..good(at) }), "beacon-other-release"),
        ("of another number", other(Beacon { seq: 8, ..good(at) }), "beacon-other-release"),
        ("older", other(good(START.minus(HOUR))), "beacon-older"),
        ("of another key", sign(&good(at), &[&SigningKey::from_seed(&[9; 32])]).unwrap(), "beacon-signature"),
        ("of nobody", unsigned, "beacon-signature"),
        ("changed on its way", broken, "beacon-signature"),
        ("too large", large, "beacon-malformed"),
        ("a header", sign(&release.header, &[&release_key()]).unwrap(), "beacon-signature"),
    ] {
        let mut bench = Bench::holding(&release);
        let before = bench.node.freshness();
        bench.now = START.plus(HOUR * 3);
        let effects = bench.exchange(with_beacon(document.clone()));
        let [FactBody::Refused { code, .. }] = facts(&effects)[..] else { panic!("{what}: {effects:?}") };
        assert_eq!((code.as_str(), saved(&effects)), (want, None), "{what}");
        assert_eq!(bench.node.freshness(), before, "{what}");
        let again = bench.exchange(with_beacon(document));
        assert_eq!(facts(&again), Vec::<&FactBody>::new(), "{what}: once");
    }
}

/// IDN-11: a control plane whose clock is far ahead, or who signs beacons there, blocks no update once the clock is
/// right, however many it signed.
#[test]
fn beacons_of_a_clock_that_is_ahead_block_no_update() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    for round in 1..=400 {
        let theirs = bench.now.plus(FRESH * round);
        bench.check_in();
        bench.give(NodeInput::ServerTime(theirs));
        let effects =
            bench.give(NodeInput::Answered(Box::new(with_beacon(signed(&beacon_at(&release, theirs))))));
        let refused = facts(&effects)
            .into_iter()
            .any(|fact| matches!(fact, FactBody::Refused { code, .. } if code == "beacon-future"));
        assert_eq!(refused, round > 365, "{round}");
        if run_of(&effects).is_some() {
            bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
    }
    let kept = saved(&bench.freshness).unwrap().clone();
    assert!(kept.newest_signature <= bench.now, "{} of {}", kept.newest_signature, bench.now);
    // Its clock is put right; a restart remembers no more of it.
    let adoption = bench.node.adoption().cloned();
    let restored = Restored { adoption, freshness: Some(kept), ..Restored::default() };
    let mut bench = Bench::restored_at(restored, bench.now);
    bench.check_in();
    bench.give(NodeInput::ServerTime(bench.now));
    let next = Release::new(2, bench.now, &["b"]);
    bench.give(NodeInput::Answered(Box::new(offering(next.offer(Some(&release.set))))));
    bench.give(NodeInput::Fetched);
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(bench.node.adoption().unwrap().seq, 2);
    assert!(is_fresh(&bench));
}

/// IDN-11: a host whose clock stands takes beacons by the control plane's clock, and the same one again makes nothing
/// fresh.
#[test]
fn a_slow_host_takes_beacons_by_the_control_plane_s_clock() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    let at = START.plus(FRESH * 200);
    let tell = |bench: &mut Bench, theirs: Timestamp, answer: Answer| {
        bench.check_in();
        bench.give(NodeInput::ServerTime(theirs));
        let effects = bench.give(NodeInput::Answered(Box::new(answer)));
        if run_of(&effects).is_some() {
            bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
    };
    tell(&mut bench, at, answer());
    assert!(!is_fresh(&bench));
    tell(&mut bench, at, with_beacon(signed(&beacon_at(&release, at))));
    assert!(is_fresh(&bench));
    tell(&mut bench, at.plus(FRESH * 2), answer());
    assert!(!is_fresh(&bench));
    let mut again = release.offer(Some(&release.set));
    again.beacon = Some(signed(&beacon_at(&release, at)));
    tell(&mut bench, at, offering(again));
    bench.give(NodeInput::Fetched);
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert!(!is_fresh(&bench), "the same signature");
}

/// CNV-4: past bundle_max_age without a full answer or a newer beacon what is held is stale, and that is told.
#[test]
fn a_plain_answer_confirms_nothing() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    let day = Duration::from_secs(86_400);
    let (mut full, mut asked) = (0, 0);
    while bench.now < START.plus(day + HOUR) {
        asked += 1;
        full += u32::from(bench.check_in().full);
        bench.give(NodeInput::Answered(Box::new(answer())));
    }
    assert!(
        (2..=8).contains(&full),
        "{full} of {asked}: asked for before it is stale, and not with each check-in"
    );
    assert!(bench.node.is_stale(bench.now));
    assert_eq!(said(&bench.freshness)[0], (false, true), "within freshness, and stale");
    bench.check_in();
    let beacon = signed(&beacon_at(&release, bench.now));
    let effects = bench.give(NodeInput::Answered(Box::new(with_beacon(beacon))));
    assert!(!bench.node.is_stale(bench.now), "a newer beacon confirms it");
    assert_eq!(said(&effects), [(false, false)]);
    bench.now = bench.now.plus(day).plus(Duration::from_secs(30));
    bench.give(NodeInput::Tick);
    assert!(bench.node.is_stale(bench.now) && is_fresh(&bench), "the slack is freshness's alone");
    // Another release, or the same one again, is as good as a beacon.
    bench.adopt(&Release::new(2, bench.now, &["a"]));
    assert!(!bench.node.is_stale(bench.now));
}

/// What happens to a node over time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Hours(u8),
    SetBack(u8),
    Restart,
    Answer,
    /// A beacon dated so many hours after [`START`].
    Beacon(u8),
    /// The release that is held comes again.
    Again,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..60u8).prop_map(Event::Hours),
        (0..60u8).prop_map(Event::SetBack),
        Just(Event::Restart),
        Just(Event::Answer),
        (0..120u8).prop_map(Event::Beacon),
        Just(Event::Again),
    ]
}

/// What memory and the disk say of one release, and each beacon, only add: no signature and no confirmation goes back.
#[test]
fn records_never_go_back() {
    let record = |newest: i64, signed: i64, not_fresh: Option<i64>, confirmed: i64| FreshnessRecord {
        header: Digest::ZERO,
        freshness: trust::Freshness { signed_at: Timestamp(signed), window_secs: 60 },
        newest_signature: Timestamp(newest),
        not_fresh_since: not_fresh.map(Timestamp),
        confirmed_at: Timestamp(confirmed),
        stale_since: None,
    };
    let (ended, newer) = (record(5, 9, Some(7), 30), record(6, 6, None, 20));
    assert_eq!(ended.clone().with(newer.clone()), record(6, 9, None, 30));
    assert_eq!(newer.with(ended), record(6, 9, None, 30));
    let (ended, same) = (record(5, 5, Some(7), 1), record(5, 5, None, 2));
    assert_eq!(ended.clone().with(same.clone()), record(5, 5, Some(7), 2));
    assert_eq!(same.with(ended), record(5, 5, Some(7), 2));

    let mut held = record(8, 9, Some(7), 1);
    held.signed(Timestamp(4), Timestamp(3), Timestamp(40));
    held.signed(Timestamp(9), Timestamp(3), Timestamp(40));
    assert_eq!(held, record(8, 9, Some(7), 40), "it is no newer than what is known");
    held.signed(Timestamp(10), Timestamp(10), Timestamp(41));
    assert_eq!(held, record(10, 10, None, 41));
}

proptest! {
    /// Once not fresh, only a signature that is newer than all before ends that; what was verified is never lost.
    #[test]
    fn nothing_but_a_newer_signature_makes_fresh_again(events in prop::collection::vec(event(), 1..40)) {
        let release = Release::new(1, START, &["a"]);
        let mut bench = Bench::holding(&release);
        let mut kept: Option<FreshnessRecord> = None;
        for event in events {
            let before = bench.node.freshness().unwrap();
            match event {
                Event::Hours(hours) => drop(bench.pass(HOUR * u32::from(hours))),
                Event::SetBack(hours) => {
                    bench.now = bench.now.minus(HOUR * u32::from(hours));
                    bench.give(NodeInput::Tick);
                }
                Event::Restart => {
                    let adoption = bench.node.adoption().cloned();
                    let restored = Restored { adoption, freshness: kept.clone(), ..Restored::default() };
                    bench = Bench::restored_at(restored, bench.now);
                    bench.give(NodeInput::Tick);
                }
                Event::Answer => drop(bench.exchange(answer())),
                Event::Beacon(hours) => {
                    let beacon = beacon_at(&release, START.plus(HOUR * u32::from(hours)));
                    bench.exchange(with_beacon(signed(&beacon)));
                }
                Event::Again => {
                    let effects = bench.exchange(offering(release.offer(Some(&release.set))));
                    if effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. })) {
                        bench.give(NodeInput::Fetched);
                        bench.give(NodeInput::Adopted(HeldSettings::default()));
                    }
                }
            }
            kept = saved(&bench.freshness).cloned().or(kept);
            let after = bench.node.freshness().unwrap();
            prop_assert!(after.signed_at >= before.signed_at, "{event:?}: {before:?} {after:?}");
            if before.not_fresh_since.is_some() && after.not_fresh_since.is_none() {
                prop_assert!(after.signed_at > before.signed_at, "{event:?}: {before:?} {after:?}");
            }
            if bench.now > after.signed_at.plus(FRESH).plus(SLACK) {
                prop_assert!(after.not_fresh_since.is_some(), "{event:?}: {after:?} at {}", bench.now);
            }
            let adoption = bench.node.adoption().unwrap();
            let counts = FreshnessRecord::restored(adoption, kept.as_ref());
            prop_assert_eq!(counts.view().not_fresh_since, after.not_fresh_since, "what is kept says the same");
        }
    }
}
