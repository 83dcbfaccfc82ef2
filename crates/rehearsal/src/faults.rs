//! [`FaultShares`]: of how many nodes what goes wrong, and [`NodeFault`]: what goes wrong with one.

use std::fmt;
use std::str::FromStr;

use model::{Digest, Hostname};
use serde::{Serialize, Serializer};

/// Hundredths of a percent in a whole.
const WHOLE: u16 = 10_000;

/// A share of the nodes, in hundredths of a percent. Text form: `5%`, `0.25%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultShare(u16);

/// The text is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no share of the nodes: write 0% to 100%, with at most two digits behind the point, such as 5% or 0.25%"
)]
pub struct ParseFaultShareError(String);

/// The shares leave no node over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{fail} fail, {offline} are offline and {cut_off} are cut off: these are different nodes, and together at most 100%"
)]
pub struct TooManyFaultsError {
    /// The share of nodes whose probes fail.
    fail: FaultShare,
    /// The share of nodes that are offline.
    offline: FaultShare,
    /// The share of nodes that lose the network.
    cut_off: FaultShare,
}

impl FaultShare {
    /// Of so many nodes, a part of one counted as one.
    pub fn of(self, nodes: usize) -> usize {
        nodes.saturating_mul(usize::from(self.0)).div_ceil(usize::from(WHOLE))
    }

    /// No node.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for FaultShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 100, self.0 % 100);
        match part {
            0 => write!(f, "{whole}%"),
            part if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            part => write!(f, "{whole}.{part:02}%"),
        }
    }
}

impl FromStr for FaultShare {
    type Err = ParseFaultShareError;

    fn from_str(text: &str) -> Result<FaultShare, ParseFaultShareError> {
        let wrong = || ParseFaultShareError(text.chars().take(20).collect());
        let number = text.strip_suffix('%').ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str, most: usize| {
            (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(whole, 3) || !is_number(part, 2) {
            return Err(wrong());
        }
        let hundredths: u16 = format!("{whole}{part:0<2}").parse().map_err(|_| wrong())?;
        if hundredths <= WHOLE { Ok(FaultShare(hundredths)) } else { Err(wrong()) }
    }
}

impl Serialize for FaultShare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Of how many nodes what goes wrong. Nodes that fail, that are offline and that are cut off are different ones; slow, and
/// seldom, is any node besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultShares {
    /// Their enforcing probes fail in the release: half of them at once, half of them within the soak.
    pub fail: FaultShare,
    /// They are not reached.
    pub offline: FaultShare,
    /// All takes them twenty times as long.
    pub slow: FaultShare,
    /// They call once an hour, until they hear that a rollout concerns them.
    pub seldom: FaultShare,
    /// The release takes the network from them.
    pub cut_off: FaultShare,
}

impl FaultShares {
    pub(crate) fn check(&self) -> Result<(), TooManyFaultsError> {
        let FaultShares { fail, offline, cut_off, .. } = *self;
        let together = u32::from(fail.0) + u32::from(offline.0) + u32::from(cut_off.0);
        if together <= u32::from(WHOLE) { Ok(()) } else { Err(TooManyFaultsError { fail, offline, cut_off }) }
    }
}

/// What goes wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeFault {
    /// Its enforcing probes fail in the release; one without such probes is confirmed all the same.
    Fails,
    /// It is not reached, from before the release to after it.
    Offline,
    /// The release takes the network from it; it has it again once it is back.
    CutOff,
}

/// What goes wrong with one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrawnFaults {
    pub(crate) fault: Option<NodeFault>,
    pub(crate) is_slow: bool,
    pub(crate) calls_seldom: bool,
}

/// What goes wrong with each node, in their order: exactly the shares, drawn by seed and hostname.
pub(crate) fn draw_faults(shares: &FaultShares, seed: u64, hostnames: &[&Hostname]) -> Vec<DrawnFaults> {
    let count = hostnames.len();
    let mut nodes = vec![DrawnFaults::default(); count];
    let mut drawn = drawn(b"fault", seed, hostnames).into_iter();
    // What is most told of comes first where parts of a node counted as one leave too few.
    let kinds = [
        (NodeFault::Fails, shares.fail),
        (NodeFault::Offline, shares.offline),
        (NodeFault::CutOff, shares.cut_off),
    ];
    for (fault, share) in kinds {
        for index in drawn.by_ref().take(share.of(count)) {
            nodes[index].fault = Some(fault);
        }
    }
    let besides = |what: &[u8], share: FaultShare| {
        self::drawn(what, seed, hostnames).into_iter().take(share.of(count)).collect::<Vec<_>>()
    };
    besides(b"slow", shares.slow).into_iter().for_each(|at| nodes[at].is_slow = true);
    besides(b"seldom", shares.seldom).into_iter().for_each(|at| nodes[at].calls_seldom = true);
    nodes
}

/// The nodes by index, in the order of a draw.
fn drawn(what: &[u8], seed: u64, hostnames: &[&Hostname]) -> Vec<usize> {
    let mut order: Vec<(Digest, usize)> = hostnames
        .iter()
        .enumerate()
        .map(|(index, hostname)| (draw_of(what, seed, hostname), index))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

/// What seed and hostname give, for one purpose.
pub(crate) fn draw_of(what: &[u8], seed: u64, hostname: &Hostname) -> Digest {
    let seed = seed.to_be_bytes();
    Digest::of_parts([b"muster rehearsal\0".as_slice(), what, b"\0", &seed, hostname.as_str().as_bytes()])
}
