//! Who is let in when there is not room for all (SCL-3): which connections, and whose TLS handshakes next.
//! A pure state: addresses and times are arguments.
//!
//! Room is shared by address prefix, and only when it is short: a whole fleet behind one NAT is one prefix,
//! and has all the room that nobody else wants. Half of all room is kept for prefixes of which somebody
//! authenticated lately. Whoever has not authenticated yet may have to give its place to a newcomer: first
//! the oldest of the prefix that holds the most.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long a prefix counts as known after somebody of it authenticated.
pub const KNOWN_FOR: Duration = Duration::from_secs(24 * 3600);
/// The most prefixes that are remembered; the one that authenticated longest ago is forgotten first.
pub const MAX_KNOWN: usize = 16_384;

/// The addresses that share: an IPv4 /24, or an IPv6 /56, which is what one site is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressPrefix {
    /// The first 24 bits.
    V4([u8; 3]),
    /// The first 56 bits.
    V6([u8; 7]),
}

impl AddressPrefix {
    /// The prefix of an address; an IPv4 address that is mapped into IPv6 is an IPv4 address.
    pub fn of(address: IpAddr) -> AddressPrefix {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                AddressPrefix::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, ..] = address.octets();
                AddressPrefix::V6([a, b, c, d, e, f, g])
            }
        }
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressPrefix::V4([a, b, c]) => write!(f, "{}/24", Ipv4Addr::new(*a, *b, *c, 0)),
            AddressPrefix::V6(bytes) => {
                let mut address = [0; 16];
                address[..bytes.len()].copy_from_slice(bytes);
                write!(f, "{}/56", Ipv6Addr::from(address))
            }
        }
    }
}

/// A text that names no prefix of those that share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no /24 of IPv4 and no /56 of IPv6")]
pub struct ParsePrefixError;

impl FromStr for AddressPrefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<AddressPrefix, ParsePrefixError> {
        let address =
            text.strip_suffix("/24").or_else(|| text.strip_suffix("/56")).ok_or(ParsePrefixError)?;
        let prefix = AddressPrefix::of(address.parse().map_err(|_| ParsePrefixError)?);
        // No other form than that which we write.
        (prefix.to_string() == text).then_some(prefix).ok_or(ParsePrefixError)
    }
}

/// Whether somebody of a prefix authenticated within [`KNOWN_FOR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrefixHistory {
    /// Somebody did.
    Known,
    /// Nobody did, or it was forgotten.
    Stranger,
}

/// Names a connection: a number that rises with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// A connection that was let in. Its prefix's history is that of the moment when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmittedConnection {
    /// Which.
    pub id: ConnectionId,
    /// Where it comes from.
    pub prefix: AddressPrefix,
    history: PrefixHistory,
}

/// The answer to who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectAnswer {
    /// There is room.
    Admit(AdmittedConnection),
    /// It takes the place of another, which is to be closed; that place is the newcomer's at once.
    Replace(AdmittedConnection, ConnectionId),
    /// There is no room for strangers.
    Refuse,
    /// All places are taken by those who authenticated: one that comes free is waited for.
    Full,
}

/// The prefixes of which somebody authenticated lately, at most [`MAX_KNOWN`].
#[derive(Debug, Default)]
struct KnownPrefixes {
    last: HashMap<AddressPrefix, Instant>,
    by_age: BTreeSet<(Instant, AddressPrefix)>,
}

impl KnownPrefixes {
    fn add(&mut self, prefix: AddressPrefix, now: Instant) {
        if let Some(before) = self.last.insert(prefix, now) {
            self.by_age.remove(&(before, prefix));
        }
        self.by_age.insert((now, prefix));
        while self.last.len() > MAX_KNOWN {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.last.remove(&oldest);
        }
    }

    fn history(&self, prefix: AddressPrefix, now: Instant) -> PrefixHistory {
        match self.last.get(&prefix) {
            Some(last) if now.saturating_duration_since(*last) <= KNOWN_FOR => PrefixHistory::Known,
            _ => PrefixHistory::Stranger,
        }
    }
}

