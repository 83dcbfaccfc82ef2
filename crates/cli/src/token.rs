//! `muster token`: the token with which a host joins, or a group of hosts; and how one asks to join without. Offline
//! (ENR-1, ENR-9); with a fleet repo at hand a token is declared there (ENR-3).

pub mod group;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use data_encoding::{BASE64, HEXLOWER};
use model::id::ParseIdError;
use model::{Hostname, NodeId, Timestamp};
use net::ServerUrl;
use serde::Serialize;
use server::EnrollInfo;
use server::api::lists::{LISTS, ListsView};
use server::api::operation::Empty;
use server::api::{self, EntryName};
use server::posture::{self, ENROLL, FoundError, OPERATOR};
use trust::group_token::{self, GroupAdmission, GroupTermsError};
use trust::token::{self, Claims, KeySource, TlsTermination, TokenError, UnsignedToken};

use self::group::GroupMintRequest;
use crate::clock::now;
use crate::connect::Connect;
use crate::credentials::{self, MintFiles};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::lists::declare::{self, NewToken};
use crate::next_step::muster;
use crate::screen::{Screen, aside};
use crate::signer::{FleetSigner, SignerError};

/// The longest that the control plane is asked whether an entry matches the host.
const ASK_LIMIT: Duration = Duration::from_secs(3);

const AFTER: &str = "\
Only the token goes to standard output. It enrolls one host once. Without --fingerprint any
key may use it, so it lives for one hour at most; with one, for 30 days. With --proxy it
must name the key: the proxy reads it, and could else enroll a key of its own. With --group
it is for so many hosts of a pattern, who wait for `muster node approve`; with --admit they do
not wait, and whoever has the token may join as one of them. Where the
control plane can be asked, a host that no published entry matches is named as a warning.
A fleet that published an allowlist lets in only tokens that tokens.yaml of its repo declares:
--repo appends the token there, and the next publish lets it count.

Examples:
  muster token mint web-1.example.com
  muster token mint web-1.example.com --fingerprint SHA256:... --valid 7d
  muster token mint web-1.example.com --repo fleet && muster publish --repo fleet
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
    Mint(Box<MintArgs>),
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
    #[arg(long, value_name = "PATTERN", requires = "uses", conflicts_with_all = ["fingerprint", "proxies", "replaces"])]
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
    #[command(flatten)]
    options: MintOptions,
    /// The node that the host was before, by its id: it is removed as the host joins (`muster node replace`
    /// names it by itself)
    #[arg(long, value_name = "NODE_ID")]
    replaces: Option<NodeId>,
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

/// What a token is to say, as it is typed.
#[derive(Args, Clone, Debug)]
pub(crate) struct MintOptions {
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
    /// Declare the token in tokens.yaml of this fleet repo
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
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
    /// The root key does not sign.
    #[error("the token cannot be signed")]
    FleetSigner(#[from] SignerError),
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
            MintError::FleetSigner(error) => return error.hint(),
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
    /// The node that the host was before.
    pub replaces: Option<NodeId>,
}

impl MintOptions {
    /// What is to be minted for a host.
    ///
    /// # Errors
    /// When the validity cannot be read.
    fn request(&self, hostname: Hostname, replaces: Option<NodeId>) -> Result<MintRequest, MintError> {
        Ok(MintRequest {
            hostname,
            fingerprint: self.fingerprint.clone(),
            valid: self.validity()?,
            key: self.key(),
            proxies: self.proxies.clone(),
            replaces,
        })
    }

    /// The fleet repo that declares the token.
    pub(crate) fn repo(&self) -> Option<&Path> {
        self.repo.as_deref()
    }

    fn validity(&self) -> Result<Duration, MintError> {
        let secs = catalog::duration::parse(&self.valid).map_err(MintError::Valid)?;
        Ok(Duration::from_secs(secs.into()))
    }

