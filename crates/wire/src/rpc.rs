//! The small messages of the gRPC services: version, ping and the summary of a push.

use prost::Message;
use sync::frame::{Capabilities, VERSIONS};

pub use crate::generated::muster_v1::{PingRequest, PongReply, PushSummary, VersionRequest, VersionResponse};
use crate::{Code, Problem};

impl VersionResponse {
    /// What this build speaks; `program` is its version, for people.
    pub fn own(program: &str) -> VersionResponse {
        let (lowest, highest) = VERSIONS;
        VersionResponse {
            version: program.to_owned(),
            lowest,
            highest,
            capabilities: Capabilities::ALL.into(),
        }
    }

    /// The highest version that both sides speak.
    pub fn common(&self, other: VersionRequest) -> Option<u32> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }
}

/// Writes a message.
pub fn write(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

/// Reads a message.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read<T: Message + Default>(bytes: &[u8]) -> Result<T, Problem> {
    T::decode(bytes).map_err(|error| Problem::new(Code::BadBody, error.to_string()))
}
