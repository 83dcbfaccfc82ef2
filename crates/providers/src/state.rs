//! Things of the host with a state: check, apply, remove and put back, the same for every type.

use std::time::Duration;

use catalog::schema;
use catalog::types::Spec;
use converge::kinds::state::difference;
use converge::kinds::{Applied, Checked};
use converge::{JobFailure, Prior};
use lang::Value;
use model::{Edit, Fields};
use std::collections::BTreeMap;

use crate::Kinds;
use crate::provider::{Notification, Provider, StateProvider};
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
    Ok(Checked { note, ..Checked::differs(Prior::State(now), provider.shown(edit)) })
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
    let output = provider.set(kinds, now.as_ref(), to.as_ref(), timeout)?;
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

impl Kinds {
    /// Removes a thing that left the set, by what the ledger kept of it; false when there was
    /// nothing to do.
    ///
    /// # Errors
    /// In words, when it cannot be removed.
    pub(crate) fn remove_state(
        &self,
        kind: &str,
        name: &str,
        attributes: &BTreeMap<String, Value>,
    ) -> Result<bool, String> {
        let spec = schema::bind_removal(kind, name, attributes)?;
        match self.provider_here(&spec)? {
            Provider::Path(_) => Ok(false),
            Provider::State(provider) => self.bring(&spec, provider, None),
            Provider::Command(spec) => exec::remove(self, spec, REMOVAL_TIMEOUT),
            Provider::Script(spec) => Ok(custom::apply(self, name, spec, REMOVAL_TIMEOUT)?.changed),
        }
    }

    /// Puts a thing back to the state that it had; false when there was nothing to do.
    ///
    /// # Errors
    /// In words, when it cannot be put back.
    pub(crate) fn put_state_back(
        &self,
        kind: &str,
        name: &str,
        attributes: &BTreeMap<String, Value>,
        before: Option<&Fields>,
    ) -> Result<bool, String> {
        let spec = schema::bind_removal(kind, name, attributes)?;
        match self.provider_here(&spec)? {
            Provider::State(provider) => self.bring(&spec, provider, before),
            Provider::Path(_) | Provider::Command(_) | Provider::Script(_) => Ok(false),
        }
    }

    fn bring(&self, spec: &Spec, provider: &dyn StateProvider, to: Option<&Fields>) -> Result<bool, String> {
        let _turn = self.take_turn(spec, provider.turn());
        let now = provider.observe(self)?;
        let Some(edit) = differs(provider, now.as_ref(), to) else { return Ok(false) };
        provider.refuse(self, &edit)?;
        // What is not named is what Muster never changed: it stays as others made it.
        let whole = to.map(|to| {
            let mut whole = now.clone().unwrap_or_default();
            whole.extend(to.clone());
            whole
        });
        provider.set(self, now.as_ref(), whole.as_ref(), REMOVAL_TIMEOUT)?;
        Ok(true)
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
