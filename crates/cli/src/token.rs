//! `muster token`: the token with which a host joins, or a group of hosts; and how one asks to join without. Offline
//! (ENR-1, ENR-9).

pub mod group;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use data_encoding::{BASE64, HEXLOWER};
use model::id::ParseIdError;
use model::{Hostname, Timestamp};
use net::ServerUrl;
use serde::Serialize;
use server::EnrollInfo;
use server::api::{self, EntryName};
use server::posture::{self, ENROLL, FoundError, OPERATOR};
use trust::SigningKey;
use trust::group_token::{GroupAdmission, GroupTermsError};
use trust::token::{self, Claims, KeySource, TlsTermination, TokenError};

use self::group::GroupMintRequest;
use crate::clock::now;
use crate::connect::Connect;
use crate::credentials::{self, MintFiles};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::next_step::muster;
use crate::screen::{Screen, aside};

/// The longest that the control plane is asked whether an entry matches the host.
const ASK_LIMIT: Duration = Duration::from_secs(3);

const AFTER: &str = "\
Only the token goes to standard output. It enrolls one host once. Without --fingerprint any
key may use it, so it lives for one hour at most; with one, for 30 days. With --proxy it
must name the key: the proxy reads it, and could else enroll a key of its own. With --group
it is for so many hosts of a pattern, who wait for `muster node approve`; with --admit they do
not wait, and whoever has the token may join as one of them. Where the
control plane can be asked, a host that no published entry matches is named as a warning.

Examples:
  muster token mint web-1.example.com
  muster token mint web-1.example.com --fingerprint SHA256:... --valid 7d
  ssh web-1 muster-agent join --token \"$(muster token mint web-1.example.com)\"
  muster token mint web-1.example.com --root-key /media/key/root.key --enroll enroll.json
  muster token mint --group 'web-*.example.com' --uses 20 --valid 7d --label pool=web
  muster token address      the command of a host that joins without a token
  muster token mint web-1.example.com --proxy https://control.example.com:443 \\
    --fingerprint \"$(ssh web-1 muster-agent fingerprint)\"";

/// Arguments of `muster token`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct TokenArgs {
    #[command(subcommand)]
    what: TokenVerb,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// Mint a token; works offline
    Mint(MintArgs),
    /// Print the command with which a host asks to join without a token; works offline
    Address(AddressArgs),
}

#[derive(Args, Debug)]
struct AddressArgs {
    /// The control plane's directory [default: ./muster-data, else /var/lib/muster-server]
    #[arg(long, value_name = "DIR", conflicts_with = "enroll")]
    data: Option<PathBuf>,
    /// The control plane's enroll.json
    #[arg(long, value_name = "FILE")]
    enroll: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct MintArgs {
    /// The host that may join
    #[arg(required_unless_present = "group", conflicts_with = "group")]
    hostname: Option<String>,
    /// Instead of one host: those whose names match this pattern, as nodes.yaml writes it
    #[arg(long, value_name = "PATTERN", requires = "uses", conflicts_with_all = ["fingerprint", "proxies"])]
    group: Option<String>,
    /// With --group: for so many hosts
    #[arg(long, value_name = "N", requires = "group")]
    uses: Option<u32>,
    /// With --group: a label that is kept with each of them; may be given more than once
    #[arg(long = "label", value_name = "NAME=VALUE", requires = "group")]
    labels: Vec<String>,
    /// With --group: they join at once, without `muster node approve`
    #[arg(long, requires = "group")]
    admit: bool,
    /// Only with the key that has this fingerprint, as `muster-agent fingerprint` prints it
    #[arg(long, value_name = "SHA256:...")]
    fingerprint: Option<String>,
    /// How long the token counts: 90s, 30m, 1h, 7d
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    valid: String,
    /// The host's identity is its ed25519 SSH host key, not a key that the agent makes
    #[arg(long)]
    ssh_host_key: bool,
    /// The host's identity is its ECDSA SSH host key (P-256)
    #[arg(long, conflicts_with = "ssh_host_key")]
    ssh_host_ecdsa_key: bool,
    /// The host reaches the control plane through a proxy that ends TLS, at this URL (`muster proxy
    /// issue` makes its certificate); needs --fingerprint; may be given more than once
    #[arg(long = "proxy", value_name = "URL")]
    proxies: Vec<ServerUrl>,
    /// The control plane's directory [default: ./muster-data, else /var/lib/muster-server]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["root_key", "enroll"])]
    data: Option<PathBuf>,
    /// The root key, where it lies elsewhere
    #[arg(long, value_name = "FILE", requires = "enroll")]
    root_key: Option<PathBuf>,
    /// The control plane's enroll.json
    #[arg(long, value_name = "FILE", requires = "root_key")]
    enroll: Option<PathBuf>,
}

/// Why no token was minted.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The name is no hostname.
    #[error("that cannot be a hostname")]
    Hostname(#[source] ParseIdError),
    /// The duration cannot be read.
    #[error("--valid: {0}")]
    Valid(String),
    /// The fingerprint cannot be one.
    #[error("{0:?} is not a fingerprint")]
    Fingerprint(String),
    /// The control plane has no name by which hosts could reach it.
    #[error("the control plane knows no name by which hosts reach it")]
    NoServer,
    /// A group token says for how many hosts it is.
    #[error("the group token is for no number of hosts")]
    Group,
    /// The claims break a rule.
    #[error("such a token would not be accepted")]
    Mint(#[source] TokenError),
    /// The operating system gives no randomness.
    #[error("no token can be made")]
    Random(#[source] FoundError),
}

impl UserError for MintError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            MintError::Fingerprint(_) => {
                "copy it whole from `muster-agent fingerprint`: SHA256: and 44 characters".to_owned()
            }
            MintError::Mint(TokenError::TooLong) => {
                "name the key with --fingerprint, or ask for at most one hour".to_owned()
            }
            MintError::Mint(TokenError::Unbound) => {
                "name the key with --fingerprint: `muster-agent fingerprint` prints it on that host"
                    .to_owned()
            }
            MintError::Mint(TokenError::Group(GroupTermsError::Label(_))) => {
                "write it as in --label pool=web".to_owned()
            }
            MintError::Group => "say for how many hosts: --uses N".to_owned(),
            MintError::NoServer => "start it with --name NAME".to_owned(),
            _ => return None,
        })
    }
}

