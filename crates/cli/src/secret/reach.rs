//! `muster secret reach`: which nodes can open what.

use std::collections::BTreeMap;

use clap::Args;

use super::source::SecretSettings;
use super::{SecretReach, SecretVerbError, reach_of};
use crate::check;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::Screen;

/// Arguments of `muster secret reach`.
#[derive(Args, Debug)]
pub(super) struct ReachArgs {
    /// A secret, or a node [default: every secret]
    of: Option<String>,
}

pub(super) fn run(args: &ReachArgs, settings: &SecretSettings, screen: Screen) -> Result<Exit, Failure> {
    let fleet = check::fleet(&settings.repo)?;
    let mut reach = reach_of(&fleet);
    if let Some(of) = &args.of {
        let is_node = fleet.specialize().node(of).is_some();
        if !reach.contains_key(of) && !is_node {
            return Err(SecretVerbError::Unknown(of.clone()).into());
        }
        if !reach.contains_key(of) {
            reach.retain(|_, reach| reach.open.contains(of) || reach.blocked.contains(of));
            reach.values_mut().for_each(|reach| {
                reach.open.retain(|node| node == of);
                reach.blocked.retain(|node| node == of);
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
    for (name, SecretReach { open, blocked, patterns }) in reach {
        out += &format!("{name}\n");
        let rows = [("can open it", open), ("blocked: no recipient key", blocked), ("by pattern", patterns)];
        for (what, nodes) in rows.into_iter().filter(|(_, nodes)| !nodes.is_empty()) {
            out += &format!("  {what}: {}\n", nodes.join(", "));
        }
    }
    out
}
