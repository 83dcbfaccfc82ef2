//! [`BusConnection`]: one connection to the system bus.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::message::{FIXED, MAX_MESSAGE, Message, encode, is_answer, whole_length};
use super::{BusArgument, BusCall, BusError, BusSignal, BusValue};

/// How long the bus may take to let the agent in.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest line of the bus before messages begin, in bytes.
const MAX_LINE: usize = 512;
/// The most signals that wait while a call is answered.
const MAX_SIGNALS: usize = 4096;
/// The most bytes of messages whose signals wait.
const MAX_QUEUED: usize = 4 << 20;

const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";

/// An open connection. After an error other than [`BusError::Failed`] it must not be used again.
#[derive(Debug)]
pub(crate) struct BusConnection {
    stream: UnixStream,
    serial: u32,
    signals: VecDeque<QueuedSignal>,
    /// Whose signals are kept; nobody's before it listens.
    heard: Option<HeardService>,
    /// How much of a message that is too large is still to be read past, in bytes.
    passed: usize,
    /// What came of a message whose rest has not come yet.
    partial: Vec<u8>,
}

/// A service on the bus.
#[derive(Debug)]
struct HeardService {
    name: String,
    /// Its unique name; empty while it is away.
    owner: String,
}

#[derive(Debug)]
struct QueuedSignal {
    signal: BusSignal,
    bytes: usize,
}

struct ReceivedMessage {
    message: Message,
    bytes: usize,
}

impl BusConnection {
    /// Connects to the bus behind a socket as the user that the agent runs as.
    pub(crate) fn open(socket: &Path, uid: u32) -> Result<BusConnection, BusError> {
        // A local socket takes a connection at once, or its queue is full and it is refused.
        let stream = UnixStream::connect(socket)
            .map_err(|source| BusError::Connect { path: socket.to_owned(), source })?;
        let mut bus = BusConnection {
            stream,
            serial: 0,
            signals: VecDeque::new(),
            heard: None,
            passed: 0,
            partial: Vec::new(),
        };
        let deadline = Instant::now() + OPEN_TIMEOUT;
        bus.authenticate(uid, deadline)?;
        bus.call_bus("Hello", &[], deadline.saturating_duration_since(Instant::now()))?;
        Ok(bus)
    }

