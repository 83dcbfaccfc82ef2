//! OPS-2, LIF-5: work on a node is bounded in number, in time and in what it prints; only
//! what a held release delegates begins; a stop drains, and then ends what still runs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use model::Timestamp;
use model::work::{
    ActionEvent, ActionFact, ActionOutcome, ActionRefusal, MAX_ARGS, MAX_OUTPUT, MAX_OUTPUT_CHUNK, Order,
    OutputStream, RefusalCode,
};
use node::work::{
    ActionMark, ActionStage, DRAIN, FLUSH, MAX_ENDING, MAX_EXPIRES, MAX_MARKS, MAX_MESSAGE, MAX_ORDER,
    MAX_PARALLEL, MAX_WAITING, OrderError, REFUSAL_EVERY, REFUSALS, RETRY, RestoredWork, WorkEffect,
    WorkInput, WorkMachine, WorkPermit, WorkTime, order_of,
};

const START: i64 = 1_000_000;
const MINUTE: i64 = 60_000;

fn at(ms: i64) -> WorkTime {
    WorkTime { now: Timestamp(START + ms), trusted: Timestamp(START + ms) }
}

fn order(program: &str) -> Order {
    Order {
        task: "t".into(),
        work: model::work::Work::Command { argv: vec![program.into()] },
        timeout_secs: 100,
        expires: Timestamp(START + 10 * MINUTE),
        cancel: false,
        release: None,
    }
}

fn refusal(message: &str) -> ActionRefusal {
    ActionRefusal { code: RefusalCode::NotDelegated, message: message.to_owned() }
}

fn allows(work: &model::work::Work) -> Result<WorkPermit<String>, ActionRefusal> {
    match work {
        model::work::Work::Command { argv } if argv[0].starts_with("/allowed") => {
            Ok(WorkPermit { permitted: argv[0].clone(), timeout_secs: 30 })
        }
        _ => Err(refusal("no release delegates it")),
    }
}

struct Bench {
    work: WorkMachine,
    at: WorkTime,
    effects: Vec<WorkEffect<String>>,
}

impl Bench {
    fn new() -> Bench {
        Bench::restored(RestoredWork::default())
    }

    fn restored(restored: RestoredWork) -> Bench {
        let (work, effects) = WorkMachine::new(restored, at(0), &allows);
        let mut bench = Bench { work, at: at(0), effects: vec![] };
        bench.settle(effects);
        bench
    }

    /// Everything is durable at once.
    fn settle(&mut self, effects: Vec<WorkEffect<String>>) {
        for effect in effects {
            let then = match &effect {
                WorkEffect::Begin { id, .. } => Some(WorkInput::Begun { id: id.clone() }),
                WorkEffect::End { fact, .. } => Some(WorkInput::Kept { id: fact.id.clone() }),
                _ => None,
            };
            self.effects.push(effect);
            if let Some(input) = then {
                self.tell(input);
            }
        }
    }

    fn tell(&mut self, input: WorkInput) {
        let effects = self.work.handle(input, self.at, &allows);
        self.settle(effects);
    }

    fn put(&mut self, id: &str, order: Order) {
        self.tell(WorkInput::Put { id: id.into(), order: Ok(order) });
    }

    fn ended(&mut self, id: &str, outcome: ActionOutcome) {
        self.tell(WorkInput::Ended { id: id.into(), outcome, duration_ms: 5 });
    }

    fn pass(&mut self, ms: i64) {
        self.at = at(ms);
        self.tell(WorkInput::Tick);
    }

    fn ends(&self) -> BTreeMap<String, ActionOutcome> {
        let end = |effect: &WorkEffect<String>| match effect {
            WorkEffect::End {
                fact: ActionFact { id, event: ActionEvent::Ended { outcome, .. } }, ..
            } => Some((id.clone(), outcome.clone())),
            _ => None,
        };
        self.effects.iter().filter_map(end).collect()
    }

