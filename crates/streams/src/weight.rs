//! About how many bytes frames take while they wait.

use sync::Frame;

/// What a frame weighs besides its content, in bytes, in these bounds.
pub(crate) const FRAME: usize = 256;

/// About how many bytes a frame takes.
pub fn weight(frame: &Frame) -> usize {
    let content = match frame {
        Frame::Event(event) => event.op.content_len() as usize,
        Frame::ResyncResponse(response) => wire::body::encoded_len(response),
        Frame::Refused(refused) => refused.message.len() + refused.key.name.len(),
        Frame::Answer(answer) => wire::body::encoded_len(answer),
        _ => 0,
    };
    FRAME + content
}
