//! One object of a stored tree, by the pieces on the way to it alone.
//!
//! Who holds these pieces shows to anybody who knows the root that the object is below it; who has them
//! not yet learns by [`DescentError::Missing`] which one is next.

use crate::Digest;
use crate::chunk::{ChunkError, TreeChunk};
use crate::descent::{DescentError, MAX_DEPTH};
use crate::object::{ObjectKey, SectionKey, Stub};
use crate::trie::{TrieNode, nibble_at};

/// Where the pieces of a tree are had from.
pub type ChunkSource<'a> = &'a dyn Fn(&Digest) -> Option<TreeChunk>;

/// The object of a set, or `None` where the set has none of that name. Each piece is verified against the
/// hash by which the one above names it.
///
/// # Errors
/// When a piece is missing, malformed, or not the one that is named.
pub fn find_object(
    root: &Digest,
    key: &ObjectKey,
    chunks: ChunkSource<'_>,
) -> Result<Option<Stub>, DescentError> {
    let TreeChunk::Set { sections } = read(root, chunks)? else {
        return Err(ChunkError::Malformed("not a set").into());
    };
    let wanted = &key.section;
    let mut here = sections.into_iter();
    let found = here.find(|one| one.kind == wanted.kind.as_str() && one.namespace == *wanted.namespace);
    match found.map(|section| (section.leaf, section.root)) {
        None => Ok(None),
        Some((Some(leaf), _)) => Ok((leaf.name == key.name).then_some(leaf.stub)),
        Some((None, None)) => Err(ChunkError::Malformed("a section has a root or one leaf").into()),
        Some((None, Some(root))) => {
            let nodes = nodes_to(&root, wanted, &key.name, chunks)?;
            let Some(TrieNode::Bucket(leaves)) = nodes.into_iter().last() else { return Ok(None) };
            Ok(leaves.into_iter().find(|leaf| leaf.name == key.name).map(|leaf| leaf.stub))
        }
    }
}

/// The nodes of a section's trie from its root to the bucket in which a name belongs, or to the branch that
/// has nothing there; none of an empty trie.
///
/// # Errors
/// As [`find_object`].
pub fn nodes_to(
    root: &Digest,
    section: &SectionKey,
    name: &str,
    chunks: ChunkSource<'_>,
) -> Result<Vec<TrieNode>, DescentError> {
    let position = Digest::of(name.as_bytes());
    let (mut nodes, mut at) = (Vec::new(), *root);
    while at != Digest::ZERO && nodes.len() <= MAX_DEPTH {
        let node = read(&at, chunks)?.into_node();
        let (of, node) = node.ok_or(ChunkError::Malformed("not a part of a section"))?;
        at = match &node {
            TrieNode::Branch(children) => children[nibble_at(&position, nodes.len())],
            TrieNode::Bucket(_) if of != *section => {
                return Err(ChunkError::Malformed("a bucket of another section").into());
            }
            TrieNode::Bucket(_) => Digest::ZERO,
        };
        nodes.push(node);
    }
    Ok(nodes)
}

fn read(digest: &Digest, chunks: ChunkSource<'_>) -> Result<TreeChunk, DescentError> {
    let chunk = chunks(digest).ok_or(DescentError::Missing(*digest))?;
    if chunk.hash()? == *digest { Ok(chunk) } else { Err(DescentError::Unwanted(*digest)) }
}
