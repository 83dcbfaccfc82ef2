//! `muster object apply` and `diff`.

use model::delta::render;
use serde::Serialize;
use server::api::objects::{APPLY, Apply, ApplyOutcome, MAX_APPLY, ObjectResult};

use super::fields::{changes, title};
use super::read::{ReadManifest, Source, read};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::{Operator, OperatorCallError};
use crate::publish::batches;
use crate::screen::{Mark, Screen, aside, tally};
use crate::whom::known_node;

/// The most manifests in one request; well below what is taken, so that an interruption
/// leaves little undone that was said.
const BATCH: usize = 1000;
const _: () = assert!(BATCH <= MAX_APPLY);
/// The most bytes of manifests in one request.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// What became of all, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultsView<'a> {
    dry_run: bool,
    results: &'a [ObjectResult],
}

/// Makes objects so as manifests say.
pub(super) async fn apply(
    connect: &Connect,
    source: &Source<'_>,
    dry_run: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    let given = read(source)?;
    let operator = connect.dial().await?;
    known_node(&operator, source.node).await?;
    let (mut results, ended) = send(&operator, &given, source, dry_run).await;
    results.iter_mut().for_each(|done| (done.before, done.after) = (None, None));
    if let Err(error) = ended {
        // What was done stays done, so it is reported before the failure.
        aside(results_text(&results, dry_run, screen).trim_end());
        aside(&format!("{} of {} objects were sent; apply again for the rest", results.len(), given.len()));
        return Err(error.into());
    }
    report_results(&results, dry_run, screen)
}

/// Prints what became of objects.
pub(super) fn report_results(
    results: &[ObjectResult],
    dry_run: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    screen.result(&ResultsView { dry_run, results }, || results_text(results, dry_run, screen))?;
    Ok(exit(results, dry_run))
}

/// Shows what an apply would change.
pub(super) async fn diff(connect: &Connect, source: &Source<'_>, screen: Screen) -> Result<Exit, Failure> {
    let given = read(source)?;
    let operator = connect.dial().await?;
    known_node(&operator, source.node).await?;
    let (results, ended) = send(&operator, &given, source, true).await;
    ended?;
    screen.result(&ResultsView { dry_run: true, results: &results }, || diff_text(&results, screen))?;
    Ok(exit(&results, true))
}

/// Sends manifests batch by batch. Gives what became of those that were sent, also when it
/// did not come to an end.
async fn send(
    operator: &Operator,
    given: &[ReadManifest],
    source: &Source<'_>,
    dry_run: bool,
) -> (Vec<ObjectResult>, Result<(), OperatorCallError>) {
    let mut results = Vec::new();
    for batch in batches(given, |given| given.size, BATCH, BATCH_BYTES) {
        let apply = Apply {
            manifests: batch.iter().map(|given| given.value.clone()).collect(),
            node: source.node.map(str::to_owned),
            mapping: source.mapping,
            dry_run,
            trace: None,
        };
        match operator.call(&APPLY, apply).await {
            Ok(answer) => results.extend(answer.results),
            Err(error) => return (results, Err(error)),
        }
    }
    (results, Ok(()))
}

/// What became of objects means for scripts: refused ones come first.
pub fn exit(results: &[ObjectResult], dry_run: bool) -> Exit {
    let refused = results.iter().filter(|done| done.outcome == ApplyOutcome::Refused).count();
    let differs = |done: &ObjectResult| {
        matches!(done.outcome, ApplyOutcome::Created | ApplyOutcome::Changed | ApplyOutcome::Deleted)
    };
    match refused {
        0 if dry_run && results.iter().any(differs) => Exit::Differences,
        0 => Exit::Ok,
        _ if refused == results.len() => Exit::Refused,
        _ => Exit::SomeFailed,
    }
}

/// What became of objects, one a line, and the totals.
pub fn results_text(results: &[ObjectResult], dry_run: bool, screen: Screen) -> String {
    let mut out = String::new();
    for done in results.iter().filter(|done| done.outcome != ApplyOutcome::Unchanged) {
        let (word, mark) = word(done.outcome);
        let why = done.why.as_ref().map(|why| format!("  {why}")).unwrap_or_default();
        out.push_str(&format!("{}  {}{why}\n", screen.mark(mark, &format!("{word:<9}")), title(done)));
    }
    let totals = totals(results);
    let totals = if totals.is_empty() { "nothing to do".to_owned() } else { totals };
    out.push_str(&if dry_run { format!("it would be: {totals}\n") } else { format!("{totals}\n") });
    out
}

fn diff_text(results: &[ObjectResult], screen: Screen) -> String {
    let mut out = screen.difference(&render(&changes(results)), "");
    for done in results.iter().filter(|done| done.outcome == ApplyOutcome::Refused) {
        let why = done.why.as_deref().unwrap_or("no reason is given");
        out.push_str(&screen.mark(Mark::Bad, &format!("! {}  refused: {why}", title(done))));
        out.push('\n');
    }
    if results.iter().all(|done| matches!(done.outcome, ApplyOutcome::Unchanged | ApplyOutcome::Absent)) {
        return format!("all the same: {}\n", totals(results));
    }
    out.push_str(&format!("\nit would be: {}\n", totals(results)));
    out
}

/// How many of each; what is zero is left out.
fn totals(results: &[ObjectResult]) -> String {
    let all = [
        ApplyOutcome::Refused,
        ApplyOutcome::Created,
        ApplyOutcome::Changed,
        ApplyOutcome::Deleted,
        ApplyOutcome::Absent,
        ApplyOutcome::Unchanged,
    ];
    let count = |wanted: ApplyOutcome| results.iter().filter(|done| done.outcome == wanted).count();
    tally(all.map(|outcome| (count(outcome), word(outcome).0)))
}

fn word(outcome: ApplyOutcome) -> (&'static str, Mark) {
    match outcome {
        ApplyOutcome::Created => ("created", Mark::Good),
        ApplyOutcome::Changed => ("changed", Mark::Warn),
        ApplyOutcome::Unchanged => ("unchanged", Mark::Dim),
        ApplyOutcome::Deleted => ("deleted", Mark::Warn),
        ApplyOutcome::Absent => ("absent", Mark::Dim),
        ApplyOutcome::Refused => ("refused", Mark::Bad),
    }
}
