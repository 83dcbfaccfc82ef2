//! Things of the host with a state: check, apply, remove and put back, the same for every type.

use std::collections::BTreeMap;
use std::time::Duration;

use catalog::schema;
use catalog::types::Spec;
use converge::kinds::state::difference;
use converge::kinds::{Applied, Checked, Surroundings};
use converge::run::Undo;
use converge::{JobFailure, LedgerEntry, Prior};
use lang::Value;
use model::{Edit, Fields, PathState};

use crate::Kinds;
use crate::kinds::{MAX_EDITED, text};
use crate::provider::{Notification, Provider, StateChange, StateProvider};
use crate::{custom, exec};

/// Seconds that a removal or an undo may take: no declaration says more.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(600);

/// Looks whether the thing is as declared; writes nothing.
pub(crate) fn check(
    kinds: &Kinds,
    provider: &dyn StateProvider,
    notification: Option<&Notification>,
) -> Result<Checked, String> {
    let now = provider.observe(kinds)?;
    let to = wanted(kinds, provider, now.as_ref(), notification)?;
    let Some(edit) = differs(provider, now.as_ref(), to.as_ref()) else {
        let unknown = provider.unsure(kinds)?;
        return Ok(Checked { unknown, ..Checked::in_sync(Prior::State(now)) });
    };
    let refused = provider.refuse(kinds, &edit).err().map(|why| format!("as things are now it fails: {why}"));
    let notes = refused.into_iter().chain(provider.note(&edit)).chain(provider.remark(kinds));
    let note = notes.reduce(|a, b| format!("{a}; {b}"));
    let surroundings = match edit.to() {
        Some(_) => surroundings(kinds, provider)?,
        None => Surroundings::default(),
    };
    Ok(Checked { note, surroundings, ..Checked::differs(Prior::State(now), provider.shown(edit)) })
}

/// What of the surroundings of a thing is there.
pub(crate) fn surroundings(kinds: &Kinds, provider: &dyn StateProvider) -> Result<Surroundings, String> {
    let mut found = Surroundings::default();
    for path in provider.surroundings(kinds)? {
        let list = match kinds.look(&path)? {
            PathState::Missing => &mut found.missing,
            _ => &mut found.there,
        };
        list.push(path);
    }
    Ok(found)
}

/// Looks again, makes the thing as declared, and looks whether it is. The caller has its turn.
pub(crate) fn apply(
    kinds: &Kinds,
    provider: &dyn StateProvider,
    notification: Option<&Notification>,
    timeout: Duration,
) -> Result<Applied, JobFailure> {
    let now = provider.observe(kinds)?;
    let to = wanted(kinds, provider, now.as_ref(), notification)?;
    let Some(edit) = differs(provider, now.as_ref(), to.as_ref()) else {
        return Ok(Applied { edit: None, changed: false, output: None });
    };
    provider.refuse(kinds, &edit)?;
    let output = provider.set(kinds, StateChange { now: now.as_ref(), to: to.as_ref(), timeout })?;
    let after = provider.observe(kinds)?;
    let left = differs(provider, after.as_ref(), provider.desired_here(kinds, after.as_ref())?.as_ref());
    match left {
        None => Ok(Applied { edit: Some(provider.shown(edit)), changed: true, output }),
        Some(left) => {
            Err(format!("it was set, and the host still differs: {}", summary(&provider.shown(left))).into())
        }
    }
}

/// The state that the thing should have, notified or not.
fn wanted(
    kinds: &Kinds,
    provider: &dyn StateProvider,
    now: Option<&Fields>,
    notification: Option<&Notification>,
) -> Result<Option<Fields>, String> {
    let to = provider.desired_here(kinds, now)?;
    let Some(notification) = notification else { return Ok(to) };
    Ok(provider.notified(kinds, now, to.as_ref(), notification)?.or(to))
}

/// What leads from one state to another; `None` when nothing does.
fn differs(provider: &dyn StateProvider, now: Option<&Fields>, to: Option<&Fields>) -> Option<Edit<Fields>> {
    difference(now.filter(|now| to.is_some() || !provider.is_absent(now)), to)
}

/// A thing, by what the ledger or a run kept of it.
pub(crate) struct KeptThing<'a> {
    kind: &'a str,
    name: &'a str,
    attributes: &'a BTreeMap<String, Value>,
    /// What was made around it.
    made: &'a [String],
}

impl<'a> From<&'a LedgerEntry> for KeptThing<'a> {
    fn from(entry: &'a LedgerEntry) -> KeptThing<'a> {
        let LedgerEntry { kind, path, attributes, made, .. } = entry;
        KeptThing { kind, name: path, attributes, made }
    }
}

