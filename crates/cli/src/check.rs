//! `muster check`: every mistake of a fleet repo at once.

use std::path::{Path, PathBuf};

use clap::Args;
use lang::Diagnostics;
use resolve::{Fleet, IdleGroup, IdlePattern, Tree};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::folder::{FolderError, RepoFolder};
use crate::publish::PublishError;
use crate::screen::{Screen, plural};

const AFTER: &str = "\
Works offline. Ends with 1 when there are mistakes. A group that no node is in, and a pattern of
sync or delegations that matches no declared node, is no mistake, and is named as a warning.

Examples:
  muster check
  muster check fleet
  muster help E012          what a code means";

/// Arguments of `muster check`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct CheckArgs {
    /// The fleet repo
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// What is in a fleet repo that is right in every part.
#[derive(Serialize)]
struct Counted<'a> {
    name: &'a str,
    nodes: usize,
    patterns: usize,
    modules: usize,
    channels: usize,
    diagnostics: [(); 0],
    /// What is no mistake, and may be a slip of the pen.
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Mistakes<'a> {
    diagnostics: &'a Diagnostics,
}

/// A fleet repo as it was read: what it means, or what is wrong with it.
pub struct CheckedRepo {
    /// The files.
    pub tree: Tree,
    /// What they mean.
    pub fleet: Result<Fleet, Diagnostics>,
}

/// Reads and checks a folder.
///
/// # Errors
/// When it cannot be read; mistakes are no error here.
pub fn read(folder: &mut RepoFolder) -> Result<CheckedRepo, FolderError> {
    let files = folder.scan()?.into_iter().filter_map(|(path, bytes)| Some((path, bytes?)));
    let tree = Tree { files: files.collect() };
    let fleet = resolve::check(&tree);
    Ok(CheckedRepo { tree, fleet })
}

/// Reads a fleet repo that has to be right; its mistakes are reported.
///
/// # Errors
/// When it cannot be read, or has mistakes.
pub fn fleet(dir: &Path) -> Result<Fleet, Failure> {
    let checked = read(&mut RepoFolder::open(dir)?)?;
    Ok(checked.fleet.map_err(|diagnostics| PublishError::broken(&diagnostics, &checked.tree))?)
}

/// Does the verb.
///
/// # Errors
/// When the folder cannot be read.
pub fn run(args: &CheckArgs, screen: Screen) -> Result<Exit, Failure> {
    let checked = read(&mut RepoFolder::open(&args.dir)?)?;
    match &checked.fleet {
        Ok(fleet) => {
            let specialized = fleet.specialize();
            let counted = Counted {
                name: fleet.name(),
                nodes: specialized.exact.size(),
                patterns: specialized.patterns.len(),
                modules: specialized.modules.len(),
                channels: specialized.channels.len(),
                diagnostics: [],
                warnings: fleet
                    .idle_groups()
                    .iter()
                    .map(IdleGroup::to_string)
                    .chain(fleet.idle_patterns().iter().map(IdlePattern::to_string))
                    .collect(),
            };
            Ok(screen.result(&counted, || {
                let Counted { name, nodes, patterns, modules, channels, .. } = &counted;
                let counts = [
                    plural(*nodes, "named node"),
                    plural(*patterns, "pattern"),
                    plural(*modules, "module"),
                    plural(*channels, "channel"),
                ];
                let warnings: String =
                    counted.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
                format!("{warnings}fleet {name} is right: {}\n", counts.join(", "))
            })?)
        }
        Err(diagnostics) => {
            screen.result(&Mistakes { diagnostics }, || {
                let text = resolve::render(diagnostics, &checked.tree);
                let end = plural(diagnostics.len(), "mistake");
                format!("{text}\n{end}; `muster help CODE` explains a code\n")
            })?;
            Ok(Exit::Error)
        }
    }
}