/// Connections by prefix, with the prefixes in an order: of how many they have, or of whose turn it is.
#[derive(Debug, Default)]
struct PrefixQueues {
    /// Of each prefix its place in the order, and its connections, the oldest first.
    by_prefix: HashMap<AddressPrefix, (u64, BTreeSet<ConnectionId>)>,
    order: BTreeMap<(u64, AddressPrefix), ()>,
    len: usize,
}

impl PrefixQueues {
    /// Adds a connection; `rank` says the new place of its prefix, given that before and how many it has.
    fn add(&mut self, prefix: AddressPrefix, id: ConnectionId, rank: impl Fn(Option<u64>, usize) -> u64) {
        let (before, mut ids) = self.take(prefix);
        self.len += usize::from(ids.insert(id));
        self.put(prefix, rank(before, ids.len()), ids);
    }

    /// Removes a connection; whether it was there.
    fn remove(
        &mut self,
        prefix: AddressPrefix,
        id: ConnectionId,
        rank: impl Fn(Option<u64>, usize) -> u64,
    ) -> bool {
        let (before, mut ids) = self.take(prefix);
        let was_there = ids.remove(&id);
        self.len -= usize::from(was_there);
        if !ids.is_empty() {
            self.put(prefix, rank(before, ids.len()), ids);
        }
        was_there
    }

    fn take(&mut self, prefix: AddressPrefix) -> (Option<u64>, BTreeSet<ConnectionId>) {
        let Some((rank, ids)) = self.by_prefix.remove(&prefix) else { return (None, BTreeSet::new()) };
        self.order.remove(&(rank, prefix));
        (Some(rank), ids)
    }

    fn put(&mut self, prefix: AddressPrefix, rank: u64, ids: BTreeSet<ConnectionId>) {
        self.order.insert((rank, prefix), ());
        self.by_prefix.insert(prefix, (rank, ids));
    }

    /// The oldest connection of a prefix.
    fn oldest(&self, prefix: AddressPrefix) -> Option<ConnectionId> {
        self.by_prefix.get(&prefix)?.1.first().copied()
    }
}

/// The rank of a prefix among those that hold places: how many it holds.
fn by_size(_: Option<u64>, len: usize) -> u64 {
    len as u64
}

/// What belongs to prefixes of one history.
#[derive(Debug, Default)]
struct HistoryShare {
    /// Connections of which nobody authenticated yet; the prefix with the most comes last.
    pending: PrefixQueues,
    /// Connections that wait for a handshake; the prefix whose turn is next comes first.
    waiting: PrefixQueues,
    /// Handshakes under way.
    inside: usize,
}

/// Who is let in, and whose handshake is next.
#[derive(Debug)]
pub struct Admission {
    connections: usize,
    handshakes: usize,
    /// Connections let in and not yet left.
    open: usize,
    next_id: u64,
    /// Whose turn is last in the order of turns.
    last_turn: u64,
    history: KnownPrefixes,
    known: HistoryShare,
    strangers: HistoryShare,
}

impl Admission {
    /// With room for so many connections, and for so many handshakes at once; at least one of each.
    pub fn new(connections: usize, handshakes: usize) -> Admission {
        Admission {
            connections: connections.max(1),
            handshakes: handshakes.max(1),
            open: 0,
            next_id: 0,
            last_turn: 0,
            history: KnownPrefixes::default(),
            known: HistoryShare::default(),
            strangers: HistoryShare::default(),
        }
    }

    /// Somebody of a prefix authenticated then, before this listener began.
    pub fn restore(&mut self, prefix: AddressPrefix, at: Instant) {
        self.history.add(prefix, at);
    }

