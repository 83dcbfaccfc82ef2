//! The agent's verbs, as people type them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use converge::{RunMode, RunScope};
use model::RunReport;
use model::log::FactBody;
use node::{LastRun, RunOrder};
use serde::Serialize;
use trust::token::KeySource;

use crate::clock::now;
use crate::join::{self, JoinError, JoinRequest};
use crate::machine::{Machine, MachineOptions, OpenMachineError};
use crate::render::{chain, report};
use crate::runner::{Runner, RunnerError};
use crate::state::{StateDir, StateError};
use crate::storage::Storage;
use crate::{daemon, identity, service};

/// Looks after one host: enrolls it, keeps it as its fleet declares, reports.
#[derive(Debug, Parser)]
#[command(name = "muster-agent", version, arg_required_else_help = true, after_help = EXITS)]
pub struct Cli {
    #[command(flatten)]
    options: MachineOptions,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: AgentVerb,
}

const EXITS: &str = "Exit codes: 0 as declared, 1 error, 2 differences, 3 some resources failed, \
4 control plane unreachable, 5 refused.";

const DAEMON_AFTER: &str = "\
The package's service runs it once the host has joined. By hand it needs a supervisor that starts
it anew when it ends.

SIGHUP         check in and converge at once
SIGUSR1        end once nothing runs, for the supervisor to start it anew
SIGTERM        end: what runs has 30 s, its commands 10 s more";

const APPROVE_AFTER: &str = "\
For an autonomous node, whose folder is the source of its objects. When many of the
folder's files vanish at once the agent does not pass that on, as it may be a mistake. It
goes on with all other changes, and `muster-agent status` says under `held back` what it
keeps.

If the files were removed on purpose, this verb says so: what is held back now is deleted at
the control plane within seconds. It touches no file, and counts once. If they were not, put
the files back instead.

Ends with 1 when nothing is held back. The same from the control plane:
  muster object resync NODE --approve-deletions";

#[derive(Debug, Subcommand)]
enum AgentVerb {
    /// Enroll this host with a token
    #[command(after_help = "The token is taken from --token, else --token-file (deleted after \
success), else MUSTER_TOKEN.\n\nExample:\n  muster-agent join --token-file /run/muster-token")]
    Join {
        /// The token, as `muster token mint` printed it
        #[arg(long)]
        token: Option<String>,
        /// A file with the token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// The hostname to enroll as [default: the token's]
        #[arg(long)]
        hostname: Option<String>,
    },
    /// Stay, check in and converge (what the service runs); SIGHUP makes it do so at once
    #[command(after_help = DAEMON_AFTER)]
    Daemon,
    /// Converge on the held set now, without the control plane
    #[command(after_help = LIMIT_AFTER)]
    Apply {
        /// One run, then exit
        #[arg(long, required = true)]
        once: bool,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Say what `apply` would change; touch nothing
    #[command(after_help = LIMIT_AFTER)]
    Plan {
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Say what is held, what the last run came to and how synchronization stands
    Status,
    /// Let many manifests that vanished at once be deleted at the control plane too
    #[command(after_help = APPROVE_AFTER)]
    ApproveDeletes,
    /// Print the fingerprint of this machine's key, for `muster token mint --fingerprint`
    Fingerprint {
        /// Of the ed25519 SSH host key
        #[arg(long)]
        ssh_host_key: bool,
        /// Of the ECDSA SSH host key
        #[arg(long, conflicts_with = "ssh_host_key")]
        ssh_host_ecdsa_key: bool,
    },
    /// Try a custom executor out
    Executor {
        #[command(subcommand)]
        verb: ExecutorVerb,
    },
}

/// Which resources a run is about.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Only resources with one of these tags, and what they notify
    #[arg(long, value_name = "TAG,...", value_delimiter = ',')]
    tags: Vec<String>,
}

impl LimitArgs {
    fn scope(self) -> RunScope {
        match self.tags.is_empty() {
            true => RunScope::All,
            false => RunScope::Tags(self.tags.into_iter().collect()),
        }
    }
}

const LIMIT_AFTER: &str = "\
A run by tag leaves all other resources as they are: it neither looks at them nor removes what
left the set, and it does not count as the run that is due. What it changes is reported.";

#[derive(Debug, Subcommand)]
enum ExecutorVerb {
    /// Run a script once with a request from stdin, as an agent would
    #[command(after_help = "Example:\n  echo '{\"name\":\"x\",\"state\":\"present\",\"params\":{}}' \
| muster-agent executor test ./health.sh")]
    Test {
        /// The script
        script: PathBuf,
        /// Kill it after this many seconds
        #[arg(long, default_value_t = 600)]
        timeout: u64,
    },
}

/// Exit codes of design.md section 7.
mod exit {
    pub(super) const ERROR: u8 = 1;
    pub(super) const DIFFERENCES: u8 = 2;
    pub(super) const SOME_FAILED: u8 = 3;
    pub(super) const UNREACHABLE: u8 = 4;
    pub(super) const REFUSED: u8 = 5;
}

