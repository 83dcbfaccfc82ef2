//! Messages: calls are encoded, everything that comes is decoded.

use super::BusError;
use super::value::{BusReader, BusValue};

/// The largest message, in bytes, that is read: hundreds of times what systemd says of a unit.
pub(super) const MAX_MESSAGE: usize = 1 << 20;
/// The largest message, in bytes, that the protocol has: one of somebody else's is read past.
const MAX_PASSED: usize = 128 << 20;
/// The part of a message that says how long the rest is.
pub(super) const FIXED: usize = 16;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// A method of an object on the bus.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusCall<'a> {
    pub(crate) destination: &'a str,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) member: &'a str,
    pub(crate) arguments: &'a [BusArgument<'a>],
}

/// An argument of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BusArgument<'a> {
    Text(&'a str),
    Texts(&'a [&'a str]),
    Bool(bool),
}

/// A signal of an object on the bus.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BusSignal {
    /// The unique name of its sender.
    pub(crate) sender: String,
    pub(crate) path: String,
    pub(crate) member: String,
    pub(crate) body: Vec<BusValue>,
}

/// What came from the bus.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Return {
        serial: u32,
        body: Vec<BusValue>,
    },
    Error {
        serial: u32,
        name: String,
        body: Vec<BusValue>,
    },
    Signal(BusSignal),
    /// A call to the agent, which serves nothing, or a kind that this version does not know.
    Other,
}

/// The bytes of a call.
pub(super) fn encode(call: &BusCall<'_>, serial: u32) -> Vec<u8> {
    let mut body = MessageWriter::default();
    let mut signature = String::new();
    for argument in call.arguments {
        match argument {
            BusArgument::Text(text) => {
                signature.push('s');
                body.text(text);
            }
            BusArgument::Bool(flag) => {
                signature.push('b');
                body.uint32(u32::from(*flag));
            }
            BusArgument::Texts(texts) => {
                signature.push_str("as");
                body.uint32(0);
                let (length, from) = (body.0.len() - 4, body.0.len());
                texts.iter().for_each(|text| body.text(text));
                let bytes = (body.0.len() - from) as u32;
                body.0[length..from].copy_from_slice(&bytes.to_le_bytes());
            }
        }
    }
    let mut out = MessageWriter(vec![b'l', METHOD_CALL, 0, 1]);
    out.uint32(body.0.len() as u32);
    out.uint32(serial);
    out.uint32(0);
    let fields =
        [(1, 'o', call.path), (2, 's', call.interface), (3, 's', call.member), (6, 's', call.destination)];
    for (code, kind, text) in fields {
        out.align(8);
        out.0.extend([code, 1, kind as u8, 0]);
        out.text(text);
    }
    if !signature.is_empty() {
        out.align(8);
        out.0.extend([8, 1, b'g', 0, signature.len() as u8]);
        out.0.extend(signature.as_bytes());
        out.0.push(0);
    }
    let fields = (out.0.len() - FIXED) as u32;
    out.0[12..FIXED].copy_from_slice(&fields.to_le_bytes());
    out.align(8);
    out.0.extend(body.0);
    out.0
}

/// How long a message is in all, by its first [`FIXED`] bytes.
///
/// # Errors
/// When it is none, over what the protocol has, or an answer over [`MAX_MESSAGE`].
pub(super) fn whole_length(fixed: &[u8; FIXED]) -> Result<usize, BusError> {
    let big_endian = endian(fixed[0])?;
    if fixed[3] != 1 {
        return Err(BusError::Malformed("a message is of another version"));
    }
    let body = BusReader::new(fixed, 4, big_endian).uint32()? as usize;
    let fields = BusReader::new(fixed, 12, big_endian).uint32()? as usize;
    let whole = fields.saturating_add(FIXED).saturating_add(7) / 8 * 8;
    match whole.saturating_add(body) {
        length if length <= MAX_MESSAGE => Ok(length),
        length if length <= MAX_PASSED && !is_answer(fixed) => Ok(length),
        _ => Err(BusError::Malformed("a message is too large")),
    }
}

/// Whether a message, by its first bytes, answers a call; anyone may send the others.
pub(super) fn is_answer(bytes: &[u8]) -> bool {
    matches!(bytes.get(1), Some(&(METHOD_RETURN | ERROR)))
}

fn endian(mark: u8) -> Result<bool, BusError> {
    match mark {
        b'l' => Ok(false),
        b'B' => Ok(true),
        _ => Err(BusError::Malformed("a message has no byte order")),
    }
}

#[derive(Default)]
struct HeaderFields {
    path: String,
    member: String,
    error: String,
    sender: String,
    signature: String,
    reply: Option<u32>,
}