    fn executed<'a>(&'a self) -> Vec<&'a str> {
        let executed = |effect: &'a WorkEffect<String>| match effect {
            WorkEffect::Execute { id, .. } => Some(id.as_str()),
            _ => None,
        };
        self.effects.iter().filter_map(executed).collect()
    }

    fn killed(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, WorkEffect::Kill { .. })).count()
    }

    /// stream, text, dropped
    fn said(&self) -> Vec<(OutputStream, String, u64)> {
        let said = |effect: &WorkEffect<String>| match effect {
            WorkEffect::Say(ActionFact { event: ActionEvent::Output { stream, text, dropped }, .. }) => {
                Some((*stream, text.clone(), *dropped))
            }
            _ => None,
        };
        self.effects.iter().filter_map(said).collect()
    }
}

#[test]
fn at_most_so_many_run_and_the_others_follow_in_order() {
    let mut bench = Bench::new();
    // Names that sort the other way round.
    let ids: Vec<String> = (0..10).map(|n| format!("a{}", 9 - n)).collect();
    ids.iter().for_each(|id| bench.put(id, order("/allowed")));
    assert_eq!(bench.executed(), ids[..MAX_PARALLEL]);
    for id in &ids {
        assert!(bench.work.active() <= MAX_PARALLEL);
        bench.ended(id, ActionOutcome::Exited { code: 0 });
    }
    assert_eq!(bench.executed(), ids);
    assert_eq!(bench.ends().len(), 10);
}

#[test]
fn too_many_orders_are_refused_and_told() {
    let mut bench = Bench::new();
    for n in 0..MAX_PARALLEL + MAX_WAITING + 3 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    assert_eq!(bench.work.waiting(), MAX_WAITING);
    let ends = bench.ends();
    assert_eq!(ends.len(), 3);
    assert!(ends.values().all(|outcome| matches!(outcome, ActionOutcome::Refused { .. })), "{ends:?}");
    let mark = ActionMark { stage: ActionStage::Done, expires: Timestamp(START + MINUTE) };
    let marks = (0..MAX_MARKS).map(|n| (format!("m{n}"), mark)).collect();
    let mut full = Bench::restored(RestoredWork { marks, ..RestoredWork::default() });
    full.put("one-more", order("/allowed"));
    assert!(matches!(full.ends()["one-more"], ActionOutcome::Refused { .. }));
    assert_eq!(full.work.marks().len(), MAX_MARKS);
    // Time makes room: the objects of these marks are gone.
    full.pass(2 * MINUTE);
    assert!(full.work.marks().is_empty());
    full.put("later", order("/allowed"));
    assert_eq!(full.executed(), ["later"]);
}

#[test]
fn the_shorter_time_counts() {
    let mut bench = Bench::new();
    bench.put("a", order("/allowed"));
    bench.put("b", Order { timeout_secs: 7, ..order("/allowed") });
    bench.put("c", Order { timeout_secs: 0, ..order("/allowed") });
    let timeout = |effect: &WorkEffect<String>| match effect {
        WorkEffect::Execute { timeout, .. } => Some(timeout.as_secs()),
        _ => None,
    };
    assert_eq!(bench.effects.iter().filter_map(timeout).collect::<Vec<_>>(), [30, 7, 1]);
}

