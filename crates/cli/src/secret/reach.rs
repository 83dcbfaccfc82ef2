//! `muster secret reach`: which nodes can open what.

use std::collections::BTreeMap;

use clap::Args;
use resolve::secrets::SecretNeeds;

use super::recipients::Recipients;
use super::source::SecretSettings;
use super::{SecretReach, SecretVerbError, reach_of};
use crate::check;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::Screen;

/// Arguments of `muster secret reach`.
#[derive(Args, Debug)]
pub(super) struct ReachArgs {
    /// A secret, or a node [default: every secret]
    of: Option<String>,
}

pub(super) async fn run(
    args: &ReachArgs,
    settings: &SecretSettings,
    connect: &Connect,
    screen: Screen,
) -> Result<Exit, Failure> {
    let fleet = check::fleet(&settings.repo)?;
    let needs = SecretNeeds::of(fleet.specialize());
    let mut reach = reach_of(&fleet, &needs, &Recipients::of(&fleet, &needs, connect).await);
    if let Some(of) = &args.of {
        let is_node = fleet.specialize().node(of).is_some();
        if !reach.contains_key(of) && !is_node {
            return Err(SecretVerbError::Unknown(of.clone()).into());
        }
        if !reach.contains_key(of) {
            reach.retain(|_, reach| reach.names(of));
            reach.values_mut().for_each(|reach| {
                reach.nodes_mut().into_iter().for_each(|nodes| nodes.retain(|node| node == of));
                reach.patterns.clear();
            });
        } else {
            reach.retain(|name, _| name == of);
        }
    }
    Ok(screen.result(&reach, || text(&reach))?)
}

fn text(reach: &BTreeMap<String, SecretReach>) -> String {
    if reach.is_empty() {
        return "no secret\n".to_owned();
    }
    let mut out = String::new();
    for (name, SecretReach { open, by_statement, blocked, unasked, patterns }) in reach {
        out += &format!("{name}\n");
        let named: Vec<String> = open.iter().filter(|node| !by_statement.contains(node)).cloned().collect();
        let rows = [
            ("can open it", &named),
            ("can open it, by what it signed with the key that nodes.yaml declares", by_statement),
            ("blocked: no recipient key", blocked),
            ("not known: nodes.yaml declares its key, and the control plane cannot be asked", unasked),
            ("by pattern", patterns),
        ];
        for (what, nodes) in rows.into_iter().filter(|(_, nodes)| !nodes.is_empty()) {
            out += &format!("  {what}: {}\n", nodes.join(", "));
        }
    }
    out
}
