//! About how many bytes frames take while they wait.

use sync::Frame;

/// What a frame weighs besides its content, in bytes, in these bounds.
pub(crate) const FRAME: usize = 256;

/// About how many bytes a frame takes.
pub fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::Event(event) => FRAME + event.op.content_len() as usize,
        Frame::ResyncResponse(tell) => FRAME + response_weight(tell),
        Frame::Refused(refused) => FRAME + refused.message.len() + refused.key.name.len(),
        Frame::Answer(answer) => FRAME + wire::body::encoded_len(answer),
        _ => FRAME,
    }
}

fn response_weight(tell: &sync::frame::ResyncResponse) -> usize {
    use model::TrieNode;
    use sync::frame::ResyncResponse;
    let top = |node: &TrieNode| match node {
        TrieNode::Branch(hashes) => hashes.len() * 44,
        TrieNode::Bucket(objects) => objects.len() * 160,
    };
    match tell {
        ResyncResponse::Sections { sections, .. } => sections.len() * 120,
        ResyncResponse::Tops { tops, .. } => tops.iter().map(|(_, one)| 16 + top(one)).sum(),
        ResyncResponse::Objects(_) | ResyncResponse::Wait(_) => 0,
    }
}