/// What a token is to say.
#[derive(Clone, Debug)]
pub struct MintRequest {
    /// The host that may join.
    pub hostname: Hostname,
    /// The key that may join.
    pub fingerprint: Option<String>,
    /// How long the token counts.
    pub valid: Duration,
    /// Which key is the machine's.
    pub key: KeySource,
    /// Proxies that end TLS, by which the host reaches the control plane; none: it does so itself.
    pub proxies: Vec<ServerUrl>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenView<T: Serialize> {
    token: String,
    #[serde(flatten)]
    whom: T,
    expires_at: Timestamp,
}

/// Does the verb.
///
/// # Errors
/// When a key or file is missing, or the token would break a rule.
pub async fn run(args: &TokenArgs, screen: Screen) -> Result<Exit, Failure> {
    let args = match &args.what {
        TokenVerb::Mint(args) => args,
        TokenVerb::Address(args) => return address(args, screen),
    };
    let files = match (&args.root_key, &args.enroll) {
        (Some(root_key), Some(enroll)) => MintFiles { root_key: root_key.clone(), enroll: enroll.clone() },
        _ => MintFiles::of_dir(&args.data.clone().unwrap_or_else(credentials::data_dir)),
    };
    let (root, info) = files.read()?;
    let secs = catalog::duration::parse(&args.valid).map_err(MintError::Valid)?;
    let valid = Duration::from_secs(secs.into());
    let key = match (args.ssh_host_key, args.ssh_host_ecdsa_key) {
        (true, _) => KeySource::SshHost,
        (_, true) => KeySource::SshHostEcdsa,
        _ => KeySource::Own,
    };
    if let Some(pattern) = &args.group {
        let request = GroupMintRequest {
            pattern: pattern.clone(),
            uses: args.uses.ok_or(MintError::Group)?,
            admission: if args.admit { GroupAdmission::ByToken } else { GroupAdmission::ByOperator },
            labels: args.labels.clone(),
            valid,
            key,
        };
        return minted_group(&request, &info, &root, screen);
    }
    let hostname = args.hostname.as_deref().unwrap_or_default();
    let request = MintRequest {
        hostname: hostname.parse().map_err(MintError::Hostname)?,
        fingerprint: args.fingerprint.clone(),
        valid,
        key,
        proxies: args.proxies.clone(),
    };
    let now = now();
    let token = mint(&request, &info, &root, now)?;
    let hostname = request.hostname.clone();
    let whom = serde_json::json!({ "hostname": hostname });
    let view = TokenView { token, whom, expires_at: now.plus(request.valid) };
    screen.result(&view, || format!("{}\n", view.token))?;
    if !screen.is_json() {
        aside(&format!("for {hostname}, until {}; on that host, as root:", view.expires_at));
        aside("  muster-agent join --token TOKEN");
        aside("(where the package's service does not run it, then: muster-agent daemon)");
    }
    let connect = Connect { operator: args.data.as_ref().map(|dir| dir.join(OPERATOR)) };
    let asked = published_entry(&hostname, &connect, &info);
    if matches!(tokio::time::timeout(ASK_LIMIT, asked).await, Ok(PublishedEntry::None)) {
        aside(&format!(
            "warning: no entry of what is published matches {}: it can join, and gets no release\n\
             next: add an entry to nodes.yaml, then {}",
            hostname,
            muster("publish")
        ));
    }
    Ok(Exit::Ok)
}

fn minted_group(
    request: &GroupMintRequest,
    info: &EnrollInfo,
    root: &SigningKey,
    screen: Screen,
) -> Result<Exit, Failure> {
    let now = now();
    let token = group::mint(request, info, root, now)?;
    let GroupMintRequest { pattern, uses, admission, valid, .. } = request;
    let whom = serde_json::json!({ "group": pattern, "uses": uses, "admission": admission });
    let view = TokenView { token, whom, expires_at: now.plus(*valid) };
    screen.result(&view, || format!("{}\n", view.token))?;
    if !screen.is_json() {
        aside(&format!(
            "for {uses} hosts of {pattern}, until {}; on each of them, as root:",
            view.expires_at
        ));
        aside("  muster-agent join --token TOKEN");
        match admission {
            GroupAdmission::ByOperator => aside(&format!("they wait: {}", muster("node list --pending"))),
            GroupAdmission::ByToken => {
                aside("whoever has the token may join as one of them: keep it as a secret")
            }
        }
    }
    Ok(Exit::Ok)
}

/// Prints the command with which a host asks to join by its key alone.
fn address(args: &AddressArgs, screen: Screen) -> Result<Exit, Failure> {
    let dir = args.data.clone().unwrap_or_else(credentials::data_dir);
    let info = credentials::enroll_info(&args.enroll.clone().unwrap_or_else(|| dir.join(ENROLL)))?;
    let EnrollInfo { servers, ca, trust, .. } = &info;
    let server = servers.first().ok_or(MintError::NoServer)?;
    let command = format!("muster-agent join {server} --ca-fingerprint {ca} --trust-digest {trust}");
    let view = serde_json::json!({ "server": server, "ca": ca, "trust": trust, "command": command });
    screen.result(&view, || format!("{command}\n"))?;
    if !screen.is_json() {
        aside(&format!(
            "it waits for approval, unless nodes.yaml declares its key: {}",
            muster("node list --pending")
        ));
    }
    Ok(Exit::Ok)
}

/// What is published for a host.
enum PublishedEntry {
    /// An entry matches it: it gets a release when it joins.
    Matches,
    /// Entries are published, and none matches it: it joins, and gets no release.
    None,
    /// The fleet's control plane cannot be asked, or nothing is published yet.
    NotKnown,
}

/// Asks the fleet's control plane whether an entry matches a host. Minting works offline, so that may be not known.
async fn published_entry(hostname: &Hostname, connect: &Connect, info: &EnrollInfo) -> PublishedEntry {
    let Ok(operator) = connect.dial().await else { return PublishedEntry::NotKnown };
    match operator.call(&api::ENTRY, EntryName { hostname: hostname.clone() }).await {
        Ok(entry) if entry.fleet != info.fleet || entry.seq == 0 => PublishedEntry::NotKnown,
        Ok(entry) if entry.channel.is_none() => PublishedEntry::None,
        Ok(_) => PublishedEntry::Matches,
        Err(_) => PublishedEntry::NotKnown,
    }
}

/// Mints a token.
///
/// # Errors
/// When it would break a rule on tokens.
pub fn mint(
    request: &MintRequest,
    info: &EnrollInfo,
    root: &SigningKey,
    now: Timestamp,
) -> Result<String, MintError> {
    if let Some(fingerprint) = &request.fingerprint {
        check_fingerprint(fingerprint)?;
    }
    let (servers, tls_termination) = match request.proxies.as_slice() {
        [] => (&*info.servers, TlsTermination::ControlPlane),
        proxies => (proxies, TlsTermination::Proxy),
    };
    if servers.is_empty() {
        return Err(MintError::NoServer);
    }
    let nonce: [u8; 16] = posture::random().map_err(MintError::Random)?;
    let claims = Claims {
        fleet: info.fleet.clone(),
        hostname: request.hostname.clone(),
        expected_pubkey_fingerprint: request.fingerprint.clone(),
        key: request.key,
        issued_at: now,
        expires_at: now.plus(request.valid),
        nonce: HEXLOWER.encode(&nonce),
        servers: servers.iter().map(ToString::to_string).collect(),
        tls_termination,
        ca: info.ca,
        trust: info.trust,
    };
    token::mint(&claims, root).map_err(MintError::Mint)
}

fn check_fingerprint(text: &str) -> Result<(), MintError> {
    let digest = text.strip_prefix("SHA256:").and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok());
    match digest {
        Some(digest) if digest.len() == 32 => Ok(()),
        _ => Err(MintError::Fingerprint(text.chars().take(100).collect())),
    }
}
