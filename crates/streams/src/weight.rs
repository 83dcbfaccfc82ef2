//! About how many bytes frames take while they wait.

use model::TrieNode;
use sync::Frame;
use sync::frame::ResyncResponse;

/// What a frame weighs besides its content, in bytes, in these bounds.
pub(crate) const FRAME: usize = 256;

/// About how many bytes a frame takes.
pub fn weight(frame: &Frame) -> usize {
    let content = match frame {
        Frame::Event(event) => event.op.content_len() as usize,
        Frame::ResyncResponse(response) => response_weight(response),
        Frame::Refused(refused) => refused.message.len() + refused.key.name.len(),
        Frame::Answer(answer) => wire::body::encoded_len(answer),
        _ => 0,
    };
    FRAME + content
}

/// Estimated: to encode it for its length would cost as much as to send it.
fn response_weight(response: &ResyncResponse) -> usize {
    let top = |node: &TrieNode| match node {
        TrieNode::Branch(hashes) => hashes.len() * 44,
        TrieNode::Bucket(objects) => objects.len() * 160,
    };
    match response {
        ResyncResponse::Sections { sections, .. } => sections.len() * 120,
        ResyncResponse::Tops { tops, .. } => tops.iter().map(|(_, one)| 16 + top(one)).sum(),
        ResyncResponse::Objects(_) | ResyncResponse::Wait(_) => 0,
    }
}
