//! What queries among a workflow's steps were answered.

use model::work::Work;
use server::api::work::{TASK, TASK_NODES, WorkflowView};

use crate::failure::Failure;
use crate::next_step::muster;
use crate::object::known;
use crate::operator::Operator;
use crate::screen::Screen;
use crate::task::{answers_of, in_words};

/// The most lines of one step's answers; `muster task show` has all.
const MAX_LINES: usize = 30;

/// The answers to the newest query of each step that is one, in words; empty for programs, which
/// ask for the task.
pub(super) async fn of_steps(
    operator: &Operator,
    view: &WorkflowView,
    screen: Screen,
) -> Result<String, Failure> {
    let mut out = String::new();
    if screen.is_json() {
        return Ok(out);
    }
    for (number, step) in view.steps.iter().enumerate() {
        let Some(id) = step.tasks.last() else { continue };
        // Tasks are kept for a while only.
        let Some(task) = known(operator.call(&TASK, id.as_str()).await)? else { continue };
        if !matches!(task.work, Work::Query { .. }) {
            continue;
        }
        let nodes = operator.all(&TASK_NODES, id.as_str()).await?;
        let Some(answers) = answers_of(&task, &nodes, screen) else { continue };
        out.push_str(&format!("\nstep {}, {}: {}\n", number + 1, step.name, in_words(&task.work)));
        out.push_str(&shortened(&answers, id));
    }
    Ok(out)
}

/// The first lines of a text, and where the rest is.
fn shortened(answers: &str, task: &str) -> String {
    let lines = answers.lines().count();
    let mut out: String = answers
        .lines()
        .take(MAX_LINES)
        .map(|line| format!("  {line}").trim_end().to_owned() + "\n")
        .collect();
    if let more @ 1.. = lines.saturating_sub(MAX_LINES) {
        out.push_str(&format!("  ... {more} more lines: {}\n", muster(&format!("task show {task}"))));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, shortened};

    #[test]
    fn long_answers_end_with_where_the_rest_is() {
        assert_eq!(shortened("a\nb\n", "t1"), "  a\n  b\n");
        let long = shortened(&"x\n".repeat(MAX_LINES + 5), "t1");
        assert_eq!(long.lines().count(), MAX_LINES + 1);
        assert!(long.ends_with("  ... 5 more lines: muster task show t1\n"), "{long}");
    }
}
