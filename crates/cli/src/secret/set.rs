//! `muster secret set` and `rotate`: a value, encrypted into the fleet repo.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use data_encoding::BASE64URL_NOPAD;
use lang::secret::is_secret_name;
use resolve::{SecretSource, SecretSourceKind};
use serde::Serialize;
use server::posture;
use spool::Disk;
use spool::atomic::{Existing, WholeFile};
use trust::RecipientKey;
use trust::sealing::{MAX_SECRET, SealingKey, age};
use zeroize::Zeroizing;

use super::source::{SecretSettings, SecretValue, age_path};
use super::{SecretVerbError, reach_by_repo};
use crate::check;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{Screen, aside, plural};

/// Arguments of `muster secret set`.
#[derive(Args, Debug)]
pub(super) struct SetArgs {
    /// The secret: team/name
    name: String,
}

/// Arguments of `muster secret rotate`.
#[derive(Args, Debug)]
pub(super) struct RotateSecretArgs {
    /// The secret: team/name
    name: String,
    /// A random value of 43 letters, digits, - and _, instead of standard input
    #[arg(long)]
    random: bool,
}

/// What was written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSecret {
    name: String,
    file: PathBuf,
    bytes: usize,
    recipients: usize,
    nodes: usize,
}

pub(super) fn set(args: &SetArgs, settings: &SecretSettings, screen: Screen) -> Result<Exit, Failure> {
    write(&args.name, settings, screen, |_| from_stdin())
}

pub(super) fn rotate(
    args: &RotateSecretArgs,
    settings: &SecretSettings,
    screen: Screen,
) -> Result<Exit, Failure> {
    write(&args.name, settings, screen, |path| {
        if !path.exists() {
            return Err(SecretVerbError::NotThere(args.name.clone()));
        }
        if args.random { random_value() } else { from_stdin() }
    })
}

fn write(
    name: &str,
    settings: &SecretSettings,
    screen: Screen,
    value: impl FnOnce(&Path) -> Result<SecretValue, SecretVerbError>,
) -> Result<Exit, Failure> {
    if !is_secret_name(name) {
        return Err(SecretVerbError::Name(name.to_owned()).into());
    }
    let fleet = check::fleet(&settings.repo)?;
    let (folder, declared) = folder(fleet.secret_sources(), name)?;
    let path = age_path(&settings.repo, folder, name);
    let value = value(&path)?;
    if value.is_empty() {
        return Err(SecretVerbError::Empty.into());
    }
    if value.len() > MAX_SECRET {
        return Err(SecretVerbError::TooLarge.into());
    }
    // Whoever can read the secret now has another identity: one that is made here could not.
    if declared.is_empty() && path.exists() && settings.identities().map_err(SecretVerbError::from)?.is_none()
    {
        return Err(SecretVerbError::NoIdentity(settings.identity.clone()).into());
    }
    let recipients = match declared {
        [] => vec![own_recipient(settings)?],
        declared => declared.to_vec(),
    };
    let seed = Zeroizing::new(posture::random().map_err(SecretVerbError::Random)?);
    let file = age::encrypt(&value, &recipients, &seed).map_err(SecretVerbError::Encrypt)?;
    if let Some(parent) = path.parent() {
        let made = fs::create_dir_all(parent);
        made.map_err(|source| SecretVerbError::Use { path: parent.to_owned(), source })?;
    }
    let whole = WholeFile { existing: Existing::Replace, ..WholeFile::new(&path, 0o644) };
    let written = whole.write(&Disk::new(), age::armor(&file).as_bytes());
    written.map_err(|source| SecretVerbError::Write { path: path.clone(), source })?;
    let reach = reach_by_repo(&fleet).remove(name).unwrap_or_default();
    let nodes = reach.open.len() + reach.blocked.len();
    let written = WrittenSecret {
        name: name.to_owned(),
        file: path,
        bytes: value.len(),
        recipients: recipients.len(),
        nodes,
    };
    Ok(screen.result(&written, || {
        let WrittenSecret { name, file, bytes, recipients, nodes } = &written;
        format!(
            "secret {name}: {bytes} bytes, encrypted for {} into {}\n{}; next: muster publish\n",
            plural(*recipients, "key"),
            file.display(),
            match nodes {
                0 if !reach.patterns.is_empty() => format!("nodes of {} use it", reach.patterns.join(", ")),
                0 => "no node uses it yet".to_owned(),
                nodes => format!("{} it", plural_uses(*nodes)),
            }
        )
    })?)
}

fn plural_uses(nodes: usize) -> String {
    format!("{} {}", plural(nodes, "named node"), if nodes == 1 { "uses" } else { "use" })
}

/// The folder of age files for a secret, and for whom they are.
fn folder<'s>(
    sources: &'s [SecretSource],
    name: &str,
) -> Result<(&'s str, &'s [RecipientKey]), SecretVerbError> {
    let own = sources.iter().filter(|source| name.starts_with(&source.prefix));
    let folder = own.filter_map(|source| match &source.kind {
        SecretSourceKind::Age { folder, recipients } => Some((folder.as_str(), recipients.as_slice())),
        SecretSourceKind::Command(_) | SecretSourceKind::Vault { .. } => None,
    });
    folder.into_iter().next().ok_or_else(|| SecretVerbError::NoFolder(name.to_owned()))
}

/// The identity beside the credentials; one is made where there is none.
fn own_recipient(settings: &SecretSettings) -> Result<RecipientKey, SecretVerbError> {
    if let Some(keys) = settings.identities()?
        && let Some(key) = keys.first()
    {
        return Ok(key.public());
    }
    let path = &settings.identity;
    let secret = Zeroizing::new(posture::random().map_err(SecretVerbError::Random)?);
    let key = SealingKey::from_secret(&secret).ok_or_else(|| SecretVerbError::Form(path.clone()))?;
    let file = WholeFile { existing: Existing::Keep, ..WholeFile::new(path, 0o600) };
    let written = file.write(&Disk::new(), key.to_file().as_bytes());
    written.map_err(|source| SecretVerbError::Write { path: path.clone(), source })?;
    aside(&format!(
        "made the age identity {}: whoever publishes needs it, and without it the repo's secrets are lost; keep a copy",
        path.display()
    ));
    Ok(key.public())
}

fn from_stdin() -> Result<SecretValue, SecretVerbError> {
    let mut value = Zeroizing::new(Vec::with_capacity(MAX_SECRET + 2));
    let read = io::stdin().lock().take(MAX_SECRET as u64 + 1).read_to_end(&mut value);
    read.map_err(SecretVerbError::ReadValue)?;
    Ok(value)
}

fn random_value() -> Result<SecretValue, SecretVerbError> {
    let bytes = Zeroizing::new(posture::random::<32>().map_err(SecretVerbError::Random)?);
    Ok(Zeroizing::new(BASE64URL_NOPAD.encode(bytes.as_slice()).into_bytes()))
}
