//! `muster node replace`: the token with which a reinstalled host returns under its name (IDN-10).

use std::path::{Path, PathBuf};

use clap::Args;
use server::api;
use server::posture::{ENROLL, ROOT_KEY};

use crate::connect::Connect;
use crate::credentials::MintFiles;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::{Screen, aside};
use crate::secret;
use crate::token::{self, MintOptions};

const AFTER: &str = "\
A host that was reinstalled has another key, and its name belongs to the node that it was. The token
names that node: as the host joins, the node is removed, and its name is given to the new key in the
same transaction. Until then the node stays as it is.

Examples:
  muster node replace web-1.example.com
  ssh web-1 muster-agent join --token \"$(muster node replace web-1.example.com)\"
  muster node replace web-1.example.com --repo fleet && muster publish --repo fleet";

/// Arguments of `muster node replace`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(super) struct ReplaceArgs {
    /// Hostname or id of the node that is there now
    node: String,
    #[command(flatten)]
    options: MintOptions,
    /// The root key [default: root.key beside the operator's credentials]
    #[arg(long, value_name = "FILE")]
    root_key: Option<PathBuf>,
    /// The control plane's enroll.json [default: beside the operator's credentials]
    #[arg(long, value_name = "FILE")]
    enroll: Option<PathBuf>,
}

pub(super) async fn run(
    args: &ReplaceArgs,
    connect: &Connect,
    operator: &Operator,
    screen: Screen,
) -> Result<Exit, Failure> {
    let (path, _) = connect.credentials()?;
    let beside = |named: &Option<PathBuf>, name: &str| -> PathBuf {
        let dir = path.parent().unwrap_or(Path::new("."));
        named.clone().unwrap_or_else(|| dir.join(name))
    };
    let files =
        MintFiles { root_key: beside(&args.root_key, ROOT_KEY), enroll: beside(&args.enroll, ENROLL) };
    let node = operator.call(&api::NODE, args.node.as_str()).await?;
    let minted = token::minted(&node.hostname, Some(node.id), &args.options, &files, screen)?;
    minted.remind(connect).await;
    // The host that returns has another key, for which nothing is sealed yet.
    let hostname = node.hostname.as_str();
    if let Some(repo) = args.options.repo() {
        if secret::goes_by_statement(repo, hostname) {
            aside(&format!(
                "warning: nodes.yaml declares the key of the host that is {hostname} now: change `key` there, and publish. Until \
                 then no other key joins under that name, and secrets are sealed for what that host signed for"
            ));
        }
        secret::drop_recipient(repo, hostname)?.phrase(hostname).iter().for_each(|phrase| aside(phrase));
    }
    if !screen.is_json() {
        aside(&format!(
            "(where it needs secrets, once it joined: muster secret trust {hostname} KEY, with what `muster-agent identity` \
             prints there, and publish)"
        ));
    }
    Ok(Exit::Ok)
}
