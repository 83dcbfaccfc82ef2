//! `muster`: the command line, and the one place that knows every verb.
//!
//! ```text
//! main -> args::Cli -> verb's run -> Exit, or Failure -> stderr and exit code
//! ```
//!
//! Verbs are in `cli`, benchmarks in `bench`, the demo in `demo`; `help` is here, because it
//! reads the whole command line.

pub mod args;
pub mod help;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use cli::exit::Exit;
use cli::failure::{Failure, UserError};
use cli::screen::{Screen, aside};
use cli::workflow;
use cli::{
    audit, backup, beacon, check, closure, diff, explain, key, logs, node, object, operators, prove, proxy,
    publish, query, rehearse, release, render, rollout, secret, server, sign, status, task, token, verify,
};
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;

use args::{Cli, Verb};

/// The longest that the end of the program waits for what goes on on its threads. A name that is looked up
/// cannot be called off, and may take as long as the host's resolver likes.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Runs the program: reads the command line, does the verb, says what came of it.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log(&cli);
    let screen = Screen::of_process(cli.json);
    match runtime().and_then(|runtime| run_to_completion(runtime, run(cli.verb, screen))) {
        Ok(exit) => exit.into(),
        Err(failure) => tell(&failure, screen),
    }
}

/// Does it, and leaves what still goes on behind after [`END_LIMIT`].
fn run_to_completion<T>(runtime: Runtime, verb: impl Future<Output = T>) -> T {
    let done = runtime.block_on(verb);
    runtime.shutdown_timeout(END_LIMIT);
    done
}

async fn run(verb: Verb, screen: Screen) -> Result<Exit, Failure> {
    match verb {
        Verb::Check(args) => check::run(&args, screen),
        Verb::Render(args) => render::run(&args, screen).await,
        Verb::Explain(args) => explain::run(&args, screen),
        Verb::Diff(args) => diff::run(&args, screen).await,
        Verb::Rehearse(args) => rehearse::run(&args, screen),
        Verb::Publish(args) => publish::run(&args, screen).await,
        Verb::Sign(args) => sign::run(&args, screen),
        Verb::Beacon(args) => beacon::run(&args, screen).await,
        Verb::Status(args) => status::run(&args, screen).await,
        Verb::Node(args) => node::run(&args, screen).await,
        Verb::Run(args) => cli::run::run(&args, screen).await,
        Verb::Object(args) => object::run(&args, screen).await,
        Verb::Task(args) => task::run(&args, screen).await,
        Verb::Query(args) => query::run(&args, screen).await,
        Verb::Workflow(args) => workflow::run(&args, screen).await,
        Verb::Release(args) => release::run(&args, screen).await,
        Verb::Rollout(args) => rollout::run(&args, screen).await,
        Verb::Token(args) => token::run(&args, screen).await,
        Verb::Secret(args) => secret::run(&args, screen).await,
        Verb::Prove(args) => prove::run(&args, screen).await,
        Verb::Verify(args) => verify::run(&args, screen),
        Verb::Operator(args) => operators::run(&args, screen).await,
        Verb::Audit(args) => audit::run(&args, screen).await,
        Verb::Closure(args) => closure::run(&args, screen).await,
        Verb::Proxy(args) => proxy::run(&args, screen).await,
        Verb::Key(args) => key::run(&args, screen).await,
        Verb::Server(args) => server::run(args, screen).await,
        Verb::Backup(args) => backup::run(&args, screen),
        Verb::Restore(args) => backup::restore::run(&args, screen),
        Verb::Demo(args) => demo::run(args, screen).await,
        Verb::Bench(bench) => bench::run(bench, screen).await,
        Verb::Help(args) => help::run(&args, screen),
    }
}

/// What the command line's own mistakes come to. Exit code 2 means differences here, so
/// clap's is not used.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when neither stdout nor stderr can be written.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Ok.into(),
        _ => Exit::Error.into(),
    }
}

fn tell(failure: &Failure, screen: Screen) -> ExitCode {
    aside(failure.text().trim_end());
    if screen.is_json() {
        // The text is on stderr already.
        let _ = screen.result(&failure.json(), String::new);
    }
    failure.exit().into()
}

/// Logs to stderr; `MUSTER_LOG` overrides what the verb and `-v` choose.
fn log(cli: &Cli) {
    let level = match (cli.verbose, &cli.verb) {
        (0, Verb::Server(_)) => LevelFilter::INFO,
        (0, _) => LevelFilter::WARN,
        (1, _) => LevelFilter::INFO,
        (_, _) => LevelFilter::DEBUG,
    };
    logs::begin(level, cli.log_format);
}

/// The threads that this program needs cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("the program's threads cannot be started")]
struct RuntimeError(#[source] std::io::Error);

impl UserError for RuntimeError {}

fn runtime() -> Result<Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|source| RuntimeError(source).into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::{END_LIMIT, run_to_completion, runtime};

    /// A lookup of a name is on a thread that cannot be called off.
    #[test]
    fn a_thread_that_does_not_end_does_not_hold_up_the_end_of_the_program() {
        let (release, released) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let Ok(runtime) = runtime() else { return };
            run_to_completion(runtime, async {
                let (begin, begun) = tokio::sync::oneshot::channel();
                tokio::task::spawn_blocking(move || (begin.send(()), released.recv()));
                let _ = begun.await;
            });
            let _ = tell.send(());
        });
        let ended = told.recv_timeout(10 * END_LIMIT);
        drop(release);
        assert_eq!(ended, Ok(()));
    }
}
