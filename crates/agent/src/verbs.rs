//! The agent's verbs, as people type them.

mod executor;
mod join;
mod keys;
mod local;
mod proxy;
mod quarantine;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use model::collect::CollectInserting;
use serde::Serialize;
use trust::token::KeySource;

use crate::daemon::DaemonEnd;
use crate::files::{FileVersionError, OVERWRITE_UNKEPT};
use crate::generations::return_verb;
use crate::invocation::{command, start_daemon};
use crate::join::JoinError;
use crate::local::client::{LocalClient, LocalClientError};
use crate::local::messages::{ContactProblem, FileRestoreRequest, RunLimit};
use crate::local::{LocalProblem, LocalProblemCode};
use crate::machine::{Machine, MachineOptions, OpenMachineError};
use crate::render::chain;
use crate::runner::RunnerError;
use crate::state::StateError;
use crate::{daemon, invocation, prepare, service};

pub use local::run_once;

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

const RETURN_AFTER: &str = "\
While a release is on trial, muster-return.timer calls this with --if-due every 15 s, with the
agent's program as it was before. When the release is not confirmed in its time, it stops the
agent (60 s, then it is killed), makes the host as it was on the confirmed generation, and
starts the agent again, with the network down and whatever became of the installed agent. What
is not due is left alone. Without --if-due it looks until nothing is on trial any more.";

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

const APPLY_AFTER: &str = "\
Asks the daemon for a run now, whatever its interval, and prints what it came to. The run is on
the release that is held: the control plane is not asked for a newer one, as `muster node run`
and SIGHUP to the daemon do. A run that is under way ends first. Ends with 3 when resources
failed, with 2 when something that only observes differs, with 5 when the host is paused.

A run by tag leaves all other resources as they are: it neither looks at them nor removes what
left the set, and it does not count as the run that is due. What it changes is reported.

Examples:
  muster-agent apply
  muster-agent apply --once     where no daemon runs";

const STATUS_AFTER: &str = "\
Of the last run it shows what failed, was changed, would change, was skipped or was slow, each
with its cause; --all shows every resource. Without a daemon, and where it gives no answer within
3 s, it shows what is on disk.

Ends with the first of these that holds:
  3  resources failed, no run can be made, the release cannot be fetched or kept (NOT ADOPTED),
     or something else keeps changing them
  1  no daemon runs, or it does not answer, so nothing is kept as declared; or this host has not
     joined
  5  the control plane refuses this host: it was removed, or its certificate has ended
  4  the last contact with the control plane failed
  2  something that only observes differs
  0  none of these

Examples:
  muster-agent status
  muster-agent status --all
  muster-agent status --json | jq .daemon.contact";

const PAUSE_AFTER: &str = "\
While the host is paused its runs only observe and report. Check-ins, synchronized objects, tasks
of operators and facts go on. A run under way ends first, and the verb waits for it. The pause
outlives restarts and reboots; the control plane's status shows it with its reason. Pausing again
gives it another reason and end: without --for it holds until `resume`, whatever held before.

Examples:
  muster-agent pause --reason 'kernel debugging, ask jdoe' --for 2h
  muster-agent resume";

const WHY_AFTER: &str = "\
Shows the resource's module and attributes (those of a sensitive one are hidden), its place in the
run, what it depends on and notifies, what the last run came to and since when that is so, when it
was last changed, and what was there before Muster changed it. Ends with 3 when it failed.

Examples:
  muster-agent why nginx/file:/etc/nginx/nginx.conf
  muster-agent why /etc/motd";

const SEEN_AFTER: &str = "\
Writes the release that this host was given and where its log ends, signed with its own key. Where
two hosts hold two stories, their files prove it: on any machine,
  muster verify --equivocation web-1.json web-2.json --trust trust.json
The file holds nothing secret.

Example:
  sudo muster-agent seen --out web-1.json";

const FILE_AFTER: &str = "\
Before Muster overwrites or removes a file that it manages, or manages a part of, it keeps what
was there, whoever wrote that: the last 5 versions of at most 4 MiB each, 64 MiB of all files.
Files of sensitive resources, and files that only their owner may read, are not kept; the list
says so.

A version keeps its number. `restore` puts content, mode and owner back, keeps what was there as
a version, and reports it; what cannot be kept is overwritten only with --force. The agent puts
back what is declared, within seconds where it watches the file: pause the host first to keep a
version.