#[test]
fn only_what_is_delegated_begins_and_a_new_release_is_asked_again() {
    let mut bench = Bench::new();
    bench.put("no", order("/sbin/reboot"));
    assert_eq!(
        bench.ends()["no"],
        ActionOutcome::Refused { code: RefusalCode::NotDelegated, message: "no release delegates it".into() }
    );
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    let waits = MAX_PARALLEL.to_string();
    // The next release delegates nothing: what waits is refused, what runs goes on.
    let refuse = |_: &model::work::Work| Err::<WorkPermit<String>, _>(refusal("not any more"));
    let effects = bench.work.handle(WorkInput::Delegations { seq: 2 }, bench.at, &refuse);
    let [WorkEffect::End { fact, mark: Some(_) }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(fact.id, waits);
    assert_eq!((bench.work.active(), bench.killed()), (MAX_PARALLEL, 0));
    // And one that waits when its turn comes is judged then.
    let mut late = Bench::new();
    for n in 0..MAX_PARALLEL + 1 {
        late.put(&format!("{n}"), order("/allowed"));
    }
    let done =
        WorkInput::Ended { id: "0".into(), outcome: ActionOutcome::Exited { code: 0 }, duration_ms: 1 };
    let effects = late.work.handle(done, late.at, &refuse);
    assert!(effects.iter().all(|effect| !matches!(effect, WorkEffect::Begin { .. })), "{effects:?}");
}

#[test]
fn what_waits_expires_and_what_runs_does_not() {
    let mut bench = Bench::new();
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    let due = bench.work.next_deadline(bench.at).unwrap();
    assert_eq!(due, Timestamp(START + 10 * MINUTE + 1));
    bench.pass(10 * MINUTE);
    assert!(bench.ends().is_empty(), "not after its time");
    bench.pass(10 * MINUTE + 1);
    assert_eq!(bench.ends(), BTreeMap::from([(MAX_PARALLEL.to_string(), ActionOutcome::Expired)]));
    bench.put("late", order("/allowed"));
    assert_eq!(bench.ends()["late"], ActionOutcome::Expired);
    // A host's clock that was set back makes nothing young again.
    bench.at = WorkTime { now: Timestamp(0), trusted: bench.at.trusted };
    bench.put("back", order("/allowed"));
    assert_eq!(bench.ends()["back"], ActionOutcome::Expired);
    // What would never expire does so all the same.
    bench.at = at(0);
    bench.put("ever", Order { expires: Timestamp(i64::MAX), ..order("/allowed") });
    bench.at = at(i64::try_from(MAX_EXPIRES.as_millis()).unwrap() + 1);
    bench.tell(WorkInput::Tick);
    assert_eq!(bench.ends()["ever"], ActionOutcome::Expired);
}

#[test]
fn an_order_withdrawn_by_its_expiry_does_not_begin_and_a_running_one_goes_on() {
    let mut bench = Bench::new();
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), Order { expires: Timestamp(START - 1), ..order("/allowed") });
    }
    assert_eq!(bench.ends(), BTreeMap::from([(MAX_PARALLEL.to_string(), ActionOutcome::Expired)]));
    assert_eq!((bench.work.active(), bench.killed()), (MAX_PARALLEL, 0));
}

#[test]
fn cancelling_ends_what_runs_once_and_begins_nothing() {
    let mut bench = Bench::new();
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    let cancel = Order { cancel: true, ..order("/allowed") };
    bench.put(&MAX_PARALLEL.to_string(), cancel.clone());
    assert_eq!(bench.ends(), BTreeMap::from([(MAX_PARALLEL.to_string(), ActionOutcome::Cancelled)]));
    bench.put("0", cancel.clone());
    bench.put("0", cancel.clone());
    bench.tell(WorkInput::Tick);
    assert_eq!(bench.killed(), 1);
    bench.ended("0", ActionOutcome::Cancelled);
    assert_eq!(bench.ends()["0"], ActionOutcome::Cancelled);
    bench.put("never", cancel);
    assert_eq!(bench.ends()["never"], ActionOutcome::Cancelled);
    // Cancelled while its beginning is written.
    let mut slow = Bench::new();
    slow.work.handle(WorkInput::Put { id: "x".into(), order: Ok(order("/allowed")) }, slow.at, &allows);
    slow.put("x", Order { cancel: true, ..order("/allowed") });
    slow.tell(WorkInput::Begun { id: "x".into() });
    assert_eq!((slow.executed().len(), slow.ends()["x"].clone()), (0, ActionOutcome::Cancelled));
}

#[test]
fn a_withdrawn_object_that_has_not_begun_leaves_no_trace() {
    let mut bench = Bench::new();
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    bench.tell(WorkInput::Removed { id: MAX_PARALLEL.to_string() });
    bench.tell(WorkInput::Removed { id: "0".into() });
    assert_eq!((bench.work.waiting(), bench.work.active()), (0, MAX_PARALLEL), "what runs goes on");
    bench.ended("0", ActionOutcome::Exited { code: 0 });
    assert_eq!(bench.ends(), BTreeMap::from([("0".to_owned(), ActionOutcome::Exited { code: 0 })]));
}

