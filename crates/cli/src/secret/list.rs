//! `muster secret list`: which secrets a fleet repo uses, and where they come from.

use serde::Serialize;

use super::recipients::Recipients;
use super::source::{SecretSettings, age_path};
use super::{SecretReach, reach_of};
use crate::check;
use crate::connect::Connect;
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
    /// Of those that can open it the ones that signed for their recipient key themselves.
    by_statement: usize,
    blocked: usize,
    /// Nodes whose statements count, and which the control plane could not be asked for.
    unasked: usize,
}

pub(super) async fn run(
    settings: &SecretSettings,
    connect: &Connect,
    screen: Screen,
) -> Result<Exit, Failure> {
    let fleet = check::fleet(&settings.repo)?;
    let needs = resolve::secrets::SecretNeeds::of(fleet.specialize());
    let reach = reach_of(&fleet, &needs, &Recipients::of(&fleet, &needs, connect).await);
    let count =
        |name: &str, of: fn(&SecretReach) -> &Vec<String>| reach.get(name).map_or(0, |reach| of(reach).len());
    let listed: Vec<ListedSecret> = needs
        .secrets
        .iter()
        .map(|(name, needed)| ListedSecret {
            name: name.clone(),
            source: source_of(settings, fleet.secret_sources(), name),
            modules: needed.modules.iter().cloned().collect(),
            open: count(name, |reach| &reach.open),
            by_statement: count(name, |reach| &reach.by_statement),
            blocked: count(name, |reach| &reach.blocked),
            unasked: count(name, |reach| &reach.unasked),
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
        let notes = [
            (secret.by_statement, " by what they signed"),
            (secret.blocked, " blocked"),
            (secret.unasked, " not known"),
        ];
        let notes = notes.into_iter().filter(|(count, _)| *count > 0);
        let notes: String = notes.map(|(count, what)| format!(", {count}{what}")).collect();
        format!(
            "{:<32} {source:<12} {} can open it{notes}   {}\n",
            secret.name,
            secret.open,
            secret.modules.join(", ")
        )
    };
    listed.iter().map(line).collect()
}
