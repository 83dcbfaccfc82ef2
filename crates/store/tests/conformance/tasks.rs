//! Tasks, workflows and the facts of actions: OPS-2, LIF-5.

use model::log::{Fact, FactBody};
use model::work::{ActionEvent, ActionFact, ActionOutcome, OutputStream};

use super::fixture::{at, enrolled, incarnation, new_node, run, started};
use store::Retention;
use store::{MAX_OPEN_TASKS, MAX_TARGET_STATE, MAX_TARGETS_IN_PUT, MAX_TASK_DOCUMENT};
use store::{Store, StoreError, TaskKind, TaskNode, TaskRecord};

fn task(n: i64) -> TaskRecord {
    TaskRecord {
        id: format!("t-{}", 100 - n),
        kind: if n % 2 == 0 { TaskKind::Workflow } else { TaskKind::Task },
        created: at(n),
        by: "ann".into(),
        document: format!(r#"{{"n":{n}}}"#),
        finished: None,
    }
}

fn target(n: u32, state: &str) -> TaskNode {
    TaskNode { node: new_node(n).node_id, action: format!("a-{n}"), state: state.into() }
}

pub(super) async fn tasks_are_kept(store: &Store) {
    assert_eq!(store.tasks(10, None).await.unwrap(), []);
    assert_eq!(store.task("t-99").await.unwrap(), None);
    let all: Vec<TaskRecord> = (1..=5).map(task).collect();
    for task in &all {
        store.put_task(task.clone()).await.unwrap();
    }
    assert_eq!(store.task("t-98").await.unwrap().as_ref(), Some(&all[1]));
    assert_eq!(store.open_tasks().await.unwrap(), all, "oldest first");
    let page = store.tasks(2, None).await.unwrap();
    assert_eq!(page, [all[4].clone(), all[3].clone()], "newest first");
    assert_eq!(
        store.tasks(9, Some(&page[1].id)).await.unwrap(),
        [&all[2], &all[1], &all[0]].map(Clone::clone)
    );
    assert_eq!(store.tasks(9, Some("no such")).await.unwrap(), []);

    // What changes is the document and the end; who asked and when stay.
    let ended = TaskRecord { document: "{}".into(), finished: Some(at(9)), ..all[2].clone() };
    let other = TaskRecord { by: "eve".into(), created: at(8), kind: TaskKind::Workflow, ..ended.clone() };
    store.put_task(other).await.unwrap();
    assert_eq!(store.task(&ended.id).await.unwrap(), Some(ended));
    assert_eq!(store.open_tasks().await.unwrap().len(), 4);

    let large = TaskRecord { document: "x".repeat(MAX_TASK_DOCUMENT + 1), ..task(6) };
    let refused = store.put_task(large).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
    for n in 4..MAX_OPEN_TASKS {
        store.put_task(TaskRecord { id: format!("more-{n}"), ..task(7) }).await.unwrap();
    }
    let refused = store.put_task(task(8)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
    store.put_task(TaskRecord { document: "{}".into(), ..task(1) }).await.unwrap();
    store.put_task(TaskRecord { finished: Some(at(9)), ..task(9) }).await.unwrap();
}

pub(super) async fn targets_are_kept(store: &Store) {
    let refused = store.put_task_nodes("t-99", vec![target(1, "{}")]).await.unwrap_err();
    assert!(matches!(refused, StoreError::UnknownTask(_)), "{refused:?}");
    store.put_task(task(1)).await.unwrap();
    store.put_task(task(2)).await.unwrap();
    let mut all: Vec<TaskNode> = (1..=7).map(|n| target(n, "{}")).collect();
    store.put_task_nodes("t-99", all.clone()).await.unwrap();
    store.put_task_nodes("t-98", vec![target(3, "other")]).await.unwrap();
    all[2] = target(3, r#"{"ended":true}"#);
    store.put_task_nodes("t-99", vec![all[2].clone()]).await.unwrap();
    all.sort_by(|a, b| a.node.cmp(&b.node));
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.task_nodes("t-99", after.as_ref(), 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.node.clone());
        listed.extend(page);
    }
    assert_eq!(listed, all);
    assert_eq!(store.task_nodes("t-1", None, 3).await.unwrap(), []);
    let many = (0..=MAX_TARGETS_IN_PUT as u32).map(|n| target(n, "")).collect();
    let refused = store.put_task_nodes("t-99", many).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
    let large = target(1, &"x".repeat(MAX_TARGET_STATE + 1));
    let refused = store.put_task_nodes("t-99", vec![large]).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
}

pub(super) async fn finished_tasks_are_pruned(store: &Store) {
    for n in 1..=6 {
        let finished = (n != 2).then(|| at(50 - n));
        store.put_task(TaskRecord { finished, ..task(n) }).await.unwrap();
        store.put_task_nodes(&task(n).id, vec![target(1, "{}")]).await.unwrap();
    }
    let retention = Retention { finished_tasks: 2, ..Retention::default() };
    assert_eq!(store.prune(at(60), retention).await.unwrap().tasks, 3);
    let left: Vec<String> = store.tasks(10, None).await.unwrap().into_iter().map(|task| task.id).collect();
    assert_eq!(left, [task(6).id, task(5).id, task(2).id], "the newest, and one that is open");
    assert_eq!(store.task_nodes(&task(1).id, None, 10).await.unwrap(), []);
    assert_eq!(store.task_nodes(&task(2).id, None, 10).await.unwrap().len(), 1);
    // Its id may be used again.
    store.put_task(task(1)).await.unwrap();
    assert_eq!(store.task_nodes(&task(1).id, None, 10).await.unwrap(), []);
}

fn of_action(seq: u64, id: &str, event: ActionEvent) -> Fact {
    Fact { seq, at: at(100), body: FactBody::Action(ActionFact { id: id.into(), event }) }
}

fn output(seq: u64, id: &str) -> Fact {
    let text = "x".repeat(5000);
    of_action(seq, id, ActionEvent::Output { stream: OutputStream::Stdout, text, dropped: 0 })
}

fn ended(seq: u64, id: &str) -> Fact {
    let outcome = ActionOutcome::Exited { code: 0 };
    of_action(seq, id, ActionEvent::Ended { outcome, duration_ms: 5 })
}

pub(super) async fn facts_of_actions_are_found(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    let facts = vec![
        started(1),
        of_action(2, "a", ActionEvent::Started),
        output(3, "a"),
        of_action(4, "b", ActionEvent::Started),
        ended(5, "a"),
        run(6, 0, false),
        output(7, "b"),
    ];
    store.append_facts(&one, &incarnation("one"), facts.clone(), at(1)).await.unwrap();
    store.append_facts(&two, &incarnation("one"), vec![ended(1, "b")], at(1)).await.unwrap();
    let of = async |node, action| -> Vec<Fact> {
        let records = store.action_facts(node, action).await.unwrap();
        records.into_iter().map(|record| record.fact).collect()
    };
    assert_eq!(of(&one, "a").await, [&facts[1], &facts[2], &facts[4]].map(Clone::clone));
    assert_eq!(of(&one, "b").await, [&facts[3], &facts[6]].map(Clone::clone));
    assert_eq!(of(&one, "c").await, []);
    assert_eq!(of(&two, "b").await.len(), 1);
    let ask = || ["b", "c", "a"].map(str::to_owned).to_vec();
    assert_eq!(store.ended_actions(&one, ask()).await.unwrap(), ["a"]);
    assert_eq!(store.ended_actions(&two, ask()).await.unwrap(), ["b"]);
    assert_eq!(store.ended_actions(&new_node(9).node_id, ask()).await.unwrap(), Vec::<String>::new());

    // Repeated, they are not accepted twice; the end comes in another incarnation of the log.
    store.append_facts(&one, &incarnation("one"), facts, at(2)).await.unwrap();
    store.append_facts(&one, &incarnation("two"), vec![ended(1, "b")], at(3)).await.unwrap();
    assert_eq!(of(&one, "b").await.len(), 3);
    assert_eq!(store.ended_actions(&one, ask()).await.unwrap(), ["b", "a"]);

    // Output is no reason to forget what else happened.
    let retention = Retention { action_facts_per_node: 2, facts_per_node: 1, ..Retention::default() };
    assert_eq!(store.prune(at(4), retention).await.unwrap().facts, 4);
    assert_eq!(of(&one, "a").await, []);
    assert_eq!(of(&one, "b").await.len(), 2);
    assert_eq!(store.ended_actions(&one, ask()).await.unwrap(), ["b"]);
    let left = store.facts(&one, None, 10).await.unwrap();
    assert_eq!(
        left.iter().map(|record| record.fact.body.kind()).collect::<Vec<_>>(),
        ["action", "action", "run", "started"]
    );
}
