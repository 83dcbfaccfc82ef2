//! `muster beacon`: sign that what is published still counts.
//!
//! It signs for the newest release of each channel, and for an earlier one only by the number that an operator gives: a
//! control plane that was broken into could else have a release kept fresh from which a newer one withdrew something.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use clap::Args;
use model::exchange::Signed;
use model::{Channel, Digest, Timestamp};
use server::Credentials;
use server::api::operation::Empty;
use server::api::{self, Beacons};
use tokio::signal::unix::{SignalKind, signal};
use trust::freshness::Freshness;
use trust::{Beacon, Header, Slots, TrustDocument, signed};
use wire::Code;

use crate::clock::{now, short};
use crate::connect::Connect;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::header::{self, HeaderError};
use crate::operator::{Operator, OperatorCallError};
use crate::release;
use crate::screen::{Screen, aside};
use crate::server::ServerError;
use crate::signer::{self, FleetSigner, SignError};

/// How long a resident signer waits before it tries again what did not reach the control plane.
const RETRY: Duration = Duration::from_secs(60);

const AFTER: &str = "\
A channel's `freshness` says for how long a signature counts. Past it nodes go on converging on
what they hold, and take neither actions nor objects from the control plane. A publish is a
signature, too; a beacon is one without a new release.

Nodes whose wave of a rollout is not open are on the release before. That one is signed for by
its number alone; a control plane that has a key for beacons beside it signs for both by itself.

Examples:
  muster beacon                        once, by cron or a timer
  muster beacon --every 1d             stay, and sign each day
  muster beacon --release 41           for the release that nodes are on until their wave opens
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
    /// For this earlier release, while a rollout has it in use [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    release: Option<u64>,
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
    /// There is no such release any more.
    #[error("release {0} is not kept")]
    NotKept(u64),
    /// The release that the control plane gives is another one than is meant.
    #[error("the control plane's header for release {meant} in channel {channel} is of release {found}")]
    OtherRelease {
        /// The channel.
        channel: Channel,
        /// The number that was asked for.
        meant: u64,
        /// That of the header.
        found: u64,
    },
    /// It is no earlier release of a channel that is meant.
    #[error("release {0} is not before the newest")]
    NotBefore(u64),
    /// No node is pointed to it.
    #[error("no rollout has release {seq} in use")]
    NotInUse {
        /// Its number.
        seq: u64,
        /// What the control plane says.
        #[source]
        source: OperatorCallError,
    },
    /// A document cannot be signed.
    #[error("the beacon cannot be signed")]
    Sign(#[source] SignError),
}

