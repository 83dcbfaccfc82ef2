//! `muster-agent proxy`, and the options of `join` that name a proxy (WIR-7).

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use net::ProxyUrl;
use net::proxy::{ParseProxyError, ProxySettings};
use zeroize::Zeroizing;

use super::join::nudged;
use super::{VerbFailure, show};
use crate::identity::Membership;
use crate::invocation::command;
use crate::join::JoinProxy;
use crate::machine::MachineOptions;
use crate::state::{StateDir, StateError};

/// What sets no proxy.
const NONE: &str = "none";
/// The longest file with a proxy's URL, in bytes.
const MAX_PROXY_FILE: u64 = 4096;

pub(super) const PROXY_AFTER: &str = "\
The agent asks the proxy for a tunnel (CONNECT) to each control plane; TLS goes through it end to end, so
the proxy sees names and bytes. Contents that `download` fetches go by the environment of the agent instead.
A daemon that runs takes the change up before its next check-in.

User and password belong into a file that only root can read: what is typed can be read in the list
of processes. They are kept in the state directory, and shown nowhere.

Examples:
  muster-agent proxy                              which one is set
  muster-agent proxy http://proxy.example:3128
  muster-agent proxy --file /root/proxy           a file with http://USER:PASSWORD@HOST:PORT
  muster-agent proxy none                         dial directly";

/// A proxy's URL as it was typed, which may hold a password.
#[derive(Clone)]
pub(super) struct TypedProxy(Zeroizing<String>);

impl FromStr for TypedProxy {
    type Err = Infallible;

    /// Judged later: what cannot be read is not to be printed.
    fn from_str(text: &str) -> Result<TypedProxy, Infallible> {
        Ok(TypedProxy(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for TypedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl TypedProxy {
    fn read(&self) -> Result<Option<Arc<ProxyUrl>>, ParseProxyError> {
        match self.0.trim() {
            NONE => Ok(None),
            url => url.parse().map(|proxy| Some(Arc::new(proxy))),
        }
    }
}

/// The proxy to join through.
#[derive(Debug, Args)]
pub(super) struct JoinProxyArgs {
    /// The HTTP proxy that leads to the control plane, or `none` [default: that of https_proxy, unless no_proxy names it]
    #[arg(long, value_name = "URL")]
    proxy: Option<TypedProxy>,
    /// A file with the proxy's URL, as with a user and password
    #[arg(long, value_name = "FILE", conflicts_with = "proxy")]
    proxy_file: Option<PathBuf>,
}

/// The proxy to set.
#[derive(Debug, Args)]
pub(super) struct SetProxyArgs {
    /// http://[USER:PASSWORD@]HOST[:PORT], or `none`; shows the one that is set when absent
    url: Option<TypedProxy>,
    /// A file with the URL
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    file: Option<PathBuf>,
}

/// Why a proxy is not set.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetProxyError {
    /// Its URL cannot be used.
    #[error("the proxy cannot be used")]
    Url(#[from] ParseProxyError),
    /// The file with its URL cannot be read.
    #[error("cannot read the proxy's URL in {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The membership cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
}

impl JoinProxyArgs {
    /// What `join` is to go by.
    pub(super) fn asked(self) -> Result<JoinProxy, SetProxyError> {
        Ok(match typed(self.proxy, self.proxy_file.as_deref())? {
            Some(typed) => JoinProxy::Chosen(typed.read()?),
            None => JoinProxy::Found(ProxySettings::from_environment()),
        })
    }
}

fn typed(typed: Option<TypedProxy>, file: Option<&Path>) -> Result<Option<TypedProxy>, SetProxyError> {
    let Some(path) = file else { return Ok(typed) };
    let mut text = Zeroizing::new(String::new());
    let read = File::open(path).and_then(|file| file.take(MAX_PROXY_FILE).read_to_string(&mut text));
    read.map_err(|source| SetProxyError::File { path: path.to_owned(), source })?;
    Ok(Some(TypedProxy(text)))
}

/// Shows the proxy, or sets it.
pub(super) fn proxy(
    options: &MachineOptions,
    asked: SetProxyArgs,
    json: bool,
) -> Result<ExitCode, VerbFailure> {
    let state = options.state_dir();
    let dir = StateDir::at(&state, spool::Disk::new());
    let not_joined = || StateError::NotJoined(state.clone());
    let Some(typed) = typed(asked.url, asked.file.as_deref())? else {
        return shown(dir.membership()?.ok_or_else(not_joined)?.proxy.as_deref(), json, "");
    };
    let proxy = typed.read().map_err(SetProxyError::from)?;
    // Before the turn, as there may be no directory to take one at.
    dir.membership()?.ok_or_else(not_joined)?;
    let written = dir.membership_turn()?;
    let member = written.membership()?.ok_or_else(not_joined)?;
    written.save(&Membership { proxy: proxy.clone(), ..member })?;
    drop(written);
    let next = match nudged(options) {
        true => format!("the daemon that runs here takes it up now: {}\n", command("status")),
        false => String::new(),
    };
    shown(proxy.as_deref(), json, &next)
}

fn shown(proxy: Option<&ProxyUrl>, json: bool, next: &str) -> Result<ExitCode, VerbFailure> {
    let url = proxy.map(ToString::to_string);
    let view = serde_json::json!({ "proxy": url });
    show(json, &view, || match &url {
        Some(url) => format!("the control plane is reached through {url}\n{next}"),
        None => format!("the control plane is dialled directly\n{next}"),
    })?;
    Ok(ExitCode::SUCCESS)
}
