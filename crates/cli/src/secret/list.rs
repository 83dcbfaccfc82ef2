//! `muster secret list`: which secrets a fleet repo uses, and where they come from.

use serde::Serialize;

use super::reach_of;
use super::source::{SecretSettings, age_path};
use crate::check;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::Screen;
use resolve::{SecretSource, SecretSourceKind};

/// A secret as a list names it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedSecret {
    name: String,
    /// The source that is asked first and may have it; absent where none may.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    modules: Vec<String>,
    open: usize,
    blocked: usize,
}

pub(super) fn run(settings: &SecretSettings, screen: Screen) -> Result<Exit, Failure> {
    let fleet = check::fleet(&settings.repo)?;
    let needs = resolve::secrets::SecretNeeds::of(fleet.specialize());
    let reach = reach_of(&fleet);
    let listed: Vec<ListedSecret> = needs
        .secrets
        .iter()
        .map(|(name, needed)| ListedSecret {
            name: name.clone(),
            source: source_of(settings, fleet.secret_sources(), name),
            modules: needed.modules.iter().cloned().collect(),
            open: reach.get(name).map_or(0, |reach| reach.open.len()),
            blocked: reach.get(name).map_or(0, |reach| reach.blocked.len()),
        })
        .collect();
    Ok(screen.result(&listed, || text(&listed))?)
}

/// The first source that has it, as far as that is known without asking anybody.
fn source_of(settings: &SecretSettings, sources: &[SecretSource], name: &str) -> Option<String> {
    let own = || sources.iter().filter(|source| name.starts_with(&source.prefix));
    let found = own().find(|source| match &source.kind {
        SecretSourceKind::Age { folder, .. } => age_path(&settings.repo, folder, name).exists(),
        SecretSourceKind::Command(_) | SecretSourceKind::Vault { .. } => true,
    });
    found.map(|source| source.name.clone())
}

fn text(listed: &[ListedSecret]) -> String {
    if listed.is_empty() {
        return "the fleet repo uses no secret\n".to_owned();
    }
    let line = |secret: &ListedSecret| {
        let source = secret.source.as_deref().unwrap_or("in NO source");
        let blocked =
            if secret.blocked > 0 { format!(", {} blocked", secret.blocked) } else { String::new() };
        format!(
            "{:<32} {source:<12} {} can open it{blocked}   {}\n",
            secret.name,
            secret.open,
            secret.modules.join(", ")
        )
    };
    listed.iter().map(line).collect()
}
