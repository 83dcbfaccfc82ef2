//! What `nix-store --import` reads behind the archive of a path.

use super::{NarInfo, StorePath};

/// What Nix puts behind an archive in an export.
const EXPORT_MAGIC: u64 = 0x4558_494e;

impl NarInfo {
    /// The rest of an export of this path alone, behind its archive: path, references, deriver, no signature, and that
    /// no path comes any more. Before the archive stands a 1, as each number in 8 bytes, the lowest first.
    pub fn export_end(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        number(&mut bytes, EXPORT_MAGIC);
        text(&mut bytes, &self.path.to_string());
        number(&mut bytes, self.references.len() as u64);
        for reference in &self.references {
            text(&mut bytes, &reference.to_string());
        }
        text(&mut bytes, &self.deriver.as_ref().map(StorePath::to_string).unwrap_or_default());
        number(&mut bytes, 0);
        number(&mut bytes, 0);
        bytes
    }
}

fn number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

/// Its length, and it, filled up to 8 bytes.
fn text(bytes: &mut Vec<u8>, text: &str) {
    number(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}