    /// Connections let in and not yet left.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Judges a connection from a prefix.
    pub fn connect(&mut self, prefix: AddressPrefix, now: Instant) -> ConnectAnswer {
        let history = self.history.history(prefix, now);
        let strangers_room = (self.connections / 2).max(1);
        let is_stranger = history == PrefixHistory::Stranger;
        let fits =
            self.open < self.connections && !(is_stranger && self.strangers.pending.len >= strangers_room);
        if fits {
            self.open += 1;
            return ConnectAnswer::Admit(self.admitted(prefix, history));
        }
        // Strangers give way first, and never does a known prefix to a stranger.
        let yielding = if self.strangers.pending.len > 0 {
            &mut self.strangers.pending
        } else if self.known.pending.len == 0 {
            return ConnectAnswer::Full;
        } else if is_stranger {
            return ConnectAnswer::Refuse;
        } else {
            &mut self.known.pending
        };
        let largest = yielding.order.last_key_value().map(|((_, largest), ())| *largest);
        let Some((largest, evicted)) = largest.and_then(|largest| Some((largest, yielding.oldest(largest)?)))
        else {
            return ConnectAnswer::Refuse;
        };
        yielding.remove(largest, evicted, by_size);
        ConnectAnswer::Replace(self.admitted(prefix, history), evicted)
    }

    fn admitted(&mut self, prefix: AddressPrefix, history: PrefixHistory) -> AdmittedConnection {
        self.next_id += 1;
        let id = ConnectionId(self.next_id);
        self.share(history).pending.add(prefix, id, by_size);
        AdmittedConnection { id, prefix, history }
    }

    fn share(&mut self, history: PrefixHistory) -> &mut HistoryShare {
        match history {
            PrefixHistory::Known => &mut self.known,
            PrefixHistory::Stranger => &mut self.strangers,
        }
    }

    /// A verified certificate came over the connection: it gives way to nobody any more, and its prefix is
    /// known. `false` when it had to give way before.
    pub fn authenticated(&mut self, connection: &AdmittedConnection, now: Instant) -> bool {
        self.history.add(connection.prefix, now);
        let AdmittedConnection { id, prefix, history } = *connection;
        self.share(history).pending.remove(prefix, id, by_size)
    }

    /// A connection that has not authenticated is over; it may have had to give its place away.
    pub fn left_pending(&mut self, connection: &AdmittedConnection) {
        let AdmittedConnection { id, prefix, history } = *connection;
        self.open -= usize::from(self.share(history).pending.remove(prefix, id, by_size));
    }

    /// A connection that authenticated is over.
    pub fn left_authenticated(&mut self) {
        self.open -= 1;
    }

    /// A connection is ready for its handshake; [`Admission::next_handshake`] says when it may begin. To be
    /// answered with one [`Admission::handshake_over`].
    pub fn wait_for_handshake(&mut self, connection: &AdmittedConnection) {
        let AdmittedConnection { id, prefix, history } = *connection;
        self.last_turn += 1;
        // A prefix that waits already keeps its turn.
        let last = self.last_turn;
        self.share(history).waiting.add(prefix, id, |before, _| before.unwrap_or(last));
    }

    /// The connection whose handshake begins now, if there is room: to be asked until there is none.
    /// Prefixes take turns.
    pub fn next_handshake(&mut self) -> Option<ConnectionId> {
        if self.known.inside + self.strangers.inside >= self.handshakes {
            return None;
        }
        let (known_kept, strangers_room) = (self.handshakes.div_ceil(2), (self.handshakes / 2).max(1));
        let known_waits = self.known.waiting.len > 0;
        let stranger_fits = self.strangers.waiting.len > 0 && self.strangers.inside < strangers_room;
        let history = match (known_waits, stranger_fits) {
            (true, true) if self.known.inside < known_kept => PrefixHistory::Known,
            (_, true) => PrefixHistory::Stranger,
            (true, false) => PrefixHistory::Known,
            (false, false) => return None,
        };
        self.last_turn += 1;
        let last = self.last_turn;
        let share = self.share(history);
        let ((_, prefix), ()) = share.waiting.order.first_key_value()?;
        let prefix = *prefix;
        let id = share.waiting.oldest(prefix)?;
        share.waiting.remove(prefix, id, |_, _| last);
        share.inside += 1;
        Some(id)
    }

    /// A connection no longer waits for its handshake, or is no longer in it.
    pub fn handshake_over(&mut self, connection: &AdmittedConnection) {
        let AdmittedConnection { id, prefix, history } = *connection;
        let share = self.share(history);
        if !share.waiting.remove(prefix, id, |before, _| before.unwrap_or_default()) {
            share.inside -= 1;
        }
    }
}
