//! `muster server`: the control plane in this process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use catalog::duration;
use clap::{Args, Subcommand};
use model::replication::{Bounds, LinkSettings};
use model::time::short;
use net::notify::ServiceState;
use net::proxy_protocol::{Balancers, IpNet};
use serde::Serialize;
use server::api::{self, LogLevel};
use server::posture::FoundError;
use server::{
    CertificateRecovery, CertificateSettings, Config, FleetName, LogControl, Posture, RunningServer,
    ServerStartError, StreamConfig,
};
use spool::SpoolError;
use store::StoreError;
use tokio::signal::unix::{SignalKind, signal};

use crate::connect::Connect;
use crate::credentials::{DATA_DIR, SERVICE_DATA_DIR};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::screen::Screen;

/// Connections of nodes at once by default.
const CONNECTIONS: usize = 20_000;

const AFTER: &str = "\
On an empty directory it founds a fleet: its certificate authority, the root key that signs
tokens, the release key that signs what nodes believe, and an operator's credentials. That is
the lab posture. To leave it, move root.key and release.key to where you publish from, and
start again (`muster help posture`).

Examples:
  muster server
  muster server --data /srv/muster --name control.example.com --fleet acme";

/// Arguments of `muster server`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ServerArgs {
    /// Keys, certificates and the database
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data: PathBuf,
    /// Where nodes call
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:1530")]
    listen: SocketAddr,
    /// Where operators call
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1531")]
    operator_listen: SocketAddr,
    /// Where proxies call that end TLS for nodes, with certificates of `muster proxy issue` [default:
    /// nowhere]
    #[arg(long, value_name = "ADDRESS")]
    proxy_listen: Option<SocketAddr>,
    /// A name or address by which nodes reach this machine; the first is tried first
    /// [default: this machine's name, then 127.0.0.1]
    #[arg(long = "name", value_name = "NAME", value_parser = reachable)]
    names: Vec<String>,
    /// The first part of the fleet's id; a start on a fleet of another name is refused [default:
    /// the fleet that is there, or "fleet" when one is founded]
    #[arg(long, value_name = "NAME")]
    fleet: Option<FleetName>,
    /// Connections of nodes at once, and as many of proxies
    #[arg(long, value_name = "COUNT", default_value_t = CONNECTIONS)]
    connections: usize,
    /// Load balancers before the node port that pass TLS on unread: connections from these addresses
    /// must begin with a PROXY header of version 2, and count as those of the address in it [default: none]
    #[arg(long, value_name = "CIDR", value_parser = network)]
    proxy_protocol_from: Vec<IpNet>,
    /// Where scrapers get metrics and health in plain HTTP, without credentials [default: nowhere;
    /// the operator port has them, for a client certificate]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Events that a link sends before the first of them is acknowledged, 16 to 65536
    #[arg(long, value_name = "COUNT", default_value_t = LinkSettings::WINDOW.default,
        value_parser = within(LinkSettings::WINDOW))]
    link_window: u32,
    /// Objects of a link that wait for another try, 16 to 65536
    #[arg(long, value_name = "COUNT", default_value_t = LinkSettings::PENDING_RETRIES.default,
        value_parser = within(LinkSettings::PENDING_RETRIES))]
    link_pending_retries: u32,
    /// Seconds of its own silence after which the control plane pings, 5 to 120
    #[arg(long, value_name = "SECONDS", default_value_t = StreamConfig::KEEPALIVE_SECS,
        value_parser = within(LinkSettings::KEEPALIVE_SECS))]
    link_keepalive: u32,
    /// Seconds of a node's silence after which its link is given up, 150 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = LinkSettings::TIMEOUT_SECS.default,
        value_parser = within(LinkSettings::TIMEOUT_SECS))]
    link_timeout: u32,
    /// Resyncs of the whole fleet at once, 1 to 1024
    #[arg(long, value_name = "COUNT", default_value_t = StreamConfig::RESYNCS.default,
        value_parser = within(StreamConfig::RESYNCS))]
    resyncs: u32,
    /// How long nodes' certificates count; nodes renew them by themselves from half of that on
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = certificate_validity)]
    certificate_validity: Duration,
    /// How long after its end a node gets another certificate for its key alone, as `90d`, or `off`: it has to
    /// join again [default: 90d in lab posture, else off]
    #[arg(long, value_name = "TIME", value_parser = recovery)]
    certificate_recovery: Option<CertificateRecovery>,
    /// A command for a control plane that runs, instead of running one.
    #[command(subcommand)]
    tell: Option<Tell>,
}

