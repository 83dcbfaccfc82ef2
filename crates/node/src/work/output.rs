//! What an action prints, on its way into facts: bounded, in chunks, as text.

use model::Timestamp;
use model::work::{ActionEvent, MAX_OUTPUT, MAX_OUTPUT_CHUNK, OutputStream};

use super::{FLUSH, FLUSHES_PER_STEP, MAX_FLUSH};

const STREAMS: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];

/// The output of one action that is no fact yet.
#[derive(Debug, Default)]
pub(super) struct ActionOutput {
    stdout: Buffer,
    stderr: Buffer,
    /// Bytes kept so far, both streams together.
    kept: u64,
    /// Facts made so far.
    facts: u32,
    due: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Buffer {
    text: String,
    /// The beginning of a character whose end did not come yet.
    tail: Vec<u8>,
    dropped: u64,
}

impl ActionOutput {
    /// Takes bytes; gives the facts that are full.
    pub(super) fn take(&mut self, stream: OutputStream, bytes: &[u8], now: Timestamp) -> Vec<ActionEvent> {
        let room = usize::try_from(MAX_OUTPUT - self.kept).unwrap_or(usize::MAX).min(bytes.len());
        self.kept += room as u64;
        let buffer = self.buffer(stream);
        buffer.dropped += (bytes.len() - room) as u64;
        buffer.decode(&bytes[..room]);
        let mut facts = Vec::new();
        while buffer.text.len() >= MAX_OUTPUT_CHUNK {
            facts.push(event(stream, buffer.cut()));
        }
        let waits = !buffer.text.is_empty();
        self.facts = self.facts.saturating_add(u32::try_from(facts.len()).unwrap_or(u32::MAX));
        if waits && self.due.is_none() {
            self.due = Some(now.plus(self.wait()));
        }
        facts
    }

    /// When what waits becomes facts at the latest.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Makes facts of all that waits, when it is due.
    pub(super) fn flush(&mut self, now: Timestamp) -> Vec<ActionEvent> {
        if self.due.is_none_or(|due| now < due) { Vec::new() } else { self.drain() }
    }

    /// Makes facts of all that is left: no more comes.
    pub(super) fn finish(&mut self) -> Vec<ActionEvent> {
        for stream in STREAMS {
            let buffer = self.buffer(stream);
            if !std::mem::take(&mut buffer.tail).is_empty() {
                buffer.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        let mut facts = self.drain();
        for stream in STREAMS {
            let dropped = std::mem::take(&mut self.buffer(stream).dropped);
            if dropped > 0 {
                facts.push(ActionEvent::Output { stream, text: String::new(), dropped });
            }
        }
        facts
    }

    /// Bytes that could not be kept after all.
    pub(super) fn lost(&mut self, stream: OutputStream, bytes: u64) {
        let buffer = self.buffer(stream);
        buffer.dropped = buffer.dropped.saturating_add(bytes);
    }

    fn drain(&mut self) -> Vec<ActionEvent> {
        self.due = None;
        let mut facts = Vec::new();
        for stream in STREAMS {
            let buffer = self.buffer(stream);
            while !buffer.text.is_empty() {
                facts.push(event(stream, buffer.cut()));
            }
        }
        self.facts = self.facts.saturating_add(u32::try_from(facts.len()).unwrap_or(u32::MAX));
        facts
    }

    fn wait(&self) -> std::time::Duration {
        let doubled = (self.facts / FLUSHES_PER_STEP).min(16);
        (FLUSH * (1 << doubled)).min(MAX_FLUSH)
    }

    fn buffer(&mut self, stream: OutputStream) -> &mut Buffer {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }
}

impl Buffer {
    fn decode(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.tail);
        all.extend_from_slice(bytes);
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let cut_short = std::str::from_utf8(chunk.invalid()).is_err_and(|it| it.error_len().is_none());
            if cut_short && chunks.peek().is_none() {
                self.tail = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// The first chunk of the text.
    fn cut(&mut self) -> String {
        let mut end = self.text.len().min(MAX_OUTPUT_CHUNK);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let rest = self.text.split_off(end);
        std::mem::replace(&mut self.text, rest)
    }
}

fn event(stream: OutputStream, text: String) -> ActionEvent {
    ActionEvent::Output { stream, text, dropped: 0 }
}
