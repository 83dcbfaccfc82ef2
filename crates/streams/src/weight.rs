//! About how many bytes frames take while they wait, and which of them wait in vain.

use sync::Frame;
use sync::frame::{Op, RUN};

/// What a frame weighs besides its content, in bytes, in these bounds.
pub(crate) const FRAME: usize = 256;

/// The run that a word of the stream belongs to.
pub(crate) fn run_of(frame: &Frame) -> Option<u64> {
    match frame {
        Frame::Event(event) if event.seq > 0 => Some(event.seq / RUN),
        Frame::Mark(mark) => Some(mark.seq / RUN),
        _ => None,
    }
}

/// About how many bytes a frame takes.
pub(crate) fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::Event(event) => match &event.op {
            Op::Put { content, .. } => FRAME + content.len(),
            Op::Delete { .. } => FRAME,
        },
        Frame::Tell(tell) => FRAME + tell_weight(tell),
        Frame::Refused(refused) => FRAME + refused.message.len() + refused.key.name.len(),
        Frame::Answer(answer) => FRAME + wire::body::encoded_len(answer),
        _ => FRAME,
    }
}

fn tell_weight(tell: &sync::frame::Tell) -> usize {
    use sync::frame::{Tell, Top};
    let top = |top: &Top| match top {
        Top::Branch(hashes) => hashes.len() * 44,
        Top::Bucket(objects) => objects.len() * 160,
    };
    match tell {
        Tell::Sections { sections, .. } => sections.len() * 120,
        Tell::Tops { tops, .. } => tops.iter().map(|(_, one)| 16 + top(one)).sum(),
        Tell::Objects(_) | Tell::Wait(_) => 0,
    }
}
