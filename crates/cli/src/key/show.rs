//! `muster key show`: the chain of trust documents.

use model::Channel;
use serde::Serialize;
use server::api::authority::AuthorityUse;
use server::api::operation::Empty;
use server::api::operators::OperatorAuthorityView;
use server::api::{self, TrustView};
use server::trust_chain::VersionOrigin;
use trust::chain::SlotName;
use trust::{ChannelThreshold, Slots};

use super::operator_authority;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{Screen, plural};
use crate::table::table;

pub(super) async fn run(connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let operator = connect.dial().await?;
    let trust = operator.call(&api::TRUST, Empty {}).await?;
    let whole = KeysView { trust, operator_authority: operator_authority::view(&operator).await? };
    Ok(screen.result(&whole, || {
        let of_operators = whole.operator_authority.iter().map(operator_authority::lines);
        text(&whole.trust) + &of_operators.collect::<String>()
    })?)
}

/// All keys of a fleet, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeysView {
    #[serde(flatten)]
    trust: TrustView,
    /// Absent from an earlier control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator_authority: Option<OperatorAuthorityView>,
}

fn text(view: &TrustView) -> String {
    let rows = view.versions.iter().map(|version| {
        let document = &version.document;
        let how = match version.origin {
            VersionOrigin::Founded => "founded",
            VersionOrigin::Followed => "by the root before",
            VersionOrigin::BegunAnew => "anew: needs tokens",
        };
        let signed = document.created.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let [release, beacon, control_plane, authority, root] =
            SlotName::ALL.map(|name| name.of(document).map_or_else(|| "-".to_owned(), keys));
        let version = document.version.to_string();
        [version, signed, how.to_owned(), release, beacon, control_plane, authority, root]
    });
    let columns = ["VERSION", "SIGNED", "HOW", "RELEASE", "BEACON", "CONTROL PLANE", "CA", "ROOT"];
    let mut out = table(&columns, rows);
    if let Some(newest) = view.versions.last() {
        for (name, slots) in SlotName::ALL.iter().filter_map(|name| Some((name, name.of(&newest.document)?)))
        {
            out.push_str(&format!("{:<13} {}\n", name.as_str(), slots.current));
        }
    }
    if let Some(newest) = view.versions.last() {
        out.push_str(&format!("trust document {}, {}\n", newest.document.version, newest.digest));
        newest.document.thresholds.iter().for_each(|(channel, asks)| out.push_str(&threshold(channel, asks)));
    }
    out.push_str(&uptake(view));
    out.push('\n');
    out.extend(view.certificates.iter().flat_map(of_before));
    out
}

/// Which nodes have a certificate of a CA of before, and what is the matter with the one that counts; in lines.
pub(crate) fn of_before(certificates: &AuthorityUse) -> Vec<String> {
    let AuthorityUse { of_before, nodes, unusable, .. } = certificates;
    let mut lines = Vec::new();
    if *of_before > 0 {
        let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
        let more = if *of_before > names.len() { ", ..." } else { "" };
        let count = plural(*of_before, "node");
        lines.push(format!("{count} with a certificate of a CA of before: {}{more}\n", names.join(", ")));
    }
    lines.extend(
        unusable.iter().map(|why| {
            format!("nodes and operators do not believe this control plane's certificate: {why}\n")
        }),
    );
    lines
}

/// The keys of a slot in short.
fn keys(slots: &Slots) -> String {
    let mut text = slots.current.id();
    if let Some(previous) = &slots.previous {
        text.push_str(&format!(", previous {}", previous.id()));
    }
    if let Some(limit) = slots.reject_before {
        text.push_str(&format!(", rejects before {limit}"));
    }
    text
}

/// What a channel asks for, in lines.
pub(super) fn threshold(channel: &Channel, asks: &ChannelThreshold) -> String {
    let ChannelThreshold { signatures, signers } = asks;
    let lines: String = signers.iter().map(|key| format!("  {}  {key}\n", key.id())).collect();
    format!("channel {channel} asks for {signatures} of {}:\n{lines}", plural(signers.len(), "signer"))
}

/// Which versions nodes hold.
pub(super) fn uptake(view: &TrustView) -> String {
    let mut parts: Vec<String> = view
        .holding
        .iter()
        .rev()
        .map(|held| format!("{} on document {}", plural(held.nodes, "node"), held.version))
        .collect();
    if view.unheard > 0 {
        parts.push(format!("{} not heard of since the control plane's start", plural(view.unheard, "node")));
    }
    if parts.is_empty() { "no nodes".to_owned() } else { parts.join(", ") }
}
