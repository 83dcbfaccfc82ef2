//! `muster key threshold`: the next version of the trust document, in which a channel asks for several signers.

use std::path::Path;

use model::Channel;
use serde::Serialize;
use server::api::operation::Empty;
use server::api::{self, TrustView};
use trust::chain::{self, ChainHead};
use trust::{ChannelThreshold, PublicKey};

use super::rotate::KeyRotator;
use super::show::{self, uptake};
use super::{FleetKeyError, ThresholdArgs};
use crate::clock::now;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::screen::{Screen, aside};
use crate::signer;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThresholdView<'a> {
    version: u64,
    channel: &'a Channel,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<&'a ChannelThreshold>,
    trust: TrustView,
    next: Vec<String>,
}

pub(super) async fn run(args: &ThresholdArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let rotator = KeyRotator::of(connect).await?;
    let head = rotator.newest().await?;
    let root = rotator.root_key(args.root_key.as_deref(), &head)?;
    let asked = asked(args, &head)?;
    let next = chain::next_threshold(&head, &args.channel, asked, now()).map_err(FleetKeyError::Next)?;
    let published = rotator.operator.call(&api::HEAD, Empty {}).await?;
    if !published.headers.contains_key(&args.channel) {
        aside(&format!("warning: nothing is published in channel {}", args.channel));
    }
    // Others may have one that counts no more; those were so before.
    let header = published.headers.get(&args.channel);
    let counts_no_more = header.is_some_and(|header| next.header(header).is_err());
    rotator.add(&next, &root).await?;
    let threshold = next.thresholds.get(&args.channel);
    let mut then = Vec::new();
    if counts_no_more {
        let keys = " --key FILE".repeat(threshold.map_or(1, |threshold| threshold.signatures as usize));
        then.push(format!(
            "sign what channel {} points to anew, as hosts that join get nothing until then: {}{keys}",
            args.channel,
            muster("publish")
        ));
    }
    let view = ThresholdView {
        version: next.version,
        channel: &args.channel,
        threshold,
        trust: rotator.trust().await?,
        next: then,
    };
    Ok(screen.result(&view, || text(&view))?)
}

/// What the channel is to ask for; `None` for a release key alone.
fn asked(args: &ThresholdArgs, head: &ChainHead) -> Result<Option<ChannelThreshold>, FleetKeyError> {
    let Some(signatures) = args.signatures else { return Ok(None) };
    let signers = match args.signers.as_slice() {
        [] => {
            let before = head.document.thresholds.get(&args.channel);
            before.ok_or_else(|| FleetKeyError::NoSigners(args.channel.clone()))?.signers.clone()
        }
        named => named.iter().map(|name| signer_of(name)).collect::<Result<_, _>>()?,
    };
    Ok(Some(ChannelThreshold { signatures, signers }))
}

fn signer_of(named: &str) -> Result<PublicKey, FleetKeyError> {
    match named.parse() {
        Ok(key) => Ok(key),
        Err(_) => Ok(signer::public(Path::new(named))?),
    }
}

fn text(view: &ThresholdView<'_>) -> String {
    let asks = match view.threshold {
        Some(threshold) => show::threshold(view.channel, threshold),
        None => format!("channel {} asks for a release key alone\n", view.channel),
    };
    let then: String = view.next.iter().map(|next| format!("next: {next}\n")).collect();
    format!(
        "trust document {}: {asks}{}; they take it up at their next contact\n{then}",
        view.version,
        uptake(&view.trust)
    )
}
