//! What the state directory keeps for generations (ROL-10).

use std::collections::BTreeSet;

use activation::{Generation, GenerationId};
use catalog::module::ModuleBlobs;
use model::Digest;
use node::Adoption;
use spool::{DiskOp, PeekedFile, SpoolError, StateFile};

use super::{Durable, MODE, StateError, modules, spool};
use crate::generations::{ADOPTION_FILE, DIRECTORY};

impl Durable {
    /// The generation that a release is on this host, whose contents are here.
    ///
    /// # Errors
    /// When a content is missing or cannot be read.
    pub fn generation_of(&self, adoption: &Adoption) -> Result<Generation, StateError> {
        let id = GenerationId(adoption.root);
        if id == GenerationId::AS_FOUND {
            return Ok(Generation::AS_FOUND);
        }
        let contents = self.needed(adoption)?;
        let bytes = contents.iter().filter_map(|digest| self.contents.size(digest)).sum();
        Ok(Generation { id, seq: adoption.seq, bytes })
    }

    /// The same of the generation that the host was just switched to, with the trees that its images were unpacked to.
    ///
    /// # Errors
    /// When the disk refuses, or a content is missing.
    pub fn measured_generation(&self, adoption: &Adoption) -> Result<Generation, StateError> {
        let generation = self.generation_of(adoption)?;
        let trees = self.unpacked.bytes_of_trees_in_use().map_err(spool("read what was unpacked"))?;
        Ok(Generation { bytes: generation.bytes.saturating_add(trees), ..generation })
    }

    /// The contents that kept generations need.
    ///
    /// # Errors
    /// When it cannot be told what they need.
    pub(super) fn needed_by_generations(&self) -> Result<BTreeSet<Digest>, StateError> {
        let mut needed = BTreeSet::new();
        let directory = self.path.join(DIRECTORY);
        let failed = |source| {
            spool("read the kept generations")(SpoolError::Disk {
                op: DiskOp::Read,
                path: directory.clone(),
                source,
            })
        };
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(needed),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?.path();
            let is_generation =
                entry.file_name().and_then(|name| name.to_str()?.parse::<Digest>().ok()).is_some();
            if !is_generation {
                continue;
            }
            let file = entry.join(ADOPTION_FILE);
            let file: StateFile<Adoption> = StateFile::new(&self.disk, file, MODE);
            let PeekedFile::Value(adoption) = file.peek().map_err(spool("read a kept generation"))? else {
                continue;
            };
            needed.extend(adoption.objects.values().map(|stub| stub.digest));
            for module in modules(&adoption) {
                // One that is lost names nothing.
                needed.extend(
                    self.parsed::<ModuleBlobs>(module).map(|module| module.blobs).unwrap_or_default(),
                );
            }
        }
        Ok(needed)
    }
}
