//! `muster demo`: a control plane, three real agents and a fleet repo on this machine. Every
//! step is something that was seen to happen.

mod agents;
mod bad_release;
mod board;
mod dirs;
mod error;
mod objects;
mod steps;
mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use server::{Config, RunningServer, ServerStartError};
use tokio::signal::unix::{SignalKind, signal};

use cli::exit::Exit;
use cli::failure::Failure;
use cli::screen::{Screen, aside};
use cli::server::ServerError;

use agents::Agent;
use board::{Board, Done};
use dirs::DemoDir;
use error::DemoError;
use steps::Demo;

/// Connections of nodes at once.
const CONNECTIONS: usize = 100;
/// Log lines of each agent that are shown when a step was not seen.
const LOG_LINES: usize = 15;

const AFTER: &str = "\
Nothing outside the demo's own directory is touched. It needs the muster-agent binary beside
this one; under `cargo run` it is built first.

Examples:
  muster demo            stays until Ctrl-C, so that you can try things
  muster demo --once     ends; 0 only when each step was seen to happen
  muster demo --keep     leaves its directory when it ends";

/// Arguments of `muster demo`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct DemoArgs {
    /// End when everything was shown; fail when something was not seen to happen
    #[arg(long)]
    once: bool,
    /// Leave the demo's directory at the end
    #[arg(long)]
    keep: bool,
    /// The fleet repo to show [default: examples/fleet]
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
}

#[derive(Serialize)]
struct Shown<'a> {
    steps: &'a [Done],
    dir: &'a Path,
}

/// Does the verb.
///
/// # Errors
/// When a step was not seen to happen; its name and the agents' last words say which and why.
pub async fn run(args: DemoArgs, screen: Screen) -> Result<Exit, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
    let asked_to_end = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::pin!(asked_to_end);
    let program = agents::find().await?;
    let dirs = DemoDir::make(args.keep)?;
    let running = start(&dirs).await.map_err(DemoError::Start)?;
    let mut demo = Demo { dirs: &dirs, program: &program, board: Board::new(screen), agents: Vec::new() };
    let shown = tokio::select! {
        shown = demo.show(args.fleet.as_deref()) => shown,
        () = &mut asked_to_end => Err(DemoError::Interrupted.into()),
    };
    if shown.is_err() {
        last_words(&mut demo.agents);
    }
    let end = match shown {
        Ok(()) => stay(&mut demo, &args, screen, &mut asked_to_end).await,
        Err(failure) => Err(failure),
    };
    stop(demo.agents, running).await;
    if args.keep {
        aside(&format!("the demo's directory stays: {}", dirs.dir().display()));
    }
    end
}

async fn start(dirs: &DemoDir) -> Result<RunningServer, ServerStartError> {
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    server::start(Config {
        dir: dirs.control(),
        fleet: "demo".parse().ok(),
        node_address: loopback,
        operator_address: loopback,
        names: vec!["127.0.0.1".to_owned()],
        connections: CONNECTIONS,
        balancers: Default::default(),
        metrics_address: None,
        proxy_address: None,
        log: None,
        links: Default::default(),
        certificates: Default::default(),
    })
    .await
}

/// Says what to try next, and stays until somebody ends it.
async fn stay(
    demo: &mut Demo<'_>,
    args: &DemoArgs,
    screen: Screen,
    asked_to_end: &mut (impl Future<Output = ()> + Unpin),
) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.result(&Shown { steps: &demo.board.done, dir: demo.dirs.dir() }, String::new)?;
    }
    if args.once {
        demo.board.say(
            "every step was seen to happen; without --once the demo stays, and tells what to try next",
        )?;
        return Ok(Exit::Ok);
    }
    let next = demo.next_steps();
    demo.board.say(&next)?;
    demo.board.say("The demo stays until Ctrl-C; its directory goes with it (--keep leaves it).")?;
    asked_to_end.await;
    Ok(Exit::Ok)
}

/// Shows the end of each agent's log.
fn last_words(agents: &mut [Agent]) {
    for agent in agents {
        let ended = agent.ended().map(|status| format!(" (ended with {status})")).unwrap_or_default();
        aside(&format!("-- the last lines of {}{ended}:", agent.name));
        for line in agent.last_lines(LOG_LINES) {
            aside(&format!("   {line}"));
        }
    }
}

async fn stop(agents: Vec<Agent>, running: RunningServer) {
    for agent in agents {
        agent.stop().await;
    }
    // Long polls of agents are over; what is left ends quickly.
    if tokio::time::timeout(Duration::from_secs(10), running.stop()).await.is_err() {
        tracing::warn!("the demo's control plane did not stop in time");
    }
}
