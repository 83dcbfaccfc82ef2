//! The secrets of an earlier release, asked for anew: what a rollback points to has the values of now (SEC-1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::chunk::{self, ChunkError, TreeChunk};
use model::selection::{PatternEntry, SelectionEntry};
use model::trie::{Leaf, Top, Trie};
use model::{Digest, Hostname, Kind, SectionKey, Selection};
use resolve::Fleet;
use resolve::secrets::{AwaitedStatements, NotSealed, Resealer, SecretNeeds, sealed_in};

use crate::failure::{Failure, UserError};
use crate::publish::{PublishError, Publisher, upload_parts};
use crate::remote::{self, OldSets, RemoteError};
use crate::secret::{self, SecretPublisher, SecretSettings, StatementRelay};

/// Why the secrets of an earlier release are not sealed anew.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResealError {
    /// The release cannot be read.
    #[error("the earlier release cannot be read")]
    Remote(#[from] RemoteError),
    /// A secret cannot be sealed.
    #[error("a secret of the earlier release cannot be sealed")]
    Seal(#[from] NotSealed),
    /// What was made has no canonical form.
    #[error("the release has no canonical form")]
    Chunk(#[from] ChunkError),
}

impl UserError for ResealError {}

/// An earlier release with the secrets of now.
pub(super) struct ResealedRelease {
    /// What headers name.
    pub(super) root: Digest,
    /// Its secrets, by name.
    pub(super) names: BTreeSet<String>,
    /// Nodes for which nothing is sealed although they need it.
    pub(super) blocked: Vec<Arc<str>>,
    contents: BTreeMap<Digest, Arc<[u8]>>,
    chunks: Vec<(Digest, TreeChunk)>,
}

impl ResealedRelease {
    /// Seals the secrets of a selection anew: with what their sources say now, for whom the fleet repo names now.
    /// `None` where it has none.
    pub(super) async fn of(
        publisher: &Publisher,
        selection: &Digest,
        fleet: &Fleet,
        settings: SecretSettings,
    ) -> Result<Option<ResealedRelease>, Failure> {
        let operator = publisher.operator();
        let top = remote::top(operator, selection).await.map_err(ResealError::Remote)?;
        let selection = remote::selection(operator, &top).await.map_err(ResealError::Remote)?;
        let roots: BTreeSet<Digest> = entries(&selection).into_iter().map(|entry| entry.root).collect();
        let roots: Vec<Digest> = roots.into_iter().collect();
        let mut sets = OldSets::default();
        sets.load(operator, &roots).await.map_err(ResealError::Remote)?;
        let mut names = BTreeSet::new();
        for root in &roots {
            names.extend(sealed_in(&sets.get(root).map_err(ResealError::Remote)?));
        }
        if names.is_empty() {
            return Ok(None);
        }
        let mut secrets = SecretPublisher::default();
        secrets.settings = Some(settings);
        let values =
            secrets.values(fleet, &SecretNeeds::of_names(names.clone()), publisher.sealing_signer())?;
        let relay = StatementRelay { operator, fleet: &publisher.head().trust.fleet };
        let stated =
            secret::stated(relay, &AwaitedStatements::all(fleet)).await.map_err(PublishError::Call)?;
        secret::tell_refused(&stated);
        let recipients = secret::keys_of(fleet, &stated);
        let pass = ResealPass {
            sets: &sets,
            resealer: Resealer::new(&values, &recipients),
            blocked: Vec::new(),
            contents: BTreeMap::new(),
            chunks: Vec::new(),
            sections: BTreeSet::new(),
        };
        Ok(Some(pass.release(&selection, names)?))
    }

    /// Sends what the control plane lacks of it.
    pub(super) async fn upload(&mut self, publisher: &Publisher) -> Result<(), PublishError> {
        let (contents, chunks) = (std::mem::take(&mut self.contents), std::mem::take(&mut self.chunks));
        upload_parts(publisher.operator(), contents, chunks).await
    }
}

fn entries(selection: &Selection) -> Vec<SelectionEntry> {
    let exact = selection.exact().leaves().filter_map(|leaf| Selection::entry_of(leaf));
    exact.chain(selection.patterns().iter().map(|pattern| pattern.entry.clone())).collect()
}

/// One pass over the entries of a selection.
struct ResealPass<'s> {
    sets: &'s OldSets,
    resealer: Resealer<'s>,
    blocked: Vec<Arc<str>>,
    contents: BTreeMap<Digest, Arc<[u8]>>,
    /// Each after all that lies below it.
    chunks: Vec<(Digest, TreeChunk)>,
    /// The sections of sealed values whose chunks are there.
    sections: BTreeSet<Digest>,
}

impl ResealPass<'_> {
    fn release(
        mut self,
        selection: &Selection,
        names: BTreeSet<String>,
    ) -> Result<ResealedRelease, ResealError> {
        let mut leaves: Vec<Leaf> = Vec::new();
        for leaf in selection.exact().leaves() {
            leaves.push(match Selection::entry_of(leaf).zip(leaf.name.parse::<Hostname>().ok()) {
                Some((entry, hostname)) => Selection::leaf(&hostname, &self.entry(&leaf.name, &entry)?),
                None => Leaf::clone(leaf),
            });
        }
        let mut patterns: Vec<PatternEntry> = Vec::new();
        for pattern in selection.patterns() {
            let entry = self.entry(&pattern.pattern.as_str().into(), &pattern.entry)?;
            patterns.push(PatternEntry { entry, ..pattern.clone() });
        }
        let selection = Selection::new(Trie::build(leaves), patterns);
        self.trie(&Selection::section(), selection.exact())?;
        let top = chunk::of_selection(&selection);
        let root = top.hash()?;
        self.chunks.push((root, top));
        let ResealPass { blocked, contents, chunks, .. } = self;
        Ok(ResealedRelease { root, names, blocked, contents, chunks })
    }

    /// The entry of a node or a pattern, with the set that its secrets make.
    fn entry(&mut self, name: &Arc<str>, entry: &SelectionEntry) -> Result<SelectionEntry, ResealError> {
        let set = self.sets.get(&entry.root)?;
        let Some(resealed) = self.resealer.set(name, &set)? else { return Ok(entry.clone()) };
        // Whether a pattern's nodes have keys is not known: those that have one are named exactly.
        if resealed.is_blocked && name.parse::<Hostname>().is_ok() {
            self.blocked.push(name.clone());
        }
        self.contents.extend(resealed.contents);
        // A section of one object stands in the set itself.
        if resealed.sealed.len() > 1 && self.sections.insert(resealed.sealed.hash()) {
            self.trie(&SectionKey::of(Kind::SECRET_REF), &resealed.sealed)?;
        }
        let chunk = chunk::of_set(&resealed.set);
        let root = resealed.set.root();
        self.chunks.push((chunk.hash()?, chunk));
        Ok(SelectionEntry { root, ..entry.clone() })
    }

    fn trie(&mut self, section: &SectionKey, trie: &Trie) -> Result<(), ResealError> {
        if let Top::Branch(children) = trie.top() {
            for child in children.iter().filter(|child| !child.is_empty()) {
                self.trie(section, child)?;
            }
        }
        if let Some(chunk) = chunk::of_trie(section, trie) {
            self.chunks.push((chunk.hash()?, chunk));
        }
        Ok(())
    }
}
