//! `muster-agent why RESOURCE`: what the agent knows of one resource.

use std::collections::BTreeMap;
use std::fmt;

use catalog::module::{DeclaredResource, Module, OnRemove};
use model::collect::CollectInserting;

use converge::{BoundModule, BoundResource, Desired, LedgerEntry, Prior, ResourceId, When};
use lang::Value;
use model::delta::render_edit;
use model::text::same_cause;
use model::{Contention, Kind, ObjectKey, PathState, ResourceReport, Timestamp};
use node::Adoption;
use serde::{Deserialize, Serialize};

use crate::activations::ActivationView;
use crate::clock::now;
use crate::outcomes::{LastRunView, ResourceOutcome};
use crate::render::{self, word};
use crate::runner::{Runner, RunnerError};
use crate::state::{Durable, StateError};

/// The most similar names that an error gives.
const MAX_SIMILAR: usize = 5;

/// Why a resource cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// There is none of this name, or more than one.
    #[error("{}", unknown(name, similar, *more))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        similar: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// The set cannot be bound.
    #[error("the resources of this host are not known")]
    Runner(#[from] RunnerError),
    /// The state cannot be read.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
}

fn unknown(name: &str, similar: &[String], more: usize) -> String {
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    match similar {
        [] => format!("no resource of this host is called {name}"),
        [one] => format!("no resource of this host is called {name}; did you mean {one}?"),
        several => {
            format!("no one resource of this host is called {name}; there are {}{others}", several.join(", "))
        }
    }
}

/// One resource, explained.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceExplanation {
    /// `module/type:name`.
    pub resource: ResourceId,
    /// Its module.
    pub module: String,
    /// Its type.
    pub kind: String,
    /// Its place in the run, from 1, and how many there are.
    pub position: (usize, usize),
    /// It runs only when it is notified.
    #[serde(default)]
    pub handler: bool,
    /// It only observes.
    #[serde(default)]
    pub observe: bool,
    /// Its content is shown nowhere.
    #[serde(default)]
    pub sensitive: bool,
    /// Its attributes as the release declares them; absent where that is not known, values absent where
    /// the resource is sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<BTreeMap<String, Option<serde_json::Value>>>,
    /// Its condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Why it cannot be bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Their failure skips it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// They come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// It notifies them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifies: Vec<String>,
    /// They notify it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notified_by: Vec<String>,
    /// It was notified, and has not run since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed_by: Vec<String>,
    /// What the last run came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ResourceOutcome>,
    /// What the last run's report says of it, if it was not simply right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ResourceReport>,
    /// On how many other nodes it fails for the same cause, as the control plane said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_cause: Option<u32>,
    /// When the last run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Timestamp>,
    /// Something else changes it again and again, as far as the daemon knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// What of the way to this host it touches: a contact follows each change of it (CNV-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches: Option<String>,
    /// How the guarded run stands that changed it, or why it is held back, as far as the daemon knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// What happens when it leaves the release.
    pub on_remove: OnRemove,
    /// When Muster first changed it, and what was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
    /// How the activation of another release stands, or that this host went back from one: it may declare the resource
    /// otherwise (ROL-7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationView>,
}

/// What the ledger knows of a resource, without content.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerView {
    /// When it was first changed.
    pub at: Timestamp,
    /// What was there before.
    pub prior: String,
    /// What happens when it leaves the release, as declared last.
    pub on_remove: OnRemove,
    /// Why that cannot bring everything back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_restore: Option<String>,
}

impl LedgerView {
    fn of(entry: &LedgerEntry) -> LedgerView {
        let restores = entry.on_remove == OnRemove::Restore;
        LedgerView {
            at: entry.at,
            prior: prior(entry),
            on_remove: entry.on_remove,
            cannot_restore: entry.cannot_restore().filter(|_| restores).map(str::to_owned),
        }
    }
}

