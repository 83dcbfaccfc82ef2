//! Code made from the protobuf files of the wire crate: written once, committed, and held
//! current by a test, so that no build needs the compiler of such files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::FileDescriptorSet;
use tempfile::TempDir;

use crate::Outcome;

/// Where the protobuf files are.
const PROTO: &str = "crates/wire/proto";
const FILES: &[&str] = &[
    "io/cloudevents/v1/cloudevents.proto",
    "muster/v1/muster.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
];
/// Where the messages go that the wire crate reads and writes.
const MESSAGES: &str = "crates/wire/src/generated";
/// Where the descriptors of all files go, which reflection answers with: a FileDescriptorSet.
const DESCRIPTORS: &str = "crates/wire/src/generated/descriptors.bin";
/// Where the standard client goes that a test calls Muster's server with.
const CLIENT: &str = "crates/net/tests/generated";
const HEADER: &str = "//! Made from crates/wire/proto by `cargo xtask codegen`; not to be edited.\n\n";

/// Writes every generated file.
///
/// # Errors
/// When a protobuf file is wrong or a file cannot be written.
pub fn write(root: &Path) -> Outcome {
    for (path, bytes) in generate(root)? {
        let path = root.join(path);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Every generated file, by its path from the root.
///
/// # Errors
/// When a protobuf file is wrong.
pub fn generate(root: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
    let set = protox::compile(FILES, [root.join(PROTO)]).map_err(|error| error.to_string())?;
    let mut made = BTreeMap::new();
    made.insert(PathBuf::from(DESCRIPTORS), bare(&set).encode_to_vec());
    let out = tempfile::tempdir().map_err(|error| error.to_string())?;
    prost_build::Config::new()
        .out_dir(out.path())
        .btree_map(["."])
        .compile_fds(set.clone())
        .map_err(|error| error.to_string())?;
    take(&out, MESSAGES, &mut made)?;
    let out = tempfile::tempdir().map_err(|error| error.to_string())?;
    tonic_prost_build::configure()
        .build_server(false)
        .out_dir(out.path())
        .compile_fds(set)
        .map_err(|error| error.to_string())?;
    take(&out, CLIENT, &mut made)?;
    Ok(made)
}

/// The files without their comments and positions.
fn bare(set: &FileDescriptorSet) -> FileDescriptorSet {
    let mut set = set.clone();
    for file in &mut set.file {
        file.source_code_info = None;
    }
    set
}

/// What a generator wrote, as files of a directory.
fn take(from: &TempDir, to: &str, made: &mut BTreeMap<PathBuf, Vec<u8>>) -> Outcome {
    for path in crate::files(from.path(), "rs") {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().replace('.', "_");
        // The modules lie side by side, not one below the other as the packages do.
        let text = text.replace("super::super::io::cloudevents::v1::", "super::io_cloudevents_v1::");
        made.insert(Path::new(to).join(format!("{name}.rs")), format!("{HEADER}{text}").into_bytes());
    }
    Ok(())
}
