//! The small messages of the gRPC services, as bytes: version, ping and the summary of a push.

use prost::Message;
use sync::frame::{Capabilities, VERSIONS};

use crate::generated::muster_v1 as proto;
use crate::{Code, Problem};

/// What a side speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// The version of the program, for people.
    pub program: String,
    /// The lowest and highest version of the frames.
    pub versions: (u32, u32),
    /// What it can do.
    pub capabilities: Capabilities,
}

impl Spoken {
    /// What this build speaks.
    pub fn own(program: &str) -> Spoken {
        Spoken { program: program.to_owned(), versions: VERSIONS, capabilities: Capabilities::ALL }
    }

    /// The highest version that both sides speak.
    pub fn common(&self, other: (u32, u32)) -> Option<u32> {
        let highest = self.versions.1.min(other.1);
        (highest >= self.versions.0.max(other.0)).then_some(highest)
    }
}

/// How a push went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSummary {
    /// `ok`, or the code of what stopped it.
    pub result: String,
    /// Events read.
    pub received: u64,
    /// Events that are durable.
    pub processed: u64,
}

/// Writes a version request.
pub fn version_request(versions: (u32, u32)) -> Vec<u8> {
    proto::VersionRequest { lowest: versions.0, highest: versions.1 }.encode_to_vec()
}

/// Reads a version request: the lowest and highest version of the client; (0, 0) when it
/// does not say.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read_version_request(bytes: &[u8]) -> Result<(u32, u32), Problem> {
    let request: proto::VersionRequest = read(bytes)?;
    Ok((request.lowest, request.highest))
}

/// Writes the answer to a version request.
pub fn version_response(spoken: &Spoken) -> Vec<u8> {
    proto::VersionResponse {
        version: spoken.program.clone(),
        lowest: spoken.versions.0,
        highest: spoken.versions.1,
        capabilities: spoken.capabilities.into(),
    }
    .encode_to_vec()
}

/// Reads the answer to a version request.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read_version_response(bytes: &[u8]) -> Result<Spoken, Problem> {
    let response: proto::VersionResponse = read(bytes)?;
    let versions = (response.lowest, response.highest);
    Ok(Spoken { program: response.version, versions, capabilities: response.capabilities.into() })
}

/// Writes a ping.
pub fn ping_request(number: u64) -> Vec<u8> {
    proto::PingRequest { number }.encode_to_vec()
}

/// Reads a ping: its number.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read_ping_request(bytes: &[u8]) -> Result<u64, Problem> {
    read::<proto::PingRequest>(bytes).map(|ping| ping.number)
}

/// Writes the answer to a ping.
pub fn pong_reply(number: u64) -> Vec<u8> {
    proto::PongReply { number }.encode_to_vec()
}

/// Reads the answer to a ping: its number.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read_pong_reply(bytes: &[u8]) -> Result<u64, Problem> {
    read::<proto::PongReply>(bytes).map(|pong| pong.number)
}

/// Writes the summary of a push.
pub fn push_summary(summary: &PushSummary) -> Vec<u8> {
    let PushSummary { result, received, processed } = summary.clone();
    proto::PushSummary { result, received, processed }.encode_to_vec()
}

/// Reads the summary of a push.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read_push_summary(bytes: &[u8]) -> Result<PushSummary, Problem> {
    let proto::PushSummary { result, received, processed } = read(bytes)?;
    Ok(PushSummary { result, received, processed })
}

fn read<T: Message + Default>(bytes: &[u8]) -> Result<T, Problem> {
    T::decode(bytes).map_err(|error| Problem::new(Code::BadBody, error.to_string()))
}