    fn authenticate(&mut self, uid: u32, deadline: Instant) -> Result<(), BusError> {
        let hex: String = uid.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        self.stream.set_write_timeout(Some(OPEN_TIMEOUT)).map_err(BusError::Lost)?;
        self.stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes()).map_err(BusError::Lost)?;
        let line = self.line(deadline)?;
        if !line.starts_with("OK ") {
            return Err(BusError::Refused(line));
        }
        self.stream.write_all(b"BEGIN\r\n").map_err(BusError::Lost)
    }

    /// A line of the authentication, without its end. Read byte by byte: a message may follow.
    fn line(&mut self, deadline: Instant) -> Result<String, BusError> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() > MAX_LINE {
                return Err(BusError::Malformed("the first line is too long"));
            }
            let mut byte = [0];
            if self.read_some(&mut byte, deadline)?.is_none() {
                let what = "the system bus".to_owned();
                return Err(BusError::TimedOut { what, after: OPEN_TIMEOUT });
            }
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Asks a method and waits for the answer; signals of the service that it listens to are kept.
    pub(crate) fn call(&mut self, call: &BusCall<'_>, timeout: Duration) -> Result<Vec<BusValue>, BusError> {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let asked = self.serial;
        self.stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1)))).map_err(BusError::Lost)?;
        self.stream.write_all(&encode(call, asked)).map_err(BusError::Lost)?;
        let deadline = Instant::now() + timeout;
        loop {
            let Some(ReceivedMessage { message, bytes }) = self.message(deadline)? else {
                return Err(BusError::TimedOut { what: call.member.to_owned(), after: timeout });
            };
            match message {
                Message::Return { serial, body } if serial == asked => return Ok(body),
                Message::Error { serial, name, body } if serial == asked => {
                    let message = body.first().and_then(BusValue::text).unwrap_or(&name).to_owned();
                    return Err(BusError::Failed { name, message });
                }
                Message::Signal(signal) => {
                    if let Some(signal) = self.hear(signal) {
                        self.queue(QueuedSignal { signal, bytes })?;
                    }
                }
                Message::Return { .. } | Message::Error { .. } | Message::Other => {}
            }
        }
    }

    /// Asks the bus itself.
    fn call_bus(
        &mut self,
        member: &str,
        arguments: &[BusArgument<'_>],
        timeout: Duration,
    ) -> Result<Vec<BusValue>, BusError> {
        let call = BusCall { destination: BUS, path: BUS_PATH, interface: BUS, member, arguments };
        self.call(&call, timeout)
    }

    /// Lets signals through that fit a rule.
    pub(crate) fn add_match(&mut self, rule: &str) -> Result<(), BusError> {
        self.call_bus("AddMatch", &[BusArgument::Text(rule)], OPEN_TIMEOUT).map(drop)
    }

    /// Keeps the signals of a service from now on, also after it comes back under another unique name.
    /// A signal of another sender is not the service's, and is dropped: any user of the machine may send
    /// one to the agent.
    pub(crate) fn listen(&mut self, name: &str) -> Result<(), BusError> {
        self.heard = Some(HeardService { name: name.to_owned(), owner: String::new() });
        self.add_match(&format!(
            "type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{name}'"
        ))?;
        let body = self.call_bus("GetNameOwner", &[BusArgument::Text(name)], OPEN_TIMEOUT)?;
        let owner = body.first().and_then(BusValue::text);
        let owner = owner.ok_or(BusError::Malformed("a name without an owner"))?.to_owned();
        self.heard = Some(HeardService { name: name.to_owned(), owner });
        Ok(())
    }

    /// The signal, where it is one of the service that it listens to.
    fn hear(&mut self, signal: BusSignal) -> Option<BusSignal> {
        let heard = self.heard.as_mut()?;
        // The bus writes the sender, and nobody else can have its name.
        if signal.sender == BUS {
            if let ("NameOwnerChanged", [name, _, owner]) = (signal.member.as_str(), signal.body.as_slice())
                && name.text() == Some(&heard.name)
            {
                heard.owner = owner.text().unwrap_or_default().to_owned();
            }
            return None;
        }
        (!heard.owner.is_empty() && signal.sender == heard.owner).then_some(signal)
    }

    fn queue(&mut self, queued: QueuedSignal) -> Result<(), BusError> {
        let bytes: usize = self.signals.iter().map(|queued| queued.bytes).sum();
        if self.signals.len() >= MAX_SIGNALS || bytes.saturating_add(queued.bytes) > MAX_QUEUED {
            return Err(BusError::Malformed("more signals than are waited for"));
        }
        self.signals.push_back(queued);
        Ok(())
    }

    /// The next signal; `None` when none came in time.
    pub(crate) fn signal(&mut self, timeout: Duration) -> Result<Option<BusSignal>, BusError> {
        if let Some(queued) = self.signals.pop_front() {
            return Ok(Some(queued.signal));
        }
        let deadline = Instant::now() + timeout;
        loop {
            let Some(received) = self.message(deadline)? else { return Ok(None) };
            if let Message::Signal(signal) = received.message
                && let Some(signal) = self.hear(signal)
            {
                return Ok(Some(signal));
            }
        }
    }

    /// The next message; `None` when it was not whole in time: what came of it is kept.
    fn message(&mut self, deadline: Instant) -> Result<Option<ReceivedMessage>, BusError> {
        let mut buffer = [0; 16 * 1024];
        loop {
            while self.passed > 0 {
                let room = self.passed.min(buffer.len());
                match self.read_some(&mut buffer[..room], deadline)? {
                    Some(got) => self.passed -= got,
                    None => return Ok(None),
                }
            }
            let wanted = match self.partial.first_chunk::<FIXED>() {
                Some(fixed) => whole_length(fixed)?,
                None => FIXED,
            };
            if wanted > MAX_MESSAGE {
                self.passed = wanted - self.partial.len();
                self.partial.clear();
                continue;
            }
            if wanted > FIXED && self.partial.len() == wanted {
                let message = match Message::decode(&self.partial) {
                    // What anyone may send ends no connection.
                    Err(_) if !is_answer(&self.partial) => Ok(Message::Other),
                    decoded => decoded,
                };
                self.partial.clear();
                return message.map(|message| Some(ReceivedMessage { message, bytes: wanted }));
            }
            let room = (wanted - self.partial.len()).min(buffer.len());
            match self.read_some(&mut buffer[..room], deadline)? {
                Some(got) => self.partial.extend_from_slice(&buffer[..got]),
                None => return Ok(None),
            }
        }
    }

    /// Reads what there is, at least a byte; `None` when nothing came in time.
    fn read_some(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<Option<usize>, BusError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left)).map_err(BusError::Lost)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(BusError::Lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(got) => return Ok(Some(got)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(BusError::Lost(error)),
            }
        }
    }
}