impl<'a> From<&'a Undo> for KeptThing<'a> {
    fn from(undo: &'a Undo) -> KeptThing<'a> {
        let Undo { kind, path, attributes, made, .. } = undo;
        KeptThing { kind, name: path, attributes, made }
    }
}

/// What a thing is brought to by what the ledger or a run kept of it.
enum TakenBack<'a> {
    /// It goes; the state before Muster changed it, where that is known.
    Removed(Option<&'a Fields>),
    /// It becomes again what it was.
    PutBack(Option<&'a Fields>),
}

impl Kinds {
    /// Removes a thing that left the set, by what the ledger kept of it; false when there was
    /// nothing to do.
    ///
    /// # Errors
    /// In words, when it cannot be removed.
    pub(crate) fn remove_state(&self, kept: KeptThing<'_>, before: Option<&Fields>) -> Result<bool, String> {
        let spec = schema::bind_removal(kept.kind, kept.name, kept.attributes)?;
        match self.provider_here(&spec)? {
            Provider::Path(_) => Ok(false),
            Provider::State(provider) => self.bring(&spec, provider, &TakenBack::Removed(before), kept.made),
            Provider::Command(spec) => exec::remove(self, spec, REMOVAL_TIMEOUT),
            Provider::Script(spec) => Ok(custom::apply(self, kept.name, spec, REMOVAL_TIMEOUT)?.changed),
        }
    }

    /// Puts a thing back to the state that it had; false when there was nothing to do.
    ///
    /// # Errors
    /// In words, when it cannot be put back.
    pub(crate) fn put_state_back(
        &self,
        kept: KeptThing<'_>,
        before: Option<&Fields>,
    ) -> Result<bool, String> {
        let spec = schema::bind_removal(kept.kind, kept.name, kept.attributes)?;
        match self.provider_here(&spec)? {
            Provider::State(provider) => self.bring(&spec, provider, &TakenBack::PutBack(before), kept.made),
            Provider::Path(_) | Provider::Command(_) | Provider::Script(_) => Ok(false),
        }
    }

    fn bring(
        &self,
        spec: &Spec,
        provider: &dyn StateProvider,
        to: &TakenBack<'_>,
        made: &[String],
    ) -> Result<bool, String> {
        let _turn = self.take_turn(spec, provider.turn());
        let now = provider.observe(self)?;
        let state = match to {
            TakenBack::Removed(_) => None,
            TakenBack::PutBack(before) => *before,
        };
        let Some(edit) = differs(provider, now.as_ref(), state) else {
            return self.clear_surroundings(provider, made);
        };
        provider.refuse(self, &edit)?;
        match to {
            TakenBack::Removed(before) => provider.remove(self, now.as_ref(), *before, REMOVAL_TIMEOUT)?,
            TakenBack::PutBack(before) => {
                // What is not named is what Muster never changed: it stays as others made it.
                let whole = before.map(|to| {
                    let mut whole = now.clone().unwrap_or_default();
                    whole.extend(to.clone());
                    whole
                });
                let (to, timeout) = (whole.as_ref(), REMOVAL_TIMEOUT);
                provider.set(self, StateChange { now: now.as_ref(), to, timeout })?;
            }
        }
        self.clear_surroundings(provider, made)?;
        Ok(true)
    }

    /// Removes what was made around a thing, where nothing is left in it; whether anything was.
    fn clear_surroundings(&self, provider: &dyn StateProvider, made: &[String]) -> Result<bool, String> {
        if made.is_empty() {
            return Ok(false);
        }
        let mut cleared = false;
        for path in provider.surroundings(self)?.iter().filter(|path| made.contains(path)) {
            let empty = match self.look(path)? {
                PathState::Directory { empty, .. } => empty,
                PathState::File { size, .. } if size <= MAX_EDITED => {
                    let bytes = self.host.read(path, MAX_EDITED).map_err(text)?.unwrap_or_default();
                    provider.leaves_nothing(&bytes)
                }
                _ => false,
            };
            cleared |= empty && self.clear(path)?;
        }
        Ok(cleared)
    }

    fn provider_here<'a>(&self, spec: &'a Spec) -> Result<Provider<'a>, String> {
        let provider = Provider::of(spec);
        if provider.works_here(self) {
            Ok(provider)
        } else {
            Err(format!("nothing of the machine is changed here: {}", crate::ROOTED))
        }
    }
}

/// An edit as one line.
pub(crate) fn summary(edit: &Edit<Fields>) -> String {
    let Some(to) = edit.to() else { return "it is still there".to_owned() };
    let is = |name: &String| match edit.from().and_then(|from| from.get(name)) {
        Some(text) => format!("{text:?}"),
        None => "nothing".to_owned(),
    };
    let texts = to.iter().map(|(name, wanted)| format!("{name} is {}, wanted {wanted:?}", is(name)));
    texts.collect::<Vec<_>>().join(", ")
}