#[test]
fn a_stop_drains_for_a_while_and_then_ends_what_runs() {
    let mut bench = Bench::new();
    for n in 0..MAX_PARALLEL + 1 {
        bench.put(&format!("{n}"), order("/allowed"));
    }
    bench.tell(WorkInput::Stopping);
    bench.ended("0", ActionOutcome::Exited { code: 0 });
    assert_eq!(bench.executed().len(), MAX_PARALLEL, "nothing new begins");
    let drain = i64::try_from(DRAIN.as_millis()).unwrap();
    bench.pass(drain - 1);
    assert_eq!(bench.killed(), 0);
    assert_eq!(bench.work.next_deadline(bench.at), Some(Timestamp(START + drain)));
    bench.pass(drain);
    assert_eq!(bench.killed(), MAX_PARALLEL - 1);
    for n in 1..MAX_PARALLEL {
        assert!(!bench.effects.contains(&WorkEffect::Drained));
        bench.ended(&n.to_string(), ActionOutcome::Cancelled);
    }
    assert_eq!(bench.effects.iter().filter(|effect| **effect == WorkEffect::Drained).count(), 1);
    assert!(!bench.ends().contains_key(&MAX_PARALLEL.to_string()), "what waits is there after the start");
    let mut idle = Bench::new();
    idle.tell(WorkInput::Stopping);
    assert_eq!(idle.effects, [WorkEffect::Drained]);
}

#[test]
fn output_is_text_in_chunks_and_waits_for_no_more_than_a_moment() {
    let mut bench = Bench::new();
    bench.put("a", order("/allowed"));
    let print = |bench: &mut Bench, stream, bytes: &[u8]| {
        bench.tell(WorkInput::Output { id: "a".into(), stream, bytes: bytes.to_vec() });
    };
    print(&mut bench, OutputStream::Stdout, "na\u{ef}".as_bytes().split_last().unwrap().1);
    assert!(bench.said().is_empty());
    assert_eq!(bench.work.next_deadline(bench.at), Some(bench.at.now.plus(FLUSH)));
    print(&mut bench, OutputStream::Stderr, b"bad \xff");
    print(&mut bench, OutputStream::Stdout, &"\u{ef}".as_bytes()[1..]);
    bench.pass(500);
    let wanted =
        [(OutputStream::Stdout, "na\u{ef}".into(), 0), (OutputStream::Stderr, "bad \u{fffd}".into(), 0)];
    assert_eq!(bench.said(), wanted);
    let far = at(9 * MINUTE).now;
    assert!(bench.work.next_deadline(bench.at).is_none_or(|due| due > far), "nothing is left to flush");
    // A character that never ends.
    print(&mut bench, OutputStream::Stdout, b"\xc3");
    bench.ended("a", ActionOutcome::Exited { code: 0 });
    assert_eq!(bench.said().last(), Some(&(OutputStream::Stdout, "\u{fffd}".into(), 0)));
    let place = |find: &dyn Fn(&WorkEffect<String>) -> bool| bench.effects.iter().rposition(find).unwrap();
    let last_said = place(&|effect| matches!(effect, WorkEffect::Say(_)));
    assert!(
        last_said < place(&|effect| matches!(effect, WorkEffect::End { .. })),
        "the terminal fact is last"
    );
}

#[test]
fn output_over_the_bound_is_counted_and_not_kept() {
    let mut bench = Bench::new();
    bench.put("a", order("/allowed"));
    let piece = vec![b'x'; 50_000];
    for n in 0..40 {
        let stream = if n % 2 == 0 { OutputStream::Stdout } else { OutputStream::Stderr };
        bench.tell(WorkInput::Output { id: "a".into(), stream, bytes: piece.clone() });
    }
    bench.tell(WorkInput::OutputLost { id: "a".into(), stream: OutputStream::Stderr, bytes: 7 });
    bench.ended("a", ActionOutcome::Exited { code: 0 });
    let said = bench.said();
    assert!(said.iter().all(|(_, text, _)| text.len() <= MAX_OUTPUT_CHUNK));
    let kept: usize = said.iter().map(|(_, text, _)| text.len()).sum();
    let dropped: u64 = said.iter().map(|(_, _, dropped)| dropped).sum();
    assert_eq!((kept as u64, dropped), (MAX_OUTPUT, 40 * 50_000 - MAX_OUTPUT + 7));
    // A character may lie across the edge of a chunk.
    let mut wide = Bench::new();
    wide.put("a", order("/allowed"));
    let text = "\u{20ac}".repeat(20_000);
    wide.tell(WorkInput::Output {
        id: "a".into(),
        stream: OutputStream::Stdout,
        bytes: text.clone().into_bytes(),
    });
    wide.ended("a", ActionOutcome::Exited { code: 0 });
    let said = wide.said();
    assert!(said.iter().all(|(_, text, _)| text.len() <= MAX_OUTPUT_CHUNK));
    assert_eq!(said.iter().map(|(_, text, _)| text.as_str()).collect::<String>(), text);
}

