//! What a release grants to a node besides its resources: its channel's settings, what is
//! synchronized, and what the control plane may ask for; and what differs in it.

use std::collections::BTreeMap;

use bytes::Bytes;
use catalog::{channel, delegation, sync};
use model::canonical::{self, CanonicalError};
use model::delta::{Delta, Edit};
use model::policy::Policy;
use model::replication::SyncPolicy;
use model::work::Delegation;
use model::{Fields, Kind};
use resolve::Grants;

use super::line::Line;

/// What one side of the comparison grants to a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    policy: Option<Policy>,
    sync: Option<SyncPolicy>,
    delegations: BTreeMap<String, Delegation>,
}

impl Granted {
    /// What a new release grants.
    pub(super) fn of(policy: &Policy, grants: &Grants) -> Result<Granted, CanonicalError> {
        let delegations = grants.read_delegations()?.into_iter();
        Ok(Granted {
            policy: Some(policy.clone()),
            sync: grants.read_sync()?,
            delegations: delegations.map(|(name, content)| (name.to_string(), content)).collect(),
        })
    }

    /// What a published set grants; `contents` are its objects of a kind.
    pub(super) fn read<I: Iterator<Item = (String, Bytes)>>(
        contents: &impl Fn(&'static str) -> I,
    ) -> Result<Granted, CanonicalError> {
        let one = |kind| contents(kind).map(|(_, content)| content).next();
        let delegations = contents(Kind::DELEGATION);
        let delegation = |(name, content): (String, Bytes)| Ok((name, canonical::parse(&content)?));
        Ok(Granted {
            policy: one(Kind::POLICY).map(|content| canonical::parse(&content)).transpose()?,
            sync: one(Kind::SYNC).map(|content| canonical::parse(&content)).transpose()?,
            delegations: delegations.map(delegation).collect::<Result<_, CanonicalError>>()?,
        })
    }

    fn delegated(&self) -> BTreeMap<String, Fields> {
        let items = |(name, content): (&String, &Delegation)| {
            let items = delegation::permits(content).into_iter();
            let name = name.clone();
            items.map(move |(item, fields)| (format!("delegation {name}: {item}"), fields))
        };
        self.delegations.iter().flat_map(items).collect()
    }

    fn synchronized(&self) -> BTreeMap<String, Fields> {
        self.sync.iter().map(|policy| ("synchronization".to_owned(), sync::fields(policy))).collect()
    }
}

/// What differs: first of all what becomes allowed.
pub(super) fn delta(old: &Granted, new: &Granted) -> Delta<Line, Fields> {
    let delegated = Delta::between(&old.delegated(), &new.delegated());
    let synchronized = Delta::between(&old.synchronized(), &new.synchronized());
    let asks = |edit: &Edit<Fields>| match edit {
        Edit::Add { .. } => Some("the control plane MAY NOW ask for it"),
        Edit::Change { .. } => Some("MAY NOW be asked for otherwise"),
        Edit::Remove { .. } => Some("may no longer be asked for"),
    };
    let syncs = |edit: &Edit<Fields>| match edit {
        Edit::Add { .. } => Some("BEGINS: objects come and go by what the other side says"),
        Edit::Change { .. } => None,
        Edit::Remove { .. } => Some("ends"),
    };
    let lines = noted(delegated, asks).chain(noted(synchronized, syncs));
    Delta { edits: lines.chain(noted(settings(old, new), |_| None)).collect() }
}

/// What differs in the channel's settings; nothing for a node that had none, or gets none.
fn settings(old: &Granted, new: &Granted) -> Delta<String, Fields> {
    let (Some(old), Some(new)) = (&old.policy, &new.policy) else { return Delta::default() };
    let part = |policy| BTreeMap::from([("settings of the channel".to_owned(), channel::fields(policy))]);
    Delta::between(&part(old), &part(new))
}

fn noted(
    delta: Delta<String, Fields>,
    note: impl Fn(&Edit<Fields>) -> Option<&'static str>,
) -> impl Iterator<Item = (Line, Edit<Fields>)> {
    delta.edits.into_iter().map(move |(id, edit)| (Line { id, note: note(&edit).map(str::to_owned) }, edit))
}