/// Explains the resource of this name: its id, or as much of its end as only one has.
///
/// # Errors
/// When there is none such, or nothing can be read.
pub fn explain(
    runner: &Runner,
    durable: &Durable,
    traits: &Value,
    last: Option<&LastRunView>,
    name: &str,
) -> Result<ResourceExplanation, WhyError> {
    let adoption = durable.adoption()?.ok_or(RunnerError::NothingHeld)?;
    let desired = runner.desired(&adoption, traits)?;
    let found = find(&desired, name)?;
    let module = module_of(durable, &adoption, &found.module.name)?;
    let mut explained = found.explain(&desired);
    let resource = found.resource;
    explained.declared = module.as_ref().and_then(|module| declared(module, &found)).map(|declared| {
        let shown = |value: &Value| (!resource.sensitive).then(|| serde_json::to_value(value).ok()).flatten();
        declared.attributes.iter().map(|(name, value)| (name.clone(), shown(value))).collect_inserting()
    });
    if let Some(last) = last {
        explained.outcome = last.resources.iter().find(|known| known.resource == resource.id).cloned();
        explained.report = last.item(resource.id.as_str()).cloned();
        explained.last_run = Some(last.started);
    }
    let owed = durable.pending()?.notified.remove(&resource.id).unwrap_or_default();
    explained.owed_by = owed.iter().map(ToString::to_string).collect();
    let entry = durable.ledger()?.entries.remove(&resource.id);
    explained.ledger = entry.as_ref().map(LedgerView::of);
    Ok(explained)
}

/// A resource, where it stands.
struct FoundResource<'a> {
    module: &'a BoundModule,
    resource: &'a BoundResource,
    /// Its place in the run, from 0.
    position: usize,
    /// Its place among the module's resources, or handlers.
    slot: usize,
    handler: bool,
}

fn all(desired: &Desired) -> impl Iterator<Item = FoundResource<'_>> {
    let found = desired.modules.iter().flat_map(|module| {
        let resources = module.resources.iter().enumerate().map(|at| (at, false));
        let handlers = module.handlers.iter().enumerate().map(|at| (at, true));
        resources.chain(handlers).map(|((slot, resource), handler)| (&**module, &**resource, slot, handler))
    });
    found.enumerate().map(|(position, (module, resource, slot, handler))| FoundResource {
        module,
        resource,
        position,
        slot,
        handler,
    })
}

fn find<'a>(desired: &'a Desired, name: &str) -> Result<FoundResource<'a>, WhyError> {
    if let Some(found) = all(desired).find(|found| found.resource.id.as_str() == name) {
        return Ok(found);
    }
    // As people name them: `file:/etc/motd`, `/etc/motd`, `nginx`.
    let is_called = |found: &FoundResource<'_>| {
        let resource = found.resource;
        resource.name == name
            || name.strip_prefix(&*resource.kind).and_then(|rest| rest.strip_prefix(':'))
                == Some(&*resource.name)
    };
    let mut called: Vec<FoundResource<'_>> = all(desired).filter(is_called).collect();
    if called.is_empty() {
        called.extend(all(desired).filter(|found| found.resource.id.as_str().ends_with(name)));
    }
    if called.len() == 1
        && let Some(found) = called.pop()
    {
        return Ok(found);
    }
    let mut similar: Vec<String> = called.iter().map(|found| found.resource.id.to_string()).collect();
    if similar.is_empty() {
        let inside = all(desired).filter(|found| found.resource.id.as_str().contains(name));
        similar.extend(inside.map(|found| found.resource.id.to_string()));
    }
    if similar.is_empty() {
        let ids = || all(desired).map(|found| (found.resource.id.as_str(), found.resource));
        let near = lang::nearest(name, ids().map(|(id, _)| id)).or_else(|| {
            let near = lang::nearest(name, ids().map(|(_, resource)| resource.name.as_str()))?;
            ids().find(|(_, resource)| resource.name == near).map(|(id, _)| id)
        });
        similar.extend(near.map(str::to_owned));
    }
    let more = similar.len().saturating_sub(MAX_SIMILAR);
    similar.truncate(MAX_SIMILAR);
    Err(WhyError::Unknown { name: name.to_owned(), similar, more })
}