Examples:
  muster-agent file versions
  muster-agent file versions /etc/nginx/nginx.conf
  muster-agent file diff /etc/nginx/nginx.conf
  muster-agent file restore /etc/nginx/nginx.conf 3";

const DOCTOR_AFTER: &str = "\
Looks at the daemon and its unit, the state directory and its disk, the clock, the certificate,
and the way to each control plane: proxy, name, TCP, TLS. Each line that is not ok says what to do.
Changes nothing. Ends with 1 when something fails.

Examples:
  sudo muster-agent doctor
  muster-agent doctor --json | jq '.findings[] | select(.level != \"ok\")'";

const BUNDLE_AFTER: &str = "\
Holds status, doctor, versions, the unit, the journal and names of state files. It holds no key, no
token, no content of managed files and no parameters. Causes of failures hold what commands
printed: look through it before you pass it on.

Example:
  sudo muster-agent bundle --output /tmp/bundle.tar.gz";

#[derive(Debug, Subcommand)]
enum AgentVerb {
    /// Enroll this host with a token, or ask to be let in
    #[command(after_help = join::JOIN_AFTER)]
    Join(join::JoinArgs),
    /// Show or set the proxy that leads to the control plane
    #[command(after_help = proxy::PROXY_AFTER)]
    Proxy(proxy::SetProxyArgs),
    /// Stay, check in and converge (what the service runs); SIGHUP makes it do so at once
    #[command(after_help = DAEMON_AFTER)]
    Daemon,
    /// Go back to the confirmed generation when the one on trial is not confirmed (what the watchdog runs)
    #[command(after_help = RETURN_AFTER)]
    Return {
        /// Look once, whether it is time, and end
        #[arg(long)]
        if_due: bool,
    },
    /// Make the host as the held set declares now, and follow the run to its end
    #[command(after_help = APPLY_AFTER)]
    Apply {
        /// Where no daemon runs: make one run in this process
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Say what `apply` would change; touch nothing
    #[command(after_help = "Works with and without the daemon. Ends with 2 when something would \
change. A\nplan by tag looks at nothing else.\n\nExamples:\n  muster-agent plan\n  muster-agent plan --tags \
nginx\n  muster-agent plan --json | jq .counts")]
    Plan {
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Say how this host stands: the daemon, its contacts, the last run, synchronization
    #[command(after_help = STATUS_AFTER)]
    Status {
        /// Every resource of the last run, with how long it took
        #[arg(long)]
        all: bool,
    },
    /// Change nothing on this host until `resume`: runs only observe
    #[command(after_help = PAUSE_AFTER)]
    Pause {
        /// Why; `status` shows it here and at the control plane
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// It ends by itself after this long: 90s, 30m, 2h, 7d
        #[arg(long = "for", value_name = "DURATION", value_parser = local::seconds)]
        for_secs: Option<u64>,
    },
    /// End a pause: the host is made as declared again, at once
    #[command(after_help = "Example:\n  muster-agent resume")]
    Resume,
    /// Say all that is known of one resource
    #[command(after_help = WHY_AFTER)]
    Why {
        /// `module/type:name`, or as much of its end as only one resource has
        resource: String,
    },
    /// Write what this host was given, signed by it, to compare with what others were given
    #[command(after_help = SEEN_AFTER)]
    Seen {
        /// The file [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List, compare and put back what files were before Muster changed them
    #[command(after_help = FILE_AFTER)]
    File {
        #[command(subcommand)]
        verb: FileVerb,
    },
    /// Show the contents that this host went back from and refuses, and let one be tried again
    #[command(after_help = quarantine::QUARANTINE_AFTER)]
    Quarantine {
        #[command(subcommand)]
        verb: quarantine::QuarantineVerb,
    },
    /// Look for what keeps this host from being looked after
    #[command(after_help = DOCTOR_AFTER)]
    Doctor,
    /// Write what somebody who helps needs to see of this host, without its secrets
    #[command(after_help = BUNDLE_AFTER)]
    Bundle {
        /// The file [default: muster-agent-bundle-TIME.tar.gz in this directory]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
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
    /// Clear this host's identity and state, so that its disk can be cloned as a template
    #[command(after_help = join::PREPARE_AFTER)]
    PrepareImage {
        /// Do it: what is removed cannot be brought back
        #[arg(long)]
        yes: bool,
    },
    /// Print this machine's keys: the one that it proves itself with, and the one that secrets are sealed for
    #[command(after_help = keys::IDENTITY_AFTER)]
    Identity,
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
    fn limit(self) -> RunLimit {
        RunLimit { tags: self.tags.into_iter().collect_inserting() }
    }
}

#[derive(Debug, Subcommand)]
enum FileVerb {
    /// List the kept versions of files
    Versions {
        /// The file, or a directory for all files below it; every file when absent
        path: Option<String>,
    },
    /// Say how a version differs from what is there now
    Diff {
        /// The file
        path: String,
        /// The number of the version; the newest when absent
        version: Option<u64>,
    },
    /// Put a version back
    Restore {
        /// The file
        path: String,
        /// The number of the version
        version: u64,
        /// Overwrite what is there now also where it cannot be kept as a version
        #[arg(long)]
        force: bool,
    },
}

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
    pub(super) const AS_DECLARED: u8 = 0;
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
    let options = cli.options.absolute()?;
    invocation::remember(&options);
    match cli.verb {
        AgentVerb::Join(args) => join::joined(&options, args, cli.json),
        AgentVerb::PrepareImage { yes } => join::prepared(&options, yes, cli.json),
        AgentVerb::Proxy(asked) => proxy::proxy(&options, asked, cli.json),
        AgentVerb::Return { if_due } => returned(&options, if_due),
        AgentVerb::Daemon => {
            return_verb::before_the_agent(&options);
            let machine = Machine::open(&options).map_err(|error| second_daemon(&options, error))?;
            match daemon::run(machine)? {
                DaemonEnd::Stopped => Ok(ExitCode::SUCCESS),
                DaemonEnd::StartsAnew => Err(daemon::start_anew().into()),
            }
        }
        AgentVerb::Apply { once, limit } => local::apply(&options, once, &limit.limit(), cli.json),
        AgentVerb::Plan { limit } => local::plan(&options, &limit.limit(), cli.json),
        AgentVerb::Status { all } => local::status(&options, all, cli.json),
        AgentVerb::Pause { reason, for_secs } => local::pause(&options, reason, for_secs, cli.json),
        AgentVerb::Resume => local::resume(&options, cli.json),
        AgentVerb::Why { resource } => local::why(&options, &resource, cli.json),
        AgentVerb::Seen { out } => local::seen(&options, out.as_deref()),
        AgentVerb::File { verb: FileVerb::Versions { path } } => {
            local::file_versions(&options, path.as_deref(), cli.json)
        }
        AgentVerb::File { verb: FileVerb::Diff { path, version } } => {
            local::file_diff(&options, &path, version, cli.json)
        }
        AgentVerb::File { verb: FileVerb::Restore { path, version, force } } => {
            local::file_restore(&options, FileRestoreRequest { path, version, force }, cli.json)
        }
        AgentVerb::Quarantine { verb } => quarantine::quarantine(&options, &verb, cli.json),
        AgentVerb::Doctor => local::doctor(&options, cli.json),
        AgentVerb::Bundle { output } => local::bundle(&options, output, cli.json),
        AgentVerb::ApproveDeletes => local::approve_deletes(&options),
        AgentVerb::Fingerprint { ssh_host_key: true, .. } => keys::fingerprint(&options, KeySource::SshHost),
        AgentVerb::Fingerprint { ssh_host_ecdsa_key: true, .. } => {
            keys::fingerprint(&options, KeySource::SshHostEcdsa)
        }
        AgentVerb::Fingerprint { .. } => keys::fingerprint(&options, KeySource::Own),
        AgentVerb::Identity => keys::identity(&options, cli.json),
        AgentVerb::Executor { verb: ExecutorVerb::Test { script, timeout } } => {
            executor::executor_test(&options, &script, Duration::from_secs(timeout))
        }
    }
}

/// What the watchdog runs.
fn returned(options: &MachineOptions, if_due: bool) -> Result<ExitCode, VerbFailure> {
    if if_due {
        return_verb::look(options)?;
    } else {
        return_verb::follow(options)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A daemon where one runs already.
#[derive(Debug, thiserror::Error)]
#[error("a daemon runs here already{}", pid.map(|pid| format!(", as process {pid}")).unwrap_or_default())]
struct SecondDaemonError {
    pid: Option<u32>,
}

/// Why a daemon cannot start: because another one answers, where that is so.
fn second_daemon(options: &MachineOptions, error: OpenMachineError) -> VerbFailure {
    match error.holder() {
        Some(pid) if LocalClient::find(options).is_ok() => SecondDaemonError { pid }.into(),
        _ => error.into(),
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
    if let Some(JoinError::OutOfPatience(_)) = error.downcast_ref() {
        return Some(
            "the same command asks again, with the same key; --wait 7d lets it ask for longer. On an operator's machine: \
             `muster node list --pending`"
                .to_owned(),
        );
    }
    if let Some(JoinError::Proxy(_)) = error.downcast_ref() {
        return Some(
            "give another one, or none: the same with --proxy URL, --proxy-file FILE or --proxy none"
                .to_owned(),
        );
    }
    if let Some(JoinError::Reach(error)) = error.downcast_ref()
        && let Some(next) = ContactProblem::of_dial(error).on_the_way("the same with --proxy-file FILE")
    {
        return Some(next);
    }
    if let Some(JoinError::Reach(_) | JoinError::NoServer) = error.downcast_ref() {
        return Some("check the address and port in the token's URL, and this host's firewall".to_owned());
    }
    if let Some(JoinError::Token(_)) = error.downcast_ref() {
        return Some("mint a token with `muster token mint HOSTNAME` and copy it whole".to_owned());
    }
    if let Some(error) = error.downcast_ref::<prepare::PrepareImageError>() {
        return error.hint();
    }
    if let Some(JoinError::Joined { state, .. }) = error.downcast_ref() {
        return Some(format!(
            "to join this fleet anew, use a token of it: muster token mint HOSTNAME; to join another one, move {} away first",
            state.display()
        ));
    }
    match error.downcast_ref() {
        Some(LocalClientError::NoDaemon(_)) => {
            return Some(format!("{}; for one run without it: {}", start_daemon(), command("apply --once")));
        }
        Some(LocalClientError::Denied(_)) => return Some("run it with sudo".to_owned()),
        Some(LocalClientError::Refused(problem)) => return problem.next.clone(),
        Some(LocalClientError::Silent { .. }) => return Some(invocation::continue_daemon()),
        Some(LocalClientError::Broke { .. }) => {
            return Some(format!("{}; {}", command("doctor"), service::journal()));
        }
        None => {}
    }
    if let Some(FileVersionError::NotKept { .. }) = error.downcast_ref() {
        return Some(OVERWRITE_UNKEPT.to_owned());
    }
    if let Some(LocalProblem { next, .. }) = error.downcast_ref() {
        return next.clone();
    }
    if error.is::<SecondDaemonError>() {
        return Some(format!("{} shows how it does; one daemon looks after a host", command("status")));
    }
    if let Some(RunnerError::NothingHeld) = error.downcast_ref() {
        return Some(format!(
            "the daemon fetches it: {}; {} shows its contacts",
            start_daemon(),
            command("status")
        ));
    }
    if let Some(StateError::NotJoined(_)) = error.downcast_ref() {
        return Some(join_first());
    }
    match error.downcast_ref() {
        Some(OpenMachineError::State { source: StateError::NotJoined(_), .. }) => Some(join_first()),
        Some(error) if error.holder().is_some() => Some(
            "that process does not answer on the agent's socket: another verb, which is done soon, or a daemon \
             that starts or stops; try again, and if it stays so, restart the daemon"
                .to_owned(),
        ),
        _ => None,
    }
}

/// What to do on a host that has not joined.
fn join_first() -> String {
    let join = command("join --token-file FILE");
    format!("join first: {join}; `muster token mint HOSTNAME` prints the token")
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> u8 {
    match error.downcast_ref() {
        Some(JoinError::Reach(_) | JoinError::NoServer) => exit::UNREACHABLE,
        Some(JoinError::Refused(_) | JoinError::OutOfPatience(_)) => exit::REFUSED,
        _ => match (error.downcast_ref(), error.downcast_ref()) {
            (Some(LocalClientError::Refused(problem)), _) | (_, Some(problem)) => refused(problem),
            (Some(LocalClientError::Denied(_)), _) => exit::REFUSED,
            _ => exit::ERROR,
        },
    }
}

/// What a refusal of the daemon means for scripts.
fn refused(problem: &LocalProblem) -> u8 {
    match problem.code {
        LocalProblemCode::Paused | LocalProblemCode::NotAllowed => exit::REFUSED,
        _ => exit::ERROR,
    }
}
