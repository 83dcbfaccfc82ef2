//! A resource: what brought it, what holds it back, and where each attribute is from.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::schema::{self, Short};
use converge::{BoundResource, BoundSource, When};
use lang::Value;
use resolve::explain::{LayerKind, ModuleBecause, RepoSource};
use serde::Serialize;

use super::uses::{self, NamesUsed};
use super::{ExplainError, NodeInQuestion, ValueExplanation, hidden};
use crate::bound;

/// A resource of a node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainedResource {
    /// `module/type:name`.
    pub(super) id: String,
    /// Where it is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<RepoSource>,
    /// Its module, and what brings that.
    pub(super) module: String,
    pub(super) because: Vec<ModuleBecause>,
    /// The conditions of its module and its own.
    pub(super) conditions: Vec<ExplainedCondition>,
    /// What is declared of it, by key.
    pub(super) attributes: Vec<ExplainedAttribute>,
    /// Why it cannot be bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// What may hold a resource back.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainedCondition {
    /// `when` of the module or the resource, `only_if`, `not_if`.
    pub(super) key: String,
    /// As written.
    pub(super) condition: String,
    pub(super) answer: ConditionAnswer,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<RepoSource>,
    /// What it needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) uses: Vec<UsedName>,
}

/// What a condition comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ConditionAnswer {
    /// It holds.
    Holds,
    /// It does not, so the resource is skipped.
    Skips,
    /// Only the host can say, in each run.
    AskedOnNode,
    /// It cannot be evaluated: the reason.
    Failed(String),
}

/// A key of a resource.
#[derive(Serialize)]
pub(super) struct ExplainedAttribute {
    pub(super) name: String,
    /// What it comes to.
    pub(super) value: String,
    /// Where it is written; none for what follows from other keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<RepoSource>,
    /// The names that it uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) uses: Vec<UsedName>,
}

/// A name that an expression uses, with its value and who set it.
#[derive(Serialize)]
pub(super) struct UsedName {
    pub(super) name: String,
    /// Absent where there is none, or where only the node knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<Value>,
    /// The layer that wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layer: Option<LayerKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<RepoSource>,
}

