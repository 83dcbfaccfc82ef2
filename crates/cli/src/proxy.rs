//! `muster proxy`: certificates of proxies that end the TLS sessions of nodes (IDN-4).

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use model::Timestamp;
use net::issue::{self, IssueError};
use serde::Serialize;
use server::api::{self, IssueProxy};
use spool::{Disk, SpoolError};
use zeroize::Zeroizing;

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::screen::Screen;

const AFTER: &str = "\
Writes NAME.pem, the certificate with the CA's behind it, and ca.pem. It is the proxy's for both
sides: nodes believe it as the control plane's, the control plane (`muster server --proxy-listen`)
as the proxy's. It counts for 90 days; the same command again renews it. The private key is
NAME.key (0600), made here if it is not there and never sent; with --csr it stays where it is.

Examples:
  muster proxy issue control.example.com --out /etc/nginx/muster
  muster proxy issue control.example.com --name 203.0.113.7 --csr proxy.csr";

/// Arguments of `muster proxy`.
#[derive(Args, Debug)]
pub struct ProxyArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: ProxyVerb,
}

#[derive(Debug, Subcommand)]
enum ProxyVerb {
    /// Issue or renew the certificate of a proxy that ends TLS for nodes
    #[command(after_help = AFTER)]
    Issue(IssueArgs),
}

#[derive(Args, Debug)]
struct IssueArgs {
    /// The host name or address by which nodes reach the proxy
    name: String,
    /// Another one; may be given more than once
    #[arg(long = "name", value_name = "NAME")]
    others: Vec<String>,
    /// A certificate request (PEM) of the proxy's own key, ed25519 or ecdsa-p256
    #[arg(long, value_name = "FILE")]
    csr: Option<PathBuf>,
    /// Where the files are written
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

/// Why a proxy has no certificate.
#[derive(Debug, thiserror::Error)]
enum IssueProxyError {
    #[error("{0:?} is no host name and no address")]
    Name(String),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the key {} cannot be used", path.display())]
    Key { path: PathBuf, source: IssueError },
    #[error("others can read the private key {}", path.display())]
    Open { path: PathBuf },
    #[error("cannot write into {}", dir.display())]
    Write { dir: PathBuf, source: SpoolError },
}

impl UserError for IssueProxyError {
    fn hint(&self) -> Option<String> {
        match self {
            IssueProxyError::Key { .. } => Some(
                "it must be an ed25519 or ecdsa-p256 key in PKCS#8; move it away to have one made".to_owned(),
            ),
            IssueProxyError::Open { .. } => Some(
                "who read it can be the proxy: move it away to have another made, or chmod it to 600, or 640 \
                 with a group of the proxy's own"
                    .to_owned(),
            ),
            IssueProxyError::Write { .. } => Some("choose another directory with --out".to_owned()),
            IssueProxyError::Name(_) | IssueProxyError::Read { .. } => None,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IssuedView {
    certificate: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
    ca: PathBuf,
    not_after: Timestamp,
}

/// Does the verb.
///
/// # Errors
/// When a file cannot be read or written, or the control plane refuses.
pub async fn run(args: &ProxyArgs, screen: Screen) -> Result<Exit, Failure> {
    let ProxyVerb::Issue(IssueArgs { name, others, csr, out }) = &args.what;
    // It names files.
    if name.contains('/') {
        return Err(IssueProxyError::Name(name.clone()).into());
    }
    let operator = args.connect.dial().await?;
    let (csr_pem, key) = match csr {
        Some(path) => (read(path)?, None),
        None => {
            let path = out.join(format!("{name}.key"));
            (request(name, &path)?, Some(path))
        }
    };
    let names = std::iter::once(name).chain(others).cloned().collect();
    let issued = operator.call(&api::ISSUE_PROXY, IssueProxy { names, csr_pem }).await?;
    let certificate = out.join(format!("{name}.pem"));
    let chain = format!("{}{}", issued.cert_pem, issued.ca_pem);
    write(&certificate, chain.as_bytes(), 0o644)?;
    let ca = out.join("ca.pem");
    write(&ca, issued.ca_pem.as_bytes(), 0o644)?;
    let view = IssuedView { certificate, key, ca, not_after: issued.not_after };
    screen.result(&view, || show(&view, name))?;
    Ok(Exit::Ok)
}

/// The certificate request of the key at `path`, which is made when there is none.
fn request(name: &str, path: &Path) -> Result<String, IssueProxyError> {
    let unusable = |source| IssueProxyError::Key { path: path.to_owned(), source };
    if !path.exists() {
        write(path, issue::new_key().map_err(unusable)?.as_bytes(), 0o600)?;
    }
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o007 != 0 {
        return Err(IssueProxyError::Open { path: path.to_owned() });
    }
    issue::proxy_request(&Zeroizing::new(read(path)?), name).map_err(unusable)
}

fn read(path: &Path) -> Result<String, IssueProxyError> {
    std::fs::read_to_string(path).map_err(|source| IssueProxyError::Read { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), IssueProxyError> {
    let dir = || path.parent().unwrap_or(path).to_owned();
    let written = spool::atomic::write_file(&Disk::new(), path, bytes, mode);
    written.map_err(|source| IssueProxyError::Write { dir: dir(), source })
}

fn show(view: &IssuedView, name: &str) -> String {
    let mut out = format!("certificate  {}, until {}\n", view.certificate.display(), view.not_after);
    if let Some(key) = &view.key {
        out.push_str(&format!("key          {}\n", key.display()));
    }
    out.push_str(&format!("CA           {}\n", view.ca.display()));
    let url = format!("https://{name}:443");
    out.push_str(&format!(
        "next: reload the proxy; tokens for its hosts: muster token mint HOSTNAME --proxy {url} --fingerprint SHA256:...\n"
    ));
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{Permissions, set_permissions};

    use super::*;

    #[test]
    fn a_key_that_all_can_read_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proxy.key");
        request("proxy", &path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "as it is made");
        for (mode, is_refused) in [(0o600, false), (0o640, false), (0o644, true), (0o606, true)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match request("proxy", &path) {
                Err(IssueProxyError::Open { .. }) => assert!(is_refused, "{mode:o}"),
                other => assert!(other.is_ok() && !is_refused, "{mode:o}: {other:?}"),
            }
        }
    }
}
