//! muster: operators' verbs, `muster server` and `muster demo`.
//!
//! A verb is a module with its arguments and a `run` that gives an [`Exit`]. Results go to
//! standard output through [`screen::Screen`], logs and questions to standard error. What
//! other programs use stands alone: [`publish::Publisher`], [`operator::Operator`].

pub mod args;
pub mod bench;
pub mod bound;
pub mod check;
pub mod clock;
pub mod credentials;
pub mod demo;
pub mod diff;
pub mod exit;
pub mod failure;
pub mod folder;
pub mod help;
pub mod logs;
pub mod node;
pub mod object;
pub mod observed;
pub mod operator;
pub mod publish;
pub mod query;
pub mod release;
pub mod remote;
pub mod render;
pub mod run;
pub mod screen;
pub mod server;
pub mod status;
pub mod table;
pub mod task;
pub mod token;
pub mod whom;
pub mod workflow;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tracing::level_filters::LevelFilter;

use args::{Cli, Verb};
use exit::Exit;
use failure::{Failure, Told};
use screen::{Screen, aside};

/// Runs the program: reads the command line, does the verb, says what came of it.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log(&cli);
    let screen = Screen::of_process(cli.json);
    match runtime().and_then(|runtime| runtime.block_on(run(cli.verb, screen))) {
        Ok(exit) => exit.into(),
        Err(failure) => tell(&failure, screen),
    }
}

async fn run(verb: Verb, screen: Screen) -> Result<Exit, Failure> {
    match verb {
        Verb::Check(args) => check::run(&args, screen),
        Verb::Render(args) => render::run(&args, screen).await,
        Verb::Diff(args) => diff::run(&args, screen).await,
        Verb::Publish(args) => publish::run(&args, screen).await,
        Verb::Status(args) => status::run(&args, screen).await,
        Verb::Node(args) => node::run(&args, screen).await,
        Verb::Run(args) => run::run(&args, screen).await,
        Verb::Object(args) => object::run(&args, screen).await,
        Verb::Task(args) => task::run(&args, screen).await,
        Verb::Query(args) => query::run(&args, screen).await,
        Verb::Workflow(args) => workflow::run(&args, screen).await,
        Verb::Release(args) => release::run(&args, screen).await,
        Verb::Token(args) => token::run(&args, screen),
        Verb::Server(args) => server::run(args, screen).await,
        Verb::Demo(args) => demo::run(args, screen).await,
        Verb::Bench(bench) => bench::run(bench).await,
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

impl Told for RuntimeError {}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|source| RuntimeError(source).into())
}
