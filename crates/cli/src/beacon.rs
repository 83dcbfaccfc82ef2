//! `muster beacon`: sign that what is published still counts.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::{Channel, Timestamp};
use server::Credentials;
use server::api::operation::Empty;
use server::api::{self, Beacons};
use tokio::signal::unix::{SignalKind, signal};
use trust::freshness::Freshness;
use trust::{Beacon, Slots, signed};

use crate::clock::{now, short};
use crate::connect::Connect;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::header::{self, HeaderError};
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{Screen, aside};
use crate::server::ServerError;
use crate::signer::{self, FleetSigner, SignError};

/// How long a resident signer waits before it tries again what did not reach the control plane.
const RETRY: Duration = Duration::from_secs(60);

const AFTER: &str = "\
A channel's `freshness` says for how long a signature counts. Past it nodes go on converging on
what they hold, and take neither actions nor objects from the control plane. A publish is a
signature, too; a beacon is one without a new release.

Examples:
  muster beacon                        once, by cron or a timer
  muster beacon --every 1d             stay, and sign each day
  muster beacon --key beacon.key       with a key that can sign beacons and nothing else";

/// Arguments of `muster beacon`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct BeaconArgs {
    #[command(flatten)]
    connect: Connect,
    /// Only for this channel [default: for each]
    #[arg(long, value_name = "NAME")]
    channel: Option<Channel>,
    /// Stay, and sign again after this time; a quarter of the shortest freshness is a good one
    #[arg(long, value_name = "TIME", value_parser = every)]
    every: Option<Duration>,
    /// The key that signs [default: beacon.key, else release.key, beside the credentials]
    #[arg(long, value_name = "FILE", env = RELEASE_KEY_ENV)]
    key: Option<PathBuf>,
}

fn every(text: &str) -> Result<Duration, String> {
    match catalog::duration::parse(text) {
        Ok(0) => Err("it is at least 1s".to_owned()),
        Ok(secs) => Ok(Duration::from_secs(secs.into())),
        Err(error) => Err(error),
    }
}

/// Why no beacon was signed.
#[derive(Debug, thiserror::Error)]
pub enum BeaconError {
    /// The control plane did not do what it was asked.
    #[error("the control plane could not be asked")]
    Call(#[from] OperatorCallError),
    /// The fleet's nodes believe no beacon of this key.
    #[error("the fleet's nodes believe no beacon of the key {0}")]
    OtherKey(String),
    /// A header of the control plane is signed by nobody known.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Nothing is published in the channel, or in any.
    #[error("nothing is published{}", .0.as_ref().map(|channel| format!(" in channel {channel}")).unwrap_or_default())]
    NothingPublished(Option<Channel>),
    /// A document cannot be signed.
    #[error("the beacon cannot be signed")]
    Sign(#[source] SignError),
}

impl UserError for BeaconError {
    fn exit(&self) -> Exit {
        match self {
            BeaconError::OtherKey(_) => Exit::Refused,
            BeaconError::Call(error) => error.exit(),
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            BeaconError::Call(error) => error.hint(),
            BeaconError::OtherKey(_) => Some(
                "sign with this fleet's beacon key or release key: --key FILE or MUSTER_RELEASE_KEY"
                    .to_owned(),
            ),
            BeaconError::NothingPublished(_) => Some("`muster status` shows the channels".to_owned()),
            BeaconError::Sign(error) => error.hint(),
            BeaconError::Header(_) => None,
        }
    }
}

/// Signs beacons for a fleet.
pub struct BeaconSigner {
    /// Where the control plane is.
    pub credentials: Credentials,
    /// The key that signs.
    pub key: FleetSigner,
    /// The channel that is meant; each, when none is named.
    pub channel: Option<Channel>,
}

/// Does the verb.
///
/// # Errors
/// When the key is not the fleet's, nothing is published, or the control plane refuses. A resident signer goes on
/// after the first time, whatever happens.
pub async fn run(args: &BeaconArgs, screen: Screen) -> Result<Exit, Failure> {
    let (path, credentials) = args.connect.credentials()?;
    let key = credentials::beacon_key(args.key.as_deref(), &path)?;
    let signer = BeaconSigner { credentials, key, channel: args.channel.clone() };
    let Some(every) = args.every else { return once(&signer, None, screen).await };
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
    let mut done = once(&signer, Some(every), screen).await;
    if done.as_ref().is_err_and(|failure| failure.exit() != Exit::Unreachable) {
        return done;
    }
    loop {
        let wait = if done.is_ok() { every } else { every.min(RETRY) };
        if let Err(failure) = done {
            aside(failure.text().trim_end());
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = terminate.recv() => return Ok(Exit::Ok),
            _ = interrupt.recv() => return Ok(Exit::Ok),
        }
        done = once(&signer, None, screen).await;
    }
}

async fn once(signer: &BeaconSigner, every: Option<Duration>, screen: Screen) -> Result<Exit, Failure> {
    let signed = signer.sign(now()).await?;
    for (beacon, freshness) in &signed {
        let warns = freshness.warns_at().since(freshness.signed_at);
        if every.is_some_and(|every| every > warns) {
            aside(&format!("channel {} wants a signature each {}", beacon.channel, short(warns)));
        }
    }
    let beacons: Vec<&Beacon> = signed.iter().map(|(beacon, _)| beacon).collect();
    Ok(screen.result(&beacons, || {
        let line = |(beacon, freshness): &(Beacon, Freshness)| {
            let left = short(freshness.ends_at().since(beacon.at));
            format!("channel {}: release {} still counts, for {left}\n", beacon.channel, beacon.seq)
        };
        signed.iter().map(line).collect()
    })?)
}

impl BeaconSigner {
    /// Signs and publishes a beacon for each channel that is meant; gives them with how fresh each is then.
    ///
    /// # Errors
    /// [`BeaconError`].
    pub async fn sign(&self, at: Timestamp) -> Result<Vec<(Beacon, Freshness)>, BeaconError> {
        let operator = Operator::dial(&self.credentials).await?;
        let head = operator.call(&api::HEAD, Empty {}).await?;
        let slots = head.trust.beacon.iter().chain([&head.trust.release]);
        if !slots.flat_map(Slots::keys).any(|known| *known == self.key.public()) {
            return Err(BeaconError::OtherKey(self.key.public().id()));
        }
        let meant = |channel: &&Channel| self.channel.as_ref().is_none_or(|meant| meant == *channel);
        let mut signed = Vec::new();
        for channel in head.headers.keys().filter(meant) {
            let document = &head.headers[channel];
            let header = header::verify(channel, document, &head.trust)?;
            let (digest, seq) = (signed::digest(document), header.seq);
            let beacon =
                Beacon { fleet: header.fleet.clone(), channel: channel.clone(), seq, header: digest, at };
            let freshness = Freshness::of(&header, Some(&beacon));
            signed.push((beacon, freshness));
        }
        if signed.is_empty() {
            return Err(BeaconError::NothingPublished(self.channel.clone()));
        }
        let beacons: Result<Vec<_>, _> =
            signed.iter().map(|(beacon, _)| signer::sign(beacon, &[&self.key])).collect();
        operator.call(&api::ADD_BEACONS, Beacons { beacons: beacons.map_err(BeaconError::Sign)? }).await?;
        Ok(signed)
    }
}