fn module_of(durable: &Durable, adoption: &Adoption, name: &str) -> Result<Option<Module>, StateError> {
    let Some(stub) = adoption.objects.get(&ObjectKey::of(Kind::MODULE, name)) else { return Ok(None) };
    // A module that cannot be read is the run's to report.
    Ok(model::canonical::parse(&durable.content(&stub.digest)?).ok())
}

/// The declaration that a resource was bound from, where that is certain: by its name, else by its place.
fn declared<'a>(module: &'a Module, found: &FoundResource<'_>) -> Option<&'a DeclaredResource> {
    let (declared, bound) = match found.handler {
        true => (&module.handlers, found.module.handlers.len()),
        false => (&module.resources, found.module.resources.len()),
    };
    let same = |one: &&DeclaredResource| one.kind == found.resource.kind;
    let by_name = declared.iter().filter(same).find(|one| one.name == found.resource.name);
    let by_slot = || declared.get(found.slot).filter(same).filter(|_| declared.len() == bound);
    by_name.or_else(by_slot)
}

impl FoundResource<'_> {
    /// What binding alone says.
    fn explain(&self, desired: &Desired) -> ResourceExplanation {
        let (module, resource) = (self.module, self.resource);
        let ids = |ids: &[ResourceId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        let notified_by = all(desired).filter(|other| other.resource.notify.contains(&resource.id));
        let modules = module.depends_on.iter().map(|name| format!("module {name}"));
        ResourceExplanation {
            resource: resource.id.clone(),
            module: module.name.clone(),
            kind: resource.kind.clone(),
            position: (self.position + 1, all(desired).count()),
            handler: self.handler,
            observe: desired.observe || resource.observe,
            sensitive: resource.sensitive,
            declared: None,
            when: condition(&resource.when).or_else(|| condition(&module.when)),
            problem: match (&resource.when, &resource.spec) {
                (When::Never(_), _) => None,
                (_, Err(_)) if resource.sensitive => Some("its attributes cannot be bound".to_owned()),
                (_, Err(why)) => Some(why.to_string()),
                (_, Ok(_)) => module.error.as_ref().map(ToString::to_string),
            },
            depends_on: modules.chain(ids(&resource.depends_on)).collect(),
            after: ids(&resource.after),
            notifies: ids(&resource.notify),
            notified_by: notified_by.map(|other| other.resource.id.to_string()).collect(),
            owed_by: Vec::new(),
            outcome: None,
            report: None,
            same_cause: None,
            last_run: None,
            contention: None,
            reaches: converge::guarded::reach(resource).map(|reach| reach.to_string()),
            guard: None,
            on_remove: resource.on_remove,
            ledger: None,
            activation: None,
        }
    }
}

fn condition(when: &When) -> Option<String> {
    match when {
        When::Always => None,
        When::Never(source) => Some(format!("{source} (false here)")),
        When::Ask(condition) => Some(format!("{} (asked in each run)", condition.source())),
        When::Failed(why) => Some(format!("when: {why}")),
    }
}

impl fmt::Display for ResourceExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, all) = self.position;
        writeln!(f, "{}", self.resource)?;
        let what = if self.handler { "handler, runs when it is notified" } else { "resource" };
        writeln!(f, "module         {} ({what} {place} of {all} in a run)", self.module)?;
        if let Some(declared) = &self.declared {
            for (name, value) in declared {
                let value = value.as_ref().map_or("(hidden: it is sensitive)".to_owned(), shown);
                writeln!(f, "declared       {name}: {value}")?;
            }
        }
        if self.observe {
            writeln!(f, "observe        it only observes, and is not changed")?;
        }
        if let Some(when) = &self.when {
            writeln!(f, "when           {when}")?;
        }
        if let Some(problem) = &self.problem {
            writeln!(f, "problem        {problem}")?;
        }
        if let Some(contention) = &self.contention {
            writeln!(f, "CONTENDED      {}", contention.details(now()))?;
        }
        if let Some(reaches) = &self.reaches {
            writeln!(
                f,
                "guarded        it touches {reaches}: undone where no contact follows a change of it"
            )?;
        }
        if let Some(guard) = &self.guard {
            writeln!(f, "GUARDED        {}", model::text::one_line(guard))?;
        }
        for (name, resources) in [
            ("depends on", &self.depends_on),
            ("comes after", &self.after),
            ("notifies", &self.notifies),
            ("notified by", &self.notified_by),
            ("owes a run to", &self.owed_by),
        ] {
            if !resources.is_empty() {
                writeln!(f, "{name:<14} {}", resources.join(", "))?;
            }
        }
        self.show_outcome(f)?;
        self.show_ledger(f)?;
        match &self.activation {
            Some(activation) => writeln!(f, "ROLLOUT        {activation}"),
            None => Ok(()),
        }
    }
}