impl Message {
    /// Decodes a whole message.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Message, BusError> {
        let big_endian = endian(bytes.first().copied().unwrap_or_default())?;
        let kind = bytes.get(1).copied().unwrap_or_default();
        let mut reader = BusReader::new(bytes, 12, big_endian);
        let fields = reader.value(b"a(yv)", 0)?;
        let mut header = HeaderFields::default();
        for field in fields.items() {
            let [code, value] = field.items() else { continue };
            let text = || value.text().unwrap_or_default().to_owned();
            match code.uint() {
                Some(1) => header.path = text(),
                Some(3) => header.member = text(),
                Some(4) => header.error = text(),
                Some(5) => header.reply = value.uint().and_then(|serial| u32::try_from(serial).ok()),
                Some(7) => header.sender = text(),
                Some(8) => header.signature = text(),
                _ => {}
            }
        }
        reader.align(8)?;
        if !matches!(kind, METHOD_RETURN | ERROR | SIGNAL) {
            return Ok(Message::Other);
        }
        let body = reader.all(&header.signature)?;
        if reader.at() != bytes.len() {
            return Err(BusError::Malformed("a message holds more than it says"));
        }
        let serial = || header.reply.ok_or(BusError::Malformed("an answer says to what"));
        Ok(match kind {
            METHOD_RETURN => Message::Return { serial: serial()?, body },
            ERROR => Message::Error { serial: serial()?, name: header.error, body },
            _ => Message::Signal(BusSignal {
                sender: header.sender,
                path: header.path,
                member: header.member,
                body,
            }),
        })
    }
}

#[derive(Default)]
struct MessageWriter(Vec<u8>);

impl MessageWriter {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn uint32(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.uint32(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: BusCall<'_> = BusCall {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "EnableUnitFiles",
        arguments: &[
            BusArgument::Texts(&["a.service", "b.service"]),
            BusArgument::Bool(false),
            BusArgument::Bool(true),
        ],
    };

    /// A method call turned into the return of call 7, which is laid out alike.
    fn as_return(call: &BusCall<'_>) -> Vec<u8> {
        let mut bytes = encode(call, 9);
        bytes[1] = METHOD_RETURN;
        // The destination's field becomes the serial of the call that it answers.
        let at = bytes.windows(4).position(|window| window == [6, 1, b's', 0]).unwrap();
        bytes[at..at + 4].copy_from_slice(&[5, 1, b'u', 0]);
        bytes
    }

    #[test]
    fn a_call_is_laid_out_as_the_protocol_says() {
        let bytes = encode(&CALL, 3);
        let fixed: &[u8; FIXED] = bytes[..FIXED].try_into().unwrap();
        assert_eq!(whole_length(fixed).unwrap(), bytes.len());
        assert_eq!(&bytes[..4], b"l\x01\x00\x01");
        assert_eq!(bytes[8..12], 3_u32.to_le_bytes());
        assert_eq!(Message::decode(&bytes).unwrap(), Message::Other);
        let mut reader = BusReader::new(&bytes, 12, false);
        let fields = reader.value(b"a(yv)", 0).unwrap();
        let signature = fields.items().iter().find(|field| field.items()[0].uint() == Some(8)).unwrap();
        assert_eq!(signature.items()[1].text(), Some("asbb"));
        reader.align(8).unwrap();
        let texts =
            |texts: &[&str]| BusValue::Array(texts.iter().map(|t| BusValue::Text((*t).to_owned())).collect());
        let body = reader.all("asbb").unwrap();
        assert_eq!(body, [texts(&["a.service", "b.service"]), BusValue::Bool(false), BusValue::Bool(true)]);
    }

    #[test]
    fn lengths_over_the_bound_are_refused_before_anything_is_read() {
        let mut fixed = [0; FIXED];
        (fixed[0], fixed[3]) = (b'l', 1);
        for at in [4, 12] {
            let mut long = fixed;
            long[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(whole_length(&long).is_err());
        }
        assert!(whole_length(&fixed).is_ok());
        assert!(whole_length(&[0; FIXED]).is_err());
    }

    #[test]
    fn a_message_that_was_damaged_anywhere_is_read_or_refused() {
        let bytes = as_return(&CALL);
        let mut refused = 0;
        for at in 0..bytes.len() {
            for new in [0, 1, 0x7f, 0xff, b'v', b'a', b'('] {
                let mut damaged = bytes.clone();
                damaged[at] = new;
                refused += usize::from(Message::decode(&damaged).is_err());
            }
            refused += usize::from(Message::decode(&bytes[..at]).is_err());
        }
        assert!(refused > bytes.len(), "{refused}");
    }
}