/// The commands for a control plane that runs.
#[derive(Subcommand, Debug)]
enum Tell {
    /// Change what it logs, until it stops
    LogLevel {
        /// error, warn, info, debug or trace
        level: String,
        #[command(flatten)]
        connect: Connect,
    },
}

/// A host name in lower case, as URLs of nodes have it, or an address.
fn reachable(text: &str) -> Result<String, String> {
    let name = text.to_lowercase();
    match model::id::is_hostname(&name) || name.parse::<IpAddr>().is_ok() {
        true => Ok(name),
        false => Err("it is no host name and no address; write it without a scheme or a port".to_owned()),
    }
}

/// A network, or an address alone.
fn network(text: &str) -> Result<IpNet, String> {
    let alone = text.parse::<IpAddr>().map(IpNet::from);
    alone.or_else(|_| text.parse()).map_err(|_| "it is no address and no network, as 10.0.0.0/24".to_owned())
}

/// How long a certificate may count.
fn certificate_validity(text: &str) -> Result<Duration, String> {
    let validity = Duration::from_secs(duration::parse(text)?.into());
    let (min, max) = (CertificateSettings::MIN_NODE_VALIDITY, CertificateSettings::MAX_NODE_VALIDITY);
    match (min..=max).contains(&validity) {
        true => Ok(validity),
        false => Err(format!("a certificate counts from {} to {}", short(min), short(max))),
    }
}

/// How long after the end of a certificate a key is enough.
fn recovery(text: &str) -> Result<CertificateRecovery, String> {
    match text {
        "off" => Ok(CertificateRecovery::Off),
        time => Ok(CertificateRecovery::Within(Duration::from_secs(duration::parse(time)?.into()))),
    }
}

/// A number within bounds.
fn within(bounds: Bounds) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(bounds.min)..=i64::from(bounds.max))
}

impl ServerArgs {
    /// How the control plane certifies.
    fn certificates(&self) -> CertificateSettings {
        CertificateSettings {
            node_validity: self.certificate_validity,
            recovery: self.certificate_recovery,
            ..CertificateSettings::default()
        }
    }

    /// What the control plane's ends of links go by.
    fn links(&self) -> StreamConfig {
        let settings = LinkSettings {
            window: self.link_window,
            pending_retries: self.link_pending_retries,
            keepalive_secs: self.link_keepalive,
            timeout_secs: self.link_timeout,
        };
        StreamConfig { settings, resyncs: self.resyncs }
    }
}

