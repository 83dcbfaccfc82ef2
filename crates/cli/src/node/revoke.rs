//! `muster node revoke`: a host is out (IDN-6). Declared in the fleet repo, signed here, and in force at once.

use std::path::PathBuf;

use clap::Args;
use model::id::ParseIdError;
use model::{Hostname, Timestamp};
use serde::Serialize;
use server::api;
use server::api::operation::Empty;
use wire::Code;

use crate::clock::now;
use crate::connect::Connect;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::lists::{ListSigner, Undeclared, declare, named};
use crate::next_step::muster;
use crate::operator::Operator;
use crate::screen::{Screen, aside, plural};
use crate::secret;

const AFTER: &str = "\
Writes the host and the time into revocations.yaml of the fleet repo, signs the whole set with the
release key, and publishes it: from then on the control plane refuses what was issued for the host
before, in TLS and in each request, cuts its connections and streams, and gives nothing to it. Its
recipient key goes out of recipients.yaml: secrets are sealed for it no more from the next publish on.
The host itself keeps what it holds. To let it in again, mint a token afterwards and join.

Examples:
  muster node revoke web-1.example.com --repo fleet
  muster node revoke web-1.example.com --repo fleet --why 'stolen from the rack' --yes";

/// Arguments of `muster node revoke`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(super) struct RevokeArgs {
    /// Hostname or id; a host that is not enrolled may be revoked beforehand
    node: String,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// The key that signs releases [default: release.key beside the credentials]
    #[arg(long, value_name = "FILE", env = RELEASE_KEY_ENV)]
    key: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// The name is no hostname, and no node has it as its id.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is no node and cannot be a hostname")]
struct NoHost {
    name: String,
    #[source]
    source: ParseIdError,
}

impl UserError for NoHost {
    fn hint(&self) -> Option<String> {
        Some("`muster node list` shows all".to_owned())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevokedView {
    hostname: Hostname,
    not_before: Timestamp,
    /// Enrolled nodes that are cut off by it.
    cut: Vec<Hostname>,
}

pub(super) async fn run(
    args: &RevokeArgs,
    connect: &Connect,
    operator: &Operator,
    screen: Screen,
) -> Result<Exit, Failure> {
    let (path, _) = connect.credentials()?;
    let key = credentials::release_key(args.key.as_deref(), &path)?.key;
    let (hostname, is_enrolled) = match operator.call(&api::NODE, args.node.as_str()).await {
        Ok(node) => (node.hostname, true),
        Err(error) if error.is(Code::NotFound) => {
            let unread = |source| NoHost { name: args.node.clone(), source };
            (args.node.parse().map_err(unread)?, false)
        }
        Err(error) => return Err(error.into()),
    };
    let what = match is_enrolled {
        true => format!("{hostname} will be cut off: what was issued for it until now counts no more"),
        false => {
            format!("{hostname} is not enrolled; tokens that were minted for it until now count no more")
        }
    };
    screen.confirm(&what, args.yes)?;
    let not_before = now();
    let declared = declare::revocation(&args.repo, &hostname, not_before, args.why.as_deref())?;
    let trust = operator.call(&api::HEAD, Empty {}).await?.trust;
    let signer = ListSigner { operator, trust: &trust, key: Some(&key) };
    let plan = signer.plan(None, Some(&declared), Undeclared::Kept, now()).await?;
    if !plan.undeclared.is_empty() {
        aside(&format!(
            "warning: revoked and not declared in {}: {}; they stay revoked until the next {}",
            args.repo.display(),
            named(&plan.undeclared),
            muster("publish")
        ));
    }
    let added = signer.publish(&plan).await?;
    if is_enrolled && !added.cut.contains(&hostname) && added.count <= added.cut.len() {
        aside(&format!(
            "warning: {hostname} was not cut off: by the control plane's clock it joined after {not_before}; is this \
             machine's clock right?"
        ));
    }
    if !is_enrolled {
        aside(&format!(
            "note: no node is called {hostname}; is the name right? {} shows all",
            muster("node list")
        ));
    }
    // It is out by now, whatever becomes of this.
    match secret::drop_recipient(&args.repo, hostname.as_str()) {
        Ok(dropped) => dropped.phrase(hostname.as_str()).iter().for_each(|phrase| aside(phrase)),
        Err(error) => aside(&format!(
            "warning: whether secrets are still sealed for {hostname} is not known, as the fleet repo cannot be read\n{}",
            error.text().trim_end()
        )),
    }
    let view = RevokedView { hostname, not_before, cut: added.cut };
    Ok(screen.result(&view, || {
        let count = plural(added.count, "node");
        format!("{} is revoked from {not_before} on; {count} cut off\n", view.hostname)
    })?)
}