#[test]
fn a_day_of_dots_does_not_fill_the_log() {
    let mut bench = Bench::new();
    bench.put("a", order("/allowed"));
    for n in 1..24 * 3600 * 2 {
        bench.at = at(n * 500);
        bench.tell(WorkInput::Output { id: "a".into(), stream: OutputStream::Stdout, bytes: b".".to_vec() });
    }
    assert!(bench.said().len() < 700, "{}", bench.said().len());
}

#[test]
fn a_full_disk_is_no_reason_to_run_or_to_forget() {
    let mut bench = Bench::new();
    bench.work.handle(WorkInput::Put { id: "a".into(), order: Ok(order("/allowed")) }, bench.at, &allows);
    let effects = bench.work.handle(
        WorkInput::NotBegun { id: "a".into(), message: "disk full".into() },
        bench.at,
        &allows,
    );
    let [end @ WorkEffect::End { .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(bench.work.handle(WorkInput::NotKept { id: "a".into() }, bench.at, &allows).is_empty());
    assert_eq!(bench.work.next_deadline(bench.at), Some(bench.at.now.plus(RETRY)));
    let later = at(i64::try_from(RETRY.as_millis()).unwrap());
    assert_eq!(bench.work.handle(WorkInput::Tick, later, &allows), std::slice::from_ref(end));
    // A stop does not wait for a disk.
    bench.work.handle(WorkInput::NotKept { id: "a".into() }, later, &allows);
    assert_eq!(bench.work.handle(WorkInput::Stopping, later, &allows), [WorkEffect::Drained]);
}

#[test]
fn damaged_marks_are_made_good_from_the_log_and_the_orders() {
    let mark = ActionMark { stage: ActionStage::Done, expires: order("/allowed").expires };
    let mut restored =
        RestoredWork { orders: vec![("a".into(), Ok(order("/allowed")))], ..RestoredWork::default() };
    restored.notice(&ActionFact { id: "a".into(), event: ActionEvent::Started });
    let bench = Bench::restored(restored);
    assert_eq!((bench.executed().len(), bench.ends()["a"].clone()), (0, ActionOutcome::Unknown));
    let restored = RestoredWork {
        orders: vec![("a".into(), Ok(order("/allowed")))],
        ended: BTreeSet::from(["a".to_owned()]),
        ..RestoredWork::default()
    };
    let bench = Bench::restored(restored);
    assert!(bench.executed().is_empty() && bench.ends().is_empty(), "{:?}", bench.effects);
    // The log says nothing of it any more.
    let orders = vec![("a".into(), Ok(order("/allowed"))), ("b".into(), Ok(order("/allowed")))];
    let mut restored = RestoredWork { orders, ..RestoredWork::default() };
    let mut marks = BTreeMap::from([("b".to_owned(), mark)]);
    restored.presume_begun(&mut marks, at(0));
    restored.marks = marks;
    let bench = Bench::restored(restored);
    let ends: Vec<_> = bench.ends().into_iter().collect();
    assert_eq!((bench.executed().len(), ends), (0, vec![("a".to_owned(), ActionOutcome::Unknown)]));
}

#[test]
fn an_order_that_cannot_be_read_is_answered() {
    let json = |argv: Vec<String>| {
        let work = model::work::Work::Command { argv };
        serde_json::to_vec(&Order { work, ..order("/allowed") }).unwrap()
    };
    assert!(order_of(&json(vec!["/bin/true".into(), "-x".into()])).is_ok());
    assert_eq!(order_of(&json(vec![])), Err(OrderError::NoProgram));
    assert_eq!(order_of(&json(vec!["/bin/echo".into(), "a\0b".into()])), Err(OrderError::Nul));
    assert_eq!(order_of(&json(vec!["a".into(); MAX_ARGS + 1])), Err(OrderError::TooManyArguments));
    assert_eq!(order_of(&vec![b' '; MAX_ORDER + 1]), Err(OrderError::TooLarge));
    for broken in [&b"{"[..], b"{}", br#"{"task":"t","work":{"kind":"teleport"},"timeoutSecs":1}"#] {
        assert!(matches!(order_of(broken), Err(OrderError::Read(_))));
    }
    let mut bench = Bench::new();
    bench.tell(WorkInput::Put { id: "x".into(), order: order_of(b"{") });
    assert!(matches!(bench.ends()["x"], ActionOutcome::Failed { .. }));
}

#[test]
fn refusals_without_end_do_not_fill_the_log() {
    let mut bench = Bench::new();
    let many = REFUSALS as usize + 50;
    (0..many).for_each(|n| bench.put(&format!("{n:05}"), order("/sbin/reboot")));
    assert_eq!(bench.ends().len(), REFUSALS as usize, "the others are said later");
    // One that is withdrawn before it was said is not answered at all.
    bench.tell(WorkInput::Removed { id: format!("{:05}", many - 1) });
    let every = i64::try_from(REFUSAL_EVERY.as_millis()).unwrap();
    bench.pass(every * 10);
    assert_eq!(bench.ends().len(), REFUSALS as usize + 10);
    // What is allowed is not held up by that.
    bench.put("good", order("/allowed"));
    assert_eq!(bench.executed(), ["good"]);
    bench.ended("good", ActionOutcome::Exited { code: 0 });
    assert!(bench.ends().contains_key("good"));
    let mut next = 10;
    while let Some(due) = bench.work.next_deadline(bench.at) {
        next += 1;
        assert!(due <= at(every * next).now && next < 100, "{due:?}");
        bench.pass(every * next);
    }
    assert_eq!(bench.ends().len(), many, "all but the withdrawn, and the good one");
    // Answers that nobody keeps are bounded in memory too.
    let mut full = Bench::new();
    (0..MAX_ENDING + 2 * REFUSALS as usize).for_each(|n| full.put(&format!("{n}"), order("/sbin/reboot")));
    full.pass(every * i64::try_from(MAX_ENDING).unwrap() * 2);
    assert_eq!(full.ends().len(), MAX_ENDING + REFUSALS as usize);
}

#[test]
fn a_reason_is_not_as_long_as_its_order() {
    let mut bench = Bench::new();
    let error = OrderError::Read("ö".repeat(MAX_ORDER));
    bench.tell(WorkInput::Put { id: "bad".into(), order: Err(error) });
    let ends = bench.ends();
    let ActionOutcome::Failed { message } = &ends["bad"] else { panic!("{ends:?}") };
    assert!((MAX_MESSAGE - 2..=MAX_MESSAGE).contains(&message.len()), "{}", message.len());
}

#[test]
fn what_a_new_release_forbids_does_not_begin_though_its_mark_is_made() {
    let mut bench = Bench::new();
    let put = WorkInput::Put { id: "a".into(), order: Ok(order("/allowed")) };
    let effects = bench.work.handle(put, bench.at, &allows);
    assert!(matches!(effects.as_slice(), [WorkEffect::Begin { .. }]), "{effects:?}");
    let refuse = |_: &model::work::Work| Err::<WorkPermit<String>, _>(refusal("not any more"));
    let effects = bench.work.handle(WorkInput::Begun { id: "a".into() }, bench.at, &refuse);
    let [WorkEffect::End { fact, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(
        matches!(&fact.event, ActionEvent::Ended { outcome: ActionOutcome::Refused { .. }, .. }),
        "{fact:?}"
    );
}
