//! `muster operator request` and `login`: the private key is made where it is used, and stays there.

use std::path::{Path, PathBuf};

use clap::Args;
use net::issue;
use serde::Serialize;
use server::Credentials;
use server::api::operation::Empty;
use server::api::operators::{CallerView, WHOAMI};
use server::posture;

use super::files::{self, OperatorFileError, SECRET};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::Screen;

#[derive(Args, Debug)]
pub(super) struct RequestArgs {
    /// The name of who asks
    name: String,
    /// Where NAME.key and NAME.csr are written
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct LoginArgs {
    /// What an admin sent, as `muster operator add` wrote it
    file: PathBuf,
    /// The key that was made with the request
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The credentials to write
    #[arg(long, value_name = "FILE", default_value = "operator.json")]
    out: PathBuf,
}

#[derive(Serialize)]
struct RequestView {
    key: PathBuf,
    csr: PathBuf,
}

#[derive(Serialize)]
struct LoginView {
    file: PathBuf,
    operator: CallerView,
}

pub(super) fn request(args: &RequestArgs, screen: Screen) -> Result<Exit, Failure> {
    let name = files::name(&args.name)?;
    let [key, csr] = ["key", "csr"].map(|kind| args.out.join(format!("{name}.{kind}")));
    files::absent(&key)?;
    let key_pem = issue::new_key().map_err(OperatorFileError::Key)?;
    let request = issue::proxy_request(&key_pem, name).map_err(OperatorFileError::Key)?;
    files::write(&key, key_pem.as_bytes(), SECRET)?;
    files::write(&csr, request.as_bytes(), 0o644)?;
    let view = RequestView { key, csr };
    Ok(screen.result(&view, || {
        let (key, csr) = (view.key.display(), view.csr.display());
        format!(
            "wrote {key}, which stays here, and {csr}\n\
             next, an admin with {csr}: muster operator add {name} --role ROLE --csr {csr}\n"
        )
    })?)
}

pub(super) async fn run(args: &LoginArgs, screen: Screen) -> Result<Exit, Failure> {
    files::absent(&args.out)?;
    let credentials = whole(&args.file, args.key.as_deref())?;
    // What opens nothing is not written.
    let operator = Operator::dial(&credentials).await?.call(&WHOAMI, Empty {}).await?;
    files::write_json(&args.out, &credentials)?;
    let view = LoginView { file: args.out.clone(), operator };
    Ok(screen.result(&view, || {
        let file = model::text::shell_word(&view.file.display().to_string()).into_owned();
        format!("{}wrote {file}\nnext: export MUSTER_OPERATOR={file}\n", super::whoami(&view.operator))
    })?)
}

/// The credentials of a file, with the key of another where they have none.
fn whole(file: &Path, key: Option<&Path>) -> Result<Credentials, OperatorFileError> {
    let read = posture::read_json::<Credentials>(file);
    let mut credentials =
        read.map_err(|source| OperatorFileError::Malformed { path: file.to_owned(), source })?;
    if credentials.token.is_none() && credentials.key_pem.is_empty() {
        let key = key.ok_or_else(|| OperatorFileError::KeyMissing(file.to_owned()))?;
        credentials.key_pem = files::read(key)?.to_string();
    }
    Ok(credentials)
}