    fn key(&self) -> KeySource {
        match (self.ssh_host_key, self.ssh_host_ecdsa_key) {
            (true, _) => KeySource::SshHost,
            (_, true) => KeySource::SshHostEcdsa,
            _ => KeySource::Own,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenView<T: Serialize> {
    token: String,
    #[serde(flatten)]
    whom: T,
    expires_at: Timestamp,
    nonce: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<NodeId>,
    /// The file of the fleet repo that declares it.
    #[serde(skip_serializing_if = "Option::is_none")]
    declared: Option<PathBuf>,
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
    let connect = Connect { operator: args.data.as_ref().map(|dir| dir.join(OPERATOR)) };
    if let Some(pattern) = &args.group {
        let request = GroupMintRequest {
            pattern: pattern.clone(),
            uses: args.uses.ok_or(MintError::Group)?,
            admission: if args.admit { GroupAdmission::ByToken } else { GroupAdmission::ByOperator },
            labels: args.labels.clone(),
            valid: args.options.validity()?,
            key: args.options.key(),
        };
        let minted = minted_group(&request, args.options.repo.as_deref(), &files, screen)?;
        minted.remind(&connect).await;
        return Ok(Exit::Ok);
    }
    let hostname = args.hostname.as_deref().unwrap_or_default();
    let hostname: Hostname = hostname.parse().map_err(MintError::Hostname)?;
    let minted = minted(&hostname, args.replaces.clone(), &args.options, &files, screen)?;
    minted.remind(&connect).await;
    let asked = published_entry(&hostname, &connect, &minted.info);
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

/// A token that was minted and printed.
pub(crate) struct MintedToken {
    info: EnrollInfo,
    /// What declares it, where it is not declared yet and people are told what to do.
    undeclared: Option<String>,
}

impl MintedToken {
    /// Says that the token is to be declared, where the fleet has an allowlist or cannot be asked for it.
    pub(crate) async fn remind(&self, connect: &Connect) {
        let Some(entry) = &self.undeclared else { return };
        let asked = async { connect.dial().await.ok()?.call(&LISTS, Empty {}).await.ok() };
        let is_open = matches!(
            tokio::time::timeout(ASK_LIMIT, asked).await,
            Ok(Some(ListsView { allowlist: None, .. }))
        );
        if !is_open {
            aside(&format!(
                "(where the fleet has an allowlist, first declare it in tokens.yaml and publish: {entry})"
            ));
        }
    }
}

/// Mints a token, declares it where that is asked for, and prints it.
///
/// # Errors
/// When a key or file is missing, the token would break a rule, or the fleet repo cannot take it: nothing is printed
/// then.
pub(crate) fn minted(
    hostname: &Hostname,
    replaces: Option<NodeId>,
    options: &MintOptions,
    files: &MintFiles,
    screen: Screen,
) -> Result<MintedToken, Failure> {
    let (root, info) = files.read()?;
    let (request, now) = (options.request(hostname.clone(), replaces)?, now());
    let token = mint(&request, &info, &root, now)?;
    let claims = token::peek(&token).map_err(MintError::Mint)?;
    let new = NewToken {
        nonce: &claims.nonce,
        hostname: Some(&claims.hostname),
        expires_at: claims.expires_at,
        replaces: claims.replaces.as_ref(),
    };
    let declared = options.repo.as_deref().map(|repo| declare::token(repo, &new)).transpose()?;
    let whom = serde_json::json!({ "hostname": claims.hostname });
    let Claims { expires_at, nonce, replaces, .. } = claims.clone();
    let view = TokenView { token, whom, expires_at, nonce, replaces, declared };
    screen.result(&view, || format!("{}\n", view.token))?;
    if !screen.is_json() {
        aside(&format!("for {hostname}, until {expires_at}; on that host, as root:"));
        aside("  muster-agent join --token TOKEN");
        aside("(where the package's service does not run it, then: muster-agent daemon)");
        tell_declared(options.repo.as_deref(), view.declared.as_deref());
    }
    let is_told = !screen.is_json() && view.declared.is_none();
    Ok(MintedToken { info, undeclared: is_told.then(|| declare::token_entry(&new)) })
}

/// Where a token is declared, for people.
fn tell_declared(repo: Option<&Path>, declared: Option<&Path>) {
    if let (Some(repo), Some(file)) = (repo, declared) {
        let repo = model::text::shell_word(&repo.display().to_string()).into_owned();
        let publish = muster("publish");
        aside(&format!("declared in {}; it counts after: {publish} --repo {repo}", file.display()));
    }
}

fn minted_group(
    request: &GroupMintRequest,
    repo: Option<&Path>,
    files: &MintFiles,
    screen: Screen,
) -> Result<MintedToken, Failure> {
    let (root, info) = files.read()?;
    let token = group::mint(request, &info, &root, now())?;
    let claims = group_token::peek(&token).map_err(MintError::Mint)?;
    let new =
        NewToken { nonce: &claims.nonce, hostname: None, expires_at: claims.expires_at, replaces: None };
    let declared = repo.map(|repo| declare::token(repo, &new)).transpose()?;
    let GroupMintRequest { pattern, uses, admission, .. } = request;
    let whom = serde_json::json!({ "group": pattern, "uses": uses, "admission": admission });
    let (expires_at, nonce) = (claims.expires_at, claims.nonce.clone());
    let view = TokenView { token, whom, expires_at, nonce, replaces: None, declared };
    screen.result(&view, || format!("{}\n", view.token))?;
    if !screen.is_json() {
        aside(&format!("for {uses} hosts of {pattern}, until {expires_at}; on each of them, as root:"));
        aside("  muster-agent join --token TOKEN");
        match admission {
            GroupAdmission::ByOperator => aside(&format!("they wait: {}", muster("node list --pending"))),
            GroupAdmission::ByToken => {
                aside("whoever has the token may join as one of them: keep it as a secret")
            }
        }
        tell_declared(repo, view.declared.as_deref());
    }
    let is_told = !screen.is_json() && view.declared.is_none();
    Ok(MintedToken { info, undeclared: is_told.then(|| declare::token_entry(&new)) })
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
/// When it would break a rule on tokens, or the root key does not sign.
pub fn mint(
    request: &MintRequest,
    info: &EnrollInfo,
    root: &FleetSigner,
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
        replaces: request.replaces.clone(),
    };
    let unsigned = UnsignedToken::of(&claims).map_err(MintError::Mint)?;
    Ok(unsigned.signed(&root.sign(unsigned.message())?))
}

fn check_fingerprint(text: &str) -> Result<(), MintError> {
    let digest = text.strip_prefix("SHA256:").and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok());
    match digest {
        Some(digest) if digest.len() == 32 => Ok(()),
        _ => Err(MintError::Fingerprint(text.chars().take(100).collect())),
    }
}