type VerbFailure = Box<dyn std::error::Error>;

/// Carries out what was typed.
pub fn main(cli: Cli) -> ExitCode {
    match carry_out(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("muster-agent: {}", model::text::printable(&chain(error.as_ref())));
            if let Some(hint) = hint(error.as_ref()) {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(code_of(error.as_ref()))
        }
    }
}

fn carry_out(cli: Cli) -> Result<ExitCode, VerbFailure> {
    let options = cli.options;
    match cli.verb {
        AgentVerb::Join { token, token_file, hostname } => {
            joined(&options, token, token_file, hostname, cli.json)
        }
        AgentVerb::Daemon => {
            daemon::run(Machine::open(&options)?)?;
            Ok(ExitCode::SUCCESS)
        }
        AgentVerb::Apply { once: _, limit } => run(&options, RunMode::Apply, limit.scope(), cli.json),
        AgentVerb::Plan { limit } => run(&options, RunMode::Plan, limit.scope(), cli.json),
        AgentVerb::Status => status(&options, cli.json),
        AgentVerb::ApproveDeletes => approve_deletes(&options),
        AgentVerb::Fingerprint { ssh_host_key: true, .. } => fingerprint(&options, KeySource::SshHost),
        AgentVerb::Fingerprint { ssh_host_ecdsa_key: true, .. } => {
            fingerprint(&options, KeySource::SshHostEcdsa)
        }
        AgentVerb::Fingerprint { .. } => fingerprint(&options, KeySource::Own),
        AgentVerb::Executor { verb: ExecutorVerb::Test { script, timeout } } => {
            executor_test(&options, &script, Duration::from_secs(timeout))
        }
    }
}

