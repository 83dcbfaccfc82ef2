//! Control planes over one store: each decides over what it holds, and what is stored decides who was right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::status::Contact;
use model::{NodeId, Timestamp};
use rollout::{
    BudgetVersions, MemberRecord, NextCall, RolloutAnswer, RolloutCommit, RolloutDocument, RolloutInput,
    RolloutKey, RolloutState, Rollouts, StoredRollout,
};
use trust::RolloutTerms;

/// Every so many commits go through the form in which they are stored.
const READ_AGAIN_EVERY: u64 = 32;

/// What is stored.
#[derive(Clone, Default)]
pub struct Database {
    pub rollouts: BTreeMap<RolloutKey, StoredRows>,
    pub budgets: BudgetVersions,
    /// How many commits were stored.
    commits: u64,
}

#[derive(Clone)]
pub struct StoredRows {
    pub document: RolloutDocument,
    pub terms: Arc<RolloutTerms>,
    pub members: BTreeMap<NodeId, MemberRecord>,
}

impl Database {
    fn guards_hold(&self, commit: &RolloutCommit) -> bool {
        let version = |key: &RolloutKey| self.rollouts.get(key).map_or(0, |rows| rows.document.version);
        commit.rollouts.iter().all(|change| version(&change.document.key) == change.expected)
            && commit
                .budgets
                .iter()
                .all(|guard| self.budgets.get(&guard.budget).copied().unwrap_or(0) == guard.expected)
    }

    fn before(&self, commit: RolloutCommit) -> StoredCommit {
        let (mut members, mut documents) = (BTreeMap::new(), BTreeMap::new());
        for change in &commit.rollouts {
            let key = &change.document.key;
            let Some(rows) = self.rollouts.get(key) else { continue };
            documents.insert(key.clone(), rows.document.clone());
            for member in &change.members {
                if let Some(before) = rows.members.get(&member.node) {
                    members.insert((key.clone(), member.node.clone()), before.clone());
                }
            }
        }
        StoredCommit { commit, members, documents }
    }

    fn apply(&mut self, commit: &RolloutCommit, headers: &BTreeMap<RolloutKey, Arc<RolloutTerms>>) {
        for change in &commit.rollouts {
            let key = &change.document.key;
            let rows = self.rollouts.entry(key.clone()).or_insert_with(|| StoredRows {
                document: change.document.clone(),
                terms: headers[key].clone(),
                members: BTreeMap::new(),
            });
            rows.document = change.document.clone();
            if self.commits.is_multiple_of(READ_AGAIN_EVERY) {
                // What is stored is what can be read again.
                let text = serde_json::to_string(&change.document).unwrap();
                rows.document = serde_json::from_str(&text).unwrap();
            }
            if change.drops_members {
                rows.members.clear();
            }
            change.removed.iter().for_each(|node| {
                rows.members.remove(node);
            });
            for member in &change.members {
                rows.members.insert(member.node.clone(), member.clone());
            }
        }
        self.commits += 1;
        for guard in &commit.budgets {
            self.budgets.insert(guard.budget.clone(), guard.next);
        }
    }

    pub fn stored(&self, keys: impl IntoIterator<Item = RolloutKey>) -> Vec<StoredRollout> {
        let rows = keys.into_iter().filter_map(|key| self.rollouts.get(&key));
        let rows = rows.filter(|rows| rows.document.state != RolloutState::Pruned);
        rows.map(|rows| StoredRollout {
            document: rows.document.clone(),
            terms: rows.terms.clone(),
            members: rows.members.values().cloned().collect(),
        })
        .collect()
    }

    /// The versions of the rollouts that a node is in.
    pub fn versions(&self, node: &NodeId) -> BTreeMap<RolloutKey, u64> {
        let of = self.rollouts.values().filter(|rows| rows.members.contains_key(node));
        of.map(|rows| (rows.document.key.clone(), rows.document.version)).collect()
    }

    pub fn all(&self) -> Vec<StoredRollout> {
        self.stored(self.rollouts.keys().cloned())
    }
}