impl ResourceExplanation {
    fn show_outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(outcome) = &self.outcome else {
            return writeln!(f, "last run       it was in none yet");
        };
        let what = word(outcome.action);
        let at = self.last_run.map(|at| format!(", run of {}", render::when(at, now()))).unwrap_or_default();
        writeln!(f, "last run       {what}, took {} ms{at}", outcome.duration_ms)?;
        writeln!(f, "so since       {}", render::when(outcome.since, now()))?;
        match outcome.changed {
            Some(at) => writeln!(f, "last changed   {}", render::when(at, now()))?,
            None => writeln!(f, "last changed   never, as far as is known")?,
        }
        let Some(report) = &self.report else { return Ok(()) };
        if let Some(reason) = &report.reason {
            writeln!(f, "cause          {}", reason.replace('\n', "\n               "))?;
        }
        if let Some(others) = self.same_cause {
            writeln!(f, "               {}", same_cause(others))?;
        }
        if let Some(edit) = &report.edit {
            let mut text = String::new();
            render_edit(&mut text, self.resource.as_str(), edit);
            write!(f, "{text}")?;
        }
        Ok(())
    }

    fn show_ledger(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entry) = &self.ledger else {
            return writeln!(f, "ledger         no entry: Muster changed nothing of it");
        };
        let at = render::when(entry.at, now());
        writeln!(f, "ledger         first changed {at}; before it there was {}", entry.prior)?;
        let goes = match entry.on_remove {
            OnRemove::Keep => "it stays as it is and is forgotten",
            OnRemove::Delete => "it is deleted",
            OnRemove::Restore => "what was there before is put back",
        };
        writeln!(f, "on removal     {goes}")?;
        match &entry.cannot_restore {
            Some(why) => writeln!(f, "               but not whole: {why}"),
            None => Ok(()),
        }
    }
}

fn prior(entry: &LedgerEntry) -> String {
    match &entry.prior {
        Prior::Path(PathState::File { size, mode, .. }) => format!("a file of {size} bytes, mode {mode:04o}"),
        Prior::Path(PathState::Symlink { target }) => format!("a symlink to {target}"),
        Prior::Path(other) => other.what().to_owned(),
        Prior::State(None) => "nothing".to_owned(),
        Prior::State(Some(_)) if entry.sensitive => "another state (hidden: it is sensitive)".to_owned(),
        Prior::State(Some(fields)) => {
            let fields = fields.iter().map(|(name, text)| format!("{name} {}", text.replace('\n', " ")));
            fields.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A value on one line: its beginning, when it is long.
fn shown(value: &serde_json::Value) -> String {
    /// The longest value that is shown whole, in bytes.
    const MAX_SHOWN: usize = 200;
    let text = match value {
        serde_json::Value::String(text) => text.replace('\n', "\\n"),
        other => other.to_string(),
    };
    let end = text.floor_char_boundary(MAX_SHOWN);
    if end < text.len() { format!("{}... ({} bytes)", &text[..end], text.len()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_that_are_left_out_are_counted() {
        let unknown = |similar: &[&str], more| WhyError::Unknown {
            name: "x".to_owned(),
            similar: similar.iter().map(|name| (*name).to_owned()).collect(),
            more,
        };
        let text = unknown(&["a/file:x", "b/file:x"], 7).to_string();
        assert_eq!(text, "no one resource of this host is called x; there are a/file:x, b/file:x and 7 more");
        let text = unknown(&["a/file:x", "b/file:x"], 0).to_string();
        assert_eq!(text, "no one resource of this host is called x; there are a/file:x, b/file:x");
    }
}
