//! `muster-agent join` and `prepare-image`, as people type them (ENR-6, ENR-9, IDN-10).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use model::Digest;
use net::ServerUrl;
use trust::token::KeySource;

use super::proxy::JoinProxyArgs;
use super::{VerbFailure, local, show};
use crate::invocation::command;
use crate::join::{self, JoinBy, JoinProxy, JoinRequest, KeyJoin};
use crate::local::client::LocalClient;
use crate::machine::MachineOptions;
use crate::{prepare, service};

pub(super) const JOIN_AFTER: &str = "\
The token is taken from --token, else --token-file (deleted after success), else MUSTER_TOKEN. A
group token, and a join without a token, wait until an operator approves the key: `muster node list
--pending` shows it. A key that nodes.yaml declares for this hostname waits for nobody.

Examples:
  muster-agent join --token-file /run/muster-token
  muster-agent join https://control.example.com:8443 --ca-fingerprint HEX --trust-digest HEX";

pub(super) const PREPARE_AFTER: &str = "\
Removes the state directory's content: key, membership, journal, what is held, the ledger of what
was changed and kept versions of files. Files of the host and Muster's own configuration stay. It
refuses while the daemon runs. Each clone of the disk then joins as a host of its own.

Example:
  systemctl stop muster-agent && muster-agent prepare-image --yes";

/// By what the host joins.
#[derive(Args, Debug)]
pub(super) struct JoinArgs {
    /// Without a token: where the control plane is, https://HOST:PORT
    #[arg(value_name = "URL", requires = "ca_fingerprint", conflicts_with_all = ["token", "token_file"])]
    url: Option<ServerUrl>,
    /// Without a token: SHA-256 of the control plane's CA, as `muster token address` prints it
    #[arg(long, value_name = "HEX", requires = "url")]
    ca_fingerprint: Option<Digest>,
    /// Without a token: the digest of the fleet's trust document, as `muster token address` prints it
    #[arg(long, value_name = "HEX", requires = "url")]
    trust_digest: Option<Digest>,
    /// Without a token: the host's identity is its ed25519 SSH host key
    #[arg(long, requires = "url")]
    ssh_host_key: bool,
    /// Without a token: the host's identity is its ECDSA SSH host key (P-256)
    #[arg(long, requires = "url", conflicts_with = "ssh_host_key")]
    ssh_host_ecdsa_key: bool,
    /// The token, as `muster token mint` printed it
    #[arg(long)]
    token: Option<String>,
    /// A file with the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The hostname to enroll as [default: the token's, else this host's]
    #[arg(long)]
    hostname: Option<String>,
    /// How long to wait for an operator's approval: 90s, 30m, 2h, 7d [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = local::seconds)]
    wait: Option<u64>,
    #[command(flatten)]
    proxy: JoinProxyArgs,
}

impl JoinArgs {
    fn chosen(self) -> Result<(JoinProxy, JoinBy), VerbFailure> {
        let proxy = self.proxy.asked()?;
        let Some((server, ca)) = self.url.zip(self.ca_fingerprint) else {
            return Ok((proxy, token_of(self.token, self.token_file)?));
        };
        let key = match (self.ssh_host_key, self.ssh_host_ecdsa_key) {
            (true, _) => KeySource::SshHost,
            (_, true) => KeySource::SshHostEcdsa,
            _ => KeySource::Own,
        };
        Ok((proxy, JoinBy::Key(KeyJoin { server, ca, trust: self.trust_digest, key })))
    }
}

/// Joins, and says what comes next.
pub(super) fn joined(options: &MachineOptions, args: JoinArgs, json: bool) -> Result<ExitCode, VerbFailure> {
    let patience = args.wait.map_or(join::DEFAULT_PATIENCE, Duration::from_secs);
    let (hostname, root, allow_exec) = (args.hostname.clone(), options.root.clone(), options.allow_exec);
    let (proxy, by) = args.chosen()?;
    // Before the token is used: the path may be a typing error, and the state directory would make it.
    if let Some(root) = root.as_ref().filter(|root| !root.is_dir()) {
        return Err(NoRoot(root.clone()).into());
    }
    let asked = JoinRequest { by, hostname, root, allow_exec, patience, proxy };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let membership = runtime.block_on(join::join(asked, &options.state_dir()))?;
    let view = serde_json::json!({
        "nodeId": membership.node_id, "hostname": membership.hostname, "fleet": membership.trust.fleet,
        "proxy": membership.proxy.as_ref().map(ToString::to_string),
    });
    let next = match (nudged(options), service::runs(options)) {
        (true, _) => format!("the daemon that runs here takes it up now: {}", command("status")),
        (false, true) => format!("{} runs it from now on: {}", service::SERVICE, command("status")),
        (false, false) => format!("next: {}", command("daemon")),
    };
    let (fleet, hostname, id) = (&membership.trust.fleet, &membership.hostname, &membership.node_id);
    let through = membership.proxy.as_ref().map(|proxy| format!(", through {proxy}")).unwrap_or_default();
    show(json, &view, || format!("joined fleet {fleet} as {hostname} ({id}){through}\n{next}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The token: of the flag, the file or the environment, in this order (ENR-6).
fn token_of(token: Option<String>, token_file: Option<PathBuf>) -> Result<JoinBy, VerbFailure> {
    let (token, file) = match (token, token_file) {
        (Some(token), _) => (token, None),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(token) => (token, Some(path)),
            Err(error) => return Err(format!("the token's file {}: {error}", path.display()).into()),
        },
        (None, None) => (std::env::var("MUSTER_TOKEN").map_err(|_| NoToken)?, None),
    };
    Ok(JoinBy::Token { token, file })
}

/// Clears the host's identity and state, so that its disk can be a template.
pub(super) fn prepared(options: &MachineOptions, yes: bool, json: bool) -> Result<ExitCode, VerbFailure> {
    let prepared = prepare::prepare_image(&options.state_dir(), yes)?;
    show(json, &prepared, || prepared.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a daemon that runs here already check in at once; whether there is one.
pub(super) fn nudged(options: &MachineOptions) -> bool {
    use rustix::process::{Pid, Signal, kill_process};
    let status = LocalClient::find(options).and_then(|daemon| daemon.status());
    let daemon = status.ok().and_then(|status| status.daemon);
    let pid = daemon.and_then(|daemon| Pid::from_raw(i32::try_from(daemon.pid).ok()?));
    pid.is_some_and(|pid| kill_process(pid, Signal::HUP).is_ok())
}

/// The directory to converge is not there.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no directory {}, and the token was not used: correct --root, or make it: mkdir -p {}",
    .0.display(),
    model::text::shell_word(&.0.display().to_string())
)]
struct NoRoot(PathBuf);

#[derive(Debug, thiserror::Error)]
#[error(
    "no token: give --token, --token-file or MUSTER_TOKEN; to ask without one, give what `muster token address` prints on an \
     operator's machine"
)]
struct NoToken;