impl UserError for BeaconError {
    fn exit(&self) -> Exit {
        match self {
            BeaconError::OtherKey(_) | BeaconError::OtherRelease { .. } => Exit::Refused,
            BeaconError::Call(error) | BeaconError::NotInUse { source: error, .. } => error.exit(),
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            BeaconError::Call(error) | BeaconError::NotInUse { source: error, .. } => error.hint(),
            BeaconError::OtherKey(_) => Some(
                "sign with this fleet's beacon key or release key: --key FILE or MUSTER_RELEASE_KEY"
                    .to_owned(),
            ),
            BeaconError::NothingPublished(_) => Some("`muster status` shows the channels".to_owned()),
            BeaconError::Sign(error) => error.hint(),
            BeaconError::NotKept(_) => Some("`muster release list` shows those that are kept".to_owned()),
            BeaconError::NotBefore(_) => Some("`muster beacon` signs for the newest".to_owned()),
            BeaconError::Header(_) | BeaconError::OtherRelease { .. } => None,
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
    /// The release that is meant, where it is not the newest.
    pub release: Option<u64>,
}

/// A beacon that the control plane took.
#[derive(Clone, Debug)]
pub struct SignedBeacon {
    /// What was signed.
    pub beacon: Beacon,
    /// How fresh its release is by it.
    pub freshness: Freshness,
    /// The newest release of its channel.
    pub newest: u64,
}

/// Headers that were verified, with their digests.
type VerifiedHeaders = BTreeMap<Channel, (Header, Digest)>;

/// Does the verb.
///
/// # Errors
/// When the key is not the fleet's, there is no such release, or the control plane refuses. A resident signer goes on
/// after the first time, whatever happens; one for an earlier release until no rollout has that in use.
pub async fn run(args: &BeaconArgs, screen: Screen) -> Result<Exit, Failure> {
    let (path, credentials) = args.connect.credentials()?;
    let key = credentials::beacon_key(args.key.as_deref(), &path)?;
    let signer = BeaconSigner { credentials, key, channel: args.channel.clone(), release: args.release };
    let Some(every) = args.every else { return show(signer.sign(now()).await, None, screen) };
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
    let mut done = show(signer.sign(now()).await, Some(every), screen);
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
        let signed = signer.sign(now()).await;
        if let Err(BeaconError::NotInUse { seq, .. }) = signed {
            aside(&format!("no rollout has release {seq} in use any more: there is nothing left to sign"));
            return Ok(Exit::Ok);
        }
        done = show(signed, None, screen);
    }
}

/// Says what was signed.
fn show(
    signed: Result<Vec<SignedBeacon>, BeaconError>,
    every: Option<Duration>,
    screen: Screen,
) -> Result<Exit, Failure> {
    let signed = signed?;
    for SignedBeacon { beacon, freshness, .. } in &signed {
        let warns = freshness.warns_at().since(freshness.signed_at);
        if every.is_some_and(|every| every > warns) {
            aside(&format!("channel {} wants a signature each {}", beacon.channel, short(warns)));
        }
    }
    let beacons: Vec<&Beacon> = signed.iter().map(|signed| &signed.beacon).collect();
    Ok(screen.result(&beacons, || {
        let line = |SignedBeacon { beacon, freshness, newest }: &SignedBeacon| {
            let left = short(freshness.ends_at().since(beacon.at));
            let beside =
                if beacon.seq == *newest { String::new() } else { format!(", beside the newest, {newest}") };
            format!("channel {}: release {} still counts, for {left}{beside}\n", beacon.channel, beacon.seq)
        };
        signed.iter().map(line).collect()
    })?)
}

impl BeaconSigner {
    /// Signs and publishes a beacon for each channel that is meant.
    ///
    /// # Errors
    /// [`BeaconError`].
    pub async fn sign(&self, at: Timestamp) -> Result<Vec<SignedBeacon>, BeaconError> {
        let operator = Operator::dial(&self.credentials).await?;
        let head = operator.call(&api::HEAD, Empty {}).await?;
        let slots = head.trust.beacon.iter().chain([&head.trust.release]);
        if !slots.flat_map(Slots::keys).any(|known| *known == self.key.public()) {
            return Err(BeaconError::OtherKey(self.key.public().id()));
        }
        let newest = self.verified(&head.headers, &head.trust)?;
        if newest.is_empty() {
            return Err(BeaconError::NothingPublished(self.channel.clone()));
        }
        let Some(seq) = self.release else {
            let signed = beacons(&newest, &newest, at);
            self.send(&operator, &signed).await?;
            return Ok(signed);
        };
        let release = release::by_number(&operator, seq).await?.ok_or(BeaconError::NotKept(seq))?;
        let mut earlier = self.verified(&release.headers, &head.trust)?;
        for (channel, (header, _)) in &earlier {
            if header.seq != seq {
                let (channel, found) = (channel.clone(), header.seq);
                return Err(BeaconError::OtherRelease { channel, meant: seq, found });
            }
        }
        earlier.retain(|channel, _| newest.get(channel).is_some_and(|(newest, _)| seq < newest.seq));
        if earlier.is_empty() {
            return Err(BeaconError::NotBefore(seq));
        }
        self.send_each(&operator, seq, beacons(&earlier, &newest, at)).await
    }

    /// The headers of the channels that are meant.
    fn verified(
        &self,
        headers: &BTreeMap<Channel, Signed>,
        trust: &TrustDocument,
    ) -> Result<VerifiedHeaders, HeaderError> {
        let is_meant = |channel: &Channel| self.channel.as_ref().is_none_or(|meant| meant == channel);
        let of = |(channel, document): (&Channel, &Signed)| {
            let header = header::verify(channel, document, trust)?;
            Ok((channel.clone(), (header, signed::digest(document))))
        };
        headers.iter().filter(|(channel, _)| is_meant(channel)).map(of).collect()
    }

    async fn send(&self, operator: &Operator, signed: &[SignedBeacon]) -> Result<(), BeaconError> {
        let beacons: Result<Vec<_>, _> =
            signed.iter().map(|signed| signer::sign(&signed.beacon, &[&self.key])).collect();
        operator.call(&api::ADD_BEACONS, Beacons { beacons: beacons.map_err(BeaconError::Sign)? }).await?;
        Ok(())
    }

    /// Sends them one by one: not every channel of a release has a rollout that has it in use.
    async fn send_each(
        &self,
        operator: &Operator,
        seq: u64,
        signed: Vec<SignedBeacon>,
    ) -> Result<Vec<SignedBeacon>, BeaconError> {
        let (mut taken, mut refused) = (Vec::new(), None);
        for beacon in signed {
            match self.send(operator, slice::from_ref(&beacon)).await {
                Ok(()) => taken.push(beacon),
                Err(BeaconError::Call(error)) if error.is(Code::BeaconOtherRelease) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(source) if taken.is_empty() => Err(BeaconError::NotInUse { seq, source }),
            _ => Ok(taken),
        }
    }
}

/// What is to be signed for these headers.
fn beacons(headers: &VerifiedHeaders, newest: &VerifiedHeaders, at: Timestamp) -> Vec<SignedBeacon> {
    let of = |(channel, (header, digest)): (&Channel, &(Header, Digest))| {
        let (fleet, channel, seq) = (header.fleet.clone(), channel.clone(), header.seq);
        let newest = newest.get(&channel).map_or(seq, |(newest, _)| newest.seq);
        let beacon = Beacon { fleet, channel, seq, header: *digest, at };
        SignedBeacon { freshness: Freshness::of(header, Some(&beacon)), beacon, newest }
    };
    headers.iter().map(of).collect()
}
