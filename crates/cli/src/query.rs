//! `muster query`: what nodes know of themselves now, with equal answers shown once.

use catalog::traits::TRAITS;
use clap::{Args, Subcommand};
use model::work::Work;
use server::api::work::{BEGIN_TASK, NewTask};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::screen::Screen;
use crate::task::{Caller, NewTaskError, answers, answers_text, follow_answers};
use crate::whom;

const AFTER: &str = "\
A SELECTOR names nodes: `muster help selectors`. A node answers only what its release
delegates. Equal answers are shown once, the most frequent first; --json gives every one.

Answers are shown as they come, with who has not answered. It ends when all have answered, or
when those left missed three contacts, unless --wait says to wait for them.
One interruption ends it, with the answers so far.

Ends with 0 when all answered, 3 when some did not or lack the trait, 1 when none has it, 5 when every
node refused.

Examples:
  muster query 'edge-**' traits os.version
  muster query web-1.example.com file /etc/nginx/nginx.conf
  muster query '*' listeners --wait 10m
  muster query 'where:traits.os.family == \"debian\"' disks --json";

/// Arguments of `muster query`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct QueryArgs {
    #[command(flatten)]
    connect: Connect,
    /// Which nodes
    selector: String,
    #[command(subcommand)]
    what: Question,
    /// How long nodes that cannot be reached are waited for
    #[arg(long, global = true, value_name = "TIME", default_value = "0s", value_parser = catalog::duration::parse)]
    wait: u32,
    /// The longest time on one node
    #[arg(long, global = true, value_name = "TIME", default_value = "1m", value_parser = catalog::duration::parse)]
    timeout: u32,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// What they observe of themselves, or one trait
    Traits {
        /// Only this one, such as os.version
        path: Option<String>,
    },
    /// What a file is, and what is in it
    File {
        /// Its absolute path
        path: String,
    },
    /// Their processes
    Processes,
    /// Their listening sockets
    Listeners,
    /// Their free disk space, by mount
    Disks,
}

/// No node that answered has the trait: an absent answer is not an empty one.
#[derive(Debug, thiserror::Error)]
#[error("no node that answered has the trait {0}")]
struct NoSuchTrait(String);

impl UserError for NoSuchTrait {
    fn hint(&self) -> Option<String> {
        let known: Vec<String> =
            TRAITS.iter().map(|known| format!("{}.{}", known.group, known.name)).collect();
        let near = lang::nearest(&self.0, known.iter().map(String::as_str));
        Some(match near {
            Some(near) => format!("did you mean {near}?"),
            None => "`muster query SELECTOR traits` shows all that they have".to_owned(),
        })
    }
}

impl Question {
    fn work(&self) -> Work {
        let (what, path) = match self {
            Question::Traits { .. } => ("traits", None),
            Question::File { path } => ("file", Some(path.clone())),
            Question::Processes => ("processes", None),
            Question::Listeners => ("listeners", None),
            Question::Disks => ("disks", None),
        };
        Work::Query { what: what.to_owned(), path }
    }
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, or refuses.
pub async fn run(args: &QueryArgs, screen: Screen) -> Result<Exit, Failure> {
    let operator = args.connect.dial().await?;
    // It changes nothing, so nobody is asked, however many nodes there are.
    let selected = whom::select(&operator, &args.selector).await?;
    let work = args.what.work();
    let wait_secs = u64::from(args.wait);
    let task = NewTask { wait_secs, ..NewTask::new(&args.selector, work, u64::from(args.timeout)) };
    task.spec("q", "").check(selected.count).map_err(NewTaskError::Spec)?;
    let begun = operator.call(&BEGIN_TASK, task).await?;
    let mut caller = Caller::new(&args.connect, operator);
    let path = match &args.what {
        Question::Traits { path } => path.as_deref(),
        _ => None,
    };
    let report = follow_answers(&mut caller, begun, path, screen).await?;
    let answers = answers(&report.task.id, &report.nodes, path);
    screen.result(&answers, || answers_text(&answers, screen))?;
    if let Some(path) = path.filter(|_| answers.answers.is_empty() && !answers.absent.is_empty()) {
        return Err(NoSuchTrait(path.to_owned()).into());
    }
    Ok(match report.exit() {
        Exit::Ok if !answers.absent.is_empty() => Exit::SomeFailed,
        exit => exit,
    })
}