impl NodeInQuestion<'_> {
    /// The resource that a text names, whole or one attribute of it.
    pub(super) fn resource(&mut self, asked: &str) -> Result<Option<ExplainedResource>, ExplainError> {
        if let Some(found) = self.find(asked)? {
            return Ok(Some(self.explained(&found)));
        }
        for (dot, _) in asked.rmatch_indices('.') {
            let (name, attribute) = (&asked[..dot], &asked[dot + 1..]);
            let Some(found) = self.find(name)? else { continue };
            let mut explained = self.explained(&found);
            explained.attributes.retain(|one| one.name == attribute);
            if !explained.attributes.is_empty() {
                return Ok(Some(explained));
            }
        }
        Ok(None)
    }

    /// By `module/type:name`, `type:name`, `module/id`, `id` or name.
    fn find(&self, asked: &str) -> Result<Option<Arc<BoundResource>>, ExplainError> {
        let names = |resource: &BoundResource| {
            let declared = resource.source.as_ref().and_then(|source| source.declared.id.clone());
            let module = resource.id.module();
            let label = format!("{}:{}", resource.kind, resource.name);
            let id = declared.is_some_and(|id| id == asked || format!("{module}/{id}") == asked);
            id || resource.id.as_str() == asked || label == asked || resource.name == asked
        };
        let mut found: Vec<&Arc<BoundResource>> =
            self.desired.resources().filter(|resource| names(resource)).collect();
        if let Some(exact) = found.iter().find(|resource| resource.id.as_str() == asked) {
            found = vec![exact];
        }
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some((*one).clone())),
            several => Err(ExplainError::Ambiguous {
                asked: asked.to_owned(),
                candidates: several.iter().map(|resource| resource.id.to_string()).collect(),
            }),
        }
    }

    fn explained(&mut self, resource: &BoundResource) -> ExplainedResource {
        let module = resource.id.module().to_owned();
        let placed =
            resource.source.as_ref().and_then(|source| self.explainer.resource(&module, source.slot));
        let (source, keys) = placed.map(|placed| (placed.source, placed.keys)).unzip();
        let keys = keys.unwrap_or_default();
        let mut conditions: Vec<ExplainedCondition> = self.module_condition(&module).into_iter().collect();
        conditions.extend(self.own_conditions(resource, &keys));
        ExplainedResource {
            id: resource.id.to_string(),
            source,
            because: self.explainer.module(&module),
            conditions,
            attributes: self.attributes(resource, &keys),
            error: match (&resource.spec, &resource.when) {
                (Err(_), When::Never(_)) | (Ok(_), _) => None,
                (Err(why), _) => Some(why.to_string()),
            },
            module,
        }
    }

    fn module_condition(&mut self, module: &str) -> Option<ExplainedCondition> {
        let bound = self.desired.modules.iter().find(|bound| bound.name == module)?.clone();
        let declared = self.modules.get(module)?.when.clone()?;
        let uses = self.used(module, &uses::of_condition(&declared), None);
        let (key, source) = (format!("when of module {module}"), Some(self.explainer.module_when(module)));
        Some(ExplainedCondition { key, condition: declared, answer: answer(&bound.when), source, uses })
    }

    fn own_conditions(
        &mut self,
        resource: &BoundResource,
        keys: &BTreeMap<String, RepoSource>,
    ) -> Vec<ExplainedCondition> {
        let module = resource.id.module();
        let mut conditions = Vec::new();
        let declared = resource.source.as_ref().map(|source| &source.declared);
        if let Some(when) = declared.and_then(|declared| declared.when.clone()) {
            conditions.push(ExplainedCondition {
                key: "when".to_owned(),
                answer: answer(&resource.when),
                source: keys.get("when").cloned(),
                uses: self.used(module, &uses::of_condition(&when), Some(resource)),
                condition: when,
            });
        }
        let guards = declared.map(|declared| [("only_if", &declared.only_if), ("not_if", &declared.not_if)]);
        for (key, command) in guards.into_iter().flatten() {
            let Some(command) = command else { continue };
            conditions.push(ExplainedCondition {
                key: key.to_owned(),
                condition: bound::command(command),
                answer: ConditionAnswer::AskedOnNode,
                source: keys.get(key).cloned(),
                uses: self.used(module, &uses::of_command(command), Some(resource)),
            });
        }
        conditions
    }

    /// Every key that is written, and what follows from them.
    fn attributes(
        &mut self,
        resource: &BoundResource,
        keys: &BTreeMap<String, RepoSource>,
    ) -> Vec<ExplainedAttribute> {
        let mut fields = bound::fields(resource, self.blobs);
        for name in ["error", "when", "only_if", "not_if"] {
            fields.remove(name);
        }
        // Where it is not wanted too: what it would be is asked for.
        bound::add_declared(&mut fields, resource);
        fields.entry("name".to_owned()).or_insert_with(|| resource.name.clone());
        if resource.sensitive {
            bound::hide(&mut fields);
        }
        let short = schema::find(&resource.kind).map(|kind| match kind.short {
            Short::Path | Short::Name => "name",
            Short::Attribute(attribute) => attribute,
        });
        let written = |name: &str| {
            let by_short = || keys.get(&resource.kind).filter(|_| short == Some(name));
            keys.get(name).or_else(by_short).cloned()
        };
        let mut all = Vec::new();
        for (name, value) in fields {
            let (mut source, mut names) = (written(&name), NamesUsed::new());
            if let Some(of) = &resource.source {
                names = self.names_of(resource, of, &name);
                if source.is_none() && name == "content" {
                    source = written("template").or_else(|| written("source"));
                }
            }
            let uses = self.used(resource.id.module(), &names, Some(resource));
            all.push(ExplainedAttribute { name, value, source, uses });
        }
        all
    }

    /// The names that a key of a declaration uses.
    fn names_of(&self, resource: &BoundResource, of: &BoundSource, key: &str) -> NamesUsed {
        let declared = &of.declared;
        let mut names = declared.attributes.get(key).map(uses::of_value).unwrap_or_default();
        if key == "name" {
            names.extend(uses::of_value(&Value::from(declared.name.as_str())));
            names.extend(declared.foreach.iter().flat_map(uses::of_value));
        }
        let template = declared.attributes.get("template").and_then(Value::as_str);
        if let (Some(template), Some(module)) =
            (template.filter(|_| key == "content"), self.modules.get(resource.id.module()))
        {
            names.extend(uses::of_template(module, template));
        }
        names
    }

    /// What names come to in a module, or in a resource of it.
    fn used(&mut self, module: &str, names: &NamesUsed, of: Option<&BoundResource>) -> Vec<UsedName> {
        let mut all = Vec::new();
        for path in names {
            let name = path.join(".");
            if let Some(var) = uses::var(module, path) {
                let explained = self.var(&var);
                all.push(used_var(name, explained));
                continue;
            }
            let value = match path.split_first() {
                Some((root, rest)) if root == "traits" => self.observed.traits.path(&rest.join(".")).cloned(),
                Some((root, rest)) if root == "node" => self.of_node(&rest.join(".")),
                Some((root, rest)) => of.and_then(|resource| of_item(resource, root, rest)),
                None => None,
            };
            all.push(UsedName { name, value, layer: None, source: None });
        }
        all
    }

    /// `node.NAME` in an expression.
    fn of_node(&mut self, name: &str) -> Option<Value> {
        if name == "hostname" {
            return Some(Value::from(self.hostname));
        }
        let declared = self.explainer.node().declared;
        let found = declared.iter().find(|value| value.name == name)?;
        found.winner().map(|winner| winner.value.clone())
    }
}

/// `key` or `item` of a resource with `foreach`.
fn of_item(resource: &BoundResource, root: &str, rest: &[String]) -> Option<Value> {
    let (key, item) = resource.source.as_ref()?.item.as_ref()?;
    let value = match root {
        "key" => key,
        "item" if rest.is_empty() => item,
        "item" => item.path(&rest.join("."))?,
        _ => return None,
    };
    Some(if resource.sensitive { hidden(value.clone()) } else { value.clone() })
}

fn used_var(name: String, explained: Option<ValueExplanation>) -> UsedName {
    let Some(ValueExplanation { explained, value, .. }) = explained else {
        return UsedName { name, value: None, layer: None, source: None };
    };
    let winner = explained.winner().map(|winner| (winner.layer.clone(), winner.source.clone()));
    let (layer, source) = winner.unzip();
    UsedName { name, value, layer, source }
}

fn answer(when: &When) -> ConditionAnswer {
    match when {
        When::Always => ConditionAnswer::Holds,
        When::Never(_) => ConditionAnswer::Skips,
        When::Ask(_) => ConditionAnswer::AskedOnNode,
        When::Failed(why) => ConditionAnswer::Failed(why.to_string()),
    }
}