/// Why the control plane does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot start.
    #[error("the control plane cannot start")]
    Start(#[source] ServerStartError),
    /// Signals cannot be listened to.
    #[error("this process cannot listen to signals")]
    Signal(#[source] std::io::Error),
}

impl UserError for ServerError {
    fn hint(&self) -> Option<String> {
        match self {
            ServerError::Start(ServerStartError::Listen { .. }) => Some(
                "another control plane may run here; choose with --listen and --operator-listen".to_owned(),
            ),
            ServerError::Start(ServerStartError::Database { source: StoreError::InUse, .. }) => {
                Some("one control plane at a time may use a directory; choose with --data".to_owned())
            }
            ServerError::Start(ServerStartError::Found(FoundError::OtherName { founded, .. })) => {
                Some(format!(
                    "a fleet keeps its name: leave out --fleet to serve {founded}, or found another fleet in \
                     a directory of its own with --data"
                ))
            }
            ServerError::Start(ServerStartError::Database { source: StoreError::Corrupt(_), .. }) => {
                Some("restore the newest backup that `muster restore --verify` finds whole".to_owned())
            }
            ServerError::Start(ServerStartError::Database { source: StoreError::Full, .. }) => {
                Some("make room on that disk; nothing was lost".to_owned())
            }
            ServerError::Start(ServerStartError::Found(FoundError::RestoreUnfinished { .. })) => {
                Some("restore the backup again: muster restore FILE --data DIR --replace".to_owned())
            }
            ServerError::Start(ServerStartError::Found(FoundError::KeysMissing { .. })) => Some(
                "bring the keys back that lay beside it, or restore a backup: a fleet cannot be founded over it"
                    .to_owned(),
            ),
            ServerError::Start(ServerStartError::Found(FoundError::LinksMissing { .. })) => Some(
                "put that file back, from the newest backup or from where it was moved to; only where it is lost for \
                 good: remove enroll.json, and keys that were retired since count again"
                    .to_owned(),
            ),
            ServerError::Start(ServerStartError::Found(FoundError::ControlPlaneKey { .. })) => Some(
                "put that key back, from the newest backup or from where it was moved to; where it is lost: on another \
                 machine with the root key, let the fleet believe a new one with `muster key rotate control-plane --to \
                 FILE --drop-previous`"
                    .to_owned(),
            ),
            ServerError::Start(ServerStartError::Certificate { .. }) => {
                Some("a --name is a host name or an address, without a port".to_owned())
            }
            ServerError::Start(ServerStartError::Database { path, source: StoreError::ReadOnly }) => {
                Some(make_usable(path, io::ErrorKind::Other))
            }
            ServerError::Start(ServerStartError::Found(
                FoundError::Write { path, source }
                | FoundError::Read { path, source }
                | FoundError::Disk(SpoolError::Disk { path, source, .. }),
            )) => Some(make_usable(path, source.kind())),
            _ => None,
        }
    }
}

/// What to do where a file or directory of the control plane cannot be made, written or read: which folder it is about,
/// and the way out.
fn make_usable(path: &Path, why: io::ErrorKind) -> String {
    use io::ErrorKind::{
        AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory, PermissionDenied, QuotaExceeded,
        ReadOnlyFilesystem, StorageFull,
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // What is to be made lies in a folder that is there.
    let folder = path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(&path).display();
    let first = match why {
        StorageFull | QuotaExceeded => format!("make room on the disk that {folder} lies on"),
        ReadOnlyFilesystem => {
            format!("{folder} lies on a disk that can only be read: mount it so that it can be written")
        }
        PermissionDenied => format!("let this user write in {folder}, or be the user to whom it belongs"),
        AlreadyExists | IsADirectory | NotADirectory | DirectoryNotEmpty => {
            format!("something else lies where {} is to be: move it away", path.display())
        }
        _ => format!("see that this user can write in {folder}"),
    };
    format!("{first}; or choose another directory with --data")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    fleet: model::FleetId,
    posture: Posture,
    new: bool,
    data: PathBuf,
    node_urls: Vec<net::ServerUrl>,
    operator_url: net::ServerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<net::ServerUrl>,
}

/// Does the verb: serves until SIGINT or SIGTERM.
///
/// # Errors
/// When it cannot start.
pub async fn run(args: ServerArgs, screen: Screen) -> Result<Exit, Failure> {
    if let Some(Tell::LogLevel { level, connect }) = &args.tell {
        let set = connect.dial().await?.call(&api::SET_LOG_LEVEL, LogLevel { level: level.clone() }).await?;
        return Ok(screen.result(&set, || format!("the control plane logs {} and above now\n", set.level))?);
    }
    let names = if args.names.is_empty() { default_names() } else { args.names.clone() };
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
    let config = Config {
        dir: args.data.clone(),
        fleet: args.fleet.clone(),
        node_address: args.listen,
        operator_address: args.operator_listen,
        proxy_address: args.proxy_listen,
        names,
        connections: args.connections,
        balancers: Balancers::new(args.proxy_protocol_from.clone()),
        metrics_address: args.metrics,
        log: Some(LogControl::new(crate::logs::set)),
        links: args.links(),
        certificates: args.certificates(),
    };
    let running = server::start(config).await.map_err(ServerError::Start)?;
    let started = Started {
        fleet: running.fleet.clone(),
        posture: running.posture,
        new: running.new,
        data: args.data.clone(),
        node_urls: running.node_urls.clone(),
        operator_url: running.operator_url.clone(),
        proxy_url: running.proxy_url.clone(),
    };
    screen.result(&started, || banner(&started, args.names.is_empty(), args.operator_listen))?;
    net::notify::service_manager(ServiceState::Ready);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop(running).await;
    Ok(Exit::Ok)
}

async fn stop(running: RunningServer) {
    net::notify::service_manager(ServiceState::Stopping);
    tracing::info!("stopping: requests under way end, what waits is persisted");
    running.stop().await;
}

/// This machine's name, and the loopback for agents on it.
fn default_names() -> Vec<String> {
    let uname = rustix::system::uname();
    let own = uname.nodename().to_str().ok().map(str::to_lowercase);
    let own = own.filter(|name| model::id::is_hostname(name) && name != "localhost");
    own.into_iter().chain(["127.0.0.1".to_owned()]).collect()
}

fn banner(started: &Started, guessed: bool, operator_listen: SocketAddr) -> String {
    let Started { fleet, posture, data, .. } = started;
    let mut out = String::new();
    if started.new {
        out.push_str(&format!("founded fleet {fleet} in {}\n", data.display()));
        out.push_str(&made());
    } else {
        out.push_str(&format!("fleet {fleet} in {}\n", data.display()));
    }
    out.push_str(match posture {
        Posture::Lab => {
            "posture: lab (keys that sign intent lie beside the control plane; `muster help posture`)\n"
        }
        Posture::Sealed => "posture: sealed (the keys that sign intent are elsewhere)\n",
    });
    let urls: Vec<String> = started.node_urls.iter().map(ToString::to_string).collect();
    out.push_str(&format!("nodes call {}; operators call {}\n", urls.join(" or "), started.operator_url));
    if !operator_listen.ip().is_loopback() {
        out.push_str(&format!(
            "(operators are heard on {operator_listen}, from wherever that is reached; by default on this machine alone)\n"
        ));
    }
    if let Some(url) = &started.proxy_url {
        out.push_str(&format!("proxies call {url}\n"));
    }
    if guessed {
        out.push_str(
            "(tokens carry these names; choose with --name if hosts reach this machine by another)\n",
        );
    }
    if started.new {
        out.push_str(&next(data));
    }
    out
}

fn made() -> String {
    let files = [
        ("node-ca.pem, operator-ca.pem", "certificate authorities, with their keys"),
        ("root.key", "signs tokens and trust documents"),
        ("release.key", "signs releases"),
        ("trust.json", "whom the nodes believe"),
        ("operator.json", "your credentials (0600)"),
        ("enroll.json", "what minting a token needs besides root.key"),
        ("muster.db", "what happened"),
    ];
    let line = |(name, what): &(&str, &str)| format!("  {name:<30} {what}\n");
    files.iter().map(line).collect()
}

fn next(data: &Path) -> String {
    let here = [DATA_DIR, SERVICE_DATA_DIR].map(Path::new).contains(&data);
    let operator = if here { String::new() } else { format!(" --operator {}/operator.json", data.display()) };
    let dir = if here { String::new() } else { format!(" --data {}", data.display()) };
    format!(
        "\nnext, in another terminal:\n\
         \x20 muster check FLEET_DIR\n\
         \x20 muster publish{operator} --repo FLEET_DIR\n\
         \x20 muster token mint{dir} HOSTNAME        # then on that host: muster-agent join --token TOKEN\n\
         \x20 muster status{operator}\n"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// ENR-8: a directory that cannot be used is named, with what to do about it.
    #[test]
    fn a_directory_that_cannot_be_used_has_a_next_step() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().display().to_string();
        let found = |path: &str, kind: io::ErrorKind| {
            let (path, source) = (dir.path().join(path), io::Error::from(kind));
            let error = FoundError::Write { path, source };
            ServerError::Start(ServerStartError::Found(error)).hint().unwrap()
        };
        let data = |what: &str| format!("{what}; or choose another directory with --data");
        for (path, kind, first) in [
            // The folder itself cannot be made: the one that is there is to be named.
            ("srv/data", io::ErrorKind::PermissionDenied, format!("let this user write in {top}, or be the")),
            ("trust.json", io::ErrorKind::StorageFull, format!("make room on the disk that {top} lies on")),
            ("root.key", io::ErrorKind::ReadOnlyFilesystem, format!("{top} lies on a disk that can only be")),
            ("data", io::ErrorKind::NotADirectory, format!("something else lies where {top}/data is to be")),
            ("data", io::ErrorKind::Interrupted, data(&format!("see that this user can write in {top}"))),
        ] {
            let hint = found(path, kind);
            assert!(hint.starts_with(&first) && hint.ends_with(&data("")), "{hint}");
        }
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let disk = SpoolError::Disk { op: spool::DiskOp::Write, path: dir.path().join("root.key"), source };
        let hint = ServerError::Start(ServerStartError::Found(disk.into())).hint();
        assert!(hint.is_some_and(|hint| hint.starts_with("make room")));
    }
}