fn joined(
    options: &MachineOptions,
    token: Option<String>,
    token_file: Option<PathBuf>,
    hostname: Option<String>,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    // ENR-6: flag, file, environment, in this order.
    let (token, token_file) = match (token, token_file) {
        (Some(token), _) => (token, None),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(token) => (token, Some(path)),
            Err(error) => return Err(format!("the token's file {}: {error}", path.display()).into()),
        },
        (None, None) => (std::env::var("MUSTER_TOKEN").map_err(|_| NoToken)?, None),
    };
    let (root, allow_exec) = (options.root.clone(), options.allow_exec);
    let asked = JoinRequest { token, token_file, hostname, root, allow_exec };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let membership = runtime.block_on(join::join(asked, &options.state_dir()))?;
    let view = serde_json::json!({
        "nodeId": membership.node_id, "hostname": membership.hostname, "fleet": membership.trust.fleet,
    });
    let option = |name: &str, dir: &Option<PathBuf>| {
        dir.as_ref().map_or(String::new(), |dir| format!(" --{name} {}", dir.display()))
    };
    let next = match service::runs(options) {
        true => format!("{} runs it from now on: muster-agent status", service::SERVICE),
        false => {
            let (state, root) = (option("state", &options.state), option("root", &options.root));
            format!("next: muster-agent{state}{root} daemon")
        }
    };
    let (fleet, hostname, id) = (&membership.trust.fleet, &membership.hostname, &membership.node_id);
    show(json, &view, || format!("joined fleet {fleet} as {hostname} ({id})\n{next}\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, thiserror::Error)]
#[error("no token: give --token, --token-file or MUSTER_TOKEN")]
struct NoToken;

fn run(
    options: &MachineOptions,
    mode: RunMode,
    scope: RunScope,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let machine = Machine::open(options)?;
    let done = run_once(&machine, mode, scope)?;
    show(json, &done, || report(&done))?;
    Ok(match (&done.counts.failed, mode) {
        (1.., _) => ExitCode::from(exit::SOME_FAILED),
        (_, RunMode::Plan) if done.counts.would_change > 0 => ExitCode::from(exit::DIFFERENCES),
        _ => ExitCode::SUCCESS,
    })
}

/// One run on the held set, recorded as the daemon would: the fact waits for the next
/// check-in. A partial run is a fact and not the last run.
///
/// # Errors
/// When nothing is held, no resource has a tag of the scope, or the state cannot be used.
pub fn run_once(machine: &Machine, mode: RunMode, scope: RunScope) -> Result<RunReport, VerbFailure> {
    let durable = &machine.durable;
    let adoption = durable.adoption()?.ok_or(RunnerError::NothingHeld)?;
    let traits = providers::traits::collect(machine.kinds.host(), env!("CARGO_PKG_VERSION"), now()).traits;
    let hostname = machine.membership.hostname.to_string();
    let storage = Storage::start(durable.clone())?;
    let runner = Runner::new(machine.kinds.clone(), storage.clone(), hostname);
    let read = runner.read_traits(&traits).map_or(model::Digest::ZERO, |read| read.digest);
    let inputs = node::step::inputs_digest(&adoption.root, &read);
    let last = durable.last_run()?;
    let intended = last.as_ref().is_none_or(|last| last.inputs != inputs);
    let order = RunOrder { seq: adoption.seq, root: adoption.root, intended };
    let report = runner.run(&order, &traits, mode, scope)?;
    if mode == RunMode::Apply && report.partial.is_some() {
        if LastRun::partial_is_fact(&report) {
            storage.append_blocking(FactBody::Run(report.clone()))?;
        }
    } else if mode == RunMode::Apply {
        let written = LastRun::after(last.as_ref(), inputs, &report, &durable.incarnation(), now());
        if written.fact {
            storage.append_blocking(FactBody::Run(report.clone()))?;
        }
        if written.save {
            durable.save_last_run(&written.last)?;
        }
    }
    Ok(report)
}

fn status(options: &MachineOptions, json: bool) -> Result<ExitCode, VerbFailure> {
    let dir = options.state_dir();
    let view = crate::status::read(&dir)?;
    show(json, &view, || view.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn approve_deletes(options: &MachineOptions) -> Result<ExitCode, VerbFailure> {
    let dir = options.state_dir();
    let held = crate::sync::view::read(&dir).and_then(|view| view.held);
    let Some(held) = held else {
        return Err(format!("nothing is held back, as far as {} says", dir.display()).into());
    };
    crate::sync::reconciler::approve(&dir)?;
    print(&format!("approved: {held}\n"));
    Ok(ExitCode::SUCCESS)
}

fn fingerprint(options: &MachineOptions, source: KeySource) -> Result<ExitCode, VerbFailure> {
    let state = options.state_dir();
    StateDir::create(&state)?;
    let key = identity::key(source, &state, &options.root_dir())?;
    print(&format!("{}\n", key.public().fingerprint()));
    Ok(ExitCode::SUCCESS)
}

fn executor_test(
    machine: &MachineOptions,
    script: &Path,
    timeout: Duration,
) -> Result<ExitCode, VerbFailure> {
    /// The longest request read from stdin, in bytes.
    const MAX_REQUEST: u64 = 1024 * 1024;
    let mut request = Vec::new();
    std::io::stdin().take(MAX_REQUEST).read_to_end(&mut request)?;
    if request.trim_ascii().is_empty() {
        request = br#"{"name":"test","state":"present","params":{}}"#.to_vec();
    }
    let options = host::HostOptions { allow_exec: machine.allow_exec, ..host::HostOptions::default() };
    let host = host::Host::open(&machine.root_dir(), options)?;
    let tested = providers::custom::test_script(&host, script, &request, timeout)?;
    if !tested.stderr.is_empty() {
        eprintln!("{}", tested.stderr.trim_end());
    }
    let millis = tested.duration.as_millis();
    print(&format!("sha256 {}\ntook {millis} ms\n", tested.digest));
    match tested.reply {
        Ok(reply) if reply.error.is_empty() => {
            print(&format!("changed: {}\n", reply.changed));
            Ok(ExitCode::SUCCESS)
        }
        Ok(reply) => {
            print(&format!("failed, as the script says: {}\n", reply.error));
            Ok(ExitCode::from(exit::SOME_FAILED))
        }
        Err(why) => {
            print(&format!("not a valid answer: {why}\nit printed: {}\n", tested.stdout.trim_end()));
            Ok(ExitCode::from(exit::ERROR))
        }
    }
}

/// Prints a result: as JSON, or else as text.
fn show(json: bool, result: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), VerbFailure> {
    print(&if json { serde_json::to_string(result)? + "\n" } else { text() });
    Ok(())
}

/// What people asked for goes to stdout. A closed pipe is not an error of ours.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(model::text::printable(text).as_bytes());
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(JoinError::Refused(problem)) = error.downcast_ref() {
        return problem.help.clone();
    }
    if let Some(JoinError::Reach(_) | JoinError::NoServer) = error.downcast_ref() {
        return Some("check the address and port in the token's URL, and this host's firewall".to_owned());
    }
    if let Some(JoinError::Token(_)) = error.downcast_ref() {
        return Some("mint a token with `muster token mint HOSTNAME` and copy it whole".to_owned());
    }
    if let Some(JoinError::Joined { state, .. }) = error.downcast_ref() {
        return Some(format!("to join another fleet, move {} away first", state.display()));
    }
    match error.downcast_ref() {
        Some(OpenMachineError::State { source: StateError::NotJoined(_), .. }) => {
            Some("join first: muster-agent join --token TOKEN (and the same --state and --root)".to_owned())
        }
        Some(OpenMachineError::State {
            source: StateError::Spool { source: spool::SpoolError::Locked { .. }, .. },
            ..
        }) => Some("the daemon is running; `kill -HUP` makes it check in and converge at once".to_owned()),
        _ => None,
    }
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> u8 {
    match error.downcast_ref() {
        Some(JoinError::Reach(_) | JoinError::NoServer) => exit::UNREACHABLE,
        Some(JoinError::Refused(_)) => exit::REFUSED,
        _ => exit::ERROR,
    }
}
