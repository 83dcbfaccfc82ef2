//! `muster operator add`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use model::Timestamp;
use net::issue;
use serde::Serialize;
use server::Credentials;
use server::api::operators::{ADD_OPERATOR, AddOperator, CredentialRequest, IssuedCredential, OperatorView};
use store::OperatorRole;
use zeroize::Zeroizing;

use super::files::{self, OperatorFileError};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::operator::Operator;
use crate::screen::Screen;

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// The name: a-z, 0-9, `.`, `-`, `_` and `@`
    name: String,
    /// What the operator may do
    #[arg(long, value_enum)]
    role: RoleName,
    /// Only these nodes: a selector of hostnames, groups and labels, without `where:` [default: the whole
    /// fleet]
    #[arg(long, value_name = "SELECTOR")]
    nodes: Option<String>,
    /// The request of a key that lies elsewhere, as `muster operator request` made it [default: make the key
    /// here, and write it into the file]
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    csr: Option<PathBuf>,
    /// A token instead of a certificate: for programs
    #[arg(long)]
    token: bool,
    /// How long the token counts
    #[arg(long, value_name = "TIME", default_value = "90d", requires = "token")]
    valid: String,
    /// The file to write; it is not shown again [default: NAME.json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A role on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    /// Sees
    Viewer,
    /// Has nodes run, changes objects and tasks, publishes
    Operator,
    /// Says who belongs to the fleet and who operates it
    Admin,
}

impl From<RoleName> for OperatorRole {
    fn from(role: RoleName) -> OperatorRole {
        match role {
            RoleName::Viewer => OperatorRole::Viewer,
            RoleName::Operator => OperatorRole::Operator,
            RoleName::Admin => OperatorRole::Admin,
        }
    }
}

/// The time cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--valid: {0}")]
struct ValidError(String);

impl UserError for ValidError {}

/// What was written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AddedView {
    operator: OperatorView,
    file: PathBuf,
    expires: Timestamp,
}

pub(super) async fn run(args: &AddArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let name = files::name(&args.name)?;
    let file = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.json")));
    files::absent(&file)?;
    let (_, own) = connect.credentials()?;
    let mut key = Zeroizing::new(String::new());
    let credential = match (&args.csr, args.token) {
        (_, true) => {
            let secs = catalog::duration::parse(&args.valid).map_err(ValidError)?;
            CredentialRequest::Token { valid_secs: secs.into() }
        }
        (Some(csr), false) => CredentialRequest::Certificate { csr_pem: files::read(csr)?.to_string() },
        (None, false) => {
            key = issue::new_key().map_err(OperatorFileError::Key)?;
            let csr_pem = issue::proxy_request(&key, name).map_err(OperatorFileError::Key)?;
            CredentialRequest::Certificate { csr_pem }
        }
    };
    let asked =
        AddOperator { name: name.to_owned(), role: args.role.into(), nodes: args.nodes.clone(), credential };
    let added = Operator::dial(&own).await?.call(&ADD_OPERATOR, asked).await?;
    let (cert_pem, token) = match added.issued {
        IssuedCredential::Certificate { cert_pem } => (cert_pem, None),
        IssuedCredential::Token { token } => (String::new(), Some(token)),
    };
    let is_whole = token.is_some() || !key.is_empty();
    let (key_pem, trust) = (key.to_string(), own.trust);
    let credentials =
        Credentials { url: own.url, ca_pem: own.ca_pem, cert_pem, key_pem, token, trust, file: None };
    files::write_json(&file, &credentials)?;
    let view = AddedView { operator: added.operator, file, expires: added.expires };
    Ok(screen.result(&view, || show(&view, is_whole))?)
}

fn show(view: &AddedView, is_whole: bool) -> String {
    let AddedView { operator, file, expires } = view;
    let of = operator.nodes.as_deref().unwrap_or("the whole fleet");
    let file = model::text::shell_word(&file.display().to_string()).into_owned();
    let next = match is_whole {
        true => format!(
            "it is a secret, and is not shown again; move it to {}'s machine\nnext: muster status --operator {file}\n",
            operator.name
        ),
        false => format!(
            "nothing in it is secret\nnext, where the key is: muster operator login {file} --key NAME.key\n"
        ),
    };
    format!("{} is {} of {of}, until {expires}\nwrote {file}\n{next}", operator.name, operator.role)
}
