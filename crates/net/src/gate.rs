//! The gate of one listener: [`Admission`] behind a lock, with a signal for each connection that waits for
//! something or may have to give way.
//!
//! Invariant: every place and every handshake that was given is given back by dropping what stands for it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Signal;
use crate::admission::{AddressPrefix, Admission, AdmittedConnection, ConnectAnswer, ConnectionId};
use crate::prefix_journal::PrefixJournal;

/// The connection's handshake may begin.
const ENTER: u64 = 1;
/// The connection has to give its place away.
const GIVE_WAY: u64 = 2;
/// How often at most it is warned that connections had to give way.
const WARN_EVERY: Duration = Duration::from_secs(60);

struct GateState {
    admission: Admission,
    /// Of the connections that have not authenticated.
    signals: HashMap<ConnectionId, Arc<Signal>>,
    /// Connections that gave way or were refused, since it was warned.
    evicted: u64,
    warned: Option<Instant>,
}

/// Who is let in at one listener.
pub(crate) struct AdmissionGate {
    state: Mutex<GateState>,
    /// A place came free.
    freed: Notify,
    journal: PrefixJournal,
}

/// What becomes of a connection that comes.
pub(crate) enum GateAnswer {
    /// It is let in.
    Enter(ConnectionSlot),
    /// It is to be closed.
    Refuse,
    /// All places are taken by those who authenticated.
    Full,
}

impl AdmissionGate {
    pub(crate) fn new(connections: usize, handshakes: usize, journal: PrefixJournal) -> Arc<AdmissionGate> {
        let mut admission = Admission::new(connections, handshakes);
        let now = Instant::now();
        for (prefix, ago) in journal.known() {
            // A clock that does not go back so far knows nothing of that time.
            if let Some(at) = now.checked_sub(ago) {
                admission.restore(prefix, at);
            }
        }
        let state = GateState { admission, signals: HashMap::new(), evicted: 0, warned: None };
        Arc::new(AdmissionGate { state: Mutex::new(state), freed: Notify::new(), journal })
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a connection from an address.
    pub(crate) fn connect(self: &Arc<AdmissionGate>, address: IpAddr) -> GateAnswer {
        let now = Instant::now();
        let mut state = self.lock();
        let connection = match state.admission.connect(AddressPrefix::of(address), now) {
            ConnectAnswer::Admit(connection) => connection,
            ConnectAnswer::Replace(connection, evicted) => {
                if let Some(signal) = state.signals.remove(&evicted) {
                    signal.raise(GIVE_WAY);
                }
                state.count_evicted(now);
                connection
            }
            ConnectAnswer::Refuse => {
                state.count_evicted(now);
                return GateAnswer::Refuse;
            }
            ConnectAnswer::Full => return GateAnswer::Full,
        };
        let signal = Arc::new(Signal::default());
        state.signals.insert(connection.id, signal.clone());
        drop(state);
        GateAnswer::Enter(ConnectionSlot { gate: self.clone(), connection, pending: Some(signal) })
    }

    /// Waits until a place comes free that was not taken again at once.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Waits until nobody is left.
    pub(crate) async fn empty(&self) {
        while self.lock().admission.open() > 0 {
            self.freed().await;
        }
    }
}

impl GateState {
    fn count_evicted(&mut self, now: Instant) {
        self.evicted += 1;
        if self.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_EVERY) {
            let evicted = std::mem::take(&mut self.evicted);
            tracing::warn!(
                connections = evicted,
                "there is not room for all who connect; some had to give way"
            );
            self.warned = Some(now);
        }
    }

    fn begin_handshakes(&mut self) {
        while let Some(next) = self.admission.next_handshake() {
            if let Some(signal) = self.signals.get(&next) {
                signal.raise(ENTER);
            }
        }
    }
}

/// The place of a connection, until it is dropped.
pub(crate) struct ConnectionSlot {
    gate: Arc<AdmissionGate>,
    connection: AdmittedConnection,
    /// Until it authenticated.
    pending: Option<Arc<Signal>>,
}

impl ConnectionSlot {
    /// What tells the connection that it has to give way; `None` once it authenticated.
    pub(crate) fn pending(&self) -> Option<Arc<Signal>> {
        self.pending.clone()
    }

    /// A verified certificate came over the connection. `false` when it had to give way before.
    pub(crate) fn authenticated(&mut self) -> bool {
        let now = Instant::now();
        self.gate.journal.note(self.connection.prefix, now);
        let mut state = self.gate.lock();
        let kept = state.admission.authenticated(&self.connection, now);
        if kept {
            state.signals.remove(&self.connection.id);
            self.pending = None;
        }
        kept
    }

    /// Waits for the turn of this connection's handshake.
    pub(crate) async fn handshake(&self) -> HandshakeSlot<'_> {
        let slot = HandshakeSlot(self);
        {
            let mut state = self.gate.lock();
            state.admission.wait_for_handshake(&self.connection);
            state.begin_handshakes();
        }
        if let Some(signal) = &self.pending {
            signal.until(|bits| bits & ENTER != 0).await;
        }
        slot
    }
}

/// Waits until a connection has to give way.
pub(crate) async fn gives_way(signal: &Signal) {
    signal.until(|bits| bits & GIVE_WAY != 0).await;
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        match self.pending {
            Some(_) => {
                state.signals.remove(&self.connection.id);
                state.admission.left_pending(&self.connection);
            }
            None => state.admission.left_authenticated(),
        }
        drop(state);
        self.gate.freed.notify_one();
    }
}

/// A handshake that is under way, or waits for its turn, until it is dropped.
pub(crate) struct HandshakeSlot<'a>(&'a ConnectionSlot);

impl Drop for HandshakeSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.0.gate.lock();
        state.admission.handshake_over(&self.0.connection);
        state.begin_handshakes();
    }
}