/// What came of an input.
pub struct Handled {
    pub answer: RolloutAnswer,
    pub commit: Option<StoredCommit>,
}

/// A commit that was stored, with what was there before.
pub struct StoredCommit {
    pub commit: RolloutCommit,
    pub members: BTreeMap<(RolloutKey, NodeId), MemberRecord>,
    pub documents: BTreeMap<RolloutKey, RolloutDocument>,
}

/// One control plane.
pub struct Plane {
    pub rollouts: Rollouts,
    /// Who it heard is reached.
    pub told: BTreeMap<NodeId, (Contact, NextCall)>,
    /// How many commits there were when it read all.
    read: u64,
}

impl Plane {
    /// One that starts: it has what is stored, and has heard of nobody.
    pub fn start(database: &Database) -> Plane {
        let mut rollouts = Rollouts::new();
        rollouts.reload(database.all(), &[], database.budgets.clone());
        Plane { rollouts, told: BTreeMap::new(), read: database.commits }
    }

    /// Whether it has not read one of these versions yet.
    pub fn is_behind(&self, versions: &BTreeMap<RolloutKey, u64>) -> bool {
        let held = |key| self.rollouts.document(key).map_or(0, |document| document.version);
        versions.iter().any(|(key, version)| held(key) < *version)
    }

    /// Takes what others stored; whether there was anything.
    pub fn follow(&mut self, database: &Database) -> bool {
        if self.read == database.commits {
            return false;
        }
        self.read = database.commits;
        let held: BTreeMap<RolloutKey, u64> =
            self.rollouts.documents().map(|document| (document.key.clone(), document.version)).collect();
        let keys: BTreeSet<RolloutKey> = held.keys().chain(database.rollouts.keys()).cloned().collect();
        let differs = |key: &RolloutKey| {
            let rows = database.rollouts.get(key);
            let rows = rows.filter(|rows| rows.document.state != RolloutState::Pruned);
            rows.map(|rows| rows.document.version) != held.get(key).copied()
        };
        let keys: Vec<RolloutKey> = keys.into_iter().filter(differs).collect();
        let stored = database.stored(keys.iter().cloned());
        self.rollouts.reload(stored, &keys, database.budgets.clone());
        !keys.is_empty()
    }

    /// Decides, stores, and says what came of it.
    pub fn handle(
        &mut self,
        input: &RolloutInput,
        now: Timestamp,
        database: &mut Database,
        headers: &BTreeMap<RolloutKey, Arc<RolloutTerms>>,
        reached: &mut BTreeMap<&'static str, u64>,
    ) -> Handled {
        // Who came or went is decided over what is stored: a rollout that is not known here has members too.
        if matches!(input, RolloutInput::Joined { .. } | RolloutInput::Removed { .. }) {
            self.follow(database);
        }
        for attempt in 0.. {
            assert!(attempt < 4, "a decision over what is stored is lost again and again");
            let step = self.rollouts.handle(input.clone(), now);
            let Some(commit) = step.commit else {
                let comes_again = matches!(input, RolloutInput::Tick | RolloutInput::Contact { .. });
                if !comes_again && self.follow(database) {
                    continue;
                }
                return Handled { answer: step.answer, commit: None };
            };
            if database.guards_hold(&commit) {
                let before = database.before(commit);
                self.read += u64::from(self.read == database.commits);
                database.apply(&before.commit, headers);
                return Handled { answer: step.answer, commit: Some(before) };
            }
            *reached.entry("decision lost").or_default() += 1;
            let concerned: BTreeSet<RolloutKey> =
                commit.rollouts.iter().map(|change| change.document.key.clone()).collect();
            // The decision is dropped from memory, whatever others stored.
            let concerned: Vec<RolloutKey> = concerned.into_iter().collect();
            let stored = database.stored(concerned.iter().cloned());
            self.rollouts.reload(stored, &concerned, database.budgets.clone());
            self.follow(database);
        }
        unreachable!()
    }
}
